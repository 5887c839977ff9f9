/* SPDX-License-Identifier: Apache-2.0 */
/** @file exp_negative.h  exp() for sampling, and in float for log
 *  probabilities: all roundings are explicit, in C and CUDA C++ alike. */
#ifndef BT_KERNELS_EXP_NEGATIVE_H
#define BT_KERNELS_EXP_NEGATIVE_H

#include <stdint.h>
#include <string.h>

#include "kernels/half.h"

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

#endif
