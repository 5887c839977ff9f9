/* SPDX-License-Identifier: Apache-2.0 */
/* Products of a mixture of experts: each slot's row times its expert's matrix.
 *
 * Which expert has how many rows only the device knows. The host launches as
 * many blocks as the slots can need, and a table of tiles (tiles.h), written
 * just before, says which slots and which matrix each of them has, or that it
 * has none. So a step is the same calls whatever is routed where, and an expert
 * without rows is not read. Experts are the own ones of a rank (kernels.h).
 *
 *     slots of expert  0 0 0 │ 2 2 2 2 2 │ 5      tiles of 4 rows
 *     tiles            ──0── │ ───1─── 2 │ 3      (0, 3, 0) (3, 7, 2) (7, 8, 2)
 *                                                 (8, 9, 5), then empty ones
 *
 * Rows by slot that have to be converted are taken in slices of as many as
 * scratch has room for. Slots are ordered by expert, so two slices read only
 * one expert both. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/halves.h"
#include "kernels/cuda/steps.h"
#include "kernels/cuda/tiles.h"

namespace
{

const uint32_t kThreads = 256;

/* Slots of an expert in a slice. */
struct Range {
    uint32_t first, end;
};

__device__ __forceinline__ Range range_of(const uint32_t *first,
                                          uint32_t expert, uint32_t begin,
                                          uint32_t end)
{
    Range range = {bt_load(first + expert), bt_load(first + expert + 1)};

    range.first = (range.first < begin) ? begin : range.first;
    range.end = (range.end > end) ? end : range.end;
    range.end = (range.end < range.first) ? range.first : range.end;
    return range;
}

/* Returns the sum of the values of the threads before this one, and the sum of
 * all in *total. */
__device__ uint32_t sum_before(uint32_t value, uint32_t *total)
{
    BT_SHARED(uint32_t, sums, kThreads);
    const uint32_t t = threadIdx.x;

    sums.set(t, value);
    BT_SYNC();
    for (uint32_t far = 1; far < kThreads; far *= 2) {
        const uint32_t before = (t >= far) ? sums.get(t - far) : 0;

        BT_SYNC();
        sums.set(t, sums.get(t) + before);
        BT_SYNC();
    }
    *total = sums.get(kThreads - 1);
    return sums.get(t) - value;
}

/* Writes the table of the tiles of slots begin .. end - 1, by one block. A
 * thread has adjacent experts. */
__global__ void tiles_kernel(const uint32_t *first, uint32_t n_experts,
                             uint32_t begin, uint32_t end, uint32_t tile_rows,
                             uint32_t n_tiles, uint4 *tiles)
{
    const uint32_t each = (n_experts + kThreads - 1) / kThreads;
    const uint32_t mine = threadIdx.x * each;
    uint32_t n = 0;
    uint32_t total;

    for (uint32_t e = mine; (e < mine + each) && (e < n_experts); e++) {
        const Range range = range_of(first, e, begin, end);

        n += (range.end - range.first + tile_rows - 1) / tile_rows;
    }
    n = sum_before(n, &total);
    for (uint32_t e = mine; (e < mine + each) && (e < n_experts); e++) {
        const Range range = range_of(first, e, begin, end);

        for (uint32_t at = range.first; at < range.end; at += tile_rows) {
            const uint32_t left = range.end - at;
            const uint4 tile = {
                at, at + ((left < tile_rows) ? left : tile_rows), e, 0};

            bt_store(tiles + n++, tile);
        }
    }
    for (uint32_t i = total + threadIdx.x; i < n_tiles; i += kThreads) {
        const uint4 none = {0, 0, 0, 0};

        bt_store(tiles + i, none);
    }
}

/* ---- the host's part ---- */

/* Most tiles that n slots of n_experts experts can be: each expert may have one
 * that is not full. */
uint32_t tiles_of(uint32_t n, uint32_t n_experts, uint32_t tile_rows)
{
    const uint32_t most = (n < n_experts) ? n : n_experts;

    return (n - most) / tile_rows + most;
}

/* Rows of a tile, so that those of an average expert are in one. Bits do not
 * depend on it. */
uint32_t tile_rows_of(bt_backend_t *be, const bt_weight_t *w,
                      uint32_t n_experts, uint32_t n_slots, uint32_t n_rows)
{
    const uint32_t average = (n_slots + n_experts - 1) / n_experts;

    if (bt_cuda_goes_by_tensor(be, w)) {
        return (average <= 8)                                  ? 8
               : ((average <= 64) || bt_pack_is_e4m3(w->pack)) ? 64
                                                               : 128;
    }
    if (bt_pack_is_dense(w->pack)) {
        return (average <= 8) ? 8 : 32;
    }
    if (n_rows == 1) {
        return 1; /* its experts differ */
    }
    return (average <= 2) ? 4 : (average <= 8) ? 8 : (average <= 16) ? 16 : 64;
}

struct Product {
    bt_backend_t *be;
    const bt_weight_t *const *weights;
    uint32_t n_weights;
    const bt_expert_rows_t *rows;
    uint32_t n_own;
    BtSlotTiles slots;
    uint4 *tiles; /* in scratch */
    float *out;
};

size_t rounded(size_t bytes)
{
    return (bytes + sizeof(uint4) - 1) / sizeof(uint4) * sizeof(uint4);
}

/* Bytes of n rows as the products take them. */
size_t prepared_bytes(bt_backend_t *be, const bt_weight_t *w, uint32_t n_rows)
{
    if (bt_cuda_goes_by_tensor(be, w)) {
        return rounded(bt_cuda_halves_bytes(n_rows, w->n_in));
    }
    return bt_pack_is_dense(w->pack)
               ? 0
               : rounded(bt_cuda_q8_bytes(n_rows, w->n_in));
}

/* Slots begin .. end - 1 of the matrices of one kind, whose rows are taken as
 * they come or were converted. */
template <typename Multiply>
void multiply(const Product &p, uint32_t begin, uint32_t end,
              const Multiply &one)
{
    const size_t wide = static_cast<size_t>(p.n_weights) * p.slots.n_out;
    BtSlotTiles slots = p.slots;

    slots.rows.first = begin;
    slots.rows.all_tiles = tiles_of(end - begin, p.n_own, slots.tile_rows);
    slots.rows.row_floats = wide;
    BT_LAUNCH(tiles_kernel, 1, kThreads, p.be, p.rows->first, p.n_own, begin,
              end, slots.tile_rows, slots.rows.all_tiles, p.tiles);
    for (uint32_t i = 0; i < p.n_weights; i++) {
        one(p.weights[i], slots,
            p.out + static_cast<size_t>(i) * p.slots.n_out);
    }
}

/* Converts n rows and multiplies slots begin .. end - 1 with them. */
void run(const Product &p, const float *x, uint32_t n, uint32_t begin,
         uint32_t end)
{
    bt_backend_t *const be = p.be;
    const bt_weight_t *const w = p.weights[0];
    const BtStepRows from = {BT_ROWS_PLAIN, x, nullptr, 0.0f};

    if (bt_cuda_goes_by_tensor(be, w)) {
        const BtHalves halves = bt_cuda_halves(be, w, from, n);

        multiply(p, begin, end,
                 [=](const bt_weight_t *weight, const BtSlotTiles &slots,
                     float *out) {
                     bt_cuda_slots_tensor(be, weight, halves, slots, out);
                 });
    } else if (bt_pack_is_dense(w->pack)) {
        multiply(p, begin, end,
                 [=](const bt_weight_t *weight, const BtSlotTiles &slots,
                     float *out) {
                     bt_cuda_slots_dense(be, weight, x, slots, out);
                 });
    } else {
        const BtQ8Rows rows = bt_cuda_quantize(be, w, from, n);

        multiply(p, begin, end,
                 [=](const bt_weight_t *weight, const BtSlotTiles &slots,
                     float *out) {
                     bt_cuda_slots_q8(be, weight, rows, slots, out);
                 });
    }
}

void matmul_experts(bt_backend_t *be, const bt_weight_t *const *weights,
                    uint32_t n_weights, const bt_expert_rows_t *rows,
                    uint32_t n_rows, const float *x, bool by_row, float *out)
{
    const bt_weight_t *const w = weights[0];
    const uint32_t n_slots = n_rows * rows->n_used;
    const bool as_they_are =
        bt_pack_is_dense(w->pack) && !bt_cuda_goes_by_tensor(be, w);
    const uint32_t at_once =
        (by_row || as_they_are || (n_slots < bt_cuda_max_rows(be)))
            ? n_slots
            : bt_cuda_max_rows(be);
    Product p = {};

    p.be = be;
    p.weights = weights;
    p.n_weights = n_weights;
    p.rows = rows;
    p.n_own = bt_own_experts(rows);
    p.slots.n_out = w->n_out / p.n_own;
    p.slots.tile_rows = tile_rows_of(be, w, rows->n_experts, n_slots, n_rows);
    p.out = out;
    p.slots.rows.rows = by_row ? rows->rows : nullptr;
    if (n_slots == 0) {
        return;
    }
    p.tiles = reinterpret_cast<uint4 *>(
        static_cast<uint8_t *>(bt_cuda_scratch(be)) +
        prepared_bytes(be, w, by_row ? n_rows : at_once));
    p.slots.rows.tiles = p.tiles;
    for (uint32_t begin = 0; begin < n_slots; begin += at_once) {
        const uint32_t left = n_slots - begin;
        const uint32_t n = (left < at_once) ? left : at_once;
        const size_t skipped = by_row ? 0 : begin;

        run(p, x + skipped * w->n_in, by_row ? n_rows : n, begin, begin + n);
    }
}

} // namespace

size_t bt_cuda_tiles_bytes(uint32_t max_rows)
{
    /* tile_rows_of() keeps tiles_of() below it, for any number of experts and
     * BT_MAX_EXPERTS_USED slots of each row. One more aligns it. */
    return (static_cast<size_t>(max_rows) + 2 * BT_MAX_EXPERTS + 1) *
           sizeof(uint4);
}

extern "C" void bt_cuda_matmul_experts_ops(bt_kernels_ops_t *ops)
{
    ops->matmul_experts = matmul_experts;
}
