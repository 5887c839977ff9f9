/* SPDX-License-Identifier: Apache-2.0 */
/** @file avx2.h  Internal to the files of the AVX2 tier. */
#ifndef BT_KERNELS_CPU_AVX2_H
#define BT_KERNELS_CPU_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/body.h"
#include "kernels/cpu/tiers.h"

#define TIER(name) bt_avx2_##name

/** Register of floats, its number of lanes, and its instruction prefix. */
typedef __m256 vec_t;
#define VEC        8u
#define VEC_OP(op) _mm256_##op

/** Loads f16 values. @a at is aligned to the bytes read. */
static inline vec_t vec_load_f16(const void *at)
{
    return _mm256_cvtph_ps(_mm_load_si128(at));
}

/** Loads bf16 values. @a at is aligned to the bytes read. */
static inline vec_t vec_load_bf16(const void *at)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_load_si128(at)), 16));
}

/** Returns a value in all 8 lanes. */
static inline vec_t vec_each8(const float *at)
{
    return _mm256_broadcast_ss(at);
}

/** Stores 8 values. */
static inline void vec_store_sum8(float *at, vec_t v)
{
    _mm256_storeu_ps(at, v);
}

/** Loads 8 signed bytes as floats. @a at is aligned to the bytes read. */
static inline vec_t vec_load_i8(const void *at)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at)));
}

/** Loads bt_quant_e8m0_half() of 8 bytes. @a at is aligned to the bytes
 *  read. */
static inline vec_t vec_load_e8m0(const void *at)
{
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(at));
    const __m256i normal = _mm256_sub_epi32(_mm256_slli_epi32(e, 23),
                                            _mm256_set1_epi32(0x00800000));
    const __m256i small =
        _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000),
                          _mm256_min_epi32(e, _mm256_set1_epi32(2)));

    return _mm256_castsi256_ps(_mm256_max_epi32(normal, small));
}

#include "kernels/cpu/vec.h"

/** Broadcasts the four bytes at x to every lane. */
static inline __m256i word8(const void *x)
{
    int32_t word;

    memcpy(&word, x, sizeof(word));
    return _mm256_set1_epi32(word);
}

/** Stores the first n of a row's two registers of sums, or all of them when n
 *  is larger; see bt_matmul_job_t.add. */
static inline void store_sums(float *out, uint32_t n, bool add,
                              const __m256 *sums)
{
    __m256 s[2] = {sums[0], sums[1]};
    float buffer[16] = {0};
    float *const at = (n >= 16) ? out : buffer;

    if (add && (at == buffer)) {
        memcpy(buffer, out, n * sizeof(*out));
    }
    if (add) {
        s[0] = _mm256_add_ps(_mm256_loadu_ps(at), s[0]);
        s[1] = _mm256_add_ps(_mm256_loadu_ps(at + 8), s[1]);
    }
    _mm256_storeu_ps(at, s[0]);
    _mm256_storeu_ps(at + 8, s[1]);
    if (at == buffer) {
        memcpy(out, buffer, n * sizeof(*out));
    }
}

/** Returns bt_expf() of 8 values. */
static inline __m256 vec_exp(__m256 x)
{
    __m256 n;
    __m256 t;
    __m256 y = exp_parts(x, &n, &t);
    __m256i power;

    power = _mm256_slli_epi32(
        _mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127)), 23);
    y = _mm256_mul_ps(y, _mm256_castsi256_ps(power));
    y = _mm256_blendv_ps(y, _mm256_setzero_ps(),
                         _mm256_cmp_ps(x, _mm256_set1_ps(EXP_MIN), _CMP_LT_OQ));
    y = _mm256_blendv_ps(y, _mm256_set1_ps(INFINITY),
                         _mm256_cmp_ps(x, _mm256_set1_ps(EXP_MAX), _CMP_GT_OQ));
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

/** MXCSR bits for dot_pairs(): flush to zero, denormals are zeros. */
#define BT_AVX2_ZEROS 0x8040u

/** Returns bt_f32_to_bf16() in the upper half of each word; the lower half is
 *  undefined. */
static inline __m256i bf16_bits(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i even =
        _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(
        bits, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));

    return _mm256_blendv_epi8(
        up, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan);
}

/** Pairs of bf16 as floats: first and second elements. */
typedef struct halves {
    __m256 even;
    __m256 odd;
} halves_t;

static inline halves_t halves_of(__m256i pairs)
{
    const __m256i upper = _mm256_set1_epi32((int)0xffff0000u);

    return (halves_t){.even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)),
                      .odd =
                          _mm256_castsi256_ps(_mm256_and_si256(pairs, upper))};
}

/** Returns bt_dot_bf16() in every lane, in the mode BT_AVX2_ZEROS. */
static inline __m256 dot_halves(halves_t a, halves_t b, __m256 acc)
{
    return _mm256_fmadd_ps(a.even, b.even, _mm256_fmadd_ps(a.odd, b.odd, acc));
}

static inline __m256 dot_pairs(__m256i a, __m256i b, __m256 acc)
{
    return dot_halves(halves_of(a), halves_of(b), acc);
}

#endif
