/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_block_pool.h
 *
 * KV blocks: the pool, forks that share blocks, and what a sequence holds.
 */
#ifndef BT_COMMON_KV_KV_BLOCK_POOL_H
#define BT_COMMON_KV_KV_BLOCK_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/kv/kv_groups.h"

/*
 * Pool of KV-cache blocks: which are free, and how many sequences share each
 * one.
 *
 * The pool deals in block ids, never in addresses, so one pool serves host and
 * device memory and a block id can cross the wire unchanged.
 *
 * A cache may keep blocks whose content is useful beyond the sequence that
 * filled them. A kept block without another holder is idle: not free, but the
 * cache can evict it at any time.
 *
 * A holder of a *windowed* block (of a sliding-window layer) releases it while
 * it proceeds, and acquires another for its next tokens. If others
 * still hold the block, releasing it frees nothing, so one block is set aside
 * for each holder but one:
 *
 *     set aside  =  sum over windowed blocks of (holders - 1)
 *     available  =  free + idle - set aside
 *
 * So taking a windowed block costs one available block, whether it is shared or
 * new, and releasing it returns one; a holder that releases one and acquires
 * another always succeeds, as long as no sequence begins with more than what is
 * available.
 *
 * Threads: none of these functions lock. One thread owns a pool.
 * Source:  W. Kwon et al., "Efficient Memory Management for Large Language
 *          Model Serving with PagedAttention", SOSP 2023, section 4.4
 *          (sharing blocks by reference count).
 */

typedef struct bt_kv_pool bt_kv_pool_t; /* private to kv_block_pool.c */

/**
 * Creates a pool of @a n_blocks free blocks, ids 0 .. n_blocks - 1.
 *
 * @param [in]  n_blocks  Blocks, at least 1.
 * @param [out] pool_p    Owned by the caller; free with bt_kv_pool_destroy().
 *                        Written only on success.
 *
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  n_blocks is 0.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_kv_pool_create(uint32_t n_blocks,
                                            bt_kv_pool_t **pool_p);

/** Frees the pool; warns if blocks are still held. @a pool may be NULL. */
void bt_kv_pool_destroy(bt_kv_pool_t *pool);

/**
 * Acquires @a n blocks, or none: a half-allocated sequence could neither run
 * nor be queued, so there is no partial success. Cost O(n); allocates nothing.
 *
 * @param [out] ids  n ids, one reference each, owned by the caller. Written
 *                   only on success.
 *
 * @retval BT_OK
 * @retval BT_ERR_NO_BLOCKS  Fewer than n are free; preempt or wait.
 */
BT_MUST_CHECK bt_status_t bt_kv_pool_acquire(bt_kv_pool_t *pool, uint32_t n,
                                             uint32_t *ids);

/** Adds a reference to a held block (prefix sharing). */
void bt_kv_pool_ref(bt_kv_pool_t *pool, uint32_t id);

/** Drops a reference; the last one frees the block. */
void bt_kv_pool_unref(bt_kv_pool_t *pool, uint32_t id);

/** Marks a held block, which has one holder and is not kept, as windowed
 *  until it is free again. */
void bt_kv_pool_set_windowed(bt_kv_pool_t *pool, uint32_t id);

/** Returns the blocks set aside: how many of the free and idle ones the
 *  holders of windowed blocks may still need. */
uint32_t bt_kv_pool_n_set_aside(const bt_kv_pool_t *pool);

/** Returns the windowed blocks that have holders. */
uint32_t bt_kv_pool_n_windowed(const bt_kv_pool_t *pool);

/** Returns the blocks that can be acquired now. */
uint32_t bt_kv_pool_n_free(const bt_kv_pool_t *pool);

/** Adds the cache's reference to a held block that is not kept. */
void bt_kv_pool_keep(bt_kv_pool_t *pool, uint32_t id);

/** Drops the cache's reference. */
void bt_kv_pool_unkeep(bt_kv_pool_t *pool, uint32_t id);

/** True when a block is kept by the cache and has no other holder. */
bool bt_kv_pool_is_idle(const bt_kv_pool_t *pool, uint32_t id);

/** Returns the number of idle blocks. */
uint32_t bt_kv_pool_n_idle(const bt_kv_pool_t *pool);

/** Returns the blocks available to a new sequence: free or idle, and not set
 *  aside. */
static inline uint32_t bt_kv_pool_n_available(const bt_kv_pool_t *pool)
{
    const uint32_t n = bt_kv_pool_n_free(pool) + bt_kv_pool_n_idle(pool);
    const uint32_t n_aside = bt_kv_pool_n_set_aside(pool);

    return (n > n_aside) ? n - n_aside : 0;
}

/** Returns the blocks that are set aside but not free or idle. Non-zero only
 *  while a sequence holds windowed blocks from a prefix match and has not
 *  begun: none may remain when it begins. */
static inline uint32_t bt_kv_pool_n_overdrawn(const bt_kv_pool_t *pool)
{
    const uint32_t n = bt_kv_pool_n_free(pool) + bt_kv_pool_n_idle(pool);
    const uint32_t n_aside = bt_kv_pool_n_set_aside(pool);

    return (n < n_aside) ? n_aside - n : 0;
}

/*
 * Forks a sequence: copy on write of its K and V.
 *
 *     origin  [ 0 … 15 ][ 16 … 31 ][ 32 … 39        ]   40 tokens, T = 16
 *                 │          │          ┆ copied: both go on writing there
 *     fork    [ shared ][ shared  ][ 32 … 39      ][ new ]
 *
 * Whole blocks are never written again, so they are shared by reference. The
 * partly filled one is written by both, each from its own next token on: the
 * fork has its own block, and the content has to be copied. This module decides
 * which; the owner of the memory moves the bytes.
 *
 * With several groups (kv_groups.h) a span has a block of each: whole spans are
 * shared, of the partial one each group's block is copied.
 *
 * Threads: the pool's owner. Nothing is allocated.
 * Source:  W. Kwon et al., "Efficient Memory Management for Large Language
 *          Model Serving with PagedAttention", SOSP 2023, section 4.4
 *          (parallel sampling: copy on write of the last block).
 */

/** Copy of one block's content into another; equal: nothing to do. */
typedef struct bt_kv_copy {
    uint32_t from, to;
} bt_kv_copy_t;

static inline bool bt_kv_copy_is_due(bt_kv_copy_t copy)
{
    return copy.from != copy.to;
}

/** Returns the leading blocks that a fork after @a n_tokens tokens shares. */
static inline uint32_t bt_kv_fork_n_shared(uint32_t n_tokens,
                                           uint32_t tokens_per_block)
{
    return n_tokens / tokens_per_block;
}

/**
 * Builds the block table of a fork, or nothing.
 *
 * @param [in]  ids       The origin's, held by the caller; those of its first
 *                        n_tokens tokens are read.
 * @param [in]  n_tokens  Leading tokens of the origin that the fork shares,
 *                        with K and V, or once the origin has them.
 * @param [in]  n_blocks  Of the fork, at least those of n_tokens.
 * @param [out] fork_ids  n_blocks ids, one reference each, owned by the caller:
 *                        the shared ones first, the others new.
 * @param [out] copy_p    Copy to be done once the origin has its K and V,
 *                        before the fork writes and before the origin's
 *                        reference to `from` is dropped. What the origin may
 *                        have written behind n_tokens is copied too: the fork
 *                        writes each of those positions before it reads them.
 *
 * @retval BT_OK
 * @retval BT_ERR_NO_BLOCKS  Fewer than bt_kv_fork_n_new() are free.
 */
BT_MUST_CHECK bt_status_t bt_kv_fork(bt_kv_pool_t *pool, const uint32_t *ids,
                                     uint32_t n_tokens,
                                     uint32_t tokens_per_block,
                                     uint32_t n_blocks, uint32_t *fork_ids,
                                     bt_kv_copy_t *copy_p);

/**
 * Builds the table of a fork with several groups, as bt_kv_fork() does for one.
 *
 * A STATE group's block changes with every token, so in such a group the origin
 * has exactly n_tokens tokens, or n_tokens is a whole number of spans.
 *
 * @param [in]  n_groups    At least 1.
 * @param [in]  table       The origin's: n_groups ids per span. BT_KV_NO_BLOCK
 *                          of a whole span is kept in the fork.
 * @param [in]  n_spans     Of the fork.
 * @param [out] fork_table  n_spans x n_groups ids.
 * @param [out] copies      n_groups copies to be done, one for each group.
 * @retval  as bt_kv_fork()
 */
BT_MUST_CHECK bt_status_t
bt_kv_fork_groups(bt_kv_pool_t *pool, uint32_t n_groups, const uint32_t *table,
                  uint32_t n_tokens, uint32_t tokens_per_block,
                  uint32_t n_spans, uint32_t *fork_table, bt_kv_copy_t *copies);

/** Returns the new blocks that bt_kv_fork() acquires, for each group. */
static inline uint32_t bt_kv_fork_n_new(uint32_t n_tokens,
                                        uint32_t tokens_per_block,
                                        uint32_t n_blocks)
{
    return n_blocks - bt_kv_fork_n_shared(n_tokens, tokens_per_block);
}

/*
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
 * others hold the released one, so a sequence that has begun
 * never waits for a block of a window.
 *
 * A table may be read by the compute thread, as far as end(): entries of
 * released spans stay unchanged there, and no reader whose window does not
 * reach them uses them.
 *
 * Threads: the pool's owner. Nothing is allocated.
 */

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
