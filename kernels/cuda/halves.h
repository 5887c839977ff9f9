/* SPDX-License-Identifier: Apache-2.0 */
/** @file halves.h  Rows converted to 16 bits, for tensor core products. */
#ifndef BT_KERNELS_CUDA_HALVES_H
#define BT_KERNELS_CUDA_HALVES_H

#include "kernels/cuda/steps.h"

/** Rows in 16 bits: bf16 for BF16 weights; for F16 weights f16 of the row times
 *  a power of two that brings its largest finite magnitude to 2^14 .. 2^15 (at
 *  most times 2^126): no value becomes infinite, and few become subnormal. */
struct BtHalves {
    const uint16_t *halves; /* (n_rows, row_halves), zeros behind n_in */
    uint32_t row_halves;    /* a multiple of 8 */
    const float *factors;   /* (n_rows): factor of the sums; NULL: BF16 */
};

/** Returns the scratch bytes for BtHalves. */
size_t bt_cuda_halves_bytes(uint32_t n_rows, uint32_t n_in);
/** Converts rows for a product with @a w, in the back end's scratch. */
BtHalves bt_cuda_halves(bt_backend_t *be, const bt_weight_t *w,
                        const BtStepRows &from, uint32_t n_rows);

#endif
