/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX2 tier: what is not by hand is body.h compiled for it. */
#include <immintrin.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/body.h"
#include "kernels/cpu/simd.h"

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

static void avx2_to_bf16(const float *x, uint32_t n, uint16_t *out)
{
    uint32_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i v = _mm256_srli_epi32(bf16_bits(_mm256_loadu_ps(x + i)), 16);

        _mm_storeu_si128((void *)(out + i),
                         _mm_packus_epi32(_mm256_castsi256_si128(v),
                                          _mm256_extracti128_si256(v, 1)));
    }
    for (; i < n; i++) {
        out[i] = bt_f32_to_bf16(x[i]);
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
    .matmul_bf16 = bt_avx2_matmul_bf16,
    .matmul_q8 = bt_avx2_matmul_q8,
    .quantize = bt_avx2_quantize,
    .rmsnorm = avx2_rmsnorm,
    .rope = avx2_rope,
    .load_keys = bt_avx2_load_keys,
    .load_values = bt_avx2_load_values,
    .attn_tile = bt_avx2_attn_tile,
    .silu_mul = avx2_silu_mul,
    .add = avx2_add,
    .to_f16 = avx2_to_f16,
    .to_bf16 = avx2_to_bf16,
    .to_i8 = avx2_to_i8,
};
