/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_plan.h
 *
 * In-flight batching with chunked prefill: which tokens of which sequences run
 * in the next iteration. Pure: state in, plan out.
 *
 * One iteration is a ragged batch under a token budget:
 *
 *   1. every sequence with one token left to compute gets it, with the draft
 *      tokens behind it: generating sequences, and prompts whose rest was
 *      found in a cache;
 *   2. the rest of the budget, but never less than a block, goes to sequences
 *      with more to compute, as chunks, in their order (sched_queue.h,
 *      sched_order.h). So a shorter prompt, or one of a higher priority, also
 *      goes before one that is half computed. A chunk that is not a prompt's
 *      last ends on a block boundary of absolute positions, so that whole
 *      blocks become ready to send. Where no chunk fits, nothing further back
 *      overtakes. Behind a prompt of the top level that completes in this
 *      iteration none of level 0 begins: the first token comes with the
 *      iteration's end.
 *
 * A sequence that joins is in the next plan; one that leaves is no longer in
 * the list. There is no padding.
 *
 * Threads: none of these functions lock; one thread owns the lists.
 * Source:  Yu et al., "Orca", OSDI 2022 (iteration-level scheduling);
 *          Agrawal et al., "Sarathi-Serve", OSDI 2024 (chunked prefill).
 */
#ifndef BT_COMMON_SCHED_PLAN_H
#define BT_COMMON_SCHED_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_queue.h"

/** Scheduler's part of a sequence; embedded in the engine's object. */
typedef struct bt_sched_seq {
    bt_sched_turn_t turn; /**< in the engine's running queue */
    uint32_t n_tokens;    /**< known token ids: prompt and generated */
    uint32_t n_computed;  /**< tokens with K and V in the cache */
    uint32_t n_drafts;    /**< draft tokens at the end of n_tokens */
    /** Positions, rows_from .. rows_end - 1, whose rows of logits are wanted
     *  in addition to those sampled from. */
    uint32_t rows_from, rows_end;
    /** Positions for which blocks are held; 0: for all that the sequence may
     *  compute. Nothing beyond them is planned. A whole number of blocks if
     *  below n_tokens of a sequence with chunks to compute. */
    uint32_t n_room;
    /* Inputs of the slack (sched_order.h), set by the worker that computes
     * it. */
    uint64_t deadline_us; /**< by the clock of turn.since_us; 0: none */
    uint64_t whole_us;    /**< compute time of its chunks, on arrival */
} bt_sched_seq_t;

/** True when a sequence has chunks to compute. Otherwise it generates: one
 *  token, and drafts. */
static inline bool bt_sched_seq_has_chunks(const bt_sched_seq_t *seq)
{
    return seq->n_tokens - seq->n_computed > 1 + seq->n_drafts;
}

/** True when a sequence has blocks to proceed: for all known tokens, or for
 *  a chunk of them. Otherwise it is skipped. */
static inline bool bt_sched_seq_has_room(const bt_sched_seq_t *seq)
{
    return (seq->n_room == 0) || (seq->n_tokens <= seq->n_room) ||
           (bt_sched_seq_has_chunks(seq) && (seq->n_computed < seq->n_room));
}

/** Part of one sequence in the next iteration. */
typedef struct bt_sched_item {
    bt_sched_seq_t *seq;
    uint32_t n_new;  /**< tokens to compute: n_computed .. n_computed+n_new-1 */
    bool last_chunk; /**< afterwards all known tokens are computed: sample */
} bt_sched_item_t;

/**
 * Plans one iteration.
 *
 * @param [in]  running           Queue of bt_sched_seq_t.turn.
 * @param [in]  token_budget      Tokens of all chunks and generation steps; at
 *                                least tokens_per_block. Generation steps are
 *                                never held back, and beside many of them one
 *                                block of chunks is planned: so the plan may
 *                                exceed the budget.
 * @param [in]  tokens_per_block
 * @param [in]  max_items         Capacity of @a items.
 * @param [out] items             Generation steps first, then chunks.
 * @param [out] n_context_p       Number of prompt tokens among the tokens.
 * @return the number of items; 0 only if no sequence has blocks to proceed.
 */
uint32_t bt_sched_plan(const bt_list_t *running, uint32_t token_budget,
                       uint32_t tokens_per_block, uint32_t max_items,
                       bt_sched_item_t *items, uint32_t *n_context_p);

/**
 * Plans a chunk for layer-boundary preemption: a pass of its own inside an
 * iteration in flight, whose sequences wait for it. The chunk is of the first
 * sequence with chunks that is now in order before all sequences of the
 * iteration. So a short prompt waits for a layer of a long one's chunk, not for
 * the chunk:
 *
 *     long    ██ layer 0 ██ layer 1 ██┊        wait        ┊██ layer 2 ██ ...
 *     short           arrives         ┊ layers 0..L, token ┊
 *
 * No sequence enters an iteration that has generating sequences: their clients
 * would wait, too.
 *
 * @param [in]  under_way     Plan of that iteration, of n_under_way items;
 *     n_computed is as it was when the iteration began.
 * @param [in]  token_budget  Most tokens of the chunk.
 * @param [out] item_p
 * @return whether there is one
 * Source: the preemptive shortest job first of the operating systems; between
 *         layers as Orca's iterations are between tokens.
 */
bool bt_sched_plan_inside(const bt_list_t *running,
                          const bt_sched_item_t *under_way,
                          uint32_t n_under_way, uint32_t token_budget,
                          uint32_t tokens_per_block, bt_sched_item_t *item_p);

/**
 * Cuts the chunks of a plan so that the rows of logits that sequences want fit
 * max_rows. Rows to sample from, one for each item and each draft, are not
 * counted. What is cut off comes in a later plan; chunks that are cut may end
 * inside a block. As long as max_rows is not 0, some sequence makes progress.
 *
 * @param [in,out] items        Of bt_sched_plan(), n_items of them.
 * @param [in]     max_rows     Capacity in rows.
 * @param [in,out] n_context_p  Of bt_sched_plan().
 * @return number of items left
 */
uint32_t bt_sched_limit_rows(bt_sched_item_t *items, uint32_t n_items,
                             uint32_t max_rows, uint32_t *n_context_p);

#endif
