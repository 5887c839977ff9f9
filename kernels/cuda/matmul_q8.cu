/* SPDX-License-Identifier: Apache-2.0 */
/* Quantized weights times rows of 8 bits. Integer sums do not depend on their
 * order, so any instruction may compute them; the floating-point sum over the
 * groups keeps the order of the reference (kernels.h, matmul()).
 *
 * Few rows: memory bandwidth is the limit. A block has one panel, each of its
 * warps some groups of a chunk at a time, so that many loads are in flight. The
 * warps store the products of each group and row in shared memory, and then one
 * warp of each row adds those of the chunk, group after group. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/q8.h"
#include "kernels/cuda/steps.h"
#include "kernels/cuda/tiles.h"

namespace
{

const uint32_t kWarps = 8;
const uint32_t kThreads = 32 * kWarps;
const uint32_t kFewRows = 8; /* up to this many rows, memory is the limit */

/* ---- few rows ---- */

/* Distribution of a panel over a block of few rows. */
template <bt_pack_t P, uint32_t R> struct Few {
    /* Groups per warp, even so that their part of a row is whole sectors,
     * within the shared memory of a block. */
    static constexpr uint32_t own =
        ((R == 8) || (BtPack<P>::halves == 2)) ? 2 : 4;
    static constexpr uint32_t chunk = kWarps * own;
    /* Floats that a group has for each lane and scale. */
    static constexpr uint32_t group = BT_PANEL * BtPack<P>::halves;
    /* Data of a row for a warp: two words of 16 bytes of codes for each of its
     * groups, then the groups' own. */
    static constexpr uint32_t row = 3 * own;
};

/* Row data that all lanes of a warp need: adjacent lanes load it, and it is
 * read from shared memory. The warp synchronises after it. */
template <bt_pack_t P, uint32_t R, typename Rows>
__device__ __forceinline__ void
load_rows(const BtQ8Rows &x, const Rows &rows, const BtTile &tile,
          uint32_t first, uint32_t n_groups, const bt_shared<uint4> &to)
{
    constexpr uint32_t own = Few<P, R>::own;
    constexpr uint32_t row = Few<P, R>::row;
    const uint4 *codes = reinterpret_cast<const uint4 *>(x.codes);
    const uint32_t at = threadIdx.x / 32 * R * row;

    for (uint32_t i = threadIdx.x % 32; i < R * row; i += 32) {
        const uint32_t r = tile.first + i / row;
        const uint32_t word = i % row;
        const uint32_t group =
            first + ((word < 2 * own) ? word / 2 : word - 2 * own);

        if ((r < tile.end) && (group < n_groups)) {
            const size_t from = rows.from(r) * n_groups + group;

            to.set(at + i,
                   bt_load((word < 2 * own) ? codes + 2 * from + word % 2
                                            : x.groups + from));
        }
    }
    __syncwarp();
}

/* Products of one half of a group, without the scales. */
template <bt_pack_t P>
__device__ __forceinline__ float half_sum(const uint32_t quads[8], uint4 x,
                                          uint32_t start, uint32_t half)
{
    int32_t sum = static_cast<int32_t>(start);

    sum = __dp4a(static_cast<int32_t>(quads[4 * half]),
                 static_cast<int32_t>(x.x), sum);
    sum = __dp4a(static_cast<int32_t>(quads[4 * half + 1]),
                 static_cast<int32_t>(x.y), sum);
    sum = __dp4a(static_cast<int32_t>(quads[4 * half + 2]),
                 static_cast<int32_t>(x.z), sum);
    sum = __dp4a(static_cast<int32_t>(quads[4 * half + 3]),
                 static_cast<int32_t>(x.w), sum);
    return static_cast<float>(sum);
}

/* Products to be multiplied by the weights' scale: of the whole group, or of
 * each half.
 * @param low, high  codes of a row */
template <bt_pack_t P>
__device__ __forceinline__ void products_of(const uint32_t quads[8], uint4 low,
                                            uint4 high, uint4 row,
                                            float products[2])
{
    const bool starts = BtPack<P>::bias != 0;
    const float first = half_sum<P>(quads, low, starts ? row.z : 0, 0);
    const float second = half_sum<P>(quads, high, starts ? row.w : 0, 1);

    products[0] = __fmul_rn(first, bt_f32_from_bits(row.x));
    if (BtPack<P>::format.two) {
        products[1] = __fmul_rn(second, bt_f32_from_bits(row.y));
    } else {
        products[0] = fmaf(second, bt_f32_from_bits(row.y), products[0]);
    }
}

/* A warp's groups of a chunk, all loaded before any is used. */
template <bt_pack_t P, uint32_t own> struct Groups {
    BtCodes<P> codes[own];
    float scales[own][2];
    float mins[own][2];
};

/* Loads groups first .. of a panel, as far as they exist: all of one block. */
template <bt_pack_t P, uint32_t own>
__device__ __forceinline__ void
load_groups(const BtMatrix &m, const uint8_t *panel, uint32_t first,
            uint32_t n_groups, uint32_t lane, Groups<P, own> &to)
{
    constexpr bt_pack_format_t format = BtPack<P>::format;
    const uint8_t *block =
        panel + static_cast<size_t>(first / format.n_groups) * format.bytes;
    const float unit = (first < n_groups) ? bt_unit<P>(m, block, 0, lane) : 0;
    const float min_unit =
        (format.min && (first < n_groups)) ? bt_unit<P>(m, block, 1, lane) : 0;

    BT_UNROLL
    for (uint32_t i = 0; i < own; i++) {
        const uint32_t g = first + i;
        const uint8_t *at =
            panel + static_cast<size_t>(g / format.n_groups) * format.bytes;
        const bt_pack_offsets_t offsets =
            bt_pack_offsets_of(format, g % format.n_groups);

        if (g >= n_groups) {
            break;
        }
        to.codes[i] = bt_load_codes<P>(at + offsets.codes, lane);
        BT_UNROLL
        for (uint32_t h = 0; h < BtPack<P>::halves; h++) {
            const uint32_t half = h * bt_pack_half_bytes(format);

            to.scales[i][h] =
                bt_factor<P>(at + offsets.scales + half, unit, lane);
            if (format.min) {
                to.mins[i][h] =
                    bt_factor<P>(at + offsets.mins + half, min_unit, lane);
            }
        }
    }
}

/* One block per panel and tile of R rows. */
template <bt_pack_t P, uint32_t R, typename Rows>
__global__ void few_rows_kernel(BtMatrix m, BtQ8Rows x, Rows all, bool add,
                                float *out)
{
    typedef Few<P, R> F;
    constexpr bool min = BtPack<P>::format.min;
    constexpr uint32_t chunk = F::chunk;
    constexpr uint32_t halves = BtPack<P>::halves;
    BT_SHARED(float, products, R *chunk *F::group);
    BT_SHARED(float, scales, chunk *F::group);
    BT_SHARED(float, mins, min ? chunk *F::group : 1);
    BT_SHARED(uint4, rows, kWarps * R * F::row);
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t panel = blockIdx.x % m.n_panels;
    const BtTile tile = all.tile(blockIdx.x / m.n_panels, R, m);
    const uint32_t first = tile.first;
    const uint32_t n_rows = tile.end;
    const uint32_t n_groups = m.n_in / BT_PACK_GROUP;
    const uint32_t output = panel * BT_PANEL + lane;
    const uint8_t *data = m.data + (tile.panel + panel) * m.panel_bytes;
    float acc = 0.0f;

    if (first >= n_rows) {
        return;
    }
    for (uint32_t begin = 0; begin < n_groups; begin += chunk) {
        const uint32_t mine = begin + warp * F::own;
        Groups<P, F::own> groups;

        load_groups<P, F::own>(m, data, mine, n_groups, lane, groups);
        load_rows<P, R>(x, all, tile, mine, n_groups, rows);
        BT_UNROLL
        for (uint32_t i = 0; i < F::own; i++) {
            const uint32_t to = (mine - begin + i) * F::group + lane;
            uint32_t quads[8];

            if (mine + i >= n_groups) {
                break;
            }
            BT_UNROLL
            for (uint32_t h = 0; h < halves; h++) {
                scales.set(to + h * BT_PANEL, groups.scales[i][h]);
                if (min) {
                    mins.set(to + h * BT_PANEL, groups.mins[i][h]);
                }
            }
            BT_UNROLL
            for (uint32_t q = 0; q < 8; q++) {
                quads[q] = bt_quad<P>(m, groups.codes[i], q);
            }
            for (uint32_t r = 0; (r < R) && (first + r < n_rows); r++) {
                const uint32_t row = (warp * R + r) * F::row;
                float sums[2];

                products_of<P>(quads, rows.get(row + 2 * i),
                               rows.get(row + 2 * i + 1),
                               rows.get(row + 2 * F::own + i), sums);
                BT_UNROLL
                for (uint32_t h = 0; h < halves; h++) {
                    products.set(r * chunk * F::group + to + h * BT_PANEL,
                                 sums[h]);
                }
            }
        }
        BT_SYNC();
        for (uint32_t i = 0; (warp < R) && (first + warp < n_rows) &&
                             (i < chunk) && (begin + i < n_groups);
             i++) {
            const uint32_t from = i * F::group + lane;
            uint4 row = {0, 0, 0, 0};
            float p[2], s[2], n[2];

            if (min) {
                row = rows.get((i / F::own * R + warp) * F::row + 2 * F::own +
                               i % F::own);
            }
            BT_UNROLL
            for (uint32_t h = 0; h < halves; h++) {
                p[h] =
                    products.get(warp * chunk * F::group + from + h * BT_PANEL);
                s[h] = scales.get(from + h * BT_PANEL);
                n[h] = min ? mins.get(from + h * BT_PANEL) : 0.0f;
            }
            acc = bt_q8_add<P>(acc, p, s, n, row);
        }
        BT_SYNC();
    }
    if ((warp < R) && (first + warp < n_rows) && (output < m.n_out)) {
        bt_put_sum(all.to(out, first + warp, m) + output, acc, add);
    }
}

template <bt_pack_t P, uint32_t R, typename Rows>
void few_tiles(bt_backend_t *be, const BtMatrix &m, const BtQ8Rows &x,
               const Rows &rows, uint32_t n_tiles, bool add, float *out)
{
    BT_LAUNCH((few_rows_kernel<P, R, Rows>), m.n_panels * n_tiles, kThreads, be,
              m, x, rows, add, out);
}

template <bt_pack_t P>
void few_rows(bt_backend_t *be, const BtMatrix &m, const BtQ8Rows &x,
              uint32_t n_rows, bool add, float *out)
{
    const BtAllRows rows = {n_rows};

    if (n_rows == 1) {
        few_tiles<P, 1>(be, m, x, rows, 1, add, out);
    } else if (n_rows <= 4) {
        few_tiles<P, 4>(be, m, x, rows, 1, add, out);
    } else {
        few_tiles<P, 8>(be, m, x, rows, (n_rows + 7) / 8, add, out);
    }
}

template <bt_pack_t P>
void few_slots(bt_backend_t *be, const BtMatrix &m, const BtQ8Rows &x,
               const BtSlotTiles &slots, float *out)
{
    const BtSlotRows &rows = slots.rows;

    if (slots.tile_rows == 1) {
        few_tiles<P, 1>(be, m, x, rows, rows.all_tiles, false, out);
    } else if (slots.tile_rows == 4) {
        few_tiles<P, 4>(be, m, x, rows, rows.all_tiles, false, out);
    } else {
        few_tiles<P, 8>(be, m, x, rows, rows.all_tiles, false, out);
    }
}

} // namespace

void bt_cuda_matmul_q8(bt_backend_t *be, const bt_weight_t *w,
                       const BtStepRows &from, uint32_t n_rows, bool add,
                       float *out)
{
    const BtQ8Rows rows = bt_cuda_quantize(be, w, from, n_rows);
    const BtMatrix m = bt_matrix_of(w);

    if (n_rows > kFewRows) {
        bt_cuda_q8_many(be, w, rows, n_rows, add, out);
        return;
    }
#define BT_FEW(P) few_rows<P>(be, m, rows, n_rows, add, out)
    BT_CUDA_EACH_PACK(w->pack, BT_FEW)
#undef BT_FEW
}

void bt_cuda_slots_q8(bt_backend_t *be, const bt_weight_t *w, const BtQ8Rows &x,
                      const BtSlotTiles &slots, float *out)
{
    const BtMatrix m = bt_expert_matrix_of(w, slots);

    if (slots.tile_rows > kFewRows) {
        bt_cuda_slots_q8_many(be, w, x, slots, out);
        return;
    }
#define BT_FEW(P) few_slots<P>(be, m, x, slots, out)
    BT_CUDA_EACH_PACK(w->pack, BT_FEW)
#undef BT_FEW
}
