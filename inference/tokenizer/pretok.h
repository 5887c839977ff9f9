/* SPDX-License-Identifier: Apache-2.0 */
/** @file pretok.h
 *
 * Pre-tokenizers, which split a text into words before merging. Each is the
 * hand-written scanner of one regular expression; merges never cross a split.
 *
 *     gpt-2      '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+|
 *                 ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *     smollm     each \p{N} alone, then gpt-2 on every piece between
 *     llama-bpe  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|
 *                \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
 *                \s+(?!\S)|\s+
 *     qwen2      llama-bpe with \p{N} for \p{N}{1,3}
 *
 * Threads: pure functions.
 */
#ifndef BT_INFERENCE_TOKENIZER_PRETOK_H
#define BT_INFERENCE_TOKENIZER_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inference/tokenizer/normal.h"
#include "inference/tokenizer/splits.h"

typedef enum bt_pretok {
    BT_PRETOK_GPT2,
    BT_PRETOK_SMOLLM,
    BT_PRETOK_LLAMA_BPE,
    BT_PRETOK_QWEN2,
    BT_PRETOK_SPLITS, /**< no scanner: see splits.h */
} bt_pretok_t;

/**
 * Returns the length of the first word. Cost: over a whole text, linear in its
 * bytes.
 *
 * @param [in] text   Valid UTF-8.
 * @param [in] bytes  At least 1.
 * @return bytes of the word, 1 .. @a bytes
 */
size_t bt_pretok_next(bt_pretok_t pretok, const uint8_t *text, size_t bytes);

/*
 * Pre-tokenizer of each name that GGUF files have in tokenizer.ggml.pre.
 *
 * Threads: constant tables.
 * Source: the tokenizer.json of the families, as far as their patterns are
 *         published; else llama.cpp's behavior for the name. docs/TOKENIZER.md
 */

/** Rule that splits a text into words. */
typedef struct bt_pretok_rule {
    const char *name;
    bt_pretok_t scanner;      /**< BT_PRETOK_SPLITS: no hand-written scanner */
    const bt_split_t *splits; /**< definition of the rule */
    size_t n_splits;
} bt_pretok_rule_t;

typedef struct bt_pretok_name {
    const char *name;
    const bt_pretok_rule_t *rule; /**< NULL with plain_text: texts are not
                                       split */
    bool ignore_merges; /**< a whole word in the vocabulary is a token */
    bool add_bos;       /**< default where the file does not say */
    bool plain_text;    /**< tokens are text with U+2581 for spaces */
    bool by_id;         /**< without a list of merges, ids are their ranks */
    bt_normal_form_t form;
} bt_pretok_name_t;

/** Finds a name. @return NULL: not known */
const bt_pretok_name_t *bt_pretok_find(const char *name, size_t bytes);

/** Returns entry i of all names, for tests and messages; NULL at the end. */
const bt_pretok_name_t *bt_pretok_name_at(size_t i);

#endif
