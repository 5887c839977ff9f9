/* SPDX-License-Identifier: Apache-2.0 */
/* Cohere 2 (Command R7B, Command A): attention and feed-forward in parallel
 * behind one norm; three of four layers have a window and rotary positions, the
 * fourth neither. Source: Cohere, "Command A". */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_cohere2 = {
    .name = "cohere2",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .layer_norm = true,
            .parallel = true,
            .one_norm = true,
            .takes = BT_TAKES_WINDOW | BT_TAKES_LOGIT_SCALE,
            .window_period = 4,
            .window_turns = true,
        },
};
