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

#include "inference/tokenizer/merge.h"
#include "inference/tokenizer/tokenizer_priv.h"

struct bt_unigram_place;

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
    struct bt_normal_text prefixed;  /**< a piece with its prefix */
    struct bt_normal_text view;      /**< scratch of bt_encode_unigram() */
    struct bt_unigram_place *places; /**< owned; scratch of
                                          bt_encode_unigram() */
    size_t places_cap;
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
