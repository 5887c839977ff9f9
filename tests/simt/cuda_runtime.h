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
#include <type_traits>

#include "kernels/half.h"
#include "tests/simt/async.h"
#include "tests/simt/machine.h"
#include "tests/simt/tensor.h"
#include "tests/simt/warp.h"

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorMapBufferObjectFailed = 205,
    cudaErrorPeerAccessUnsupported = 217,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
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
const unsigned cudaIpcMemLazyEnablePeerAccess = 1;

enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };

struct SimtStream;
struct SimtEvent;
struct SimtGraph;
typedef SimtStream *cudaStream_t;
typedef SimtEvent *cudaEvent_t;
typedef SimtGraph *cudaGraph_t;
typedef SimtGraph *cudaGraphExec_t;

struct cudaDeviceProp {
    char name[256];
    int major, minor;
};

cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device);
cudaError_t cudaGetLastError();
cudaError_t cudaMemGetInfo(size_t *left, size_t *total);

cudaError_t cudaMalloc(void **ptr, size_t bytes);
cudaError_t cudaFree(void *ptr);
/* Of an allocation as a whole; opened by other processes of this host, as often
 * as they like, until it is freed. */
struct cudaIpcMemHandle_t {
    char reserved[64];
};

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr);
cudaError_t cudaIpcOpenMemHandle(void **ptr, cudaIpcMemHandle_t handle,
                                 unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void *ptr);
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
cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
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

template <typename T>
T bt_load(const T *p, const simt::Place &place = BT_SIMT_HERE)
{
    return simt::load(p, place);
}

template <typename T>
void bt_store(T *p, T value, const simt::Place &place = BT_SIMT_HERE)
{
    simt::store(p, value, place);
}

#define BT_SHARED(type, name, n) const simt::Shared<type> name(__COUNTER__, (n))
#define BT_UNROLL
#define BT_NO_UNROLL
#define BT_BOUNDS(threads, blocks)
#define BT_SYNC()       simt::sync_threads(__LINE__)
#define __forceinline__ inline

template <typename T> using bt_shared = simt::Shared<T>;

static inline float bt_half_to_float(uint16_t half)
{
    return bt_f16_to_f32(half);
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

/* ---- vectors: one access each ---- */

struct alignas(8) int2 {
    int x, y;
};

struct alignas(16) int4 {
    int x, y, z, w;
};

struct alignas(8) uint2 {
    unsigned x, y;
};

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

struct alignas(8) float2 {
    float x, y;
};

struct alignas(16) float4 {
    float x, y, z, w;
};

static inline int2 make_int2(int x, int y)
{
    return int2{x, y};
}

static inline int4 make_int4(int x, int y, int z, int w)
{
    return int4{x, y, z, w};
}

static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return uint2{x, y};
}

static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return uint4{x, y, z, w};
}

static inline float2 make_float2(float x, float y)
{
    return float2{x, y};
}

static inline float4 make_float4(float x, float y, float z, float w)
{
    return float4{x, y, z, w};
}

/* ---- of a warp ---- */

#define __shfl_xor_sync(mask, value, lanes) \
    simt::shuffle_xor((mask), (value), (lanes), __LINE__)

template <typename T>
T __shfl_sync(unsigned mask, T value, int from, int line = __builtin_LINE())
{
    return simt::shuffle_from(mask, value, static_cast<unsigned>(from), line);
}

static inline unsigned __ballot_sync(unsigned mask, int vote,
                                     int line = __builtin_LINE())
{
    return simt::ballot(mask, vote != 0, line);
}

static inline int __any_sync(unsigned mask, int vote,
                             int line = __builtin_LINE())
{
    return (simt::ballot(mask, vote != 0, line) != 0) ? 1 : 0;
}

static inline int __all_sync(unsigned mask, int vote,
                             int line = __builtin_LINE())
{
    return (simt::ballot(mask, vote == 0, line) == 0) ? 1 : 0;
}

static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu,
                              int line = __builtin_LINE())
{
    simt::sync_warp(mask, line);
}

/* ---- on words that threads share ---- */

template <typename T>
T atomicAdd(T *p, T value, const simt::Place &place = BT_SIMT_HERE)
{
    return simt::atomically(
        p, [=](T before) { return static_cast<T>(before + value); }, place);
}

template <typename T>
T atomicMax(T *p, T value, const simt::Place &place = BT_SIMT_HERE)
{
    static_assert(std::is_integral<T>::value, "there is none for floats");
    return simt::atomically(
        p, [=](T before) { return (before > value) ? before : value; }, place);
}

/* ---- on four bytes ---- */

static inline unsigned bt_simt_byte(unsigned word, unsigned i)
{
    return (word >> (8 * i)) & 0xff;
}

/* c + a0 b0 + a1 b1 + a2 b2 + a3 b3, of signed bytes, without an end. */
static inline int __dp4a(int a, int b, int c)
{
    unsigned sum = static_cast<unsigned>(c);

    for (unsigned i = 0; i < 4; i++) {
        const int x =
            static_cast<int8_t>(bt_simt_byte(static_cast<unsigned>(a), i));
        const int y =
            static_cast<int8_t>(bt_simt_byte(static_cast<unsigned>(b), i));

        sum += static_cast<unsigned>(x * y);
    }
    return static_cast<int>(sum);
}

static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (unsigned i = 0; i < 4; i++) {
        c += bt_simt_byte(a, i) * bt_simt_byte(b, i);
    }
    return c;
}

/* Byte i: that of number (selector >> 4 i) & 7 of y:x. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    unsigned out = 0;

    if ((selector & 0x8888) != 0) {
        simt::fault("__byte_perm: a selector above 7");
    }
    for (unsigned i = 0; i < 4; i++) {
        const unsigned from = (selector >> (4 * i)) & 7;

        out |= bt_simt_byte((from < 4) ? x : y, from % 4) << (8 * i);
    }
    return out;
}

/* Products of two bfloat16 are exact as floats. */
static inline uint32_t bt_mul_bf16(uint32_t a, uint32_t b)
{
    const auto half = [](uint32_t x, uint32_t y) {
        return bt_f32_to_bf16(bt_bf16_to_f32(static_cast<uint16_t>(x)) *
                              bt_bf16_to_f32(static_cast<uint16_t>(y)));
    };

    return half(a, b) | static_cast<uint32_t>(half(a >> 16, b >> 16)) << 16;
}

/* ---- matrices, and copies behind a thread's back (device.h) ---- */

static inline void bt_mma_s8(int32_t (&d)[4], const uint32_t (&a)[2],
                             uint32_t b, const int32_t (&c)[4],
                             int line = __builtin_LINE())
{
    simt::mma_s8(d, a, b, c, line);
}

static inline void bt_mma_bf16(float (&d)[4], const uint32_t (&a)[4],
                               const uint32_t (&b)[2], const float (&c)[4],
                               int line = __builtin_LINE())
{
    simt::mma_bf16(d, a, b, c, line);
}

static inline void bt_mma_f16(float (&d)[4], const uint32_t (&a)[4],
                              const uint32_t (&b)[2], const float (&c)[4],
                              int line = __builtin_LINE())
{
    simt::mma_f16(d, a, b, c, line);
}

template <unsigned n>
void bt_ldmatrix(uint32_t (&r)[n], const void *row,
                 const simt::Place &place = BT_SIMT_HERE)
{
    static_assert((n == 1) || (n == 2) || (n == 4), "as the device has it");
    simt::load_matrices(r, n, false, row, place);
}

template <unsigned n>
void bt_ldmatrix_trans(uint32_t (&r)[n], const void *row,
                       const simt::Place &place = BT_SIMT_HERE)
{
    static_assert((n == 1) || (n == 2) || (n == 4), "as the device has it");
    simt::load_matrices(r, n, true, row, place);
}

template <unsigned bytes>
void bt_copy_async(void *shared, const void *global, unsigned valid = bytes,
                   const simt::Place &place = BT_SIMT_HERE)
{
    simt::copy_async(shared, global, bytes, valid, place);
}

static inline void bt_copy_commit()
{
    simt::copy_commit();
}

template <unsigned n> void bt_copy_wait()
{
    simt::copy_wait(n);
}

#endif
