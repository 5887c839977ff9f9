/* SPDX-License-Identifier: Apache-2.0 */
/** @file scores.h
 *
 * Where the tokens of a choice stand in its text, and their log-probs' sum:
 * followed as they come, so that no answer does it all at its end.
 *
 * Threads: one.
 */
#ifndef BT_ROUTER_FRONTEND_SCORES_H
#define BT_ROUTER_FRONTEND_SCORES_H

#include "common/base/status.h"
#include "common/base/strbuf.h"
#include "inference/tokenizer/tokenizer.h"
#include "router/core/rows.h"

typedef struct bt_score_walk {
    const bt_tokenizer_t *tok;
    bool wants_offsets;
    bool shows_special; /**< special tokens of the answer are text */
    bt_detok_t detok;
    bt_strbuf_t text;  /**< scratch */
    uint32_t n_chars;  /**< before the next token */
    uint32_t n;        /**< tokens walked */
    uint32_t *offsets; /**< owned: in characters */
    uint32_t cap;
    double cum_logprob; /**< of the answer's tokens */
} bt_score_walk_t;

void bt_score_walk_init(bt_score_walk_t *walk, const bt_tokenizer_t *tok,
                        bool wants_offsets, bool shows_special);
void bt_score_walk_fini(bt_score_walk_t *walk);
/** To the last token that is certain. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_score_walk_on(bt_score_walk_t *walk,
                                           const bt_gen_rows_t *rows);

/** Append a prompt as its echo has it: special tokens as they are spelled, but
 *  for a BOS in front. Errors stick in @a out. */
void bt_echo_ids(const bt_tokenizer_t *tok, const uint32_t *ids, uint32_t n,
                 bt_strbuf_t *out);

#endif
