/* SPDX-License-Identifier: Apache-2.0 */
/** @file avx512.h  Internal to the files of the AVX-512 tier. */
#ifndef BT_KERNELS_CPU_AVX512_H
#define BT_KERNELS_CPU_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/body.h"
#include "kernels/cpu/tiers.h"

#define TIER(name) bt_avx512_##name

/** Register of floats, its number of lanes, and its instruction prefix. */
typedef __m512 vec_t;
#define VEC        16u
#define VEC_OP(op) _mm512_##op

/** Loads f16 values. @a at is aligned to the bytes read. */
static inline vec_t vec_load_f16(const void *at)
{
    return _mm512_cvtph_ps(_mm256_load_si256(at));
}

/** Loads bf16 values. @a at is aligned to the bytes read. */
static inline vec_t vec_load_bf16(const void *at)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_load_si256(at)), 16));
}

/** Returns two values, each in 8 lanes. */
static inline vec_t vec_each8(const float *at)
{
    return _mm512_insertf32x8(_mm512_set1_ps(at[0]), _mm256_set1_ps(at[1]), 1);
}

/** Stores the sums of lanes i and 8 + i: 8 values. */
static inline void vec_store_sum8(float *at, vec_t v)
{
    _mm256_storeu_ps(at, _mm256_add_ps(_mm512_castps512_ps256(v),
                                       _mm512_extractf32x8_ps(v, 1)));
}

/** Loads 16 signed bytes as floats. @a at is aligned to the bytes read. */
static inline vec_t vec_load_i8(const void *at)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128(at)));
}

/** Loads bt_quant_e8m0_half() of 16 bytes. @a at is aligned to the bytes
 *  read. */
static inline vec_t vec_load_e8m0(const void *at)
{
    const __m512i e = _mm512_cvtepu8_epi32(_mm_load_si128(at));
    const __m512i normal = _mm512_sub_epi32(_mm512_slli_epi32(e, 23),
                                            _mm512_set1_epi32(0x00800000));
    const __m512i small =
        _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000),
                          _mm512_min_epi32(e, _mm512_set1_epi32(2)));

    return _mm512_castsi512_ps(_mm512_max_epi32(normal, small));
}

#include "kernels/cpu/vec.h"

/** Returns the mask of the first n lanes of 16. */
static inline __mmask16 first_lanes(uint32_t n)
{
    return (__mmask16)((n >= 16) ? 0xffffu : (1u << n) - 1u);
}

/** Broadcasts the four bytes at x to every lane. */
static inline __m512i word16(const void *x)
{
    int32_t word;

    memcpy(&word, x, sizeof(word));
    return _mm512_set1_epi32(word);
}

/** Stores the first n of 16 sums, n > 0; see bt_matmul_job_t.add. */
static inline void store_half(float *out, uint32_t n, bool add, __m512 sums)
{
    const __mmask16 lanes = first_lanes(n);

    if (add) {
        sums = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, out), sums);
    }
    _mm512_mask_storeu_ps(out, lanes, sums);
}

/** Stores the first n of a row's two registers of sums, or all of them when n
 *  is larger. */
static inline void store_sums(float *out, uint32_t n, bool add,
                              const __m512 *sums)
{
    store_half(out, n, add, sums[0]);
    if (n > 16) {
        store_half(out + 16, n - 16, add, sums[1]);
    }
}

/** Returns bt_expf() of 16 values. */
static inline __m512 vec_exp(__m512 x)
{
    __m512 n;
    __m512 t;
    __m512 y = exp_parts(x, &n, &t);
    const __m512i power = _mm512_slli_epi32(
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

#endif
