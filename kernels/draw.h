/* SPDX-License-Identifier: Apache-2.0 */
/** @file draw.h
 *
 * What a back end is told of a draw, the operation draw() of kernels.h: edits
 * of a row of logits, then one token of it. The specification of a draw, which
 * the host's sampler (inference/model/sampler.h) keeps to as well.
 *
 * *Edits.* Of each token that has one: the bias is added, then, if it was seen,
 * the repetition penalty (a positive logit is divided by it, another one
 * multiplied), then, if it was generated n > 0 times, presence + frequency * n
 * is subtracted; a banned one becomes -infinity. All in float, in this order.
 *
 * *Candidates* are the tokens whose logits are numbers above -infinity, ordered
 * by (logit descending, id ascending). The best one is drawn with temperature 0
 * or top_k 1, and where the best logit is not finite; id 0 where there is no
 * candidate.
 *
 * *Weights* are whole numbers, so that their sums do not depend on an order:
 *
 *     exp((logit - best) / temperature) * 2^39, to nearest, ties to even
 *
 * in double, as kernels/exp_negative.h computes it. 2^24 tokens, more than any
 * model has, are 2^63 together. What is 27.7 temperatures below the best is 0
 * and never drawn.
 *
 * *What is kept.* min_p > 0: weights of at least min_p * 2^39, cut off. top_k >
 * 0: the first k candidates. top_p < 1: of what is left, in the order, as many
 * as reach top_p * their sum in double, cut off, at least 1.
 *
 * *The draw.* Of what is kept, by ascending id (any fixed order has the same
 * distribution, and this one needs no sorting), the first at which the running
 * sum is more than floor(u * sum), u the uniform number of 53 bits that Philox
 * 4x32-10 makes of (seed, position).
 *
 * 32-bit words throughout: they are uploaded as they are (batch.h).
 */
#ifndef BT_KERNELS_DRAW_H
#define BT_KERNELS_DRAW_H

#include <stdint.h>

/** One token to be drawn. */
typedef struct bt_draw {
    uint32_t logit_row;  /**< which of the batch's logit rows */
    uint32_t first_edit; /**< in the batch's edits */
    uint32_t n_edits;    /**< of different ids */
    uint32_t top_k;      /**< 0: all */
    float temperature;   /**< 0: the best */
    float top_p;         /**< 1: all */
    float min_p;         /**< 0: all */
    float repetition_penalty;
    float presence_penalty;
    float frequency_penalty;
    uint32_t position; /**< the generator's counter */
    uint32_t seed_low;
    uint32_t seed_high;
} bt_draw_t;

#define BT_EDIT_BIAS   (1u << 31) /**< there is a bias */
#define BT_EDIT_BAN    (1u << 30)
#define BT_EDIT_SEEN   (1u << 29) /**< in prompt or answer */
#define BT_EDIT_N_MASK (BT_EDIT_SEEN - 1u)

/** What is done to a token's logit before the draw. */
typedef struct bt_draw_edit {
    uint32_t id;   /**< below the vocabulary's size */
    uint32_t what; /**< BT_EDIT_*, and how often it was generated */
    float bias;
    float was; /**< the back end's own: any */
} bt_draw_edit_t;

#define BT_SCORING_NO_DRAW UINT32_MAX /**< bt_scoring_t.draw: it is id */

/** One token to be scored: of which the unedited row says how likely it is. */
typedef struct bt_scoring {
    uint32_t logit_row;
    uint32_t draw; /**< which of the batch's draws it is the token of, or
                        BT_SCORING_NO_DRAW */
    uint32_t id;
} bt_scoring_t;

/** What log p = logit - (best + log(sum)) takes (inference/model/logprob.h). */
typedef struct bt_scored {
    float best;  /**< of the row; NaN where the first is, other NaNs aside */
    float logit; /**< of the token */
    double sum;  /**< of exp(logits - best), in the order of score() */
} bt_scored_t;

#endif
