/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX-512 tier: what is not by hand is body.h compiled for it. */
#include <immintrin.h>

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/body.h"
#include "kernels/cpu/simd.h"

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
    .matmul_bf16 = bt_avx512_matmul_bf16,
    .matmul_q8 = bt_avx512_matmul_q8,
    .quantize = bt_avx512_quantize,
    .rmsnorm = avx512_rmsnorm,
    .rope = avx512_rope,
    .load_keys = bt_avx512_load_keys,
    .load_values = bt_avx512_load_values,
    .direct_kv = bt_avx512_direct_kv,
    .attn_tile = bt_avx512_attn_tile,
    .silu_mul = avx512_silu_mul,
    .add = avx512_add,
    .to_f16 = avx512_to_f16,
    .to_bf16 = avx512_to_bf16,
    .to_i8 = avx512_to_i8,
};
