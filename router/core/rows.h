/* SPDX-License-Identifier: Apache-2.0 */
/** @file rows.h
 *
 * Collects what a generation reports in addition to its tokens: log-probs and
 * logits, as requested (bt_wants_t). Each value is stored once, in whatever
 * order two workers' links and retries deliver it. A retry produces equal
 * values (I1), so duplicates are dropped.
 *
 * Tokens are indexed as the client counts them: with log-probs of the prompt,
 * the prompt's tokens come first; without, only the answer's tokens are stored.
 *
 * Threads: the core's, until the generation has ended.
 */
#ifndef BT_ROUTER_CORE_ROWS_H
#define BT_ROUTER_CORE_ROWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/wire/wire.h"

/** Tokens of a prompt, immutable. The call that brought the prompt and all
 *  generations made from it share one copy, whether they wait, run or are
 *  retried; references may be dropped on any thread. */
typedef struct bt_prompt {
    atomic_uint n_refs;
    uint32_t n;       /**< number of tokens */
    uint32_t *tokens; /**< owned */
    /** Tokens that the client expects as the answer, for speculative decoding;
     *  set before the prompt is shared. Owned; NULL if n_draft_ids is 0. */
    uint32_t *draft_ids;
    uint32_t n_draft_ids;
    /** bt_processor_options_t.ids of all generations of the prompt; owned, or
     *  NULL. */
    uint32_t *processor_ids;
    /** bt_msg_request_t.grammar of all generations of the prompt; owned, or
     *  NULL. */
    uint8_t *grammar;
    uint32_t grammar_bytes;
    /** Prompt table that token ids of the prompt are rows of, a reference;
     * NULL: none. */
    bt_prompt_table_t *table;
    bool completes; /**< the text is whole within max_new tokens
                         (bt_msg_request_t.complete_within) */
} bt_prompt_t;

/** Creates a prompt.
 *  @param [in] tokens  n tokens, allocated by bt_calloc() or the like; owned by
 *    the prompt on success
 *  @param [out] prompt_p  prompt with one reference, the caller's
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_prompt_create(uint32_t *tokens, uint32_t n,
                                           bt_prompt_t **prompt_p);
/** Adds a reference. @return @a prompt */
bt_prompt_t *bt_prompt_ref(bt_prompt_t *prompt);
/** Drops a reference; the last one frees the prompt. NULL is allowed. */
void bt_prompt_unref(bt_prompt_t *prompt);

/** Log-probs of tokens in order. */
typedef struct bt_scores {
    uint32_t n; /**< number of final tokens */
    uint32_t n_top;
    uint32_t *ids;        /**< shape (n) */
    double *logprobs;     /**< shape (n); NaN: none, as for the first token */
    uint32_t *top_ids;    /**< shape (n, n_top), best first */
    double *top_logprobs; /**< shape (n, n_top) */
    uint32_t cap;
} bt_scores_t;

typedef _Atomic uint64_t bt_gen_rows_held_t;

typedef struct bt_gen_rows {
    atomic_uint n_refs; /**< references may be dropped on any thread */
    bt_wants_t wants;
    uint32_t n_vocab, n_prompt, max_new;
    uint32_t n_front;  /**< prompt tokens in `scores`: none, or all */
    uint32_t n_scored; /**< prompt tokens with their log-probs */
    uint32_t n_output; /**< final tokens of the answer */
    bt_scores_t scores;
    /** Shape (n_prompt, n_vocab), NULL: not requested. */
    float *context_logits;
    /** Shape (max_new, n_vocab), NULL: not requested. */
    float *generation_logits;
    /* Number of floats received per row. */
    uint32_t *context_filled, *generation_filled;
    uint32_t n_context; /**< complete rows, from the first */
    /** Counter of allocated bytes of logits, from which held_bytes are
     *  subtracted when the rows are freed, on any thread; NULL: none. Borrowed.
     */
    bt_gen_rows_held_t *held;
    uint64_t held_bytes;
} bt_gen_rows_t;

/** Creates empty rows.
 *  @param [in] wants  requested data; .what is not 0
 *  @param [out] rows_p  rows with one reference, the caller's
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_gen_rows_create(const bt_wants_t *wants,
                                             const bt_prompt_t *prompt,
                                             uint32_t max_new, uint32_t n_vocab,
                                             bt_gen_rows_t **rows_p);
/** Counts the rows as @a bytes of logits in @a held until they are freed. An
 *  answer may be written from them after its generation has ended. */
void bt_gen_rows_hold(bt_gen_rows_t *rows, bt_gen_rows_held_t *held,
                      uint64_t bytes);
/** Adds a reference; the rows must not be changed afterwards. @return @a rows
 */
bt_gen_rows_t *bt_gen_rows_ref(bt_gen_rows_t *rows);
/** Drops a reference; the last one frees the rows. NULL is allowed. */
void bt_gen_rows_unref(bt_gen_rows_t *rows);

/** Stores the log-prob that came with a token of the answer.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_gen_rows_score(bt_gen_rows_t *rows, uint32_t index,
                                            const bt_score_t *score);
/** Stores a ROWS message: log-probs of the prompt, or logits.
 *  @retval BT_ERR_BAD_MESSAGE  the data was not requested, or data before it is
 *    missing */
BT_MUST_CHECK bt_status_t bt_gen_rows_take(bt_gen_rows_t *rows,
                                           const bt_msg_rows_t *msg);
/** True when all requested data of this token of the answer, and before it, is
 *  here. */
bool bt_gen_rows_ready(const bt_gen_rows_t *rows, uint32_t index);
/** True when the logits of this token are complete, or were not requested. */
bool bt_gen_rows_has_logits(const bt_gen_rows_t *rows, uint32_t index);
/** Returns the requested data that is still missing, for another attempt. */
bt_wants_t bt_gen_rows_missing(const bt_gen_rows_t *rows);
/** Appends the next token of the answer in order. */
void bt_gen_rows_append(bt_gen_rows_t *rows, uint32_t index, uint32_t id);

/** Returns the number of bytes of the requested logits. */
uint64_t bt_gen_rows_logits_bytes(const bt_wants_t *wants, uint32_t n_prompt,
                                  uint32_t max_new, uint32_t n_vocab);

#endif
