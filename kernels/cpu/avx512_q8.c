/* SPDX-License-Identifier: Apache-2.0 */
/* Quantized weights times rows of 8-bit integers with AVX-512 VNNI: a panel is
 * two registers of 16 outputs, a lane's four bytes are four k. The integer sums
 * of one group and the float sums of a tile of rows stay in registers. */
#include <immintrin.h>

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/body.h"
#include "kernels/cpu/tiers.h"

typedef __m512i codes_t;

#include "kernels/cpu/tier_q8.h"

/* One row tile while it walks over the groups. */
typedef struct q8_tile {
    const bt_q8_group_t *x; /* the first row's group; others n_groups further */
    size_t n_groups;
    __m512i book; /* the weights', four times */
} q8_tile_t;

SPECIALIZE __m512i start_of(bt_pack_format_t format, const bt_q8_group_t *x,
                            uint32_t half)
{
    return (format.bias == 0) ? _mm512_setzero_si512()
                              : _mm512_set1_epi32(x->start[half]);
}

/* Steps of 4 k in a line; of codes in two parts, in a line of the lower ones.
 */
SPECIALIZE uint32_t steps_of_line(bt_pack_format_t format)
{
    return (format.bits == 8) ? 1 : (format.bits == 2) ? 4 : 2;
}

/* Shifts the bits of each byte by n (right if negative), with bits of its
 * neighbour shifted in. */
SPECIALIZE __m512i moved(__m512i x, int n)
{
    switch (n) {
    case 4:
        return _mm512_slli_epi16(x, 4);
    case 3:
        return _mm512_slli_epi16(x, 3);
    case 2:
        return _mm512_slli_epi16(x, 2);
    case 1:
        return _mm512_slli_epi16(x, 1);
    case -1:
        return _mm512_srli_epi16(x, 1);
    case -2:
        return _mm512_srli_epi16(x, 2);
    case -3:
        return _mm512_srli_epi16(x, 3);
    case -4:
        return _mm512_srli_epi16(x, 4);
    case -6:
        return _mm512_srli_epi16(x, 6);
    default:
        return x;
    }
}

SPECIALIZE __m512i line_at(const uint8_t *codes, uint32_t i, uint32_t v)
{
    return _mm512_load_si512(codes + 128 * i + 64 * v);
}

SPECIALIZE codes_t stored_codes(bt_pack_format_t format, const uint8_t *codes,
                                uint32_t step, uint32_t v)
{
    const uint32_t low = (format.bits > 4) ? 4 : format.bits;
    const uint32_t high = format.bits - low;
    __m512i x;

    if (format.bits == 8) {
        return line_at(codes, step, v);
    }
    x = moved(line_at(codes, step * low / 8, v), -(int)(step * low % 8));
    x = _mm512_and_si512(x, _mm512_set1_epi8((char)((1u << low) - 1u)));
    if (high > 0) {
        const __m512i upper = moved(line_at(codes, 4 + step * high / 8, v),
                                    4 - (int)(step * high % 8));

        /* x | (upper & mask) */
        x = _mm512_ternarylogic_epi32(
            x, upper, _mm512_set1_epi8((char)(((1u << high) - 1u) << 4)), 0xf8);
    }
    return x;
}

/* sum + codes * the four bytes at x. Written as the instruction, since
 * compilers load the rows' bytes early, and then have no registers left for the
 * sums. */
SPECIALIZE __m512i dot(__m512i sum, __m512i codes, const int8_t *x)
{
    typedef int32_t __attribute__((may_alias)) word_t;

    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(codes), "m"(*(const word_t *)(const void *)x));
    return sum;
}

/* isum[r][v] += the codes of a line times those of the rows. */
SPECIALIZE void add_line(bt_pack_format_t format, uint32_t n_rows,
                         const uint8_t *codes, const q8_tile_t *t, uint32_t i,
                         uint32_t v, __m512i (*isum)[2])
{
    const uint32_t n_steps = steps_of_line(format);

    UNROLL
    for (uint32_t step = i * n_steps; step < (i + 1) * n_steps; step++) {
        const __m512i stored = stored_codes(format, codes, step, v);
        const __m512i four =
            format.book ? _mm512_shuffle_epi8(t->book, stored) : stored;

        UNROLL
        for (uint32_t r = 0; r < n_rows; r++) {
            const int8_t *x = t->x[r * t->n_groups].code + 4 * step;

            isum[r][v] = dot(isum[r][v], four, x);
        }
    }
}

SPECIALIZE void start_sums(bt_pack_format_t format, uint32_t n_rows,
                           const q8_tile_t *t, uint32_t half, uint32_t v,
                           __m512i (*isum)[2])
{
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        isum[r][v] = start_of(format, &t->x[r * t->n_groups], half);
    }
}

/* isum[r][v] = the products of register v of a half of a group. */
SPECIALIZE void sum_codes(bt_pack_format_t format, uint32_t n_rows,
                          bt_pack_group_t group, const q8_tile_t *t,
                          uint32_t half, uint32_t v, __m512i (*isum)[2])
{
    const uint32_t n_lines = 4 / steps_of_line(format);

    start_sums(format, n_rows, t, half, v, isum);
    UNROLL
    for (uint32_t i = half * n_lines; i < (half + 1) * n_lines; i++) {
        add_line(format, n_rows, group.codes, t, i, v, isum);
    }
}

/* acc[r][v] += the minima of register v of a half, or of all of a group, times
 * the sums of the rows. */
SPECIALIZE void add_min(bt_pack_format_t format, uint32_t n_rows,
                        bt_pack_group_t group, const units_t *units,
                        const q8_tile_t *t, uint32_t half, uint32_t v,
                        __m512 (*acc)[2])
{
    const __m512 min = factors(
        format, group.mins + half * bt_pack_half_bytes(format), units->min, v);

    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        const bt_q8_group_t *x = &t->x[r * t->n_groups];

        acc[r][v] = _mm512_fmadd_ps(
            min, _mm512_set1_ps(format.two ? x->sums[half] : x->sum),
            acc[r][v]);
    }
}

SPECIALIZE void add_mins(bt_pack_format_t format, uint32_t n_rows,
                         bt_pack_group_t group, const units_t *units,
                         const q8_tile_t *t, uint32_t v, __m512 (*acc)[2])
{
    if (format.min) {
        add_min(format, n_rows, group, units, t, 0, v, acc);
    }
    if (format.min && format.two) {
        add_min(format, n_rows, group, units, t, 1, v, acc);
    }
}

/* Result of a half's integer sum: part (for the first half) or, with a scale of
 * its own or the second half's sum, acc. */
SPECIALIZE void add_sum(bt_pack_format_t format, bt_pack_group_t group,
                        const units_t *units, uint32_t half, uint32_t v,
                        __m512i isum, float scale, __m512 *part, __m512 *acc)
{
    const uint8_t *at =
        group.scales + (format.two ? half : 0) * bt_pack_half_bytes(format);
    const __m512 f = _mm512_cvtepi32_ps(isum);
    const __m512 x = _mm512_set1_ps(scale);

    *part = (format.two || (half == 0)) ? _mm512_mul_ps(f, x)
                                        : _mm512_fmadd_ps(f, x, *part);
    if (format.two || (half == 1)) {
        *acc =
            _mm512_fmadd_ps(*part, factors(format, at, units->scale, v), *acc);
    }
}

SPECIALIZE void add_half(bt_pack_format_t format, uint32_t n_rows,
                         bt_pack_group_t group, const units_t *units,
                         const q8_tile_t *t, uint32_t half, uint32_t v,
                         __m512i (*isum)[2], __m512 *part, __m512 (*acc)[2])
{
    sum_codes(format, n_rows, group, t, half, v, isum);
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        add_sum(format, group, units, half, v, isum[r][v],
                t->x[r * t->n_groups].scale[half], &part[r], &acc[r][v]);
    }
}

/* Loops around the sums would be unrolled too late to keep them in registers:
 * halves and registers are written out. */
SPECIALIZE void add_register(bt_pack_format_t format, uint32_t n_rows,
                             bt_pack_group_t group, const units_t *units,
                             const q8_tile_t *t, uint32_t v, __m512 (*acc)[2])
{
    __m512i isum[BT_Q8_TILE_ROWS][2];
    __m512 part[BT_Q8_TILE_ROWS];

    add_half(format, n_rows, group, units, t, 0, v, isum, part, acc);
    READ_AGAIN();
    add_half(format, n_rows, group, units, t, 1, v, isum, part, acc);
    READ_AGAIN();
    add_mins(format, n_rows, group, units, t, v, acc);
}

SPECIALIZE void add_group(bt_pack_format_t format, uint32_t n_rows,
                          bt_pack_group_t group, const units_t *units,
                          const q8_tile_t *t, __m512 (*acc)[2])
{
    add_register(format, n_rows, group, units, t, 0, acc);
    add_register(format, n_rows, group, units, t, 1, acc);
}

/* The sums of a half, of both registers in turns: see add_group_in_order(). */
SPECIALIZE void sum_both(bt_pack_format_t format, uint32_t n_rows,
                         bt_pack_group_t group, const q8_tile_t *t,
                         uint32_t half, __m512i (*isum)[2])
{
    const uint32_t n_lines = 8 / steps_of_line(format);

    start_sums(format, n_rows, t, half, 0, isum);
    start_sums(format, n_rows, t, half, 1, isum);
    UNROLL
    for (uint32_t j = half * n_lines; j < (half + 1) * n_lines; j++) {
        add_line(format, n_rows, group.codes, t, j / 2, j % 2, isum);
    }
}

SPECIALIZE void add_both(bt_pack_format_t format, uint32_t n_rows,
                         bt_pack_group_t group, const units_t *units,
                         const q8_tile_t *t, uint32_t half, __m512 (*part)[2],
                         __m512 (*acc)[2])
{
    __m512i isum[BT_Q8_TILE_ROWS][2];

    sum_both(format, n_rows, group, t, half, isum);
    UNROLL
    for (uint32_t i = 0; i < 2 * n_rows; i++) {
        add_sum(format, group, units, half, i % 2, isum[i / 2][i % 2],
                t->x[i / 2 * t->n_groups].scale[half], &part[i / 2][i % 2],
                &acc[i / 2][i % 2]);
    }
}

/* add_group() that reads the group from its first line to its last, in the
 * order that the hardware prefetcher handles best: for so few rows that memory
 * is the limit and all sums fit into registers. */
SPECIALIZE void add_group_in_order(bt_pack_format_t format, uint32_t n_rows,
                                   bt_pack_group_t group, const units_t *units,
                                   const q8_tile_t *t, __m512 (*acc)[2])
{
    __m512 part[BT_Q8_TILE_ROWS][2];

    add_both(format, n_rows, group, units, t, 0, part, acc);
    add_both(format, n_rows, group, units, t, 1, part, acc);
    add_mins(format, n_rows, group, units, t, 0, acc);
    add_mins(format, n_rows, group, units, t, 1, acc);
}

/* Rows row .. times a panel, in place or widened. */
SPECIALIZE void tile_panel(bt_pack_format_t format, bool wide, uint32_t n_rows,
                           const bt_matmul_job_t *job, uint32_t panel,
                           const uint8_t *scratch, uint32_t row,
                           bt_ahead_t *ahead_p)
{
    const bt_pack_format_t seen = wide ? bt_pack_wide(format) : format;
    bt_ahead_t ahead = *ahead_p;
    const bt_weight_t *w = job->w;
    const uint8_t *block = w->data + panel * w->panel_bytes;
    const uint32_t n_groups = w->n_in / BT_QUANT_GROUP;
    const uint32_t left = w->n_out - panel * BT_PANEL;
    float *out = job->out + (size_t)row * w->n_out + (size_t)panel * BT_PANEL;
    __m512 acc[BT_Q8_TILE_ROWS][2];
    units_t units;
    q8_tile_t t = {
        .x = job->q + (size_t)row * n_groups,
        .n_groups = n_groups,
        .book = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)w->book)),
    };

    /* The destination of the sums is prefetched while they are computed: 12
     * misses at the end of a tile cost more than the fused addition saves. */
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        const float *to = out + (size_t)r * w->n_out;

        __builtin_prefetch(to, 1, 3);
        __builtin_prefetch((left > 16) ? to + 16 : to, 1, 3);
        acc[r][0] = _mm512_setzero_ps();
        acc[r][1] = _mm512_setzero_ps();
    }
    for (uint32_t g = 0; g < n_groups; g += format.n_groups) {
        const uint32_t n = bt_pack_groups_left(format, n_groups - g);

        load_units(seen, w, block, &units);
        for (uint32_t i = 0; i < n; i++) {
            const bt_pack_group_t group =
                group_at(format, wide, block, i, scratch);

            if (n_rows <= FEW_ROWS) {
                add_group_in_order(seen, n_rows, group, &units, &t, acc);
            } else {
                add_group(seen, n_rows, group, &units, &t, acc);
            }
            if (n_rows > 1) {
                bt_ahead_ask(&ahead);
            }
            if (wide) {
                scratch += bt_pack_scratch_at(format).bytes;
            }
            t.x++;
        }
        block += format.bytes;
    }
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        store_sums(out, left, job->add, acc[r]);
        out += w->n_out;
    }
    *ahead_p = ahead;
}

SPECIALIZE void panel_few(bt_pack_format_t format, const bt_matmul_job_t *job,
                          uint32_t panel)
{
    bt_ahead_t ahead = bt_ahead_of(job, panel, job->w->n_in / BT_QUANT_GROUP);

#define TILE(rows) tile_panel(format, false, rows, job, panel, NULL, 0, &ahead)
    BY_ROWS(job->n_rows, 1, 2, 3, 4, TILE)
#undef TILE
}

/* Tiles of nearly equal height: 8 rows are 4 and 4. */
SPECIALIZE void panel_many(bt_pack_format_t format, const bt_matmul_job_t *job,
                           uint32_t panel, const uint8_t *scratch)
{
    const uint32_t n_tiles =
        (job->n_rows + BT_Q8_TILE_ROWS - 1) / BT_Q8_TILE_ROWS;
    bt_ahead_t ahead =
        bt_ahead_of(job, panel, n_tiles * (job->w->n_in / BT_QUANT_GROUP));
    uint32_t row = 0;

    for (uint32_t i = 0; i < n_tiles; i++) {
        const uint32_t n = (job->n_rows - row) / (n_tiles - i);

#define TILE(rows) \
    tile_panel(format, true, rows, job, panel, scratch, row, &ahead)
        BY_ROWS(n, 3, 4, 5, 6, TILE)
#undef TILE
        row += n;
    }
}

/* Lanes 4 h .. 4 h + 3: bits of the largest magnitude of half h. */
static inline __m512i largest_bits(const __m512 *x)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i bits[4];
    __m512i ab;
    __m512i cd;
    __m512i m;

    UNROLL
    for (uint32_t h = 0; h < 4; h++) {
        bits[h] = _mm512_and_si512(_mm512_castps_si512(x[h]), magnitude);
    }
    /* Quarters 0, 1 of each half against 2, 3, then what is left against
     * itself. */
    ab = _mm512_max_epi32(_mm512_shuffle_i32x4(bits[0], bits[1], 0x44),
                          _mm512_shuffle_i32x4(bits[0], bits[1], 0xee));
    cd = _mm512_max_epi32(_mm512_shuffle_i32x4(bits[2], bits[3], 0x44),
                          _mm512_shuffle_i32x4(bits[2], bits[3], 0xee));
    m = _mm512_max_epi32(_mm512_shuffle_i32x4(ab, cd, 0x88),
                         _mm512_shuffle_i32x4(ab, cd, 0xdd));
    m = _mm512_max_epi32(m, _mm512_shuffle_epi32(m, _MM_PERM_BADC));
    return _mm512_max_epi32(m, _mm512_shuffle_epi32(m, _MM_PERM_CDAB));
}

/* quantize_half() of the four halves of two groups. */
static inline void quantize_two(const float *x, uint32_t bias,
                                bt_q8_group_t *groups)
{
    const __m512 most = _mm512_set1_ps(127.0f);
    const __m512i quarters =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512 v[4] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16),
                         _mm512_loadu_ps(x + 32), _mm512_loadu_ps(x + 48)};
    const __m512i bits = largest_bits(v);
    const __mmask16 odd = _mm512_cmpge_epi32_mask(
        bits, _mm512_set1_epi32(0x7f800000)); /* infinity or NaN */
    const __mmask16 used =
        _mm512_cmpge_epi32_mask(bits, _mm512_set1_epi32(0x0d800000)) & ~odd;
    const __m512 max = _mm512_mask_blend_ps(
        odd, _mm512_maskz_mov_ps(used, _mm512_castsi512_ps(bits)),
        _mm512_set1_ps(NAN));
    const __m512 inverse = _mm512_maskz_div_ps(used, most, max);
    const __m512 scale = _mm512_div_ps(max, most);
    float scales[16];
    int32_t sums[4];
    __m512i codes[4];
    __m512i bytes;
    __m512i fours;
    __m256i eight;

#define QUANTIZE(h)                                                         \
    codes[h] = _mm512_cvtps_epi32(_mm512_min_ps(                            \
        _mm512_max_ps(_mm512_mul_ps(v[h], _mm512_shuffle_f32x4(             \
                                              inverse, inverse, (h)*0x55)), \
                      _mm512_set1_ps(-127.0f)),                             \
        most))
    QUANTIZE(0);
    QUANTIZE(1);
    QUANTIZE(2);
    QUANTIZE(3);
#undef QUANTIZE
    /* Dword 4 j + h has k = 4 j .. of half h. */
    bytes = _mm512_packs_epi16(_mm512_packs_epi32(codes[0], codes[1]),
                               _mm512_packs_epi32(codes[2], codes[3]));
    fours =
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes);
    bytes = _mm512_permutexvar_epi32(quarters, bytes);
    eight = _mm256_add_epi32(_mm512_castsi512_si256(fours),
                             _mm512_extracti32x8_epi32(fours, 1));
    _mm_storeu_si128((void *)sums,
                     _mm_add_epi32(_mm256_castsi256_si128(eight),
                                   _mm256_extracti128_si256(eight, 1)));
    _mm512_storeu_ps(scales, scale);
    _mm256_storeu_si256((void *)groups[0].code, _mm512_castsi512_si256(bytes));
    _mm256_storeu_si256((void *)groups[1].code,
                        _mm512_extracti32x8_epi32(bytes, 1));
    UNROLL
    for (uint32_t g = 0; g < 2; g++) {
        groups[g].scale[0] = scales[8 * g];
        groups[g].scale[1] = scales[8 * g + 4];
        finish_group(&groups[g], bias, sums[2 * g], sums[2 * g + 1]);
    }
}

void bt_avx512_quantize(const float *x, uint32_t n_in, uint32_t bias,
                        bt_q8_group_t *groups)
{
    const uint32_t n_groups = n_in / 32;
    const uint32_t in_pairs = n_groups / 2 * 2;

    for (uint32_t g = 0; g < in_pairs; g += 2) {
        quantize_two(x + (size_t)g * 32, bias, groups + g);
    }
    body_quantize(x + (size_t)in_pairs * 32, n_in - in_pairs * 32, bias,
                  groups + in_pairs);
}
