/* SPDX-License-Identifier: Apache-2.0 */
/** @file pretok_names.h
 *
 * What the names that GGUF files give in tokenizer.ggml.pre stand for.
 *
 * Threads: constant tables.
 * Source:  the tokenizer.json of the families, as far as their patterns are
 *          published; else what llama.cpp does for the name. docs/TOKENIZER.md
 */
#ifndef BT_INFERENCE_TOKENIZER_PRETOK_NAMES_H
#define BT_INFERENCE_TOKENIZER_PRETOK_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "inference/tokenizer/normal.h"
#include "inference/tokenizer/pretok.h"
#include "inference/tokenizer/splits.h"

/** Where words end. */
typedef struct bt_pretok_rule {
    const char *name;
    bt_pretok_t scanner;      /**< BT_PRETOK_SPLITS: none written for it */
    const bt_split_t *splits; /**< what it is defined as */
    size_t n_splits;
} bt_pretok_rule_t;

typedef struct bt_pretok_name {
    const char *name;
    const bt_pretok_rule_t *rule; /**< NULL with plain_text: nothing is cut */
    bool ignore_merges; /**< a whole word in the vocabulary is a token */
    bool add_bos;       /**< where the file does not say */
    bool plain_text;    /**< tokens are text with U+2581 for spaces */
    bool by_id;         /**< without a list of merges ids are their ranks */
    bt_normal_form_t form;
} bt_pretok_name_t;

/** @return NULL: not known */
const bt_pretok_name_t *bt_pretok_find(const char *name, size_t bytes);

/** All, for tests and messages; ends with NULL. */
const bt_pretok_name_t *bt_pretok_name_at(size_t i);

#endif
