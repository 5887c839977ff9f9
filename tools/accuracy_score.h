/* SPDX-License-Identifier: Apache-2.0 */
/** @file accuracy_score.h
 *
 * Measures how well logits predict a text, and how far two models' logits are
 * apart, position by position; natural logarithms.
 *
 *     perplexity  exp of the mean of -log p(next token of the text)
 *     lost        mean increase of -log p with the second model
 *     KL          sum over tokens of p log(p / q), p of the first model, q of
 *                 the second; its mean over positions
 *     top-1       fraction of positions where both models have the same most
 *                 likely token
 *
 * Means have a standard error that assumes independent positions: another text
 * of this kind and length gives a mean about this far away.
 */
#ifndef BT_ACCURACY_SCORE_H
#define BT_ACCURACY_SCORE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"

/** Sums over positions. Zero-initialise before use. */
typedef struct bt_accuracy {
    uint64_t n;    /**< positions */
    double nll[2]; /**< sums of -log p, of either model */
    double kl;
    double kl_max;
    double kl_squares;   /**< sum of squares of KL */
    double lost_squares; /**< sum of squares of the second model's loss */
    uint64_t same_top;
} bt_accuracy_t;

/** Adds a position. @param a, b  (n_vocab) logits of the two models
 *  @param token  next token of the text, below n_vocab */
void bt_accuracy_add(bt_accuracy_t *score, const float *a, const float *b,
                     uint32_t n_vocab, uint32_t token);

double bt_accuracy_perplexity(const bt_accuracy_t *score, uint32_t model);

/** Mean over positions and its standard error, which is 0 for fewer than
 *  two. */
typedef struct bt_accuracy_mean {
    double mean;
    double error;
} bt_accuracy_mean_t;

bt_accuracy_mean_t bt_accuracy_kl(const bt_accuracy_t *score);
bt_accuracy_mean_t bt_accuracy_lost(const bt_accuracy_t *score);

/*
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
                          uint32_t window, bt_accuracy_t *score);
/** Writes the progress. A file that cannot be written is left unchanged. */
void bt_progress_write(const bt_progress_t *progress, uint64_t at,
                       const bt_accuracy_t *score);
void bt_progress_remove(const bt_progress_t *progress);

#endif
