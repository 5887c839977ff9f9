/* SPDX-License-Identifier: Apache-2.0 */
/** @file score.h
 *
 * How well logits foretell a text, and how far two models' are apart, position
 * by position; natural logarithms.
 *
 *     perplexity  exp of the mean of -log p(the token that comes)
 *     lost        mean of what -log p of the second model is more
 *     KL          sum over tokens of p log(p / q), p of the first model, q of
 *                 the second; its mean over positions
 *     top-1       part of the positions where both have the same likeliest
 *                 token
 *
 * Means have a standard error, as of independent positions: another text of
 * this kind and length gives a mean about so far away.
 */
#ifndef BT_ACCURACY_SCORE_H
#define BT_ACCURACY_SCORE_H

#include <stdint.h>

/** Zero-initialise. */
typedef struct bt_score {
    uint64_t n;    /**< positions */
    double nll[2]; /**< sums, of either model */
    double kl;
    double kl_max;
    double kl_squares;   /**< sum, of KL */
    double lost_squares; /**< sum, of what the second model lost */
    uint64_t same_top;
} bt_score_t;

/** A position. @param a, b  (n_vocab) logits of the two models
 *  @param token  that comes, below n_vocab */
void bt_score_add(bt_score_t *score, const float *a, const float *b,
                  uint32_t n_vocab, uint32_t token);

double bt_score_perplexity(const bt_score_t *score, uint32_t model);

/** A mean over positions, and its standard error; 0 of fewer than two. */
typedef struct bt_score_mean {
    double mean;
    double error;
} bt_score_mean_t;

bt_score_mean_t bt_score_kl(const bt_score_t *score);
bt_score_mean_t bt_score_lost(const bt_score_t *score);

#endif
