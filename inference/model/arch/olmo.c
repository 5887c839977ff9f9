/* SPDX-License-Identifier: Apache-2.0 */
/* OLMo: norms without weights, queries, keys and values that are clamped. OLMo
 * 2 and 3: norms behind attention and feed-forward alone, and of all queries
 * and all keys together; the third has windows, in whose layers positions are
 * not scaled. Source: Groeneveld et al., "OLMo: Accelerating the Science of
 * Language Models"; Walsh et al., "2 OLMo 2 Furious". */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_olmo = {
    .name = "olmo",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .layer_norm = true,
            .bare_norms = true,
            .takes = BT_TAKES_CLAMP,
        },
};

const bt_arch_t bt_arch_olmo2 = {
    .name = "olmo2",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .no_norms_before = true,
            .norms_after = true,
            .qk_norm = BT_QK_NORM_ROW,
            .pairs_apart = true,
            .takes = BT_TAKES_WINDOW,
            .window_period = 4,
            .window_rope_unscaled = true,
        },
};
