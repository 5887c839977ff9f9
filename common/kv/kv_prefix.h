/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_prefix.h
 *
 * Which KV blocks hold the K and V of which beginnings of token sequences, so
 * that a prompt that begins like an earlier one computes only the rest.
 *
 *     space ─ [t0 … t15] ─┬─ [t16 … t31] ─ [t32 … t47]     one node a span
 *                         └─ [t16'… t31']
 *
 * A node has a block of each group of the model's layers (kv_groups.h), or
 * lacks some: of a group that needs only the last spans of what comes before,
 * whoever knew a prefix may not have had the first ones any more. A prefix is
 * found when every group has what it needs of it.
 *
 * Only whole spans are in it, and nobody writes to a block in it: K and V of a
 * position depend on the tokens up to it alone, and on no chunk size or batch
 * (I1), so a found block holds the bytes that would be computed again.
 *
 * A node is known by its parent and its own tokens, both compared exactly: a
 * hash only says where to look. Two tenants' prompts can never be taken for one
 * another, however the tokens were chosen.
 *
 * What K and V depend on beside the tokens (an adapter), and who may learn that
 * a beginning is known (a tenant, a salt), is a space: a number that stands for
 * all of it. A first span is known by its space as well, so spaces share
 * nothing. All of them share the room, by the order of use.
 *
 * The index holds one reference of each of its blocks in the pool. What nobody
 * else holds can be evicted, the least recently used first: a leaf whole, and
 * of a span on the way to one that somebody holds, the blocks of windowed
 * groups. Such a span is still on the way, and a prefix is not found any more
 * whose window reaches there. All idle blocks can be had so: who holds a block
 * of a whole group holds those of all spans before it.
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
#include "common/kv/kv_hold.h"

typedef struct bt_kv_prefix bt_kv_prefix_t;

/**
 * @param [in]  pool              Borrowed; outlives the index.
 * @param [in]  n_blocks          Of the pool.
 * @param [in]  groups            Of the model; borrowed; outlives the index.
 * @param [in]  seed              Of the hash: a random number, so that nobody
 *                                can choose prompts that make it slow.
 * @param [out] index_p           Free with bt_kv_prefix_destroy().
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

/** Gives its references back. NULL is allowed. */
void bt_kv_prefix_destroy(bt_kv_prefix_t *index);

/**
 * Find the longest known beginning, of whole spans, and hold what of it is
 * needed.
 *
 * @param [in]  space      Compared exactly; {0, 0} is one like any other.
 * @param [in]  tokens     The sequence.
 * @param [in]  max_spans  Look no further; tokens has that many whole spans.
 * @param [out] table      n_groups ids for each span found, in order, with a
 *                         reference owned by the caller; BT_KV_NO_BLOCK where
 *                         the group does not need that span any more. Room for
 *                         max_spans of them.
 * @return how many spans were found
 */
uint32_t bt_kv_prefix_match(bt_kv_prefix_t *index, bt_hash128_t space,
                            const uint32_t *tokens, uint32_t max_spans,
                            uint32_t *table);

/**
 * Remember spans that are complete and will not be written again.
 *
 * Ends at the first span whose tokens are known by another block: that one
 * stays, and below it the caller, who does not hold it, can add nothing. What a
 * known span lacks is added to it. With windowed groups a block that somebody
 * else left and nobody holds gives way to the caller's: that prefix was known
 * but not found any more, or it would be the caller's, too.
 *
 * Spans of which the caller has nothing are on the way to those of which it
 * has: where no group is whole.
 *
 * @param [in] space     As in bt_kv_prefix_match().
 * @param [in] tokens    n_spans x tokens_per_block of them.
 * @param [in] table     n_groups ids for each span, held by the caller, or
 *                       BT_KV_NO_BLOCK.
 * @param [in] hold      What of the table it holds; NULL: all but
 *                       BT_KV_NO_BLOCK.
 */
void bt_kv_prefix_insert(bt_kv_prefix_t *index, bt_hash128_t space,
                         const uint32_t *tokens, uint32_t n_spans,
                         const uint32_t *table, const bt_kv_hold_t *hold);

/** Free at least @a n blocks that only the index holds, or all that can be.
 *  @return how many */
uint32_t bt_kv_prefix_evict(bt_kv_prefix_t *index, uint32_t n);

#endif
