/* SPDX-License-Identifier: Apache-2.0 */
/* Quantized weights times rows of 8-bit integers with AVX2: a panel is four
 * registers of 8 outputs, a lane's four bytes are four k. Pairs of products are
 * summed in 16 bits: 15 * 127 * 2 of 8 steps fit, so codes of 8 bits, and those
 * of books, are taken as two of 4 bits. */
#include <immintrin.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/body.h"
#include "kernels/cpu/tiers.h"

typedef __m256i codes_t;

#include "kernels/cpu/tier_q8.h"

#define TILE_ROWS 4u
#define HALF      16u /* outputs of a tile */

/* One row tile while it walks over the groups. */
typedef struct q8_tile {
    const bt_q8_group_t *x; /* the first row's group; others n_groups further */
    size_t n_groups;
    uint32_t v0;     /* first register of the panel */
    __m256i book[2]; /* low and high nibbles of the weights' book, twice */
} q8_tile_t;

SPECIALIZE __m256i nibbles(__m256i bytes, bool high)
{
    return _mm256_and_si256(high ? _mm256_srli_epi16(bytes, 4) : bytes,
                            _mm256_set1_epi8(15));
}

static inline void set_book(const bt_weight_t *w, q8_tile_t *t)
{
    const __m256i book =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)w->book));

    t->book[0] = nibbles(book, false);
    t->book[1] = nibbles(book, true);
}

/* Codes of more than 4 bits, and codebook codes, are processed in two parts of
 * 4. */
SPECIALIZE uint32_t n_parts(bt_pack_format_t format)
{
    return ((format.bits > 4) || format.book) ? 2 : 1;
}

/* `bits` of the codes of the 4 k of a step; `codes` is the register of the
 * first line that has them. */
SPECIALIZE __m256i some_bits(const uint8_t *codes, uint32_t step, uint32_t bits)
{
    const uint32_t at = step * bits % 8;
    __m256i x =
        _mm256_load_si256((const void *)(codes + step * bits / 8 * 128));

    if (at > 0) {
        x = _mm256_srli_epi16(x, (int)at);
    }
    return _mm256_and_si256(x, _mm256_set1_epi8((char)((1u << bits) - 1u)));
}

SPECIALIZE codes_t stored_codes(bt_pack_format_t format, const uint8_t *codes,
                                uint32_t step, uint32_t v)
{
    const uint8_t *at = codes + (size_t)32 * v;
    __m256i high;

    if (format.bits == 8) {
        return _mm256_load_si256((const void *)(at + (size_t)step * 128));
    }
    if (format.bits < 5) {
        return some_bits(at, step, format.bits);
    }
    high = some_bits(at + (size_t)4 * 128, step, format.bits - 4);
    return _mm256_or_si256(some_bits(at, step, 4), _mm256_slli_epi16(high, 4));
}

/* A part of the codes of the 4 k of a step. */
SPECIALIZE __m256i codes_of(bt_pack_format_t format, const uint8_t *codes,
                            uint32_t step, uint32_t part, const q8_tile_t *t)
{
    if (format.bits == 8) {
        return nibbles(_mm256_load_si256((const void *)(codes + step * 128)),
                       part > 0);
    }
    if (format.book) {
        return _mm256_shuffle_epi8(t->book[part], some_bits(codes, step, 4));
    }
    if (format.bits < 5) {
        return some_bits(codes, step, format.bits);
    }
    return (part == 0) ? some_bits(codes, step, 4)
                       : some_bits(codes + 4 * 128, step, format.bits - 4);
}

/* isum[r][v] += a part of the products of a half of a group. */
SPECIALIZE void add_part(bt_pack_format_t format, uint32_t n_rows,
                         const uint8_t *codes, const q8_tile_t *t,
                         uint32_t half, uint32_t part, __m256i (*isum)[2])
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i pairs[TILE_ROWS][2];

    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        pairs[r][0] = _mm256_setzero_si256();
        pairs[r][1] = _mm256_setzero_si256();
    }
    UNROLL
    for (uint32_t step = half * 4; step < half * 4 + 4; step++) {
        const __m256i c0 = codes_of(format, codes + 32 * t->v0, step, part, t);
        const __m256i c1 =
            codes_of(format, codes + 32 * t->v0 + 32, step, part, t);

        UNROLL
        for (uint32_t r = 0; r < n_rows; r++) {
            const __m256i xr = word8(t->x[r * t->n_groups].code + 4 * step);

            pairs[r][0] =
                _mm256_add_epi16(pairs[r][0], _mm256_maddubs_epi16(c0, xr));
            pairs[r][1] =
                _mm256_add_epi16(pairs[r][1], _mm256_maddubs_epi16(c1, xr));
        }
    }
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        UNROLL
        for (uint32_t v = 0; v < 2; v++) {
            const __m256i sum = _mm256_madd_epi16(pairs[r][v], ones);

            isum[r][v] = _mm256_add_epi32(
                isum[r][v], _mm256_slli_epi32(sum, (int)(4 * part)));
        }
    }
}

SPECIALIZE void start_sums(bt_pack_format_t format, uint32_t n_rows,
                           const q8_tile_t *t, uint32_t half,
                           __m256i (*isum)[2])
{
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        const int32_t from =
            (format.bias == 0) ? 0 : t->x[r * t->n_groups].start[half];

        isum[r][0] = _mm256_set1_epi32(from);
        isum[r][1] = isum[r][0];
    }
}

/* isum[r][v] = the products of a half of a group. */
SPECIALIZE void sum_codes(bt_pack_format_t format, uint32_t n_rows,
                          const uint8_t *codes, const q8_tile_t *t,
                          uint32_t half, __m256i (*isum)[2])
{
    start_sums(format, n_rows, t, half, isum);
    UNROLL
    for (uint32_t part = 0; part < n_parts(format); part++) {
        add_part(format, n_rows, codes, t, half, part, isum);
    }
}

/* acc[r][v] += the minima of a half of a group, or of all of it, times the sums
 * of the rows. */
SPECIALIZE void add_min(bt_pack_format_t format, uint32_t n_rows,
                        bt_pack_group_t group, const units_t *units,
                        const q8_tile_t *t, uint32_t half, __m256 (*acc)[2])
{
    const uint8_t *mins = group.mins + half * bt_pack_half_bytes(format);

    UNROLL
    for (uint32_t v = 0; v < 2; v++) {
        const __m256 min = factors(format, mins, units->min, t->v0 + v);

        UNROLL
        for (uint32_t r = 0; r < n_rows; r++) {
            const bt_q8_group_t *x = &t->x[r * t->n_groups];

            acc[r][v] = _mm256_fmadd_ps(
                min, _mm256_set1_ps(format.two ? x->sums[half] : x->sum),
                acc[r][v]);
        }
    }
}

SPECIALIZE void add_group(bt_pack_format_t format, uint32_t n_rows,
                          bt_pack_group_t group, const units_t *units,
                          const q8_tile_t *t, __m256 (*acc)[2])
{
    __m256 part[TILE_ROWS][2];

    UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        __m256i isum[TILE_ROWS][2];

        sum_codes(format, n_rows, group.codes, t, half, isum);
        UNROLL
        for (uint32_t r = 0; r < n_rows; r++) {
            const __m256 x = _mm256_set1_ps(t->x[r * t->n_groups].scale[half]);

            UNROLL
            for (uint32_t v = 0; v < 2; v++) {
                const __m256 f = _mm256_cvtepi32_ps(isum[r][v]);

                part[r][v] = ((half == 0) || format.two)
                                 ? _mm256_mul_ps(f, x)
                                 : _mm256_fmadd_ps(f, x, part[r][v]);
            }
        }
        if ((half == 0) && !format.two) {
            continue;
        }
        UNROLL
        for (uint32_t v = 0; v < 2; v++) {
            const __m256 scale =
                factors(format,
                        group.scales + (format.two ? half : 0) *
                                           bt_pack_half_bytes(format),
                        units->scale, t->v0 + v);

            UNROLL
            for (uint32_t r = 0; r < n_rows; r++) {
                acc[r][v] = _mm256_fmadd_ps(part[r][v], scale, acc[r][v]);
            }
        }
    }
    if (format.min) {
        add_min(format, n_rows, group, units, t, 0, acc);
        if (format.two) {
            add_min(format, n_rows, group, units, t, 1, acc);
        }
    }
}

/* n_rows rows times half h of a panel, in place or widened. */
SPECIALIZE void tile_half(bt_pack_format_t format, bool wide, uint32_t n_rows,
                          const bt_matmul_job_t *job, uint32_t panel,
                          const uint8_t *scratch, uint32_t h, uint32_t row,
                          bt_ahead_t *ahead_p)
{
    const bt_pack_format_t seen = wide ? bt_pack_wide(format) : format;
    bt_ahead_t ahead = *ahead_p;
    const bt_weight_t *w = job->w;
    const uint8_t *block = w->data + panel * w->panel_bytes;
    const uint32_t n_groups = w->n_in / BT_QUANT_GROUP;
    const uint32_t first = panel * BT_PANEL + h * HALF;
    float *out = job->out + (size_t)row * w->n_out + first;
    __m256 acc[TILE_ROWS][2];
    units_t units;
    q8_tile_t t = {
        .x = job->q + (size_t)row * n_groups,
        .n_groups = n_groups,
        .v0 = 2 * h,
    };

    set_book(w, &t);

    /* Prefetched during the sums, which may be added to it. */
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        __builtin_prefetch(out + (size_t)r * w->n_out, 1, 3);
        acc[r][0] = _mm256_setzero_ps();
        acc[r][1] = _mm256_setzero_ps();
    }
    for (uint32_t g = 0; g < n_groups; g += format.n_groups) {
        const uint32_t n = bt_pack_groups_left(format, n_groups - g);

        load_units(seen, w, block, &units);
        for (uint32_t i = 0; i < n; i++) {
            add_group(seen, n_rows, group_at(format, wide, block, i, scratch),
                      &units, &t, acc);
            bt_ahead_ask(&ahead);
            if (wide) {
                scratch += bt_pack_scratch_at(format).bytes;
            }
            t.x++;
        }
        block += format.bytes;
    }
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        store_sums(out, w->n_out - first, job->add, acc[r]);
        out += w->n_out;
    }
    *ahead_p = ahead;
}

/* One row times a whole panel, in the order of its bytes: memory is the limit,
 * and the processor's prefetcher likes that order best. */
SPECIALIZE void panel_of_one(bt_pack_format_t format,
                             const bt_matmul_job_t *job, uint32_t panel)
{
    const bt_weight_t *w = job->w;
    const uint8_t *block = w->data + panel * w->panel_bytes;
    const uint32_t n_groups = w->n_in / BT_QUANT_GROUP;
    const uint32_t left = w->n_out - panel * BT_PANEL;
    float *out = job->out + (size_t)panel * BT_PANEL;
    q8_tile_t t[2] = {{.x = job->q}, {.x = job->q, .v0 = 2}};
    __m256 acc[2][2];
    units_t units;

    set_book(w, &t[0]);
    set_book(w, &t[1]);
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        __builtin_prefetch((left > h * HALF) ? out + h * HALF : out, 1, 3);
        acc[h][0] = _mm256_setzero_ps();
        acc[h][1] = _mm256_setzero_ps();
    }
    for (uint32_t g = 0; g < n_groups; g += format.n_groups) {
        const uint32_t n = bt_pack_groups_left(format, n_groups - g);

        load_units(format, w, block, &units);
        for (uint32_t i = 0; i < n; i++) {
            const bt_pack_group_t group = bt_pack_group_at(format, block, i);

            UNROLL
            for (uint32_t h = 0; h < 2; h++) {
                add_group(format, 1, group, &units, &t[h], &acc[h]);
                t[h].x++;
            }
        }
        block += format.bytes;
    }
    store_sums(out, left, job->add, acc[0]);
    if (left > HALF) {
        store_sums(out + HALF, left - HALF, job->add, acc[1]);
    }
}

/* Tiles of nearly equal height: 6 rows are 3 and 3, so none has one. */
SPECIALIZE void tiles(bt_pack_format_t format, bool wide,
                      const bt_matmul_job_t *job, uint32_t panel,
                      const uint8_t *scratch)
{
    const uint32_t n_tiles = (job->n_rows + TILE_ROWS - 1) / TILE_ROWS;
    bt_ahead_t ahead =
        bt_ahead_of(job, panel, 2 * n_tiles * (job->w->n_in / BT_QUANT_GROUP));

    for (uint32_t h = 0; h < 2; h++) {
        uint32_t row = 0;

        if ((2 * panel + h) * HALF >= job->w->n_out) {
            break;
        }
        for (uint32_t tile = 0; tile < n_tiles; tile++) {
            const uint32_t n = (job->n_rows - row) / (n_tiles - tile);

            switch (n) {
            case 2:
                tile_half(format, wide, 2, job, panel, scratch, h, row, &ahead);
                break;
            case 3:
                tile_half(format, wide, 3, job, panel, scratch, h, row, &ahead);
                break;
            default:
                tile_half(format, wide, 4, job, panel, scratch, h, row, &ahead);
                break;
            }
            row += n;
        }
    }
}

SPECIALIZE void panel_many(bt_pack_format_t format, const bt_matmul_job_t *job,
                           uint32_t panel, const uint8_t *scratch)
{
    tiles(format, true, job, panel, scratch);
}

SPECIALIZE void panel_few(bt_pack_format_t format, const bt_matmul_job_t *job,
                          uint32_t panel)
{
    if (job->n_rows == 1) {
        panel_of_one(format, job, panel);
    } else {
        tiles(format, false, job, panel, NULL);
    }
}

void bt_avx2_quantize(const float *x, uint32_t n_in, uint32_t bias,
                      bt_q8_group_t *groups)
{
    body_quantize(x, n_in, bias, groups);
}
