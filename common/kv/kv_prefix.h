/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_prefix.h
 *
 * Which KV blocks hold the K and V of which beginnings of token sequences, so
 * that a prompt that begins like an earlier one computes only the rest.
 *
 *     space ─ [t0 … t15] ─┬─ [t16 … t31] ─ [t32 … t47]     one node a block
 *                         └─ [t16'… t31']
 *
 * Only whole blocks are in it, and nobody writes to a block in it: K and V of a
 * position depend on the tokens up to it alone, and on no chunk size or batch
 * (I1), so a found block holds the bytes that would be computed again.
 *
 * A node is known by its parent and its own tokens, both compared exactly: a
 * hash only says where to look. Two tenants' prompts can never be taken for one
 * another, however the tokens were chosen.
 *
 * What K and V depend on beside the tokens (an adapter), and who may learn that
 * a beginning is known (a tenant, a salt), is a space: a number that stands for
 * all of it. A first block is known by its space as well, so spaces share
 * nothing. All of them share the room, by the order of use.
 *
 * The index holds one reference of each of its blocks in the pool. A leaf that
 * nobody else holds can be evicted, the least recently used first.
 *
 * Threads: the pool's owner. Nothing is allocated after create.
 * Source:  L. Zheng et al., "SGLang: Efficient Execution of Structured Language
 *          Model Programs", NeurIPS 2024, section 3 (tree of prefixes, eviction
 *          from the leaves).
 */
#ifndef BT_COMMON_KV_PREFIX_H
#define BT_COMMON_KV_PREFIX_H

#include <stdint.h>

#include "common/base/hash.h"
#include "common/kv/kv_block_pool.h"

typedef struct bt_kv_prefix bt_kv_prefix_t;

/**
 * @param [in]  pool              Borrowed; outlives the index.
 * @param [in]  n_blocks          Of the pool.
 * @param [in]  tokens_per_block  At least 1.
 * @param [in]  seed              Of the hash: a random number, so that nobody
 *                                can choose prompts that make it slow.
 * @param [out] index_p           Free with bt_kv_prefix_destroy().
 *
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  a count is 0
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_kv_prefix_create(bt_kv_pool_t *pool,
                                              uint32_t n_blocks,
                                              uint32_t tokens_per_block,
                                              uint64_t seed,
                                              bt_kv_prefix_t **index_p);

/** Gives its references back. NULL is allowed. */
void bt_kv_prefix_destroy(bt_kv_prefix_t *index);

/**
 * Find the longest known beginning, of whole blocks, and hold it.
 *
 * @param [in]  space       Compared exactly; {0, 0} is one like any other.
 * @param [in]  tokens      The sequence.
 * @param [in]  max_blocks  Look no further; tokens has that many whole blocks.
 * @param [out] ids         One id for each block found, in order, with a
 *                          reference owned by the caller.
 * @return how many blocks were found
 */
uint32_t bt_kv_prefix_match(bt_kv_prefix_t *index, bt_hash128_t space,
                            const uint32_t *tokens, uint32_t max_blocks,
                            uint32_t *ids);

/**
 * Remember blocks that are complete and will not be written again.
 *
 * Ends at the first block whose tokens are known by another block: that one
 * stays, and below it the caller, who does not hold it, can add nothing.
 *
 * @param [in] space     As in bt_kv_prefix_match().
 * @param [in] tokens    n_blocks x tokens_per_block of them.
 * @param [in] ids       The blocks, held by the caller.
 */
void bt_kv_prefix_insert(bt_kv_prefix_t *index, bt_hash128_t space,
                         const uint32_t *tokens, uint32_t n_blocks,
                         const uint32_t *ids);

/** Free up to @a n blocks that only the index holds. @return how many */
uint32_t bt_kv_prefix_evict(bt_kv_prefix_t *index, uint32_t n);

#endif
