/* SPDX-License-Identifier: Apache-2.0 */
/** @file halves.h  Rows of 16 bits, for products by tensor cores. */
#ifndef BT_KERNELS_CUDA_HALVES_H
#define BT_KERNELS_CUDA_HALVES_H

#include "kernels/cuda/steps.h"

/** For BF16 weights bf16; for F16 weights f16 of the row times a power of two,
 *  so that its largest finite magnitude is from 2^14 up to 2^15 (or what 2^126
 *  makes of it): none becomes infinite, and few become subnormal. */
struct BtHalves {
    const uint16_t *halves; /* (n_rows, row_halves), zeros behind n_in */
    uint32_t row_halves;    /* a multiple of 8 */
    const float *factors;   /* (n_rows): what a sum is times; NULL: BF16 */
};

/** Bytes of scratch for them. */
size_t bt_cuda_halves_bytes(uint32_t n_rows, uint32_t n_in);
/** For a product with @a w, in the back end's scratch. */
BtHalves bt_cuda_halves(bt_backend_t *be, const bt_weight_t *w,
                        const BtStepRows &from, uint32_t n_rows);

#endif
