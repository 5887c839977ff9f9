/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_fork.h
 *
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
#ifndef BT_COMMON_KV_FORK_H
#define BT_COMMON_KV_FORK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/kv/kv_block_pool.h"
#include "common/kv/kv_groups.h"

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

#endif
