/* SPDX-License-Identifier: Apache-2.0 */
/** @file half.h
 *
 * 16-bit floats in plain C: the specification of F16C's results. C and CUDA C++
 * alike.
 * Source: IEEE 754-2008 binary16; bfloat16 is the upper half of binary32.
 */
#ifndef BT_KERNELS_HALF_H
#define BT_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

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

#endif
