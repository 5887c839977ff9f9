/* SPDX-License-Identifier: Apache-2.0 */
/** @file e4m3.h
 *
 * 8-bit floats in plain C: the specification for the vectorised tiers. A sign,
 * 4 exponent bits with bias 7, 3 fraction bits; no infinities, and the one NaN
 * of each sign has all other bits set.
 * Source: "OCP 8-bit Floating Point Specification (OFP8)", E4M3; Micikevicius
 * et al., "FP8 Formats for Deep Learning".
 */
#ifndef BT_KERNELS_E4M3_H
#define BT_KERNELS_E4M3_H

#include "kernels/half.h"

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
