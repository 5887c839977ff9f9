/* SPDX-License-Identifier: Apache-2.0 */
/** @file simd.h  Macros shared by the AVX2 and AVX-512 files. */
#ifndef BT_KERNELS_CPU_SIMD_H
#define BT_KERNELS_CPU_SIMD_H

/* Functions that take the pack or the number of rows as a constant are written
 * once and specialized by inlining. */
#define SPECIALIZE static inline __attribute__((always_inline))

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

#endif
