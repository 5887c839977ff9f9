/* SPDX-License-Identifier: Apache-2.0 */
/** @file tokenizer_priv.h
 *
 * Shared by the files of this module.
 */
#ifndef BT_INFERENCE_TOKENIZER_TOKENIZER_PRIV_H
#define BT_INFERENCE_TOKENIZER_TOKENIZER_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inference/tokenizer/normal.h"
#include "inference/tokenizer/pretok.h"
#include "inference/tokenizer/special.h"
#include "inference/tokenizer/tables.h"
#include "inference/tokenizer/tokenizer.h"
#include "inference/tokenizer/words.h"

/* The longest token of a published file is a thousand spaces, written with two
 * bytes each. The limits bound the work of loading a hostile file and of
 * matching with it. */
#define BT_TOK_MAX_TOKEN_BYTES 2048u
#define BT_TOK_MAX_VOCAB       (1u << 24)
#define BT_TOK_MAX_END_IDS     16u

/** Ids of added tokens that are matched in normalized text. If the key is
 *  present, even empty, all other added tokens are matched as they are
 *  spelled. */
#define BT_TOK_KEY_NORMALIZED "baton.tokenizer.normalized"

/** Character that stands for a space in tokens that are text: U+2581. */
#define BT_TOK_MARK       "\u2581"
#define BT_TOK_MARK_BYTES (sizeof(BT_TOK_MARK) - 1)

/** Token types of tokenizer.ggml.token_type. */
typedef enum bt_token_type {
    BT_TOKEN_NORMAL = 1,
    BT_TOKEN_UNKNOWN = 2,
    BT_TOKEN_CONTROL = 3,
    BT_TOKEN_USER_DEFINED = 4,
    BT_TOKEN_UNUSED = 5,
    BT_TOKEN_BYTE = 6,
} bt_token_type_t;

/** Flag of a SentencePiece character that is no piece by itself, ORed with the
 *  code point. Never the id of a token. */
#define BT_TOK_BARE_CHAR 0x80000000u

/** Algorithm that turns a split text into tokens. */
typedef enum bt_tok_model {
    BT_TOK_BY_MERGES, /**< merge by the order of the list of merges */
    BT_TOK_BY_SCORES, /**< merge by the score of the merged token */
    BT_TOK_UNIGRAM,   /**< choose the pieces with the highest sum of scores */
} bt_tok_model_t;

/** Prefix that is added to a piece of a text unless it begins with it. */
typedef struct bt_tok_prefix {
    bool is_on;
    bool first_only; /**< only for the first piece of the text */
    uint8_t n;
    uint8_t bytes[4]; /**< one character */
} bt_tok_prefix_t;

/** Treatment of leading spaces of the first token when it is detokenized. */
typedef enum bt_tok_first_space {
    BT_TOK_SPACE_KEPT,
    BT_TOK_SPACE_DROPPED,     /**< one space is dropped */
    BT_TOK_SPACE_ALL_DROPPED, /**< all leading spaces of the token are
                                   dropped */
} bt_tok_first_space_t;

struct bt_tokenizer {
    bt_tok_model_t model;
    bool is_spm;       /**< tokens are text, not bytes */
    bool marks_spaces; /**< is_spm: in tokens U+2581 is a space */
    bool as_spelled;   /**< added tokens are matched as the Hugging Face
                            library does */
    bool fuses;        /**< is_spm: consecutive unknown characters are one
                            token */
    bool by_id;        /**< merges: without a list the lower id comes first */
    bt_normal_t normal;
    bt_splits_t
        *outer; /**< owned; splits before the prefix is added, NULL: none */
    bt_tok_prefix_t prefix;
    bt_pretok_t pretok;  /**< scanner of byte-level BPE */
    bt_splits_t *splits; /**< owned; for BT_PRETOK_SPLITS, else NULL */
    bool ignore_merges;  /**< a whole word in the vocabulary is a token */
    bool add_bos;        /**< never set without an id for it */
    bool add_eos;
    bool add_space_prefix; /**< SentencePiece */
    bt_tok_first_space_t first_space;
    uint32_t bos; /**< id, or BT_TOKEN_NONE, also for eos and unk */
    uint32_t eos;
    uint32_t unk;
    uint32_t end_ids[BT_TOK_MAX_END_IDS];
    uint32_t n_end_ids;
    uint32_t n_vocab; /**< bt_gguf_n_vocab(): at most arena.n */

    /** Decoded texts: byte-level tokens as bytes, SentencePiece pieces with
     *  spaces, byte tokens as their byte. */
    bt_text_arena_t arena;
    uint8_t *types;           /**< owned; a bt_token_type_t each */
    uint32_t max_token_bytes; /**< longest of normal and user-defined tokens */
    bt_text_table_t texts;    /**< normal and user-defined tokens */
    bt_pair_table_t pairs;
    bt_trie_t trie;       /**< Unigram: all pieces */
    double *scores;       /**< owned; Unigram */
    bool float_sums;      /**< Unigram: each sum is rounded to a float */
    double unknown_score; /**< Unigram: score of a character that is no piece */
    bt_special_t special;
    bt_special_t special_normal; /**< added tokens that are matched in
                                      normalized text */
    bool has_all_bytes;          /**< every byte has a token */
    uint32_t byte_ids[256];      /**< token of one byte, or BT_TOKEN_NONE */

    /** SentencePiece: bt_tok_char_symbol() of the ASCII characters. */
    uint32_t ascii_symbols[128];

    /* Shortcuts derived from the above; all but joins for byte-level BPE
     * only. */
    bt_joins_t *joins; /**< owned; made of the merged tokens' texts */
    bool *whole;       /**< owned; merging the text of token i gives token i */
    bool *is_word;     /**< owned; a word with the token's text becomes the
                            token, which with ignore_merges holds for all */
    bt_word_table_t words; /**< short tokens of is_word */
    bt_word_pool_t *pool;  /**< owned; words seen while tokenizing */
};

static inline bool bt_token_is_special(uint8_t type)
{
    return (type == BT_TOKEN_CONTROL) || (type == BT_TOKEN_UNKNOWN);
}

/** Returns the symbol of one character of SentencePiece text: its id or
 *  BT_TOK_BARE_CHAR.
 *  @param [in] p  bytes of the character */
uint32_t bt_tok_char_symbol(const bt_tokenizer_t *tok, const uint8_t *p,
                            unsigned len, uint32_t cp);

/** Converts the bytes of a byte-level word to symbols; bytes without a token
 *  are left out, as by the reference.
 *  @param [out] syms  capacity: @a bytes
 *  @return number of symbols */
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

/** Tokenizer that is being loaded, and where the reason of a failure goes. */
typedef struct bt_tok_load {
    bt_tokenizer_t *tok;
    const bt_gguf_t *gguf;
    char *why;
    size_t why_bytes;
} bt_tok_load_t;

/** Writes the reason of a failure (tokenizer.c). @return @a status */
__attribute__((format(printf, 3, 4))) bt_status_t
bt_tok_fail(const bt_tok_load_t *load, bt_status_t status, const char *format,
            ...);

/** Configures the kind of tokenizer that the file asks for, its normalizer,
 *  its splits and its flags (configure.c). On failure the caller destroys @a
 *  tok. */
BT_MUST_CHECK bt_status_t bt_tok_configure(const bt_tok_load_t *load);
/** Fills special and special_normal, once the tokens are loaded
 *  (load_merges.c). */
BT_MUST_CHECK bt_status_t bt_tok_load_added(const bt_tok_load_t *load);

/** Loads arena, types, texts, byte_ids and the ids of special tokens
 *  (load_vocab.c). On failure the caller destroys @a tok. */
BT_MUST_CHECK bt_status_t bt_tok_load_vocab(const bt_tok_load_t *load);

/** Replaces U+2581 by spaces, where the tokenizer marks spaces (load_vocab.c).
 *  @param [out] out  capacity: @a bytes
 *  @return bytes written */
size_t bt_tok_plain_text(const bt_tokenizer_t *tok, const uint8_t *text,
                         size_t bytes, uint8_t *out);

/** Builds the pair table from the merges of byte-level BPE (load_merges.c);
 *  bt_tok_load_scores() from the scores of SentencePiece. */
BT_MUST_CHECK bt_status_t bt_tok_load_merges(const bt_tok_load_t *load);
BT_MUST_CHECK bt_status_t bt_tok_load_scores(const bt_tok_load_t *load);

/** Builds the trie and the scores (unigram.c). */
BT_MUST_CHECK bt_status_t bt_tok_load_unigram(const bt_tok_load_t *load);
/** Reads the scores, one for each token (load_merges.c).
 *  @param [out] scores  capacity for all tokens */
BT_MUST_CHECK bt_status_t bt_tok_read_scores(const bt_tok_load_t *load,
                                             double *scores);

/** Builds joins, whole … pool, for the current pretok and ignore_merges
 *  (load_vocab.c); call again after these change, which only tests do.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_tok_index_words(bt_tokenizer_t *tok);
void bt_tok_free_words(bt_tokenizer_t *tok);

/** Returns the character that stands for a byte in byte-level vocabularies
 *  (tokenizer.c). */
uint32_t bt_bytelevel_char(uint8_t byte);

/** Decodes a byte-level token to its bytes (tokenizer.c).
 *  @param [out] out  capacity: @a bytes
 *  @return bytes written; the text itself when some character is outside the
 *          byte alphabet */
size_t bt_bytelevel_decode(const uint8_t *text, size_t bytes, uint8_t *out);

#endif
