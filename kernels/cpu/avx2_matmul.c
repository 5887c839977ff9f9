/* SPDX-License-Identifier: Apache-2.0 */
/* Matmul of F32 and F16 weights with AVX2: a panel is two halves of two
 * registers of 8 outputs.
 *
 * Up to 4 rows: weights are converted in registers and used at once. More: a
 * panel is converted to scratch, then register tiles of up to 6 rows x 16
 * outputs run over it. Both sum every output with k ascending, one FMA each. */
#include <immintrin.h>

#include "kernels/cpu/avx2.h"

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
        switch (job->n_rows) {
        case 1:
            direct_half(pack, 1, job, i / 2, i % 2);
            break;
        case 2:
            direct_half(pack, 2, job, i / 2, i % 2);
            break;
        case 3:
            direct_half(pack, 3, job, i / 2, i % 2);
            break;
        default:
            direct_half(pack, 4, job, i / 2, i % 2);
            break;
        }
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
