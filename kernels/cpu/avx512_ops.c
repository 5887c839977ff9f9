/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX-512 tier. */
#include <immintrin.h>

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/tiers.h"

#define TIER_ID   BT_CPU_AVX512
#define TIER_NAME "avx512"
#include "kernels/cpu/tier_lora.h"
#include "kernels/cpu/tier_ops.h"

static inline void vec_store_f16(uint16_t *at, vec_t v)
{
    _mm256_storeu_si256(
        (void *)at,
        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* (The instruction of AVX512_BF16 drops subnormals.) */
static inline void vec_store_bf16(uint16_t *at, vec_t v)
{
    __m512i bits = _mm512_castps_si512(v);
    __m512i high = _mm512_srli_epi32(bits, 16);
    __m512i even = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(
        bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);

    up = _mm512_srli_epi32(up, 16);
    up = _mm512_mask_or_epi32(up, nan, high, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((void *)at, _mm512_cvtepi32_epi16(up));
}

static inline void vec_store_i8(int8_t *at, vec_t v)
{
    _mm_storeu_si128((void *)at, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}

static inline void vec_store_e4m3(uint8_t *at, vec_t v)
{
    const __m512 size = _mm512_min_ps(vec_abs(v), vec_all(E4M3_MAX));
    const __m512i mag = _mm512_castps_si512(size);
    const __m512i even =
        _mm512_and_si512(_mm512_srli_epi32(mag, 20), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(
        mag, _mm512_add_epi32(even, _mm512_set1_epi32(0x7ffff)));
    const __m512i normal = _mm512_sub_epi32(
        _mm512_srli_epi32(up, 20), _mm512_set1_epi32((int)E4M3_BIAS_F32));
    const __m512 align = vec_all(E4M3_ALIGN);
    const __mmask16 small =
        _mm512_cmp_ps_mask(size, vec_all(E4M3_NORMAL), _CMP_LT_OQ);
    const __m512i codes = _mm512_mask_sub_epi32(
        normal, small, _mm512_castps_si512(_mm512_add_ps(size, align)),
        _mm512_castps_si512(align));
    const __m512i sign = _mm512_and_si512(
        _mm512_srli_epi32(_mm512_castps_si512(v), 24), _mm512_set1_epi32(0x80));

    _mm_storeu_si128((void *)at,
                     _mm512_cvtepi32_epi8(_mm512_or_si512(sign, codes)));
}

static inline uint32_t amax_bits(const float *x, uint32_t n)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i max = _mm512_setzero_si512();

    for (uint32_t i = 0; i < n; i += 16) {
        __m512i bits = _mm512_castps_si512(_mm512_loadu_ps(x + i));

        max = _mm512_max_epi32(max, _mm512_and_si512(bits, magnitude));
    }
    return (uint32_t)_mm512_reduce_max_epi32(max);
}

const bt_cpu_isa_t bt_cpu_avx512 = {TIER_OPS, .direct_kv = bt_avx512_direct_kv};

/* Matmul of F32 and F16 weights with AVX-512: a panel is two registers of 16
 * outputs.
 *
 * Up to 8 rows: weights are converted in registers and used at once. More: a
 * panel is converted to scratch, then register tiles of 12 rows x 32 outputs
 * run over it. Both sum every output with k ascending, one FMA each. */

#define DIRECT_ROWS 8u
#define TILE_ROWS   BT_TILE_ROWS
#include "kernels/cpu/tier_matmul.h"

static inline uint32_t panel_outputs(const bt_weight_t *w, uint32_t panel)
{
    uint32_t n = w->n_out - panel * BT_PANEL;

    return (n > BT_PANEL) ? BT_PANEL : n;
}

/* All rows (at most 8) of the batch times one panel. n_rows is the width of
 * the tile; only job->n_rows of them are stored. */
SPECIALIZE void direct_panel(bt_pack_t pack, uint32_t n_rows,
                             const bt_matmul_job_t *job, uint32_t panel)
{
    const bt_weight_t *w = job->w;
    const uint8_t *src = w->data + panel * w->panel_bytes;
    const float *x = job->tiles;
    float *out = job->out + (size_t)panel * BT_PANEL;
    __m512 acc[DIRECT_ROWS][2];

    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        acc[r][0] = _mm512_setzero_ps();
        acc[r][1] = _mm512_setzero_ps();
    }
    for (size_t k = 0; k < w->n_in; k++) {
        tile_step(n_rows, load_dense(pack, src, k, 0),
                  load_dense(pack, src, k, 1), x + k * n_rows, acc);
    }
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        if (r < job->n_rows) {
            store_sums(out + (size_t)r * w->n_out, panel_outputs(w, panel),
                       job->add, acc[r]);
        }
    }
}

SPECIALIZE void direct(bt_pack_t pack, const bt_matmul_job_t *job,
                       uint32_t begin, uint32_t end)
{
    for (uint32_t p = begin; p < end; p++) {
        switch (bt_tile_width(job->n_rows)) {
        case 1:
            direct_panel(pack, 1, job, p);
            break;
        case 2:
            direct_panel(pack, 2, job, p);
            break;
        case 3:
            direct_panel(pack, 3, job, p);
            break;
        case 4:
            direct_panel(pack, 4, job, p);
            break;
        case 6:
            direct_panel(pack, 6, job, p);
            break;
        default:
            direct_panel(pack, 8, job, p);
            break;
        }
    }
}

/* Rows of the last tile. Its width may be larger than the stored part, and then
 * the result goes through a buffer. */
static void tile_rest(uint32_t n_rows, const float *weights, const float *x,
                      uint32_t n_in, bool add, float *out, size_t out_stride,
                      uint32_t n)
{
    float buffer[8 * BT_PANEL];

    switch (n_rows) {
#define TILE_CASE(rows)                                              \
    case rows:                                                       \
        tile(rows, weights, x, rows, n_in, add, out, out_stride, n); \
        return;
        TILE_CASE(1)
        TILE_CASE(2)
        TILE_CASE(3)
        TILE_CASE(4)
        TILE_CASE(6)
        TILE_CASE(8)
        TILE_CASE(9)
        TILE_CASE(10)
        TILE_CASE(11)
#undef TILE_CASE
    case 5:
        tile(6, weights, x, 6, n_in, false, buffer, BT_PANEL, BT_PANEL);
        break;
    default: /* 7 */
        tile(8, weights, x, 8, n_in, false, buffer, BT_PANEL, BT_PANEL);
        break;
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t i = 0; i < n; i++) {
            float *to = out + r * out_stride + i;

            *to =
                add ? *to + buffer[r * BT_PANEL + i] : buffer[r * BT_PANEL + i];
        }
    }
}

static void tiles(const bt_matmul_job_t *job, uint32_t panel,
                  const float *weights)
{
    const bt_weight_t *w = job->w;
    const uint32_t n = panel_outputs(w, panel);
    const float *x = job->tiles;
    float *out = job->out + (size_t)panel * BT_PANEL;
    uint32_t left = job->n_rows;

    for (; left >= BT_TILE_ROWS; left -= BT_TILE_ROWS) {
        tile(BT_TILE_ROWS, weights, x, BT_TILE_ROWS, w->n_in, job->add, out,
             w->n_out, n);
        x += (size_t)w->n_in * BT_TILE_ROWS;
        out += (size_t)w->n_out * BT_TILE_ROWS;
    }
    if (left > 0) {
        tile_rest(left, weights, x, w->n_in, job->add, out, w->n_out, n);
    }
}

/* BF16 weights times rows of bf16 with AVX512_BF16: a panel is two registers of
 * 16 outputs, a lane's two halves are two k. The sums of a tile of up to 12
 * rows stay in registers. */

#define BF16_TILE_ROWS 12u
#define AT_ONCE        4u /* pairs of k of one turn of the loop */
#define FEW_ROWS       4u /* up to this many rows, memory is the limit */

/* Distance of the rows of a tile, in pairs; four pointers, each with the stride
 * as an index, reach 12 of them without further registers. */
typedef struct bf16_rows {
    const uint16_t *third[BF16_TILE_ROWS / 3];
    size_t stride; /* elements */
} bf16_rows_t;

SPECIALIZE __m512bh weights(const uint8_t *pairs)
{
    return (__m512bh)_mm512_load_si512(pairs);
}

SPECIALIZE void add_pairs(uint32_t n_rows, uint32_t n, const uint8_t *w,
                          const bf16_rows_t *rows, __m512 (*acc)[2])
{
    UNROLL
    for (uint32_t p = 0; p < n; p++) {
        const __m512bh w0 = weights(w + 128 * p);
        const __m512bh w1 = weights(w + 128 * p + 64);

        UNROLL
        for (uint32_t r = 0; r < n_rows; r++) {
            const __m512bh x = (__m512bh)word16(rows->third[r / 3] +
                                                r % 3 * rows->stride + 2 * p);

            acc[r][0] = _mm512_dpbf16_ps(acc[r][0], w0, x);
            acc[r][1] = _mm512_dpbf16_ps(acc[r][1], w1, x);
        }
    }
}

SPECIALIZE void next_pairs(uint32_t n_rows, uint32_t n, bf16_rows_t *rows)
{
    UNROLL
    for (uint32_t i = 0; i < (n_rows + 2) / 3; i++) {
        rows->third[i] += 2 * n;
    }
}

SPECIALIZE void tile_panel(uint32_t n_rows, const bt_matmul_job_t *job,
                           uint32_t panel, uint32_t row, bt_ahead_t *ahead_p)
{
    bt_ahead_t ahead = *ahead_p;
    const bt_weight_t *w = job->w;
    const uint8_t *pairs = w->data + panel * w->panel_bytes;
    const uint32_t n_pairs = (w->n_in + 1) / 2;
    const uint32_t left = w->n_out - panel * BT_PANEL;
    float *out = job->out + (size_t)row * w->n_out + (size_t)panel * BT_PANEL;
    bf16_rows_t rows = {.stride = 2 * (size_t)n_pairs};
    __m512 acc[BF16_TILE_ROWS][2];
    uint32_t p = 0;

    UNROLL
    for (uint32_t i = 0; i < (n_rows + 2) / 3; i++) {
        rows.third[i] = job->bf16 + (row + (size_t)i * 3) * rows.stride;
    }
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        acc[r][0] = _mm512_setzero_ps();
        acc[r][1] = _mm512_setzero_ps();
    }
    for (; p + AT_ONCE <= n_pairs; p += AT_ONCE) {
        add_pairs(n_rows, AT_ONCE, pairs, &rows, acc);
        next_pairs(n_rows, AT_ONCE, &rows);
        pairs += (size_t)AT_ONCE * 128;
        if (n_rows > FEW_ROWS) {
            bt_ahead_ask(&ahead);
        }
    }
    for (; p < n_pairs; p++) {
        add_pairs(n_rows, 1, pairs, &rows, acc);
        next_pairs(n_rows, 1, &rows);
        pairs += 128;
    }
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        store_sums(out, left, job->add, acc[r]);
        out += w->n_out;
    }
    *ahead_p = ahead;
}

static void tile_rows(const bt_matmul_job_t *job, uint32_t panel, uint32_t row,
                      uint32_t n, bt_ahead_t *ahead)
{
    switch (n) {
#define BF16_TILE_CASE(rows)                      \
    case rows:                                    \
        tile_panel(rows, job, panel, row, ahead); \
        break;
        BF16_TILE_CASE(1)
        BF16_TILE_CASE(2)
        BF16_TILE_CASE(3)
        BF16_TILE_CASE(4)
        BF16_TILE_CASE(5)
        BF16_TILE_CASE(6)
        BF16_TILE_CASE(7)
        BF16_TILE_CASE(8)
        BF16_TILE_CASE(9)
        BF16_TILE_CASE(10)
        BF16_TILE_CASE(11)
#undef BF16_TILE_CASE
    default:
        tile_panel(BF16_TILE_ROWS, job, panel, row, ahead);
        break;
    }
}

void bt_avx512_matmul_bf16(const bt_matmul_job_t *job, uint32_t begin,
                           uint32_t end)
{
    const uint32_t n_tiles =
        (job->n_rows + BF16_TILE_ROWS - 1) / BF16_TILE_ROWS;

    if (!__builtin_cpu_supports("avx512bf16")) {
        bt_avx2_matmul_bf16(job, begin, end); /* processors before 2020 */
        return;
    }
    for (uint32_t p = begin; p < end; p++) {
        bt_ahead_t ahead =
            bt_ahead_of(job, p, n_tiles * (job->w->n_in / (2 * AT_ONCE) + 1));
        uint32_t row = 0;

        for (uint32_t i = 0; i < n_tiles; i++) {
            const uint32_t n = (job->n_rows - row) / (n_tiles - i);

            tile_rows(job, p, row, n, &ahead);
            row += n;
        }
    }
}
