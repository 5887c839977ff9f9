/* SPDX-License-Identifier: Apache-2.0 */
/** @file order.h  Puts ranks (rank.h) in order.
 *  Source: Batcher, "Sorting networks and their applications" (bitonic). */
#ifndef BT_KERNELS_CUDA_ORDER_H
#define BT_KERNELS_CUDA_ORDER_H

#include "kernels/cuda/device.h"
#include "kernels/rank.h"

/** The first @a n of the list fall. By the block; what was written before a
 *  barrier is in it. It has room for the next power of two. */
static __device__ void bt_put_in_order(const bt_shared<uint64_t> &list,
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
