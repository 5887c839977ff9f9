/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX-512 tier: attention by hand, the rest is body.h compiled for it. */
#include <immintrin.h>

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/body.h"
#include "kernels/cpu/simd.h"

/* bt_expf() of 16 values. */
static inline __m512 exp16(__m512 x)
{
    const __m512 magic = _mm512_set1_ps(EXP_MAGIC);
    __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(EXP_LOG2E), magic);
    __m512 n = _mm512_sub_ps(t, magic);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_HI), x);
    __m512 p = _mm512_set1_ps(EXP_P4);
    __m512i power;
    __m512 y;

    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_LO), r);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_P3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_P2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_P1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_P0));
    y = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
    y = _mm512_add_ps(y, _mm512_set1_ps(1.0f));
    power = _mm512_slli_epi32(
        _mm512_add_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(127)), 23);
    y = _mm512_mul_ps(y, _mm512_castsi512_ps(power));
    y = _mm512_mask_blend_ps(
        _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_MIN), _CMP_LT_OQ), y,
        _mm512_setzero_ps());
    y = _mm512_mask_blend_ps(
        _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_MAX), _CMP_GT_OQ), y,
        _mm512_set1_ps(INFINITY));
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), y, x);
}

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

/* lane_tree() of 16 registers at once: the result's lane 4 l + e belongs to
 * v[4 e + l]. */
static inline __m512 tree16x16(__m512 *v)
{
    UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        v[i] =
            _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x44),
                          _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xee));
    }
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        v[i] =
            _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x88),
                          _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xdd));
    }
    UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        v[i] = _mm512_add_ps(_mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0x44),
                             _mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0xee));
    }
    return _mm512_add_ps(_mm512_shuffle_ps(v[0], v[1], 0x88),
                         _mm512_shuffle_ps(v[0], v[1], 0xdd));
}

/* Lane dots of q and 16 keys. Keys past the last are read from scratch and
 * their results dropped. */
static inline __m512 dots16(const float *q, const float *keys, uint32_t dim)
{
    __m512 v[16];

    UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        v[i] = _mm512_setzero_ps();
    }
    for (uint32_t d = 0; d < dim; d += 16) {
        __m512 qd = _mm512_loadu_ps(q + d);

        UNROLL
        for (uint32_t i = 0; i < 16; i++) {
            uint32_t key = 4 * (i % 4) + i / 4; /* so that lanes come sorted */

            v[i] = _mm512_fmadd_ps(
                qd, _mm512_loadu_ps(keys + (size_t)key * dim + d), v[i]);
        }
    }
    return tree16x16(v);
}

/* acc = acc * corr, then += p_j v_j, for `n_regs` registers of dimensions. */
SPECIALIZE void weigh(uint32_t n_regs, const float *p, const float *values,
                      uint32_t n, uint32_t dim, __m512 corr, float *acc)
{
    __m512 sum[4];

    UNROLL
    for (uint32_t i = 0; i < n_regs; i++) {
        sum[i] = _mm512_mul_ps(_mm512_loadu_ps(acc + 16 * i), corr);
    }
    for (uint32_t j = 0; j < n; j++) {
        __m512 pj = _mm512_set1_ps(p[j]);

        UNROLL
        for (uint32_t i = 0; i < n_regs; i++) {
            sum[i] = _mm512_fmadd_ps(
                pj, _mm512_loadu_ps(values + (size_t)j * dim + 16 * i), sum[i]);
        }
    }
    UNROLL
    for (uint32_t i = 0; i < n_regs; i++) {
        _mm512_storeu_ps(acc + 16 * i, sum[i]);
    }
}

static void avx512_attn_step(const float *q, const float *keys,
                             const float *values, uint32_t n, uint32_t dim,
                             float scale, bt_attn_state_t *state, float *acc)
{
    const __mmask16 mask0 = first_lanes(n);
    const __mmask16 mask1 = (n > 16) ? first_lanes(n - 16) : (__mmask16)0;
    const __m512 low = _mm512_set1_ps(-INFINITY);
    float p[BT_ATTN_TILE];
    __m512 s0;
    __m512 s1 = low;
    __m512 p0;
    __m512 p1;
    __m512 corr;
    float max;
    uint32_t d = 0;

    if (dim % 16 != 0) {
        body_attn_step(q, keys, values, n, dim, scale, state, acc);
        return;
    }
    s0 = _mm512_mul_ps(dots16(q, keys, dim), _mm512_set1_ps(scale));
    s0 = _mm512_mask_blend_ps(mask0, low, s0);
    if (n > 16) {
        s1 = _mm512_mul_ps(dots16(q, keys + (size_t)16 * dim, dim),
                           _mm512_set1_ps(scale));
        s1 = _mm512_mask_blend_ps(mask1, low, s1);
    }
    max = _mm512_reduce_max_ps(_mm512_max_ps(s0, s1));
    max = (max > state->max) ? max : state->max;
    p0 = exp16(_mm512_sub_ps(s0, _mm512_set1_ps(max)));
    p0 = _mm512_maskz_mov_ps(mask0, p0);
    p1 = exp16(_mm512_sub_ps(s1, _mm512_set1_ps(max)));
    p1 = _mm512_maskz_mov_ps(mask1, p1);
    _mm512_storeu_ps(p, p0);
    _mm512_storeu_ps(p + 16, p1);
    corr = exp16(_mm512_set1_ps(state->max - max));
    state->sum =
        fmaf(state->sum, _mm512_cvtss_f32(corr), tree16(_mm512_add_ps(p0, p1)));
    state->max = max;
    for (; d + 64 <= dim; d += 64) {
        weigh(4, p, values + d, n, dim, corr, acc + d);
    }
    for (; d < dim; d += 16) {
        weigh(1, p, values + d, n, dim, corr, acc + d);
    }
}

static void avx512_to_f16(const float *x, uint32_t n, uint16_t *out)
{
    uint32_t i = 0;

    for (; i + 16 <= n; i += 16) {
        _mm256_storeu_si256(
            (void *)(out + i),
            _mm512_cvtps_ph(_mm512_loadu_ps(x + i),
                            _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    for (; i < n; i++) {
        out[i] = bt_f32_to_f16(x[i]);
    }
}

static void avx512_from_f16(const uint16_t *x, uint32_t n, float *out)
{
    uint32_t i = 0;

    for (; i + 16 <= n; i += 16) {
        _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256(
                                      (const void *)(x + i))));
    }
    for (; i < n; i++) {
        out[i] = bt_f16_to_f32(x[i]);
    }
}

/* bt_f32_to_bf16() of 16 values. (The instruction of AVX512_BF16 drops
 * subnormals.) */
static inline __m256i bf16x16(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i high = _mm512_srli_epi32(bits, 16);
    __m512i even = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(
        bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);

    up = _mm512_srli_epi32(up, 16);
    up = _mm512_mask_or_epi32(up, nan, high, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(up);
}

static void avx512_to_bf16(const float *x, uint32_t n, uint16_t *out)
{
    uint32_t i = 0;

    for (; i + 16 <= n; i += 16) {
        _mm256_storeu_si256((void *)(out + i), bf16x16(_mm512_loadu_ps(x + i)));
    }
    for (; i < n; i++) {
        out[i] = bt_f32_to_bf16(x[i]);
    }
}

static void avx512_from_bf16(const uint16_t *x, uint32_t n, float *out)
{
    uint32_t i = 0;

    for (; i + 16 <= n; i += 16) {
        __m512i v =
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(x + i)));

        _mm512_storeu_ps(out + i,
                         _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)));
    }
    for (; i < n; i++) {
        out[i] = bt_bf16_to_f32(x[i]);
    }
}

static float avx512_to_i8(const float *x, uint32_t n, int8_t *out)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const uint32_t n_whole = n / 16 * 16;
    __m512i max = _mm512_setzero_si512();
    uint32_t amax;
    uint32_t i;
    float scale;

    for (i = 0; i < n_whole; i += 16) {
        __m512i bits = _mm512_castps_si512(_mm512_loadu_ps(x + i));

        max = _mm512_max_epi32(max, _mm512_and_si512(bits, magnitude));
    }
    amax = (uint32_t)_mm512_reduce_max_epi32(max);
    scale = i8_scale(i8_amax_bits(x + n_whole, n - n_whole, amax));
    if (!(scale > 0.0f)) {
        for (i = 0; i < n; i++) {
            out[i] = 0;
        }
        return scale;
    }
    for (i = 0; i < n_whole; i += 16) {
        __m512i v = _mm512_cvtps_epi32(
            _mm512_div_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(scale)));

        _mm_storeu_si128((void *)(out + i), _mm512_cvtepi32_epi8(v));
    }
    for (; i < n; i++) {
        out[i] = i8_code(x[i], scale);
    }
    return scale;
}

static void avx512_from_i8(const int8_t *x, const float *scales,
                           uint32_t n_rows, uint32_t dim, float *out)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        uint32_t i = 0;

        for (; i + 16 <= dim; i += 16) {
            __m512i v =
                _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(x + i)));

            _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_cvtepi32_ps(v),
                                                    _mm512_set1_ps(scales[r])));
        }
        for (; i < dim; i++) {
            out[i] = (float)x[i] * scales[r];
        }
        x += dim;
        out += dim;
    }
}

static void avx512_silu_mul(const float *gate, const float *up, uint32_t n,
                            float *out)
{
    const __m512 sign = _mm512_set1_ps(-0.0f);
    uint32_t i = 0;

    for (; i + 16 <= n; i += 16) {
        __m512 g = _mm512_loadu_ps(gate + i);
        __m512 e = exp16(_mm512_xor_ps(g, sign));
        __m512 y = _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0f), e));

        _mm512_storeu_ps(out + i, _mm512_mul_ps(y, _mm512_loadu_ps(up + i)));
    }
    body_silu_mul(gate + i, up + i, n - i, out + i);
}

static void avx512_rmsnorm(const float *x, const float *weight, float eps,
                           uint32_t dim, float *out)
{
    body_rmsnorm(x, weight, eps, dim, out);
}

static void avx512_rope(float *head, const float *cs, uint32_t dim,
                        bool interleaved)
{
    body_rope(head, cs, dim, interleaved);
}

static void avx512_add(float *x, const float *y, size_t n)
{
    body_add(x, y, n);
}

const bt_cpu_isa_t bt_cpu_avx512 = {
    .tier = BT_CPU_AVX512,
    .name = "avx512",
    .uses_tiles = true,
    .matmul = bt_avx512_matmul,
    .matmul_q8 = bt_avx512_matmul_q8,
    .quantize = bt_avx512_quantize,
    .rmsnorm = avx512_rmsnorm,
    .rope = avx512_rope,
    .attn_step = avx512_attn_step,
    .silu_mul = avx512_silu_mul,
    .add = avx512_add,
    .to_f16 = avx512_to_f16,
    .from_f16 = avx512_from_f16,
    .to_bf16 = avx512_to_bf16,
    .from_bf16 = avx512_from_bf16,
    .to_i8 = avx512_to_i8,
    .from_i8 = avx512_from_i8,
};
