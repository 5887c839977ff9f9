/* SPDX-License-Identifier: Apache-2.0 */
/** @file formula.h
 *
 * Scalar functions that every back end computes identically: all roundings are
 * explicit (fmaf, and no contraction elsewhere), so the bits are equal. C and
 * CUDA C++ alike.
 */
#ifndef BT_KERNELS_FORMULA_H
#define BT_KERNELS_FORMULA_H

#include <math.h>

#include "kernels/half.h"
#include "kernels/kernels.h"

/* exp(x), about 1 ulp: x = n ln 2 + r, |r| <= ln 2 / 2, and e^r =
 * 1 + r + r^2 p(r), p by a weighted minimax fit (relative error 3.1e-9 before
 * rounding). Below -87 the result is 0, above 88 infinity: so 2^n is always a
 * normal number. ln 2 is split so that n * LN2_HI is exact. */
#define EXP_MAGIC  0x1.8p23f /* adding it rounds to an integer */
#define EXP_LOG2E  0x1.715476p+0f
#define EXP_LN2_HI 0x1.62e4p-1f
#define EXP_LN2_LO 0x1.7f7d1cp-20f
#define EXP_P0     0x1.fffffcp-2f
#define EXP_P1     0x1.555492p-3f
#define EXP_P2     0x1.5558f2p-5f
#define EXP_P3     0x1.123a2p-7f
#define EXP_P4     0x1.6a23dp-10f
#define EXP_MIN    -87.0f
#define EXP_MAX    88.0f

BT_FORMULA float bt_expf(float x)
{
    float t = fmaf(x, EXP_LOG2E, EXP_MAGIC);
    float n = t - EXP_MAGIC;
    float r = fmaf(n, -EXP_LN2_LO, fmaf(n, -EXP_LN2_HI, x));
    float p = fmaf(EXP_P4, r, EXP_P3);
    float y;

    p = fmaf(p, r, EXP_P2);
    p = fmaf(p, r, EXP_P1);
    p = fmaf(p, r, EXP_P0);
    y = fmaf(p, r * r, r) + 1.0f;
    y *= bt_f32_from_bits((bt_f32_bits(t) + 127u) << 23);
    y = (x < EXP_MIN) ? 0.0f : y;
    y = (x > EXP_MAX) ? INFINITY : y;
    return (x != x) ? x : y;
}

/* c tanh(s / c); see kernels.h. */
BT_FORMULA float bt_soft_capped(float s, float cap, float factor)
{
    return cap * (1.0f - 2.0f / (bt_expf(s * factor) + 1.0f));
}

#define GELU_1 0x1.988454p+0f /* sqrt(8 / pi) */
#define GELU_2 0x1.2444f2p-4f /* 0.044715 of it */

/* Phi(-y) for y >= 0 is exp(-y^2 / 2) t Q(t) with t = 1 / (1 + PHI_P y), Q by a
 * weighted minimax fit: relative error 2.7e-8 before rounding, up to y = 13.5;
 * beyond it, the exponential is 0 in float. */
#define PHI_P  0x1.5c28f6p-2f
#define PHI_Q0 0x1.15bf98p-3f
#define PHI_Q1 0x1.16cd28p-3f
#define PHI_Q2 0x1.d72ed8p-4f
#define PHI_Q3 0x1.db4858p-4f
#define PHI_Q4 -0x1.7c1632p-5f
#define PHI_Q5 0x1.a34cccp-3f
#define PHI_Q6 -0x1.1a13bap-2f
#define PHI_Q7 0x1.2019b4p-3f
#define PHI_Q8 -0x1.b00eb0p-6f

/* x Phi(x) = max(x, 0) - |x| Phi(-|x|). */
BT_FORMULA float bt_gelu_erf(float x)
{
    const float y = fabsf(x);
    const float t = 1.0f / fmaf(y, PHI_P, 1.0f);
    float q = fmaf(PHI_Q8, t, PHI_Q7);

    q = fmaf(q, t, PHI_Q6);
    q = fmaf(q, t, PHI_Q5);
    q = fmaf(q, t, PHI_Q4);
    q = fmaf(q, t, PHI_Q3);
    q = fmaf(q, t, PHI_Q2);
    q = fmaf(q, t, PHI_Q1);
    q = fmaf(q, t, PHI_Q0);
    return ((x > 0.0f) ? x : 0.0f) - y * ((t * q) * bt_expf((y * -0.5f) * y));
}

#define OAI_LIMIT 7.0f
#define OAI_ALPHA 1.702f

BT_FORMULA float bt_activated(bt_activation_t act, float x)
{
    switch (act) {
    case BT_ACT_GELU_TANH:
        return x / (1.0f + bt_expf(-(x * fmaf(x * x, GELU_2, GELU_1))));
    case BT_ACT_GELU_ERF:
        return bt_gelu_erf(x);
    case BT_ACT_RELU2:
        x = (x > 0.0f) ? x : 0.0f;
        return x * x;
    case BT_ACT_SWIGLU_OAI:
        x = (x > OAI_LIMIT) ? OAI_LIMIT : x;
        return x / (1.0f + bt_expf(x * -OAI_ALPHA));
    case BT_ACT_SILU:
    default:
        return x / (1.0f + bt_expf(-x));
    }
}

/* Factor of an activated gate: the value beside it. */
BT_FORMULA float bt_gate_factor(bt_activation_t act, float up)
{
    if (act == BT_ACT_SWIGLU_OAI) {
        up = (up > OAI_LIMIT) ? OAI_LIMIT : up;
        up = (up < -OAI_LIMIT) ? -OAI_LIMIT : up;
        return up + 1.0f;
    }
    return up;
}

/* The bf16 dot product treats numbers below 2^-126 as zeros. */
BT_FORMULA float bt_or_zero(float x)
{
    return (fabsf(x) < 0x1p-126f) ? copysignf(0.0f, x) : x;
}

/* fma(w, x, acc), flushed to zero of its sign if it is below 2^-126 before its
 * exponent is limited: x86's rule, which shows where the result rounds up to
 * 2^-126. Powers of two are exact factors. */
BT_FORMULA float bt_fma_flushed(float w, float x, float acc)
{
    const float sum = fmaf(w, x, acc);

    if (fabsf(sum) > 0x1p-126f) {
        return sum;
    }
    return (fabsf(fmaf(w * 0x1p60f, x, acc * 0x1p60f)) < 0x1p-66f)
               ? copysignf(0.0f, sum)
               : sum;
}

/* The first and the second of two bf16 in a word, in memory order. */
BT_FORMULA float bt_bf16_low(uint32_t pair)
{
    return bt_f32_from_bits(pair << 16);
}

BT_FORMULA float bt_bf16_high(uint32_t pair)
{
    return bt_f32_from_bits(pair & 0xffff0000u);
}

/* One lane of VDPBF16PS (kernels/cpu/cpu.h): a and b are pairs in a word. */
BT_FORMULA float bt_dot_bf16(uint32_t a, uint32_t b, float acc)
{
    acc = bt_fma_flushed(bt_or_zero(bt_bf16_high(a)),
                         bt_or_zero(bt_bf16_high(b)), bt_or_zero(acc));
    return bt_fma_flushed(bt_or_zero(bt_bf16_low(a)),
                          bt_or_zero(bt_bf16_low(b)), acc);
}

/* Scale of a vector whose largest code is @a most, from the bits of its largest
 * magnitude (as integers, the bits of an infinity or a NaN are above all
 * others). */
BT_FORMULA float bt_code_scale(uint32_t amax_bits, float most)
{
    float scale = bt_f32_from_bits(amax_bits) / most;

    if (amax_bits >= 0x7f800000u) {
        return bt_f32_from_bits(0x7fc00000u);
    }
    /* Subnormal scales are too coarse to keep codes within the limit. */
    return (scale < 0x1p-126f) ? 0.0f : scale;
}

#define I8_MAX 127.0f

/* For a scale above 0: x / scale is within 127 (1 + 2^-23). */
BT_FORMULA int8_t bt_i8_code(float x, float scale)
{
    return (int8_t)rintf(x / scale);
}

#endif
