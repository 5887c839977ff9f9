/* SPDX-License-Identifier: Apache-2.0 */
/** @file score.h
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

#include <stdint.h>

/** Sums over positions. Zero-initialise before use. */
typedef struct bt_score {
    uint64_t n;    /**< positions */
    double nll[2]; /**< sums of -log p, of either model */
    double kl;
    double kl_max;
    double kl_squares;   /**< sum of squares of KL */
    double lost_squares; /**< sum of squares of the second model's loss */
    uint64_t same_top;
} bt_score_t;

/** Adds a position. @param a, b  (n_vocab) logits of the two models
 *  @param token  next token of the text, below n_vocab */
void bt_score_add(bt_score_t *score, const float *a, const float *b,
                  uint32_t n_vocab, uint32_t token);

double bt_score_perplexity(const bt_score_t *score, uint32_t model);

/** Mean over positions and its standard error, which is 0 for fewer than
 *  two. */
typedef struct bt_score_mean {
    double mean;
    double error;
} bt_score_mean_t;

bt_score_mean_t bt_score_kl(const bt_score_t *score);
bt_score_mean_t bt_score_lost(const bt_score_t *score);

#endif
