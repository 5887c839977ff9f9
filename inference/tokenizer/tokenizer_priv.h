/* SPDX-License-Identifier: Apache-2.0 */
/** @file tokenizer_priv.h  What the files of this module share. */
#ifndef BT_INFERENCE_TOKENIZER_TOKENIZER_PRIV_H
#define BT_INFERENCE_TOKENIZER_TOKENIZER_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inference/tokenizer/normal.h"
#include "inference/tokenizer/pretok.h"
#include "inference/tokenizer/special.h"
#include "inference/tokenizer/splits.h"
#include "inference/tokenizer/tables.h"
#include "inference/tokenizer/tokenizer.h"
#include "inference/tokenizer/trie.h"
#include "inference/tokenizer/words.h"

/* The longest token of a published file is a thousand spaces, written with two
 * bytes each. The limits bound the work of loading and of matching with a
 * hostile one. */
#define BT_TOK_MAX_TOKEN_BYTES 2048u
#define BT_TOK_MAX_VOCAB       (1u << 24)
#define BT_TOK_MAX_END_IDS     16u

/** Ids of added tokens that are found in normalized text. Where it is, be it
 *  empty, the others are found as they are spelled. */
#define BT_TOK_KEY_NORMALIZED "baton.tokenizer.normalized"

/** tokenizer.ggml.token_type */
typedef enum bt_token_type {
    BT_TOKEN_NORMAL = 1,
    BT_TOKEN_UNKNOWN = 2,
    BT_TOKEN_CONTROL = 3,
    BT_TOKEN_USER_DEFINED = 4,
    BT_TOKEN_UNUSED = 5,
    BT_TOKEN_BYTE = 6,
} bt_token_type_t;

/** A SentencePiece character that is no piece by itself: this bit and the
 *  code point. Never the id of a token. */
#define BT_TOK_BARE_CHAR 0x80000000u

/** How a text becomes tokens once it is cut. */
typedef enum bt_tok_model {
    BT_TOK_BY_MERGES, /**< the list of merges says which pair is first */
    BT_TOK_BY_SCORES, /**< the score of what a pair becomes */
    BT_TOK_UNIGRAM,   /**< the pieces whose scores have the highest sum */
} bt_tok_model_t;

/** What a piece of a text gets in front unless it begins with it. */
typedef struct bt_tok_prefix {
    bool is_on;
    bool first_only; /**< only the piece that the whole text begins with */
    uint8_t n;
    uint8_t bytes[4]; /**< one character */
} bt_tok_prefix_t;

/** What becomes of spaces that the first token begins with when it comes out.
 */
typedef enum bt_tok_first_space {
    BT_TOK_SPACE_KEPT,
    BT_TOK_SPACE_DROPPED,     /**< one of them */
    BT_TOK_SPACE_ALL_DROPPED, /**< every one in the token */
} bt_tok_first_space_t;

struct bt_tokenizer {
    bt_tok_model_t model;
    bool is_spm;       /**< tokens are text, not bytes */
    bool marks_spaces; /**< is_spm: in tokens U+2581 is a space */
    bool as_spelled;   /**< added tokens are looked for as the library does */
    bool fuses;        /**< is_spm: unknown characters in a row are one token */
    bool by_id;        /**< merges: without a list the lower id is first */
    bt_normal_t normal;
    bt_splits_t
        *outer; /**< owned; what cuts before the prefix, NULL: nothing */
    bt_tok_prefix_t prefix;
    bt_pretok_t pretok;  /**< byte-level BPE */
    bt_splits_t *splits; /**< owned; of BT_PRETOK_SPLITS, else NULL */
    bool ignore_merges;  /**< a whole word in the vocabulary is a token */
    bool add_bos;        /**< never without an id for it */
    bool add_eos;
    bool add_space_prefix; /**< SentencePiece */
    bt_tok_first_space_t first_space;
    uint32_t bos; /**< or BT_TOKEN_NONE, as all of these */
    uint32_t eos;
    uint32_t unk;
    uint32_t end_ids[BT_TOK_MAX_END_IDS];
    uint32_t n_end_ids;
    uint32_t n_vocab; /**< bt_gguf_n_vocab(): at most arena.n */

    /** Texts as they come out: byte-level tokens as bytes, SentencePiece
     *  pieces with spaces, byte tokens as their byte. */
    bt_text_arena_t arena;
    uint8_t *types;           /**< owned; a bt_token_type_t each */
    uint32_t max_token_bytes; /**< of normal and user-defined tokens */
    bt_text_table_t texts;    /**< normal and user-defined tokens */
    bt_pair_table_t pairs;
    bt_trie_t trie;       /**< Unigram: of all pieces */
    double *scores;       /**< owned; Unigram */
    bool float_sums;      /**< Unigram: each sum is rounded to a float */
    double unknown_score; /**< Unigram: of a character that is no piece */
    bt_special_t special;
    bt_special_t special_normal; /**< those found in normalized text */
    bool has_all_bytes;          /**< each has a token */
    uint32_t byte_ids[256];      /**< token of one byte, or BT_TOKEN_NONE */

    /** SentencePiece: bt_tok_char_symbol() of the ASCII characters. */
    uint32_t ascii_symbols[128];

    /* Short cuts, all made from the above; all but joins for byte-level BPE
     * only. */
    bt_joins_t *joins; /**< owned; of the merged tokens' texts */
    bool *whole;       /**< owned; token i is what merging its text gives */
    bool *is_word;     /**< owned; and what a word of its text becomes, which
                            with ignore_merges is so for all */
    bt_word_table_t words; /**< of is_word, those that are short */
    bt_word_pool_t *pool;  /**< owned; what is learned while tokenizing */
};

static inline bool bt_token_is_special(uint8_t type)
{
    return (type == BT_TOKEN_CONTROL) || (type == BT_TOKEN_UNKNOWN);
}

/** Symbol of one character of SentencePiece text: its id or BT_TOK_BARE_CHAR.
 *  @param [in] p  Its bytes. */
uint32_t bt_tok_char_symbol(const bt_tokenizer_t *tok, const uint8_t *p,
                            unsigned len, uint32_t cp);

/** Symbols of the bytes of a byte-level word; bytes without a token are left
 *  out, as by the reference.
 *  @param [out] syms  Room for @a bytes of them.
 *  @return how many */
static inline size_t bt_tok_byte_symbols(const bt_tokenizer_t *tok,
                                         const uint8_t *word, size_t bytes,
                                         uint32_t *syms)
{
    size_t n = 0;

    for (size_t i = 0; i < bytes; i++) {
        syms[n] = tok->byte_ids[word[i]];
        n += (syms[n] != BT_TOKEN_NONE);
    }
    return n;
}

/** configure.c: what kind of tokenizer the file asks for, its normalizer, its
 *  splits and its flags. On failure the caller destroys @a tok. */
BT_MUST_CHECK bt_status_t bt_tok_configure(bt_tokenizer_t *tok,
                                           const bt_gguf_t *gguf, char *why,
                                           size_t why_bytes);
/** load_added.c: special and special_normal, once the tokens are loaded. */
BT_MUST_CHECK bt_status_t bt_tok_load_added(bt_tokenizer_t *tok,
                                            const bt_gguf_t *gguf, char *why,
                                            size_t why_bytes);

/** load_vocab.c: arena, types, texts, byte_ids and the ids of special tokens.
  On failure the caller destroys @a tok. */
BT_MUST_CHECK bt_status_t bt_tok_load_vocab(bt_tokenizer_t *tok,
                                            const bt_gguf_t *gguf, char *why,
                                            size_t why_bytes);

/** load_vocab.c: spaces for U+2581, where this marks them.
 *  @param [out] out  @a bytes bytes of room
 *  @return how many */
size_t bt_tok_plain_text(const bt_tokenizer_t *tok, const uint8_t *text,
                         size_t bytes, uint8_t *out);

/** load_merges.c: the pair table, from the merges of byte-level BPE or the
 *  scores of SentencePiece. */
BT_MUST_CHECK bt_status_t bt_tok_load_merges(bt_tokenizer_t *tok,
                                             const bt_gguf_t *gguf, char *why,
                                             size_t why_bytes);
BT_MUST_CHECK bt_status_t bt_tok_load_scores(bt_tokenizer_t *tok,
                                             const bt_gguf_t *gguf, char *why,
                                             size_t why_bytes);

/** unigram.c: the trie and the scores. */
BT_MUST_CHECK bt_status_t bt_tok_load_unigram(bt_tokenizer_t *tok,
                                              const bt_gguf_t *gguf, char *why,
                                              size_t why_bytes);
/** load_merges.c: the scores, one of each token.
 *  @param [out] scores  room for all */
BT_MUST_CHECK bt_status_t bt_tok_read_scores(const bt_tokenizer_t *tok,
                                             const bt_gguf_t *gguf,
                                             double *scores, char *why,
                                             size_t why_bytes);

/** load_words.c: joins, whole … pool, for pretok and ignore_merges as
 * they are; again after these were changed, which only tests do.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_tok_index_words(bt_tokenizer_t *tok);
void bt_tok_free_words(bt_tokenizer_t *tok);

/** bytelevel.c: the character that byte-level vocabularies write for a byte. */
uint32_t bt_bytelevel_char(uint8_t byte);

/** bytelevel.c: bytes that a byte-level token stands for.
 *  @param [out] out  @a bytes bytes of room.
 *  @return how many; when some character is outside the byte alphabet, the
 *          text itself */
size_t bt_bytelevel_decode(const uint8_t *text, size_t bytes, uint8_t *out);

#endif
