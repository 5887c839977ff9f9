/* SPDX-License-Identifier: Apache-2.0 */
/** @file simd.h  What the AVX2 and AVX-512 files share. */
#ifndef BT_KERNELS_CPU_SIMD_H
#define BT_KERNELS_CPU_SIMD_H

/* Functions that take the pack or the number of rows as a constant are
 * written once and specialized by inlining. */
#define SPECIALIZE static inline __attribute__((always_inline))

/* The next loop has a small constant count and must vanish, or its
 * accumulators would live in memory. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* What follows reads its memory itself. Values that the compiler would keep for
 * it would push accumulators out of the registers. */
#define READ_AGAIN() __asm__ volatile("" ::: "memory")

#endif
