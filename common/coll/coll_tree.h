/* SPDX-License-Identifier: Apache-2.0 */
/** @file coll_tree.h
 *
 * The order in which parts of a sum are added: halves of the list, each in the
 * same way, so that whoever has the parts of one half can add them before.
 *
 *     4 parts   (p0 + p1) + (p2 + p3)
 *     3 parts   p0 + (p1 + p2)
 *
 * With it a sum over 4 parts has the same bits where 4 ranks have one each, 2
 * ranks two each, or one all.
 *
 * Threads: pure functions.
 */
#ifndef BT_COMMON_COLL_COLL_TREE_H
#define BT_COMMON_COLL_COLL_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** out (n) = the sum of all parts (n), in that order; n_parts >= 1. */
void bt_coll_tree_sum(const float *const *parts, uint32_t n_parts, size_t n,
                      float *out);

/** Where a list from @a begin to @a end is halved; it has two parts at least.
 */
static inline uint32_t bt_coll_tree_middle(uint32_t begin, uint32_t end)
{
    return begin + (end - begin) / 2;
}

/** Does each of @a size ranks, which have the parts one after the other, have
 *  parts that are added before those of others? */
bool bt_coll_tree_divides(uint32_t n_parts, uint32_t size);

#endif
