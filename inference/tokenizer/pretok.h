/* SPDX-License-Identifier: Apache-2.0 */
/** @file pretok.h
 *
 * Pre-tokenizers, which split a text into words before merging; merges never
 * cross a split. Four rules, those of most files, have scanners written by hand
 * beside their patterns (pretok.c).
 *
 * Threads: pure functions.
 */
#ifndef BT_INFERENCE_TOKENIZER_PRETOK_H
#define BT_INFERENCE_TOKENIZER_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "inference/tokenizer/normal.h"
#include "inference/tokenizer/regex.h"

/*
 * Pre-tokenizer made of steps: each splits every piece of the previous step,
 * and reads nothing outside of the piece.
 *
 *     text ─→ step 0 ─→ pieces ─→ step 1 ─→ pieces … ─→ words
 *
 * The steps are those of the Hugging Face library ("Split" and those that can
 * be expressed as one: "Digits", "Punctuation", the pattern of "ByteLevel").
 * For the syntax of patterns see regex.h.
 *
 * Threads: constant once made; each text has its own bt_splits_scan_t.
 */

#define BT_SPLITS_MAX 8u

/** Treatment of the text that the pattern matches. */
typedef enum bt_split_keep {
    BT_SPLIT_ISOLATED,      /**< a piece of its own */
    BT_SPLIT_REMOVED,       /**< left out */
    BT_SPLIT_WITH_PREVIOUS, /**< the end of the piece before it */
    BT_SPLIT_WITH_NEXT,     /**< the beginning of the piece behind it */
    BT_SPLIT_CONTIGUOUS,    /**< one piece for consecutive matches */
    BT_SPLIT_N_KEEPS,
} bt_split_keep_t;

typedef enum bt_split_kind {
    BT_SPLIT_PATTERN,
    BT_SPLIT_BYTES, /**< pattern over bytes, each read as its character in
                         byte-level vocabularies */
    /** Runs of \d in groups of three from the right, each a piece, where no \w
     *  follows: \d{1,3}(?=(?:\d{3})*\b). */
    BT_SPLIT_THREES,
    /** Split before three, six … digits that no digit follows:
     *  (?=(\d{3})+(?!\d)). */
    BT_SPLIT_BEFORE_THREES,
} bt_split_kind_t;

typedef struct bt_split {
    bt_split_kind_t kind;
    const char *pattern; /**< NULL for the last two kinds */
    bt_split_keep_t keep;
    bool invert; /**< the text between matches counts as the matches */
} bt_split_t;

typedef struct bt_splits bt_splits_t;

/** Compiles the steps.
 *  @param [in] n  1 … BT_SPLITS_MAX
 *  @retval BT_ERR_UNSUPPORTED, BT_ERR_BAD_FILE, BT_ERR_TOO_LARGE,
 *          BT_ERR_NO_MEMORY  as bt_regex_compile(); why is set */
BT_MUST_CHECK bt_status_t bt_splits_create(const bt_split_t *list, size_t n,
                                           char *why, size_t why_bytes,
                                           bt_splits_t **splits_p);
void bt_splits_destroy(bt_splits_t *splits);

/** Progress of one step within its piece. */
typedef struct bt_split_level {
    size_t at, end;
    size_t match, match_end; /**< next match; none: both are end */
    size_t digits_end;       /**< end of the run of digits whose groups are
                                  being split */
    bt_regex_runs_t runs;
} bt_split_level_t;

typedef struct bt_splits_scan {
    const bt_splits_t *splits;
    const uint8_t *text;
    bt_split_level_t levels[BT_SPLITS_MAX];
} bt_splits_scan_t;

void bt_splits_start(bt_splits_scan_t *scan, const bt_splits_t *splits,
                     const uint8_t *text, size_t bytes);

/** Returns the next word: text[*from_p … *to_p - 1], not empty. Cost over a
 *  text: see regex.h, times the steps.
 *  @return false: there is none, and the outputs are unchanged */
bool bt_splits_next(bt_splits_scan_t *scan, size_t *from_p, size_t *to_p);

typedef enum bt_pretok {
    BT_PRETOK_GPT2,
    BT_PRETOK_SMOLLM,
    BT_PRETOK_LLAMA_BPE,
    BT_PRETOK_QWEN2,
    BT_PRETOK_SPLITS, /**< no scanner: patterns */
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

/** Names that mean the same. */
typedef struct bt_pretok_names {
    const char *names[16]; /**< ends with NULL */
    bt_pretok_rule_t rule; /**< no splits with plain_text: texts are not
                                split */
    bool ignore_merges;    /**< a whole word in the vocabulary is a token */
    bool add_bos;          /**< default where the file does not say */
    bool plain_text;       /**< tokens are text with U+2581 for spaces */
    bool by_id;            /**< without a list of merges, ids are their ranks */
    bt_normal_form_t form;
} bt_pretok_names_t;

/** Finds a name. @return NULL: not known */
const bt_pretok_names_t *bt_pretok_find(const char *name, size_t bytes);

/** Returns entry i of all, for tests; NULL at the end. */
const bt_pretok_names_t *bt_pretok_names_at(size_t i);

#endif
