/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with AVX2: 32 positions are four registers of scores; two pairs go
 * over keys and values together, so that each load serves both. A dot product
 * of bf16 is two FMAs of floats in a mode where subnormal numbers are zeros. */
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/tier_attn.h"
#include "kernels/cpu/tiers.h"

#define TOGETHER 2u

/* Compiler barrier around a change of the mode. */
#define IN_MODE static __attribute__((noinline))

/* ---- 16 elements to bf16 ---- */

/* 8 elements as floats, the upper half of each its bf16. */
SPECIALIZE __m256i eight(bt_kv_type_t type, const uint8_t *at)
{
    if (type == BT_KV_F16) {
        return bf16_bits(_mm256_cvtph_ps(_mm_loadu_si128((const void *)at)));
    }
    return _mm256_castps_si256(
        _mm256_cvtepi32_ps(/* exact */
                           _mm256_cvtepi8_epi32(
                               _mm_loadl_epi64((const void *)at))));
}

/* Element i of the cache. */
SPECIALIZE const uint8_t *elem(bt_kv_type_t type, const void *base, size_t i)
{
    return (const uint8_t *)base + i * (bt_cpu_kv_scaled(type) ? 1 : 2);
}

/* bt_e4m3_to_bf16() of 16 codes. */
static inline __m256i sixteen_e4m3(const void *at)
{
    /* Subnormal numbers: the lower bytes, then the upper ones. */
    const __m256i small = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 0, (char)0x80, (char)0xc0, 0, 0x20, 0x40, 0x60, 0,
                      0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c));
    const __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(at));
    const __m256i mag = _mm256_and_si256(codes, _mm256_set1_epi16(0x7f));
    const __m256i sign = _mm256_slli_epi16(_mm256_xor_si256(codes, mag), 8);
    const __m256i is_nan = _mm256_cmpeq_epi16(mag, _mm256_set1_epi16(0x7f));
    const __m256i normal = _mm256_add_epi16(
        _mm256_add_epi16(_mm256_slli_epi16(mag, 4),
                         _mm256_set1_epi16((short)E4M3_BIAS_BF16)),
        _mm256_and_si256(is_nan, _mm256_set1_epi16((short)E4M3_NAN_BF16)));
    const __m256i order =
        _mm256_add_epi16(_mm256_or_si256(mag, _mm256_slli_epi16(mag, 8)),
                         _mm256_set1_epi16(0x800));
    const __m256i is_small = _mm256_cmpgt_epi16(_mm256_set1_epi16(8), mag);

    return _mm256_or_si256(
        sign, _mm256_blendv_epi8(normal, _mm256_shuffle_epi8(small, order),
                                 is_small));
}

SPECIALIZE __m256i sixteen(bt_kv_type_t type, const void *base, size_t i)
{
    if (type == BT_KV_FP8) {
        return sixteen_e4m3(elem(type, base, i));
    }
    if (type == BT_KV_BF16) {
        return _mm256_loadu_si256((const void *)elem(type, base, i));
    }
    return _mm256_permute4x64_epi64(
        _mm256_packus_epi32(
            _mm256_srli_epi32(eight(type, elem(type, base, i)), 16),
            _mm256_srli_epi32(eight(type, elem(type, base, i + 8)), 16)),
        0xd8);
}

SPECIALIZE void load_keys(bt_kv_type_t type, const void *keys, size_t stride,
                          uint32_t first, uint32_t n, uint32_t dim,
                          uint16_t *out)
{
    const uint32_t whole = n / 8 * 8;

    for (uint32_t d = 0; d < dim; d += 2) {
        uint16_t *to = out + (size_t)d * BT_ATTN_TILE + 2 * (size_t)first;

        for (uint32_t i = 0; i < 2 * whole; i += 16) {
            _mm256_storeu_si256((void *)(to + i),
                                sixteen(type, keys, d * stride + i));
        }
    }
    body_load_keys(type, elem(type, keys, (size_t)2 * whole), stride,
                   first + whole, n - whole, dim, out);
}

void bt_avx2_load_keys(bt_kv_type_t type, const void *keys, size_t stride,
                       uint32_t first, uint32_t n, uint32_t dim, uint16_t *out)
{
    load_keys_of(type, keys, stride, first, n, dim, out);
}

SPECIALIZE void load_values(bt_kv_type_t type, const void *values,
                            uint32_t first, uint32_t n, uint32_t dim,
                            uint16_t *out)
{
    const size_t whole = (size_t)(n + n % 2) * dim;

    if (dim % 8 != 0) {
        body_load_values(type, values, first, n, dim, out);
        return;
    }
    out += (size_t)first * dim;
    for (size_t i = 0; i < whole; i += 16) {
        _mm256_storeu_si256((void *)(out + i), sixteen(type, values, i));
    }
}

void bt_avx2_load_values(bt_kv_type_t type, const void *values, uint32_t first,
                         uint32_t n, uint32_t dim, uint16_t *out)
{
    load_values_of(type, values, first, n, dim, out);
}

/* ---- one step ---- */

/* The first n of 8 lanes. */
static inline __m256 seen8(uint32_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

    return _mm256_castsi256_ps(
        _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane));
}

/* p[i] = scores of pair first + i, not scaled. */
SPECIALIZE void scores(uint32_t n_pairs, const bt_attn_tile_t *t,
                       uint32_t first, float (*p)[BT_ATTN_TILE])
{
    const uint16_t *keys = t->keys[0];
    const uint16_t *q = t->q + (size_t)first * t->dim;
    __m256 s[TOGETHER][4];

    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        UNROLL
        for (uint32_t v = 0; v < 4; v++) {
            s[i][v] = _mm256_setzero_ps();
        }
    }
    for (uint32_t d = 0; d < t->dim; d += 2) {
        halves_t qd[TOGETHER];

        UNROLL
        for (uint32_t i = 0; i < n_pairs; i++) {
            qd[i] = halves_of(word8(q + i * t->dim + d));
        }
        UNROLL
        for (uint32_t v = 0; v < 4; v++) {
            const halves_t k =
                halves_of(_mm256_loadu_si256((const void *)(keys + 16 * v)));

            UNROLL
            for (uint32_t i = 0; i < n_pairs; i++) {
                s[i][v] = dot_halves(qd[i], k, s[i][v]);
            }
        }
        keys += (size_t)2 * BT_ATTN_TILE;
    }
    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        UNROLL
        for (uint32_t v = 0; v < 4; v++) {
            _mm256_storeu_ps(p[i] + 8 * v, s[i][v]);
        }
    }
}

IN_MODE void all_scores(const bt_attn_tile_t *t, float (*p)[BT_ATTN_TILE])
{
    uint32_t first = 0;

    for (; first + TOGETHER <= t->n_pairs; first += TOGETHER) {
        scores(TOGETHER, t, first, p + first);
    }
    if (first < t->n_pairs) {
        scores(1, t, first, p + first);
    }
}

/* The last three steps of lane_tree(). */
static inline float tree8(__m256 v)
{
    __m128 v4 =
        _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));

    return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
}

static inline float largest(const __m256 *s)
{
    __m256 m =
        _mm256_max_ps(_mm256_max_ps(s[0], s[1]), _mm256_max_ps(s[2], s[3]));

    m = _mm256_max_ps(m, _mm256_permute2f128_ps(m, m, 1));
    m = _mm256_max_ps(m, _mm256_shuffle_ps(m, m, 0x4e));
    m = _mm256_max_ps(m, _mm256_shuffle_ps(m, m, 0xb1));
    return _mm256_cvtss_f32(m);
}

/* bf16 of 16 floats, numbers below 2^-126 as zeros. */
static inline __m256i words16(__m256 a, __m256 b)
{
    const __m256 least = _mm256_set1_ps(0x1p-126f);
    const __m256i low = _mm256_srli_epi32(
        bf16_bits(_mm256_and_ps(a, _mm256_cmp_ps(a, least, _CMP_NLT_UQ))), 16);
    const __m256i high = _mm256_srli_epi32(
        bf16_bits(_mm256_and_ps(b, _mm256_cmp_ps(b, least, _CMP_NLT_UQ))), 16);

    return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}

/* softmax_step() of pair i, whose scores s are not scaled yet; p (32) in bf16,
 * times the values' scales, 0 past n. @return corr */
static float softmax(const bt_attn_tile_t *t, uint32_t i, float *s, uint16_t *p)
{
    bt_attn_state_t *state = &t->state[i];
    __m256 e[4];
    float corr;
    float max;

    UNROLL
    for (uint32_t v = 0; v < 4; v++) {
        const uint32_t n = (t->n[i] > 8 * v) ? t->n[i] - 8 * v : 0;

        e[v] = _mm256_loadu_ps(s + 8 * v);
        if (t->key_scales[0] != NULL) {
            e[v] =
                _mm256_mul_ps(e[v], _mm256_loadu_ps(t->key_scales[0] + 8 * v));
        }
        e[v] = _mm256_mul_ps(e[v], _mm256_set1_ps(t->scale));
        if (t->soft_cap > 0.0f) {
            e[v] = vec_capped(t, e[v]);
        }
        if (t->sloped) {
            e[v] = vec_sloped(t, i, 8 * v, e[v]);
        }
        e[v] = _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), e[v], seen8(n));
    }
    max = largest(e);
    max = (max > state->max) ? max : state->max;
    UNROLL
    for (uint32_t v = 0; v < 4; v++) {
        e[v] = vec_exp(_mm256_sub_ps(e[v], _mm256_set1_ps(max)));
    }
    corr = bt_expf(state->max - max);
    /* Lanes j and j + 16, then j and j + 8. */
    state->sum = fmaf(state->sum, corr,
                      tree8(_mm256_add_ps(_mm256_add_ps(e[0], e[2]),
                                          _mm256_add_ps(e[1], e[3]))));
    state->max = max;
    if (t->value_scales[0] != NULL) {
        UNROLL
        for (uint32_t v = 0; v < 4; v++) {
            const uint32_t n = (t->n[i] > 8 * v) ? t->n[i] - 8 * v : 0;

            e[v] = _mm256_mul_ps(e[v],
                                 _mm256_loadu_ps(t->value_scales[0] + 8 * v));
            e[v] = _mm256_and_ps(e[v], seen8(n));
        }
    }
    _mm256_storeu_si256((void *)p, words16(e[0], e[1]));
    _mm256_storeu_si256((void *)(p + 16), words16(e[2], e[3]));
    return corr;
}

/* acc = acc * corr, then += p_j v_j, for n_regs registers of dimensions from d
 * on. Positions that all pairs see are taken together, the rest after them. */
SPECIALIZE void weigh_regs(uint32_t n_pairs, uint32_t n_regs,
                           const bt_attn_tile_t *t, uint32_t first,
                           uint16_t (*p)[BT_ATTN_TILE], const float *corr,
                           uint32_t d)
{
    const size_t step = (size_t)2 * t->dim;
    const uint16_t *values = (const uint16_t *)t->values[0] + 2 * (size_t)d;
    float *acc = t->acc + (size_t)first * t->dim + d;
    __m256 sum[TOGETHER][4];
    uint32_t common = BT_ATTN_TILE / 2;

    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        const uint32_t n = t->n[first + i] / 2;

        common = (n < common) ? n : common;
        UNROLL
        for (uint32_t k = 0; k < n_regs; k++) {
            sum[i][k] = _mm256_mul_ps(_mm256_loadu_ps(acc + i * t->dim + 8 * k),
                                      _mm256_set1_ps(corr[i]));
        }
    }
    for (uint32_t j = 0; j < common; j++) {
        halves_t pj[TOGETHER];

        UNROLL
        for (uint32_t i = 0; i < n_pairs; i++) {
            pj[i] = halves_of(word8(&p[i][2 * j]));
        }
        UNROLL
        for (uint32_t k = 0; k < n_regs; k++) {
            const halves_t v = halves_of(
                _mm256_loadu_si256((const void *)(values + j * step + 16 * k)));

            UNROLL
            for (uint32_t i = 0; i < n_pairs; i++) {
                sum[i][k] = dot_halves(pj[i], v, sum[i][k]);
            }
        }
    }
    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        const uint32_t n = t->n[first + i];

        for (uint32_t j = common; 2 * j < n; j++) {
            const __m256i pj = word8(&p[i][2 * j]);
            /* Data after the last position is undefined. */
            const __m256i there =
                _mm256_set1_epi32((2 * j + 1 < n) ? -1 : 0xffff);

            UNROLL
            for (uint32_t k = 0; k < n_regs; k++) {
                const __m256i v = _mm256_and_si256(
                    there, _mm256_loadu_si256(
                               (const void *)(values + j * step + 16 * k)));

                sum[i][k] = dot_pairs(pj, v, sum[i][k]);
            }
        }
        UNROLL
        for (uint32_t k = 0; k < n_regs; k++) {
            _mm256_storeu_ps(acc + i * t->dim + 8 * k, sum[i][k]);
        }
    }
}

SPECIALIZE void weigh(uint32_t n_pairs, const bt_attn_tile_t *t, uint32_t first,
                      uint16_t (*p)[BT_ATTN_TILE], const float *corr)
{
    uint32_t d = 0;

    for (; d + 32 <= t->dim; d += 32) {
        weigh_regs(n_pairs, 4, t, first, p, corr, d);
    }
    for (; d < t->dim; d += 8) {
        weigh_regs(n_pairs, 1, t, first, p, corr, d);
    }
}

IN_MODE void all_values(const bt_attn_tile_t *t, uint16_t (*p)[BT_ATTN_TILE],
                        const float *corr)
{
    uint32_t first = 0;

    for (; first + TOGETHER <= t->n_pairs; first += TOGETHER) {
        weigh(TOGETHER, t, first, p + first, corr + first);
    }
    if (first < t->n_pairs) {
        weigh(1, t, first, p + first, corr + first);
    }
}

void bt_avx2_attn_tile(const bt_attn_tile_t *tile)
{
    const uint32_t mode = _mm_getcsr();
    float s[BT_ATTN_TOGETHER][BT_ATTN_TILE];
    uint16_t p[BT_ATTN_TOGETHER][BT_ATTN_TILE];
    float corr[BT_ATTN_TOGETHER];

    if ((tile->dim % 8 != 0) || tile->cut) {
        body_attn_tile(tile);
        return;
    }
    attn_ahead(tile, 0, BT_ATTN_AHEAD);
    _mm_setcsr(mode | BT_AVX2_ZEROS);
    all_scores(tile, s);
    _mm_setcsr(mode);
    for (uint32_t i = 0; i < tile->n_pairs; i++) {
        corr[i] = softmax(tile, i, s[i], p[i]);
    }
    _mm_setcsr(mode | BT_AVX2_ZEROS);
    all_values(tile, p, corr);
    _mm_setcsr(mode);
}
