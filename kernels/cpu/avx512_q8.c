/* SPDX-License-Identifier: Apache-2.0 */
/* Quantized weights times rows of 8-bit integers with AVX-512 VNNI: a panel is
 * two registers of 16 outputs, a lane's four bytes are four k. The integer sums
 * of one group and the float sums of a tile of rows stay in registers. */
#include <immintrin.h>

#include "kernels/cpu/ahead.h"
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/body.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tier_q8.h"

/* At most so many rows go over a group in its own order: more sums than these
 * have do not fit into the registers. */
#define IN_ORDER_ROWS 4u

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
    __m512i book; /* the weights', four times */
} q8_tile_t;

SPECIALIZE __m512i start_of(bt_pack_format_t format, const bt_q8_group_t *x,
                            uint32_t half)
{
    return (format.bias == 0) ? _mm512_setzero_si512()
                              : _mm512_set1_epi32(x->start[half]);
}

/* The codes of 4 k: from bit `at` on in each byte of a line. */
SPECIALIZE __m512i codes_of(bt_pack_format_t format, __m512i line, uint32_t at,
                            __m512i book)
{
    const __m512i low = _mm512_set1_epi8((char)((1u << format.bits) - 1u));

    if (format.bits == 8) {
        return line;
    }
    line = (at == 2)   ? _mm512_srli_epi16(line, 2)
           : (at == 4) ? _mm512_srli_epi16(line, 4)
           : (at == 6) ? _mm512_srli_epi16(line, 6)
                       : line;
    line = _mm512_and_si512(line, low);
    return format.book ? _mm512_shuffle_epi8(book, line) : line;
}

/* isum[r][v] += the codes of a line, of k from `first` on, times those of the
 * rows. */
SPECIALIZE void add_line(bt_pack_format_t format, uint32_t n_rows,
                         const uint8_t *at, const q8_tile_t *t, uint32_t first,
                         uint32_t v, __m512i (*isum)[2])
{
    const __m512i line = _mm512_load_si512(at);

    UNROLL
    for (uint32_t c = 0; c < 8 / format.bits; c++) {
        const __m512i codes = codes_of(format, line, c * format.bits, t->book);

        UNROLL
        for (uint32_t r = 0; r < n_rows; r++) {
            const int8_t *x = t->x[r * t->n_groups].code + first + 4 * c;

            isum[r][v] = _mm512_dpbusd_epi32(isum[r][v], codes, word16(x));
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

/* isum[r][v] = what of register v of a group belongs to the k of a half. */
SPECIALIZE void sum_codes(bt_pack_format_t format, uint32_t n_rows,
                          const uint8_t *group, const q8_tile_t *t,
                          uint32_t half, uint32_t v, __m512i (*isum)[2])
{
    const uint32_t n_lines = format.bits / 2;

    start_sums(format, n_rows, t, half, v, isum);
    UNROLL
    for (uint32_t i = half * n_lines; i < (half + 1) * n_lines; i++) {
        add_line(format, n_rows, group + 128 * i + 64 * v, t,
                 32 / format.bits * i, v, isum);
    }
}

/* acc += the minima of register v times the sums of the rows. */
SPECIALIZE __m512 add_min(bt_pack_format_t format, const uint8_t *group,
                          const bt_q8_group_t *x, uint32_t v, __m512 acc)
{
    const uint8_t *mins = group + format.min_at;

    if (format.min_at == 0) {
        return acc;
    }
    if (!format.two) {
        return _mm512_fmadd_ps(factors(format, mins, v), _mm512_set1_ps(x->sum),
                               acc);
    }
    acc = _mm512_fmadd_ps(factors(format, mins, v), _mm512_set1_ps(x->sums[0]),
                          acc);
    return _mm512_fmadd_ps(
        factors(format, mins + bt_pack_half_bytes(format), v),
        _mm512_set1_ps(x->sums[1]), acc);
}

/* A group's two halves, times the scales of the rows; and with the weights'
 * scale, or each with its own. */
SPECIALIZE void add_halves(bt_pack_format_t format, uint32_t n_rows,
                           const uint8_t *group, const q8_tile_t *t, uint32_t v,
                           __m512 (*acc)[2])
{
    const uint8_t *scales = group + format.scale_at;
    const __m512 scale[2] = {
        factors(format, scales, v),
        format.two ? factors(format, scales + bt_pack_half_bytes(format), v)
                   : _mm512_setzero_ps()};
    __m512i isum[BT_Q8_TILE_ROWS][2];
    __m512 part[BT_Q8_TILE_ROWS];

    sum_codes(format, n_rows, group, t, 0, v, isum);
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        part[r] = _mm512_mul_ps(_mm512_cvtepi32_ps(isum[r][v]),
                                _mm512_set1_ps(t->x[r * t->n_groups].scale[0]));
    }
    READ_AGAIN();
    sum_codes(format, n_rows, group, t, 1, v, isum);
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        const __m512 f = _mm512_cvtepi32_ps(isum[r][v]);
        const __m512 x = _mm512_set1_ps(t->x[r * t->n_groups].scale[1]);

        if (format.two) {
            acc[r][v] = _mm512_fmadd_ps(part[r], scale[0], acc[r][v]);
            acc[r][v] =
                _mm512_fmadd_ps(_mm512_mul_ps(f, x), scale[1], acc[r][v]);
        } else {
            part[r] = _mm512_fmadd_ps(f, x, part[r]);
            acc[r][v] = _mm512_fmadd_ps(part[r], scale[0], acc[r][v]);
        }
    }
}

SPECIALIZE void add_group(bt_pack_t pack, uint32_t n_rows, const uint8_t *group,
                          const q8_tile_t *t, __m512 (*acc)[2])
{
    const bt_pack_format_t format = bt_pack_format(pack);

    UNROLL
    for (uint32_t v = 0; v < 2; v++) {
        add_halves(format, n_rows, group, t, v, acc);
        READ_AGAIN();
        if (format.min_at != 0) {
            UNROLL
            for (uint32_t r = 0; r < n_rows; r++) {
                acc[r][v] = add_min(format, group, &t->x[r * t->n_groups], v,
                                    acc[r][v]);
            }
        }
    }
}

/* The sums of a half, of both registers in turns: see add_group_in_order(). */
SPECIALIZE void sum_both(bt_pack_format_t format, uint32_t n_rows,
                         const uint8_t *group, const q8_tile_t *t,
                         uint32_t half, __m512i (*isum)[2])
{
    const uint32_t n_lines = format.bits;

    start_sums(format, n_rows, t, half, 0, isum);
    start_sums(format, n_rows, t, half, 1, isum);
    UNROLL
    for (uint32_t j = half * n_lines; j < (half + 1) * n_lines; j++) {
        add_line(format, n_rows, group + 64 * j, t, 32 / format.bits * (j / 2),
                 j % 2, isum);
    }
}

/* add_group() that reads the group from its first line to its last, as the
 * processor's own prefetcher likes it best: for so few rows that memory is the
 * limit and all sums fit into registers. */
SPECIALIZE void add_group_in_order(bt_pack_t pack, uint32_t n_rows,
                                   const uint8_t *group, const q8_tile_t *t,
                                   __m512 (*acc)[2])
{
    const bt_pack_format_t format = bt_pack_format(pack);
    const uint8_t *scales = group + format.scale_at;
    __m512i isum[BT_Q8_TILE_ROWS][2];
    __m512 part[BT_Q8_TILE_ROWS][2];

    sum_both(format, n_rows, group, t, 0, isum);
    UNROLL
    for (uint32_t i = 0; i < 2 * n_rows; i++) {
        part[i / 2][i % 2] =
            _mm512_mul_ps(_mm512_cvtepi32_ps(isum[i / 2][i % 2]),
                          _mm512_set1_ps(t->x[i / 2 * t->n_groups].scale[0]));
    }
    sum_both(format, n_rows, group, t, 1, isum);
    UNROLL
    for (uint32_t i = 0; i < 2 * n_rows; i++) {
        const bt_q8_group_t *x = &t->x[i / 2 * t->n_groups];
        const __m512 x1 = _mm512_set1_ps(x->scale[1]);
        const __m512 p = part[i / 2][i % 2];
        const uint32_t v = i % 2;
        const __m512 f = _mm512_cvtepi32_ps(isum[i / 2][v]);
        __m512 sum = acc[i / 2][v];

        if (format.two) {
            sum = _mm512_fmadd_ps(p, factors(format, scales, v), sum);
            sum = _mm512_fmadd_ps(
                _mm512_mul_ps(f, x1),
                factors(format, scales + bt_pack_half_bytes(format), v), sum);
        } else {
            sum = _mm512_fmadd_ps(_mm512_fmadd_ps(f, x1, p),
                                  factors(format, scales, v), sum);
        }
        acc[i / 2][v] = add_min(format, group, x, v, sum);
    }
}

SPECIALIZE void tile_panel(bt_pack_t pack, uint32_t n_rows,
                           const bt_matmul_job_t *job, uint32_t panel,
                           uint32_t row, bt_ahead_t *ahead_p)
{
    bt_ahead_t ahead = *ahead_p;
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
        .book = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)w->book)),
    };

    /* Where the sums go, and are added to, is asked for while they grow: 12
     * misses at the end of a tile cost more than fusing the addition saves. */
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        const float *to = out + (size_t)r * w->n_out;

        __builtin_prefetch(to, 1, 3);
        __builtin_prefetch((left > 16) ? to + 16 : to, 1, 3);
        acc[r][0] = _mm512_setzero_ps();
        acc[r][1] = _mm512_setzero_ps();
    }
    for (uint32_t g = 0; g < n_groups; g++) {
        if (n_rows <= IN_ORDER_ROWS) {
            add_group_in_order(pack, n_rows, group, &t, acc);
        } else {
            add_group(pack, n_rows, group, &t, acc);
        }
        if (n_rows > 1) {
            bt_ahead_ask(&ahead);
        }
        group += group_bytes;
        t.x++;
    }
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        store_sums(out, left, job->add, acc[r]);
        out += w->n_out;
    }
    *ahead_p = ahead;
}

/* Tiles of nearly equal height: 8 rows are 4 and 4. */
SPECIALIZE void panels(bt_pack_t pack, const bt_matmul_job_t *job,
                       uint32_t begin, uint32_t end)
{
    const uint32_t n_tiles =
        (job->n_rows + BT_Q8_TILE_ROWS - 1) / BT_Q8_TILE_ROWS;

    for (uint32_t p = begin; p < end; p++) {
        bt_ahead_t ahead =
            bt_ahead_of(job, p, n_tiles * (job->w->n_in / BT_QUANT_GROUP));
        uint32_t row = 0;

        for (uint32_t i = 0; i < n_tiles; i++) {
            const uint32_t n = (job->n_rows - row) / (n_tiles - i);

            switch (n) {
            case 1:
                tile_panel(pack, 1, job, p, row, &ahead);
                break;
            case 2:
                tile_panel(pack, 2, job, p, row, &ahead);
                break;
            case 3:
                tile_panel(pack, 3, job, p, row, &ahead);
                break;
            case 4:
                tile_panel(pack, 4, job, p, row, &ahead);
                break;
            case 5:
                tile_panel(pack, 5, job, p, row, &ahead);
                break;
            default:
                tile_panel(pack, 6, job, p, row, &ahead);
                break;
            }
            row += n;
        }
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
