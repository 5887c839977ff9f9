/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma's three generations: GELU and an embedding of its own scale; from the
 * second on norms behind attention and feed-forward too and layers that
 * alternate between a window and all positions; the second caps scores and
 * logits, the third has norms of queries and keys instead. (The files have
 * 1 + w of what the authors call a norm's weight.)
 * Source: Gemma Team, "Gemma", "Gemma 2" and "Gemma 3" technical reports. */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_gemma = {
    .name = "gemma",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .act = BT_ACT_GELU_TANH,
            .pairs_apart = true,
            .scaled_embedding = true,
        },
};

const bt_arch_t bt_arch_gemma2 = {
    .name = "gemma2",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .norms_after = true,
            .act = BT_ACT_GELU_TANH,
            .pairs_apart = true,
            .takes = BT_TAKES_WINDOW | BT_TAKES_LOGIT_CAP,
            .window_period = 2,
            .window = 4096,
            .scaled_embedding = true,
            .wide_scale_layers = 46, /* 27B */
        },
};

const bt_arch_t bt_arch_gemma3 = {
    .name = "gemma3",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .norms_after = true,
            .qk_norm = BT_QK_NORM_HEADS,
            .act = BT_ACT_GELU_TANH,
            .pairs_apart = true,
            .takes = BT_TAKES_WINDOW | BT_TAKES_LOGIT_CAP,
            .window_period = 6,
            .window_rope_base = 10000.0f,
            .window_rope_unscaled = true,
            .scaled_embedding = true,
            .wide_scale_layers = 62, /* 27B */
        },
};
