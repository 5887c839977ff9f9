/* SPDX-License-Identifier: Apache-2.0 */
/* Granite: llama with scales of what x begins with, of what is added to it, of
 * scores and of logits. Source: IBM, "Granite 3.0 Language Models". */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_granite = {
    .name = "granite",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .maybe_biases = BT_BIAS_QKV | BT_BIAS_ATTN_OUTPUT | BT_BIAS_FFN_UP |
                            BT_BIAS_FFN_DOWN,
            .takes = BT_TAKES_EMBEDDING_SCALE | BT_TAKES_RESIDUAL_SCALE |
                     BT_TAKES_LOGIT_SCALE,
            .logit_scale_divides = true,
        },
};
