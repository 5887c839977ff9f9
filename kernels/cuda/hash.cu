/* SPDX-License-Identifier: Apache-2.0 */
/* A thread takes pairs of words with a stride of 256 pairs, so that the 32
 * pairs of a warp are adjacent. */
#include "kernels/cuda/hash.h"

#include "kernels/cuda/device.h"
#include "kernels/device_hash.h"

namespace
{

const uint32_t kThreads = 256;
const uint32_t kWarps = kThreads / 32;
const uint32_t kPairBytes = 16;
const uint32_t kPairs = BT_CUDA_HASH_CHUNK / kPairBytes / kThreads;
const uint32_t kAllLanes = 0xffffffffu;

struct Range {
    uint8_t *to; /* NULL: nothing is copied */
    const uint8_t *from;
    uint32_t bytes;
    uint64_t seed;
};

__device__ __forceinline__ bool is_multiple(const void *p, uintptr_t of)
{
    return reinterpret_cast<uintptr_t>(p) % of == 0;
}

__device__ __forceinline__ uint64_t term_of(const Range &r, uint32_t low,
                                            uint32_t high, uint32_t word)
{
    return bt_device_hash_term(static_cast<uint64_t>(high) << 32 | low, word,
                               r.seed);
}

__device__ __forceinline__ uint64_t terms_of(const Range &r, uint4 v,
                                             uint32_t pair)
{
    return term_of(r, v.x, v.y, 2 * pair) + term_of(r, v.z, v.w, 2 * pair + 1);
}

/* Loads four bytes at @a at, or fewer at the end, zero-padded. */
__device__ uint32_t take_word(const Range &r, uint32_t at)
{
    uint32_t word = 0;

    if (at + 4 <= r.bytes) {
        word = bt_load(reinterpret_cast<const uint32_t *>(r.from + at));
        if (r.to != nullptr) {
            bt_store(reinterpret_cast<uint32_t *>(r.to + at), word);
        }
        return word;
    }
    for (uint32_t k = 0; at + k < r.bytes; k++) {
        const uint8_t byte = bt_load(r.from + at + k);

        word |= static_cast<uint32_t>(byte) << (8 * k);
        if (r.to != nullptr) {
            bt_store(r.to + at + k, byte);
        }
    }
    return word;
}

/* Loads a partial or unaligned pair. Its second word may have no bytes, and
 * then it adds nothing. */
__device__ uint64_t take_pair(const Range &r, uint32_t pair)
{
    const uint32_t at = pair * kPairBytes;
    uint64_t sum = 0;

    if (at < r.bytes) {
        const uint32_t low = take_word(r, at);

        sum = term_of(r, low, take_word(r, at + 4), 2 * pair);
    }
    if (at + 8 < r.bytes) {
        const uint32_t low = take_word(r, at + 8);

        sum += term_of(r, low, take_word(r, at + 12), 2 * pair + 1);
    }
    return sum;
}

__device__ __forceinline__ uint64_t take_whole(const Range &r, uint32_t pair)
{
    uint4 v[kPairs];
    uint64_t sum = 0;

    BT_UNROLL
    for (uint32_t k = 0; k < kPairs; k++) {
        v[k] = bt_load(reinterpret_cast<const uint4 *>(r.from) + pair +
                       k * kThreads);
    }
    BT_UNROLL
    for (uint32_t k = 0; k < kPairs; k++) {
        if (r.to != nullptr) {
            bt_store(reinterpret_cast<uint4 *>(r.to) + pair + k * kThreads,
                     v[k]);
        }
        sum += terms_of(r, v[k], pair + k * kThreads);
    }
    return sum;
}

__global__ void hash_kernel(Range r, uint64_t *sums)
{
    BT_SHARED(uint64_t, warps, kWarps);
    const uint32_t t = threadIdx.x;
    const uint32_t first = blockIdx.x * kPairs * kThreads + t;
    const bool is_whole = ((blockIdx.x + 1) * BT_CUDA_HASH_CHUNK <= r.bytes) &&
                          is_multiple(r.from, kPairBytes) &&
                          is_multiple(r.to, kPairBytes);
    uint64_t sum = 0;

    if (is_whole) {
        sum = take_whole(r, first);
    } else {
        BT_NO_UNROLL
        for (uint32_t k = 0; k < kPairs; k++) {
            sum += take_pair(r, first + k * kThreads);
        }
    }
    BT_UNROLL
    for (uint32_t lanes = 16; lanes > 0; lanes /= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, lanes);
    }
    if (t % 32 == 0) {
        warps.set(t / 32, sum);
    }
    BT_SYNC();
    if (t == 0) {
        sum = 0;
        for (uint32_t i = 0; i < kWarps; i++) {
            sum += warps.get(i);
        }
        bt_store(sums + blockIdx.x, sum);
    }
}

} // namespace

cudaError_t bt_cuda_hash(void *to, const void *from, size_t bytes,
                         uint64_t seed, cudaStream_t stream, uint64_t *sums,
                         uint32_t *n_sums_p)
{
    const uint32_t n_blocks = static_cast<uint32_t>(
        (bytes + BT_CUDA_HASH_CHUNK - 1) / BT_CUDA_HASH_CHUNK);
    const BtCall<Range, uint64_t *> call = {
        hash_kernel, "hash_kernel", n_blocks, kThreads,
        std::make_tuple(Range{static_cast<uint8_t *>(to),
                              static_cast<const uint8_t *>(from),
                              static_cast<uint32_t>(bytes), seed},
                        sums)};
    cudaError_t error;

    (void)cudaGetLastError();
    error = bt_run_call<Range, uint64_t *>(&call, stream);
    if (error == cudaSuccess) {
        error = cudaGetLastError();
    }
    if (error == cudaSuccess) {
        *n_sums_p = n_blocks;
    }
    return error;
}
