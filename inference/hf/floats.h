/* SPDX-License-Identifier: Apache-2.0 */
/** @file floats.h
 *
 * Reads numbers of small floating-point types from unaligned bytes.
 *
 * Source: IEEE 754 (binary16), and "FP8 Formats for Deep Learning"
 *         (Micikevicius et al., 2022) for E4M3: no infinities, one NaN; OCP
 *         Microscaling Formats 1.0 for E8M0.
 */
#ifndef BT_INFERENCE_HF_FLOATS_H
#define BT_INFERENCE_HF_FLOATS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline float bt_read_f32(const uint8_t *p)
{
    float value;

    memcpy(&value, p, sizeof(value));
    return value;
}

static inline float bt_float_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline float bt_read_bf16(const uint8_t *p)
{
    uint16_t half;

    memcpy(&half, p, sizeof(half));
    return bt_float_of_bits((uint32_t)half << 16);
}

static inline float bt_read_f16(const uint8_t *p)
{
    uint16_t half;
    uint32_t sign;
    uint32_t exponent;
    uint32_t fraction;

    memcpy(&half, p, sizeof(half));
    sign = (uint32_t)(half & 0x8000) << 16;
    exponent = (half >> 10) & 0x1Fu;
    fraction = half & 0x3FFu;
    if (exponent == 0) {
        const float value = (float)fraction * 0x1p-24f;

        return (sign != 0) ? -value : value;
    }
    if (exponent == 0x1F) {
        return bt_float_of_bits(sign | 0x7F800000u | fraction << 13);
    }
    return bt_float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/** Finds the bits of an f16 that has exactly this value.
 *  @return false: there is none, or the value is zero with a sign, infinite or
 *          NaN */
static inline bool bt_exact_f16(float value, uint16_t *bits_p)
{
    const float magnitude = fabsf(value);
    const uint16_t sign = (value < 0) ? 0x8000 : 0;
    uint16_t bits;
    int exponent;

    if (!(magnitude <= 65504.0f)) {
        return false;
    }
    if (magnitude < 0x1p-14f) { /* of these every multiple of 2^-24 */
        bits = (uint16_t)(magnitude * 0x1p24f);
    } else {
        (void)frexpf(magnitude, &exponent); /* 1/2 … 1 times 2^exponent */
        bits = (uint16_t)(ldexpf(magnitude, 11 - exponent));
        bits = (uint16_t)(((uint32_t)(exponent + 14) << 10) + (bits - 1024u));
    }
    bits |= sign;
    if (bt_read_f16((const uint8_t *)&bits) != value) {
        return false;
    }
    *bits_p = bits;
    return true;
}

static inline float bt_read_e4m3(uint8_t byte)
{
    const uint32_t exponent = (byte >> 3) & 0xFu;
    const uint32_t fraction = byte & 7u;
    float value;

    if ((byte & 0x7F) == 0x7F) {
        return bt_float_of_bits(0x7FC00000u);
    }
    value = (exponent == 0)
                ? (float)fraction * 0x1p-9f
                : bt_float_of_bits((exponent + 120) << 23 | fraction << 20);
    return ((byte & 0x80) != 0) ? -value : value;
}

/** Returns 2^(byte - 127); NaN for 255. */
static inline float bt_read_e8m0(const uint8_t *p)
{
    if (*p == 255) {
        return bt_float_of_bits(0x7FC00000u);
    }
    return (*p == 0) ? 0x1p-127f : bt_float_of_bits((uint32_t)*p << 23);
}

#endif
