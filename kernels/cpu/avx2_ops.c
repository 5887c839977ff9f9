/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX2 tier: attention by hand, the rest is body.h compiled for it. */
#include <immintrin.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/body.h"
#include "kernels/cpu/simd.h"

/* bt_expf() of 8 values. */
static inline __m256 exp8(__m256 x)
{
    const __m256 magic = _mm256_set1_ps(EXP_MAGIC);
    __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(EXP_LOG2E), magic);
    __m256 n = _mm256_sub_ps(t, magic);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_HI), x);
    __m256 p = _mm256_set1_ps(EXP_P4);
    __m256i power;
    __m256 y;

    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_LO), r);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P0));
    y = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r);
    y = _mm256_add_ps(y, _mm256_set1_ps(1.0f));
    power = _mm256_slli_epi32(
        _mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127)), 23);
    y = _mm256_mul_ps(y, _mm256_castsi256_ps(power));
    y = _mm256_blendv_ps(y, _mm256_setzero_ps(),
                         _mm256_cmp_ps(x, _mm256_set1_ps(EXP_MIN), _CMP_LT_OQ));
    y = _mm256_blendv_ps(y, _mm256_set1_ps(INFINITY),
                         _mm256_cmp_ps(x, _mm256_set1_ps(EXP_MAX), _CMP_GT_OQ));
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

/* The last three steps of lane_tree(). */
static inline float tree8(__m256 v)
{
    __m128 v4 =
        _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));

    return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
}

/* tree8() of 8 registers at once: the result's lane 4 l + e belongs to
 * v[2 e + l]. */
static inline __m256 tree8x8(__m256 *v)
{
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        v[i] =
            _mm256_add_ps(_mm256_permute2f128_ps(v[2 * i], v[2 * i + 1], 0x20),
                          _mm256_permute2f128_ps(v[2 * i], v[2 * i + 1], 0x31));
    }
    UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        v[i] = _mm256_add_ps(_mm256_shuffle_ps(v[2 * i], v[2 * i + 1], 0x44),
                             _mm256_shuffle_ps(v[2 * i], v[2 * i + 1], 0xee));
    }
    return _mm256_add_ps(_mm256_shuffle_ps(v[0], v[1], 0x88),
                         _mm256_shuffle_ps(v[0], v[1], 0xdd));
}

/* Lane dots of q and 4 keys up to the step of 8 lanes: v[e] = key 4 half.. */
static inline void dots4(const float *q, const float *keys, uint32_t dim,
                         __m256 *v, uint32_t v_step)
{
    __m256 sum[4][2];

    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        sum[i][0] = _mm256_setzero_ps();
        sum[i][1] = _mm256_setzero_ps();
    }
    for (uint32_t d = 0; d < dim; d += 16) {
        __m256 q0 = _mm256_loadu_ps(q + d);
        __m256 q1 = _mm256_loadu_ps(q + d + 8);

        UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const float *key = keys + (size_t)i * dim + d;

            sum[i][0] = _mm256_fmadd_ps(q0, _mm256_loadu_ps(key), sum[i][0]);
            sum[i][1] =
                _mm256_fmadd_ps(q1, _mm256_loadu_ps(key + 8), sum[i][1]);
        }
    }
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        v[i * v_step] = _mm256_add_ps(sum[i][0], sum[i][1]);
    }
}

/* Lane dots of q and 8 keys, times scale. */
static inline __m256 scores8(const float *q, const float *keys, uint32_t dim,
                             float scale)
{
    __m256 v[8];

    /* Keys 0..3 in v[0], v[2] ..; keys 4..7 in v[1], v[3] ..: so that the
     * tree's lanes come sorted. */
    dots4(q, keys, dim, v, 2);
    dots4(q, keys + (size_t)4 * dim, dim, v + 1, 2);
    return _mm256_mul_ps(tree8x8(v), _mm256_set1_ps(scale));
}

/* acc = acc * corr, then += p_j v_j, for `n_regs` registers of dimensions. */
SPECIALIZE void weigh(uint32_t n_regs, const float *p, const float *values,
                      uint32_t n, uint32_t dim, __m256 corr, float *acc)
{
    __m256 sum[8];

    UNROLL
    for (uint32_t i = 0; i < n_regs; i++) {
        sum[i] = _mm256_mul_ps(_mm256_loadu_ps(acc + 8 * i), corr);
    }
    for (uint32_t j = 0; j < n; j++) {
        __m256 pj = _mm256_broadcast_ss(p + j);

        UNROLL
        for (uint32_t i = 0; i < n_regs; i++) {
            sum[i] = _mm256_fmadd_ps(
                pj, _mm256_loadu_ps(values + (size_t)j * dim + 8 * i), sum[i]);
        }
    }
    UNROLL
    for (uint32_t i = 0; i < n_regs; i++) {
        _mm256_storeu_ps(acc + 8 * i, sum[i]);
    }
}

static void avx2_attn_step(const float *q, const float *keys,
                           const float *values, uint32_t n, uint32_t dim,
                           float scale, bt_attn_state_t *state, float *acc)
{
    float p[BT_ATTN_TILE];
    __m256 e[4];
    __m256 corr;
    float max = state->max;
    uint32_t d = 0;

    if (dim % 16 != 0) {
        body_attn_step(q, keys, values, n, dim, scale, state, acc);
        return;
    }
    for (uint32_t j = 0; j < n; j += 8) {
        _mm256_storeu_ps(p + j, scores8(q, keys + (size_t)j * dim, dim, scale));
    }
    for (uint32_t j = n; j < BT_ATTN_TILE; j++) {
        p[j] = -INFINITY;
    }
    e[0] = _mm256_max_ps(
        _mm256_max_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)),
        _mm256_max_ps(_mm256_loadu_ps(p + 16), _mm256_loadu_ps(p + 24)));
    e[0] = _mm256_max_ps(e[0], _mm256_permute2f128_ps(e[0], e[0], 1));
    e[0] = _mm256_max_ps(e[0], _mm256_shuffle_ps(e[0], e[0], 0x4e));
    e[0] = _mm256_max_ps(e[0], _mm256_shuffle_ps(e[0], e[0], 0xb1));
    max = (_mm256_cvtss_f32(e[0]) > max) ? _mm256_cvtss_f32(e[0]) : max;
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
    for (; d + 64 <= dim; d += 64) {
        weigh(8, p, values + d, n, dim, corr, acc + d);
    }
    for (; d < dim; d += 16) {
        weigh(2, p, values + d, n, dim, corr, acc + d);
    }
}

static void avx2_to_f16(const float *x, uint32_t n, uint16_t *out)
{
    uint32_t i = 0;

    for (; i + 8 <= n; i += 8) {
        _mm_storeu_si128(
            (void *)(out + i),
            _mm256_cvtps_ph(_mm256_loadu_ps(x + i),
                            _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    for (; i < n; i++) {
        out[i] = bt_f32_to_f16(x[i]);
    }
}

static void avx2_from_f16(const uint16_t *x, uint32_t n, float *out)
{
    uint32_t i = 0;

    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(
            out + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(x + i))));
    }
    for (; i < n; i++) {
        out[i] = bt_f16_to_f32(x[i]);
    }
}

/* bt_f32_to_bf16() of 8 values, in the low halves of the lanes. */
static inline __m256i bf16x8(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i high = _mm256_srli_epi32(bits, 16);
    __m256i even = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(
        bits, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));

    return _mm256_blendv_epi8(_mm256_srli_epi32(up, 16),
                              _mm256_or_si256(high, _mm256_set1_epi32(0x40)),
                              nan);
}

static void avx2_to_bf16(const float *x, uint32_t n, uint16_t *out)
{
    uint32_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i v = bf16x8(_mm256_loadu_ps(x + i));

        _mm_storeu_si128((void *)(out + i),
                         _mm_packus_epi32(_mm256_castsi256_si128(v),
                                          _mm256_extracti128_si256(v, 1)));
    }
    for (; i < n; i++) {
        out[i] = bt_f32_to_bf16(x[i]);
    }
}

static void avx2_from_bf16(const uint16_t *x, uint32_t n, float *out)
{
    uint32_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i v =
            _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(x + i)));

        _mm256_storeu_ps(out + i,
                         _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)));
    }
    for (; i < n; i++) {
        out[i] = bt_bf16_to_f32(x[i]);
    }
}

static float avx2_to_i8(const float *x, uint32_t n, int8_t *out)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    const uint32_t n_whole = n / 8 * 8;
    __m256i max = _mm256_setzero_si256();
    uint32_t lanes[8];
    uint32_t i;
    float scale;

    for (i = 0; i < n_whole; i += 8) {
        __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + i));

        max = _mm256_max_epi32(max, _mm256_and_si256(bits, magnitude));
    }
    _mm256_storeu_si256((void *)lanes, max);
    for (i = 1; i < 8; i++) {
        lanes[0] = (lanes[i] > lanes[0]) ? lanes[i] : lanes[0];
    }
    scale = i8_scale(i8_amax_bits(x + n_whole, n - n_whole, lanes[0]));
    if (!(scale > 0.0f)) {
        for (i = 0; i < n; i++) {
            out[i] = 0;
        }
        return scale;
    }
    for (i = 0; i < n_whole; i += 8) {
        __m256i v = _mm256_cvtps_epi32(
            _mm256_div_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(scale)));
        __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v),
                                        _mm256_extracti128_si256(v, 1));

        _mm_storel_epi64((void *)(out + i), _mm_packs_epi16(words, words));
    }
    for (; i < n; i++) {
        out[i] = i8_code(x[i], scale);
    }
    return scale;
}

static void avx2_from_i8(const int8_t *x, const float *scales, uint32_t n_rows,
                         uint32_t dim, float *out)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        uint32_t i = 0;

        for (; i + 8 <= dim; i += 8) {
            __m256i v =
                _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(x + i)));

            _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_cvtepi32_ps(v),
                                                    _mm256_set1_ps(scales[r])));
        }
        for (; i < dim; i++) {
            out[i] = (float)x[i] * scales[r];
        }
        x += dim;
        out += dim;
    }
}

static void avx2_silu_mul(const float *gate, const float *up, uint32_t n,
                          float *out)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    uint32_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256 g = _mm256_loadu_ps(gate + i);
        __m256 e = exp8(_mm256_xor_ps(g, sign));
        __m256 y = _mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1.0f), e));

        _mm256_storeu_ps(out + i, _mm256_mul_ps(y, _mm256_loadu_ps(up + i)));
    }
    body_silu_mul(gate + i, up + i, n - i, out + i);
}

static void avx2_rmsnorm(const float *x, const float *weight, float eps,
                         uint32_t dim, float *out)
{
    body_rmsnorm(x, weight, eps, dim, out);
}

static void avx2_rope(float *head, const float *cs, uint32_t dim,
                      bool interleaved)
{
    body_rope(head, cs, dim, interleaved);
}

static void avx2_add(float *x, const float *y, size_t n)
{
    body_add(x, y, n);
}

const bt_cpu_isa_t bt_cpu_avx2 = {
    .tier = BT_CPU_AVX2,
    .name = "avx2",
    .uses_tiles = true,
    .matmul = bt_avx2_matmul,
    .matmul_q8 = bt_avx2_matmul_q8,
    .quantize = bt_avx2_quantize,
    .rmsnorm = avx2_rmsnorm,
    .rope = avx2_rope,
    .attn_step = avx2_attn_step,
    .silu_mul = avx2_silu_mul,
    .add = avx2_add,
    .to_f16 = avx2_to_f16,
    .from_f16 = avx2_from_f16,
    .to_bf16 = avx2_to_bf16,
    .from_bf16 = avx2_from_bf16,
    .to_i8 = avx2_to_i8,
    .from_i8 = avx2_from_i8,
};
