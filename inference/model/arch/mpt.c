/* SPDX-License-Identifier: Apache-2.0 */
/* MPT: ALiBi, or learned positions; norms and matrices without biases, but in
 * some; queries, keys and values that are clamped. Source: MosaicML,
 * "Introducing MPT-7B", and its code. */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_mpt = {
    .name = "mpt",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .layer_norm = true,
            .maybe_biases = BT_BIAS_NORM | BT_BIAS_QKV | BT_BIAS_ATTN_OUTPUT |
                            BT_BIAS_FFN_UP | BT_BIAS_FFN_DOWN,
            .plain_ffn = true,
            .act = BT_ACT_GELU_ERF,
            .learned_positions = true,
            .takes = BT_TAKES_ALIBI | BT_TAKES_CLAMP,
        },
};
