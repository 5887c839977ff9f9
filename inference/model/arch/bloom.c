/* SPDX-License-Identifier: Apache-2.0 */
/* BLOOM: ALiBi, biases throughout, a norm of the embedding. Source: Le Scao et
 * al., "BLOOM: A 176B-Parameter Open-Access Multilingual Language Model". */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_bloom = {
    .name = "bloom",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .layer_norm = true,
            .embedding_norm = true,
            .biases = BT_BIAS_NORM | BT_BIAS_QKV | BT_BIAS_ATTN_OUTPUT |
                      BT_BIAS_FFN_UP | BT_BIAS_FFN_DOWN,
            .plain_ffn = true,
            .act = BT_ACT_GELU_TANH,
            .alibi = 8.0f,
            .takes = BT_TAKES_ALIBI,
        },
};
