/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX2 tier. */
#include <immintrin.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/tiers.h"

#define TIER_ID   BT_CPU_AVX2
#define TIER_NAME "avx2"
#include "kernels/cpu/tier_lora.h"
#include "kernels/cpu/tier_ops.h"

static inline void vec_store_f16(uint16_t *at, vec_t v)
{
    _mm_storeu_si128((void *)at, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT |
                                                        _MM_FROUND_NO_EXC));
}

static inline void vec_store_bf16(uint16_t *at, vec_t v)
{
    const __m256i words = _mm256_srli_epi32(bf16_bits(v), 16);

    _mm_storeu_si128((void *)at,
                     _mm_packus_epi32(_mm256_castsi256_si128(words),
                                      _mm256_extracti128_si256(words, 1)));
}

static inline void vec_store_i8(int8_t *at, vec_t v)
{
    const __m256i whole = _mm256_cvtps_epi32(v);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole),
                                          _mm256_extracti128_si256(whole, 1));

    _mm_storel_epi64((void *)at, _mm_packs_epi16(words, words));
}

static inline void vec_store_e4m3(uint8_t *at, vec_t v)
{
    const __m256i bits = _mm256_castps_si256(v);
    const __m256 size = _mm256_min_ps(vec_abs(v), vec_all(E4M3_MAX));
    const __m256i mag = _mm256_castps_si256(size);
    const __m256i even =
        _mm256_and_si256(_mm256_srli_epi32(mag, 20), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(
        mag, _mm256_add_epi32(even, _mm256_set1_epi32(0x7ffff)));
    const __m256i normal = _mm256_sub_epi32(
        _mm256_srli_epi32(up, 20), _mm256_set1_epi32((int)E4M3_BIAS_F32));
    const __m256 align = vec_all(E4M3_ALIGN);
    const __m256i small =
        _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(size, align)),
                         _mm256_castps_si256(align));
    const __m256 is_small =
        _mm256_cmp_ps(size, vec_all(E4M3_NORMAL), _CMP_LT_OQ);
    const __m256i sign =
        _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    const __m256i codes = _mm256_or_si256(
        sign, _mm256_blendv_epi8(normal, small, _mm256_castps_si256(is_small)));
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(codes),
                                           _mm256_extracti128_si256(codes, 1));

    _mm_storel_epi64((void *)at, _mm_packus_epi16(words, words));
}

static inline uint32_t amax_bits(const float *x, uint32_t n)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i max = _mm256_setzero_si256();
    uint32_t lanes[8];

    for (uint32_t i = 0; i < n; i += 8) {
        __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + i));

        max = _mm256_max_epi32(max, _mm256_and_si256(bits, magnitude));
    }
    _mm256_storeu_si256((void *)lanes, max);
    for (uint32_t i = 1; i < 8; i++) {
        lanes[0] = (lanes[i] > lanes[0]) ? lanes[i] : lanes[0];
    }
    return lanes[0];
}

const bt_cpu_isa_t bt_cpu_avx2 = {TIER_OPS};

/* Matmul of F32 and F16 weights with AVX2: a panel is two halves of two
 * registers of 8 outputs.
 *
 * Up to 4 rows: weights are converted in registers and used at once. More: a
 * panel is converted to scratch, then register tiles of up to 6 rows x 16
 * outputs run over it. Both sum every output with k ascending, one FMA each. */

#define DIRECT_ROWS 4u
#define TILE_ROWS   6u
#include "kernels/cpu/tier_matmul.h"

#define HALF 16u /* outputs */

/* Number of outputs of half @a h of a panel. */
static inline uint32_t half_outputs(const bt_weight_t *w, uint32_t panel,
                                    uint32_t h)
{
    uint32_t first = panel * BT_PANEL + h * HALF;

    return (w->n_out <= first)          ? 0
           : (w->n_out - first >= HALF) ? HALF
                                        : w->n_out - first;
}

/* All rows (at most 4) of the batch times half a panel. */
SPECIALIZE void direct_half(bt_pack_t pack, uint32_t n_rows,
                            const bt_matmul_job_t *job, uint32_t panel,
                            uint32_t h)
{
    const bt_weight_t *w = job->w;
    const uint8_t *src = w->data + panel * w->panel_bytes;
    const uint32_t n = half_outputs(w, panel, h);
    const float *x = job->tiles;
    float *out = job->out + (size_t)panel * BT_PANEL + h * HALF;
    __m256 acc[DIRECT_ROWS][2];

    if (n == 0) {
        return;
    }
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        acc[r][0] = _mm256_setzero_ps();
        acc[r][1] = _mm256_setzero_ps();
    }
    for (size_t k = 0; k < w->n_in; k++) {
        tile_step(n_rows, load_dense(pack, src, k, 2 * h),
                  load_dense(pack, src, k, 2 * h + 1), x + k * n_rows, acc);
    }
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        store_sums(out + (size_t)r * w->n_out, n, job->add, acc[r]);
    }
}

SPECIALIZE void direct(bt_pack_t pack, const bt_matmul_job_t *job,
                       uint32_t begin, uint32_t end)
{
    for (uint32_t i = 2 * begin; i < 2 * end; i++) {
#define DIRECT(rows) direct_half(pack, rows, job, i / 2, i % 2)
        BY_ROWS(job->n_rows, 1, 2, 3, 4, DIRECT)
#undef DIRECT
    }
}

static void tile_any(uint32_t n_rows, const float *weights, const float *x,
                     uint32_t x_stride, uint32_t n_in, bool add, float *out,
                     size_t out_stride, uint32_t n)
{
    switch (n_rows) {
#define TILE_CASE(rows)                                                  \
    case rows:                                                           \
        tile(rows, weights, x, x_stride, n_in, add, out, out_stride, n); \
        break;
        TILE_CASE(1)
        TILE_CASE(2)
        TILE_CASE(3)
        TILE_CASE(4)
        TILE_CASE(5)
#undef TILE_CASE
    default:
        tile(6, weights, x, x_stride, n_in, add, out, out_stride, n);
        break;
    }
}

static void tiles(const bt_matmul_job_t *job, uint32_t panel,
                  const float *weights)
{
    const bt_weight_t *w = job->w;

    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t n = half_outputs(w, panel, h);
        float *out = job->out + (size_t)panel * BT_PANEL + h * HALF;

        if (n == 0) {
            break;
        }
        for (uint32_t first = 0; first < job->n_rows; first += BT_TILE_ROWS) {
            const float *x = job->tiles + (size_t)first * w->n_in;
            uint32_t rows = job->n_rows - first;
            uint32_t width;
            uint32_t step; /* 7 .. 12 rows: two tiles of about the same size */

            rows = (rows > BT_TILE_ROWS) ? BT_TILE_ROWS : rows;
            width = bt_tile_width(rows);
            step = (rows > TILE_ROWS) ? (rows + 1) / 2 : rows;
            for (uint32_t r = 0; r < rows; r += step) {
                tile_any((rows - r > step) ? step : rows - r,
                         weights + h * HALF, x + r, width, w->n_in, job->add,
                         out + (size_t)(first + r) * w->n_out, w->n_out, n);
            }
        }
    }
}

/* BF16 weights times bf16 rows with AVX2: emulates AVX512_BF16's instruction by
 * two FMAs of floats in a mode where subnormal numbers are zeros. A panel is
 * two halves of two registers of 8 outputs. */

#define BF16_TILE_ROWS 4u
#define BF16_HALF      16u /* outputs of a tile */

/* Destination of the sums of a tile, 16 outputs of each row. */
typedef struct tile_out {
    float *to;
    size_t stride;
    uint32_t n; /* valid outputs; the tile has up to 16 */
} tile_out_t;

/* n_rows rows times half h of a panel. */
SPECIALIZE void tile_half(uint32_t n_rows, const bt_matmul_job_t *job,
                          uint32_t panel, uint32_t h, uint32_t row,
                          tile_out_t out)
{
    const bt_weight_t *w = job->w;
    const uint8_t *pairs =
        w->data + panel * w->panel_bytes + (size_t)h * BF16_HALF * 4;
    const uint32_t n_pairs = (w->n_in + 1) / 2;
    const size_t stride = 2 * (size_t)n_pairs;
    const uint16_t *x = job->bf16 + row * stride;
    __m256 acc[BF16_TILE_ROWS][2];

    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        acc[r][0] = _mm256_setzero_ps();
        acc[r][1] = _mm256_setzero_ps();
    }
    for (uint32_t p = 0; p < n_pairs; p++) {
        const __m256i w0 = _mm256_load_si256((const void *)pairs);
        const __m256i w1 = _mm256_load_si256((const void *)(pairs + 32));

        UNROLL
        for (uint32_t r = 0; r < n_rows; r++) {
            const __m256i xr = word8(x + r * stride);

            acc[r][0] = dot_pairs(w0, xr, acc[r][0]);
            acc[r][1] = dot_pairs(w1, xr, acc[r][1]);
        }
        pairs += (size_t)BT_PANEL * 4;
        x += 2;
    }
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        store_sums(out.to, out.n, false, acc[r]);
        out.to += out.stride;
    }
}

static void tile_rows(const bt_matmul_job_t *job, uint32_t panel, uint32_t h,
                      uint32_t row, uint32_t n, tile_out_t out)
{
#define TILE(rows) tile_half(rows, job, panel, h, row, out)
    BY_ROWS(n, 1, 2, 3, 4, TILE)
#undef TILE
}

/* Sums are added as add() does it, where subnormal numbers count: outside of
 * the mode, with no code moved across its change. */
static void add_rows(const bt_matmul_job_t *job, uint32_t panel, uint32_t h,
                     uint32_t row, uint32_t n, tile_out_t out, uint32_t mode)
{
    float sums[BF16_TILE_ROWS * BF16_HALF];
    const tile_out_t here = {.to = sums, .stride = BF16_HALF, .n = BF16_HALF};

    tile_rows(job, panel, h, row, n, here);
    READ_AGAIN();
    _mm_setcsr(mode);
    READ_AGAIN();
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t i = 0; (i < BF16_HALF) && (i < out.n); i++) {
            out.to[i] += sums[r * BF16_HALF + i];
        }
        out.to += out.stride;
    }
    READ_AGAIN();
    _mm_setcsr(mode | BT_AVX2_ZEROS);
    READ_AGAIN();
}

void bt_avx2_matmul_bf16(const bt_matmul_job_t *job, uint32_t begin,
                         uint32_t end)
{
    const uint32_t n_tiles =
        (job->n_rows + BF16_TILE_ROWS - 1) / BF16_TILE_ROWS;
    const uint32_t n_out = job->w->n_out;
    const uint32_t mode = _mm_getcsr();

    _mm_setcsr(mode | BT_AVX2_ZEROS);
    for (uint32_t i = 2 * begin; i < 2 * end; i++) {
        const uint32_t first = i * BF16_HALF;
        uint32_t row = 0;

        if (first >= n_out) {
            break;
        }
        for (uint32_t t = 0; t < n_tiles; t++) {
            const uint32_t n = (job->n_rows - row) / (n_tiles - t);

            const tile_out_t out = {
                .to = job->out + (size_t)row * n_out + first,
                .stride = n_out,
                .n = n_out - first,
            };

            if (job->add) {
                add_rows(job, i / 2, i % 2, row, n, out, mode);
            } else {
                tile_rows(job, i / 2, i % 2, row, n, out);
            }
            row += n;
        }
    }
    _mm_setcsr(mode);
}
