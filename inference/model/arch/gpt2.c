/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2. Source: Radford et al., "Language Models are Unsupervised Multitask
 * Learners". */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_gpt2 = {
    .name = "gpt2",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .layer_norm = true,
            .biases = BT_BIAS_NORM | BT_BIAS_QKV | BT_BIAS_ATTN_OUTPUT |
                      BT_BIAS_FFN_UP | BT_BIAS_FFN_DOWN,
            .plain_ffn = true,
            .act = BT_ACT_GELU_TANH,
            .learned_positions = true,
        },
};
