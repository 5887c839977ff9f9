/* SPDX-License-Identifier: Apache-2.0 */
/* Quantizes rows to 8 bits (kernels.h, matmul()), unchanged, normalized, or
 * gated: fused preparation of a product of quantized weights. */
#include <cmath>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/q8.h"
#include "kernels/cuda/steps.h"
#include "kernels/cuda/sums.h"
#include "kernels/formula.h"

namespace
{

const uint32_t kThreads = 256;
const uint32_t kAllLanes = 0xffffffffu;

/* Destination of codes and groups, and values recorded per group. */
struct Q8Out {
    uint32_t *codes;
    uint4 *groups;
    uint32_t bias;
    BtQ8Rest rest;
};

__device__ __forceinline__ uint32_t magnitude(float x)
{
    return bt_f32_bits(x) & 0x7fffffffu;
}

__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b)
{
    return (a > b) ? a : b;
}

__device__ __forceinline__ int32_t code_of(float x, float inverse)
{
    float v = __fmul_rn(x, inverse);

    v = (v > -127.0f) ? v : -127.0f; /* NaN too */
    v = (v < 127.0f) ? v : 127.0f;
    return static_cast<int32_t>(rintf(v));
}

/* A group's scales and sums of codes: of the first half, then of the second. */
__device__ __forceinline__ uint4 group_of(const Q8Out &to, float scale,
                                          float other_scale, int32_t sum,
                                          int32_t other_sum)
{
    const float low = static_cast<float>(sum);
    const float high = static_cast<float>(other_sum);
    uint4 group = {bt_f32_bits(scale), bt_f32_bits(other_scale), 0, 0};

    if (to.rest == BT_Q8_STARTS) {
        group.z = 0u - to.bias * static_cast<uint32_t>(sum);
        group.w = 0u - to.bias * static_cast<uint32_t>(other_sum);
    } else if (to.rest == BT_Q8_SUM) {
        group.z = bt_f32_bits(fmaf(other_scale, high, __fmul_rn(scale, low)));
    } else {
        group.z = bt_f32_bits(__fmul_rn(scale, low));
        group.w = bt_f32_bits(__fmul_rn(other_scale, high));
    }
    return group;
}

/* Quantizes the four values of number @a quad, if they exist (mine): a half is
 * four lanes and a group eight, whose quads all exist or none. By the whole
 * warp. */
__device__ __forceinline__ void quantize_four(const Q8Out &to, float4 v,
                                              bool mine, size_t quad)
{
    uint32_t most;
    float max, inverse, scale, other_scale;
    int32_t c[4], sum, other_sum;

    most = larger(larger(magnitude(v.x), magnitude(v.y)),
                  larger(magnitude(v.z), magnitude(v.w)));
    most = larger(most, __shfl_xor_sync(kAllLanes, most, 1));
    most = larger(most, __shfl_xor_sync(kAllLanes, most, 2));
    max = bt_f32_from_bits(most);
    inverse = __fdiv_rn(127.0f, max);
    if (!(max >= 0x1p-100f) || (most >= 0x7f800000u)) {
        max = bt_f32_from_bits((most >= 0x7f800000u) ? 0x7fc00000u : 0u);
        inverse = 0.0f;
    }
    scale = __fdiv_rn(max, 127.0f);
    c[0] = code_of(v.x, inverse);
    c[1] = code_of(v.y, inverse);
    c[2] = code_of(v.z, inverse);
    c[3] = code_of(v.w, inverse);
    sum = c[0] + c[1] + c[2] + c[3];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    other_sum = __shfl_xor_sync(kAllLanes, sum, 4);
    other_scale = __shfl_xor_sync(kAllLanes, scale, 4);
    if (mine) {
        bt_store(to.codes + quad,
                 (static_cast<uint32_t>(c[0]) & 0xffu) |
                     (static_cast<uint32_t>(c[1]) & 0xffu) << 8 |
                     (static_cast<uint32_t>(c[2]) & 0xffu) << 16 |
                     static_cast<uint32_t>(c[3]) << 24);
    }
    if (mine && (quad % 8 == 0)) {
        bt_store(to.groups + quad / 8,
                 group_of(to, scale, other_scale, sum, other_sum));
    }
}

__device__ __forceinline__ float4 load_four(const float *x, size_t quad)
{
    return bt_load(reinterpret_cast<const float4 *>(x) + quad);
}

/* Rows are contiguous: a thread need not know its row. */
__global__ void quantize_kernel(const float *x, size_t n_quads, Q8Out to)
{
    const size_t quad =
        static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const bool mine = quad < n_quads;
    float4 v = {0.0f, 0.0f, 0.0f, 0.0f};

    if (mine) {
        v = load_four(x, quad);
    }
    quantize_four(to, v, mine, quad);
}

__device__ __forceinline__ float gated(float gate, float up)
{
    return __fmul_rn(bt_activated(BT_ACT_SILU, gate), up);
}

/* silu(gate) * up; a row has its gates, then its ups, row_quads of each. */
__global__ void quantize_gated_kernel(const float *x, uint32_t row_quads,
                                      size_t n_quads, Q8Out to)
{
    const size_t quad =
        static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const bool mine = quad < n_quads;
    float4 v = {0.0f, 0.0f, 0.0f, 0.0f};

    if (mine) {
        const size_t at = quad + quad / row_quads * row_quads;
        const float4 gate = load_four(x, at);
        const float4 up = load_four(x, at + row_quads);

        v.x = gated(gate.x, up.x);
        v.y = gated(gate.y, up.y);
        v.z = gated(gate.z, up.z);
        v.w = gated(gate.w, up.w);
    }
    quantize_four(to, v, mine, quad);
}

/* rmsnorm() of a row. One block per row. */
__global__ void quantize_norm_kernel(const float *x, const float *norm,
                                     float eps, uint32_t dim, Q8Out to)
{
    const size_t row = blockIdx.x;
    const uint32_t n = dim / 4;
    const float factor = bt_rms_factor(x + row * dim, dim, eps);

    for (uint32_t begin = 0; begin < n; begin += kThreads) {
        const uint32_t quad = begin + threadIdx.x;
        const bool mine = quad < n;
        float4 v = {0.0f, 0.0f, 0.0f, 0.0f};

        if (mine) {
            const float4 weight = load_four(norm, quad);

            v = load_four(x, row * n + quad);
            v.x = __fmul_rn(__fmul_rn(v.x, factor), weight.x);
            v.y = __fmul_rn(__fmul_rn(v.y, factor), weight.y);
            v.z = __fmul_rn(__fmul_rn(v.z, factor), weight.z);
            v.w = __fmul_rn(__fmul_rn(v.w, factor), weight.w);
        }
        quantize_four(to, v, mine, row * n + quad);
    }
}

} // namespace

size_t bt_cuda_q8_bytes(uint32_t n_rows, uint32_t n_in)
{
    return static_cast<size_t>(n_rows) *
           (n_in + n_in / BT_PACK_GROUP * sizeof(uint4));
}

BtQ8Rows bt_cuda_quantize(bt_backend_t *be, const bt_weight_t *w,
                          const BtStepRows &from, uint32_t n_rows)
{
    const bt_pack_format_t format = bt_pack_format(w->pack);
    const uint32_t row_quads = w->n_in / 4;
    const size_t n_quads = static_cast<size_t>(n_rows) * row_quads;
    const size_t blocks = (n_quads + kThreads - 1) / kThreads;
    Q8Out to = {};

    to.codes = static_cast<uint32_t *>(bt_cuda_scratch(be));
    to.groups = reinterpret_cast<uint4 *>(to.codes + n_quads);
    to.bias = format.bias;
    to.rest = !format.min ? BT_Q8_STARTS : format.two ? BT_Q8_SUMS : BT_Q8_SUM;
    switch (from.kind) {
    case BT_ROWS_NORM:
        BT_LAUNCH(quantize_norm_kernel, n_rows, kThreads, be, from.x, from.norm,
                  from.eps, w->n_in, to);
        break;
    case BT_ROWS_GATED:
        BT_LAUNCH(quantize_gated_kernel, blocks, kThreads, be, from.x,
                  row_quads, n_quads, to);
        break;
    case BT_ROWS_PLAIN:
        BT_LAUNCH(quantize_kernel, blocks, kThreads, be, from.x, n_quads, to);
        break;
    }
    return BtQ8Rows{to.codes, to.groups};
}
