/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_route.h
 *
 * KV routes: what one rank of an instance exchanges with another instance of
 * one model. A *lane* pairs the rank with each remote rank that has heads and
 * layers in common with it, and has the plan of what moves (kv_reshard.h).
 *
 *     this rank, 1 x 1      rank 0 ── heads 0, 1 ──▶ rank 0 of 2 x 1
 *     (BT_KV_SRC)              └───── heads 2, 3 ──▶ rank 1
 *
 * A lane is a receive window in the receiver's pool and one transfer into it.
 * Between two instances of one rank there is one lane, and a group's plan is a
 * single move: a whole block.
 *
 * For a sequence of n tokens whose first spans the receiver already has, a lane
 * moves what each group needs (kv_groups.h), group after group:
 *
 *     window   [ group 0: spans 2 … 7 ][ group 1, windowed: spans 5 … 7 ]
 *
 * Both ends know the groups, n and what is cached, so both compute one layout.
 *
 * Rank 0 communicates with the routers for its instance. The other ranks of a
 * receiver open the windows of their lanes and give their descriptors to rank
 * 0, which puts all into one grant, each with its pair of ranks; rank 0 of a
 * sender gives each rank its own. How ranks follow rank 0 inside an instance is
 * not here yet: docs/adr/0007-ranks-in-the-protocol.md.
 *
 * Threads: pure functions.
 */
#ifndef BT_COMMON_KV_KV_ROUTE_H
#define BT_COMMON_KV_KV_ROUTE_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/kv/kv_groups.h"
#include "common/kv/kv_reshard.h"

/** Pair of this rank with one rank of the other instance. */
typedef struct bt_kv_lane {
    uint32_t rank;
    bt_kv_reshard_t plan[BT_KV_MAX_GROUPS]; /**< plan of each group */
    uint64_t src_page_bytes,
        dst_page_bytes; /**< page sizes of the pools at both ends */
} bt_kv_lane_t;

/** Lanes of one rank. */
typedef struct bt_kv_route {
    uint32_t n_lanes;    /**< at least 1 */
    bt_kv_lane_t *lanes; /**< owned; by rank */
} bt_kv_route_t;

/**
 * Plans the lanes of one rank.
 *
 * @param [in]  groups   Of the whole model.
 * @param [in]  end      The end that this rank is.
 * @param [in]  mine     Split of the model in its instance.
 * @param [in]  rank     Below tp * pp of @a mine.
 * @param [in]  theirs   Split of the model in the other instance.
 * @param [out] route_p  Owned by the caller: bt_kv_route_fini().
 * @retval BT_ERR_INVALID_PARAM  a split that this model does not allow: more
 *                               slices than heads, more stages than layers
 * @retval BT_ERR_UNSUPPORTED    slices of a state
 * @retval BT_ERR_OVERFLOW       a block of that shape
 * @retval BT_ERR_NO_MEMORY
 * Cost O(layers x ranks of the other instance).
 */
BT_MUST_CHECK bt_status_t bt_kv_route_make(
    const bt_kv_groups_t *groups, bt_kv_end_t end, const bt_kv_split_t *mine,
    uint32_t rank, const bt_kv_split_t *theirs, bt_kv_route_t *route_p);
void bt_kv_route_fini(bt_kv_route_t *route);

/** Transfer of one sequence's KV through one lane. */
typedef struct bt_kv_handover {
    const bt_kv_groups_t *groups; /**< borrowed */
    const bt_kv_lane_t *lane;     /**< borrowed */
    uint32_t n_tokens;            /**< tokens that have K and V */
    uint32_t n_cached; /**< leading spans that the receiver has in all groups */
} bt_kv_handover_t;

/** Returns the bytes of a transfer's receive window. */
uint64_t bt_kv_handover_bytes(const bt_kv_handover_t *handover);

/**
 * Begins a walk through a group's part of the receive window, or some of it:
 * those of the spans [first, until) that the transfer moves.
 *
 * @param [in] end    End whose pool and table are walked.
 * @param [in] table  Table of the sequence there; outlives the walk.
 */
bt_kv_walk_t bt_kv_handover_walk(const bt_kv_handover_t *handover,
                                 uint32_t group, bt_kv_end_t end,
                                 const uint32_t *table, uint32_t first,
                                 uint32_t until);

#endif
