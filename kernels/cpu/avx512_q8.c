/* SPDX-License-Identifier: Apache-2.0 */
/* Quantized weights times rows of 8-bit integers with AVX-512 VNNI: a panel is
 * two registers of 16 outputs, a lane's four bytes are four k. The integer sums
 * of one group and the float sums of a tile of rows stay in registers. */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/body.h"
#include "kernels/cpu/simd.h"

/* The four codes of a row that begin at x, in every lane. */
SPECIALIZE __m512i four(const int8_t *x)
{
    int32_t word;

    memcpy(&word, x, sizeof(word));
    return _mm512_set1_epi32(word);
}

/* Register v of the scales or minima at src. */
SPECIALIZE __m512 factors(bt_pack_format_t format, const uint8_t *src,
                          uint32_t v)
{
    return format.f16 ? _mm512_cvtph_ps(
                            _mm256_load_si256((const void *)(src + 32 * v)))
                      : _mm512_load_ps((const void *)(src + 64 * v));
}

/* One row tile while it walks over the groups. */
typedef struct q8_tile {
    const bt_q8_group_t *x; /* the first row's group; others n_groups further */
    size_t n_groups;
} q8_tile_t;

/* isum[r][v] += codes begin .. end - 1 of a group, in steps of 8 k (4 bits) or
 * 4 k (8 bits). */
SPECIALIZE void add_codes(bt_pack_format_t format, uint32_t n_rows,
                          const uint8_t *group, const q8_tile_t *t,
                          uint32_t begin, uint32_t end, __m512i (*isum)[2])
{
    const __m512i low = _mm512_set1_epi8(15);

    UNROLL
    for (uint32_t i = begin; i < end; i++) {
        const __m512i c0 = _mm512_load_si512(group + 128 * i);
        const __m512i c1 = _mm512_load_si512(group + 128 * i + 64);

        if (format.bits == 4) {
            const __m512i a0 = _mm512_and_si512(c0, low);
            const __m512i a1 = _mm512_and_si512(c1, low);
            const __m512i b0 = _mm512_and_si512(_mm512_srli_epi16(c0, 4), low);
            const __m512i b1 = _mm512_and_si512(_mm512_srli_epi16(c1, 4), low);

            UNROLL
            for (uint32_t r = 0; r < n_rows; r++) {
                const __m512i xa = four(t->x[r * t->n_groups].code + 8 * i);
                const __m512i xb = four(t->x[r * t->n_groups].code + 8 * i + 4);

                isum[r][0] = _mm512_dpbusd_epi32(isum[r][0], a0, xa);
                isum[r][1] = _mm512_dpbusd_epi32(isum[r][1], a1, xa);
                isum[r][0] = _mm512_dpbusd_epi32(isum[r][0], b0, xb);
                isum[r][1] = _mm512_dpbusd_epi32(isum[r][1], b1, xb);
            }
        } else {
            UNROLL
            for (uint32_t r = 0; r < n_rows; r++) {
                const __m512i x = four(t->x[r * t->n_groups].code + 4 * i);

                isum[r][0] = _mm512_dpbusd_epi32(isum[r][0], c0, x);
                isum[r][1] = _mm512_dpbusd_epi32(isum[r][1], c1, x);
            }
        }
    }
}

SPECIALIZE void start_sums(bt_pack_format_t format, uint32_t n_rows,
                           const q8_tile_t *t, uint32_t half,
                           __m512i (*isum)[2])
{
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        const int32_t from =
            (format.bias == 0) ? 0 : t->x[r * t->n_groups].start[half];

        isum[r][0] = _mm512_set1_epi32(from);
        isum[r][1] = isum[r][0];
    }
}

SPECIALIZE void add_group(bt_pack_t pack, uint32_t n_rows, const uint8_t *group,
                          const q8_tile_t *t, __m512 (*acc)[2])
{
    const bt_pack_format_t format = bt_pack_format(pack);
    const uint32_t n_steps = (format.bits == 4) ? 4 : 8;

    UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        const uint8_t *scales =
            group + format.scale_at + (format.two ? half * 4 * BT_PANEL : 0);
        __m512i isum[BT_Q8_TILE_ROWS][2];

        start_sums(format, n_rows, t, half, isum);
        add_codes(format, n_rows, group, t, half * n_steps / 2,
                  (half + 1) * n_steps / 2, isum);
        UNROLL
        for (uint32_t v = 0; v < 2; v++) {
            const __m512 scale = factors(format, scales, v);

            UNROLL
            for (uint32_t r = 0; r < n_rows; r++) {
                acc[r][v] = _mm512_fmadd_ps(
                    _mm512_cvtepi32_ps(isum[r][v]),
                    _mm512_mul_ps(
                        scale,
                        _mm512_set1_ps(t->x[r * t->n_groups].scale[half])),
                    acc[r][v]);
            }
        }
    }
    if (format.min_at != 0) {
        UNROLL
        for (uint32_t v = 0; v < 2; v++) {
            const __m512 min = factors(format, group + format.min_at, v);

            UNROLL
            for (uint32_t r = 0; r < n_rows; r++) {
                acc[r][v] = _mm512_fmadd_ps(
                    min, _mm512_set1_ps(t->x[r * t->n_groups].sum), acc[r][v]);
            }
        }
    }
}

SPECIALIZE void tile_panel(bt_pack_t pack, uint32_t n_rows,
                           const bt_matmul_job_t *job, uint32_t panel,
                           uint32_t row)
{
    const bt_weight_t *w = job->w;
    const uint8_t *group = w->data + panel * w->panel_bytes;
    const size_t group_bytes = bt_pack_format(pack).bytes;
    const uint32_t n_groups = w->n_in / BT_QUANT_GROUP;
    const uint32_t left = w->n_out - panel * BT_PANEL;
    float *out = job->out + (size_t)row * w->n_out + (size_t)panel * BT_PANEL;
    __m512 acc[BT_Q8_TILE_ROWS][2];
    q8_tile_t t = {
        .x = job->q + (size_t)row * n_groups,
        .n_groups = n_groups,
    };

    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        acc[r][0] = _mm512_setzero_ps();
        acc[r][1] = _mm512_setzero_ps();
    }
    for (uint32_t g = 0; g < n_groups; g++) {
        add_group(pack, n_rows, group, &t, acc);
        group += group_bytes;
        t.x++;
    }
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        _mm512_mask_storeu_ps(out, first_lanes(left), acc[r][0]);
        if (left > 16) {
            _mm512_mask_storeu_ps(out + 16, first_lanes(left - 16), acc[r][1]);
        }
        out += w->n_out;
    }
}

/* Tiles of nearly equal height: 8 rows are 4 and 4. */
SPECIALIZE void panels(bt_pack_t pack, const bt_matmul_job_t *job,
                       uint32_t begin, uint32_t end)
{
    const uint32_t n_tiles =
        (job->n_rows + BT_Q8_TILE_ROWS - 1) / BT_Q8_TILE_ROWS;

    for (uint32_t p = begin; p < end; p++) {
        uint32_t row = 0;

        for (uint32_t i = 0; i < n_tiles; i++) {
            const uint32_t n = (job->n_rows - row) / (n_tiles - i);

            switch (n) {
            case 1:
                tile_panel(pack, 1, job, p, row);
                break;
            case 2:
                tile_panel(pack, 2, job, p, row);
                break;
            case 3:
                tile_panel(pack, 3, job, p, row);
                break;
            case 4:
                tile_panel(pack, 4, job, p, row);
                break;
            case 5:
                tile_panel(pack, 5, job, p, row);
                break;
            default:
                tile_panel(pack, 6, job, p, row);
                break;
            }
            row += n;
        }
    }
}

void bt_avx512_matmul_q8(const bt_matmul_job_t *job, uint32_t begin,
                         uint32_t end)
{
    switch (job->w->pack) {
    case BT_PACK_Q4_0:
        panels(BT_PACK_Q4_0, job, begin, end);
        break;
    case BT_PACK_Q4_1:
        panels(BT_PACK_Q4_1, job, begin, end);
        break;
    case BT_PACK_Q4_F32:
        panels(BT_PACK_Q4_F32, job, begin, end);
        break;
    case BT_PACK_Q8_MIN:
        panels(BT_PACK_Q8_MIN, job, begin, end);
        break;
    case BT_PACK_Q8_TWO:
        panels(BT_PACK_Q8_TWO, job, begin, end);
        break;
    default:
        panels(BT_PACK_Q8, job, begin, end);
        break;
    }
}

void bt_avx512_quantize(const float *x, uint32_t n_in, uint32_t bias,
                        bt_q8_group_t *groups)
{
    body_quantize(x, n_in, bias, groups);
}
