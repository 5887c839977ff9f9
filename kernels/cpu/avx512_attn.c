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

/* 16 rows of 16 floats, `stride` apart, to 16 columns. */
static inline void transpose16(const float *rows, size_t stride, float *out)
{
    __m512 a[16];
    __m512 b[16];

    UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        a[i] = _mm512_loadu_ps(rows + i * stride);
    }
    UNROLL
    for (uint32_t i = 0; i < 16; i += 4) {
        const __m512 lo0 = _mm512_unpacklo_ps(a[i], a[i + 1]);
        const __m512 hi0 = _mm512_unpackhi_ps(a[i], a[i + 1]);
        const __m512 lo1 = _mm512_unpacklo_ps(a[i + 2], a[i + 3]);
        const __m512 hi1 = _mm512_unpackhi_ps(a[i + 2], a[i + 3]);

        b[i] = _mm512_shuffle_ps(lo0, lo1, 0x44);
        b[i + 1] = _mm512_shuffle_ps(lo0, lo1, 0xee);
        b[i + 2] = _mm512_shuffle_ps(hi0, hi1, 0x44);
        b[i + 3] = _mm512_shuffle_ps(hi0, hi1, 0xee);
    }
    /* b[4 r + c] has column 4 l + c of rows 4 r .. 4 r + 3 in its part l. */
    UNROLL
    for (uint32_t c = 0; c < 4; c++) {
        const __m512 x0 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x88);
        const __m512 x1 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xdd);
        const __m512 y0 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x88);
        const __m512 y1 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xdd);

        _mm512_store_ps(out + c * BT_ATTN_TILE,
                        _mm512_shuffle_f32x4(x0, y0, 0x88));
        _mm512_store_ps(out + (4 + c) * BT_ATTN_TILE,
                        _mm512_shuffle_f32x4(x1, y1, 0x88));
        _mm512_store_ps(out + (8 + c) * BT_ATTN_TILE,
                        _mm512_shuffle_f32x4(x0, y0, 0xdd));
        _mm512_store_ps(out + (12 + c) * BT_ATTN_TILE,
                        _mm512_shuffle_f32x4(x1, y1, 0xdd));
    }
}

/* Rows past the last are read from scratch; nobody looks at their lanes. */
void bt_avx512_transpose(const float *rows, uint32_t n, uint32_t dim,
                         float *out)
{
    if (dim % 16 != 0) {
        body_transpose(rows, n, dim, out);
        return;
    }
    for (uint32_t j = 0; j < n; j += 16) {
        for (uint32_t d = 0; d < dim; d += 16) {
            transpose16(rows + (size_t)j * dim + d, dim,
                        out + (size_t)d * BT_ATTN_TILE + j);
        }
    }
}

/* s[i] = scores of pair i, times scale. */
SPECIALIZE void scores(uint32_t n_pairs, const bt_attn_tile_t *t,
                       __m512 (*s)[2])
{
    const __m512 scale = _mm512_set1_ps(t->scale);

    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        s[i][0] = _mm512_setzero_ps();
        s[i][1] = _mm512_setzero_ps();
    }
    for (uint32_t d = 0; d < t->dim; d++) {
        const __m512 k0 = _mm512_load_ps(t->keys + (size_t)d * BT_ATTN_TILE);
        const __m512 k1 =
            _mm512_load_ps(t->keys + (size_t)d * BT_ATTN_TILE + 16);

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
    corr = exp16(_mm512_set1_ps(state->max - max));
    state->sum =
        fmaf(state->sum, _mm512_cvtss_f32(corr), tree16(_mm512_add_ps(s0, s1)));
    state->max = max;
    return corr;
}

/* acc = acc * corr, then += p_j v_j, for n_regs registers of dimensions from d
 * on. Positions that all pairs see are taken together, the rest one by one. */
SPECIALIZE void weigh(uint32_t n_pairs, uint32_t n_regs,
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
        const float *v = t->values + (size_t)j * t->dim + d;
        __m512 vk[4];

        attn_ahead(t, t->dim + j * step, t->dim + (j + 1) * step);
        UNROLL
        for (uint32_t k = 0; k < n_regs; k++) {
            vk[k] = _mm512_loadu_ps(v + 16 * k);
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
            const float *v = t->values + (size_t)j * t->dim + d;
            const __m512 pj = _mm512_set1_ps(p[i][j]);

            UNROLL
            for (uint32_t k = 0; k < n_regs; k++) {
                sum[i][k] =
                    _mm512_fmadd_ps(pj, _mm512_loadu_ps(v + 16 * k), sum[i][k]);
            }
        }
        UNROLL
        for (uint32_t k = 0; k < n_regs; k++) {
            _mm512_storeu_ps(t->acc[i] + d + 16 * k, sum[i][k]);
        }
    }
}

SPECIALIZE void pairs(uint32_t n_pairs, const bt_attn_tile_t *t)
{
    float p[BT_ATTN_TOGETHER][BT_ATTN_TILE];
    __m512 s[BT_ATTN_TOGETHER][2];
    __m512 corr[BT_ATTN_TOGETHER];
    uint32_t d = 0;

    scores(n_pairs, t, s);
    UNROLL
    for (uint32_t i = 0; i < n_pairs; i++) {
        corr[i] = softmax(s[i][0], s[i][1], t->n[i], t->state[i], p[i]);
    }
    for (; d + 64 <= t->dim; d += 64) {
        weigh(n_pairs, 4, t, p, corr, d);
    }
    for (; d < t->dim; d += 16) {
        weigh(n_pairs, 1, t, p, corr, d);
    }
}

void bt_avx512_attn_tile(const bt_attn_tile_t *tile)
{
    if (tile->dim % 16 != 0) {
        body_attn_tile(tile);
        return;
    }
    switch (tile->n_pairs) {
    case 1:
        pairs(1, tile);
        break;
    case 2:
        pairs(2, tile);
        break;
    case 3:
        pairs(3, tile);
        break;
    default:
        pairs(4, tile);
        break;
    }
}
