/* SPDX-License-Identifier: Apache-2.0 */
/* Converts rows to 16 bits, unchanged, normalized, or gated: fused preparation
 * of a tensor core product. One block per row. */
#include "kernels/cuda/halves.h"

#include <cmath>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/sums.h"
#include "kernels/formula.h"

namespace
{

const uint32_t kThreads = 256;
const uint32_t kAllLanes = 0xffffffffu;
const uint32_t kInfinity = 0x7f800000u;

/* Two adjacent values. */
struct Pair {
    float low, high;
};

/* Loads values k and k + 1; the last may have no partner. Rows of an even
 * number of values are read two at a time. */
__device__ __forceinline__ Pair load_pair(const float *row, uint32_t n_in,
                                          uint32_t k)
{
    Pair pair = {0.0f, 0.0f};

    if (n_in % 2 == 0) {
        const float2 two = bt_load(reinterpret_cast<const float2 *>(row + k));

        pair = {two.x, two.y};
    } else {
        pair.low = bt_load(row + k);
        if (k + 1 < n_in) {
            pair.high = bt_load(row + k + 1);
        }
    }
    return pair;
}

/* Source of a row's values. */
struct Source {
    const float *x, *norm;
    float factor; /* of rmsnorm() */
    uint32_t n_in;
};

template <BtRowsKind Kind>
__device__ __forceinline__ Pair pair_of(const Source &from, uint32_t k)
{
    Pair pair = load_pair(from.x, from.n_in, k);

    if (Kind == BT_ROWS_NORM) {
        const Pair norm = load_pair(from.norm, from.n_in, k);

        pair.low = __fmul_rn(__fmul_rn(pair.low, from.factor), norm.low);
        pair.high = __fmul_rn(__fmul_rn(pair.high, from.factor), norm.high);
    } else if (Kind == BT_ROWS_GATED) {
        const Pair up = load_pair(from.x + from.n_in, from.n_in, k);

        pair.low = __fmul_rn(bt_activated(BT_ACT_SILU, pair.low), up.low);
        pair.high = __fmul_rn(bt_activated(BT_ACT_SILU, pair.high), up.high);
    }
    return pair;
}

__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b)
{
    return (a > b) ? a : b;
}

/* Bits of a value's magnitude; 0 if it is not finite. */
__device__ __forceinline__ uint32_t finite_magnitude(float x)
{
    const uint32_t bits = bt_f32_bits(x) & 0x7fffffffu;

    return (bits < kInfinity) ? bits : 0;
}

/* Returns the largest value of all threads, by the block, which is synchronised
 * after it. */
__device__ __forceinline__ uint32_t largest_of_all(uint32_t most)
{
    BT_SHARED(uint32_t, of_warps, kThreads / 32);

    for (uint32_t lanes = 16; lanes > 0; lanes /= 2) {
        most = larger(most, __shfl_xor_sync(kAllLanes, most, lanes));
    }
    if (threadIdx.x % 32 == 0) {
        of_warps.set(threadIdx.x / 32, most);
    }
    BT_SYNC();
    most = 0;
    for (uint32_t i = 0; i < kThreads / 32; i++) {
        most = larger(most, of_warps.get(i));
    }
    return most;
}

/* Exponent of the power that scales a magnitude to 2^14 .. 2^15. */
__device__ __forceinline__ int32_t exponent_of(uint32_t most)
{
    const int32_t exponent = 14 + 127 - static_cast<int32_t>(most >> 23);

    return (most == 0) ? 0 : (exponent > 126) ? 126 : exponent;
}

__device__ __forceinline__ float power_of_two(int32_t exponent)
{
    return bt_f32_from_bits(static_cast<uint32_t>(exponent + 127) << 23);
}

template <BtRowsKind Kind, bool F16>
__global__ void halves_kernel(BtStepRows from, uint32_t n_in,
                              uint32_t row_halves, uint32_t *halves,
                              float *factors)
{
    const size_t row = blockIdx.x;
    const float *x = from.x + row * n_in * ((Kind == BT_ROWS_GATED) ? 2 : 1);
    const Source source = {
        x, from.norm,
        (Kind == BT_ROWS_NORM) ? bt_rms_factor(x, n_in, from.eps) : 0.0f, n_in};
    float power = 1.0f;

    if (F16) {
        uint32_t most = 0;
        int32_t exponent;

        for (uint32_t k = 2 * threadIdx.x; k < n_in; k += 2 * kThreads) {
            const Pair pair = pair_of<Kind>(source, k);

            most = larger(most, larger(finite_magnitude(pair.low),
                                       finite_magnitude(pair.high)));
        }
        exponent = exponent_of(largest_of_all(most));
        power = power_of_two(exponent);
        if (threadIdx.x == 0) {
            bt_store(factors + row, power_of_two(-exponent));
        }
    }
    for (uint32_t k = 2 * threadIdx.x; k < row_halves; k += 2 * kThreads) {
        Pair pair = {0.0f, 0.0f};
        uint32_t word;

        if (k < n_in) {
            pair = pair_of<Kind>(source, k);
        }
        if (F16) {
            word = bt_f32_to_f16(__fmul_rn(pair.low, power)) |
                   static_cast<uint32_t>(
                       bt_f32_to_f16(__fmul_rn(pair.high, power)))
                       << 16;
        } else {
            word = bt_f32_to_bf16(pair.low) |
                   static_cast<uint32_t>(bt_f32_to_bf16(pair.high)) << 16;
        }
        bt_store(halves + (row * row_halves + k) / 2, word);
    }
}

template <bool F16>
void make(bt_backend_t *be, const BtStepRows &from, uint32_t n_rows,
          uint32_t n_in, uint32_t row_halves, uint32_t *halves, float *factors)
{
    switch (from.kind) {
    case BT_ROWS_NORM:
        BT_LAUNCH((halves_kernel<BT_ROWS_NORM, F16>), n_rows, kThreads, be,
                  from, n_in, row_halves, halves, factors);
        break;
    case BT_ROWS_GATED:
        BT_LAUNCH((halves_kernel<BT_ROWS_GATED, F16>), n_rows, kThreads, be,
                  from, n_in, row_halves, halves, factors);
        break;
    case BT_ROWS_PLAIN:
        BT_LAUNCH((halves_kernel<BT_ROWS_PLAIN, F16>), n_rows, kThreads, be,
                  from, n_in, row_halves, halves, factors);
        break;
    }
}

uint32_t row_halves_of(uint32_t n_in)
{
    return (n_in + 7) / 8 * 8;
}

} // namespace

size_t bt_cuda_halves_bytes(uint32_t n_rows, uint32_t n_in)
{
    return static_cast<size_t>(n_rows) *
           (static_cast<size_t>(row_halves_of(n_in)) * sizeof(uint16_t) +
            sizeof(float));
}

BtHalves bt_cuda_halves(bt_backend_t *be, const bt_weight_t *w,
                        const BtStepRows &from, uint32_t n_rows)
{
    const uint32_t row_halves = row_halves_of(w->n_in);
    uint32_t *halves = static_cast<uint32_t *>(bt_cuda_scratch(be));
    float *factors = reinterpret_cast<float *>(
        halves + static_cast<size_t>(n_rows) * row_halves / 2);
    const bool is_f16 = w->pack == BT_PACK_F16;

    if (is_f16) {
        make<true>(be, from, n_rows, w->n_in, row_halves, halves, factors);
    } else {
        make<false>(be, from, n_rows, w->n_in, row_halves, halves, factors);
    }
    return BtHalves{reinterpret_cast<const uint16_t *>(halves), row_halves,
                    is_f16 ? factors : nullptr};
}
