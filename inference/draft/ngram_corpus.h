/* SPDX-License-Identifier: Apache-2.0 */
/** @file ngram_corpus.h
 *
 * Corpus of earlier answers for drafts: what followed the last tokens of a
 * sequence in answers to other requests. A ring of tokens with the chains of
 * ngram_index.h; the oldest answers make room for new ones. A match lies in one
 * answer.
 *
 * Threads: made and freed by its owner; used by the compute thread alone.
 * Source:  G. Oliaro et al., "SuffixDecoding", NeurIPS 2025 (a corpus of
 *          outputs beside the sequence itself).
 */
#ifndef BT_INFERENCE_DRAFT_NGRAM_CORPUS_H
#define BT_INFERENCE_DRAFT_NGRAM_CORPUS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/** Tokens of the n-grams that are indexed, and least match of a draft. */
#define BT_NGRAM_CORPUS_GRAM 4u

typedef struct bt_ngram_corpus bt_ngram_corpus_t;

/**
 * Makes an empty corpus.
 * @param [in]  bytes     memory of the whole, at least 4096; a token takes 12
 * to 16 bytes
 * @param [out] corpus_p  Owned by the caller; free with
 *                        bt_ngram_corpus_destroy().
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  fewer bytes
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_ngram_corpus_create(size_t bytes,
                                                 bt_ngram_corpus_t **corpus_p);
/** Frees a corpus. NULL is allowed. */
void bt_ngram_corpus_destroy(bt_ngram_corpus_t *corpus);

/** Adds an answer. Of one that is longer than the ring its end is kept. */
void bt_ngram_corpus_add(bt_ngram_corpus_t *corpus, const uint32_t *tokens,
                         uint32_t n);

/**
 * Copies what followed the longest occurrence of the last tokens, of equally
 * long ones the last, to the end of that answer.
 *
 * @param [in]  tokens  [n_tokens] tokens of the sequence
 * @param [in]  least   a match must be longer than this
 * @param [out] drafts  [max] ids
 * @param [out] n_p     number of drafts
 * @return tokens matched; 0: there is no match, and n_p is not written
 */
uint32_t bt_ngram_corpus_find(const bt_ngram_corpus_t *corpus,
                              const uint32_t *tokens, uint32_t n_tokens,
                              uint32_t least, uint32_t max, uint32_t *drafts,
                              uint32_t *n_p);

#endif
