/* SPDX-License-Identifier: Apache-2.0 */
/* Products of adapters (kernels.h, lora()): x A, then what is added to the
 * outputs, each sum in the order of the reference: k ascending, four
 * accumulators of x A and one of the rest. Both are one kernel, a launch for
 * many adapters at once. A block has some rows of one adapter and 32 outputs; a
 * chunk of the matrix and of the rows is loaded to shared memory by all
 * threads, then each warp processes it for its rows, with a lane for each
 * output. */
#include <cmath>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/half.h"

namespace
{

const uint32_t kWarps = 8;
const uint32_t kThreads = 32 * kWarps;
const uint32_t kChunk = 64;   /* values of k */
const uint32_t kOutputs = 32; /* of a block */
const uint32_t kMany = 4;     /* rows of a warp, where groups have many */

/* Rows of one adapter; without padding, as calls are compared by bytes. */
struct Group {
    const void *a, *b;
    size_t lanes; /* bt_lora_rank_lanes() */
    uint32_t type, rank;
    float scale;
    uint32_t row, n_rows;
    uint32_t tile; /* its first one */
};

template <uint32_t N> struct Groups {
    Group of[N];
    uint32_t n;
    uint32_t n_tiles;
};

/* The matrices of all groups have as many inputs and outputs, but for the rank
 * in between. */
struct Shape {
    const float *x;
    float *down;
    float *y; /* the first output of row 0 */
    size_t row_floats;
    size_t lanes;   /* bt_lora_lanes() of the outputs */
    size_t n_steps; /* bt_lora_rows_in() */
    uint32_t n_in, n_out, max_rank;
    uint32_t n_columns; /* blocks beside each other */
};

__device__ __forceinline__ float value_of(uint32_t type, const void *matrix,
                                          size_t i)
{
    switch (type) {
    case BT_KTYPE_F16:
        return bt_half_to_float(
            bt_load(static_cast<const uint16_t *>(matrix) + i));
    case BT_KTYPE_BF16:
        return bt_bf16_to_f32(
            bt_load(static_cast<const uint16_t *>(matrix) + i));
    default:
        return bt_load(static_cast<const float *>(matrix) + i);
    }
}

/* The group of a tile. */
template <uint32_t N>
__device__ __forceinline__ Group group_of(const Groups<N> &groups,
                                          uint32_t tile)
{
    Group found = groups.of[0];

    BT_UNROLL
    for (uint32_t i = 1; i < N; i++) {
        if ((i < groups.n) && (tile >= groups.of[i].tile)) {
            found = groups.of[i];
        }
    }
    return found;
}

/* An element of x A. */
__device__ __forceinline__ float sum_of(const float (&sums)[BT_LORA_SUMS])
{
    return __fadd_rn(__fadd_rn(sums[0], sums[2]), __fadd_rn(sums[1], sums[3]));
}

__device__ __forceinline__ float sum_of(const float (&sums)[1])
{
    return sums[0];
}

/* One block per tile of kWarps * R rows and kOutputs outputs. Of the first
 * product (Up false) these are the rank's. */
template <bool Up, uint32_t N, uint32_t R>
__global__ void lora_kernel(Groups<N> groups, Shape shape)
{
    constexpr uint32_t rows = kWarps * R;
    BT_SHARED(float, weights, kChunk *kOutputs);
    BT_SHARED(float, factors, rows *kChunk);
    const uint32_t tile = blockIdx.x / shape.n_columns;
    const uint32_t first = blockIdx.x % shape.n_columns * kOutputs;
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32;
    const Group group = group_of(groups, tile);
    const uint32_t begin_row = (tile - group.tile) * rows;
    const size_t row = static_cast<size_t>(group.row) + begin_row;
    const uint32_t n_rows = group.n_rows - begin_row; /* of the tile, or more */
    constexpr uint32_t n_sums = Up ? 1 : BT_LORA_SUMS;
    /* x is 0 behind n_in. */
    const uint32_t n_there = Up ? group.rank : shape.n_in;
    const uint32_t n_steps =
        Up ? group.rank : static_cast<uint32_t>(shape.n_steps);
    const uint32_t n_out = Up ? shape.n_out : group.rank;
    const uint32_t in_floats = Up ? shape.max_rank : shape.n_in;
    const float *in = (Up ? shape.down : shape.x) + row * in_floats;
    const void *matrix = Up ? group.b : group.a;
    const size_t lanes = Up ? shape.lanes : group.lanes;
    float acc[R][n_sums];

    if (first >= n_out) {
        return; /* of a smaller rank than another's */
    }
    for (uint32_t j = 0; j < R * n_sums; j++) {
        acc[j / n_sums][j % n_sums] = 0.0f;
    }
    for (uint32_t begin = 0; begin < n_steps; begin += kChunk) {
        const uint32_t n =
            (n_steps - begin < kChunk) ? n_steps - begin : kChunk;

        for (uint32_t i = threadIdx.x; i < n * kOutputs; i += kThreads) {
            const uint32_t output = first + i % kOutputs;
            const size_t k = begin + i / kOutputs;

            weights.set(i, (output < lanes) ? value_of(group.type, matrix,
                                                       k * lanes + output)
                                            : 0.0f);
        }
        for (uint32_t i = threadIdx.x; i < rows * kChunk; i += kThreads) {
            const uint32_t r = i / kChunk;
            const uint32_t k = i % kChunk;

            if ((r < n_rows) && (k < n)) {
                factors.set(
                    i, (begin + k < n_there)
                           ? bt_load(in + static_cast<size_t>(r) * in_floats +
                                     begin + k)
                           : 0.0f);
            }
        }
        BT_SYNC();
        for (uint32_t j = 0; j < R; j++) {
            const uint32_t r = warp + j * kWarps;

            for (uint32_t k = 0; (r < n_rows) && (k < n); k += n_sums) {
                BT_UNROLL
                for (uint32_t i = 0; i < n_sums; i++) {
                    acc[j][i] =
                        fmaf(factors.get(r * kChunk + k + i),
                             weights.get((k + i) * kOutputs + lane), acc[j][i]);
                }
            }
        }
        BT_SYNC();
    }
    for (uint32_t j = 0; j < R; j++) {
        const uint32_t r = warp + j * kWarps;

        if ((r >= n_rows) || (first + lane >= n_out)) {
            continue;
        }
        if (Up) {
            float *const y =
                shape.y + (row + r) * shape.row_floats + first + lane;

            bt_store(y, fmaf(group.scale, sum_of(acc[j]), bt_load(y)));
        } else {
            bt_store(shape.down + (row + r) * shape.max_rank + first + lane,
                     sum_of(acc[j]));
        }
    }
}

/* ---- the host's part ---- */

template <uint32_t N, uint32_t R>
void launch(bt_backend_t *be, const bt_lora_step_t *step,
            const bt_lora_rows_t *from, uint32_t n)
{
    Groups<N> groups = {};
    Shape shape = {step->x,
                   step->down,
                   step->y + step->at,
                   step->row_floats,
                   bt_lora_lanes(step->n_out),
                   bt_lora_rows_in(step->n_in),
                   step->n_in,
                   step->n_out,
                   step->max_rank,
                   0};
    uint32_t most = 1; /* the largest rank */

    groups.n = n;
    for (uint32_t i = 0; i < n; i++) {
        const bt_lora_rows_t &rows = from[i];
        Group &group = groups.of[i];

        group.a = rows.a;
        group.b = rows.b;
        group.lanes = bt_lora_rank_lanes(rows.rank);
        group.type = static_cast<uint32_t>(rows.type);
        group.rank = rows.rank;
        group.scale = rows.scale;
        group.row = rows.row;
        group.n_rows = rows.n_rows;
        group.tile = groups.n_tiles;
        groups.n_tiles += (rows.n_rows + kWarps * R - 1) / (kWarps * R);
        most = (rows.rank > most) ? rows.rank : most;
    }
    shape.n_columns = (most + kOutputs - 1) / kOutputs;
    BT_LAUNCH((lora_kernel<false, N, R>), groups.n_tiles * shape.n_columns,
              kThreads, be, groups, shape);
    shape.n_columns = (step->n_out + kOutputs - 1) / kOutputs;
    BT_LAUNCH((lora_kernel<true, N, R>), groups.n_tiles * shape.n_columns,
              kThreads, be, groups, shape);
}

template <uint32_t N>
void run(bt_backend_t *be, const bt_lora_step_t *step, bool many)
{
    for (uint32_t i = 0; i < step->n_groups; i += N) {
        const uint32_t left = step->n_groups - i;
        const uint32_t n = (left < N) ? left : N;

        if (many) {
            launch<N, kMany>(be, step, step->groups + i, n);
        } else {
            launch<N, 1>(be, step, step->groups + i, n);
        }
    }
}

void lora(bt_backend_t *be, const bt_lora_step_t *step)
{
    bool many = false;

    for (uint32_t i = 0; i < step->n_groups; i++) {
        many = many || (step->groups[i].n_rows > kWarps);
    }
    if (step->n_groups <= 2) {
        run<2>(be, step, many);
    } else {
        run<16>(be, step, many);
    }
}

} // namespace

extern "C" void bt_cuda_lora_ops(bt_kernels_ops_t *ops)
{
    ops->lora = lora;
}
