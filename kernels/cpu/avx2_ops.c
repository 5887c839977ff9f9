/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX2 tier. */
#include "kernels/cpu/avx2.h"

#define TIER_ID   BT_CPU_AVX2
#define TIER_NAME "avx2"
#include "kernels/cpu/tier_ops.h"

static inline void vec_store_f16(uint16_t *at, vec_t v)
{
    _mm_storeu_si128((void *)at, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT |
                                                        _MM_FROUND_NO_EXC));
}

static inline void vec_store_bf16(uint16_t *at, vec_t v)
{
    const __m256i words = _mm256_srli_epi32(bf16_bits(v), 16);

    _mm_storeu_si128((void *)at,
                     _mm_packus_epi32(_mm256_castsi256_si128(words),
                                      _mm256_extracti128_si256(words, 1)));
}

static inline void vec_store_i8(int8_t *at, vec_t v)
{
    const __m256i whole = _mm256_cvtps_epi32(v);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole),
                                          _mm256_extracti128_si256(whole, 1));

    _mm_storel_epi64((void *)at, _mm_packs_epi16(words, words));
}

static inline void vec_store_e4m3(uint8_t *at, vec_t v)
{
    const __m256i bits = _mm256_castps_si256(v);
    const __m256 size = _mm256_min_ps(vec_abs(v), vec_all(E4M3_MAX));
    const __m256i mag = _mm256_castps_si256(size);
    const __m256i even =
        _mm256_and_si256(_mm256_srli_epi32(mag, 20), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(
        mag, _mm256_add_epi32(even, _mm256_set1_epi32(0x7ffff)));
    const __m256i normal = _mm256_sub_epi32(
        _mm256_srli_epi32(up, 20), _mm256_set1_epi32((int)E4M3_BIAS_F32));
    const __m256 align = vec_all(E4M3_ALIGN);
    const __m256i small =
        _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(size, align)),
                         _mm256_castps_si256(align));
    const __m256 is_small =
        _mm256_cmp_ps(size, vec_all(E4M3_NORMAL), _CMP_LT_OQ);
    const __m256i sign =
        _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    const __m256i codes = _mm256_or_si256(
        sign, _mm256_blendv_epi8(normal, small, _mm256_castps_si256(is_small)));
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(codes),
                                           _mm256_extracti128_si256(codes, 1));

    _mm_storel_epi64((void *)at, _mm_packus_epi16(words, words));
}

static inline uint32_t amax_bits(const float *x, uint32_t n)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i max = _mm256_setzero_si256();
    uint32_t lanes[8];

    for (uint32_t i = 0; i < n; i += 8) {
        __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + i));

        max = _mm256_max_epi32(max, _mm256_and_si256(bits, magnitude));
    }
    _mm256_storeu_si256((void *)lanes, max);
    for (uint32_t i = 1; i < 8; i++) {
        lanes[0] = (lanes[i] > lanes[0]) ? lanes[i] : lanes[0];
    }
    return lanes[0];
}

const bt_cpu_isa_t bt_cpu_avx2 = {TIER_OPS};
