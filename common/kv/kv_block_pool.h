/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_block_pool.h
 *
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
 * it proceeds, and acquires another for its next tokens (kv_hold.h). If others
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
#ifndef BT_COMMON_KV_BLOCK_POOL_H
#define BT_COMMON_KV_BLOCK_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

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

#endif
