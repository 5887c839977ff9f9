/* SPDX-License-Identifier: Apache-2.0 */
/** @file half.h
 *
 * Small floating-point types: binary16, bfloat16, E4M3.
 */
#ifndef BT_KERNELS_HALF_H
#define BT_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

/*
 * 16-bit floats in plain C: the specification of F16C's results. C and CUDA C++
 * alike.
 * Source: IEEE 754-2008 binary16; bfloat16 is the upper half of binary32.
 */

/** Declaration specifiers of numeric functions that every back end compiles. */
#if defined(__CUDACC__)
#define BT_FORMULA static __device__ __forceinline__
#else
#define BT_FORMULA static inline
#endif

BT_FORMULA float bt_f32_from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

BT_FORMULA uint32_t bt_f32_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/** Converts exactly; a signalling NaN becomes quiet, as with F16C. */
BT_FORMULA float bt_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t fraction = half & 0x3ffu;

    if (exponent == 0x1fu) {
        uint32_t quiet = (fraction != 0) ? 0x400000u : 0;

        return bt_f32_from_bits(sign | 0x7f800000u | quiet | (fraction << 13));
    }
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, exact */
        float value = (float)fraction * 0x1p-24f;

        return bt_f32_from_bits(sign | bt_f32_bits(value));
    }
    return bt_f32_from_bits(sign | ((exponent + 112u) << 23) |
                            (fraction << 13));
}

/** Rounds to nearest, ties to even; overflow becomes infinity. */
BT_FORMULA uint16_t bt_f32_to_f16(float value)
{
    uint32_t bits = bt_f32_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t mag = bits & 0x7fffffffu;
    uint32_t rounded;

    if (mag > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | ((mag >> 13) & 0x3ffu));
    }
    if (mag >= 0x477ff000u) { /* 65520 and above */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (mag < 0x38800000u) { /* below 2^-14: the unit is 2^-24; adding 0.5
                                puts that unit at the lowest fraction bit */
        rounded = bt_f32_bits(bt_f32_from_bits(mag) + 0.5f) - 0x3f000000u;
        return (uint16_t)(sign | rounded);
    }
    rounded = mag - (112u << 23) + 0xfffu + ((mag >> 13) & 1u);
    return (uint16_t)(sign | (rounded >> 13));
}

/** Rounds to nearest, ties to even; overflow becomes infinity; subnormals are
 *  kept, a NaN becomes quiet. */
BT_FORMULA uint16_t bt_f32_to_bf16(float value)
{
    uint32_t bits = bt_f32_bits(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((bits >> 16) | 0x40u);
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

BT_FORMULA float bt_bf16_to_f32(uint16_t bf16)
{
    return bt_f32_from_bits((uint32_t)bf16 << 16);
}

/*
 * 8-bit floats in plain C: the specification for the vectorised tiers. A sign,
 * 4 exponent bits with bias 7, 3 fraction bits; no infinities, and the one NaN
 * of each sign has all other bits set.
 * Source: "OCP 8-bit Floating Point Specification (OFP8)", E4M3; Micikevicius
 * et al., "FP8 Formats for Deep Learning".
 */

#define BT_E4M3_BLOCK 64u /* weights per scale */

#define E4M3_MAX    448.0f
#define E4M3_NORMAL 0x1p-6f /* smallest normal number */

/** Constant whose addition aligns the unit of subnormal numbers, 2^-9, with the
 *  lowest fraction bit of a float. */
#define E4M3_ALIGN 0x1p14f

#define E4M3_BIAS_F32  (120u << 3)  /* exponent bias, at a code's position */
#define E4M3_BIAS_BF16 (120u << 7)  /* at a bf16's position */
#define E4M3_NAN_BF16  (0x78u << 7) /* makes an exponent of 15 a 255 */

/** Rounds to nearest, ties to even; beyond 448, infinities too, to 448. Not for
 *  NaN. */
BT_FORMULA uint8_t bt_f32_to_e4m3(float x)
{
    const uint32_t sign = bt_f32_bits(x) >> 24 & 0x80u;
    uint32_t mag = bt_f32_bits(x) & 0x7fffffffu;

    if (mag > bt_f32_bits(E4M3_MAX)) {
        mag = bt_f32_bits(E4M3_MAX);
    }
    if (mag < bt_f32_bits(E4M3_NORMAL)) {
        mag = bt_f32_bits(bt_f32_from_bits(mag) + E4M3_ALIGN) -
              bt_f32_bits(E4M3_ALIGN);
    } else {
        mag = ((mag + 0x7ffffu + (mag >> 20 & 1u)) >> 20) - E4M3_BIAS_F32;
    }
    return (uint8_t)(sign | mag);
}

/** Converts exactly; a NaN keeps its sign and its fraction. */
BT_FORMULA uint16_t bt_e4m3_to_bf16(uint8_t code)
{
    /* Subnormal numbers: eighths of 2^-6. */
    static const uint16_t small[8] = {0,      0x3b00, 0x3b80, 0x3bc0,
                                      0x3c00, 0x3c20, 0x3c40, 0x3c60};
    const uint32_t sign = (code & 0x80u) << 8;
    const uint32_t mag = code & 0x7fu;

    if (mag < 8) {
        return (uint16_t)(sign | small[mag]);
    }
    return (uint16_t)(sign | ((mag << 4) + E4M3_BIAS_BF16 +
                              ((mag == 0x7fu) ? E4M3_NAN_BF16 : 0)));
}

/** Converts a weight code (BT_KTYPE_E4M3) exactly. The NaN codes are 480 and
 *  -480, so that no code needs a check. */
BT_FORMULA float bt_e4m3_weight(uint32_t code)
{
    const float mag = bt_f32_from_bits((code & 0x7fu) << 20) * 0x1p120f;

    return bt_f32_from_bits((code & 0x80u) << 24 | bt_f32_bits(mag));
}

#endif
