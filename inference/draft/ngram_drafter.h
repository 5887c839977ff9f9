/* SPDX-License-Identifier: Apache-2.0 */
/** @file ngram_drafter.h
 *
 * Drafter that needs no model: it proposes what followed when the last tokens
 * occurred before, in the sequence itself or in a text that the client expects
 * as the answer. An occurrence in the prediction goes first if it is at least
 * as long.
 *
 * The draft may reach beyond the end of the sequence: what is periodic goes on.
 *
 * Threads: made and freed by the owner of a sequence; used by the compute
 *          thread while the engine has the sequence.
 * Source:  G. Oliaro et al., "SuffixDecoding", NeurIPS 2025 (matches of any
 *          length, in own and in other text).
 */
#ifndef BT_INFERENCE_DRAFT_NGRAM_DRAFTER_H
#define BT_INFERENCE_DRAFT_NGRAM_DRAFTER_H

#include "inference/draft/ngram_corpus.h"
#include "inference/draft/ngram_index.h"
#include "inference/engine/engine.h"

typedef struct bt_ngram_drafter bt_ngram_drafter_t;

/** Parameters of a drafter; copied by bt_ngram_drafter_create(). */
typedef struct bt_ngram_drafter_config {
    uint32_t n_prompt;   /**< tokens of the prompt; the answer follows */
    uint32_t max_tokens; /**< most tokens of the sequence, prompt and answer */
    const uint32_t *predicted_ids; /**< [n_predicted] ids of the expected
                                answer; NULL if n_predicted is 0 */
    uint32_t n_predicted;
    bt_ngram_corpus_t *corpus; /**< borrowed; earlier answers, to which this one
                                  is added; NULL: none */
} bt_ngram_drafter_config_t;

/**
 * Makes the drafter of one sequence.
 * @param [out] drafter_p  Owned by the caller; free with
 *                         bt_ngram_drafter_destroy().
 * @retval BT_OK
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_ngram_drafter_create(
    const bt_ngram_drafter_config_t *config, bt_ngram_drafter_t **drafter_p);
/** Frees the drafter. NULL is allowed. */
void bt_ngram_drafter_destroy(bt_ngram_drafter_t *drafter);

/** Returns the hook for bt_seq_t.drafter. */
bt_drafter_t bt_ngram_drafter_hook(bt_ngram_drafter_t *drafter);

#endif
