/* SPDX-License-Identifier: Apache-2.0 */
/** @file draw.h  Random numbers that are the same in every run of a test. */
#ifndef BT_TESTS_SUPPORT_DRAW_H
#define BT_TESTS_SUPPORT_DRAW_H

#include <stdint.h>

/** splitmix64 (Steele, Lea, Flood 2014).
 *  @param [in,out] state  The seed at first.
 *  @return 0 .. n - 1 */
static inline uint64_t draw_below(uint64_t *state, uint64_t n)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

#endif
