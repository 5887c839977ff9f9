/* SPDX-License-Identifier: Apache-2.0 */
/** @file pretok_names.h
 *
 * Pre-tokenizer of each name that GGUF files have in tokenizer.ggml.pre.
 *
 * Threads: constant tables.
 * Source: the tokenizer.json of the families, as far as their patterns are
 *         published; else llama.cpp's behavior for the name. docs/TOKENIZER.md
 */
#ifndef BT_INFERENCE_TOKENIZER_PRETOK_NAMES_H
#define BT_INFERENCE_TOKENIZER_PRETOK_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "inference/tokenizer/normal.h"
#include "inference/tokenizer/pretok.h"
#include "inference/tokenizer/splits.h"

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
