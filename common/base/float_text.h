/* SPDX-License-Identifier: Apache-2.0 */
/** @file float_text.h
 *
 * Shortest decimal text of a float: as few significant digits as read back to
 * the same float, the nearest such decimal to it. Some 30 ns each, where trying
 * one number of digits after the other with printf takes over a microsecond.
 *
 * Threads: pure functions.
 * Source:  R. Giulietti, "The Schubfach way to render doubles", 2020, in its
 *          form for 32 bits.
 */
#ifndef BT_COMMON_BASE_FLOAT_TEXT_H
#define BT_COMMON_BASE_FLOAT_TEXT_H

#include <stddef.h>

/** The longest text, such as "-1.17549435e-38", with its zero. */
#define BT_FLOAT_TEXT_BYTES 17u

/**
 * Write a float in the form that printf's %g gives to that many digits: with an
 * exponent below 1e-4 and where the integer part has more digits than are
 * needed (at least 6).
 *
 * @param [in]  value  finite
 * @param [out] text   ends with a zero
 * @return the bytes of the text, without the zero
 */
size_t bt_float_text(float value, char text[BT_FLOAT_TEXT_BYTES]);

#endif
