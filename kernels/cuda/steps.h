/* SPDX-License-Identifier: Apache-2.0 */
/** @file steps.h  Matrix products with the fused steps before and after
 *  them. */
#ifndef BT_KERNELS_CUDA_STEPS_H
#define BT_KERNELS_CUDA_STEPS_H

#include "kernels/cuda/device.h"
#include "kernels/cuda/q8.h"
#include "kernels/pack/pack.h"

struct BtSlotTiles; /* tiles.h */
struct BtHalves;    /* halves.h */

enum BtRowsKind {
    BT_ROWS_PLAIN,
    BT_ROWS_NORM,  /**< rmsnorm(x, norm, eps) */
    BT_ROWS_GATED, /**< activate(x), gated SILU, x (R, 2 n_in) */
};

/** Input rows of a product. */
struct BtStepRows {
    BtRowsKind kind;
    const float *x;
    const float *norm; /* (n_in) */
    float eps;
};

/** Stores @a sum to *p, or adds it. */
__device__ __forceinline__ void bt_put_sum(float *p, float sum, bool add)
{
    bt_store(p, add ? __fadd_rn(bt_load(p), sum) : sum);
}

/** Returns the scratch bytes for rows of 8 bits. */
size_t bt_cuda_q8_bytes(uint32_t n_rows, uint32_t n_in);
/** Quantizes rows to 8 bits for a product with @a w, in the back end's
 *  scratch. */
BtQ8Rows bt_cuda_quantize(bt_backend_t *be, const bt_weight_t *w,
                          const BtStepRows &from, uint32_t n_rows);

/** Multiplies rows with quantized weights, with F16, BF16 and E4M3 weights in
 *  the tensor profile, and with other weights: out (n_rows, n_out), overwritten
 *  or (@a add) added to. n_rows > 0; scratch was reserved. */
void bt_cuda_matmul_q8(bt_backend_t *be, const bt_weight_t *w,
                       const BtStepRows &from, uint32_t n_rows, bool add,
                       float *out);
void bt_cuda_matmul_tensor(bt_backend_t *be, const bt_weight_t *w,
                           const BtStepRows &from, uint32_t n_rows, bool add,
                           float *out);
void bt_cuda_matmul_dense(bt_backend_t *be, const bt_weight_t *w,
                          const BtStepRows &from, uint32_t n_rows, bool add,
                          float *out);

/** Returns true when the tensor profile defines products with a weight. */
bool bt_cuda_goes_by_tensor(bt_backend_t *be, const bt_weight_t *w);

/** Multiplies slots with their experts' matrices, the same three ways: out by
 *  slot. @a x are the rows as the product takes them. */
void bt_cuda_slots_q8(bt_backend_t *be, const bt_weight_t *w, const BtQ8Rows &x,
                      const BtSlotTiles &slots, float *out);
void bt_cuda_slots_tensor(bt_backend_t *be, const bt_weight_t *w,
                          const BtHalves &x, const BtSlotTiles &slots,
                          float *out);
void bt_cuda_slots_dense(bt_backend_t *be, const bt_weight_t *w, const float *x,
                         const BtSlotTiles &slots, float *out);

/** Returns the scratch bytes of the tables of tiles, behind rows as products
 *  take them, in matmul_experts(). */
size_t bt_cuda_tiles_bytes(uint32_t max_rows);

#endif
