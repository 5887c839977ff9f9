/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen 2 and 2.5, whose queries, keys and values have biases, and Qwen 3, which
 * has norms of queries and keys. Source: Yang et al., "Qwen2 Technical Report"
 * and "Qwen3 Technical Report". */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_qwen2 = {
    .name = "qwen2",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .biases = BT_BIAS_QKV,
            .maybe_biases = BT_BIAS_OUTPUT,
            .pairs_apart = true,
            .takes = BT_TAKES_WINDOW,
        },
};

const bt_arch_t bt_arch_qwen3 = {
    .name = "qwen3",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .qk_norm = BT_QK_NORM_HEADS,
            .pairs_apart = true,
            .takes = BT_TAKES_WINDOW,
        },
};
