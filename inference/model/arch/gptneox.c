/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-NeoX and Pythia: attention and feed-forward in parallel, positions in a
 * part of each head. Source: Black et al., "GPT-NeoX-20B". */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_gptneox = {
    .name = "gptneox",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .layer_norm = true,
            .biases = BT_BIAS_NORM | BT_BIAS_FFN_UP | BT_BIAS_FFN_DOWN,
            .maybe_biases = BT_BIAS_QKV | BT_BIAS_ATTN_OUTPUT,
            .plain_ffn = true,
            .act = BT_ACT_GELU_ERF,
            .parallel_key = true,
            .pairs_apart = true,
        },
};
