/* SPDX-License-Identifier: Apache-2.0 */
/** @file draw.h
 *
 * Sampling of a token: random numbers, formulas, and what a draw is.
 */
#ifndef BT_KERNELS_DRAW_H
#define BT_KERNELS_DRAW_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/half.h"

/*
 * Philox 4x32-10: a counter-based generator, a keyed bijection of 128 bits. C
 * and CUDA C++ alike.
 * Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
 *         1, 2, 3", SC 2011, section 4.3.
 */

#define BT_PHILOX_ROUNDS 10
#define BT_PHILOX_MUL_0  0xD2511F53u
#define BT_PHILOX_MUL_1  0xCD9E8D57u
#define BT_PHILOX_WEYL_0 0x9E3779B9u /* golden ratio */
#define BT_PHILOX_WEYL_1 0xBB67AE85u /* sqrt(3) - 1 */

/** Replaces @a ctr by its image under @a key. */
BT_FORMULA void bt_philox4x32_10(const uint32_t key[2], uint32_t ctr[4])
{
    uint32_t k0 = key[0];
    uint32_t k1 = key[1];

    for (int round = 0; round < BT_PHILOX_ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)BT_PHILOX_MUL_0 * ctr[0];
        const uint64_t p1 = (uint64_t)BT_PHILOX_MUL_1 * ctr[2];

        ctr[0] = (uint32_t)(p1 >> 32) ^ ctr[1] ^ k0;
        ctr[1] = (uint32_t)p1;
        ctr[2] = (uint32_t)(p0 >> 32) ^ ctr[3] ^ k1;
        ctr[3] = (uint32_t)p0;
        k0 += BT_PHILOX_WEYL_0;
        k1 += BT_PHILOX_WEYL_1;
    }
}

/* exp() for sampling, and in float for log
 *  probabilities: all roundings are explicit, in C and CUDA C++ alike. */

/** Returns exp(x) for x <= 0. Replaces the C library's exp(), whose last bit
 *  depends on the machine's instructions: a sequence must draw the same token
 *  on any machine. Within 2 units in the last place; 0 below -700. Branch-free,
 *  so that it vectorizes. 0 for NaN.
 *  exp(x) = 2^n e^r, n = round(x / ln 2), |r| <= ln(2) / 2, e^r by its Taylor
 *  series to r^13 (remainder below 2^-57). */
BT_FORMULA double bt_exp_negative(double x)
{
    const double shift = 0x1.8p52; /* adding it rounds to an integer */
    const double clamped = (x > -700.0) ? x : -700.0;
    const double t = clamped * 0x1.71547652b82fep0 + shift; /* 1 / ln 2 */
    const double n = t - shift;
    /* ln 2 in two parts; the first has trailing zeros: n * it is exact. */
    const double r =
        (clamped - n * 0x1.62e42fefa0000p-1) - n * 0x1.cf79abc9e3b39p-40;
    double p = 1.0 / 6227020800.0;
    uint64_t bits;
    uint64_t scale_bits;
    double scale;

    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    /* The low bits of t hold n in two's complement. */
    memcpy(&bits, &t, sizeof(bits));
    scale_bits = ((bits + 1023u) << 52) & (0 - (uint64_t)(x > -700.0));
    memcpy(&scale, &scale_bits, sizeof(scale));
    return p * scale;
}

/** Returns exp(x) for x <= 0: 0 below -87 and for NaN, else within 3 units in
 *  the last place, by the series to r^7 (remainder below 2^-27). logits.c has
 *  a vectorised version. */
BT_FORMULA float bt_exp_negative_float(float x)
{
    const float shift = 0x1.8p23f;
    const float clamped = (x > -87.0f) ? x : 0.0f;
    const float t = clamped * 0x1.715476p0f + shift; /* 1 / ln 2 */
    const float n = t - shift;
    const float r = (clamped - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    float p = r * (1.0f / 5040.0f) + 1.0f / 720.0f;

    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return (x > -87.0f) ? p * bt_f32_from_bits((bt_f32_bits(t) + 127u) << 23)
                        : 0.0f;
}

/*
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
 * in double, as kernels/draw.h computes it. The weights of 2^24 tokens,
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

/* Arithmetic of draw.h, shared by all samplers: C and
 *  CUDA C++ alike. */

#define BT_DRAW_ONE 0x1p39 /**< weight of the best candidate */

/** Returns the integer weight of a candidate.
 *  @param [in] best  finite, and no less than the logit, which may be a NaN */
BT_FORMULA uint64_t bt_draw_weight(float logit, float best, double temperature)
{
    const double e =
        bt_exp_negative(((double)logit - (double)best) / temperature);
    const double rounded = e * BT_DRAW_ONE + 0x1p52; /* an integer */
    uint64_t bits;

    memcpy(&bits, &rounded, sizeof(bits));
    return bits - 0x4330000000000000u; /* of 0x1p52 */
}

/** Returns the least weight that min_p keeps. */
BT_FORMULA uint64_t bt_draw_least(float min_p)
{
    const uint64_t least = (uint64_t)((double)min_p * BT_DRAW_ONE);

    return (least == 0) ? 1 : least;
}

/** Returns the sum that the top_p prefix has to reach. */
BT_FORMULA uint64_t bt_draw_need(float top_p, uint64_t mass)
{
    const uint64_t need = (uint64_t)((double)top_p * (double)mass);

    return (need == 0) ? 1 : need;
}

/** Returns 53 random bits, in the highest bits.
 *  @param [in] stream  0: the draw's; others are independent of it */
BT_FORMULA uint64_t bt_draw_bits_of(uint64_t seed, uint64_t position,
                                    uint32_t stream)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t ctr[4] = {(uint32_t)position, (uint32_t)(position >> 32), stream,
                       0};

    bt_philox4x32_10(key, ctr);
    return ((((uint64_t)ctr[0] << 32) | ctr[1]) >> 11) << 11;
}

/** Returns the 53 random bits of a draw, in the highest bits. */
BT_FORMULA uint64_t bt_draw_bits(uint64_t seed, uint64_t position)
{
    return bt_draw_bits_of(seed, position, 0);
}

/** floor(u * mass), u = bits / 2^64: the high half of the product. */
BT_FORMULA uint64_t bt_draw_goal(uint64_t bits, uint64_t mass)
{
    const uint64_t a_low = (uint32_t)bits;
    const uint64_t a_high = bits >> 32;
    const uint64_t b_low = (uint32_t)mass;
    const uint64_t b_high = mass >> 32;
    const uint64_t low = a_low * b_low;
    const uint64_t mid = a_high * b_low + (low >> 32);
    const uint64_t other = a_low * b_high + (uint32_t)mid;

    return a_high * b_high + (mid >> 32) + (other >> 32);
}

/** Returns the logit of a seen token that was generated @a n times. */
BT_FORMULA float bt_draw_penalized(float logit, uint32_t n, float repetition,
                                   float presence, float frequency)
{
    logit = (logit > 0.0f) ? logit / repetition : logit * repetition;
    if (n > 0) {
        logit -= presence + frequency * (float)n;
    }
    return logit;
}

/** Returns the edited logit.
 *  @param [in] what  bt_draw_edit_t.what */
BT_FORMULA float bt_draw_edited(float logit, uint32_t what, float bias,
                                float repetition, float presence,
                                float frequency)
{
    if ((what & BT_EDIT_BIAS) != 0) {
        logit += bias;
    }
    if ((what & BT_EDIT_SEEN) != 0) {
        logit = bt_draw_penalized(logit, what & BT_EDIT_N_MASK, repetition,
                                  presence, frequency);
    }
    return ((what & BT_EDIT_BAN) != 0) ? -INFINITY : logit;
}

/** Returns the term that a logit adds to score()'s sum. exp() maps a NaN to 0,
 *  but a NaN must show in the sum. */
BT_FORMULA float bt_scored_term(float logit, float best)
{
    const float below = logit - best;

    return bt_exp_negative_float(below) + 0.0f * below;
}

#endif
