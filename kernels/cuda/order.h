/* SPDX-License-Identifier: Apache-2.0 */
/** @file order.h  Block-wide maximum and sort of ranks (rank.h).
 *  Source: Batcher, "Sorting networks and their applications" (bitonic). */
#ifndef BT_KERNELS_CUDA_ORDER_H
#define BT_KERNELS_CUDA_ORDER_H

#include "kernels/cuda/device.h"
#include "kernels/rank.h"

/** Returns the largest value of all threads, to all threads; the block consists
 *  of whole warps. @a parts has one slot per warp. */
inline __device__ uint64_t bt_largest(const bt_shared<uint64_t> &parts,
                                      uint64_t value)
{
    BT_NO_UNROLL
    for (uint32_t lanes = 16; lanes > 0; lanes /= 2) {
        const uint64_t other = __shfl_xor_sync(0xffffffffu, value, lanes);

        value = (other > value) ? other : value;
    }
    BT_SYNC(); /* what another call left was read */
    if (threadIdx.x % 32 == 0) {
        parts.set(threadIdx.x / 32, value);
    }
    BT_SYNC();
    BT_NO_UNROLL
    for (uint32_t w = 0; w < blockDim.x / 32; w++) {
        const uint64_t other = parts.get(w);

        value = (other > value) ? other : value;
    }
    return value;
}

/** Returns the best rank of a row, to all threads; BT_RANK_NONE: there is
 *  none. */
inline __device__ uint64_t bt_best_rank(const float *x, uint32_t dim,
                                        const bt_shared<uint64_t> &parts)
{
    uint64_t best = BT_RANK_NONE;

    for (uint32_t i = threadIdx.x; i < dim; i += blockDim.x) {
        const uint64_t rank = bt_rank_of(bt_load(x + i), i);

        best = (rank > best) ? rank : best;
    }
    return bt_largest(parts, best);
}

/** Sorts the first @a n entries of the list in descending order, by the block;
 *  entries must have been written before a barrier. The list has space for the
 *  next power of two. */
inline __device__ void bt_put_in_order(const bt_shared<uint64_t> &list,
                                       uint32_t n)
{
    uint32_t size = 2;

    while (size < n) {
        size *= 2;
    }
    for (uint32_t i = n + threadIdx.x; i < size; i += blockDim.x) {
        list.set(i, BT_RANK_NONE);
    }
    BT_SYNC();
    for (uint32_t run = 2; run <= size; run *= 2) {
        for (uint32_t far = run / 2; far > 0; far /= 2) {
            for (uint32_t p = threadIdx.x; p < size / 2; p += blockDim.x) {
                const uint32_t i = 2 * p - (p & (far - 1));
                const uint64_t a = list.get(i);
                const uint64_t b = list.get(i + far);

                if ((a < b) == ((i & run) == 0)) {
                    list.set(i, b);
                    list.set(i + far, a);
                }
            }
            BT_SYNC();
        }
    }
}

#endif
