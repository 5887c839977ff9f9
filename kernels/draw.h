/* SPDX-License-Identifier: Apache-2.0 */
/** @file draw.h
 *
 * Parameters of a draw, the sampling operation draw() of kernels.h: edits of a
 * row of logits, then one sampled token. This is the specification of sampling,
 * also for the host's sampler (inference/model/sampler.h).
 *
 * *Edits.* For each token with an edit: the bias is added; then, if the token
 * was seen, the repetition penalty applies (a positive logit is divided by it,
 * any other multiplied); then, if it was generated n > 0 times, presence +
 * frequency * n is subtracted; a banned token becomes -infinity. All in float,
 * in this order.
 *
 * *Candidates* are the tokens whose logits are numbers above -infinity, ordered
 * by (logit descending, id ascending). The best one is chosen with temperature
 * 0 or top_k 1, and where the best logit is not finite; id 0 if there is no
 * candidate.
 *
 * *Weights* are integers, so that their sums do not depend on the order:
 *
 *     exp((logit - best) / temperature) * 2^39, to nearest, ties to even
 *
 * in double, as kernels/exp_negative.h computes it. The weights of 2^24 tokens,
 * more than any model has, add up to at most 2^63. A candidate 27.7
 * temperatures below the best has weight 0 and is never drawn.
 *
 * *Filters.* min_p > 0 keeps weights of at least min_p * 2^39, rounded down.
 * top_k > 0 keeps the first k candidates. top_p < 1 keeps, of the rest in
 * order, as many as reach top_p * their sum in double, rounded down, at least
 * 1.
 *
 * *The draw.* Among the kept candidates by ascending id (any fixed order has
 * the same distribution, and this one needs no sorting), the first at which the
 * running sum exceeds floor(u * sum), u the uniform number of 53 bits that
 * Philox 4x32-10 generates from (seed, position).
 *
 * All members are 32-bit words, as they are uploaded unchanged (batch.h).
 */
#ifndef BT_KERNELS_DRAW_H
#define BT_KERNELS_DRAW_H

#include <stdint.h>

/** One token to be drawn. */
typedef struct bt_draw {
    uint32_t logit_row;  /**< index into the batch's logit rows */
    uint32_t first_edit; /**< index into the batch's edits */
    uint32_t n_edits;    /**< edits, all of different ids */
    uint32_t top_k;      /**< 0: all */
    float temperature;   /**< 0: greedy */
    float top_p;         /**< 1: all */
    float min_p;         /**< 0: all */
    float repetition_penalty;
    float presence_penalty;
    float frequency_penalty;
    uint32_t position; /**< counter of the random number generator */
    uint32_t seed_low;
    uint32_t seed_high;
} bt_draw_t;

#define BT_EDIT_BIAS   (1u << 31) /**< has a bias */
#define BT_EDIT_BAN    (1u << 30)
#define BT_EDIT_SEEN   (1u << 29) /**< occurs in prompt or answer */
#define BT_EDIT_N_MASK (BT_EDIT_SEEN - 1u)

/** Edit of a token's logit before the draw. */
typedef struct bt_draw_edit {
    uint32_t id;   /**< token id, below the vocabulary size */
    uint32_t what; /**< BT_EDIT_* and the number of times generated */
    float bias;
    float was; /**< reserved for the back end: any value */
} bt_draw_edit_t;

#define BT_SCORING_NO_DRAW UINT32_MAX /**< bt_scoring_t.draw: use id */

/** One token whose log probability in the unedited row is to be computed. */
typedef struct bt_scoring {
    uint32_t logit_row;
    uint32_t draw; /**< index into the batch's draws of the token to score, or
                        BT_SCORING_NO_DRAW */
    uint32_t id;
} bt_scoring_t;

/** Inputs of log p = logit - (best + log(sum)) (inference/model/logits.h). */
typedef struct bt_scored {
    float best;  /**< best logit of the row; NaN where the first logit is NaN,
                      other NaNs are ignored */
    float logit; /**< logit of the token */
    double sum;  /**< sum of exp(logits - best), in the order of score() */
} bt_scored_t;

#endif
