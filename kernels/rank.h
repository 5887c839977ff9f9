/* SPDX-License-Identifier: Apache-2.0 */
/** @file rank.h
 *
 * The order of candidates as one number. A value and its index are a *rank*:
 * the larger, the earlier in the order of top() (kernels.h), and no two are
 * equal. C and CUDA C++ alike.
 */
#ifndef BT_KERNELS_RANK_H
#define BT_KERNELS_RANK_H

#include <math.h>
#include <stdint.h>

#include "kernels/half.h"

#define BT_RANK_NONE 0ull /**< of what cannot be drawn; the last */

/** The bits of a float as a number that grows with it, above; below, what falls
 *  as the index grows. */
BT_FORMULA uint64_t bt_rank_of(float value, uint32_t id)
{
    uint32_t bits;

    if (!(value > -INFINITY)) { /* nor a NaN */
        return BT_RANK_NONE;
    }
    bits = bt_f32_bits((value == 0.0f) ? 0.0f : value); /* -0 is as large */
    bits = ((bits >> 31) != 0) ? ~bits : bits | 0x80000000u;
    return ((uint64_t)bits << 32) | (0xffffffffu - id);
}

BT_FORMULA uint32_t bt_rank_id(uint64_t rank)
{
    return 0xffffffffu - (uint32_t)rank;
}

/** The value; 0 for -0. */
BT_FORMULA float bt_rank_value(uint64_t rank)
{
    const uint32_t bits = (uint32_t)(rank >> 32);

    return bt_f32_from_bits(((bits >> 31) != 0) ? bits & 0x7fffffffu : ~bits);
}

#endif
