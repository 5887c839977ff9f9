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

/* 8 rows of 8 floats, `stride` apart, to 8 columns. */
static inline void transpose8(const float *rows, size_t stride, float *out)
{
    __m256 a[8];
    __m256 b[8];

    UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        a[i] = _mm256_loadu_ps(rows + i * stride);
    }
    UNROLL
    for (uint32_t i = 0; i < 8; i += 4) {
        const __m256 lo0 = _mm256_unpacklo_ps(a[i], a[i + 1]);
        const __m256 hi0 = _mm256_unpackhi_ps(a[i], a[i + 1]);
        const __m256 lo1 = _mm256_unpacklo_ps(a[i + 2], a[i + 3]);
        const __m256 hi1 = _mm256_unpackhi_ps(a[i + 2], a[i + 3]);

        b[i] = _mm256_shuffle_ps(lo0, lo1, 0x44);
        b[i + 1] = _mm256_shuffle_ps(lo0, lo1, 0xee);
        b[i + 2] = _mm256_shuffle_ps(hi0, hi1, 0x44);
        b[i + 3] = _mm256_shuffle_ps(hi0, hi1, 0xee);
    }
    UNROLL
    for (uint32_t c = 0; c < 4; c++) {
        _mm256_store_ps(out + c * BT_ATTN_TILE,
                        _mm256_permute2f128_ps(b[c], b[4 + c], 0x20));
        _mm256_store_ps(out + (4 + c) * BT_ATTN_TILE,
                        _mm256_permute2f128_ps(b[c], b[4 + c], 0x31));
    }
}

/* Rows past the last are read from scratch; nobody looks at their lanes. */
void bt_avx2_transpose(const float *rows, uint32_t n, uint32_t dim, float *out)
{
    if (dim % 8 != 0) {
        body_transpose(rows, n, dim, out);
        return;
    }
    for (uint32_t j = 0; j < n; j += 8) {
        for (uint32_t d = 0; d < dim; d += 8) {
            transpose8(rows + (size_t)j * dim + d, dim,
                       out + (size_t)d * BT_ATTN_TILE + j);
        }
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
        const float *keys = t->keys + (size_t)d * BT_ATTN_TILE;

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
        const float *v = t->values + (size_t)j * t->dim + d;

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
            const float *v = t->values + (size_t)j * t->dim + d;
            const __m256 pj = _mm256_broadcast_ss(p[i] + j);

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
