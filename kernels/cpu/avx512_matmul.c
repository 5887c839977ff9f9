/* SPDX-License-Identifier: Apache-2.0 */
/* Matmul of F32 and F16 weights with AVX-512: a panel is two registers of 16
 * outputs.
 *
 * Up to 8 rows: weights are converted in registers and used at once. More: a
 * panel is converted to scratch, then register tiles of 12 rows x 32 outputs
 * run over it. Both sum every output with k ascending, one FMA each. */
#include <immintrin.h>

#include "kernels/cpu/avx512.h"

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
