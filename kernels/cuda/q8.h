/* SPDX-License-Identifier: Apache-2.0 */
/** @file q8.h  Interface between the variants of quantized matmul. */
#ifndef BT_KERNELS_CUDA_Q8_H
#define BT_KERNELS_CUDA_Q8_H

#include <cmath>

#include "kernels/cuda/unpack.h"

/** Meaning of the third and fourth word of a group of a row. */
enum BtQ8Rest {
    BT_Q8_STARTS, /* -bias times the sum of the codes of each half, integers */
    BT_Q8_SUM,    /* sum of the row's values, dequantized from the codes */
    BT_Q8_SUMS,   /* sum of the values of each half, dequantized */
};

/** Rows of 8 bits: see bt_q8_group_t in kernels/cpu/cpu.h. */
struct BtQ8Rows {
    const uint32_t *codes; /* (n_rows, n_in / 4) */
    const uint4 *groups;   /* (n_rows, n_in / 32): both scales, BtQ8Rest */
};

/** Returns @a acc plus the product of a row and an output over one group.
 *  @param products  integer products times the row's scales: of the whole
 *      group, or of each half that has a scale
 *  @param row       The row's group, from BtQ8Rows.groups */
template <bt_pack_t P>
__device__ __forceinline__ float bt_q8_add(float acc, const float products[2],
                                           const float scales[2],
                                           const float mins[2], uint4 row)
{
    for (uint32_t h = 0; h < BtPack<P>::halves; h++) {
        acc = fmaf(products[h], scales[h], acc);
    }
    if (BtPack<P>::format.min) {
        acc = fmaf(mins[0], bt_f32_from_bits(row.z), acc);
        if (BtPack<P>::format.two) {
            acc = fmaf(mins[1], bt_f32_from_bits(row.w), acc);
        }
    }
    return acc;
}

/** Multiplies many rows by tensor cores: matmul_q8_many.cu. */
void bt_cuda_q8_many(bt_backend_t *be, const bt_weight_t *w, const BtQ8Rows &x,
                     uint32_t n_rows, bool add, float *out);
void bt_cuda_slots_q8_many(bt_backend_t *be, const bt_weight_t *w,
                           const BtQ8Rows &x, const struct BtSlotTiles &slots,
                           float *out);

#endif
