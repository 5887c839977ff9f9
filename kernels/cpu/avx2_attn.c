/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with AVX2: 32 positions are four registers of scores; two pairs go
 * over keys and values together, so that each load serves both. */
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/simd.h"

/* The last three steps of lane_tree(). */
static inline float tree8(__m256 v)
{
    __m128 v4 =
        _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));

    return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
}

/* Keys of 8 positions from the i-th element on. */
SPECIALIZE __m256 keys8(bt_kv_type_t type, const void *keys, size_t i,
                        const float *scales)
{
    const uint8_t *bytes = keys;

    switch (type) {
    case BT_KV_F16:
        return _mm256_cvtph_ps(_mm_loadu_si128((const void *)(bytes + 2 * i)));
    case BT_KV_BF16:
        return _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(
                                  (const void *)(bytes + 2 * i))),
                              16));
    default:
        return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(
                                 _mm_loadl_epi64((const void *)(bytes + i)))),
                             _mm256_loadu_ps(scales));
    }
}

SPECIALIZE void load_keys(bt_kv_type_t type, const void *keys,
                          const float *scales, size_t stride, uint32_t n,
                          uint32_t dim, float *out)
{
    const uint32_t whole = n / 8 * 8;

    for (uint32_t d = 0; d < dim; d++) {
        for (uint32_t j = 0; j < whole; j += 8) {
            _mm256_storeu_ps(out + (size_t)d * BT_ATTN_TILE + j,
                             keys8(type, keys, d * stride + j,
                                   (type == BT_KV_INT8) ? scales + j : NULL));
        }
    }
    body_load_keys(type, keys, scales, stride, whole, n, dim, out);
}

void bt_avx2_load_keys(bt_kv_type_t type, const void *keys, const float *scales,
                       size_t stride, uint32_t n, uint32_t dim, float *out)
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

/* p[i] = scores of pair first + i, times scale. */
SPECIALIZE void scores(uint32_t n_pairs, const bt_attn_tile_t *t,
                       uint32_t first, float (*p)[BT_ATTN_TILE])
{
    const __m256 scale = _mm256_set1_ps(t->scale);
    __m256 s[2][4];

    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        UNROLL
        for (uint32_t v = 0; v < 4; v++) {
            s[i][v] = _mm256_setzero_ps();
        }
    }
    for (uint32_t d = 0; d < t->dim; d++) {
        const float *keys = t->keys[0];

        keys += (size_t)d * BT_ATTN_TILE;

        UNROLL
        for (uint32_t i = 0; i < n_pairs; i++) {
            const __m256 q = _mm256_broadcast_ss(t->q[first + i] + d);

            UNROLL
            for (uint32_t v = 0; v < 4; v++) {
                s[i][v] =
                    _mm256_fmadd_ps(q, _mm256_load_ps(keys + 8 * v), s[i][v]);
            }
        }
    }
    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        UNROLL
        for (uint32_t v = 0; v < 4; v++) {
            _mm256_storeu_ps(p[i] + 8 * v, _mm256_mul_ps(s[i][v], scale));
        }
    }
}

/* softmax_step(): p (32) from scores to weights, 0 past n. @return corr */
SPECIALIZE __m256 softmax(float *p, uint32_t n, bt_attn_state_t *state)
{
    __m256 e[4];
    __m256 corr;
    float max;

    for (uint32_t j = n; j < BT_ATTN_TILE; j++) {
        p[j] = -INFINITY;
    }
    e[0] = _mm256_max_ps(
        _mm256_max_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)),
        _mm256_max_ps(_mm256_loadu_ps(p + 16), _mm256_loadu_ps(p + 24)));
    e[0] = _mm256_max_ps(e[0], _mm256_permute2f128_ps(e[0], e[0], 1));
    e[0] = _mm256_max_ps(e[0], _mm256_shuffle_ps(e[0], e[0], 0x4e));
    e[0] = _mm256_max_ps(e[0], _mm256_shuffle_ps(e[0], e[0], 0xb1));
    max = _mm256_cvtss_f32(e[0]);
    max = (max > state->max) ? max : state->max;
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        e[i] = exp8(
            _mm256_sub_ps(_mm256_loadu_ps(p + 8 * i), _mm256_set1_ps(max)));
        _mm256_storeu_ps(p + 8 * i, e[i]);
    }
    corr = exp8(_mm256_set1_ps(state->max - max));
    /* Lanes j and j + 16, then j and j + 8. */
    state->sum = fmaf(state->sum, _mm256_cvtss_f32(corr),
                      tree8(_mm256_add_ps(_mm256_add_ps(e[0], e[2]),
                                          _mm256_add_ps(e[1], e[3]))));
    state->max = max;
    return corr;
}

/* acc = acc * corr, then += p_j v_j, for n_regs registers of dimensions from d
 * on. Positions that all pairs see are taken together, the rest one by one. */
SPECIALIZE void weigh(uint32_t n_pairs, uint32_t n_regs,
                      const bt_attn_tile_t *t, uint32_t first,
                      float (*p)[BT_ATTN_TILE], const __m256 *corr, uint32_t d)
{
    __m256 sum[2][4];
    uint32_t common = BT_ATTN_TILE;

    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        common = (t->n[first + i] < common) ? t->n[first + i] : common;
        UNROLL
        for (uint32_t k = 0; k < n_regs; k++) {
            sum[i][k] = _mm256_mul_ps(
                _mm256_loadu_ps(t->acc[first + i] + d + 8 * k), corr[i]);
        }
    }
    for (uint32_t j = 0; j < common; j++) {
        const float *v = t->values[0];

        v += (size_t)j * t->dim + d;
        UNROLL
        for (uint32_t i = 0; i < n_pairs; i++) {
            const __m256 pj = _mm256_broadcast_ss(p[i] + j);

            UNROLL
            for (uint32_t k = 0; k < n_regs; k++) {
                sum[i][k] =
                    _mm256_fmadd_ps(pj, _mm256_loadu_ps(v + 8 * k), sum[i][k]);
            }
        }
    }
    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        for (uint32_t j = common; j < t->n[first + i]; j++) {
            const float *v = t->values[0];
            const __m256 pj = _mm256_broadcast_ss(p[i] + j);

            v += (size_t)j * t->dim + d;
            UNROLL
            for (uint32_t k = 0; k < n_regs; k++) {
                sum[i][k] =
                    _mm256_fmadd_ps(pj, _mm256_loadu_ps(v + 8 * k), sum[i][k]);
            }
        }
        UNROLL
        for (uint32_t k = 0; k < n_regs; k++) {
            _mm256_storeu_ps(t->acc[first + i] + d + 8 * k, sum[i][k]);
        }
    }
}

SPECIALIZE void pairs(uint32_t n_pairs, const bt_attn_tile_t *t, uint32_t first)
{
    float p[2][BT_ATTN_TILE];
    __m256 corr[2];
    uint32_t d = 0;

    scores(n_pairs, t, first, p);
    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        corr[i] = softmax(p[i], t->n[first + i], t->state[first + i]);
    }
    for (; d + 32 <= t->dim; d += 32) {
        weigh(n_pairs, 4, t, first, p, corr, d);
    }
    for (; d < t->dim; d += 8) {
        weigh(n_pairs, 1, t, first, p, corr, d);
    }
}

void bt_avx2_attn_tile(const bt_attn_tile_t *tile)
{
    uint32_t first = 0;

    if (tile->dim % 8 != 0) {
        body_attn_tile(tile);
        return;
    }
    attn_ahead(tile, 0, BT_ATTN_AHEAD);
    for (; first + 2 <= tile->n_pairs; first += 2) {
        pairs(2, tile, first);
    }
    if (first < tile->n_pairs) {
        pairs(1, tile, first);
    }
}
