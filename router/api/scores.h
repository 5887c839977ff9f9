/* SPDX-License-Identifier: Apache-2.0 */
/** @file scores.h
 *
 * Tracks the text offsets of a choice's tokens and the sum of their log-probs,
 * incrementally, so that no answer computes all at its end.
 *
 * Threads: one.
 */
#ifndef BT_ROUTER_API_SCORES_H
#define BT_ROUTER_API_SCORES_H

#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/tokenizer/tokenizer.h"
#include "router/core/rows.h"

typedef struct bt_score_walk {
    const bt_tokenizer_t *tok;
    bool wants_offsets;
    bool shows_special; /**< include the answer's special tokens in the text */
    bool skips_front;   /**< text begins behind the prompt */
    bt_detok_t detok;
    bt_strbuf_t text;  /**< scratch */
    uint32_t n_chars;  /**< characters before the next token */
    uint32_t n;        /**< tokens processed */
    uint32_t *offsets; /**< owned: in characters */
    uint32_t cap;
    double cum_logprob; /**< sum over the answer's tokens */
} bt_score_walk_t;

void bt_score_walk_init(bt_score_walk_t *walk, const bt_tokenizer_t *tok,
                        bool wants_offsets, bool shows_special);
void bt_score_walk_fini(bt_score_walk_t *walk);
/** Processes tokens up to the last final one. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_score_walk_on(bt_score_walk_t *walk,
                                           const bt_gen_rows_t *rows);

/** Returns the number of characters of a text. */
size_t bt_n_characters(const char *text, size_t bytes);
/** Appends the text of a prompt for its echo: special tokens as spelled, except
 *  a leading BOS. Errors stick in @a out. */
void bt_echo_ids(const bt_tokenizer_t *tok, const uint32_t *ids, uint32_t n,
                 bt_strbuf_t *out);

#endif
