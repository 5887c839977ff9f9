/* SPDX-License-Identifier: Apache-2.0 */
/** @file progress.h
 *
 * Saves the progress of a comparison in a file, so that the same command
 * continues an interrupted run. The file is a line of text in the user's cache,
 * named after the comparison, rewritten after each window and removed at the
 * end:
 *
 *     $XDG_CACHE_HOME/baton/accuracy-KEY    (~/.cache where that is not set)
 *     baton-accuracy 1 KEY AT N NLL-A NLL-B KL KL-MAX KL^2 LOST^2 SAME-TOP
 *
 * Sums are hexadecimal floats, so that a continued run ends with the numbers of
 * an uninterrupted one.
 */
#ifndef BT_ACCURACY_PROGRESS_H
#define BT_ACCURACY_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "accuracy/score.h"
#include "common/base/hash.h"

#define BT_PROGRESS_PATH_BYTES 4096u

typedef struct bt_progress {
    char path[BT_PROGRESS_PATH_BYTES]; /**< "": no cache folder, progress is not
                                            saved */
    char key[36];
} bt_progress_t;

/** Returns the progress file of a run, with a key made from all inputs that
 *  affect its numbers.
 *  @param tokens  hash of the text's tokens */
bt_progress_t bt_progress_of(bt_hash128_t a, bt_hash128_t b,
                             bt_hash128_t tokens, uint32_t window);

/** Reads saved progress.
 *  @param [out] score  unchanged if none is saved
 *  @return tokens of the text that are done, a whole number of windows and
 *  below @a n_tokens; 0: none */
uint64_t bt_progress_read(const bt_progress_t *progress, uint64_t n_tokens,
                          uint32_t window, bt_score_t *score);
/** Writes the progress. A file that cannot be written is left unchanged. */
void bt_progress_write(const bt_progress_t *progress, uint64_t at,
                       const bt_score_t *score);
void bt_progress_remove(const bt_progress_t *progress);

#endif
