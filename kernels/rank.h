/* SPDX-License-Identifier: Apache-2.0 */
/** @file rank.h
 *
 * Encodes the order of candidates as one number. A value and its index form a
 * *rank*: the larger, the earlier in the order of top() (kernels.h), and no two
 * ranks are equal. C and CUDA C++ alike.
 */
#ifndef BT_KERNELS_RANK_H
#define BT_KERNELS_RANK_H

#include <math.h>
#include <stdint.h>

#include "kernels/half.h"

#define BT_RANK_NONE 0ull /**< rank of a value that cannot be drawn */

/** Returns the rank: the float's bits as an order-preserving integer in the
 *  upper half, the inverted index in the lower. */
BT_FORMULA uint64_t bt_rank_of(float value, uint32_t id)
{
    uint32_t bits;

    if (!(value > -INFINITY)) { /* nor NaN */
        return BT_RANK_NONE;
    }
    bits = bt_f32_bits((value == 0.0f) ? 0.0f : value); /* -0 equals 0 */
    bits = ((bits >> 31) != 0) ? ~bits : bits | 0x80000000u;
    return ((uint64_t)bits << 32) | (0xffffffffu - id);
}

BT_FORMULA uint32_t bt_rank_id(uint64_t rank)
{
    return 0xffffffffu - (uint32_t)rank;
}

/** Returns the value of a rank; 0 for -0. */
BT_FORMULA float bt_rank_value(uint64_t rank)
{
    const uint32_t bits = (uint32_t)(rank >> 32);

    return bt_f32_from_bits(((bits >> 31) != 0) ? bits & 0x7fffffffu : ~bits);
}

#endif
