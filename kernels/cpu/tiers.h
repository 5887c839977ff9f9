/* SPDX-License-Identifier: Apache-2.0 */
/** @file tiers.h
 *
 * Shared by the files of the AVX2 and AVX-512 tiers.
 */
#ifndef BT_KERNELS_CPU_TIERS_H
#define BT_KERNELS_CPU_TIERS_H

#include "kernels/cpu/cpu.h"

/* Functions that the files of a tier define for each other. The
 *  AVX-512 tier also uses those of AVX2 on a processor without AVX512_BF16. See
 *  bt_cpu_isa_t. */

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

/* Macros shared by the AVX2 and AVX-512 files. */

/* Functions that take the pack or the number of rows as a constant are written
 * once and specialized by inlining. */
#define SPECIALIZE static inline __attribute__((always_inline))

/** Calls @a call(n) with n as a constant, for which the compiler keeps sums in
 *  registers: one of @a a to @a d; @a d for all others. */
#define BY_ROWS(n, a, b, c, d, call) \
    switch (n) {                     \
    case a:                          \
        call(a);                     \
        break;                       \
    case b:                          \
        call(b);                     \
        break;                       \
    case c:                          \
        call(c);                     \
        break;                       \
    default:                         \
        call(d);                     \
        break;                       \
    }

/* The next loop has a small constant count and must be unrolled, or its
 * accumulators would live in memory. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Compiler barrier: the following code loads its operands from memory again.
 * Values kept in registers for it would evict accumulators. */
#define READ_AGAIN() __asm__ volatile("" ::: "memory")

/*
 * Prefetches the next panel of a matrix while the current one is multiplied
 * with many rows. A core that computes for a long time does not issue its next
 * loads: without prefetch, memory idles while the core works, and the other way
 * round. With few rows the core does issue them, and more requests would get in
 * their way: each kernel knows how many rows are few.
 */

/** Maximum bytes prefetched of a panel: the panel in use stays in the same
 *  cache, and in larger models either has some hundred KiB. */
#define BT_AHEAD_BYTES ((size_t)256 << 10)

typedef struct bt_ahead {
    const uint8_t *next;
    const uint8_t *end;
    uint32_t n_lines; /**< cache lines of one bt_ahead_ask() */
} bt_ahead_t;

/** Prepares the prefetch of the panel after panel @a p, spread evenly over @a
 *  n_asks calls of bt_ahead_ask(), which kernels omit with few rows. Nothing is
 *  prefetched after the last panel. */
static inline bt_ahead_t bt_ahead_of(const bt_matmul_job_t *job, uint32_t p,
                                     uint32_t n_asks)
{
    const bt_weight_t *w = job->w;
    const uint8_t *next = w->data + (p + 1) * w->panel_bytes;
    const size_t bytes =
        (w->panel_bytes < BT_AHEAD_BYTES) ? w->panel_bytes : BT_AHEAD_BYTES;

    if (p + 1 >= w->n_panels) {
        return (bt_ahead_t){0};
    }
    return (bt_ahead_t){
        .next = next,
        .end = next + bytes,
        .n_lines = (uint32_t)((bytes / 64 + n_asks - 1) / n_asks),
    };
}

/** Prefetches the next lines into the L2 cache: the rows fill the L1 cache. */
static inline void bt_ahead_ask(bt_ahead_t *ahead)
{
    for (uint32_t i = 0; (i < ahead->n_lines) && (ahead->next < ahead->end);
         i++) {
        __builtin_prefetch(ahead->next, 0, 2);
        ahead->next += 64;
    }
}

#endif
