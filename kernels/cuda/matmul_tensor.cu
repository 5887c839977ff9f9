/* SPDX-License-Identifier: Apache-2.0 */
/* BF16, F16 and E4M3 weights times rows by tensor cores, in the tensor profile
 * (docs/adr/0019-tensor-profile.md). Rows are first converted to 16 bits; then
 * each output is one chain of products of 16 k, k ascending, from 0 on. The
 * other outputs and rows of a block do not affect it, so the variants for few
 * and for many rows have the same bits.
 *
 * Weights are A and rows are B. Chunks of both are loaded to shared memory
 * several ahead, in a ring with one barrier per chunk:
 *
 *     wait for chunk i | barrier | load chunk i + stages - 1 | use chunk i
 *
 * BF16 weights are laid out as in memory, pairs of k of 32 outputs: a lane's
 * piece of A is words of adjacent outputs, and the assignment of outputs to
 * rows of A is free. F16 weights have k by k: ldmatrix transposes them. E4M3
 * codes are laid out as in memory, too, and are converted to bf16 in registers;
 * each block of 64 k is a chain of its own, whose sum is multiplied by its
 * scale and added to the total, in order. 16-byte pieces are swizzled so that
 * lanes that read at a time access different banks. */
#include <cmath>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/halves.h"
#include "kernels/cuda/steps.h"
#include "kernels/cuda/tiles.h"
#include "kernels/cuda/unpack.h"
#include "kernels/half.h"

namespace
{

/* A block has Panels panels of 32 outputs and RowWarps times 8 N rows; a warp
 * has 16 M outputs of a panel. K: k per chunk. Stages: chunks in the ring. */
template <uint32_t Panels, uint32_t RowWarps, uint32_t M, uint32_t N,
          uint32_t K, uint32_t Stages>
struct Form {
    static constexpr uint32_t panels = Panels, m = M, n = N, k = K;
    static constexpr uint32_t stages = Stages;
    static constexpr uint32_t parts = 2 / M; /* of a panel, between warps */
    static constexpr uint32_t rows = RowWarps * 8 * N;
    static constexpr uint32_t threads = 32 * Panels * parts * RowWarps;
    static constexpr uint32_t wide = 2 * M; /* adjacent outputs of a lane */
    static constexpr uint32_t row_fours = K / 8; /* 16 bytes of a row */
};

struct Few : Form<1, 1, 1, 1, 64, 6> { /* 8 rows */
};
struct Some : Form<1, 2, 1, 4, 64, 3> { /* 64 */
};
struct Many : Form<4, 2, 2, 8, 32, 3> { /* 128 */
};
/* For codes: half the bytes, so more chunks ahead; sums are kept twice, so
 * fewer of them. */
struct FewCodes : Form<1, 1, 1, 1, 64, 10> { /* 8 rows */
};
struct SomeCodes : Form<1, 2, 1, 4, 64, 3> { /* 64 */
};
struct ManyCodes : Form<4, 2, 2, 4, 32, 4> { /* 64, of 128 outputs */
};
const uint32_t kThreads = 256; /* at most */

/* Words of a chunk of a panel; for codes there is a line of scales before. */
template <bt_pack_t P, typename F>
constexpr uint32_t kPanelWords = (P == BT_PACK_E4M3) ? (1 + F::k / 4) * BT_PANEL
                                                     : F::k *BT_PANEL / 2;

template <uint32_t N> struct alignas(N * sizeof(uint32_t)) Words {
    uint32_t w[N];
};

/* Shared memory of a block. */
template <typename F> struct Ring {
    bt_shared<Words<F::wide>> weights; /* [stage][panel][k, outputs] */
    bt_shared<uint4> rows;             /* [stage][row][k] */
};

/* ---- positions of 16-byte pieces ---- */

/* Position, in words, of 16-byte piece @a four of line @a line of a panel. A
 * line is a pair of k (BF16) or four k (E4M3) of 8 pieces, or one k (F16) of
 * 4. */
template <bt_pack_t P>
__device__ __forceinline__ uint32_t weights_at(uint32_t line, uint32_t four)
{
    return (P == BT_PACK_F16) ? line * 16 + (four ^ (line / 2 % 4)) * 4
                              : line * 32 + (four ^ (2 * (line % 4))) * 4;
}

/* Position of 16-byte piece @a four of a row of the block. */
template <typename F>
__device__ __forceinline__ uint32_t rows_at(uint32_t row, uint32_t four)
{
    return row * F::row_fours +
           (four ^ (row / (8 / F::row_fours) % F::row_fours));
}

/* ---- from memory ---- */

/* Line @a line of the codes from k @a begin on: its position in the panel, or
 * that it is not loaded. Scales are loaded where their block ends. */
template <typename F>
__device__ __forceinline__ bool find_codes(const BtMatrix &m, uint32_t begin,
                                           uint32_t line, size_t *at)
{
    const size_t block =
        static_cast<size_t>(begin / BT_E4M3_BLOCK) * BT_E4M3_BYTES;

    *at = block + ((line == 0) ? 0 : begin % BT_E4M3_BLOCK / 4 + line) * 128;
    return (begin < m.n_in) &&
           ((line > 0) || ((begin + F::k) % BT_E4M3_BLOCK == 0));
}

template <typename F>
__device__ __forceinline__ void
ask_codes(const Ring<F> &ring, const BtMatrix &m, uint32_t first_panel,
          uint32_t begin, uint32_t stage)
{
    constexpr uint32_t words = kPanelWords<BT_PACK_E4M3, F>;
    constexpr uint32_t fours = words / 4;

    for (uint32_t i = threadIdx.x; i < F::panels * fours; i += F::threads) {
        const uint32_t panel = first_panel + i / fours;
        const uint32_t line = i % fours / 8;
        const uint32_t four = i % 8;
        size_t at = 0;
        const bool is_there =
            find_codes<F>(m, begin, line, &at) && (panel < m.n_panels);

        bt_copy_async<16>(
            ring.weights.address(((stage * F::panels + i / fours) * words +
                                  weights_at<BT_PACK_E4M3>(line, four)) /
                                 F::wide),
            m.data + (is_there ? panel * m.panel_bytes + at + four * 16 : 0),
            is_there ? 16 : 0);
    }
}

template <bt_pack_t P, typename F>
__device__ __forceinline__ void
ask_numbers(const Ring<F> &ring, const BtMatrix &m, uint32_t first_panel,
            uint32_t begin, uint32_t stage)
{
    constexpr uint32_t line_fours = (P == BT_PACK_BF16) ? 8 : 4;
    constexpr uint32_t line_k = (P == BT_PACK_BF16) ? 2 : 1;
    constexpr uint32_t fours = kPanelWords<P, F> / 4;

    for (uint32_t i = threadIdx.x; i < F::panels * fours; i += F::threads) {
        const uint32_t panel = first_panel + i / fours;
        const uint32_t line = i % fours / line_fours;
        const uint32_t four = i % line_fours;
        const bool is_there =
            (panel < m.n_panels) && (begin + line * line_k < m.n_in);
        const size_t at =
            is_there
                ? panel * m.panel_bytes +
                      (static_cast<size_t>(begin / line_k + line) * line_fours +
                       four) *
                          16
                : 0;

        bt_copy_async<16>(
            ring.weights.address(
                ((stage * F::panels + i / fours) * kPanelWords<P, F> +
                 weights_at<P>(line, four)) /
                F::wide),
            m.data + at, is_there ? 16 : 0);
    }
}

template <bt_pack_t P, typename F>
__device__ __forceinline__ void
ask_weights(const Ring<F> &ring, const BtMatrix &m, uint32_t first_panel,
            uint32_t begin, uint32_t stage)
{
    if constexpr (P == BT_PACK_E4M3) {
        ask_codes(ring, m, first_panel, begin, stage);
    } else {
        ask_numbers<P>(ring, m, first_panel, begin, stage);
    }
}

template <typename F, typename Rows>
__device__ __forceinline__ void ask_rows(const Ring<F> &ring, const BtHalves &x,
                                         const Rows &rows, const BtTile &tile,
                                         uint32_t begin, uint32_t stage)
{
    for (uint32_t i = threadIdx.x; i < F::rows * F::row_fours;
         i += F::threads) {
        const uint32_t row = i / F::row_fours;
        const uint32_t four = i % F::row_fours;
        const bool is_there =
            (tile.first + row < tile.end) && (begin + four * 8 < x.row_halves);
        const size_t at =
            is_there
                ? rows.from(tile.first + row) * x.row_halves + begin + four * 8
                : 0;

        bt_copy_async<16>(ring.rows.address(stage * F::rows * F::row_fours +
                                            rows_at<F>(row, four)),
                          x.halves + at, is_there ? 16 : 0);
    }
}

/* ---- pieces of A and B ---- */

/* Position of a warp in its block, and of a lane in its warp. */
struct Who {
    uint32_t panel, part, row; /* in the block; part of a panel */
    uint32_t lane, g, t;
};

template <typename F> __device__ __forceinline__ Who who_of()
{
    const uint32_t warp = threadIdx.x / 32;
    Who who;

    who.part = warp % F::parts;
    who.panel = warp / F::parts % F::panels;
    who.row = warp / F::parts / F::panels * 8 * F::n;
    who.lane = threadIdx.x % 32;
    who.g = who.lane / 4;
    who.t = who.lane % 4;
    return who;
}

/* Output of the panel in row g (half 0) or g + 8 (1) of the warp's m-th
 * product. */
template <bt_pack_t P, typename F>
__device__ __forceinline__ uint32_t output_of(const Who &who, uint32_t m,
                                              uint32_t half)
{
    return (P == BT_PACK_F16) ? 16 * (who.part + m) + 8 * half + who.g
                              : 16 * who.part + F::wide * who.g + 2 * m + half;
}

/* Codes 0 and 2 of a word, and 1 and 3: two bf16 each. Their exponents have
 * another bias, which an exact product corrects. */
struct Decoded {
    uint32_t even, odd;
};

__device__ __forceinline__ Decoded decode(uint32_t word)
{
    const uint32_t magnitudes = 0x07f007f0u, signs = 0x80008000u;
    const uint32_t power = 0x7b807b80u; /* 2^120 */

    return {bt_mul_bf16((word << 4 & magnitudes) | (word << 8 & signs), power),
            bt_mul_bf16((word >> 4 & magnitudes) | (word & signs), power)};
}

/* Words of a lane's outputs, from a line of E4M3 of a warp's panel. */
template <typename F>
__device__ __forceinline__ Words<F::wide>
line_of(const Ring<F> &ring, const Who &who, uint32_t stage, uint32_t line)
{
    constexpr uint32_t words = kPanelWords<BT_PACK_E4M3, F>;
    const uint32_t output = output_of<BT_PACK_E4M3, F>(who, 0, 0);

    return ring.weights.get(((stage * F::panels + who.panel) * words +
                             weights_at<BT_PACK_E4M3>(line, output / 4) +
                             output % 4) /
                            F::wide);
}

template <bt_pack_t P, typename F>
__device__ __forceinline__ void load_a(const Ring<F> &ring, const Who &who,
                                       uint32_t stage, uint32_t step,
                                       uint32_t (&a)[F::m][4])
{
    const uint32_t base =
        (stage * F::panels + who.panel) * kPanelWords<P, F> / F::wide;

    if constexpr (P == BT_PACK_E4M3) {
        const Words<F::wide> codes =
            line_of(ring, who, stage, 1 + 4 * step + who.t);

        BT_UNROLL
        for (uint32_t m = 0; m < F::m; m++) {
            const Decoded first = decode(codes.w[2 * m]);
            const Decoded second = decode(codes.w[2 * m + 1]);

            a[m][0] = first.even;
            a[m][1] = second.even;
            a[m][2] = first.odd;
            a[m][3] = second.odd;
        }
    } else if constexpr (P == BT_PACK_BF16) {
        const uint32_t output = output_of<P, F>(who, 0, 0);
        const uint32_t line = 8 * step + who.t;
        const uint32_t at =
            base + (weights_at<P>(line, output / 4) + output % 4) / F::wide;
        /* Four lines on: the same swizzle of the pieces. */
        const Words<F::wide> low = ring.weights.get(at);
        const Words<F::wide> high = ring.weights.get(at + 4 * 32 / F::wide);

        BT_UNROLL
        for (uint32_t m = 0; m < F::m; m++) {
            a[m][0] = low.w[2 * m];
            a[m][1] = low.w[2 * m + 1];
            a[m][2] = high.w[2 * m];
            a[m][3] = high.w[2 * m + 1];
        }
    } else {
        const uint32_t line = 16 * step + who.lane / 16 * 8 + who.lane % 8;

        BT_UNROLL
        for (uint32_t m = 0; m < F::m; m++) {
            const uint32_t four = 2 * (who.part + m) + who.lane / 8 % 2;

            bt_ldmatrix_trans(a[m],
                              ring.weights.address(
                                  base + weights_at<P>(line, four) / F::wide));
        }
    }
}

template <typename F>
__device__ __forceinline__ void load_b(const Ring<F> &ring, const Who &who,
                                       uint32_t stage, uint32_t step,
                                       uint32_t (&b)[F::n][2])
{
    const uint32_t base = stage * F::rows * F::row_fours;
    const uint32_t four = 2 * step + who.lane / 8 % 2;

    if constexpr (F::n == 1) { /* half of the lanes supply row addresses */
        bt_ldmatrix(b[0], ring.rows.address(
                              base + rows_at<F>(who.row + who.lane % 8, four)));
    } else {
        BT_UNROLL
        for (uint32_t n = 0; n < F::n; n += 2) {
            const uint32_t row =
                who.row + 8 * n + who.lane / 16 * 8 + who.lane % 8;
            uint32_t two[4];

            bt_ldmatrix(two, ring.rows.address(base + rows_at<F>(row, four)));
            b[n][0] = two[0];
            b[n][1] = two[1];
            b[n + 1][0] = two[2];
            b[n + 1][1] = two[3];
        }
    }
}

template <bt_pack_t P, typename F>
__device__ __forceinline__ void use(const Ring<F> &ring, const Who &who,
                                    uint32_t stage, float (&acc)[F::m][F::n][4])
{
    BT_UNROLL
    for (uint32_t step = 0; step < F::k / 16; step++) {
        uint32_t a[F::m][4], b[F::n][2];

        load_a<P, F>(ring, who, stage, step, a);
        load_b<F>(ring, who, stage, step, b);
        BT_UNROLL
        for (uint32_t i = 0; i < F::m * F::n; i++) {
            float(&sums)[4] = acc[i / F::n][i % F::n];

            if constexpr (P != BT_PACK_F16) {
                bt_mma_bf16(sums, a[i / F::n], b[i % F::n], sums);
            } else {
                bt_mma_f16(sums, a[i / F::n], b[i % F::n], sums);
            }
        }
    }
}

/* Ends a block of codes: adds its sums times their scales to the totals. */
template <typename F>
__device__ __forceinline__ void
add_block(const Ring<F> &ring, const Who &who, uint32_t stage,
          float (&acc)[F::m][F::n][4], float (&total)[F::m][F::n][4])
{
    const Words<F::wide> scales = line_of(ring, who, stage, 0);

    BT_UNROLL
    for (uint32_t i = 0; i < F::m * F::n * 4; i++) {
        const uint32_t m = i / 4 / F::n;
        float &sum = acc[m][i / 4 % F::n][i % 4];
        float &all = total[m][i / 4 % F::n][i % 4];

        all = fmaf(sum, bt_f32_from_bits(scales.w[2 * m + i % 4 / 2]), all);
        sum = 0.0f;
    }
}

/* ---- results ---- */

/* Adjacent outputs of a row, as one access where they are aligned. */
template <uint32_t N>
__device__ __forceinline__ void put_beside(float *row, uint32_t output,
                                           uint32_t n_out, bool add,
                                           const float (&sums)[N])
{
    typedef Words<N> Beside;

    if ((n_out % N == 0) && (output < n_out)) {
        Beside *at = reinterpret_cast<Beside *>(row + output);
        Beside made;

        if (add) {
            made = bt_load(at);
        }
        BT_UNROLL
        for (uint32_t i = 0; i < N; i++) {
            made.w[i] = bt_f32_bits(
                add ? __fadd_rn(bt_f32_from_bits(made.w[i]), sums[i])
                    : sums[i]);
        }
        bt_store(at, made);
        return;
    }
    BT_UNROLL
    for (uint32_t i = 0; i < N; i++) {
        if (output + i < n_out) {
            bt_put_sum(row + output + i, sums[i], add);
        }
    }
}

template <bt_pack_t P, typename F>
__device__ __forceinline__ void
put_row(const Who &who, const BtMatrix &m, uint32_t panel, float *at,
        const float *factors, bool add, uint32_t j,
        const float (&acc)[F::m][F::n][4], uint32_t n)
{
    if constexpr (P != BT_PACK_F16) {
        float sums[F::wide];

        BT_UNROLL
        for (uint32_t i = 0; i < F::wide; i++) {
            sums[i] = acc[i / 2][n][i % 2 * 2 + j];
        }
        put_beside(at, panel * BT_PANEL + output_of<P, F>(who, 0, 0), m.n_out,
                   add, sums);
    } else {
        const float factor = bt_load(factors);

        BT_UNROLL
        for (uint32_t i = 0; i < F::wide; i++) {
            const uint32_t output =
                panel * BT_PANEL + output_of<P, F>(who, i / 2, i % 2);

            if (output < m.n_out) {
                bt_put_sum(at + output,
                           __fmul_rn(acc[i / 2][n][i % 2 * 2 + j], factor),
                           add);
            }
        }
    }
}

/* ---- a block ---- */

template <bt_pack_t P, typename F, typename Rows>
__global__ void BT_BOUNDS(F::threads, 2)
    tensor_kernel(BtMatrix m, BtHalves x, Rows all, bool add, float *out)
{
    constexpr bool is_codes = P == BT_PACK_E4M3;
    typedef Words<F::wide> Wide;
    constexpr uint32_t panel_words = kPanelWords<P, F>;
    BT_SHARED(Wide, weights, F::stages * F::panels * panel_words / F::wide);
    BT_SHARED(uint4, rows, F::stages * F::rows * F::row_fours);
    const Ring<F> ring = {weights, rows};
    /* Blocks of the same weights are consecutive, so that these are read
     * once. */
    const uint32_t n_tiles = all.n_tiles(F::rows);
    const BtTile tile = all.tile(blockIdx.x % n_tiles, F::rows, m);
    const uint32_t first_panel = blockIdx.x / n_tiles * F::panels;
    const uint32_t n_chunks = (m.n_in + F::k - 1) / F::k;
    const Who who = who_of<F>();
    float acc[F::m][F::n][4], total[F::m][F::n][4]; /* for codes only */

    if (tile.first >= tile.end) {
        return;
    }
    m.data += tile.panel * m.panel_bytes;
    BT_UNROLL
    for (uint32_t i = 0; i < F::m * F::n * 4; i++) {
        acc[i / 4 / F::n][i / 4 % F::n][i % 4] = 0.0f;
        total[i / 4 / F::n][i / 4 % F::n][i % 4] = 0.0f;
    }
    for (uint32_t i = 0; i < F::stages - 1; i++) {
        if (i < n_chunks) {
            ask_weights<P>(ring, m, first_panel, i * F::k, i);
            ask_rows(ring, x, all, tile, i * F::k, i);
        }
        bt_copy_commit();
    }
    for (uint32_t i = 0; i < n_chunks; i++) {
        const uint32_t next = i + F::stages - 1;

        bt_copy_wait<F::stages - 2>();
        BT_SYNC(); /* and chunk i - 1 is finished, so that its buffer is free
                    * for the next */
        if (next < n_chunks) {
            ask_weights<P>(ring, m, first_panel, next * F::k, next % F::stages);
            ask_rows(ring, x, all, tile, next * F::k, next % F::stages);
        }
        bt_copy_commit(); /* an empty group at the end */
        use<P, F>(ring, who, i % F::stages, acc);
        if (is_codes && ((i + 1) * F::k % BT_E4M3_BLOCK == 0)) {
            add_block(ring, who, i % F::stages, acc, total);
        }
    }
    BT_UNROLL
    for (uint32_t i = 0; i < 2 * F::n; i++) {
        const uint32_t row =
            tile.first + who.row + i / 2 * 8 + 2 * who.t + i % 2;

        if ((row < tile.end) && (first_panel + who.panel < m.n_panels)) {
            put_row<P, F>(who, m, first_panel + who.panel, all.to(out, row, m),
                          (P == BT_PACK_F16) ? x.factors + all.from(row)
                                             : nullptr,
                          add, i % 2, is_codes ? total : acc, i / 2);
        }
    }
}

template <bt_pack_t P, typename F, typename Rows>
void launch(bt_backend_t *be, const BtMatrix &m, const BtHalves &x,
            const Rows &rows, uint32_t n_tiles, bool add, float *out)
{
    const uint32_t n_blocks = (m.n_panels + F::panels - 1) / F::panels;

    static_assert(F::threads <= kThreads, "of the table of resources");
    BT_LAUNCH((tensor_kernel<P, F, Rows>), n_blocks * n_tiles, F::threads, be,
              m, x, rows, add, out);
}

template <bt_pack_t P, typename F>
void launch_all(bt_backend_t *be, const BtMatrix &m, const BtHalves &x,
                uint32_t n_rows, bool add, float *out)
{
    launch<P, F>(be, m, x, BtAllRows{n_rows}, (n_rows + F::rows - 1) / F::rows,
                 add, out);
}

template <bt_pack_t P, typename OfFew, typename OfSome, typename OfMany>
void multiply(bt_backend_t *be, const BtMatrix &m, const BtHalves &x,
              uint32_t n_rows, bool add, float *out)
{
    if (n_rows <= OfFew::rows) {
        launch_all<P, OfFew>(be, m, x, n_rows, add, out);
    } else if (n_rows <= OfSome::rows) {
        launch_all<P, OfSome>(be, m, x, n_rows, add, out);
    } else {
        launch_all<P, OfMany>(be, m, x, n_rows, add, out);
    }
}

template <bt_pack_t P, typename OfFew, typename OfSome, typename OfMany>
void multiply_slots(bt_backend_t *be, const BtMatrix &m, const BtHalves &x,
                    const BtSlotTiles &slots, float *out)
{
    const BtSlotRows &rows = slots.rows;

    if (slots.tile_rows <= OfFew::rows) {
        launch<P, OfFew>(be, m, x, rows, rows.all_tiles, false, out);
    } else if (slots.tile_rows <= OfSome::rows) {
        launch<P, OfSome>(be, m, x, rows, rows.all_tiles, false, out);
    } else {
        launch<P, OfMany>(be, m, x, rows, rows.all_tiles, false, out);
    }
}

} // namespace

void bt_cuda_matmul_tensor(bt_backend_t *be, const bt_weight_t *w,
                           const BtStepRows &from, uint32_t n_rows, bool add,
                           float *out)
{
    const BtMatrix m = bt_matrix_of(w);
    const BtHalves x = bt_cuda_halves(be, w, from, n_rows);

    if (bt_pack_is_e4m3(w->pack)) {
        multiply<BT_PACK_E4M3, FewCodes, SomeCodes, ManyCodes>(be, m, x, n_rows,
                                                               add, out);
    } else if (w->pack == BT_PACK_BF16) {
        multiply<BT_PACK_BF16, Few, Some, Many>(be, m, x, n_rows, add, out);
    } else {
        multiply<BT_PACK_F16, Few, Some, Many>(be, m, x, n_rows, add, out);
    }
}

void bt_cuda_slots_tensor(bt_backend_t *be, const bt_weight_t *w,
                          const BtHalves &x, const BtSlotTiles &slots,
                          float *out)
{
    const BtMatrix m = bt_expert_matrix_of(w, slots);

    if (bt_pack_is_e4m3(w->pack)) {
        multiply_slots<BT_PACK_E4M3, FewCodes, SomeCodes, ManyCodes>(
            be, m, x, slots, out);
    } else if (w->pack == BT_PACK_BF16) {
        multiply_slots<BT_PACK_BF16, Few, Some, Many>(be, m, x, slots, out);
    } else {
        multiply_slots<BT_PACK_F16, Few, Some, Many>(be, m, x, slots, out);
    }
}
