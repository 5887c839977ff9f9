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
