/* SPDX-License-Identifier: Apache-2.0 */
/* Packed weights on the device, in the CPU's layout (pack.h), and reads of
 * single rows. */
#include <cmath>
#include <exception>
#include <thread>

#include "kernels/batch.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/halves.h"
#include "kernels/cuda/steps.h"
#include "kernels/cuda/unpack.h"
#include "kernels/half.h"

namespace
{

const uint32_t kThreads = 256;
const size_t kAloneBytes = 1 << 20; /* minimum bytes per thread */
const uint32_t kMostThreads = 64;

/* ---- packing and upload ---- */

/* Panels of share @a i of n. */
void fill_share(const bt_weight_t *w, const void *data, uint32_t i, uint32_t n)
{
    const uint64_t n_panels = w->n_panels;

    bt_pack_panels(w, data, static_cast<uint32_t>(n_panels * i / n),
                   static_cast<uint32_t>(n_panels * (i + 1) / n));
}

/* Packs with several host threads; the work of threads that cannot start is
 * done here. */
void fill(bt_backend_t *be, const bt_weight_t *w, const void *data)
{
    const size_t most = 1 + w->n_panels * w->panel_bytes / kAloneBytes;
    const size_t wanted = bt_cuda_threads(be);
    std::thread threads[kMostThreads];
    uint32_t n = kMostThreads;

    n = (wanted < n) ? static_cast<uint32_t>(wanted) : n;
    n = (most < n) ? static_cast<uint32_t>(most) : n;
    for (uint32_t i = 1; i < n; i++) {
        try {
            threads[i] = std::thread(fill_share, w, data, i, n);
        } catch (const std::exception &) {
            fill_share(w, data, i, n);
        }
    }
    fill_share(w, data, 0, n);
    for (std::thread &thread : threads) {
        if (thread.joinable()) {
            thread.join();
        }
    }
}

/* Reserves scratch for products with a weight. */
bt_status_t reserve(bt_backend_t *be, const bt_weight_t *w)
{
    const uint32_t n_rows = bt_cuda_max_rows(be);
    size_t bytes = bt_cuda_q8_bytes(n_rows, w->n_in);

    if (bt_cuda_goes_by_tensor(be, w)) {
        bytes = bt_cuda_halves_bytes(n_rows, w->n_in);
    } else if (bt_pack_is_dense(w->pack)) {
        bytes = static_cast<size_t>(n_rows) * w->n_in * sizeof(float);
    }
    return bt_cuda_scratch_reserve(be, bytes + bt_cuda_tiles_bytes(n_rows));
}

void weight_free(bt_backend_t *be, bt_weight_t *w)
{
    if (w == nullptr) {
        return;
    }
    if (w->own == nullptr) { /* then data is the device's */
        be->ops->buffer_free(be, const_cast<uint8_t *>(w->data));
    }
    bt_pack_destroy(w);
}

/* Uploads the bytes of a host weight to the device. On failure everything is
 * freed. */
bt_status_t move_there(bt_backend_t *be, bt_weight_t *w)
{
    void *there = nullptr;
    bt_status_t status = reserve(be, w);

    if (status == BT_OK) {
        status =
            bt_cuda_upload(be, w->data, w->n_panels * w->panel_bytes, &there);
    }
    if (status != BT_OK) {
        bt_pack_destroy(w);
        return status;
    }
    bt_pack_move(w, there);
    return BT_OK;
}

bt_status_t weight_pack_here(bt_backend_t *be, bt_ktype_t type, uint32_t n_out,
                             uint32_t n_in, const void *data,
                             bt_weight_t **weight_p)
{
    bt_weight_t *w = nullptr;
    const bt_status_t status = bt_pack_create(type, n_out, n_in, &w);

    if (status == BT_OK) {
        fill(be, w, data);
        *weight_p = w;
    }
    return status;
}

bt_status_t weight_pack(bt_backend_t *be, bt_ktype_t type, uint32_t n_out,
                        uint32_t n_in, const void *data, bt_weight_t **weight_p)
{
    bt_weight_t *w = nullptr;
    bt_status_t status = weight_pack_here(be, type, n_out, n_in, data, &w);

    if (status == BT_OK) {
        status = move_there(be, w);
    }
    if (status == BT_OK) {
        *weight_p = w;
    }
    return status;
}

const void *weight_data(const bt_weight_t *w)
{
    return w->own;
}

bt_status_t weight_adopt(bt_backend_t *be, bt_ktype_t type, uint32_t n_out,
                         uint32_t n_in, const void *data, size_t bytes,
                         bt_weight_t **weight_p)
{
    bt_weight_t *w = nullptr;
    bt_status_t status = bt_pack_adopt(type, n_out, n_in, data, bytes, &w);

    if (status == BT_OK) {
        status = move_there(be, w);
    }
    if (status == BT_OK) {
        *weight_p = w;
    }
    return status;
}

/* ---- single rows ---- */

/* The value of k of an output, as the dequantizer has it. */
template <bt_pack_t P>
__device__ float value_of(const BtMatrix &m, uint32_t output, uint32_t k)
{
    constexpr bt_pack_format_t format = BtPack<P>::format;
    const uint32_t lane = output % BT_PANEL;
    const uint32_t g = k / BT_PACK_GROUP;
    const uint8_t *block =
        m.data + output / BT_PANEL * m.panel_bytes +
        static_cast<size_t>(g / format.n_groups) * format.bytes;
    const bt_pack_offsets_t at =
        bt_pack_offsets_of(format, g % format.n_groups);
    const uint32_t half = k % BT_PACK_GROUP / 16 * (format.two ? 1 : 0) *
                          bt_pack_half_bytes(format);
    const BtCodes<P> codes = bt_load_codes<P>(block + at.codes, lane);
    const uint32_t quad = bt_quad<P>(m, codes, k % BT_PACK_GROUP / 4);
    const int32_t code = static_cast<int8_t>(quad >> (k % 4 * 8)) -
                         static_cast<int32_t>(BtPack<P>::bias);
    const float scale = bt_factor<P>(block + at.scales + half,
                                     bt_unit<P>(m, block, 0, lane), lane);
    const float min = format.min
                          ? bt_factor<P>(block + at.mins + half,
                                         bt_unit<P>(m, block, 1, lane), lane)
                          : -0.0f;

    return __fadd_rn(__fmul_rn(scale, static_cast<float>(code)), min);
}

__device__ float e4m3_value(const uint8_t *panel, uint32_t lane, uint32_t k)
{
    const uint8_t *block =
        panel + static_cast<size_t>(k / BT_E4M3_BLOCK) * BT_E4M3_BYTES;

    return __fmul_rn(
        bt_e4m3_weight(bt_load(block + bt_e4m3_at(k % BT_E4M3_BLOCK, lane))),
        bt_load(reinterpret_cast<const float *>(block) + lane));
}

__device__ float dense_value(const BtMatrix &m, bt_pack_t pack, uint32_t output,
                             uint32_t k)
{
    const uint8_t *panel = m.data + output / BT_PANEL * m.panel_bytes;
    const uint32_t lane = output % BT_PANEL;
    const size_t i = static_cast<size_t>(k) * BT_PANEL + lane;

    switch (pack) {
    case BT_PACK_E4M3:
    case BT_PACK_E4M3_BF16:
        return e4m3_value(panel, lane, k);
    case BT_PACK_F16:
        return bt_half_to_float(
            bt_load(reinterpret_cast<const uint16_t *>(panel) + i));
    case BT_PACK_BF16:
        return bt_bf16_to_f32(bt_load(
            reinterpret_cast<const uint16_t *>(panel) +
            (static_cast<size_t>(k / 2) * BT_PANEL + lane) * 2 + k % 2));
    default:
        return bt_load(reinterpret_cast<const float *>(panel) + i);
    }
}

/* Copies row numbers[r] of the matrix to row r, or adds it (@a add). One block
 * per row. */
template <bt_pack_t P>
__global__ void take_rows_kernel(BtMatrix m, const uint32_t *numbers, bool add,
                                 float *out)
{
    const uint32_t output = bt_load(numbers + blockIdx.x);
    float *row = out + static_cast<size_t>(blockIdx.x) * m.n_in;

    for (uint32_t k = threadIdx.x; k < m.n_in; k += blockDim.x) {
        bt_put_sum(row + k, value_of<P>(m, output, k), add);
    }
}

__global__ void take_dense_rows_kernel(BtMatrix m, bt_pack_t pack,
                                       const uint32_t *numbers, bool add,
                                       float *out)
{
    const uint32_t output = bt_load(numbers + blockIdx.x);
    float *row = out + static_cast<size_t>(blockIdx.x) * m.n_in;

    for (uint32_t k = threadIdx.x; k < m.n_in; k += blockDim.x) {
        bt_put_sum(row + k, dense_value(m, pack, output, k), add);
    }
}

void take_rows(bt_backend_t *be, const bt_weight_t *w, const uint32_t *numbers,
               uint32_t n_rows, bool add, float *out)
{
    const BtMatrix m = bt_matrix_of(w);

    if (n_rows == 0) {
        return;
    }
    if (bt_pack_is_dense(w->pack)) {
        BT_LAUNCH(take_dense_rows_kernel, n_rows, kThreads, be, m, w->pack,
                  numbers, add, out);
        return;
    }
#define BT_TAKE(P) \
    BT_LAUNCH((take_rows_kernel<P>), n_rows, kThreads, be, m, numbers, add, out)
    BT_CUDA_EACH_PACK(w->pack, BT_TAKE)
#undef BT_TAKE
}

void embed(bt_backend_t *be, const bt_weight_t *w, const bt_batch_t *batch,
           float *out)
{
    take_rows(be, w, bt_cuda_words(be) + bt_batch_layout(batch).token,
              batch->n_rows, false, out);
}

void add_positions(bt_backend_t *be, const bt_weight_t *w,
                   const bt_batch_t *batch, float *x)
{
    take_rows(be, w, bt_cuda_words(be) + bt_batch_layout(batch).position,
              batch->n_rows, true, x);
}

void step(bt_backend_t *be, const bt_weight_t *w, const BtStepRows &from,
          uint32_t n_rows, bool add, float *out)
{
    if (n_rows == 0) {
        return;
    }
    if (bt_cuda_goes_by_tensor(be, w)) {
        bt_cuda_matmul_tensor(be, w, from, n_rows, add, out);
    } else if (bt_pack_is_dense(w->pack)) {
        bt_cuda_matmul_dense(be, w, from, n_rows, add, out);
    } else {
        bt_cuda_matmul_q8(be, w, from, n_rows, add, out);
    }
}

void matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
            uint32_t n_rows, float *out)
{
    step(be, w, BtStepRows{BT_ROWS_PLAIN, x, nullptr, 0.0f}, n_rows, false,
         out);
}

void norm_matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
                 const float *norm, float eps, uint32_t n_rows, float *out)
{
    step(be, w, BtStepRows{BT_ROWS_NORM, x, norm, eps}, n_rows, false, out);
}

void matmul_add(bt_backend_t *be, const bt_weight_t *w, const float *a,
                uint32_t n_rows, float *x)
{
    step(be, w, BtStepRows{BT_ROWS_PLAIN, a, nullptr, 0.0f}, n_rows, true, x);
}

void silu_matmul_add(bt_backend_t *be, const bt_weight_t *w,
                     const float *gate_up, uint32_t n_rows, float *x)
{
    step(be, w, BtStepRows{BT_ROWS_GATED, gate_up, nullptr, 0.0f}, n_rows, true,
         x);
}

} // namespace

bool bt_cuda_goes_by_tensor(bt_backend_t *be, const bt_weight_t *w)
{
    return (bt_cuda_numerics(be) == BT_NUMERICS_TENSOR) &&
           ((w->pack == BT_PACK_F16) || (w->pack == BT_PACK_BF16) ||
            bt_pack_is_e4m3(w->pack));
}

extern "C" void bt_cuda_weights_ops(bt_kernels_ops_t *ops)
{
    ops->weight_pack = weight_pack;
    ops->weight_pack_here = weight_pack_here;
    ops->weight_data = weight_data;
    ops->weight_adopt = weight_adopt;
    ops->weight_free = weight_free;
    ops->weight_bytes = bt_pack_bytes;
    ops->embed = embed;
    ops->add_positions = add_positions;
    ops->matmul = matmul;
    ops->norm_matmul = norm_matmul;
    ops->matmul_add = matmul_add;
    ops->silu_matmul_add = silu_matmul_add;
}
