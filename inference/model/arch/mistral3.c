/* SPDX-License-Identifier: Apache-2.0 */
/* Ministral 3 and Mistral Small 3: llama, and where the file says so queries
 * that grow with the position beyond the trained context. Source: Mistral AI,
 * "Ministral 3"; the scale, Meta, "Llama 4" (interleaved attention). */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_mistral3 = {
    .name = "mistral3",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .maybe_biases = BT_BIAS_QKV | BT_BIAS_ATTN_OUTPUT | BT_BIAS_FFN_UP |
                            BT_BIAS_FFN_DOWN,
            .takes = BT_TAKES_TEMPERATURE,
        },
};
