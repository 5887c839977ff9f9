/* SPDX-License-Identifier: Apache-2.0 */
/* Top k of each row in the order of top() (kernels.h). A block per row keeps
 * the best ranks (rank.h) in shared memory, in a list longer than k:
 *
 *     │◀── k, descending ──▶│◀── appended later ──▶│ free │
 *                        ▲ the threshold: ranks below it are not in the top k
 *
 * The row is read once, a step of values after the other; values above the
 * threshold are appended to the list, in any order. When a step may not find
 * space, the list is sorted, everything after the first k is dropped, and the
 * k-th is the new threshold. So few values of an ordinary row enter once the
 * threshold is set; for a row that rises throughout, the list is sorted at each
 * step. The list's order depends on thread timing, but its contents and the
 * result do not. */
#include <cmath>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/order.h"

namespace
{

const uint32_t kThreads = 512;
const uint32_t kEach = 4;                /* values per thread and step */
const uint32_t kStep = kThreads * kEach; /* values per block and step */
const uint32_t kList = 2 * kStep;        /* a power of two */

static_assert(BT_TOP_MAX <= kList - kStep, "a step finds room behind the k");

/* Values at + 512 j + t of the row, below dim. */
__device__ void take_step(const float *row, uint32_t dim, uint32_t at,
                          float (&values)[kEach])
{
    BT_UNROLL
    for (uint32_t j = 0; j < kEach; j++) {
        const uint32_t left = j * kThreads + threadIdx.x;

        values[j] = (left < dim - at) ? bt_load(row + at + left) : -INFINITY;
    }
}

/* Fills the list with the row's beginning, or with all of it. @return its
 * length */
__device__ uint32_t begin(const float *row, uint32_t dim,
                          const bt_shared<uint64_t> &list)
{
    const uint32_t n = (dim < kList) ? dim : kList;

    for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
        list.set(i, bt_rank_of(bt_load(row + i), i));
    }
    return n; /* the sort that follows waits for all threads */
}

/* Processes the rest of the row. @return length of the list */
__device__ uint32_t look_on(const float *row, uint32_t dim, uint32_t k,
                            const bt_shared<uint64_t> &list,
                            const bt_shared<uint32_t> &count)
{
    uint32_t n = kList;
    uint64_t bar = BT_RANK_NONE;
    float values[kEach];

    take_step(row, dim, kList, values);
    for (uint32_t at = kList; at < dim;) {
        const uint32_t from = at;

        if (n > kList - kStep) {
            bt_put_in_order(list, n);
            bar = list.get(k - 1);
            n = k;
        }
        if (threadIdx.x == 0) {
            count.set(0, n);
        }
        BT_SYNC(); /* including the threshold, which may be overwritten now */
        BT_UNROLL
        for (uint32_t j = 0; j < kEach; j++) {
            const uint64_t rank =
                bt_rank_of(values[j], from + j * kThreads + threadIdx.x);

            if (rank > bar) {
                list.set(atomicAdd(count.address(0), 1u), rank);
            }
        }
        at = (dim - at > kStep) ? at + kStep : dim;
        take_step(row, dim, at, values); /* while other threads append here */
        BT_SYNC();
        n = count.get(0);
        BT_SYNC();
    }
    return n;
}

/* One block per row. */
__global__ void top_kernel(const float *x, uint32_t dim, uint32_t k,
                           uint32_t *ids, float *values)
{
    BT_SHARED(uint64_t, list, kList);
    BT_SHARED(uint32_t, count, 1);
    const float *row = x + static_cast<size_t>(blockIdx.x) * dim;
    const size_t out = static_cast<size_t>(blockIdx.x) * k;
    uint32_t n = begin(row, dim, list);

    if (dim > kList) {
        n = look_on(row, dim, k, list, count);
    }
    bt_put_in_order(list, n);
    for (uint32_t j = threadIdx.x; j < k; j += kThreads) {
        const uint64_t rank = (j < n) ? list.get(j) : BT_RANK_NONE;
        const uint32_t id = bt_rank_id(rank);

        bt_store(ids + out + j, id);
        bt_store(values + out + j,
                 (rank == BT_RANK_NONE) ? -INFINITY : bt_load(row + id));
    }
}

void top(bt_backend_t *be, const float *x, uint32_t n_rows, uint32_t dim,
         uint32_t k, uint32_t *ids, float *values)
{
    if (n_rows > 0) {
        BT_LAUNCH(top_kernel, n_rows, kThreads, be, x, dim, k, ids, values);
    }
}

} // namespace

extern "C" void bt_cuda_top_ops(bt_kernels_ops_t *ops)
{
    ops->top = top;
}
