/* SPDX-License-Identifier: Apache-2.0 */
/** @file splits.h
 *
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
#ifndef BT_INFERENCE_TOKENIZER_SPLITS_H
#define BT_INFERENCE_TOKENIZER_SPLITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "inference/tokenizer/regex.h"

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

#endif
