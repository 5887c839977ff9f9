/* SPDX-License-Identifier: Apache-2.0 */
/** @file avx512.h  Between the files of the AVX-512 tier. */
#ifndef BT_KERNELS_CPU_AVX512_H
#define BT_KERNELS_CPU_AVX512_H

#include <immintrin.h>

#include "kernels/cpu/cpu.h"

/** Mask of the first n lanes of 16. */
static inline __mmask16 first_lanes(uint32_t n)
{
    return (__mmask16)((n >= 16) ? 0xffffu : (1u << n) - 1u);
}

/** See bt_cpu_isa_t. */
void bt_avx512_matmul(const bt_matmul_job_t *job, uint32_t begin, uint32_t end,
                      float *scratch);

void bt_avx512_matmul_q8(const bt_matmul_job_t *job, uint32_t begin,
                         uint32_t end);
void bt_avx512_quantize(const float *x, uint32_t n_in, uint32_t bias,
                        const bt_q8_rows_t *q, size_t row);

#endif
