/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_hold.h
 *
 * Which blocks of its table a sequence holds. Of a group that needs everything,
 * those of all spans that it has; of a windowed one (kv_groups.h), those that
 * what comes next can see and some ahead, which slide along as it is computed:
 *
 *     n tokens computed           first_span(n)      n
 *                                       ▼            ▼
 *     whole group      [■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■│■ ■ ■ ■ ■ ■ ■ ■]
 *     windowed group    · · · · · · · · [■ ■ ■ ■ ■ ■ │■ ■ ■ ■] · · ·
 *                       let go of       first        ahead  end
 *
 * So of a windowed group it holds a number of blocks that depends on the window
 * and not on the length, bt_kv_group_most_spans(), from its begin to its end:
 * for each that it lets go of it takes one ahead. The pool has that one, also
 * where others hold what was let go of (kv_block_pool.h), so who has begun
 * never waits for a block of a window.
 *
 * A table may be read by the thread that computes, as far as end(): entries of
 * spans that were let go of stay as they are there, and are looked at by nobody
 * whose window does not reach them.
 *
 * Threads: the pool's owner. Nothing is allocated.
 */
#ifndef BT_COMMON_KV_KV_HOLD_H
#define BT_COMMON_KV_KV_HOLD_H

#include <stdint.h>

#include "common/kv/kv_block_pool.h"
#include "common/kv/kv_groups.h"

/** Of each group the spans [first, end) of the table. All zero: nothing. */
typedef struct bt_kv_hold {
    uint32_t first[BT_KV_MAX_GROUPS];
    uint32_t end[BT_KV_MAX_GROUPS];
} bt_kv_hold_t;

/** How far a sequence may get. */
typedef struct bt_kv_reach {
    uint32_t n_spans; /**< that whole groups hold */
    uint32_t n_most;  /**< for all that it may ever compute, at least n_spans */
    uint32_t ahead_tokens; /**< that are computed before windows have slid */
} bt_kv_reach_t;

/** Blocks that a sequence holds at most with this reach. */
uint64_t bt_kv_reach_blocks(const bt_kv_groups_t *groups,
                            const bt_kv_reach_t *reach);

/** Blocks that it holds. */
uint32_t bt_kv_hold_blocks(const bt_kv_groups_t *groups,
                           const bt_kv_hold_t *hold);

/** Of windowed groups alone. */
uint32_t bt_kv_hold_windowed(const bt_kv_groups_t *groups,
                             const bt_kv_hold_t *hold);

/** It holds what bt_kv_prefix_match() found: @a n_spans, and nothing else. */
void bt_kv_hold_found(const bt_kv_groups_t *groups, bt_kv_hold_t *hold,
                      uint32_t n_spans);

/** Does bt_kv_hold_pass() let go of anything? */
bool bt_kv_hold_passes(const bt_kv_groups_t *groups, const bt_kv_hold_t *hold,
                       uint64_t n_tokens);

/**
 * Let go of what nobody needs after @a n_tokens tokens. A window that lies
 * wholly behind what it holds begins there, with nothing.
 *
 * @param [in] table  n_groups ids a span
 * @return how many blocks it held of that
 */
uint32_t bt_kv_hold_pass(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                         bt_kv_hold_t *hold, const uint32_t *table,
                         uint64_t n_tokens);

/** Blocks that it lacks of its reach. */
uint32_t bt_kv_hold_lacks(const bt_kv_groups_t *groups,
                          const bt_kv_hold_t *hold, const bt_kv_reach_t *reach);

/** Put blocks where they lack; those of a group get neighbours.
 *  @param [in]     ids    bt_kv_hold_lacks() of them, just acquired
 *  @param [in,out] table  n_groups ids a span, reach->n_most of them */
void bt_kv_hold_fill(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                     bt_kv_hold_t *hold, const bt_kv_reach_t *reach,
                     const uint32_t *ids, uint32_t *table);

/** Give all back. */
void bt_kv_hold_return(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                       bt_kv_hold_t *hold, const uint32_t *table);

/** Spans from the first one on that have a block in every group, or needed
 *  none: so far it can be computed. */
uint32_t bt_kv_hold_end(const bt_kv_groups_t *groups, const bt_kv_hold_t *hold);

#endif
