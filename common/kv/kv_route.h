/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_route.h
 *
 * What one rank of an instance exchanges with another instance of the same
 * model: a *lane* for each rank over there that has heads and layers in common
 * with it, with the plan of what moves (kv_reshard.h).
 *
 *     this rank, 1 x 1      rank 0 ── heads 0, 1 ──▶ rank 0 of 2 x 1
 *     (BT_KV_SRC)              └───── heads 2, 3 ──▶ rank 1
 *
 * A lane is a window in the receiver's pool and one transfer into it. Between
 * two instances of one rank there is one lane, whose plan is a single move: a
 * whole block.
 *
 * Rank 0 speaks to the routers for its instance. The other ranks of a receiver
 * open the windows of their lanes and give their descriptors to rank 0, which
 * puts all into one grant, each with its pair of ranks; rank 0 of a sender
 * gives each rank its own. Who follows whom inside an instance is not here yet:
 * docs/adr/0007-ranks-in-the-protocol.md.
 *
 * Threads: pure functions.
 */
#ifndef BT_COMMON_KV_KV_ROUTE_H
#define BT_COMMON_KV_KV_ROUTE_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/kv/kv_reshard.h"

/** One rank of the other instance. */
typedef struct bt_kv_lane {
    uint32_t rank;
    bt_kv_reshard_t plan;
} bt_kv_lane_t;

typedef struct bt_kv_route {
    uint32_t n_lanes;    /**< at least 1 */
    bt_kv_lane_t *lanes; /**< owned; by rank */
} bt_kv_route_t;

/**
 * @param [in]  whole    All of the model's layers and KV heads.
 * @param [in]  end      Which one this rank is.
 * @param [in]  mine     How its instance splits the model.
 * @param [in]  rank     Below tp * pp of @a mine.
 * @param [in]  theirs   How the other instance does.
 * @param [out] route_p  Owned by the caller: bt_kv_route_fini().
 * @retval BT_ERR_INVALID_PARAM  a split that this model does not allow
 *                               (bt_kv_part_of())
 * @retval BT_ERR_OVERFLOW       a block of that shape
 * @retval BT_ERR_NO_MEMORY
 * Cost O(layers x ranks over there).
 */
BT_MUST_CHECK bt_status_t bt_kv_route_make(
    const bt_kv_shape_t *whole, bt_kv_end_t end, const bt_kv_split_t *mine,
    uint32_t rank, const bt_kv_split_t *theirs, bt_kv_route_t *route_p);
void bt_kv_route_fini(bt_kv_route_t *route);

#endif
