/* SPDX-License-Identifier: Apache-2.0 */
/** @file tokenizer.h
 *
 * Tokenizer: text to token ids and back, from the vocabulary inside a GGUF
 * file: byte-level BPE (tokenizer.ggml.model "gpt2"), BPE over characters
 * ("llama", or "gpt2" with keys that say so) and Unigram ("t5").
 *
 * Threads: any number of users, each with its own bt_detok_t. Words seen in
 *         calls are kept in a few internal caches, of which each call owns one
 *         or none; no call waits, and no result depends on the caches.
 *         docs/TOKENIZER.md
 */
#ifndef BT_INFERENCE_TOKENIZER_TOKENIZER_H
#define BT_INFERENCE_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/gguf/gguf.h"

typedef struct bt_tokenizer bt_tokenizer_t;

/** Loads the tokenizer of a file.
 *  @param [out] why  On failure the reason, for the user.
 *  @retval BT_ERR_UNSUPPORTED  tokenizer model or pre-tokenizer, named
 *  @retval BT_ERR_BAD_FILE, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_tokenizer_load(const bt_gguf_t *gguf, char *why,
                                            size_t why_bytes,
                                            bt_tokenizer_t **tok_p);
void bt_tokenizer_destroy(bt_tokenizer_t *tok);

/** Growing array of ids. Zero-initialise; free ids with bt_free(). */
typedef struct bt_token_vec {
    uint32_t *ids;
    size_t n;
    size_t cap;
} bt_token_vec_t;

/** Adds the BOS and EOS that the file asks for; no second BOS when the text
 *  begins with one that BT_TOK_PARSE_SPECIAL reads. */
#define BT_TOK_ADD_BOS       1u
#define BT_TOK_PARSE_SPECIAL 2u /**< "<|im_end|>" in the text is one token */

/**
 * Appends the tokens of @a text. User-defined tokens (type 4) are matched with
 * and without BT_TOK_PARSE_SPECIAL. Cost O(n log n) for one long word, else
 * linear; a text that must exceed max_tokens is refused early. The text is
 * normalized as the file's tokenizer asks.
 *
 * @param [in] max_tokens  Most ids in @a out afterwards.
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  Not UTF-8.
 * @retval BT_ERR_TOO_LARGE      More than max_tokens, or 1 GiB of text.
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_CANCELED       The thread's task is canceled
 *         (common/base/task.h). On any failure out->n is unchanged.
 */
BT_MUST_CHECK bt_status_t bt_tokenize(const bt_tokenizer_t *tok,
                                      const char *text, size_t bytes,
                                      unsigned flags, size_t max_tokens,
                                      bt_token_vec_t *out);

/** Ranges of a text that a client wrote, ascending and disjoint: special
 *  tokens spelled there are plain text. Zero-initialise; free with
 *  bt_quotes_fini(). */
typedef struct bt_quote {
    size_t begin, end; /**< bytes */
} bt_quote_t;

typedef struct bt_quotes {
    bt_quote_t *list; /**< owned */
    size_t n, cap;
} bt_quotes_t;

/** Appends the range from @a begin to @a end, behind all others; an empty range
 *  is ignored.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_quotes_add(bt_quotes_t *quotes, size_t begin,
                                        size_t end);
/** Truncates the quotes to a text that ends at @a end. */
void bt_quotes_cut(bt_quotes_t *quotes, size_t end);
void bt_quotes_fini(bt_quotes_t *quotes);

/** Tokenizes as bt_tokenize() with BT_TOK_PARSE_SPECIAL, except that a special
 *  token with a byte in a quote is plain text: a control token, or a
 *  user-defined one that is spelled like one ("<|name|>"). The text between two
 *  tokens is tokenized as one, whatever parts are quoted. */
BT_MUST_CHECK bt_status_t bt_tokenize_quoting(const bt_tokenizer_t *tok,
                                              const char *text, size_t bytes,
                                              const bt_quotes_t *quotes,
                                              size_t max_tokens,
                                              bt_token_vec_t *out);

/** Returns bt_gguf_n_vocab(): no text becomes an id beyond, and no model draws
 *  one. */
uint32_t bt_tokenizer_n_vocab(const bt_tokenizer_t *tok);
#define BT_TOKEN_NONE UINT32_MAX
/** Returns all ids that end a turn (eos, eot, "<|im_end|>" …).
 *  @return number of ids written, at most cap */
uint32_t bt_tokenizer_end_ids(const bt_tokenizer_t *tok, uint32_t *ids,
                              uint32_t cap);

/** Returns the bytes that a token stands for, whether or not they are a
 *  character; those of a special one are its spelling ("<|im_end|>").
 *  @param [out] is_special_p  the token gives no text
 *  @return NULL, and *n_p 0: not in the vocabulary */
const uint8_t *bt_token_bytes(const bt_tokenizer_t *tok, uint32_t id,
                              size_t *n_p, bool *is_special_p);
/** Returns the token that a text begins with, or BT_TOKEN_NONE. */
uint32_t bt_tokenizer_bos(const bt_tokenizer_t *tok);

/** Token ids, ascending. */
typedef struct bt_token_set {
    uint32_t *ids; /**< owned */
    uint32_t n;
} bt_token_set_t;

/** Finds all special tokens whose spelling is one of the texts, ignoring white
 *  space around it. O(vocabulary × texts).
 *  @param [out] set_p  for bt_token_set_fini()
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_tokenizer_find_special(const bt_tokenizer_t *tok,
                                                    const char *const *texts,
                                                    uint32_t n_texts,
                                                    bt_token_set_t *set_p);
void bt_token_set_fini(bt_token_set_t *set);

/** Incremental detokenizer of one sequence: never emits half a UTF-8 character;
 *  bytes that never become one come out as U+FFFD: for byte-level tokens as
 *  many as Python's decode(errors="replace") gives for the whole, for byte
 *  tokens one each, as in SentencePiece. Special tokens give no text, or their
 *  spelling. */
typedef struct bt_detok {
    const bt_tokenizer_t *tok;
    uint8_t pending[4];
    uint8_t n_pending;
    /** SentencePiece: the first space is still to be dropped, which tokenizing
     *  adds in front of a text. For text that continues a line, clear it after
     *  bt_detok_init(). */
    bool at_start;
    bool shows_special; /**< false after bt_detok_init() */
    /** Special tokens that are shown in any case. Borrowed; NULL, as after
     *  bt_detok_init(): none. */
    const bt_token_set_t *shown;
} bt_detok_t;

void bt_detok_init(bt_detok_t *detok, const bt_tokenizer_t *tok);
/** Appends the text that @a id completes; an id outside the vocabulary gives
 *  none. Errors stick to @a out. */
void bt_detok_push(bt_detok_t *detok, uint32_t id, bt_strbuf_t *out);
/** Appends pending bytes as U+FFFD, at the end of the sequence. */
void bt_detok_finish(bt_detok_t *detok, bt_strbuf_t *out);

#endif
