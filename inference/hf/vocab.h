/* SPDX-License-Identifier: Apache-2.0 */
/** @file vocab.h
 *
 * Vocabulary of a tokenizer while its files are read.
 */
#ifndef BT_INFERENCE_HF_VOCAB_H
#define BT_INFERENCE_HF_VOCAB_H

#include "inference/hf/hf_priv.h"

#define BT_HF_MAX_VOCAB (1u << 24)
#define BT_HF_NO_TOKEN  UINT32_MAX

/** Token types, as numbered by tokenizer.ggml.token_type. */
enum {
    BT_HF_TOKEN_NORMAL = 1,
    BT_HF_TOKEN_UNKNOWN = 2,
    BT_HF_TOKEN_CONTROL = 3,
    BT_HF_TOKEN_USER_DEFINED = 4,
    BT_HF_TOKEN_UNUSED = 5,
    BT_HF_TOKEN_BYTE = 6,
};

/** Matching rules of added tokens. */
enum {
    BT_HF_LSTRIP = 1,
    BT_HF_RSTRIP = 2,
    BT_HF_SINGLE_WORD = 4,
    BT_HF_NORMALIZED = 8, /**< matched in normalized text */
};

typedef struct bt_hf_piece {
    const char *text; /**< NULL: no token has this id */
    uint32_t len;
    uint8_t type;
    uint8_t rules;    /**< BT_HF_LSTRIP … of an added token */
    bool is_in_model; /**< token of the model itself, made by merges or
                           Unigram */
    double score;
} bt_hf_piece_t;

/** Algorithm that turns words into tokens. */
typedef enum bt_hf_words {
    BT_HF_BYTES,   /**< BPE over bytes */
    BT_HF_SCORES,  /**< BPE over characters, by scores, as SentencePiece does */
    BT_HF_MERGES,  /**< BPE over characters, by a list of merges */
    BT_HF_UNIGRAM, /**< Unigram: the pieces with the best sum of scores */
} bt_hf_words_t;

/** List of strings of a tokenizer key, all borrowed. */
#define BT_HF_MAX_TEXTS 48u
typedef struct bt_hf_texts {
    bt_gguf_str_t list[BT_HF_MAX_TEXTS];
    uint32_t n;
} bt_hf_texts_t;

typedef struct bt_hf_vocab {
    const bt_json_doc_t *doc;
    const bt_json_node_t *root;  /**< root of tokenizer.json */
    const bt_json_node_t *model; /**< member "model" of tokenizer.json */
    bt_hf_piece_t *pieces;       /**< by id */
    uint32_t n;
    uint32_t *table; /**< ids + 1 by text, open addressing; 0: free */
    uint32_t mask;
    bt_hf_words_t words;

    /* Settings of tokenizer.json, as values of the tokenizer's keys. */
    bool as_library;   /**< all of the settings below are set, not only tokens
                            and scores */
    bool is_last_step; /**< no component follows the one being read */
    bool sees_bytes;   /**< a ByteLevel was read */
    bool is_fused;     /**< a Fuse of the decoder was read */
    bt_hf_texts_t normalizers;
    bt_hf_texts_t splits;
    const char *pre;   /**< GGUF's name for the splits; NULL: none */
    bool pre_is_exact; /**< that name describes the splits completely */
    bool ignore_merges;
    bool fuses;        /**< unknown characters are fused to one token */
    bool marks_spaces; /**< U+2581 stands for a space */
    const char *first_space;
    uint8_t *charsmap; /**< owned */
    size_t charsmap_bytes;

    bool add_space;    /**< add a space before a text; SentencePiece */
    bool extra_spaces; /**< remove extra spaces; SentencePiece */
    bool add_bos;
    bool add_eos;
    bool has_ends; /**< add_bos and add_eos are given */
    uint32_t bos;  /**< id, or BT_HF_NO_TOKEN: not given, also for eos and
                        unk */
    uint32_t eos;
    uint32_t unk;
} bt_hf_vocab_t;

#define BT_HF_VOCAB_NONE                                                    \
    {                                                                       \
        .bos = BT_HF_NO_TOKEN, .eos = BT_HF_NO_TOKEN, .unk = BT_HF_NO_TOKEN \
    }

/** Returns a member that is present and not null.
 *  @return NULL: there is none */
const bt_json_node_t *bt_hf_member(const bt_hf_vocab_t *v,
                                   const bt_json_node_t *node, const char *key);
/** True when the member is true. */
bool bt_hf_is_true(const bt_hf_vocab_t *v, const bt_json_node_t *node,
                   const char *key);
/** Returns the text of tokenizer_config.json's "bos_token" or the like.
 *  @return any kind of node; NULL: there is none */
const bt_json_node_t *bt_hf_named_token(const bt_hf_t *hf, const char *name);
/** Reports "tokenizer.json: the WHAT NAME is not supported".
 *  @param [in] name  a JSON string, or NULL.
 *  @return BT_ERR_UNSUPPORTED */
bt_status_t bt_hf_not_supported(bt_hf_t *hf, const char *what,
                                const bt_json_node_t *name);

/** Appends a string. @return false: the list is full */
bool bt_hf_put_text(bt_hf_texts_t *texts, const char *text, size_t len);
bool bt_hf_put_word(bt_hf_texts_t *texts, const char *word);

/** Declares the function that reads a component. */
#define BT_HF_STEP(name)                                \
    void name(bt_hf_t *hf __attribute__((unused)),      \
              bt_hf_vocab_t *v __attribute__((unused)), \
              const bt_json_node_t *step __attribute__((unused)))
/** Function of a type of components; a table of them ends with NULL. */
typedef struct bt_hf_step_kind {
    const char *type;
    BT_HF_STEP((*read));
} bt_hf_step_kind_t;
/** Visits the member @a key of tokenizer.json: calls the function of each
 *  component's type, in order; of a "Sequence" those in its @a list.
 *  @param [in] what  the kind of component, for the error about another type */
BT_MUST_CHECK bt_status_t bt_hf_each_step(bt_hf_t *hf, bt_hf_vocab_t *v,
                                          const char *key, const char *list,
                                          const char *what,
                                          const bt_hf_step_kind_t *kinds);

/** Allocates pieces for ids below @a n, all without text, and a hash table for
 *  as many. */
BT_MUST_CHECK bt_status_t bt_hf_vocab_init(bt_hf_t *hf, bt_hf_vocab_t *vocab,
                                           uint64_t n);
void bt_hf_vocab_fini(bt_hf_vocab_t *vocab);

/** Adds a token to the hash table; of equal texts the first one stays. */
void bt_hf_vocab_index(bt_hf_vocab_t *vocab, uint32_t id);
/** Finds a token by text. @return BT_HF_NO_TOKEN: no token has this text */
uint32_t bt_hf_vocab_find(const bt_hf_vocab_t *vocab, const char *text,
                          size_t len);

/** Writes tokens, types, scores, special ids and flags. */
BT_MUST_CHECK bt_status_t bt_hf_vocab_put(bt_hf_t *hf,
                                          const bt_hf_vocab_t *vocab);

/** Reads the tokens of a tokenizer.json, of its model and added ones
 *  (tokenizer_vocab.c). */
BT_MUST_CHECK bt_status_t bt_hf_read_vocab(bt_hf_t *hf, bt_hf_vocab_t *v);

/** Reads the normalizers, as strings of baton.tokenizer.normalizers, and the
 *  table of replacements (tokenizer_steps.c). */
BT_MUST_CHECK bt_status_t bt_hf_read_normalizers(bt_hf_t *hf, bt_hf_vocab_t *v);

/** Reads the pre-tokenizers, as strings of baton.tokenizer.splits and GGUF's
 *  name for them, if any (tokenizer_pre.c). Called after the normalizers. */
BT_MUST_CHECK bt_status_t bt_hf_read_pretokenizer(bt_hf_t *hf,
                                                  bt_hf_vocab_t *v);
/** True when the pre-tokenizers include a ByteLevel. */
bool bt_hf_has_bytes(const bt_hf_vocab_t *v);

/** Checks the decoder (tokenizer_steps.c): most of what it does to tokens
 *  follows from the other components, and must agree with them. Called after
 *  the others. */
BT_MUST_CHECK bt_status_t bt_hf_read_decoder(bt_hf_t *hf, bt_hf_vocab_t *v);

/** Reads BOS and EOS from the post-processors (tokenizer_steps.c). */
BT_MUST_CHECK bt_status_t bt_hf_read_ends(bt_hf_t *hf, bt_hf_vocab_t *v);

/** Writes the merges of BPE, except those that would make a special token. */
BT_MUST_CHECK bt_status_t bt_hf_put_merges(bt_hf_t *hf,
                                           const bt_hf_vocab_t *vocab);
/** Computes scores from merges, for vocabularies that came from SentencePiece.
 *  @param [out] same_p  whether merging by the best score then equals merging
 *          by the first merge */
BT_MUST_CHECK bt_status_t bt_hf_score_merges(bt_hf_t *hf, bt_hf_vocab_t *vocab,
                                             bool *same_p);

/** Reads the vocabulary of a tokenizer.model, BPE or Unigram.
 *  @retval BT_ERR_UNSUPPORTED  A model of another kind, or unknown settings. */
BT_MUST_CHECK bt_status_t bt_hf_read_sentencepiece(bt_hf_t *hf,
                                                   const uint8_t *bytes,
                                                   size_t n,
                                                   bt_hf_vocab_t *vocab);

#endif
