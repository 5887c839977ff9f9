/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with AVX-512: 32 positions are two registers of scores; up to four
 * pairs go over keys and values together, so that each load serves all. */
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/simd.h"

/* lane_tree() */
static inline float tree16(__m512 v)
{
    __m256 v8 =
        _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 v4 =
        _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
    __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));

    return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
}

/* n (1 .. 16) keys from the i-th element on. */
SPECIALIZE __m512 some_keys(bt_kv_type_t type, const void *keys, size_t i,
                            const float *scales, __mmask16 lanes)
{
    const uint8_t *bytes = keys;

    switch (type) {
    case BT_KV_F16:
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, bytes + 2 * i));
    case BT_KV_BF16:
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(
                                  lanes, bytes + 2 * i)),
                              16));
    default:
        return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(
                                 _mm_maskz_loadu_epi8(lanes, bytes + i))),
                             _mm512_maskz_loadu_ps(lanes, scales));
    }
}

SPECIALIZE void load_keys(bt_kv_type_t type, const void *keys,
                          const float *scales, size_t stride, uint32_t n,
                          uint32_t dim, float *out)
{
    for (uint32_t j = 0; j < n; j += 16) {
        const __mmask16 lanes = first_lanes(n - j);

        for (uint32_t d = 0; d < dim; d++) {
            _mm512_mask_storeu_ps(
                out + (size_t)d * BT_ATTN_TILE + j, lanes,
                some_keys(type, keys, d * stride + j,
                          (type == BT_KV_INT8) ? scales + j : NULL, lanes));
        }
    }
}

void bt_avx512_load_keys(bt_kv_type_t type, const void *keys,
                         const float *scales, size_t stride, uint32_t n,
                         uint32_t dim, float *out)
{
    switch (type) {
    case BT_KV_F16:
        load_keys(BT_KV_F16, keys, scales, stride, n, dim, out);
        break;
    case BT_KV_BF16:
        load_keys(BT_KV_BF16, keys, scales, stride, n, dim, out);
        break;
    case BT_KV_INT8:
        load_keys(BT_KV_INT8, keys, scales, stride, n, dim, out);
        break;
    }
}

/* 16 elements from the i-th on. */
SPECIALIZE __m512 elems(bt_attn_elem_t elem, const void *base, size_t i)
{
    const uint8_t *bytes = base;

    switch (elem) {
    case BT_ATTN_F16:
        return _mm512_cvtph_ps(
            _mm256_loadu_si256((const void *)(bytes + 2 * i)));
    case BT_ATTN_BF16:
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(
                                  (const void *)(bytes + 2 * i))),
                              16));
    case BT_ATTN_I8:
        return _mm512_cvtepi32_ps(
            _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(bytes + i))));
    default:
        return _mm512_loadu_ps((const float *)base + i);
    }
}

/* Key d of the 16 positions of half v. */
SPECIALIZE __m512 key(bt_attn_elem_t elem, const bt_attn_tile_t *t, uint32_t d,
                      uint32_t v)
{
    __m512 k;

    if (elem == BT_ATTN_F32) {
        return elems(elem, t->keys[0], (size_t)d * BT_ATTN_TILE + 16 * v);
    }
    k = elems(elem, t->keys[v], d * t->key_stride);
    return (elem == BT_ATTN_I8)
               ? _mm512_mul_ps(k, _mm512_loadu_ps(t->key_scales[v]))
               : k;
}

/* Values d .. d + 15 of position j. */
SPECIALIZE __m512 value(bt_attn_elem_t elem, const bt_attn_tile_t *t,
                        uint32_t j, uint32_t d)
{
    const uint32_t half = j / 16;
    __m512 v;

    if (elem == BT_ATTN_F32) {
        return elems(elem, t->values[0], (size_t)j * t->dim + d);
    }
    v = elems(elem, t->values[half], (size_t)(j % 16) * t->dim + d);
    return (elem == BT_ATTN_I8)
               ? _mm512_mul_ps(v, _mm512_set1_ps(t->value_scales[half][j % 16]))
               : v;
}

/* s[i] = scores of pair i, times scale. */
SPECIALIZE void scores(bt_attn_elem_t elem, uint32_t n_pairs,
                       const bt_attn_tile_t *t, __m512 (*s)[2])
{
    const __m512 scale = _mm512_set1_ps(t->scale);

    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        s[i][0] = _mm512_setzero_ps();
        s[i][1] = _mm512_setzero_ps();
    }
    for (uint32_t d = 0; d < t->dim; d++) {
        const __m512 k0 = key(elem, t, d, 0);
        const __m512 k1 = key(elem, t, d, 1);

        attn_ahead(t, d, d + 1);
        UNROLL
        for (uint32_t i = 0; i < n_pairs; i++) {
            const __m512 q = _mm512_set1_ps(t->q[i][d]);

            s[i][0] = _mm512_fmadd_ps(q, k0, s[i][0]);
            s[i][1] = _mm512_fmadd_ps(q, k1, s[i][1]);
        }
    }
    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        s[i][0] = _mm512_mul_ps(s[i][0], scale);
        s[i][1] = _mm512_mul_ps(s[i][1], scale);
    }
}

/* softmax_step(); p (32) is 0 past n. @return corr in all lanes */
SPECIALIZE __m512 softmax(__m512 s0, __m512 s1, uint32_t n,
                          bt_attn_state_t *state, float *p)
{
    const __mmask16 mask0 = first_lanes(n);
    const __mmask16 mask1 = (n > 16) ? first_lanes(n - 16) : (__mmask16)0;
    const __m512 low = _mm512_set1_ps(-INFINITY);
    __m512 corr;
    float max;

    s0 = _mm512_mask_blend_ps(mask0, low, s0);
    s1 = _mm512_mask_blend_ps(mask1, low, s1);
    max = _mm512_reduce_max_ps(_mm512_max_ps(s0, s1));
    max = (max > state->max) ? max : state->max;
    s0 = exp16(_mm512_sub_ps(s0, _mm512_set1_ps(max)));
    s0 = _mm512_maskz_mov_ps(mask0, s0);
    s1 = exp16(_mm512_sub_ps(s1, _mm512_set1_ps(max)));
    s1 = _mm512_maskz_mov_ps(mask1, s1);
    _mm512_storeu_ps(p, s0);
    _mm512_storeu_ps(p + 16, s1);
    /* Mostly the largest score stays the same: exp(0) is exactly 1. */
    corr = _mm512_set1_ps(1.0f);
    if (max != state->max) {
        corr = exp16(_mm512_set1_ps(state->max - max));
    }
    state->sum =
        fmaf(state->sum, _mm512_cvtss_f32(corr), tree16(_mm512_add_ps(s0, s1)));
    state->max = max;
    return corr;
}

/* acc = acc * corr, then += p_j v_j, for n_regs registers of dimensions from d
 * on. Positions that all pairs see are taken together, the rest one by one. */
SPECIALIZE void weigh(bt_attn_elem_t elem, uint32_t n_pairs, uint32_t n_regs,
                      const bt_attn_tile_t *t, float (*p)[BT_ATTN_TILE],
                      const __m512 *corr, uint32_t d)
{
    /* What scores() left of the lines, in the first turn. */
    const uint32_t left = (t->n_ahead > t->dim) ? t->n_ahead - t->dim : 0;
    const uint32_t step =
        (d == 0) ? (left + BT_ATTN_TILE - 1) / BT_ATTN_TILE : 0;
    __m512 sum[BT_ATTN_TOGETHER][4];
    uint32_t common = BT_ATTN_TILE;

    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        common = (t->n[i] < common) ? t->n[i] : common;
        UNROLL
        for (uint32_t k = 0; k < n_regs; k++) {
            sum[i][k] =
                _mm512_mul_ps(_mm512_loadu_ps(t->acc[i] + d + 16 * k), corr[i]);
        }
    }
    for (uint32_t j = 0; j < common; j++) {
        __m512 vk[4];

        attn_ahead(t, t->dim + j * step, t->dim + (j + 1) * step);
        UNROLL
        for (uint32_t k = 0; k < n_regs; k++) {
            vk[k] = value(elem, t, j, d + 16 * k);
        }
        UNROLL
        for (uint32_t i = 0; i < n_pairs; i++) {
            const __m512 pj = _mm512_set1_ps(p[i][j]);

            UNROLL
            for (uint32_t k = 0; k < n_regs; k++) {
                sum[i][k] = _mm512_fmadd_ps(pj, vk[k], sum[i][k]);
            }
        }
    }
    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        for (uint32_t j = common; j < t->n[i]; j++) {
            const __m512 pj = _mm512_set1_ps(p[i][j]);

            UNROLL
            for (uint32_t k = 0; k < n_regs; k++) {
                sum[i][k] = _mm512_fmadd_ps(pj, value(elem, t, j, d + 16 * k),
                                            sum[i][k]);
            }
        }
        UNROLL
        for (uint32_t k = 0; k < n_regs; k++) {
            _mm512_storeu_ps(t->acc[i] + d + 16 * k, sum[i][k]);
        }
    }
}

SPECIALIZE void pairs(bt_attn_elem_t elem, uint32_t n_pairs,
                      const bt_attn_tile_t *t)
{
    float p[BT_ATTN_TOGETHER][BT_ATTN_TILE];
    __m512 s[BT_ATTN_TOGETHER][2];
    __m512 corr[BT_ATTN_TOGETHER];
    uint32_t d = 0;

    scores(elem, n_pairs, t, s);
    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        corr[i] = softmax(s[i][0], s[i][1], t->n[i], t->state[i], p[i]);
    }
    for (; d + 64 <= t->dim; d += 64) {
        weigh(elem, n_pairs, 4, t, p, corr, d);
    }
    for (; d < t->dim; d += 16) {
        weigh(elem, n_pairs, 1, t, p, corr, d);
    }
}

SPECIALIZE void attn_tile(bt_attn_elem_t elem, const bt_attn_tile_t *tile)
{
    switch (tile->n_pairs) {
    case 1:
        pairs(elem, 1, tile);
        break;
    case 2:
        pairs(elem, 2, tile);
        break;
    case 3:
        pairs(elem, 3, tile);
        break;
    default:
        pairs(elem, 4, tile);
        break;
    }
}

void bt_avx512_attn_tile(const bt_attn_tile_t *tile)
{
    if (tile->dim % 16 != 0) {
        body_attn_tile(tile);
        return;
    }
    switch (tile->elem) {
    case BT_ATTN_F32:
        attn_tile(BT_ATTN_F32, tile);
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
    }
}
