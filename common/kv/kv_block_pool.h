/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_block_pool.h
 *
 * KV blocks of a worker, in three parts:
 *
 *     pool   which blocks are free, and how many holders each of them has
 *     fork   block table of a sequence that continues the KV of another one
 *     hold   which blocks of its block table a sequence holds at a time
 *
 * This module handles block ids only. The owner of the KV memory moves bytes.
 */
#ifndef BT_COMMON_KV_KV_BLOCK_POOL_H
#define BT_COMMON_KV_KV_BLOCK_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/kv/kv_groups.h"

/*
 * Pool: a free list and a reference count for each KV block.
 *
 * A block is known by its id, never by an address. So one pool serves host and
 * device memory, and ids cross the wire unchanged.
 *
 *     free   no reference
 *     held   one reference of each holder (a sequence), and perhaps the cache's
 *     idle   only the reference of the prefix cache (kv_prefix.h)
 *
 * The prefix cache keeps blocks whose content is useful beyond the sequence
 * that filled them. An idle block is not free, but the cache can evict it at
 * any time.
 *
 * *Windowed* blocks belong to a layer group that needs only the last tokens of
 * a sequence (bt_kv_group_is_windowed()). A holder of windowed blocks releases
 * the oldest while it computes, and acquires as many new ones. The release of a
 * block that others still hold frees nothing, yet the holder needs a new block.
 * So one block is set aside for each holder of a windowed block but one:
 *
 *     set aside  =  sum over windowed blocks of (holders - 1)
 *     available  =  free + idle - set aside
 *
 * A windowed block thus costs its holder one available block, whether it is
 * shared or new, and its release returns one. If no sequence begins with more
 * than the available blocks, then a holder that releases a windowed block and
 * acquires another one always succeeds.
 *
 * Threads: one thread owns a pool. No function locks.
 * Source:  W. Kwon et al., "Efficient Memory Management for Large Language
 *          Model Serving with PagedAttention", SOSP 2023, section 4.4
 *          (sharing blocks by reference count).
 */

typedef struct bt_kv_pool bt_kv_pool_t; /* private to kv_block_pool.c */

/**
 * Creates a pool of @a n_blocks free blocks, ids 0 .. n_blocks - 1.
 *
 * @param [in]  n_blocks  Number of blocks, at least 1.
 * @param [out] pool_p    Owned by the caller; free with bt_kv_pool_destroy().
 *                        Written only on success.
 *
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  n_blocks is 0.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_kv_pool_create(uint32_t n_blocks,
                                            bt_kv_pool_t **pool_p);

/** Frees the pool; logs a warning if blocks are not free. NULL is allowed. */
void bt_kv_pool_destroy(bt_kv_pool_t *pool);

/**
 * Acquires @a n free blocks, all or none: a sequence with only a part of its
 * blocks could neither run nor be queued. Cost O(n); allocates nothing.
 *
 * @param [out] ids  Ids of the n blocks, one reference each, owned by the
 *                   caller. Written only on success.
 *
 * @retval BT_OK
 * @retval BT_ERR_NO_BLOCKS  Fewer than n blocks are free; idle ones do not
 *                           count. Evict idle blocks, preempt or wait.
 */
BT_MUST_CHECK bt_status_t bt_kv_pool_acquire(bt_kv_pool_t *pool, uint32_t n,
                                             uint32_t *ids);

/** Adds a holder to a block that is held or idle: prefix sharing. */
void bt_kv_pool_ref(bt_kv_pool_t *pool, uint32_t id);

/** Drops the reference of a holder. A block without references is free. */
void bt_kv_pool_unref(bt_kv_pool_t *pool, uint32_t id);

/** Marks a block as windowed until it is free again. The block has one holder
 *  and is not kept by the cache. */
void bt_kv_pool_set_windowed(bt_kv_pool_t *pool, uint32_t id);

/** Returns the number of blocks set aside: free and idle blocks that the
 *  holders of shared windowed blocks may still need. */
uint32_t bt_kv_pool_n_set_aside(const bt_kv_pool_t *pool);

/** Returns the number of windowed blocks that have holders. */
uint32_t bt_kv_pool_n_windowed(const bt_kv_pool_t *pool);

/** Returns the number of free blocks, which bt_kv_pool_acquire() can give. */
uint32_t bt_kv_pool_n_free(const bt_kv_pool_t *pool);

/** Adds the reference of the prefix cache to a held block that has none. */
void bt_kv_pool_keep(bt_kv_pool_t *pool, uint32_t id);

/** Drops the reference of the prefix cache; an idle block becomes free. */
void bt_kv_pool_unkeep(bt_kv_pool_t *pool, uint32_t id);

/** True when a block has the reference of the prefix cache and no holder. */
bool bt_kv_pool_is_idle(const bt_kv_pool_t *pool, uint32_t id);

/** Returns the number of idle blocks. */
uint32_t bt_kv_pool_n_idle(const bt_kv_pool_t *pool);

/** Returns the number of blocks available to a new sequence: free or idle, and
 *  not set aside. */
static inline uint32_t bt_kv_pool_n_available(const bt_kv_pool_t *pool)
{
    const uint32_t n = bt_kv_pool_n_free(pool) + bt_kv_pool_n_idle(pool);
    const uint32_t n_aside = bt_kv_pool_n_set_aside(pool);

    return (n > n_aside) ? n - n_aside : 0;
}

/** Returns how many blocks are set aside beyond those that are free or idle.
 *  Non-zero only between a prefix match that found windowed blocks and the
 *  begin of its sequence; must be 0 when the sequence begins. */
static inline uint32_t bt_kv_pool_n_overdrawn(const bt_kv_pool_t *pool)
{
    const uint32_t n = bt_kv_pool_n_free(pool) + bt_kv_pool_n_idle(pool);
    const uint32_t n_aside = bt_kv_pool_n_set_aside(pool);

    return (n < n_aside) ? n_aside - n : 0;
}

/*
 * Fork: a sequence that continues after the first tokens of another one, its
 * origin, with copy on write of the K and V.
 *
 *     origin  [ 0 … 15 ][ 16 … 31 ][ 32 … 39        ]   40 tokens, T = 16
 *                 │          │          ┆ copied: both go on writing there
 *     fork    [ shared ][ shared  ][ 32 … 39      ][ new ]
 *
 * T is tokens_per_block. Full blocks are never written again, so both share
 * them by reference. Both sequences write their next tokens into the partly
 * filled block, so the fork gets a block of its own and a copy of the content.
 * This module says which block to copy; the owner of the memory copies it.
 *
 * With several layer groups (kv_groups.h) a span has one block in each group.
 * Full spans are shared; of the partly filled span each group's block is
 * copied.
 *
 * Threads: the thread that owns the pool. Nothing is allocated.
 * Source:  W. Kwon et al., "Efficient Memory Management for Large Language
 *          Model Serving with PagedAttention", SOSP 2023, section 4.4
 *          (parallel sampling: copy on write of the last block).
 */

/** Copy of the content of block `from` to block `to`. Equal ids: no copy. */
typedef struct bt_kv_copy {
    uint32_t from, to;
} bt_kv_copy_t;

static inline bool bt_kv_copy_is_due(bt_kv_copy_t copy)
{
    return copy.from != copy.to;
}

/** Returns how many full leading blocks a fork after @a n_tokens shares with
 *  its origin. */
static inline uint32_t bt_kv_fork_n_shared(uint32_t n_tokens,
                                           uint32_t tokens_per_block)
{
    return n_tokens / tokens_per_block;
}

/**
 * Builds the block table of a fork, of a model with one layer group: shares the
 * full blocks of the origin and acquires the others, all or none.
 *
 * @param [in]  ids       Block table of the origin, whose blocks the caller
 *                        holds; only the blocks of the first n_tokens are read.
 * @param [in]  n_tokens  Leading tokens of the origin that the fork shares. The
 *                        origin has their K and V, or will compute them.
 * @param [in]  n_blocks  Number of blocks of the fork, at least enough for
 *                        n_tokens.
 * @param [out] fork_ids  Block table of the fork: n_blocks ids, one reference
 *                        each, owned by the caller; shared blocks first, then
 *                        new ones.
 * @param [out] copy_p    Copy that the caller must make: after the origin has
 *                        the K and V of n_tokens, before the fork writes, and
 *                        before the origin's reference to `from` is dropped.
 *                        K and V of the origin after n_tokens may be copied
 *                        too; the fork overwrites each such position before it
 *                        reads it.
 *
 * @retval BT_OK
 * @retval BT_ERR_NO_BLOCKS  Fewer than bt_kv_fork_n_new() blocks are free;
 *                           no reference was taken.
 */
BT_MUST_CHECK bt_status_t bt_kv_fork(bt_kv_pool_t *pool, const uint32_t *ids,
                                     uint32_t n_tokens,
                                     uint32_t tokens_per_block,
                                     uint32_t n_blocks, uint32_t *fork_ids,
                                     bt_kv_copy_t *copy_p);

/** Returns how many new blocks a fork of @a n_blocks blocks acquires. */
static inline uint32_t bt_kv_fork_n_new(uint32_t n_tokens,
                                        uint32_t tokens_per_block,
                                        uint32_t n_blocks)
{
    return n_blocks - bt_kv_fork_n_shared(n_tokens, tokens_per_block);
}

/*
 * Hold: the range of its block table that a sequence holds, for each layer
 * group. In a full-attention group the range is all spans from 0 on. In a
 * windowed group (kv_groups.h) the range has the spans that the next token
 * attends to, and some spans ahead; it slides while the sequence is computed:
 *
 *     n tokens computed           first_span(n)      n
 *                                       ▼            ▼
 *     full group       [■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■│■ ■ ■ ■ ■ ■ ■ ■]
 *     windowed group    · · · · · · · · [■ ■ ■ ■ ■ ■ │■ ■ ■ ■] · · ·
 *                       released        first        ahead  end
 *
 * The number of blocks held in a windowed group depends on the window and not
 * on the length of the sequence: bt_kv_group_most_spans(). For each block that
 * is released, one block ahead is acquired. The pool has set that block aside
 * if others hold the released one. So a sequence that has begun never waits for
 * a block of a window.
 *
 * Threads: the thread that owns the pool changes a hold. The compute thread may
 *          read the block table up to `end` at the same time. Entries of
 *          released spans stay unchanged, and are not read by a layer whose
 *          window has passed them. Nothing is allocated.
 */

/** Held range of spans, [first, end), for each layer group. All zero: no block
 *  is held. */
typedef struct bt_kv_hold {
    uint32_t first[BT_KV_MAX_GROUPS];
    uint32_t end[BT_KV_MAX_GROUPS];
} bt_kv_hold_t;

/** How far the blocks of a sequence must reach. */
typedef struct bt_kv_reach {
    uint32_t n_spans;      /**< spans to hold in full-attention groups */
    uint32_t n_most;       /**< spans that the sequence may ever need, at least
                                n_spans; no range ends after them */
    uint32_t ahead_tokens; /**< tokens that may be computed before a window
                                slides */
} bt_kv_reach_t;

/** Returns the largest number of blocks, over all groups, that a sequence of
 *  this reach holds. */
uint64_t bt_kv_reach_blocks(const bt_kv_groups_t *groups,
                            const bt_kv_reach_t *reach);

/** Returns the number of blocks that a sequence holds, over all groups. */
uint32_t bt_kv_hold_blocks(const bt_kv_groups_t *groups,
                           const bt_kv_hold_t *hold);

/** Sets the hold of a new sequence to the blocks that bt_kv_prefix_match()
 *  found: @a n_spans spans, matched with @a n_known. Takes no reference. */
void bt_kv_hold_found(const bt_kv_groups_t *groups, bt_kv_hold_t *hold,
                      uint32_t n_spans, uint64_t n_known);

/** True when bt_kv_hold_pass() would release a block or move a window. */
bool bt_kv_hold_passes(const bt_kv_groups_t *groups, const bt_kv_hold_t *hold,
                       uint64_t n_tokens);

/**
 * Releases the blocks that are not needed any more once @a n_tokens tokens are
 * computed, and moves the windows. A window that begins after the held range
 * leaves the range empty, at the begin of the window.
 *
 * @param [in] table  Block table: n_groups ids per span.
 * @return number of blocks released
 */
uint32_t bt_kv_hold_pass(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                         bt_kv_hold_t *hold, const uint32_t *table,
                         uint64_t n_tokens);

/** Returns how many blocks the hold must add to cover the reach. */
uint32_t bt_kv_hold_lacks(const bt_kv_groups_t *groups,
                          const bt_kv_hold_t *hold, const bt_kv_reach_t *reach);

/**
 * Adds blocks to the hold until it covers the reach. Each group gets a run of
 * consecutive entries of @a ids.
 * @param [in]     ids    bt_kv_hold_lacks() ids, just acquired; their
 *                        references pass to the hold
 * @param [in,out] table  block table: n_groups ids per span, with space for
 *                        reach->n_most spans
 */
void bt_kv_hold_fill(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                     bt_kv_hold_t *hold, const bt_kv_reach_t *reach,
                     const uint32_t *ids, uint32_t *table);

/** Releases all held blocks; the hold is empty afterwards. */
void bt_kv_hold_return(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                       bt_kv_hold_t *hold, const uint32_t *table);

/** Returns the end of the held range in the group where it ends first: the
 *  sequence can be computed up to there. Counted in spans. */
uint32_t bt_kv_hold_end(const bt_kv_groups_t *groups, const bt_kv_hold_t *hold);

#endif
