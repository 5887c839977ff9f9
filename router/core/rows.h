/* SPDX-License-Identifier: Apache-2.0 */
/** @file rows.h
 *
 * What a generation is told beside its tokens: log-probs and logits, as they
 * were asked for (bt_wants_t), each value once, in whatever order two workers'
 * links and re-runs bring it. The same values come again from a re-run (I1), so
 * a duplicate is dropped.
 *
 * Tokens are counted as the client counts them: with log-probs of the prompt
 * its tokens are the first, without only those of the answer are here.
 *
 * Threads: the core's, until its generation has ended.
 */
#ifndef BT_ROUTER_CORE_ROWS_H
#define BT_ROUTER_CORE_ROWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/wire/wire.h"
#include "router/core/prompt.h"

/** Log-probs of tokens in order. */
typedef struct bt_scores {
    uint32_t n; /**< tokens that are certain */
    uint32_t n_top;
    uint32_t *ids;        /**< n */
    double *logprobs;     /**< n; NaN: has none, as the prompt's first */
    uint32_t *top_ids;    /**< (n, n_top), best first */
    double *top_logprobs; /**< (n, n_top) */
    uint32_t cap;
} bt_scores_t;

typedef _Atomic uint64_t bt_gen_rows_held_t;

typedef struct bt_gen_rows {
    atomic_uint n_refs; /**< given up on any thread */
    bt_wants_t wants;
    uint32_t n_vocab, n_prompt, max_new;
    uint32_t n_front;  /**< tokens of the prompt in scores: none, or all */
    uint32_t n_told;   /**< of the prompt: with their log-probs */
    uint32_t n_output; /**< tokens of the answer that are certain */
    bt_scores_t scores;
    float *context_logits;    /**< (n_prompt, n_vocab), NULL: not wanted */
    float *generation_logits; /**< (max_new, n_vocab), the same */
    /* Of each row, how many floats are here. */
    uint32_t *context_filled, *generation_filled;
    uint32_t n_context; /**< whole rows, from the first */
    /** A counter of bytes of logits that exist, which this gives back
     * held_bytes of when it is freed, on any thread; NULL: none. Borrowed. */
    bt_gen_rows_held_t *held;
    uint64_t held_bytes;
} bt_gen_rows_t;

/** @param [in] wants  .what is not 0
 *  @param [out] rows_p  with one reference, the caller's
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_gen_rows_create(const bt_wants_t *wants,
                                             const bt_prompt_t *prompt,
                                             uint32_t max_new, uint32_t n_vocab,
                                             bt_gen_rows_t **rows_p);
/** The rows are @a bytes of logits, counted in @a held until they are freed:
 *  whoever writes an answer of them may do so after its generation has ended.
 */
void bt_gen_rows_hold(bt_gen_rows_t *rows, bt_gen_rows_held_t *held,
                      uint64_t bytes);
/** One reference more; nobody changes it then. @return @a rows */
bt_gen_rows_t *bt_gen_rows_ref(bt_gen_rows_t *rows);
/** One less; the last one frees it. NULL is allowed. */
void bt_gen_rows_unref(bt_gen_rows_t *rows);

/** The log-prob of a token of the answer came with it.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_gen_rows_score(bt_gen_rows_t *rows, uint32_t index,
                                            const bt_score_t *score);
/** A part of the rest. @retval BT_ERR_BAD_MESSAGE  it fits nothing that was
 *  asked for, or something is missing before it */
BT_MUST_CHECK bt_status_t bt_gen_rows_take(bt_gen_rows_t *rows,
                                           const bt_msg_rows_t *msg);
/** Is all here that belongs to this token of the answer, and before it? */
bool bt_gen_rows_ready(const bt_gen_rows_t *rows, uint32_t index);
/** Are the logits of this token here, where they are wanted? */
bool bt_gen_rows_has_logits(const bt_gen_rows_t *rows, uint32_t index);
/** What another attempt has to tell: what is wanted and not here. */
bt_wants_t bt_gen_rows_missing(const bt_gen_rows_t *rows);
/** It is the next of the answer in order. */
void bt_gen_rows_append(bt_gen_rows_t *rows, uint32_t index, uint32_t id);

/** Bytes of the logits that are asked for. */
uint64_t bt_gen_rows_logits_bytes(const bt_wants_t *wants, uint32_t n_prompt,
                                  uint32_t max_new, uint32_t n_vocab);

#endif
