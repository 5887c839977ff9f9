/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_block_pool.h
 *
 * Which KV-cache blocks are free, and how many sequences share each one.
 *
 * The pool deals in block ids, never in addresses, so one pool serves host
 * and device memory and a block id can cross the wire unchanged.
 *
 * A cache may keep blocks whose content is worth something beyond the sequence
 * that filled them. A kept block that nobody else holds is idle: not free, but
 * to be had from the cache at any time.
 *
 * A holder of a *windowed* block lets go of it while it goes on, and takes
 * another one for what comes (kv_hold.h). Where others hold it still, nothing
 * comes back by that, so for each holder but one a block is set aside:
 *
 *     set aside  =  sum over windowed blocks of (holders - 1)
 *     available  =  free + idle - set aside
 *
 * Taking a windowed block thus costs one of what is available, whether it is
 * shared or new, and letting go of it brings one back; who lets go of one and
 * takes another finds it, always.
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
 * Create a pool of @a n_blocks free blocks, ids 0 .. n_blocks - 1.
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

/** Free the pool; warn if blocks are still held. @a pool may be NULL. */
void bt_kv_pool_destroy(bt_kv_pool_t *pool);

/**
 * Take @a n blocks, or none: a half-allocated sequence could neither run nor
 * be queued, so there is no partial success. Cost O(n); allocates nothing.
 *
 * @param [out] ids  n ids, one reference each, owned by the caller.
 *                   Written only on success.
 *
 * @retval BT_OK
 * @retval BT_ERR_NO_BLOCKS  Fewer than n are free; preempt or wait.
 */
BT_MUST_CHECK bt_status_t bt_kv_pool_acquire(bt_kv_pool_t *pool, uint32_t n,
                                             uint32_t *ids);

/** Add a reference to a held block (prefix sharing). */
void bt_kv_pool_ref(bt_kv_pool_t *pool, uint32_t id);

/** Drop a reference; the last one frees the block. */
void bt_kv_pool_unref(bt_kv_pool_t *pool, uint32_t id);

/** This held block, which has one holder and is not kept, is windowed until it
 *  is free again. */
void bt_kv_pool_set_windowed(bt_kv_pool_t *pool, uint32_t id);

/** Blocks that are set aside: how many of the free and idle ones those who hold
 *  windowed blocks together may come to need. */
uint32_t bt_kv_pool_n_set_aside(const bt_kv_pool_t *pool);

/** Blocks that can be acquired now. */
uint32_t bt_kv_pool_n_free(const bt_kv_pool_t *pool);

/** Add the cache's reference to a held block that is not kept. */
void bt_kv_pool_keep(bt_kv_pool_t *pool, uint32_t id);

/** Drop the cache's reference. */
void bt_kv_pool_unkeep(bt_kv_pool_t *pool, uint32_t id);

/** Kept, and held by nobody else? */
bool bt_kv_pool_is_idle(const bt_kv_pool_t *pool, uint32_t id);

/** How many blocks are idle. */
uint32_t bt_kv_pool_n_idle(const bt_kv_pool_t *pool);

/** What somebody new may have: free or idle, and not set aside. */
static inline uint32_t bt_kv_pool_n_available(const bt_kv_pool_t *pool)
{
    return bt_kv_pool_n_free(pool) + bt_kv_pool_n_idle(pool) -
           bt_kv_pool_n_set_aside(pool);
}

#endif
