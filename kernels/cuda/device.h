/* SPDX-License-Identifier: Apache-2.0 */
/** @file device.h
 *
 * Primitives by which kernels access memory, synchronise and are launched. On a
 * GPU they map to CUDA; with BT_SIMT the same sources are compiled for the
 * simulator of the tests (tests/simt), which checks every access. Kernels must
 * use only these:
 *
 *     bt_load(p), bt_store(p, value)       global memory
 *     BT_SHARED(float, sums, 16);          shared memory: sums.get(i),
 *                                          sums.set(i, value), and
 *                                          sums.address(i) for its address
 *     atomicAdd(p, value), atomicMax(...)  both, by several threads at once
 *     bt_mma_s8(d, a, b, c), bt_mma_bf16(d, a, b, c), bt_mma_f16(...)
 *                                          d = a b + c by a warp
 *     bt_mul_bf16(a, b)                    two products of bfloat16 at a time
 *     bt_ldmatrix(r, row), bt_ldmatrix_trans(r, row)
 *                                          load mma operands from shared memory
 *     bt_copy_async<16>(to, from), bt_copy_commit(), bt_copy_wait<0>()
 *                                          asynchronous copies to shared memory
 *     BT_SYNC()                            barrier of the thread block
 *     bt_half_to_float(bits)               value of an f16
 *     BT_UNROLL                            before a loop of constant bounds
 *     BT_NO_UNROLL                         before a loop where unrolling would
 *                                          cost registers for no gain
 *     BT_BOUNDS(threads, blocks)           of a kernel: maximum threads, and
 *                                          blocks per multiprocessor that the
 *                                          registers must allow
 *     BT_LAUNCH(kernel, blocks, threads, be, arguments...)
 */
#ifndef BT_KERNELS_CUDA_DEVICE_H
#define BT_KERNELS_CUDA_DEVICE_H

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.h"

#if !defined(BT_SIMT)

template <typename T> __device__ __forceinline__ T bt_load(const T *p)
{
    return *p;
}

template <typename T> __device__ __forceinline__ void bt_store(T *p, T value)
{
    *p = value;
}

template <typename T> struct bt_shared {
    T *words;

    __device__ __forceinline__ T get(unsigned i) const
    {
        return words[i];
    }

    __device__ __forceinline__ void set(unsigned i, T value) const
    {
        words[i] = value;
    }

    __device__ __forceinline__ T *address(unsigned i) const
    {
        return words + i;
    }
};

/** Converts an f16 exactly; a NaN stays one. */
__device__ __forceinline__ float bt_half_to_float(uint16_t half)
{
    float value;

    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

/** Returns two bfloat16 products, rounded to nearest even; subnormal numbers
 *  are kept. */
__device__ __forceinline__ uint32_t bt_mul_bf16(uint32_t a, uint32_t b)
{
    uint32_t d;

    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(d)
        : "r"(a), "r"(b), "r"(0x80008000u)); /* -0, which changes nothing */
    return d;
}

/* ---- products of matrices, by all lanes of a warp (sm_80) ----
 *
 * Lane i is number g = i / 4 of eight groups, and number t = i % 4 in its own.
 * A is 16 rows of 16 k, B 16 k of 8 columns (PTX ISA, "Matrix Fragments for
 * mma.m16n8k16"), the lowest k in a register's lowest bits:
 *
 *     bytes      a[0]  row g,      k 4t .. 4t + 3
 *                a[1]  row g + 8,  k 4t .. 4t + 3
 *                b     column g,   k 4t .. 4t + 3
 *
 *     halves     a[0]  row g,      k 2t, 2t + 1 (bfloat16, binary16)
 *                a[1]  row g + 8,  k 2t, 2t + 1
 *                a[2]  row g,      k 2t + 8, 2t + 9
 *                a[3]  row g + 8,  k 2t + 8, 2t + 9
 *                b[0]  column g,   k 2t, 2t + 1
 *                b[1]  column g,   k 2t + 8, 2t + 9
 *
 *     both       c[0], c[1]  row g,      columns 2t, 2t + 1
 *                c[2], c[3]  row g + 8,  columns 2t, 2t + 1; d has the layout
 *                            of c and may alias it */

__device__ __forceinline__ void bt_mma_s8(int32_t (&d)[4],
                                          const uint32_t (&a)[2], uint32_t b,
                                          const int32_t (&c)[4])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b), "r"(c[0]), "r"(c[1]),
                   "r"(c[2]), "r"(c[3]));
}

/** Defines an mma of 16-bit operands. The order and rounding of its sums are
 *  the device's own. */
#define BT_MMA_HALVES(name, type)                                              \
    __device__ __forceinline__ void name(float(&d)[4], const uint32_t(&a)[4],  \
                                         const uint32_t(&b)[2],                \
                                         const float(&c)[4])                   \
    {                                                                          \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type    \
                     ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "     \
                     "{%10, %11, %12, %13};"                                   \
                     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),  \
                       "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3])); \
    }

BT_MMA_HALVES(bt_mma_bf16, "bf16")
BT_MMA_HALVES(bt_mma_f16, "f16")
#undef BT_MMA_HALVES

__device__ __forceinline__ unsigned bt_shared_address(const void *p)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

/* n (1, 2, 4) matrices of 8 rows of 16 bytes: lane i brings the address of row
 * i % 8 of matrix i / 8, and gets of each matrix bytes 4t .. 4t + 3 of row g; a
 * transposed one's are halves: of column g, rows 2t and 2t + 1. */
#define BT_LDMATRIX(name, trans)                                           \
    template <unsigned n>                                                  \
    __device__ __forceinline__ void name(uint32_t(&r)[n], const void *row) \
    {                                                                      \
        const unsigned at = bt_shared_address(row);                        \
                                                                           \
        static_assert((n == 1) || (n == 2) || (n == 4), "as PTX has it");  \
        if constexpr (n == 1) {                                            \
            asm volatile("ldmatrix.sync.aligned.m8n8.x1" trans             \
                         ".shared.b16 {%0}, [%1];"                         \
                         : "=r"(r[0])                                      \
                         : "r"(at)                                         \
                         : "memory");                                      \
        } else if constexpr (n == 2) {                                     \
            asm volatile("ldmatrix.sync.aligned.m8n8.x2" trans             \
                         ".shared.b16 {%0, %1}, [%2];"                     \
                         : "=r"(r[0]), "=r"(r[1])                          \
                         : "r"(at)                                         \
                         : "memory");                                      \
        } else {                                                           \
            asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans             \
                         ".shared.b16 {%0, %1, %2, %3}, [%4];"             \
                         : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])  \
                         : "r"(at)                                         \
                         : "memory");                                      \
        }                                                                  \
    }

BT_LDMATRIX(bt_ldmatrix, "")
BT_LDMATRIX(bt_ldmatrix_trans, ".trans")
#undef BT_LDMATRIX

/* ---- copies from global to shared memory (sm_80) ---- */

/** Copies 4, 8 or 16 bytes asynchronously, both addresses aligned to that size.
 *  Only @a valid bytes are read; the rest is zero-filled. The data is visible
 *  to the thread after bt_copy_wait(), to other threads after a following
 *  barrier. */
template <unsigned bytes>
__device__ __forceinline__ void bt_copy_async(void *shared, const void *global,
                                              unsigned valid = bytes)
{
    const unsigned to = bt_shared_address(shared);
    const size_t from = __cvta_generic_to_global(global);

    static_assert((bytes == 4) || (bytes == 8) || (bytes == 16), "as PTX");
    if constexpr (bytes == 16) { /* bypasses the L1 cache */
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(to), "l"(from), "r"(valid)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     :
                     : "r"(to), "l"(from), "n"(bytes), "r"(valid)
                     : "memory");
    }
}

/** Commits the thread's copies since the last commit as a group. */
__device__ __forceinline__ void bt_copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/** Waits until all of the thread's groups except the last @a n are complete. */
template <unsigned n> __device__ __forceinline__ void bt_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(n) : "memory");
}

#define BT_SHARED(type, name, n)                   \
    __shared__ __align__(16) type name##_words[n]; \
    const bt_shared<type> name = {name##_words}
#define BT_SYNC()                  __syncthreads()
#define BT_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#define BT_UNROLL                  _Pragma("unroll")
#define BT_NO_UNROLL               _Pragma("unroll 1")

#endif

#endif
