/* SPDX-License-Identifier: Apache-2.0 */
/** @file draw_formula.h  Arithmetic of draw.h, shared by all samplers: C and
 *  CUDA C++ alike. */
#ifndef BT_KERNELS_DRAW_FORMULA_H
#define BT_KERNELS_DRAW_FORMULA_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/draw.h"
#include "kernels/exp_negative.h"
#include "kernels/philox.h"

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

/** Returns 53 random bits, in the highest bits. */
BT_FORMULA uint64_t bt_draw_bits(uint64_t seed, uint64_t position)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t ctr[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};

    bt_philox4x32_10(key, ctr);
    return ((((uint64_t)ctr[0] << 32) | ctr[1]) >> 11) << 11;
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
