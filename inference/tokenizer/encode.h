/* SPDX-License-Identifier: Apache-2.0 */
/** @file encode.h
 *
 * State of one call of bt_tokenize(), for the files that implement it.
 */
#ifndef BT_INFERENCE_TOKENIZER_ENCODE_H
#define BT_INFERENCE_TOKENIZER_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "inference/tokenizer/tables.h"
#include "inference/tokenizer/tokenizer_priv.h"

/*
 * Merging of byte-pair encoding: as long as some neighbours have an entry in
 * the pair table, joins the pair of the lowest rank, the leftmost of equal
 * ones.
 *
 * Source: R. Sennrich et al., "Neural Machine Translation of Rare Words with
 *         Subword Units", ACL 2016, section 3.2; for SentencePiece likewise,
 *         where the rank is the position of the piece's score.
 */

/** Memory that one call of bt_tokenize() reuses for each word.
 *  Zero-initialise. */
typedef struct bt_merge_work {
    uint32_t *syms; /**< owned; symbols of the word, then its tokens */
    size_t syms_cap;
    struct bt_merge_node *nodes; /**< owned; long words only */
    size_t nodes_cap;
    uint64_t *heap; /**< owned; 3 entries per node */
    size_t heap_cap;
    uint64_t n_steps; /**< for long words: pairs looked up, entries moved */
} bt_merge_work_t;

void bt_merge_fini(bt_merge_work_t *work);

/** Reserves space for @a n symbols in work->syms. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_merge_reserve(bt_merge_work_t *work, size_t n);

#define BT_MERGE_SHORT 32u

/**
 * Merges syms[0 .. n-1] in place, searching all pairs for each merge: the
 * fastest way for few symbols, and it needs no memory.
 *
 * @param [in] n  At most BT_MERGE_SHORT.
 * @return symbols left
 */
size_t bt_merge_short(const bt_pair_table_t *pairs, uint32_t *syms, size_t n);

/**
 * Merges work->syms[0 .. n-1] in place. Cost O(n log n), and no allocation for
 * words of up to BT_MERGE_SHORT symbols.
 *
 * @param [in]  n    Below 2^31.
 * @param [out] n_p  Symbols left.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_merge(bt_merge_work_t *work,
                                   const bt_pair_table_t *pairs, size_t n,
                                   size_t *n_p);

struct bt_unigram_path;

typedef struct bt_encoder {
    const bt_tokenizer_t *tok;
    bt_token_vec_t *out;
    size_t max_tokens;
    bt_word_cache_t *cache; /**< cache owned for this call, or NULL */
    uint64_t n_table;       /**< as in bt_word_cache_t */
    uint64_t n_hits;
    uint64_t n_merged;
    bt_merge_work_t work;
    bt_normal_work_t normal;
    const uint8_t *marks; /**< 1 for each byte of the whole text that is
                               quoted; NULL: no quotes */
    bt_quotes_t quotes;   /**< quotes of a text between tokens, in normalized
                               text */
    bool bos_is_last;     /**< the last id is a BOS that was added */
    struct bt_normal_text prefixed; /**< a piece with its prefix */
    uint8_t *view; /**< owned; scratch of bt_encode_unigram() */
    size_t view_cap;
    struct bt_unigram_path *paths; /**< owned; scratch of
                                          bt_encode_unigram() */
    size_t paths_cap;
    bool in_unknown; /**< the last token is the unknown token */
    uint32_t syms[BT_MERGE_SHORT];
} bt_encoder_t;

/** Appends ids.
 *  @retval BT_ERR_TOO_LARGE, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_encode_push_all(bt_encoder_t *enc,
                                             const uint32_t *ids, size_t n);

static inline BT_MUST_CHECK bt_status_t bt_encode_push(bt_encoder_t *enc,
                                                       uint32_t id)
{
    bt_token_vec_t *out = enc->out;

    if ((out->n < out->cap) && (out->n < enc->max_tokens)) {
        out->ids[out->n++] = id;
        return BT_OK;
    }
    return bt_encode_push_all(enc, &id, 1);
}

/** True when this many symbols cannot become few enough tokens, whatever
 *  merges: a word that is far too long is refused before memory and time are
 *  spent on it. */
bool bt_encode_too_many(const bt_encoder_t *enc, size_t n_symbols);

/** Encodes a character that is no piece (words.c): its bytes as byte tokens,
 *  or the unknown token, one for a run of such characters. */
BT_MUST_CHECK bt_status_t bt_encode_bare_char(bt_encoder_t *enc, uint32_t cp);

/** Encodes a text between special tokens, whose tokens are texts (words.c). */
BT_MUST_CHECK bt_status_t bt_encode_pieces(bt_encoder_t *enc,
                                           const uint8_t *text, size_t bytes);

/** Encodes a text as its best pieces (unigram.c).
 *  @param [in] prefixed  a space goes before the text */
BT_MUST_CHECK bt_status_t bt_encode_unigram(bt_encoder_t *enc,
                                            const uint8_t *text, size_t bytes,
                                            bool prefixed);

#endif
