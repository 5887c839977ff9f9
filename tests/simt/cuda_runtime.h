/* SPDX-License-Identifier: Apache-2.0 */
/** @file cuda_runtime.h
 *
 * Stands in for CUDA's where the plugin is compiled for the machine of
 * machine.h: the few calls that it makes, and what its kernels are written in.
 *
 * A device's memory is pages that nobody may touch but kernels and copies,
 * while they run; each piece ends where they end, and a touch beyond it traps
 * as well. A stream is a list of what is to be done, which is done when
 * somebody waits for it (cudaStreamSynchronize(), cudaEventSynchronize(), a
 * copy that returns when it is there), and no sooner: a host's buffer that is
 * altered or given back in between is seen. Events know their place in a
 * stream.
 *
 * Names, values and meanings: CUDA Runtime API, 13.0. Only what is used here.
 */
#ifndef BT_TESTS_SIMT_CUDA_RUNTIME_H
#define BT_TESTS_SIMT_CUDA_RUNTIME_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/half.h"
#include "tests/simt/machine.h"

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorLaunchFailure = 719,
};

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
};

const unsigned cudaStreamNonBlocking = 1;
const unsigned cudaEventDisableTiming = 2;
const unsigned cudaHostAllocDefault = 0;

struct SimtStream;
struct SimtEvent;
typedef SimtStream *cudaStream_t;
typedef SimtEvent *cudaEvent_t;

struct cudaDeviceProp {
    int major, minor;
};

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device);
cudaError_t cudaGetLastError();
cudaError_t cudaMemGetInfo(size_t *left, size_t *total);

cudaError_t cudaMalloc(void **ptr, size_t bytes);
cudaError_t cudaFree(void *ptr);
cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *ptr);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src,
                              size_t src_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes,
                            cudaStream_t stream);

namespace simt
{

/** A kernel, behind what is in the stream; a fault in it fails the stream's
 *  next wait, and is printed. */
void enqueue(cudaStream_t stream, const char *kernel, unsigned blocks,
             unsigned threads, const std::function<void()> &thread);

} // namespace simt

/* ---- what kernels are written in ---- */

#define __global__
#define __device__
#define threadIdx (simt::thread_index())
#define blockIdx  (simt::block_index())
#define blockDim  (simt::block_dim())
#define gridDim   (simt::grid_dim())

template <typename T> T bt_load(const T *p)
{
    return simt::load(p);
}

template <typename T> void bt_store(T *p, T value)
{
    simt::store(p, value);
}

#define BT_SHARED(type, name, n) const simt::Shared<type> name(__COUNTER__, (n))
#define BT_UNROLL
#define BT_SYNC() simt::sync_threads(__LINE__)
#define BT_LAUNCH(kernel, blocks, threads, stream, ...)   \
    simt::enqueue((stream), #kernel, (blocks), (threads), \
                  [=] { kernel(__VA_ARGS__); })

#define __forceinline__ inline
#define __shfl_xor_sync(mask, value, lanes) \
    simt::shuffle_xor((mask), (value), (lanes), __LINE__)

struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};

struct alignas(16) float4 {
    float x, y, z, w;
};

static inline float bt_half_to_float(uint16_t half)
{
    return bt_f16_to_f32(half);
}

/** c plus the sum of the products of the four signed bytes of a and of b. */
static inline int32_t __dp4a(int32_t a, int32_t b, int32_t c)
{
    for (int i = 0; i < 32; i += 8) {
        c += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
    }
    return c;
}

/** Byte i is the one of a (0 to 3) or b (4 to 7) that bits 4 i .. 4 i + 2 of
 *  select say. */
static inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t select)
{
    const uint64_t both = a | static_cast<uint64_t>(b) << 32;
    uint32_t result = 0;

    for (unsigned i = 0; i < 4; i++) {
        const unsigned byte = select >> (4 * i) & 7;

        result |= static_cast<uint32_t>(both >> (8 * byte) & 0xff) << (8 * i);
    }
    return result;
}

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

static inline float __fsqrt_rn(float a)
{
    return std::sqrt(a);
}

#endif
