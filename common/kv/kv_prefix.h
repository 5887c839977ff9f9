/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_prefix.h
 *
 * Prefix cache: a radix tree of token prefixes and the KV blocks that hold
 * their K and V. A prompt that begins like an earlier one computes only the
 * rest.
 *
 *     space ─ [t0 … t15] ─┬─ [t16 … t31] ─ [t32 … t47]   one node per span
 *                         └─ [t16'… t31']
 *
 * Node: one span (tokens_per_block tokens) after the spans of its parents. A
 * node is identified by its parent and its tokens, and both are compared
 * exactly; hashes only locate candidates. So no choice of tokens can make two
 * prompts share blocks by mistake.
 *
 * Space: the cache namespace. The number stands for everything beside the
 * tokens that K and V depend on (an adapter, the content of a prompt table),
 * and for the clients that may learn that a prefix is cached (a tenant, a
 * salt). The nodes of first spans are identified by the space too. So spaces
 * share only the capacity and the LRU order.
 *
 * Blocks: a node has one block for each layer group (kv_groups.h), but some may
 * be missing: in a windowed group a sequence may have released its first blocks
 * before it inserted the prefix. A prefix is found only if the cache has every
 * block that the groups need to continue after it.
 *
 * Only full spans are cached, and a cached block is never written again. K and
 * V of a position depend only on the tokens up to it, not on chunk size or
 * batch (invariant I1), so a cached block holds the bytes that a new
 * computation would give.
 *
 * Eviction: the index holds one pool reference for each of its blocks. Idle
 * blocks, which only the index references, can be evicted, the least recently
 * used first. A leaf is evicted as a whole. An inner node, or a node with a
 * held block, loses only its idle blocks of windowed groups and stays in the
 * tree; a prefix that needs these blocks is not found any more. All idle blocks
 * can be evicted in this way, because a holder of a full-attention block holds
 * the blocks of all spans before it.
 *
 * Threads: the thread that owns the pool. Nothing is allocated after
 *          bt_kv_prefix_create().
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
 * Creates an empty prefix cache.
 *
 * @param [in]  pool      Block pool; borrowed, outlives the index.
 * @param [in]  n_blocks  Number of blocks of the pool.
 * @param [in]  groups    Layer groups of the model; borrowed, outlive the
 *                        index.
 * @param [in]  seed      Random seed of the hash table, so that clients cannot
 *                        choose prompts that collide and make look-ups slow.
 * @param [out] index_p   Owned by the caller; free with
 *                        bt_kv_prefix_destroy().
 *
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  n_blocks is 0, or is 2^30 or more
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_kv_prefix_create(bt_kv_pool_t *pool,
                                              uint32_t n_blocks,
                                              const bt_kv_groups_t *groups,
                                              uint64_t seed,
                                              bt_kv_prefix_t **index_p);

/** Frees the index and drops its references to blocks. NULL is allowed. */
void bt_kv_prefix_destroy(bt_kv_prefix_t *index);

/** Drops all that is cached; sequences that hold such blocks keep them.
 *  @return number of blocks that were cached */
uint32_t bt_kv_prefix_clear(bt_kv_prefix_t *index);

/**
 * Finds the longest cached prefix of a sequence, in full spans, and takes
 * references to the blocks that are needed to continue after it.
 *
 * @param [in]  space      Cache namespace; {0, 0} is one like any other.
 * @param [in]  tokens     Tokens of the sequence, at least max_spans full
 *                         spans.
 * @param [in]  max_spans  Largest number of spans to look for.
 * @param [in]  n_known    Number of leading tokens that will have K and V
 *                         before the sequence is computed here, because a KV
 *                         transfer brings those that are not found. A windowed
 *                         group then needs only the window before n_known.
 *                         0: the sequence continues after the found prefix.
 * @param [out] table      n_groups block ids for each span found, in order;
 *                         BT_KV_NO_BLOCK where a group does not need the span
 *                         any more. The caller owns one reference to each
 *                         block. Has space for max_spans spans.
 * @return number of spans found
 */
uint32_t bt_kv_prefix_match(bt_kv_prefix_t *index, bt_hash128_t space,
                            const uint32_t *tokens, uint32_t max_spans,
                            uint64_t n_known, uint32_t *table);

/**
 * Adds full spans of a sequence to the cache. Their blocks must not be written
 * again.
 *
 * A span that is new becomes a node with the caller's blocks. A span that is
 * cached gets the blocks that it lacks. With windowed groups, an idle block of
 * a cached span is replaced by the caller's block: the caller did not match
 * that prefix, or it would hold the cached block.
 *
 * The insertion ends at the first span that is cached with another block which
 * cannot be replaced: the cached block stays, and nothing after it is added. It
 * also ends when no node is left, which is possible only for a model without a
 * full-attention group.
 *
 * Spans without any block of the caller are added as inner nodes if later spans
 * have blocks. Only a model without a full-attention group has such spans.
 *
 * @param [in] space     Cache namespace, as in bt_kv_prefix_match().
 * @param [in] tokens    n_spans x tokens_per_block tokens.
 * @param [in] table     n_groups block ids for each span, held by the caller,
 *                       or BT_KV_NO_BLOCK.
 * @param [in] hold      Range of the table that the caller holds; NULL: every
 *                       entry but BT_KV_NO_BLOCK.
 */
void bt_kv_prefix_insert(bt_kv_prefix_t *index, bt_hash128_t space,
                         const uint32_t *tokens, uint32_t n_spans,
                         const uint32_t *table, const bt_kv_hold_t *hold);

/**
 * Evicts idle blocks, the least recently used first, until at least @a n are
 * freed or none is left that can be evicted.
 * @return number of blocks freed
 */
uint32_t bt_kv_prefix_evict(bt_kv_prefix_t *index, uint32_t n);

#endif
