/* SPDX-License-Identifier: Apache-2.0 */
/* Falcon: attention and feed-forward in parallel, behind one norm (7B) or a
 * norm each (40B and later); RefinedWeb's have them one after the other, biases
 * and ALiBi, whose slopes are scaled with the scores. Source: Almazrouei et
 * al., "The Falcon Series of Open Language Models". */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_falcon = {
    .name = "falcon",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .layer_norm = true,
            .biases = BT_BIAS_NORM,
            .maybe_biases = BT_BIAS_QKV | BT_BIAS_ATTN_OUTPUT | BT_BIAS_FFN_UP |
                            BT_BIAS_FFN_DOWN,
            .plain_ffn = true,
            .act = BT_ACT_GELU_ERF,
            .parallel_key = true,
            .one_norm = true,
            .pairs_apart = true,
            .alibi_scaled = true,
            .takes = BT_TAKES_ALIBI,
        },
};
