/* SPDX-License-Identifier: Apache-2.0 */
/** @file device.h
 *
 * What kernels touch memory by, meet by and are launched by. For a GPU all of
 * it is the language's own; with BT_SIMT the same sources are compiled for a
 * machine of the tests (tests/simt), which sees every access. So kernels use
 * nothing else for it:
 *
 *     bt_load(p), bt_store(p, value)       global memory
 *     BT_SHARED(float, sums, 16);          shared memory: sums.get(i),
 *                                          sums.set(i, value), and
 *                                          sums.address(i) for what takes one
 *     atomicAdd(p, value), atomicMax(...)  both, by several threads at once
 *     BT_SYNC()                            the barrier of the block
 *     bt_half_to_float(bits)               what an f16 is
 *     BT_UNROLL                            before a loop of constant bounds
 *     BT_LAUNCH(kernel, blocks, threads, stream, arguments...)
 */
#ifndef BT_KERNELS_CUDA_DEVICE_H
#define BT_KERNELS_CUDA_DEVICE_H

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.h"

/** The stream of a back end's operations. */
static inline cudaStream_t bt_stream_of(bt_backend_t *be)
{
    return static_cast<cudaStream_t>(bt_cuda_stream(be));
}

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

/** Exact; a NaN stays one. */
__device__ __forceinline__ float bt_half_to_float(uint16_t half)
{
    float value;

    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

#define BT_SHARED(type, name, n)     \
    __shared__ type name##_words[n]; \
    const bt_shared<type> name = {name##_words}
#define BT_SYNC() __syncthreads()
#define BT_UNROLL _Pragma("unroll")
#define BT_LAUNCH(kernel, blocks, threads, stream, ...) \
    kernel<<<(blocks), (threads), 0, (stream)>>>(__VA_ARGS__)

#endif

#endif
