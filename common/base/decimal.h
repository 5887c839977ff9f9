/* SPDX-License-Identifier: Apache-2.0 */
/** @file decimal.h
 *
 * Decimal numbers: the shortest text of a floating-point number, and the
 * number of a text.
 */
#ifndef BT_COMMON_BASE_DECIMAL_H
#define BT_COMMON_BASE_DECIMAL_H

#include <stddef.h>
#include <stdint.h>

/*
 * Powers of ten for shortest decimal texts (decimal.c): the upper n bits
 * of 10^k, floor(10^k * 2^(n - 1 - floor(log2(10^k)))) + 1.
 */

#define BT_FLOAT_MIN_POWER  (-31) /**< k of the first power */
#define BT_FLOAT_POWERS     77
#define BT_DOUBLE_MIN_POWER (-292)
#define BT_DOUBLE_POWERS    617

extern const uint64_t bt_float_powers[BT_FLOAT_POWERS]; /**< 64 bits each */
extern const uint64_t bt_double_powers[BT_DOUBLE_POWERS]
                                      [2]; /**< 128 bits each, upper
                                                half first */

/*
 * Shortest decimal text of a float or double: the fewest significant digits
 * that read back to the same number, and of those the nearest decimal. Some 40
 * ns each, where trying one number of digits after the other with printf takes
 * microseconds.
 *
 * The form is that of printf's %g: with an exponent below 1e-4, and where the
 * integer part has more digits than are needed (at least 6 of a float, 15 of a
 * double).
 *
 * Threads: pure functions.
 * Source:  R. Giulietti, "The Schubfach way to render doubles", 2020.
 */

/** Size of the longest text, such as "-2.2250738585072014e-308", with its
 *  zero. */
#define BT_DECIMAL_TEXT_BYTES 25u

/**
 * Writes a number.
 *
 * @param [in]  value  finite
 * @param [out] text   ends with a zero
 * @return the bytes of the text, without the zero
 */
size_t bt_float_text(float value, char text[BT_DECIMAL_TEXT_BYTES]);
size_t bt_double_text(double value, char text[BT_DECIMAL_TEXT_BYTES]);

#endif
