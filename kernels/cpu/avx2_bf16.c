/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 weights times bf16 rows with AVX2: emulates AVX512_BF16's instruction by
 * two FMAs of floats in a mode where subnormal numbers are zeros. A panel is
 * two halves of two registers of 8 outputs. */
#include <immintrin.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/simd.h"

#define TILE_ROWS 4u
#define HALF      16u /* outputs of a tile */

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
        w->data + panel * w->panel_bytes + (size_t)h * HALF * 4;
    const uint32_t n_pairs = (w->n_in + 1) / 2;
    const size_t stride = 2 * (size_t)n_pairs;
    const uint16_t *x = job->bf16 + row * stride;
    __m256 acc[TILE_ROWS][2];

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
    switch (n) {
    case 1:
        tile_half(1, job, panel, h, row, out);
        break;
    case 2:
        tile_half(2, job, panel, h, row, out);
        break;
    case 3:
        tile_half(3, job, panel, h, row, out);
        break;
    default:
        tile_half(4, job, panel, h, row, out);
        break;
    }
}

/* Sums are added as add() does it, where subnormal numbers count: outside of
 * the mode, with no code moved across its change. */
static void add_rows(const bt_matmul_job_t *job, uint32_t panel, uint32_t h,
                     uint32_t row, uint32_t n, tile_out_t out, uint32_t mode)
{
    float sums[TILE_ROWS * HALF];
    const tile_out_t here = {.to = sums, .stride = HALF, .n = HALF};

    tile_rows(job, panel, h, row, n, here);
    READ_AGAIN();
    _mm_setcsr(mode);
    READ_AGAIN();
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t i = 0; (i < HALF) && (i < out.n); i++) {
            out.to[i] += sums[r * HALF + i];
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
    const uint32_t n_tiles = (job->n_rows + TILE_ROWS - 1) / TILE_ROWS;
    const uint32_t n_out = job->w->n_out;
    const uint32_t mode = _mm_getcsr();

    _mm_setcsr(mode | BT_AVX2_ZEROS);
    for (uint32_t i = 2 * begin; i < 2 * end; i++) {
        const uint32_t first = i * HALF;
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
