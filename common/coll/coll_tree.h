/* SPDX-License-Identifier: Apache-2.0 */
/** @file coll_tree.h
 *
 * Summation order: the list of parts is halved recursively, so that a rank that
 * has the parts of one half can add them first.
 *
 *     4 parts   (p0 + p1) + (p2 + p3)
 *     3 parts   p0 + (p1 + p2)
 *
 * So a sum over 4 parts is bit-identical whether 4 ranks have one each, 2 ranks
 * two each, or one rank all.
 *
 * Threads: pure functions.
 */
#ifndef BT_COMMON_COLL_COLL_TREE_H
#define BT_COMMON_COLL_COLL_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Computes out (n) = the sum of all parts (n), in this order; n_parts >= 1. */
void bt_coll_tree_sum(const float *const *parts, uint32_t n_parts, size_t n,
                      float *out);

/** Returns where a list from @a begin to @a end is halved, of at least two
 *  parts. */
static inline uint32_t bt_coll_tree_middle(uint32_t begin, uint32_t end)
{
    return begin + (end - begin) / 2;
}

/** True when each of @a size ranks, which have the parts in rank order, has
 *  parts that are added before those of others. */
bool bt_coll_tree_divides(uint32_t n_parts, uint32_t size);

#endif
