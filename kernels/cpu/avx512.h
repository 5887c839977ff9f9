/* SPDX-License-Identifier: Apache-2.0 */
/** @file avx512.h  Between the files of the AVX-512 tier. */
#ifndef BT_KERNELS_CPU_AVX512_H
#define BT_KERNELS_CPU_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/body.h"

/** Mask of the first n lanes of 16. */
static inline __mmask16 first_lanes(uint32_t n)
{
    return (__mmask16)((n >= 16) ? 0xffffu : (1u << n) - 1u);
}

/** The four bytes at x in every lane. */
static inline __m512i word16(const void *x)
{
    int32_t word;

    memcpy(&word, x, sizeof(word));
    return _mm512_set1_epi32(word);
}

/** The first n of 16 sums, n > 0; see bt_matmul_job_t.add. */
static inline void store_half(float *out, uint32_t n, bool add, __m512 sums)
{
    const __mmask16 lanes = first_lanes(n);

    if (add) {
        sums = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, out), sums);
    }
    _mm512_mask_storeu_ps(out, lanes, sums);
}

/** The first n of a row's 32 sums, all of them where n is more. */
static inline void store32(float *out, uint32_t n, bool add, const __m512 *sums)
{
    store_half(out, n, add, sums[0]);
    if (n > 16) {
        store_half(out + 16, n - 16, add, sums[1]);
    }
}

/** The first half of bt_expf() of 16 values: exp(x) = y * 2^n. *t_p: n as the
 *  low bits of an integer. @return y */
static inline __m512 exp_parts(__m512 x, __m512 *n_p, __m512i *t_p)
{
    const __m512 magic = _mm512_set1_ps(EXP_MAGIC);
    const __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(EXP_LOG2E), magic);
    const __m512 n = _mm512_sub_ps(t, magic);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_HI), x);
    __m512 p = _mm512_set1_ps(EXP_P4);

    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_LO), r);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_P3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_P2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_P1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_P0));
    *n_p = n;
    *t_p = _mm512_castps_si512(t);
    return _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r),
                         _mm512_set1_ps(1.0f));
}

/** bt_expf() of 16 values. */
static inline __m512 exp16(__m512 x)
{
    __m512 n;
    __m512i t;
    __m512 y = exp_parts(x, &n, &t);
    const __m512i power =
        _mm512_slli_epi32(_mm512_add_epi32(t, _mm512_set1_epi32(127)), 23);

    y = _mm512_mul_ps(y, _mm512_castsi512_ps(power));
    y = _mm512_mask_blend_ps(
        _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_MIN), _CMP_LT_OQ), y,
        _mm512_setzero_ps());
    y = _mm512_mask_blend_ps(
        _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_MAX), _CMP_GT_OQ), y,
        _mm512_set1_ps(INFINITY));
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), y, x);
}

/** See bt_cpu_isa_t. */
void bt_avx512_matmul(const bt_matmul_job_t *job, uint32_t begin, uint32_t end,
                      float *scratch);

void bt_avx512_matmul_bf16(const bt_matmul_job_t *job, uint32_t begin,
                           uint32_t end);
void bt_avx512_matmul_q8(const bt_matmul_job_t *job, uint32_t begin,
                         uint32_t end);
void bt_avx512_quantize(const float *x, uint32_t n_in, uint32_t bias,
                        bt_q8_group_t *groups);
void bt_avx512_load_keys(bt_kv_type_t type, const void *keys, size_t stride,
                         uint32_t first, uint32_t n, uint32_t dim,
                         uint16_t *out);
void bt_avx512_load_values(bt_kv_type_t type, const void *values,
                           uint32_t first, uint32_t n, uint32_t dim,
                           uint16_t *out);
uint32_t bt_avx512_direct_kv(void);
void bt_avx512_attn_tile(const bt_attn_tile_t *tile);

#endif
