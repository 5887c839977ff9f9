/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with AVX512_BF16: 32 positions are two registers of scores; up to
 * four pairs go over keys and values together, so that each load serves all,
 * and through one softmax, a quarter of a register each. */
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/tier_attn.h"
#include "kernels/cpu/tiers.h"

/* Processors before 2020, and some after, have no dot product of bf16. */
static inline bool has_bf16(void)
{
    return __builtin_cpu_supports("avx512bf16") != 0;
}

uint32_t bt_avx512_direct_kv(void)
{
    return has_bf16() ? 1u << BT_KV_F16 | 1u << BT_KV_BF16 | 1u << BT_KV_INT8 |
                            1u << BT_KV_FP8
                      : 0;
}

/* ---- 16 pairs of elements to bf16 ---- */

/* bt_e4m3_to_bf16() of 32 codes. */
static inline __m512i e4m3_words(__m256i codes)
{
    /* Of the NaN, then of subnormal numbers: what code + 1 is. */
    const __m512i odd = _mm512_zextsi256_si512(_mm256_setr_epi16(
        E4M3_BIAS_BF16 + E4M3_NAN_BF16 + 0x7f0, 0, 0x3b00, 0x3b80, 0x3bc0,
        0x3c00, 0x3c20, 0x3c40, 0x3c60, 0, 0, 0, 0, 0, 0, 0));
    const __m512i words = _mm512_cvtepu8_epi16(codes);
    const __m512i next = _mm512_and_si512(
        _mm512_add_epi16(words, _mm512_set1_epi16(1)), _mm512_set1_epi16(0x7f));
    const __m512i mag =
        _mm512_add_epi16(_mm512_slli_epi16(next, 4),
                         _mm512_set1_epi16(E4M3_BIAS_BF16 - (1 << 4)));
    const __mmask32 is_odd =
        _mm512_cmple_epu16_mask(next, _mm512_set1_epi16(8));

    /* the sign of one operand with the magnitude of the other */
    return _mm512_ternarylogic_epi32(
        _mm512_set1_epi16((short)0x8000), _mm512_slli_epi16(words, 8),
        _mm512_mask_permutexvar_epi16(mag, is_odd, next, odd), 0xca);
}

/* No element of the cache is a subnormal float, which would become 0. */
SPECIALIZE __m512i sixteen(bt_kv_type_t type, const void *base, size_t i,
                           __mmask16 pairs)
{
    const uint8_t *at =
        (const uint8_t *)base + i * (bt_cpu_kv_scaled(type) ? 1 : 2);
    __m512i words;
    __m256i codes;

    if (type == BT_KV_FP8) {
        return e4m3_words(_mm256_maskz_loadu_epi16(pairs, at));
    }
    if (type == BT_KV_INT8) {
        codes = _mm256_maskz_loadu_epi16(pairs, at);
        return (__m512i)_mm512_cvtne2ps_pbh(
            _mm512_cvtepi32_ps(
                _mm512_cvtepi8_epi32(_mm256_extracti128_si256(codes, 1))),
            _mm512_cvtepi32_ps(
                _mm512_cvtepi8_epi32(_mm256_castsi256_si128(codes))));
    }
    words = _mm512_maskz_loadu_epi32(pairs, at);
    if (type == BT_KV_BF16) {
        return words;
    }
    return (__m512i)_mm512_cvtne2ps_pbh(
        _mm512_cvtph_ps(_mm512_extracti64x4_epi64(words, 1)),
        _mm512_cvtph_ps(_mm512_castsi512_si256(words)));
}

SPECIALIZE void load_keys(bt_kv_type_t type, const void *keys, size_t stride,
                          uint32_t first, uint32_t n, uint32_t dim,
                          uint16_t *out)
{
    for (uint32_t j = 0; j < n; j += 16) {
        const __mmask16 lanes = first_lanes(n - j);
        uint16_t *to = out + 2 * (size_t)(first + j);

        for (uint32_t d = 0; d < dim; d += 2) {
            _mm512_mask_storeu_epi32(
                to + (size_t)d * BT_ATTN_TILE, lanes,
                sixteen(type, keys, d * stride + 2 * (size_t)j, lanes));
        }
    }
}

void bt_avx512_load_keys(bt_kv_type_t type, const void *keys, size_t stride,
                         uint32_t first, uint32_t n, uint32_t dim,
                         uint16_t *out)
{
    if (!has_bf16()) {
        bt_avx2_load_keys(type, keys, stride, first, n, dim, out);
        return;
    }
    load_keys_of(type, keys, stride, first, n, dim, out);
}

SPECIALIZE void load_values(bt_kv_type_t type, const void *values,
                            uint32_t first, uint32_t n, uint32_t dim,
                            uint16_t *out)
{
    const size_t n_pairs = (size_t)(n + n % 2) / 2 * dim;

    out += (size_t)first * dim;
    for (size_t i = 0; i < n_pairs; i += 16) {
        const __mmask16 lanes = (n_pairs - i < 16)
                                    ? first_lanes((uint32_t)(n_pairs - i))
                                    : (__mmask16)0xffff;

        _mm512_mask_storeu_epi32(out + 2 * i, lanes,
                                 sixteen(type, values, 2 * i, lanes));
    }
}

void bt_avx512_load_values(bt_kv_type_t type, const void *values,
                           uint32_t first, uint32_t n, uint32_t dim,
                           uint16_t *out)
{
    if (!has_bf16()) {
        bt_avx2_load_values(type, values, first, n, dim, out);
        return;
    }
    load_values_of(type, values, first, n, dim, out);
}

/* ---- scores ---- */

SPECIALIZE bt_kv_type_t type_of(bt_attn_elem_t elems)
{
    return (elems == BT_ATTN_F16)    ? BT_KV_F16
           : (elems == BT_ATTN_BF16) ? BT_KV_BF16
           : (elems == BT_ATTN_I8)   ? BT_KV_INT8
                                     : BT_KV_FP8;
}

/* Keys d and d + 1 of the 16 positions of half v. */
SPECIALIZE __m512bh key_pair(bt_attn_elem_t elems, const bt_attn_tile_t *t,
                             uint32_t d, uint32_t v)
{
    const uint16_t *loaded = t->keys[0];

    if (elems == BT_ATTN_LOADED) {
        return (__m512bh)_mm512_loadu_si512(loaded + (size_t)d * BT_ATTN_TILE +
                                            32 * v);
    }
    return (__m512bh)sixteen(type_of(elems), t->keys[v], d * t->key_stride,
                             0xffff);
}

/* Values d .. d + 15 of positions 2 j and 2 j + 1. */
SPECIALIZE __m512i value_pair(bt_attn_elem_t elems, const bt_attn_tile_t *t,
                              uint32_t j, uint32_t d)
{
    const uint16_t *loaded = t->values[0];

    if (elems == BT_ATTN_LOADED) {
        return _mm512_loadu_si512(loaded + ((size_t)j * t->dim + d) * 2);
    }
    return sixteen(type_of(elems), t->values[j / 8],
                   ((size_t)(j % 8) * t->dim + d) * 2, 0xffff);
}

/* s[i] = scores of pair i. */
SPECIALIZE void scores(bt_attn_elem_t elems, uint32_t n_pairs,
                       const bt_attn_tile_t *t, __m512 (*s)[2])
{
    const __m512 scale = _mm512_set1_ps(t->scale);
    const bool capped = t->soft_cap > 0.0f;
    const bool sloped = t->sloped;

    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        s[i][0] = _mm512_setzero_ps();
        s[i][1] = _mm512_setzero_ps();
    }
    for (uint32_t d = 0; d < t->dim; d += 2) {
        const __m512bh k0 = key_pair(elems, t, d, 0);
        const __m512bh k1 = key_pair(elems, t, d, 1);

        attn_ahead(t, d, d + 2);
        UNROLL
        for (uint32_t i = 0; i < n_pairs; i++) {
            const __m512bh q = (__m512bh)word16(t->q + i * t->dim + d);

            s[i][0] = _mm512_dpbf16_ps(s[i][0], q, k0);
            s[i][1] = _mm512_dpbf16_ps(s[i][1], q, k1);
        }
    }
    UNROLL
    for (uint32_t v = 0; v < 2; v++) {
        UNROLL
        for (uint32_t i = 0; i < n_pairs; i++) {
            if (t->key_scales[0] != NULL) {
                s[i][v] =
                    _mm512_mul_ps(s[i][v], _mm512_loadu_ps(t->key_scales[v]));
            }
            s[i][v] = _mm512_mul_ps(s[i][v], scale);
            if (capped) {
                s[i][v] = vec_capped(t, s[i][v]);
            }
            if (sloped) {
                s[i][v] = vec_sloped(t, i, 16 * v, s[i][v]);
            }
        }
    }
}

/* ---- softmax: lane 4 i of a register belongs to pair i, and its next 3 ----
 */

/* bt_expf() of numbers up to 0; 0 in other lanes. */
static inline __m512 exp16_negative(__m512 x, __mmask16 lanes)
{
    const __mmask16 seen =
        _mm512_mask_cmp_ps_mask(lanes, x, _mm512_set1_ps(EXP_MIN), _CMP_NLT_UQ);
    __m512 n;
    __m512 t;
    const __m512 y = exp_parts(x, &n, &t);

    return _mm512_maskz_scalef_ps(seen, y, n);
}

/* Quarter i is the sum of v[i]'s lanes, four times: lane_tree(), whose steps
 * are halves, quarters, then pairs and ones within a quarter. */
static inline __m512 sums_of(const __m512 *v)
{
    const __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44),
                                    _mm512_shuffle_f32x4(v[0], v[1], 0xee));
    const __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44),
                                    _mm512_shuffle_f32x4(v[2], v[3], 0xee));
    __m512 x = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88),
                             _mm512_shuffle_f32x4(ab, cd, 0xdd));

    x = _mm512_add_ps(x, _mm512_permute_ps(x, 0x4e));
    return _mm512_add_ps(x, _mm512_permute_ps(x, 0xb1));
}

/* Quarter i is the largest of v[i]'s lanes, four times. */
static inline __m512 largest_of(const __m512 *v)
{
    const __m512 ab = _mm512_max_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44),
                                    _mm512_shuffle_f32x4(v[0], v[1], 0xee));
    const __m512 cd = _mm512_max_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44),
                                    _mm512_shuffle_f32x4(v[2], v[3], 0xee));
    __m512 x = _mm512_max_ps(_mm512_shuffle_f32x4(ab, cd, 0x88),
                             _mm512_shuffle_f32x4(ab, cd, 0xdd));

    x = _mm512_max_ps(x, _mm512_permute_ps(x, 0x4e));
    return _mm512_max_ps(x, _mm512_permute_ps(x, 0xb1));
}

/* Quarter i of x in all lanes. */
SPECIALIZE __m512 quarter(__m512 x, uint32_t i)
{
    return (i == 0)   ? _mm512_shuffle_f32x4(x, x, 0x00)
           : (i == 1) ? _mm512_shuffle_f32x4(x, x, 0x55)
           : (i == 2) ? _mm512_shuffle_f32x4(x, x, 0xaa)
                      : _mm512_shuffle_f32x4(x, x, 0xff);
}

/* softmax_step() of all pairs; p[i] (32) in bf16, times the values' scales.
 * @return corr by quarters */
SPECIALIZE __m512 softmax(uint32_t n_pairs, const bt_attn_tile_t *t,
                          __m512 (*s)[2], uint16_t (*p)[BT_ATTN_TILE])
{
    const __m512i maxima =
        _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6);
    const __m512i back =
        _mm512_setr_epi32(0, 16, 4, 20, 8, 24, 12, 28, 0, 0, 0, 0, 0, 0, 0, 0);
    const __mmask16 used = (__mmask16)((1u << 2 * n_pairs) - 1);
    const __m512 states = _mm512_maskz_loadu_ps(used, t->state);
    const __m512 old = _mm512_permutexvar_ps(maxima, states);
    const __m512 sum = _mm512_permutexvar_ps(
        _mm512_add_epi32(maxima, _mm512_set1_epi32(1)), states);
    const __m512 low = _mm512_set1_ps(-INFINITY);
    __mmask16 mask[BT_ATTN_TOGETHER][2];
    __m512 both[BT_ATTN_TOGETHER];
    __m512 most;
    __m512 corr;

    UNROLL
    for (uint32_t i = 0; i < BT_ATTN_TOGETHER; i++) {
        if (i >= n_pairs) {
            both[i] = both[0];
            continue;
        }
        mask[i][0] = first_lanes(t->n[i]);
        mask[i][1] = (t->n[i] > 16) ? first_lanes(t->n[i] - 16) : (__mmask16)0;
        both[i] = _mm512_max_ps(_mm512_mask_mov_ps(low, mask[i][0], s[i][0]),
                                _mm512_mask_mov_ps(low, mask[i][1], s[i][1]));
    }
    most = _mm512_max_ps(largest_of(both), old);
    UNROLL
    for (uint32_t i = 0; i < BT_ATTN_TOGETHER; i++) {
        __m512 e[2];

        if (i >= n_pairs) {
            both[i] = both[0];
            continue;
        }
        UNROLL
        for (uint32_t v = 0; v < 2; v++) {
            e[v] = exp16_negative(_mm512_sub_ps(s[i][v], quarter(most, i)),
                                  mask[i][v]);
        }
        both[i] = _mm512_add_ps(e[0], e[1]);
        if (t->value_scales[0] != NULL) {
            UNROLL
            for (uint32_t v = 0; v < 2; v++) {
                e[v] = _mm512_maskz_mul_ps(mask[i][v], e[v],
                                           _mm512_loadu_ps(t->value_scales[v]));
            }
        }
        _mm512_storeu_si512(p[i], (__m512i)_mm512_cvtne2ps_pbh(e[1], e[0]));
    }
    corr = exp16_negative(_mm512_sub_ps(old, most), 0xffff);
    _mm512_mask_storeu_ps(
        t->state, used,
        _mm512_permutex2var_ps(most, back,
                               _mm512_fmadd_ps(sum, corr, sums_of(both))));
    return corr;
}

/* ---- values ---- */

/* acc = acc * corr, then += p_j v_j, for n_regs registers of dimensions from d
 * on. Positions that all pairs see are taken together, the rest after them. */
SPECIALIZE void weigh(bt_attn_elem_t elems, uint32_t n_pairs, uint32_t n_regs,
                      const bt_attn_tile_t *t, uint16_t (*p)[BT_ATTN_TILE],
                      __m512 corr, uint32_t d)
{
    /* Lines that scores() did not prefetch, in the first iteration. */
    const uint32_t left = (t->n_ahead > t->dim) ? t->n_ahead - t->dim : 0;
    const uint32_t step =
        (d == 0) ? (left + BT_ATTN_TILE / 2 - 1) / (BT_ATTN_TILE / 2) : 0;
    __m512 sum[BT_ATTN_TOGETHER][4];
    uint32_t common = BT_ATTN_TILE / 2;

    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        const __m512 factor = quarter(corr, i);

        common = (t->n[i] / 2 < common) ? t->n[i] / 2 : common;
        UNROLL
        for (uint32_t k = 0; k < n_regs; k++) {
            sum[i][k] = _mm512_mul_ps(
                _mm512_loadu_ps(t->acc + i * t->dim + d + 16 * k), factor);
        }
    }
    for (uint32_t j = 0; j < common; j++) {
        __m512i pj[BT_ATTN_TOGETHER];

        attn_ahead(t, t->dim + j * step, t->dim + (j + 1) * step);
        UNROLL
        for (uint32_t i = 0; i < n_pairs; i++) {
            pj[i] = word16(&p[i][2 * j]);
        }
        UNROLL
        for (uint32_t k = 0; k < n_regs; k++) {
            const __m512i v = value_pair(elems, t, j, d + 16 * k);

            UNROLL
            for (uint32_t i = 0; i < n_pairs; i++) {
                sum[i][k] =
                    _mm512_dpbf16_ps(sum[i][k], (__m512bh)pj[i], (__m512bh)v);
            }
        }
    }
    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        for (uint32_t j = common; 2 * j < t->n[i]; j++) {
            const __m512bh pj = (__m512bh)word16(&p[i][2 * j]);
            /* Data after the last position is undefined. */
            const __mmask32 there =
                (2 * j + 1 < t->n[i]) ? 0xffffffffu : 0x55555555u;

            UNROLL
            for (uint32_t k = 0; k < n_regs; k++) {
                sum[i][k] = _mm512_dpbf16_ps(
                    sum[i][k], pj,
                    (__m512bh)_mm512_maskz_mov_epi16(
                        there, value_pair(elems, t, j, d + 16 * k)));
            }
        }
        UNROLL
        for (uint32_t k = 0; k < n_regs; k++) {
            _mm512_storeu_ps(t->acc + i * t->dim + d + 16 * k, sum[i][k]);
        }
    }
}

SPECIALIZE void pairs(bt_attn_elem_t elems, uint32_t n_pairs,
                      const bt_attn_tile_t *t)
{
    uint16_t p[BT_ATTN_TOGETHER][BT_ATTN_TILE];
    __m512 s[BT_ATTN_TOGETHER][2];
    __m512 corr;
    uint32_t d = 0;

    scores(elems, n_pairs, t, s);
    corr = softmax(n_pairs, t, s, p);
    for (; d + 32 <= t->dim; d += 32) {
        weigh(elems, n_pairs, 2, t, p, corr, d);
    }
    for (; d < t->dim; d += 16) {
        weigh(elems, n_pairs, 1, t, p, corr, d);
    }
}

SPECIALIZE void attn_tile(bt_attn_elem_t elems, const bt_attn_tile_t *tile)
{
#define PAIRS(n) pairs(elems, n, tile)
    BY_ROWS(tile->n_pairs, 1, 2, 3, 4, PAIRS)
#undef PAIRS
}

void bt_avx512_attn_tile(const bt_attn_tile_t *tile)
{
    if (!has_bf16()) {
        bt_avx2_attn_tile(tile);
        return;
    }
    if ((tile->dim % 16 != 0) || tile->cut) {
        body_attn_tile(tile);
        return;
    }
    switch (tile->elem) {
    case BT_ATTN_LOADED:
        attn_tile(BT_ATTN_LOADED, tile);
        break;
    case BT_ATTN_F16:
        attn_tile(BT_ATTN_F16, tile);
        break;
    case BT_ATTN_BF16:
        attn_tile(BT_ATTN_BF16, tile);
        break;
    case BT_ATTN_I8:
        attn_tile(BT_ATTN_I8, tile);
        break;
    case BT_ATTN_E4M3:
        attn_tile(BT_ATTN_E4M3, tile);
        break;
    }
}
