/* SPDX-License-Identifier: Apache-2.0 */
/** @file ngram_index.h
 *
 * Index of the n-grams of a growing token array: finds where the last tokens of
 * a sequence occurred before. Hash chains, as the match finder of a dictionary
 * compressor has them: for each n-gram the position of its last occurrence, for
 * each position that of the occurrence before it.
 *
 *     heads[hash of tokens e-n .. e-1] ──▶ e ──▶ prev[e] ──▶ ... ──▶ 0
 *
 * Two lengths are indexed. Long n-grams find the right one of many places,
 * short ones find any. An append takes constant time, a search at most 2 x
 * BT_NGRAM_CANDIDATES comparisons of BT_NGRAM_MAX_MATCH tokens.
 *
 * Memory: 12 to 16 bytes a token, allocated by bt_ngram_index_init().
 * Threads: none of these functions lock; one thread owns an index.
 * Source:  J. Ziv, A. Lempel, "A Universal Algorithm for Sequential Data
 *          Compression", 1977; P. Deutsch, RFC 1951, section 4 (hash chains);
 *          A. Saxena, "Prompt Lookup Decoding", 2023 (drafts by n-grams).
 */
#ifndef BT_INFERENCE_DRAFT_NGRAM_INDEX_H
#define BT_INFERENCE_DRAFT_NGRAM_INDEX_H

#include <stdint.h>

#include "common/base/status.h"

/** Tokens of the short and the long n-grams. */
#define BT_NGRAM_SHORT 2u
#define BT_NGRAM_LONG  6u
/** Most occurrences that a search compares, for each length. */
#define BT_NGRAM_CANDIDATES 16u
/** Longest match that is told from a longer one. */
#define BT_NGRAM_MAX_MATCH 64u

/** Chains of one length. */
typedef struct bt_ngram_chains {
    uint32_t *heads; /**< [mask + 1] */
    uint32_t *prev;  /**< [max_tokens + 1] */
    uint32_t mask;
    uint32_t n_gram;
} bt_ngram_chains_t;

typedef struct bt_ngram_index {
    bt_ngram_chains_t chains[2]; /**< long, short */
    uint32_t n_tokens;           /**< tokens indexed so far */
    uint32_t max_tokens;
} bt_ngram_index_t;

/** Occurrence of the last tokens of a sequence. */
typedef struct bt_ngram_match {
    uint32_t end;       /**< position behind the occurrence */
    uint32_t n_matched; /**< equal tokens before it; 0: nothing was found */
} bt_ngram_match_t;

/** Makes an empty index. Free it with bt_ngram_index_fini().
 *  @retval BT_OK
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_ngram_index_init(bt_ngram_index_t *index,
                                              uint32_t max_tokens);
/** Frees an index. An index of all zeros is allowed. */
void bt_ngram_index_fini(bt_ngram_index_t *index);

/**
 * Indexes tokens that were appended, at most @a most of them; the tokens
 * indexed before have not changed.
 * @param [in] tokens  [n_tokens] n_tokens at most max_tokens
 */
void bt_ngram_index_append(bt_ngram_index_t *index, const uint32_t *tokens,
                           uint32_t n_tokens, uint32_t most);

/**
 * Finds the longest occurrence in @a text of the last tokens of a sequence; of
 * equally long ones the last. The text may be the sequence itself: an
 * occurrence ends before @a n_tokens then.
 *
 * @param [in] text    indexed tokens
 * @param [in] tokens  [n_tokens] tokens of the sequence
 */
bt_ngram_match_t bt_ngram_index_find(const bt_ngram_index_t *index,
                                     const uint32_t *text,
                                     const uint32_t *tokens, uint32_t n_tokens);

#endif
