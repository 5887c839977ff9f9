/* SPDX-License-Identifier: Apache-2.0 */
/* Adds the parts of a sum, which all ranks have, in the order of coll_shm.h:
 * every rank gets the same bits, equal to those of CPU ranks. */
#include <cuda_runtime.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"

namespace
{

const uint32_t kThreads = 256;

/* Sum of value i of parts 0 .. n - 1, stored @a stride apart: recursively by
 * halves of the list, of which the first is the shorter. */
template <uint32_t n>
__device__ __forceinline__ float tree_of(const float *parts, size_t stride)
{
    if constexpr (n == 1) {
        return bt_load(parts);
    } else {
        const float first = tree_of<n / 2>(parts, stride);

        return __fadd_rn(first,
                         tree_of<n - n / 2>(parts + n / 2 * stride, stride));
    }
}

template <uint32_t n>
__global__ void sum_kernel(const float *parts, size_t n_each, float *out)
{
    const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;

    if (i < n_each) {
        bt_store(out + i, tree_of<n>(parts + i, n_each));
    }
}

/* Launches the kernel for the number of parts, at most n. */
template <uint32_t n>
void launch(bt_backend_t *be, const float *parts, uint32_t n_parts,
            size_t n_each, float *out)
{
    const uint32_t n_blocks =
        static_cast<uint32_t>((n_each + kThreads - 1) / kThreads);

    if (n_parts == n) {
        BT_LAUNCH(sum_kernel<n>, n_blocks, kThreads, be, parts, n_each, out);
        return;
    }
    if constexpr (n > 2) {
        launch<n - 1>(be, parts, n_parts, n_each, out);
    }
}

} // namespace

extern "C" void bt_cuda_sum_parts(bt_backend_t *be, const float *parts,
                                  uint32_t n_parts, size_t n_each, float *out)
{
    launch<BT_CUDA_MAX_RANKS>(be, parts, n_parts, n_each, out);
}
