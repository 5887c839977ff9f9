/* SPDX-License-Identifier: Apache-2.0 */
/* Quantized weights times rows of 8 bits. What the sums of whole numbers are
 * does not hang on their order, so any instruction may make them; the floating
 * sum over the groups keeps the reference's (kernels.h, matmul()).
 *
 * Few rows: memory is all that counts. A block has one panel, each of its warps
 * some groups of a chunk at a time, so that many loads are under way. The warps
 * leave the products of each group and row in shared memory, and then one warp
 * of each row adds those of the chunk, group after group. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/q8.h"
#include "kernels/cuda/steps.h"

namespace
{

const uint32_t kWarps = 8;
const uint32_t kThreads = 32 * kWarps;
const uint32_t kFewRows = 8; /* up to here, memory is what counts */

/* ---- few rows ---- */

/* How a block of few rows shares a panel. */
template <bt_pack_t P> struct Few {
    static constexpr uint32_t own =
        4 / BtPack<P>::halves; /* groups of a warp */
    static constexpr uint32_t chunk = kWarps * own;
    /* Floats of what a group has once for each lane and scale of it. */
    static constexpr uint32_t group = BT_PANEL * BtPack<P>::halves;
};

/* The products of one half of a group, without the scales. */
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

/* What is to be multiplied by the weights' scale: of the whole group, or of
 * each half of it. */
template <bt_pack_t P>
__device__ __forceinline__ void products_of(const uint32_t quads[8],
                                            const BtQ8Rows &x, size_t group,
                                            float products[2])
{
    const uint4 *codes = reinterpret_cast<const uint4 *>(x.codes) + 2 * group;
    const uint4 row = bt_load(x.groups + group);
    const bool starts = BtPack<P>::bias != 0;
    const float low = half_sum<P>(quads, bt_load(codes), starts ? row.z : 0, 0);
    const float high =
        half_sum<P>(quads, bt_load(codes + 1), starts ? row.w : 0, 1);

    products[0] = __fmul_rn(low, bt_f32_from_bits(row.x));
    if (BtPack<P>::format.two) {
        products[1] = __fmul_rn(high, bt_f32_from_bits(row.y));
    } else {
        products[0] = fmaf(high, bt_f32_from_bits(row.y), products[0]);
    }
}

/* What a warp has of its groups of a chunk, all asked for before any is used.
 */
template <bt_pack_t P> struct Groups {
    BtCodes<P> codes[Few<P>::own];
    float scales[Few<P>::own][2];
    float mins[Few<P>::own][2];
};

/* Groups first .. of a panel, those of them that there are: all of one block.
 */
template <bt_pack_t P>
__device__ __forceinline__ void
load_groups(const BtMatrix &m, const uint8_t *panel, uint32_t first,
            uint32_t n_groups, uint32_t lane, Groups<P> &to)
{
    constexpr bt_pack_format_t format = BtPack<P>::format;
    const uint8_t *block =
        panel + static_cast<size_t>(first / format.n_groups) * format.bytes;
    const float unit = (first < n_groups) ? bt_unit<P>(m, block, 0, lane) : 0;
    const float min_unit =
        (format.min && (first < n_groups)) ? bt_unit<P>(m, block, 1, lane) : 0;

    BT_UNROLL
    for (uint32_t i = 0; i < Few<P>::own; i++) {
        const uint32_t g = first + i;
        const uint8_t *at =
            panel + static_cast<size_t>(g / format.n_groups) * format.bytes;
        const bt_pack_place_t place =
            bt_pack_place_of(format, g % format.n_groups);

        if (g >= n_groups) {
            break;
        }
        to.codes[i] = bt_load_codes<P>(at + place.codes, lane);
        BT_UNROLL
        for (uint32_t h = 0; h < BtPack<P>::halves; h++) {
            const uint32_t half = h * bt_pack_half_bytes(format);

            to.scales[i][h] =
                bt_factor<P>(at + place.scales + half, unit, lane);
            if (format.min) {
                to.mins[i][h] =
                    bt_factor<P>(at + place.mins + half, min_unit, lane);
            }
        }
    }
}

/* One block per panel and R rows. */
template <bt_pack_t P, uint32_t R>
__global__ void few_rows_kernel(BtMatrix m, BtQ8Rows x, uint32_t n_rows,
                                bool add, float *out)
{
    constexpr bool min = BtPack<P>::format.min;
    constexpr uint32_t chunk = Few<P>::chunk;
    constexpr uint32_t halves = BtPack<P>::halves;
    BT_SHARED(float, products, R *chunk *Few<P>::group);
    BT_SHARED(float, scales, chunk *Few<P>::group);
    BT_SHARED(float, mins, min ? chunk *Few<P>::group : 1);
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t panel = blockIdx.x % m.n_panels;
    const uint32_t first = blockIdx.x / m.n_panels * R;
    const uint32_t n_groups = m.n_in / BT_PACK_GROUP;
    const uint32_t output = panel * BT_PANEL + lane;
    float acc = 0.0f;

    for (uint32_t begin = 0; begin < n_groups; begin += chunk) {
        const uint32_t mine = begin + warp * Few<P>::own;
        Groups<P> groups;

        load_groups<P>(m, m.data + panel * m.panel_bytes, mine, n_groups, lane,
                       groups);
        BT_UNROLL
        for (uint32_t i = 0; i < Few<P>::own; i++) {
            const uint32_t to = (mine - begin + i) * Few<P>::group + lane;
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
                float sums[2];

                products_of<P>(
                    quads, x,
                    static_cast<size_t>(first + r) * n_groups + mine + i, sums);
                BT_UNROLL
                for (uint32_t h = 0; h < halves; h++) {
                    products.set(r * chunk * Few<P>::group + to + h * BT_PANEL,
                                 sums[h]);
                }
            }
        }
        BT_SYNC();
        for (uint32_t i = 0; (warp < R) && (first + warp < n_rows) &&
                             (i < chunk) && (begin + i < n_groups);
             i++) {
            const uint32_t from = i * Few<P>::group + lane;
            const uint4 row = bt_load(
                x.groups + static_cast<size_t>(first + warp) * n_groups +
                begin + i);
            float p[2], s[2], n[2];

            BT_UNROLL
            for (uint32_t h = 0; h < halves; h++) {
                p[h] = products.get(warp * chunk * Few<P>::group + from +
                                    h * BT_PANEL);
                s[h] = scales.get(from + h * BT_PANEL);
                n[h] = min ? mins.get(from + h * BT_PANEL) : 0.0f;
            }
            acc = bt_q8_add<P>(acc, p, s, n, row);
        }
        BT_SYNC();
    }
    if ((warp < R) && (first + warp < n_rows) && (output < m.n_out)) {
        bt_put_sum(out + static_cast<size_t>(first + warp) * m.n_out + output,
                   acc, add);
    }
}

template <bt_pack_t P>
void few_rows(bt_backend_t *be, const BtMatrix &m, const BtQ8Rows &x,
              uint32_t n_rows, bool add, float *out)
{
    const uint32_t r = (n_rows == 1) ? 1 : (n_rows <= 4) ? 4 : 8;
    const uint32_t blocks = m.n_panels * ((n_rows + r - 1) / r);

    if (r == 1) {
        BT_LAUNCH((few_rows_kernel<P, 1>), blocks, kThreads, be, m, x, n_rows,
                  add, out);
    } else if (r == 4) {
        BT_LAUNCH((few_rows_kernel<P, 4>), blocks, kThreads, be, m, x, n_rows,
                  add, out);
    } else {
        BT_LAUNCH((few_rows_kernel<P, 8>), blocks, kThreads, be, m, x, n_rows,
                  add, out);
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
