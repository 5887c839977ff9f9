/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX-512 tier. */
#include "kernels/cpu/avx512.h"

#define TIER_ID   BT_CPU_AVX512
#define TIER_NAME "avx512"
#include "kernels/cpu/tier_ops.h"

static inline void vec_store_f16(uint16_t *at, vec_t v)
{
    _mm256_storeu_si256(
        (void *)at,
        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* (The instruction of AVX512_BF16 drops subnormals.) */
static inline void vec_store_bf16(uint16_t *at, vec_t v)
{
    __m512i bits = _mm512_castps_si512(v);
    __m512i high = _mm512_srli_epi32(bits, 16);
    __m512i even = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(
        bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);

    up = _mm512_srli_epi32(up, 16);
    up = _mm512_mask_or_epi32(up, nan, high, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((void *)at, _mm512_cvtepi32_epi16(up));
}

static inline void vec_store_i8(int8_t *at, vec_t v)
{
    _mm_storeu_si128((void *)at, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}

static inline void vec_store_e4m3(uint8_t *at, vec_t v)
{
    const __m512 size = _mm512_min_ps(vec_abs(v), vec_all(E4M3_MAX));
    const __m512i mag = _mm512_castps_si512(size);
    const __m512i even =
        _mm512_and_si512(_mm512_srli_epi32(mag, 20), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(
        mag, _mm512_add_epi32(even, _mm512_set1_epi32(0x7ffff)));
    const __m512i normal = _mm512_sub_epi32(
        _mm512_srli_epi32(up, 20), _mm512_set1_epi32((int)E4M3_BIAS_F32));
    const __m512 align = vec_all(E4M3_ALIGN);
    const __mmask16 small =
        _mm512_cmp_ps_mask(size, vec_all(E4M3_NORMAL), _CMP_LT_OQ);
    const __m512i codes = _mm512_mask_sub_epi32(
        normal, small, _mm512_castps_si512(_mm512_add_ps(size, align)),
        _mm512_castps_si512(align));
    const __m512i sign = _mm512_and_si512(
        _mm512_srli_epi32(_mm512_castps_si512(v), 24), _mm512_set1_epi32(0x80));

    _mm_storeu_si128((void *)at,
                     _mm512_cvtepi32_epi8(_mm512_or_si512(sign, codes)));
}

static inline uint32_t amax_bits(const float *x, uint32_t n)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i max = _mm512_setzero_si512();

    for (uint32_t i = 0; i < n; i += 16) {
        __m512i bits = _mm512_castps_si512(_mm512_loadu_ps(x + i));

        max = _mm512_max_epi32(max, _mm512_and_si512(bits, magnitude));
    }
    return (uint32_t)_mm512_reduce_max_epi32(max);
}

const bt_cpu_isa_t bt_cpu_avx512 = {TIER_OPS, .direct_kv = bt_avx512_direct_kv};
