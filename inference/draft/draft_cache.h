/* SPDX-License-Identifier: Apache-2.0 */
/** @file draft_cache.h
 *
 * KV cache of a drafter whose KV has another shape than its target's: a draft
 * model of other layers, or a head of one layer. It stands beside the target's
 * pool, at the worker that drafts, and is never sent to another worker: what it
 * lacks is computed anew from the tokens.
 *
 *     slot     K and V of the positions begin … end - 1 of one sequence, the
 *              tokens that they were computed from, and a block table
 *     owner    sequence that a slot serves, known by its address
 *     blocks   shared by all slots, in one area of memory
 *
 *     tokens of the sequence   a b c d e f g
 *     tokens of its slot       a b c d x y          end = 4: x, y were wrong
 *                              └ K, V ┘             drafts
 *
 * Whether K and V are those of a sequence is decided by its cache namespace
 * (common/kv/kv_prefix.h) and the tokens alone: a slot that is found or taken
 * over is truncated to the tokens that both have in common, which are none in
 * another namespace: how soon a sequence has drafts tells no tenant what others
 * have asked. So wrong drafts, a sequence that is run again, a later request
 * with the same prompt, and another sequence at the same address are one case.
 *
 * K and V of a drafter that reads more than tokens may be of its own output,
 * for as long as it has nothing better. They are for the turn in which they
 * were stored only: the slot is truncated to those that last when it is next
 * found.
 *
 * K and V may begin behind the first token (of a head: where its sequence came
 * to this worker). Position p of the sequence is position p - begin of the
 * cache, which relative positions (RoPE) do not notice.
 *
 * Slots and blocks that no sequence of the turn uses are taken over, the least
 * recently used first; a new sequence takes the slot with the most tokens in
 * common, if there is one. All memory is allocated by bt_draft_cache_create().
 *
 * Threads: none of these functions lock; one thread owns a cache.
 * Source:  W. Kwon et al., "Efficient Memory Management for Large Language
 *          Model Serving with PagedAttention", SOSP 2023 (block tables).
 */
#ifndef BT_INFERENCE_DRAFT_DRAFT_CACHE_H
#define BT_INFERENCE_DRAFT_DRAFT_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/kv/kv_groups.h"
#include "kernels/kernels.h"

typedef struct bt_draft_cache bt_draft_cache_t;

/** Parameters of a cache; copied by bt_draft_cache_create(). */
typedef struct bt_draft_cache_config {
    bt_kv_shape_t
        shape; /**< shape of a block, with all layers of the drafter */
    bt_kv_type_t type;
    uint32_t n_slots;        /**< most sequences at a time */
    uint32_t n_blocks;       /**< blocks of all slots together */
    uint32_t context_tokens; /**< most positions of a slot, and most tokens of a
                                  sequence */
} bt_draft_cache_config_t;

/** K and V of one sequence. Read by all, changed by the functions below. */
typedef struct bt_draft_slot {
    uint32_t *blocks; /**< block table, for bt_ragged_seq_t.blocks; the cache's
                           position 0 is position `begin` of the sequence */
    uint32_t begin;   /**< first position with K and V */
    uint32_t end;     /**< position behind the last one with K and V; equal to
                           `begin`: there are none */
    /* Private to draft_cache.c. */
    const void *owner;
    bt_hash128_t space;
    uint32_t lasting_end; /* position behind the last one whose K and V are for
                             later turns too */
    uint32_t *tokens;
    uint32_t n_blocks;
    uint64_t turn;
} bt_draft_slot_t;

/**
 * Computes the memory that bt_draft_cache_create() takes.
 * @param [out] bytes_p  Written only on success.
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM, BT_ERR_OVERFLOW  no such cache: a count of 0,
 *         or any of bt_kv_block_bytes()
 */
BT_MUST_CHECK bt_status_t
bt_draft_cache_bytes(const bt_draft_cache_config_t *config, size_t *bytes_p);

/**
 * Makes an empty cache.
 * @param [out] cache_p  Owned by the caller; free with
 *                       bt_draft_cache_destroy().
 * @retval BT_OK
 * @retval BT_ERR_NO_MEMORY
 * @retval any of bt_draft_cache_bytes()
 */
BT_MUST_CHECK bt_status_t bt_draft_cache_create(
    const bt_draft_cache_config_t *config, bt_draft_cache_t **cache_p);
/** Frees the cache. NULL is allowed. */
void bt_draft_cache_destroy(bt_draft_cache_t *cache);

/** Returns the cache as kernels see it, for bt_forward_t.kv. */
bt_kv_view_t bt_draft_cache_view(const bt_draft_cache_t *cache);

/** Begins a turn, before the slots of an iteration are looked for. Slots that
 *  are not found in a turn may be taken over in it, so find those of all
 *  sequences of the iteration before any is taken. */
void bt_draft_cache_begin_turn(bt_draft_cache_t *cache);

/**
 * Finds the slot of a sequence, and keeps it for this turn.
 *
 * The slot is truncated to the tokens in common, to K and V that last, and to
 * n_tokens - 1: K and V of the last known token are computed with the next
 * draft. Compares all tokens of the slot.
 *
 * @param [in] owner   Address that the sequence has for as long as it has a
 *                     slot; only compared.
 * @param [in] space   Cache namespace of the sequence.
 * @param [in] tokens  [n_tokens] known tokens of the sequence, from its first
 *                     one on; n_tokens is at least 1.
 * @return NULL: it has none, or none of its K and V are of use
 */
bt_draft_slot_t *bt_draft_cache_find(bt_draft_cache_t *cache, const void *owner,
                                     bt_hash128_t space, const uint32_t *tokens,
                                     uint32_t n_tokens);

/**
 * Finds the slot of a sequence, or gives it one: an empty one or one that was
 * not found in this turn. Its K and V of tokens in common stay where they
 * last.
 *
 * @param [in] first  Where K and V begin if none can be kept, below n_tokens: 0
 *         for a draft model.
 * @return NULL: all slots are in use in this turn
 */
bt_draft_slot_t *bt_draft_cache_take(bt_draft_cache_t *cache, const void *owner,
                                     bt_hash128_t space, const uint32_t *tokens,
                                     uint32_t n_tokens, uint32_t first);

/** Returns whether a sequence can have K and V of so many positions in this
 *  turn. Else do not take a slot for it: that ends what another one holds. */
bool bt_draft_cache_can_hold(const bt_draft_cache_t *cache, const void *owner,
                             uint32_t n_positions);

/**
 * Gives the slot blocks for the positions before @a end. Takes those of slots
 * that were not found in this turn, if too few are free.
 *
 * @param [in] end  At least slot->end.
 * @return false: too few blocks, or more positions than config.context_tokens;
 *         nothing has changed
 */
bool bt_draft_cache_reserve(bt_draft_cache_t *cache, bt_draft_slot_t *slot,
                            uint32_t end);

/**
 * Records that K and V of the positions slot->end … end - 1 are computed.
 * @param [in] tokens  [end] tokens of the sequence, from its first one on; the
 *         ones before slot->end equal those that the slot was found with. Those
 *         of a draft may be wrong.
 * @param [in] end  At most what was reserved.
 * @param [in] last  False: they are of the drafter's own output, and for this
 *         turn only. K and V that last are not stored behind such.
 */
void bt_draft_cache_store(bt_draft_cache_t *cache, bt_draft_slot_t *slot,
                          const uint32_t *tokens, uint32_t end, bool last);

/** Forgets K and V from position @a end on, and returns blocks that are left
 *  over. Does nothing where the slot ends before. */
void bt_draft_cache_truncate(bt_draft_cache_t *cache, bt_draft_slot_t *slot,
                             uint32_t end);

/** Returns how many blocks no slot has. */
uint32_t bt_draft_cache_n_free(const bt_draft_cache_t *cache);

#endif
