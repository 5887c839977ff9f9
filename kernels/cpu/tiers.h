/* SPDX-License-Identifier: Apache-2.0 */
/** @file tiers.h  Functions that the files of a tier define for each other. The
 *  AVX-512 tier also uses those of AVX2 on a processor without AVX512_BF16. See
 *  bt_cpu_isa_t. */
#ifndef BT_KERNELS_CPU_TIERS_H
#define BT_KERNELS_CPU_TIERS_H

#include "kernels/cpu/cpu.h"

#define BT_TIER_FUNCTIONS(tier)                                              \
    void bt_##tier##_matmul(const bt_matmul_job_t *job, uint32_t begin,      \
                            uint32_t end, float *scratch);                   \
    void bt_##tier##_matmul_bf16(const bt_matmul_job_t *job, uint32_t begin, \
                                 uint32_t end);                              \
    void bt_##tier##_matmul_q8(const bt_matmul_job_t *job, uint32_t begin,   \
                               uint32_t end, uint8_t *scratch);              \
    void bt_##tier##_quantize(const float *x, uint32_t n_in, uint32_t bias,  \
                              bt_q8_group_t *groups);                        \
    void bt_##tier##_load_keys(bt_kv_type_t type, const void *keys,          \
                               size_t stride, uint32_t first, uint32_t n,    \
                               uint32_t dim, uint16_t *out);                 \
    void bt_##tier##_load_values(bt_kv_type_t type, const void *values,      \
                                 uint32_t first, uint32_t n, uint32_t dim,   \
                                 uint16_t *out);                             \
    void bt_##tier##_attn_tile(const bt_attn_tile_t *tile)

BT_TIER_FUNCTIONS(avx2);
BT_TIER_FUNCTIONS(avx512);
uint32_t bt_avx512_direct_kv(void);

#endif
