/* SPDX-License-Identifier: Apache-2.0 */
/** @file progress.h
 *
 * How far a comparison came, in a file: a run that ended early is continued by
 * the same command. It is a line of text in the user's cache, named after what
 * is compared, written anew after each window and gone when all is done:
 *
 *     $XDG_CACHE_HOME/baton/accuracy-KEY    (~/.cache where that is not set)
 *     baton-accuracy 1 KEY AT N NLL-A NLL-B KL KL-MAX KL^2 LOST^2 SAME-TOP
 *
 * Sums are hexadecimal floats, so that a continued run ends in the same
 * numbers as one in one go.
 */
#ifndef BT_ACCURACY_PROGRESS_H
#define BT_ACCURACY_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "accuracy/score.h"
#include "common/base/hash.h"

#define BT_PROGRESS_PATH_BYTES 4096u

typedef struct bt_progress {
    char path[BT_PROGRESS_PATH_BYTES]; /**< "": no folder, nothing is kept */
    char key[36];
} bt_progress_t;

/** What a run is of: everything that its numbers hang on.
 *  @param tokens  hash of the text's */
bt_progress_t bt_progress_of(bt_hash128_t a, bt_hash128_t b,
                             bt_hash128_t tokens, uint32_t window);

/** @param [out] score  untouched where nothing is kept
 *  @return tokens of the text that are done, a whole number of windows and
 *          below @a n_tokens; 0: none */
uint64_t bt_progress_read(const bt_progress_t *progress, uint64_t n_tokens,
                          uint32_t window, bt_score_t *score);
/** A file that cannot be written is left as it was. */
void bt_progress_write(const bt_progress_t *progress, uint64_t at,
                       const bt_score_t *score);
void bt_progress_remove(const bt_progress_t *progress);

#endif
