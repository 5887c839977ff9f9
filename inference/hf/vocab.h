/* SPDX-License-Identifier: Apache-2.0 */
/** @file vocab.h  A tokenizer's words while its files are read. */
#ifndef BT_INFERENCE_HF_VOCAB_H
#define BT_INFERENCE_HF_VOCAB_H

#include "inference/hf/hf_priv.h"

#define BT_HF_MAX_VOCAB (1u << 24)
#define BT_HF_NO_TOKEN  UINT32_MAX

/** Types of tokens, as tokenizer.ggml.token_type numbers them. */
enum {
    BT_HF_TOKEN_NORMAL = 1,
    BT_HF_TOKEN_UNKNOWN = 2,
    BT_HF_TOKEN_CONTROL = 3,
    BT_HF_TOKEN_USER_DEFINED = 4,
    BT_HF_TOKEN_UNUSED = 5,
    BT_HF_TOKEN_BYTE = 6,
};

/** Rules of added tokens. */
enum {
    BT_HF_LSTRIP = 1,
    BT_HF_RSTRIP = 2,
    BT_HF_SINGLE_WORD = 4,
    BT_HF_NORMALIZED = 8, /**< found in normalized text */
};

typedef struct bt_hf_piece {
    const char *text; /**< NULL: no token has this id */
    uint32_t len;
    uint8_t type;
    uint8_t rules;    /**< of an added token */
    bool is_in_model; /**< the model's own: made by merging, or chosen */
    double score;
} bt_hf_piece_t;

/** How words become tokens. */
typedef enum bt_hf_words {
    BT_HF_BYTES,   /**< BPE over bytes */
    BT_HF_SCORES,  /**< BPE over characters, by scores: SentencePiece's way */
    BT_HF_MERGES,  /**< BPE over characters, by a list of merges */
    BT_HF_UNIGRAM, /**< the pieces of the best sum of scores */
} bt_hf_words_t;

/** A list of texts of a key of the tokenizer, all borrowed. */
#define BT_HF_MAX_TEXTS 48u
typedef struct bt_hf_texts {
    bt_gguf_str_t list[BT_HF_MAX_TEXTS];
    uint32_t n;
} bt_hf_texts_t;

typedef struct bt_hf_vocab {
    const bt_json_doc_t *doc;
    const bt_json_node_t *root;  /**< of tokenizer.json */
    const bt_json_node_t *model; /**< its "model" */
    bt_hf_piece_t *pieces;       /**< by id */
    uint32_t n;
    uint32_t *table; /**< ids + 1 by text, open addressing; 0: free */
    uint32_t mask;
    bt_hf_words_t words;

    /* What tokenizer.json says, in the words of the tokenizer's keys. */
    bool as_library; /**< all of it is, not only tokens and scores */
    bool sees_bytes; /**< a ByteLevel was read */
    bool is_fused;   /**< a Fuse of the decoder was read */
    bt_hf_texts_t normalizers;
    bt_hf_texts_t splits;
    const char *pre;   /**< GGUF's name for the splits; NULL: none */
    bool pre_is_exact; /**< which says all that splits do */
    bool ignore_merges;
    bool fuses;        /**< of words that are not bytes */
    bool marks_spaces; /**< U+2581 stands for a space */
    const char *first_space;
    uint8_t *charsmap; /**< owned */
    size_t charsmap_bytes;

    bool add_space;    /**< before a text; of SentencePiece */
    bool extra_spaces; /**< are removed; of SentencePiece */
    bool add_bos;
    bool add_eos;
    bool has_ends; /**< add_bos and add_eos are said */
    uint32_t bos;  /**< or BT_HF_NO_TOKEN: not said, as all of these */
    uint32_t eos;
    uint32_t unk;
} bt_hf_vocab_t;

#define BT_HF_VOCAB_NONE                                                    \
    {                                                                       \
        .bos = BT_HF_NO_TOKEN, .eos = BT_HF_NO_TOKEN, .unk = BT_HF_NO_TOKEN \
    }

/** A member that is there and not null. @return NULL: there is none */
const bt_json_node_t *bt_hf_member(const bt_hf_vocab_t *v,
                                   const bt_json_node_t *node, const char *key);
/** Is the member true? */
bool bt_hf_is_true(const bt_hf_vocab_t *v, const bt_json_node_t *node,
                   const char *key);
/** "tokenizer.json: the WHAT NAME is not supported".
 *  @param [in] name  a text, or NULL. @return BT_ERR_UNSUPPORTED */
bt_status_t bt_hf_not_supported(const bt_hf_t *hf, const char *what,
                                const bt_json_node_t *name);

/** Append a text. @return false: the list is full */
bool bt_hf_put_text(bt_hf_texts_t *texts, const char *text, size_t len);
bool bt_hf_put_word(bt_hf_texts_t *texts, const char *word);

/** A component of tokenizer.json and those in it, if it is a "Sequence", in
 *  their order: @a read is called for each that is none.
 *  @param [in] list  the name of a sequence's list */
typedef bt_status_t (*bt_hf_step_fn)(bt_hf_t *hf, bt_hf_vocab_t *v,
                                     const bt_json_node_t *step, bool is_last);
BT_MUST_CHECK bt_status_t bt_hf_each_step(bt_hf_t *hf, bt_hf_vocab_t *v,
                                          const bt_json_node_t *step,
                                          const char *list, bt_hf_step_fn read);

/** Make pieces for ids below @a n, all without text, and a table for as many.
 */
BT_MUST_CHECK bt_status_t bt_hf_vocab_init(const bt_hf_t *hf,
                                           bt_hf_vocab_t *vocab, uint64_t n);
void bt_hf_vocab_fini(bt_hf_vocab_t *vocab);

/** Into the table; of equal texts the first wins. */
void bt_hf_vocab_index(bt_hf_vocab_t *vocab, uint32_t id);
/** @return BT_HF_NO_TOKEN: no token has this text */
uint32_t bt_hf_vocab_find(const bt_hf_vocab_t *vocab, const char *text,
                          size_t len);

/** Writes tokens, types, scores, special ids and flags. */
BT_MUST_CHECK bt_status_t bt_hf_vocab_put(bt_hf_t *hf,
                                          const bt_hf_vocab_t *vocab);

/** tokenizer_vocab.c: the tokens of a tokenizer.json, of its model and added
 *  ones. */
BT_MUST_CHECK bt_status_t bt_hf_read_vocab(const bt_hf_t *hf, bt_hf_vocab_t *v);

/** tokenizer_normal.c: the normalizers, as texts of
 *  baton.tokenizer.normalizers, and the table of replacements. */
BT_MUST_CHECK bt_status_t bt_hf_read_normalizers(bt_hf_t *hf, bt_hf_vocab_t *v);

/** tokenizer_pre.c: the pre-tokenizers, as texts of baton.tokenizer.splits and
 *  the name that GGUF has for them, if any. Behind the normalizers. */
BT_MUST_CHECK bt_status_t bt_hf_read_pretokenizer(bt_hf_t *hf,
                                                  bt_hf_vocab_t *v);
/** Is there a ByteLevel among the pre-tokenizers? */
bool bt_hf_has_bytes(const bt_hf_vocab_t *v);

/** tokenizer_decoder.c: what the decoder does with tokens; most of it follows
 *  from the rest, so it is held against that. Behind the others. */
BT_MUST_CHECK bt_status_t bt_hf_read_decoder(bt_hf_t *hf, bt_hf_vocab_t *v);

/** tokenizer_ends.c: BOS and EOS, as the post-processors have them. */
BT_MUST_CHECK bt_status_t bt_hf_read_ends(bt_hf_t *hf, bt_hf_vocab_t *v);

/** Merges of BPE, but for those that would make a special token. */
BT_MUST_CHECK bt_status_t bt_hf_put_merges(bt_hf_t *hf,
                                           const bt_hf_vocab_t *vocab);
/** Scores from merges, of vocabularies that were SentencePiece's.
 *  @param [out] same_p  whether merging by the best score is then the same as
 *                       by the first merge */
BT_MUST_CHECK bt_status_t bt_hf_score_merges(const bt_hf_t *hf,
                                             bt_hf_vocab_t *vocab,
                                             bool *same_p);

/** The vocabulary of a tokenizer.model, BPE or Unigram.
 *  @retval BT_ERR_UNSUPPORTED  A model of another kind, or settings that are
 *                              not known. */
BT_MUST_CHECK bt_status_t bt_hf_read_sentencepiece(bt_hf_t *hf,
                                                   const uint8_t *bytes,
                                                   size_t n,
                                                   bt_hf_vocab_t *vocab);

#endif
