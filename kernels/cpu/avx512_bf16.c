/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 weights times rows of bf16 with AVX512_BF16: a panel is two registers of
 * 16 outputs, a lane's two halves are two k. The sums of a tile of up to 12
 * rows stay in registers. */
#include <immintrin.h>

#include "kernels/cpu/ahead.h"
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/simd.h"

#define TILE_ROWS 12u
#define AT_ONCE   4u /* pairs of k of one turn of the loop */
#define FEW_ROWS  4u /* up to this many rows, memory is the limit */

/* Distance of the rows of a tile, in pairs; four pointers, each with the stride
 * as an index, reach 12 of them without further registers. */
typedef struct bf16_rows {
    const uint16_t *third[TILE_ROWS / 3];
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
    __m512 acc[TILE_ROWS][2];
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
#define TILE_CASE(rows)                           \
    case rows:                                    \
        tile_panel(rows, job, panel, row, ahead); \
        break;
        TILE_CASE(1)
        TILE_CASE(2)
        TILE_CASE(3)
        TILE_CASE(4)
        TILE_CASE(5)
        TILE_CASE(6)
        TILE_CASE(7)
        TILE_CASE(8)
        TILE_CASE(9)
        TILE_CASE(10)
        TILE_CASE(11)
#undef TILE_CASE
    default:
        tile_panel(TILE_ROWS, job, panel, row, ahead);
        break;
    }
}

void bt_avx512_matmul_bf16(const bt_matmul_job_t *job, uint32_t begin,
                           uint32_t end)
{
    const uint32_t n_tiles = (job->n_rows + TILE_ROWS - 1) / TILE_ROWS;

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
