/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_prefix.h
 *
 * Prefix cache: an index of which KV blocks hold the K and V of which token
 * prefixes, so that a prompt that begins like an earlier one computes only the
 * rest.
 *
 *     space ─ [t0 … t15] ─┬─ [t16 … t31] ─ [t32 … t47]     one node a span
 *                         └─ [t16'… t31']
 *
 * A node has a block of each group of the model's layers (kv_groups.h), or
 * lacks some: in a group that needs only the last spans of a prefix, a sequence
 * may have released the first ones before it inserted the prefix. A prefix is
 * found when every group has what it needs of it.
 *
 * Only whole spans are indexed, and an indexed block is never written: K and V
 * of a position depend only on the tokens up to it, not on chunk size or batch
 * (I1), so a found block holds the bytes that would be computed again.
 *
 * A node is identified by its parent and its own tokens, both compared exactly;
 * hashes only locate candidates. Two tenants' prompts can never be mistaken for
 * one another, however the tokens were chosen.
 *
 * A space is a number for everything that K and V depend on beside the tokens
 * (an adapter), and for those who may learn that a prefix is known (a tenant, a
 * salt). A first span is identified by its space as well, so spaces share
 * nothing but the capacity, in LRU order.
 *
 * The index holds one reference to each of its blocks in the pool. Blocks
 * without another holder can be evicted, the least recently used first: a leaf
 * as a whole, and of an inner span, on the path to one that is held, the blocks
 * of windowed groups. Such a span stays on the path, and a prefix whose window
 * reaches there is not found any more. All idle blocks can be evicted this way:
 * a holder of a block of a full-attention group holds those of all spans before
 * it.
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
#include "common/kv/kv_groups.h"

typedef struct bt_kv_prefix bt_kv_prefix_t;

/**
 * Creates an empty index.
 *
 * @param [in]  pool      Borrowed; outlives the index.
 * @param [in]  n_blocks  Of the pool.
 * @param [in]  groups    Of the model; borrowed; outlives the index.
 * @param [in]  seed      Of the hash: a random number, so that no client can
 *                        choose prompts that make it slow.
 * @param [out] index_p   Free with bt_kv_prefix_destroy().
 *
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  n_blocks is 0 or not below 2^30
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_kv_prefix_create(bt_kv_pool_t *pool,
                                              uint32_t n_blocks,
                                              const bt_kv_groups_t *groups,
                                              uint64_t seed,
                                              bt_kv_prefix_t **index_p);

/** Frees the index and returns its references. NULL is allowed. */
void bt_kv_prefix_destroy(bt_kv_prefix_t *index);

/**
 * Finds the longest known prefix, of whole spans, and takes references to the
 * blocks of it that are needed.
 *
 * @param [in]  space      Compared exactly; {0, 0} is one like any other.
 * @param [in]  tokens     The sequence.
 * @param [in]  max_spans  Most spans to look for; tokens has that many whole
 *                         spans.
 * @param [in]  n_known    Tokens that will have K and V before anything is
 *                         computed, where the rest comes from elsewhere. 0:
 *                         only what is found.
 * @param [out] table      n_groups ids for each span found, in order, with a
 *                         reference owned by the caller; BT_KV_NO_BLOCK where
 *                         the group does not need that span any more. Capacity
 *                         for max_spans spans.
 * @return number of spans found
 */
uint32_t bt_kv_prefix_match(bt_kv_prefix_t *index, bt_hash128_t space,
                            const uint32_t *tokens, uint32_t max_spans,
                            uint64_t n_known, uint32_t *table);

/**
 * Adds spans that are complete and will not be written again.
 *
 * Ends at the first span whose tokens are known with another block: that block
 * stays, and below it the caller, which does not hold it, can add nothing.
 * Blocks that a known span lacks are added to it. With windowed groups a block
 * of another sequence that has no holder is replaced by the caller's: that
 * prefix was known but not found any more, or the caller would hold it, too.
 *
 * Spans of which the caller has no block are on the path to spans of which it
 * has some: where no group uses full attention.
 *
 * @param [in] space     As in bt_kv_prefix_match().
 * @param [in] tokens    n_spans x tokens_per_block of them.
 * @param [in] table     n_groups ids for each span, held by the caller, or
 *                       BT_KV_NO_BLOCK.
 * @param [in] hold      Blocks of the table that the caller holds; NULL: all
 *                       but BT_KV_NO_BLOCK.
 */
void bt_kv_prefix_insert(bt_kv_prefix_t *index, bt_hash128_t space,
                         const uint32_t *tokens, uint32_t n_spans,
                         const uint32_t *table, const bt_kv_hold_t *hold);

/**
 * Evicts at least @a n blocks that only the index holds, or all that can be.
 * @return number of blocks freed
 */
uint32_t bt_kv_prefix_evict(bt_kv_prefix_t *index, uint32_t n);

#endif
