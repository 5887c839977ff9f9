/* SPDX-License-Identifier: Apache-2.0 */
/** @file sums.h  Block-wide sums over a row, in the order of the reference. */
#ifndef BT_KERNELS_CUDA_SUMS_H
#define BT_KERNELS_CUDA_SUMS_H

#include "kernels/cuda/device.h"

#define BT_SUM_LANES 16u   /**< lanes of a lane sum */
#define BT_SUM_CHUNK 1024u /**< values loaded to shared memory at a time */

/**
 * Returns the lane sum of values 0 .. dim - 1 (kernels.h): value i goes to lane
 * i % 16, each lane sums in ascending order, then the pairwise tree 8, 4, 2, 1.
 * Called by the whole block, which is synchronised before and after.
 *
 * A lane is one thread with a chain of dependent sums, which dominates the
 * time. So all threads load the values, and none of the sixteen waits for
 * memory.
 *
 * @param value  (i): value i
 * @param step   (value, sum): the new sum
 * @return the sum, at all threads
 */
template <typename Value, typename Step>
__device__ float bt_lane_sum(uint32_t dim, const Value &value, const Step &step)
{
    BT_SHARED(float, values, BT_SUM_CHUNK);
    BT_SHARED(float, lanes, BT_SUM_LANES);
    const uint32_t t = threadIdx.x;
    float sum = 0.0f;

    for (uint32_t begin = 0; begin < dim; begin += BT_SUM_CHUNK) {
        const uint32_t n =
            (dim - begin < BT_SUM_CHUNK) ? dim - begin : BT_SUM_CHUNK;

        for (uint32_t i = t; i < n; i += blockDim.x) {
            values.set(i, value(begin + i));
        }
        BT_SYNC();
        for (uint32_t i = t; (t < BT_SUM_LANES) && (i < n); i += BT_SUM_LANES) {
            sum = step(values.get(i), sum);
        }
        BT_SYNC();
    }
    if (t < BT_SUM_LANES) {
        lanes.set(t, sum);
    }
    BT_SYNC();
    for (uint32_t half = BT_SUM_LANES / 2; half > 0; half /= 2) {
        if (t < half) {
            lanes.set(t, __fadd_rn(lanes.get(t), lanes.get(t + half)));
        }
        BT_SYNC();
    }
    sum = lanes.get(0);
    BT_SYNC(); /* what was summed may be written, and the lanes again */
    return sum;
}

/** Returns 1 / sqrt(sum / dim + eps). */
__device__ __forceinline__ float bt_inverse_root(float sum, uint32_t dim,
                                                 float eps)
{
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(
                               __fdiv_rn(sum, static_cast<float>(dim)), eps)));
}

/** Returns the factor that rmsnorm() applies to the values of a row. */
__device__ __forceinline__ float bt_rms_factor(const float *x, uint32_t dim,
                                               float eps)
{
    const float sum = bt_lane_sum(
        dim, [=](uint32_t i) { return bt_load(x + i); },
        [](float value, float before) { return fmaf(value, value, before); });

    return bt_inverse_root(sum, dim, eps);
}

#endif
