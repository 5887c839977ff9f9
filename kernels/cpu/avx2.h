/* SPDX-License-Identifier: Apache-2.0 */
/** @file avx2.h  Between the files of the AVX2 tier. */
#ifndef BT_KERNELS_CPU_AVX2_H
#define BT_KERNELS_CPU_AVX2_H

#include "kernels/cpu/cpu.h"

/** See bt_cpu_isa_t. */
void bt_avx2_matmul(const bt_matmul_job_t *job, uint32_t begin, uint32_t end,
                    float *scratch);
void bt_avx2_matmul_q8(const bt_matmul_job_t *job, uint32_t begin,
                       uint32_t end);
void bt_avx2_quantize(const float *x, uint32_t n_in, uint32_t bias,
                      const bt_q8_rows_t *q, size_t row);

#endif
