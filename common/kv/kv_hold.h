/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_hold.h
 *
 * Tracks which blocks of its table a sequence holds. In a full-attention group,
 * those of all its spans; in a windowed one (kv_groups.h), those that the next
 * token attends to and some ahead, a range that slides along with the
 * computation:
 *
 *     n tokens computed           first_span(n)      n
 *                                       ▼            ▼
 *     full group       [■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■│■ ■ ■ ■ ■ ■ ■ ■]
 *     windowed group    · · · · · · · · [■ ■ ■ ■ ■ ■ │■ ■ ■ ■] · · ·
 *                       released        first        ahead  end
 *
 * So the number of blocks held in a windowed group depends on the window and
 * not on the length, bt_kv_group_most_spans(), from begin to end: for each
 * block released one ahead is acquired. The pool has that block, even where
 * others hold the released one (kv_block_pool.h), so a sequence that has begun
 * never waits for a block of a window.
 *
 * A table may be read by the compute thread, as far as end(): entries of
 * released spans stay unchanged there, and no reader whose window does not
 * reach them uses them.
 *
 * Threads: the pool's owner. Nothing is allocated.
 */
#ifndef BT_COMMON_KV_KV_HOLD_H
#define BT_COMMON_KV_KV_HOLD_H

#include <stdint.h>

#include "common/kv/kv_block_pool.h"
#include "common/kv/kv_groups.h"

/** Held spans [first, end) of the table, for each group. All zero: none. */
typedef struct bt_kv_hold {
    uint32_t first[BT_KV_MAX_GROUPS];
    uint32_t end[BT_KV_MAX_GROUPS];
} bt_kv_hold_t;

/** Limits of how far a sequence may proceed. */
typedef struct bt_kv_reach {
    uint32_t n_spans; /**< spans held in full-attention groups */
    uint32_t n_most;  /**< for all that it may ever compute, at least n_spans */
    uint32_t ahead_tokens; /**< tokens computed before windows slide */
} bt_kv_reach_t;

/** Returns the most blocks that a sequence holds with this reach. */
uint64_t bt_kv_reach_blocks(const bt_kv_groups_t *groups,
                            const bt_kv_reach_t *reach);

/** Returns the blocks that a sequence holds. */
uint32_t bt_kv_hold_blocks(const bt_kv_groups_t *groups,
                           const bt_kv_hold_t *hold);

/** Sets the hold of a new sequence to what bt_kv_prefix_match() with this @a
 *  n_known found: @a n_spans, and nothing else. */
void bt_kv_hold_found(const bt_kv_groups_t *groups, bt_kv_hold_t *hold,
                      uint32_t n_spans, uint64_t n_known);

/** True when bt_kv_hold_pass() would release a block or move a window. */
bool bt_kv_hold_passes(const bt_kv_groups_t *groups, const bt_kv_hold_t *hold,
                       uint64_t n_tokens);

/**
 * Releases blocks that are not needed after @a n_tokens tokens. A window that
 * lies wholly behind the held range begins there, empty.
 *
 * @param [in] table  n_groups ids per span
 * @return number of blocks released
 */
uint32_t bt_kv_hold_pass(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                         bt_kv_hold_t *hold, const uint32_t *table,
                         uint64_t n_tokens);

/** Returns the blocks that the hold lacks of its reach. */
uint32_t bt_kv_hold_lacks(const bt_kv_groups_t *groups,
                          const bt_kv_hold_t *hold, const bt_kv_reach_t *reach);

/**
 * Adds blocks up to the reach; those of a group get adjacent ids.
 * @param [in]     ids    bt_kv_hold_lacks() ids, just acquired
 * @param [in,out] table  n_groups ids per span, for reach->n_most spans
 */
void bt_kv_hold_fill(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                     bt_kv_hold_t *hold, const bt_kv_reach_t *reach,
                     const uint32_t *ids, uint32_t *table);

/** Releases all blocks. */
void bt_kv_hold_return(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                       bt_kv_hold_t *hold, const uint32_t *table);

/** Returns the leading spans that have a block, or need none, in every
 *  group: the sequence can be computed up to there. */
uint32_t bt_kv_hold_end(const bt_kv_groups_t *groups, const bt_kv_hold_t *hold);

#endif
