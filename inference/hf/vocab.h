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

typedef struct bt_hf_piece {
    const char *text; /**< NULL: no token has this id */
    uint32_t len;
    uint8_t type;
    float score;
} bt_hf_piece_t;

typedef struct bt_hf_vocab {
    const bt_json_doc_t *doc;
    const bt_json_node_t *root;  /**< of tokenizer.json */
    const bt_json_node_t *model; /**< its "model" */
    bt_hf_piece_t *pieces;       /**< by id */
    uint32_t n;
    uint32_t *table; /**< ids + 1 by text, open addressing; 0: free */
    uint32_t mask;
    bool spm;       /**< spaces are U+2581, bytes have tokens <0x00> … */
    bool add_space; /**< before a text; of spm alone */
    bool add_bos;
    bool add_eos;
    bool has_ends; /**< add_bos and add_eos are said */
} bt_hf_vocab_t;

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

/** Name of the pre-tokenizer of byte-level BPE, from tokenizer.json.
 *  @retval BT_ERR_UNSUPPORTED  None that has a name (what it is, is said). */
BT_MUST_CHECK bt_status_t bt_hf_put_pretokenizer(bt_hf_t *hf,
                                                 const bt_hf_vocab_t *vocab);

/** Merges of byte-level BPE, as they stand. */
BT_MUST_CHECK bt_status_t bt_hf_put_merges(bt_hf_t *hf,
                                           const bt_hf_vocab_t *vocab);
/** Scores from merges, of vocabularies that were SentencePiece's: merging by
 *  the best score is then the same as by the first merge, which is checked. */
BT_MUST_CHECK bt_status_t bt_hf_score_merges(const bt_hf_t *hf,
                                             bt_hf_vocab_t *vocab);

/** The vocabulary of a tokenizer.model.
 *  @retval BT_ERR_UNSUPPORTED  A model of another kind than BPE, or settings
 *                              that are not known. */
BT_MUST_CHECK bt_status_t bt_hf_read_sentencepiece(bt_hf_t *hf,
                                                   const uint8_t *bytes,
                                                   size_t n,
                                                   bt_hf_vocab_t *vocab);

#endif
