/* SPDX-License-Identifier: Apache-2.0 */
/** @file decimal.h
 *
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
#ifndef BT_COMMON_BASE_DECIMAL_H
#define BT_COMMON_BASE_DECIMAL_H

#include <stddef.h>
#include <stdint.h>

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
