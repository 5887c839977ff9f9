/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on rows: norms and element-wise operations. The numeric rules of
 * kernels.h hold: fixed order of sums, fmaf, no fast math; the bits are those
 * of the reference. */
#include <cmath>
#include <cstring>

#include "kernels/batch.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/order.h"
#include "kernels/cuda/sums.h"
#include "kernels/formula.h"

namespace
{

const uint32_t kThreads = 256;

/* ---- norms ---- */

__device__ void rms_row(const float *x, const float *weight, float eps,
                        uint32_t dim, float *out)
{
    const float factor = bt_rms_factor(x, dim, eps);

    for (uint32_t i = threadIdx.x; i < dim; i += blockDim.x) {
        bt_store(out + i, __fmul_rn(__fmul_rn(bt_load(x + i), factor),
                                    bt_load(weight + i)));
    }
}

/* One block per row. */
__global__ void rmsnorm_kernel(const float *x, const float *weight, float eps,
                               uint32_t dim, float *out)
{
    const size_t at = static_cast<size_t>(blockIdx.x) * dim;

    rms_row(x + at, weight, eps, dim, out + at);
}

void rmsnorm(bt_backend_t *be, const float *x, const float *weight, float eps,
             uint32_t n_rows, uint32_t dim, float *out)
{
    if (n_rows > 0) {
        BT_LAUNCH(rmsnorm_kernel, n_rows, kThreads, be, x, weight, eps, dim,
                  out);
    }
}

/* One block per head of a row. */
__global__ void head_norm_kernel(float *x, const float *weight, float eps,
                                 size_t row_floats, uint32_t n_heads,
                                 uint32_t dim)
{
    const size_t row = blockIdx.x / n_heads;
    const size_t head = blockIdx.x % n_heads;
    float *values = x + row * row_floats + head * dim;

    rms_row(values, weight, eps, dim, values);
}

void head_norm(bt_backend_t *be, float *x, const float *weight, float eps,
               uint32_t n_rows, size_t row_floats, size_t at, uint32_t n_heads,
               uint32_t dim)
{
    if ((n_rows > 0) && (n_heads > 0)) {
        BT_LAUNCH(head_norm_kernel, n_rows * n_heads, kThreads, be, x + at,
                  weight, eps, row_floats, n_heads, dim);
    }
}

__global__ void layer_norm_kernel(const float *x, const float *weight,
                                  const float *bias, float eps, uint32_t dim,
                                  float *out)
{
    const float *row = x + static_cast<size_t>(blockIdx.x) * dim;
    float *out_row = out + static_cast<size_t>(blockIdx.x) * dim;
    const float sum = bt_lane_sum(
        dim, [=](uint32_t i) { return bt_load(row + i); },
        [](float value, float before) { return __fadd_rn(before, value); });
    const float mean = __fdiv_rn(sum, static_cast<float>(dim));
    const float squares = bt_lane_sum(
        dim, [=](uint32_t i) { return __fadd_rn(bt_load(row + i), -mean); },
        [](float above, float before) { return fmaf(above, above, before); });
    const float factor = bt_inverse_root(squares, dim, eps);

    for (uint32_t i = threadIdx.x; i < dim; i += blockDim.x) {
        const float above = __fadd_rn(bt_load(row + i), -mean);
        float y = __fmul_rn(__fmul_rn(above, factor), bt_load(weight + i));

        if (bias != nullptr) {
            y = __fadd_rn(y, bt_load(bias + i));
        }
        bt_store(out_row + i, y);
    }
}

void layer_norm(bt_backend_t *be, const float *x, const float *weight,
                const float *bias, float eps, uint32_t n_rows, uint32_t dim,
                float *out)
{
    if (n_rows > 0) {
        BT_LAUNCH(layer_norm_kernel, n_rows, kThreads, be, x, weight, bias, eps,
                  dim, out);
    }
}

/* ---- element-wise ---- */

__device__ size_t value_index()
{
    return static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

unsigned blocks_for(size_t n)
{
    return static_cast<unsigned>((n + kThreads - 1) / kThreads);
}

__global__ void add_kernel(float *x, const float *y, size_t n)
{
    const size_t i = value_index();

    if (i < n) {
        bt_store(x + i, __fadd_rn(bt_load(x + i), bt_load(y + i)));
    }
}

void add(bt_backend_t *be, float *x, const float *y, size_t n)
{
    if (n > 0) {
        BT_LAUNCH(add_kernel, blocks_for(n), kThreads, be, x, y, n);
    }
}

__global__ void add_bias_kernel(float *x, const float *bias, uint32_t dim,
                                size_t n)
{
    const size_t i = value_index();

    if (i < n) {
        bt_store(x + i, __fadd_rn(bt_load(x + i), bt_load(bias + i % dim)));
    }
}

void add_bias(bt_backend_t *be, float *x, const float *bias, uint32_t n_rows,
              uint32_t dim)
{
    const size_t n = static_cast<size_t>(n_rows) * dim;

    if (n > 0) {
        BT_LAUNCH(add_bias_kernel, blocks_for(n), kThreads, be, x, bias, dim,
                  n);
    }
}

__global__ void scale_kernel(float *x, float factor, size_t n)
{
    const size_t i = value_index();

    if (i < n) {
        bt_store(x + i, __fmul_rn(bt_load(x + i), factor));
    }
}

void scale(bt_backend_t *be, float *x, float factor, size_t n)
{
    if (n > 0) {
        BT_LAUNCH(scale_kernel, blocks_for(n), kThreads, be, x, factor, n);
    }
}

__global__ void soft_cap_kernel(float *x, float cap, float factor, size_t n)
{
    const size_t i = value_index();

    if (i < n) {
        bt_store(x + i, bt_soft_capped(bt_load(x + i), cap, factor));
    }
}

void soft_cap(bt_backend_t *be, float *x, float cap, size_t n)
{
    const float factor = 2.0f / cap;

    if (n > 0) {
        BT_LAUNCH(soft_cap_kernel, blocks_for(n), kThreads, be, x, cap, factor,
                  n);
    }
}

__global__ void clamp_kernel(float *x, float limit, size_t n)
{
    const size_t i = value_index();

    if (i < n) {
        float value = bt_load(x + i);

        value = (value < -limit) ? -limit : value;
        bt_store(x + i, (value > limit) ? limit : value);
    }
}

void clamp(bt_backend_t *be, float *x, float limit, size_t n)
{
    if (n > 0) {
        BT_LAUNCH(clamp_kernel, blocks_for(n), kThreads, be, x, limit, n);
    }
}

__global__ void activate_kernel(bt_activation_t act, bool gated, const float *x,
                                uint32_t dim, size_t n, float *out)
{
    const size_t i = value_index();

    if (i < n) {
        const size_t at = gated ? i / dim * 2 * dim + i % dim : i;
        float y = bt_activated(act, bt_load(x + at));

        if (gated) {
            y = __fmul_rn(y, bt_gate_factor(act, bt_load(x + at + dim)));
        }
        bt_store(out + i, y);
    }
}

void activate(bt_backend_t *be, bt_activation_t act, bool gated, const float *x,
              uint32_t n_rows, uint32_t dim, float *out)
{
    const size_t n = static_cast<size_t>(n_rows) * dim;

    if (n > 0) {
        BT_LAUNCH(activate_kernel, blocks_for(n), kThreads, be, act, gated, x,
                  dim, n, out);
    }
}

/* ---- by the tables of the batch ---- */

/* One block per row. */
__global__ void scale_positions_kernel(float *x, const float *factors,
                                       const uint32_t *positions,
                                       size_t row_floats, uint32_t dim)
{
    const float factor = bt_load(factors + bt_load(positions + blockIdx.x));
    float *row = x + blockIdx.x * row_floats;

    for (uint32_t i = threadIdx.x; i < dim; i += blockDim.x) {
        bt_store(row + i, __fmul_rn(bt_load(row + i), factor));
    }
}

void scale_positions(bt_backend_t *be, float *x, const float *factors,
                     const bt_batch_t *batch, size_t row_floats, uint32_t dim)
{
    const uint32_t *positions =
        bt_cuda_words(be) + bt_batch_layout(batch).position;

    if (batch->n_rows > 0) {
        BT_LAUNCH(scale_positions_kernel, batch->n_rows, kThreads, be, x,
                  factors, positions, row_floats, dim);
    }
}

/* One block per row of the result. */
__global__ void gather_rows_kernel(const float *x, const uint32_t *rows,
                                   uint32_t dim, float *out)
{
    const float *row =
        x + static_cast<size_t>(bt_load(rows + blockIdx.x)) * dim;
    float *out_row = out + static_cast<size_t>(blockIdx.x) * dim;

    for (uint32_t i = threadIdx.x; i < dim; i += blockDim.x) {
        bt_store(out_row + i, bt_load(row + i));
    }
}

void gather_rows(bt_backend_t *be, const float *x, const bt_batch_t *batch,
                 uint32_t dim, float *out)
{
    const uint32_t *rows = bt_cuda_words(be) + bt_batch_layout(batch).logit_row;

    if (batch->n_logit_rows > 0) {
        BT_LAUNCH(gather_rows_kernel, batch->n_logit_rows, kThreads, be, x,
                  rows, dim, out);
    }
}

/* One block per row. */
__global__ void copy_columns_kernel(const float *x, uint32_t x_dim,
                                    uint32_t dim, float *out, uint32_t out_dim)
{
    const float *row = x + static_cast<size_t>(blockIdx.x) * x_dim;
    float *out_row = out + static_cast<size_t>(blockIdx.x) * out_dim;

    for (uint32_t i = threadIdx.x; i < dim; i += blockDim.x) {
        bt_store(out_row + i, bt_load(row + i));
    }
}

void copy_columns(bt_backend_t *be, const float *x, uint32_t n_rows,
                  uint32_t dim, float *out, uint32_t out_dim, uint32_t at)
{
    if ((n_rows > 0) && (dim > 0)) {
        BT_LAUNCH(copy_columns_kernel, n_rows, kThreads, be, x, dim, dim,
                  out + at, out_dim);
    }
}

void cut_columns(bt_backend_t *be, const float *x, uint32_t n_rows,
                 uint32_t x_dim, uint32_t at, uint32_t dim, float *out)
{
    if ((n_rows > 0) && (dim > 0)) {
        BT_LAUNCH(copy_columns_kernel, n_rows, kThreads, be, x + at, x_dim, dim,
                  out, dim);
    }
}

/* One block per row. */
__global__ void argmax_kernel(const float *x, uint32_t dim, uint32_t *ids)
{
    BT_SHARED(uint64_t, parts, kThreads / 32);
    const uint64_t best =
        bt_best_rank(x + static_cast<size_t>(blockIdx.x) * dim, dim, parts);

    if (threadIdx.x == 0) {
        bt_store(ids + blockIdx.x,
                 (best == BT_RANK_NONE) ? 0 : bt_rank_id(best));
    }
}

void argmax(bt_backend_t *be, const float *x, uint32_t n_rows, uint32_t dim,
            uint32_t *ids)
{
    if (n_rows > 0) {
        BT_LAUNCH(argmax_kernel, n_rows, kThreads, be, x, dim, ids);
    }
}

/* A thread per row. Overwrites the uploaded tokens in the tables. */
__global__ void take_tokens_kernel(const uint32_t *from, const uint32_t *ids,
                                   uint32_t n_rows, uint32_t *tokens)
{
    const uint32_t r = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t i = (r < n_rows) ? bt_load(from + r) : UINT32_MAX;

    if (i != UINT32_MAX) {
        bt_store(tokens + r, bt_load(ids + i));
    }
}

void take_tokens(bt_backend_t *be, const bt_batch_t *batch, const uint32_t *ids)
{
    const bt_batch_layout_t at = bt_batch_layout(batch);
    uint32_t *const words = bt_cuda_words(be);

    if ((batch->from_ids != nullptr) && (batch->n_rows > 0)) {
        BT_LAUNCH(take_tokens_kernel, (batch->n_rows + kThreads - 1) / kThreads,
                  kThreads, be, words + at.from_id, ids, batch->n_rows,
                  words + at.token);
    }
}

} // namespace

extern "C" void bt_cuda_rows_ops(bt_kernels_ops_t *ops)
{
    ops->rmsnorm = rmsnorm;
    ops->head_norm = head_norm;
    ops->layer_norm = layer_norm;
    ops->add = add;
    ops->add_bias = add_bias;
    ops->scale = scale;
    ops->soft_cap = soft_cap;
    ops->clamp = clamp;
    ops->activate = activate;
    ops->scale_positions = scale_positions;
    ops->gather_rows = gather_rows;
    ops->copy_columns = copy_columns;
    ops->cut_columns = cut_columns;
    ops->argmax = argmax;
    ops->take_tokens = take_tokens;
}
