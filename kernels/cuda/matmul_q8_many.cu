/* SPDX-License-Identifier: Apache-2.0 */
/* Quantized weights times many rows of 8 bits, by tensor cores. Integer sums
 * give the bits of the reference in any order: one matrix product for each half
 * of a group, which has a scale of the row; the results are added in floats,
 * group after group.
 *
 * A warp has one panel and all rows of its block. The panel is A, 16 outputs of
 * 16 k. The assignment of outputs to rows of A is free: lane 4 g + t has
 * outputs 4 g .. 4 g + 3 of the panel, two in each of two products, so that it
 * reads and writes them as one access of 16 bytes; and it has k 4 t .. 4 t + 3
 * of the half, one word as stored in memory.
 *
 * The rows, B, are loaded to shared memory while the previous chunk is
 * computed. A row there is padded by four words, so that eight adjacent rows
 * begin in different banks. */
#include <cmath>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/q8.h"
#include "kernels/cuda/steps.h"
#include "kernels/cuda/tiles.h"

namespace
{

const uint32_t kWarps = 4; /* panels per block */
const uint32_t kThreads = 32 * kWarps;
const uint32_t kChunk = 4; /* groups loaded at a time */
const uint32_t kRowWords = kChunk * 8 + 4;

/* An integer below 2^22 added to these bits gives the bits of the float that is
 * the sum of both: two instructions, where a conversion would be four times as
 * slow. */
const int32_t kMagicBits = 0x4b400000;
const float kMagic = 0x1.8p23f;

/* Rows of a chunk in shared memory, double-buffered. */
template <uint32_t N> struct Stage {
    bt_shared<uint32_t> codes; /* [2][8 N][kRowWords] */
    bt_shared<uint4> groups;   /* [2][8 N][kChunk], see group_at() */
};

/* Position of group @a g of a row: groups of a row are adjacent, as they are
 * loaded, but in an order that differs among the four rows whose equal groups
 * are read at a time. */
__device__ __forceinline__ uint32_t group_at(uint32_t row, uint32_t g)
{
    return row * kChunk + (g ^ (row / 2 % kChunk));
}

/* Begins to load groups begin .. begin + kChunk - 1 of the block's rows, zeros
 * for missing ones. */
template <uint32_t N, typename Rows>
__device__ __forceinline__ void ask(const Stage<N> &stage, const BtQ8Rows &x,
                                    const Rows &rows, const BtTile &tile,
                                    uint32_t begin, uint32_t n_groups)
{
    const uint32_t half = begin / kChunk % 2;

    for (uint32_t i = threadIdx.x; i < 8 * N * kChunk * 2; i += kThreads) {
        const uint32_t row = i / (2 * kChunk);
        const uint32_t part = i % (2 * kChunk); /* 16 codes */
        const bool is_there =
            (tile.first + row < tile.end) && (begin + part / 2 < n_groups);
        const size_t at =
            is_there ? (rows.from(tile.first + row) * n_groups + begin) * 8 +
                           4 * part
                     : 0;

        bt_copy_async<16>(
            stage.codes.address((half * 8 * N + row) * kRowWords + 4 * part),
            x.codes + at, is_there ? 16 : 0);
    }
    for (uint32_t i = threadIdx.x; i < 8 * N * kChunk; i += kThreads) {
        const uint32_t row = i / kChunk;
        const uint32_t g = i % kChunk;
        const bool is_there =
            (tile.first + row < tile.end) && (begin + g < n_groups);
        const size_t at =
            is_there ? rows.from(tile.first + row) * n_groups + begin + g : 0;

        bt_copy_async<16>(stage.groups.address(group_at(half * 8 * N + row, g)),
                          x.groups + at, is_there ? 16 : 0);
    }
}

/* ---- weights, as one lane holds them ---- */

/* Four adjacent factors, or units. */
struct Four {
    float of[4];
};

/* Four numbers of 16 bits. */
__device__ __forceinline__ uint2 load_halves(const uint8_t *at, uint32_t g)
{
    return bt_load(reinterpret_cast<const uint2 *>(at) + g);
}

template <bt_pack_t P>
__device__ __forceinline__ Four load_units(const BtMatrix &m,
                                           const uint8_t *block, uint32_t half,
                                           uint32_t g)
{
    Four units = {{0.0f, 0.0f, 0.0f, 0.0f}};

    if (BtPack<P>::format.factor == BT_FACTOR_STEPS) {
        const uint2 bits = load_halves(block + half * 2 * BT_PANEL, g);

        units.of[0] = bt_half_to_float(bits.x & 0xffffu) * m.unit;
        units.of[1] = bt_half_to_float(bits.x >> 16) * m.unit;
        units.of[2] = bt_half_to_float(bits.y & 0xffffu) * m.unit;
        units.of[3] = bt_half_to_float(bits.y >> 16) * m.unit;
    }
    return units;
}

template <bt_pack_t P>
__device__ __forceinline__ Four load_factors(const uint8_t *at,
                                             const Four &units, uint32_t g)
{
    Four factors;
    uint32_t bits[4];

    if (BtPack<P>::format.factor == BT_FACTOR_F16) {
        const uint2 halves = load_halves(at, g);

        bits[0] = halves.x & 0xffffu;
        bits[1] = halves.x >> 16;
        bits[2] = halves.y & 0xffffu;
        bits[3] = halves.y >> 16;
    } else {
        const uint32_t bytes =
            bt_load(reinterpret_cast<const uint32_t *>(at) + g);

        bits[0] = bytes & 0xffu;
        bits[1] = bytes >> 8 & 0xffu;
        bits[2] = bytes >> 16 & 0xffu;
        bits[3] = bytes >> 24;
    }
    BT_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        factors.of[i] = bt_factor_of<P>(bits[i], units.of[i]);
    }
    return factors;
}

/* Codes of k 16 half + 4 t .. + 3 of outputs 4 g .. 4 g + 3. */
template <bt_pack_t P>
__device__ __forceinline__ void
load_codes(const BtMatrix &m, const uint8_t *codes, uint32_t half, uint32_t g,
           uint32_t t, uint32_t of[4])
{
    const uint32_t quad = 4 * half + t;
    const uint4 *lines = reinterpret_cast<const uint4 *>(codes) + g;
    const uint32_t line_fours = BT_PANEL / 4;
    const uint4 low = bt_load(lines + bt_low_line<P>(quad) * line_fours);
    uint4 high = {0, 0, 0, 0};

    if (BtPack<P>::high > 0) {
        high = bt_load(lines + (4 + bt_high_line<P>(quad)) * line_fours);
    }
    of[0] = bt_codes_of<P>(m, low.x, high.x, quad);
    of[1] = bt_codes_of<P>(m, low.y, high.y, quad);
    of[2] = bt_codes_of<P>(m, low.z, high.z, quad);
    of[3] = bt_codes_of<P>(m, low.w, high.w, quad);
}

/* One group of a panel. */
template <bt_pack_t P> struct Group {
    uint32_t codes[2][4]; /* per half */
    Four scales[BtPack<P>::halves];
    Four mins[BtPack<P>::halves];
};

template <bt_pack_t P>
__device__ __forceinline__ Group<P>
load_group(const BtMatrix &m, const uint8_t *panel, uint32_t number, uint32_t g,
           uint32_t t)
{
    constexpr bt_pack_format_t format = BtPack<P>::format;
    const uint8_t *block =
        panel + static_cast<size_t>(number / format.n_groups) * format.bytes;
    const bt_pack_offsets_t at =
        bt_pack_offsets_of(format, number % format.n_groups);
    const Four units = load_units<P>(m, block, 0, g);
    Group<P> group;

    load_codes<P>(m, block + at.codes, 0, g, t, group.codes[0]);
    load_codes<P>(m, block + at.codes, 1, g, t, group.codes[1]);
    BT_UNROLL
    for (uint32_t h = 0; h < BtPack<P>::halves; h++) {
        const uint32_t half = h * bt_pack_half_bytes(format);

        group.scales[h] = load_factors<P>(block + at.scales + half, units, g);
        if (format.min) {
            group.mins[h] = load_factors<P>(block + at.mins + half,
                                            load_units<P>(m, block, 1, g), g);
        }
    }
    return group;
}

/* ---- products ---- */

/* Integer sums of one half, as floats, for outputs 2 pair, 2 pair + 1 of the
 * lane and its rows. */
template <bt_pack_t P>
__device__ __forceinline__ void
half_sums(const Group<P> &group, uint32_t half, uint32_t pair, uint32_t b,
          uint32_t start, uint32_t next_start, float sums[4])
{
    const uint32_t a[2] = {group.codes[half][2 * pair],
                           group.codes[half][2 * pair + 1]};
    const bool starts = BtPack<P>::bias != 0;
    const int32_t first =
        kMagicBits + (starts ? static_cast<int32_t>(start) : 0);
    const int32_t second =
        kMagicBits + (starts ? static_cast<int32_t>(next_start) : 0);
    const int32_t c[4] = {first, second, first, second};
    int32_t d[4];

    bt_mma_s8(d, a, b, c);
    BT_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        sums[i] =
            __fadd_rn(bt_f32_from_bits(static_cast<uint32_t>(d[i])), -kMagic);
    }
}

/* Multiplies a group of a panel with group @a number of the chunk, for the
 * eight rows from @a first of the stage on. acc[output][row]: the lane's four
 * outputs and rows 2 t, 2 t + 1. */
template <bt_pack_t P>
__device__ __forceinline__ void
add_rows(const Group<P> &group, uint32_t number, const bt_shared<uint32_t> &xs,
         const bt_shared<uint4> &rows, uint32_t first, uint32_t g, uint32_t t,
         float acc[4][2])
{
    const uint32_t codes = (first + g) * kRowWords + 8 * number + t;
    const uint4 row[2] = {rows.get(group_at(first + 2 * t, number)),
                          rows.get(group_at(first + 2 * t + 1, number))};
    const uint32_t low = xs.get(codes);
    const uint32_t high = xs.get(codes + 4);

    BT_UNROLL
    for (uint32_t pair = 0; pair < 2; pair++) {
        float sums[2][4];

        half_sums<P>(group, 0, pair, low, row[0].z, row[1].z, sums[0]);
        half_sums<P>(group, 1, pair, high, row[0].w, row[1].w, sums[1]);
        BT_UNROLL
        for (uint32_t i = 0; i < 4; i++) { /* [output of the pair][row] */
            const uint32_t o = 2 * pair + i / 2;
            const uint4 &r = row[i % 2];
            float products[2], scales[2], mins[2] = {0.0f, 0.0f};

            products[0] = __fmul_rn(sums[0][i], bt_f32_from_bits(r.x));
            if (BtPack<P>::format.two) {
                products[1] = __fmul_rn(sums[1][i], bt_f32_from_bits(r.y));
            } else {
                products[0] =
                    fmaf(sums[1][i], bt_f32_from_bits(r.y), products[0]);
            }
            BT_UNROLL
            for (uint32_t h = 0; h < BtPack<P>::halves; h++) {
                scales[h] = group.scales[h].of[o];
                if (BtPack<P>::format.min) {
                    mins[h] = group.mins[h].of[o];
                }
            }
            acc[o][i % 2] =
                bt_q8_add<P>(acc[o][i % 2], products, scales, mins, r);
        }
    }
}

/* Four adjacent outputs of a row. */
__device__ __forceinline__ void store_four(float *row, uint32_t output,
                                           uint32_t n_out, bool add, float x,
                                           float y, float z, float w)
{
    const float of[4] = {x, y, z, w};

    if ((n_out % 4 == 0) && (output < n_out)) {
        float4 *at = reinterpret_cast<float4 *>(row + output);
        float4 four = {x, y, z, w};

        if (add) {
            const float4 before = bt_load(at);

            four.x = __fadd_rn(before.x, x);
            four.y = __fadd_rn(before.y, y);
            four.z = __fadd_rn(before.z, z);
            four.w = __fadd_rn(before.w, w);
        }
        bt_store(at, four);
        return;
    }
    BT_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        if (output + i < n_out) {
            bt_put_sum(row + output + i, of[i], add);
        }
    }
}

/* One block per kWarps panels and tile of 8 N rows. */
template <bt_pack_t P, uint32_t N, typename Rows>
__global__ void many_rows_kernel(BtMatrix m, BtQ8Rows x, Rows rows, bool add,
                                 float *out)
{
    BT_SHARED(uint32_t, codes, 2 * 8 * N * kRowWords);
    BT_SHARED(uint4, groups, 2 * kChunk * 8 * N);
    const Stage<N> stage = {codes, groups};
    const uint32_t n_blocks = (m.n_panels + kWarps - 1) / kWarps;
    const uint32_t panel = blockIdx.x % n_blocks * kWarps + threadIdx.x / 32;
    const BtTile tile = rows.tile(blockIdx.x / n_blocks, 8 * N, m);
    const uint32_t g = threadIdx.x % 32 / 4;
    const uint32_t t = threadIdx.x % 4;
    const uint32_t n_groups = m.n_in / BT_PACK_GROUP;
    const uint8_t *data = m.data + (tile.panel + panel) * m.panel_bytes;
    float acc[N][4][2];

    if (tile.first >= tile.end) {
        return;
    }
    BT_UNROLL
    for (uint32_t i = 0; i < N * 8; i++) {
        acc[i / 8][i / 2 % 4][i % 2] = 0.0f;
    }
    ask<N>(stage, x, rows, tile, 0, n_groups);
    bt_copy_commit();
    for (uint32_t begin = 0; begin < n_groups; begin += kChunk) {
        const uint32_t half = begin / kChunk % 2;

        if (begin + kChunk < n_groups) {
            ask<N>(stage, x, rows, tile, begin + kChunk, n_groups);
        }
        bt_copy_commit(); /* an empty group at the end */
        bt_copy_wait<1>();
        BT_SYNC();
        BT_NO_UNROLL
        for (uint32_t i = 0;
             (panel < m.n_panels) && (i < kChunk) && (begin + i < n_groups);
             i++) {
            const Group<P> group = load_group<P>(m, data, begin + i, g, t);

            BT_UNROLL
            for (uint32_t n = 0; n < N; n++) {
                add_rows<P>(group, i, codes, groups, 8 * (half * N + n), g, t,
                            acc[n]);
            }
        }
        BT_SYNC();
    }
    BT_UNROLL
    for (uint32_t i = 0; i < 2 * N; i++) {
        const uint32_t row = tile.first + i / 2 * 8 + 2 * t + i % 2;
        const float(&sums)[4][2] = acc[i / 2];

        if ((panel < m.n_panels) && (row < tile.end)) {
            store_four(rows.to(out, row, m), panel * BT_PANEL + 4 * g, m.n_out,
                       add, sums[0][i % 2], sums[1][i % 2], sums[2][i % 2],
                       sums[3][i % 2]);
        }
    }
}

template <bt_pack_t P, uint32_t N, typename Rows>
void many_tiles(bt_backend_t *be, const BtMatrix &m, const BtQ8Rows &x,
                const Rows &rows, uint32_t n_tiles, bool add, float *out)
{
    const uint32_t n_blocks = (m.n_panels + kWarps - 1) / kWarps;

    BT_LAUNCH((many_rows_kernel<P, N, Rows>), n_blocks * n_tiles, kThreads, be,
              m, x, rows, add, out);
}

template <bt_pack_t P>
void many_rows(bt_backend_t *be, const BtMatrix &m, const BtQ8Rows &x,
               uint32_t n_rows, bool add, float *out)
{
    const BtAllRows rows = {n_rows};

    if (n_rows <= 16) {
        many_tiles<P, 2>(be, m, x, rows, 1, add, out);
    } else {
        many_tiles<P, 8>(be, m, x, rows, (n_rows + 63) / 64, add, out);
    }
}

template <bt_pack_t P>
void many_slots(bt_backend_t *be, const BtMatrix &m, const BtQ8Rows &x,
                const BtSlotTiles &slots, float *out)
{
    const BtSlotRows &rows = slots.rows;

    if (slots.tile_rows <= 16) {
        many_tiles<P, 2>(be, m, x, rows, rows.all_tiles, false, out);
    } else {
        many_tiles<P, 8>(be, m, x, rows, rows.all_tiles, false, out);
    }
}

} // namespace

void bt_cuda_q8_many(bt_backend_t *be, const bt_weight_t *w, const BtQ8Rows &x,
                     uint32_t n_rows, bool add, float *out)
{
    const BtMatrix m = bt_matrix_of(w);

#define BT_MANY(P) many_rows<P>(be, m, x, n_rows, add, out)
    BT_CUDA_EACH_PACK(w->pack, BT_MANY)
#undef BT_MANY
}

void bt_cuda_slots_q8_many(bt_backend_t *be, const bt_weight_t *w,
                           const BtQ8Rows &x, const BtSlotTiles &slots,
                           float *out)
{
    const BtMatrix m = bt_expert_matrix_of(w, slots);

#define BT_MANY(P) many_slots<P>(be, m, x, slots, out)
    BT_CUDA_EACH_PACK(w->pack, BT_MANY)
#undef BT_MANY
}
