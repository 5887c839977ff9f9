/* SPDX-License-Identifier: Apache-2.0 */
/* F32, F16, BF16 and E4M3 weights times rows, each sum in the order of the
 * reference: k ascending, one accumulator. A block has one panel and some rows;
 * a chunk of both is loaded to shared memory by all threads, then each warp
 * processes it for its rows, with a lane for each output. */
#include <cmath>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/steps.h"
#include "kernels/cuda/tiles.h"
#include "kernels/cuda/unpack.h"
#include "kernels/formula.h"
#include "kernels/half.h"

namespace
{

const uint32_t kWarps = 8;
const uint32_t kThreads = 32 * kWarps;
const uint32_t kChunk = 64; /* steps: k, or pairs of them */

/* Element @a i of a panel of 16 or 32 bits. */
__device__ __forceinline__ float dense_weight(const uint8_t *panel, bool halves,
                                              size_t i)
{
    return halves ? bt_half_to_float(
                        bt_load(reinterpret_cast<const uint16_t *>(panel) + i))
                  : bt_load(reinterpret_cast<const float *>(panel) + i);
}

/* True for the rule of BF16: pairs of k. */
template <bt_pack_t P>
constexpr bool kPairs = (P == BT_PACK_BF16) || (P == BT_PACK_E4M3_BF16);

/* Step @a k of a row: the bits of a float, or a pair of bf16, the last possibly
 * without a partner. */
template <bt_pack_t P>
__device__ __forceinline__ uint32_t row_step(const float *row, uint32_t n_in,
                                             uint32_t k)
{
    if (!kPairs<P>) {
        return bt_f32_bits(bt_load(row + k));
    }
    return bt_f32_to_bf16(bt_load(row + 2 * k)) |
           (2 * k + 1 < n_in ? static_cast<uint32_t>(bt_f32_to_bf16(bt_load(
                                   row + 2 * static_cast<size_t>(k) + 1)))
                                   << 16
                             : 0u);
}

template <bt_pack_t P>
__device__ __forceinline__ uint32_t weight_step(const uint8_t *panel, size_t i)
{
    return (P == BT_PACK_BF16)
               ? bt_load(reinterpret_cast<const uint32_t *>(panel) + i)
               : bt_f32_bits(dense_weight(panel, P == BT_PACK_F16, i));
}

template <bt_pack_t P>
__device__ __forceinline__ float add_step(uint32_t w, uint32_t x, float acc)
{
    return kPairs<P> ? bt_dot_bf16(w, x, acc)
                     : fmaf(bt_f32_from_bits(w), bt_f32_from_bits(x), acc);
}

/* Code @a i of a word, times the scale. */
__device__ __forceinline__ uint32_t coded_weight(uint32_t word, uint32_t i,
                                                 float scale)
{
    return bt_f32_bits(
        __fmul_rn(bt_e4m3_weight(word >> (8 * i) & 0xffu), scale));
}

/* Upper halves of two floats whose lower halves are zeros. */
__device__ __forceinline__ uint32_t upper_halves(uint32_t low, uint32_t high)
{
    return __byte_perm(low, high, 0x7632);
}

/* Loads the weights of steps @a begin .. + n - 1, which are whole blocks of
 * codes: a word at a time, which has k, k + 8, k + 1, k + 9. */
template <bt_pack_t P>
__device__ __forceinline__ void bring_codes(const uint8_t *panel,
                                            uint32_t begin, uint32_t n,
                                            const bt_shared<uint32_t> &weights)
{
    constexpr uint32_t per_step = kPairs<P> ? 2 : 1;
    constexpr uint32_t lines = BT_E4M3_LINES - 1;
    const uint32_t n_words = n * per_step / 4 * BT_PANEL;
    const uint32_t lane = threadIdx.x % BT_PANEL;

    for (uint32_t i = threadIdx.x; i < n_words; i += kThreads) {
        const uint32_t line = i / BT_PANEL % lines;
        const uint8_t *block =
            panel + static_cast<size_t>(begin * per_step / BT_E4M3_BLOCK +
                                        i / BT_PANEL / lines) *
                        BT_E4M3_BYTES;
        const float scale =
            bt_load(reinterpret_cast<const float *>(block) + lane);
        const uint32_t word =
            bt_load(reinterpret_cast<const uint32_t *>(block) +
                    (1 + line) * BT_PANEL + lane);
        /* Position of the first of its codes. */
        const uint32_t k =
            i / BT_PANEL / lines * BT_E4M3_BLOCK + line / 4 * 16 + line % 4 * 2;
        uint32_t value[4];

        BT_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            value[j] = coded_weight(word, j, scale);
        }
        if constexpr (kPairs<P>) {
            weights.set(k / 2 * BT_PANEL + lane,
                        upper_halves(value[0], value[2]));
            weights.set((k / 2 + 4) * BT_PANEL + lane,
                        upper_halves(value[1], value[3]));
        } else {
            BT_UNROLL
            for (uint32_t j = 0; j < 4; j++) {
                weights.set((k + j / 2 + j % 2 * 8) * BT_PANEL + lane,
                            value[j]);
            }
        }
    }
}

template <bt_pack_t P>
__device__ __forceinline__ void bring(const uint8_t *panel, uint32_t begin,
                                      uint32_t n,
                                      const bt_shared<uint32_t> &weights)
{
    if constexpr (bt_pack_is_e4m3(P)) {
        bring_codes<P>(panel, begin, n, weights);
    } else {
        const size_t first = static_cast<size_t>(begin) * BT_PANEL;

        for (uint32_t i = threadIdx.x; i < n * BT_PANEL; i += kThreads) {
            weights.set(i, weight_step<P>(panel, first + i));
        }
    }
}

/* One block per panel and tile of kWarps * R rows; warp i has rows i, i +
 * kWarps, …. */
template <bt_pack_t P, uint32_t R, typename Rows>
__global__ void dense_kernel(BtMatrix m, const float *x, Rows all, bool add,
                             float *out)
{
    constexpr uint32_t rows = kWarps * R;
    BT_SHARED(uint32_t, weights, kChunk * BT_PANEL);
    BT_SHARED(uint32_t, steps, rows * kChunk);
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t panel = blockIdx.x % m.n_panels;
    const BtTile tile = all.tile(blockIdx.x / m.n_panels, rows, m);
    const uint32_t first = tile.first;
    const uint32_t n_rows = tile.end;
    const uint32_t n_steps = kPairs<P> ? (m.n_in + 1) / 2 : m.n_in;
    const uint32_t output = panel * BT_PANEL + lane;
    const uint8_t *data = m.data + (tile.panel + panel) * m.panel_bytes;
    float acc[R];

    if (first >= n_rows) {
        return;
    }
    for (uint32_t j = 0; j < R; j++) {
        acc[j] = 0.0f;
    }
    for (uint32_t begin = 0; begin < n_steps; begin += kChunk) {
        const uint32_t n =
            (n_steps - begin < kChunk) ? n_steps - begin : kChunk;

        bring<P>(data, begin, n, weights);
        for (uint32_t i = threadIdx.x; i < rows * kChunk; i += kThreads) {
            const uint32_t row = first + i / kChunk;
            const uint32_t k = i % kChunk;

            if ((row < n_rows) && (k < n)) {
                steps.set(i, row_step<P>(x + all.from(row) * m.n_in, m.n_in,
                                         begin + k));
            }
        }
        BT_SYNC();
        for (uint32_t j = 0; j < R; j++) {
            const uint32_t row = warp + j * kWarps;

            for (uint32_t k = 0; (first + row < n_rows) && (k < n); k++) {
                acc[j] = add_step<P>(weights.get(k * BT_PANEL + lane),
                                     steps.get(row * kChunk + k), acc[j]);
            }
        }
        BT_SYNC();
    }
    for (uint32_t j = 0; j < R; j++) {
        const uint32_t row = first + warp + j * kWarps;

        if ((row < n_rows) && (output < m.n_out)) {
            bt_put_sum(all.to(out, row, m) + output, acc[j], add);
        }
    }
}

const uint32_t kMany = 4; /* rows of a warp of the larger form */

template <bt_pack_t P, uint32_t R, typename Rows>
void tiles(bt_backend_t *be, const BtMatrix &m, const float *x,
           const Rows &rows, uint32_t n_tiles, bool add, float *out)
{
    BT_LAUNCH((dense_kernel<P, R, Rows>), m.n_panels * n_tiles, kThreads, be, m,
              x, rows, add, out);
}

template <bt_pack_t P>
void dense(bt_backend_t *be, const BtMatrix &m, const float *x, uint32_t n_rows,
           bool add, float *out)
{
    const uint32_t most = kMany * kWarps;
    const BtAllRows rows = {n_rows};

    if (n_rows <= kWarps) {
        tiles<P, 1>(be, m, x, rows, 1, add, out);
    } else {
        tiles<P, kMany>(be, m, x, rows, (n_rows + most - 1) / most, add, out);
    }
}

template <bt_pack_t P>
void dense_slots(bt_backend_t *be, const BtMatrix &m, const float *x,
                 const BtSlotTiles &slots, float *out)
{
    const BtSlotRows &rows = slots.rows;

    if (slots.tile_rows <= kWarps) {
        tiles<P, 1>(be, m, x, rows, rows.all_tiles, false, out);
    } else {
        tiles<P, kMany>(be, m, x, rows, rows.all_tiles, false, out);
    }
}

/* Calls CALL(P) for the constant P that is @a pack. */
#define BT_EACH_DENSE(pack, CALL) \
    switch (pack) {               \
    case BT_PACK_F16:             \
        CALL(BT_PACK_F16);        \
        break;                    \
    case BT_PACK_BF16:            \
        CALL(BT_PACK_BF16);       \
        break;                    \
    case BT_PACK_E4M3:            \
        CALL(BT_PACK_E4M3);       \
        break;                    \
    case BT_PACK_E4M3_BF16:       \
        CALL(BT_PACK_E4M3_BF16);  \
        break;                    \
    default:                      \
        CALL(BT_PACK_F32);        \
        break;                    \
    }

} // namespace

void bt_cuda_matmul_dense(bt_backend_t *be, const bt_weight_t *w,
                          const BtStepRows &from, uint32_t n_rows, bool add,
                          float *out)
{
    const BtMatrix m = bt_matrix_of(w);
    float *made = static_cast<float *>(bt_cuda_scratch(be));
    const float *x = (from.kind == BT_ROWS_PLAIN) ? from.x : made;

    if (from.kind == BT_ROWS_NORM) {
        be->ops->rmsnorm(be, from.x, from.norm, from.eps, n_rows, w->n_in,
                         made);
    } else if (from.kind == BT_ROWS_GATED) {
        be->ops->activate(be, BT_ACT_SILU, true, from.x, n_rows, w->n_in, made);
    }
#define BT_DENSE(P) dense<P>(be, m, x, n_rows, add, out)
    BT_EACH_DENSE(w->pack, BT_DENSE)
#undef BT_DENSE
}

void bt_cuda_slots_dense(bt_backend_t *be, const bt_weight_t *w, const float *x,
                         const BtSlotTiles &slots, float *out)
{
    const BtMatrix m = bt_expert_matrix_of(w, slots);

#define BT_DENSE(P) dense_slots<P>(be, m, x, slots, out)
    BT_EACH_DENSE(w->pack, BT_DENSE)
#undef BT_DENSE
}
