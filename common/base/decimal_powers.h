/* SPDX-License-Identifier: Apache-2.0 */
/** @file decimal_powers.h
 *
 * Powers of ten for shortest decimal texts (decimal_text.c): the upper n bits
 * of 10^k, floor(10^k * 2^(n - 1 - floor(log2(10^k)))) + 1.
 */
#ifndef BT_COMMON_BASE_DECIMAL_POWERS_H
#define BT_COMMON_BASE_DECIMAL_POWERS_H

#include <stdint.h>

#define BT_FLOAT_MIN_POWER  (-31) /**< k of the first power */
#define BT_FLOAT_POWERS     77
#define BT_DOUBLE_MIN_POWER (-292)
#define BT_DOUBLE_POWERS    617

extern const uint64_t bt_float_powers[BT_FLOAT_POWERS]; /**< 64 bits each */
extern const uint64_t bt_double_powers[BT_DOUBLE_POWERS]
                                      [2]; /**< 128 bits each, upper
                                                half first */

#endif
