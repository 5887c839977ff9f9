/* SPDX-License-Identifier: Apache-2.0 */
/* Device, stream, buffers, the tables of a batch, and operations on rows. The
 * numeric rules of kernels.h hold: fixed order of sums, fmaf, no fast math. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/batch.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"

namespace
{

const int kLanes = 16; /* virtual lanes of rmsnorm's sum, see kernels.h */
const int kThreads = 256;

struct Backend {
    bt_backend_t base; /* first */
    bt_kernels_caps_t caps;
    char name[64];
    cudaStream_t stream;
    int device;
    bt_batch_limits_t limits;
    uint32_t *host_words; /* pinned: batches are packed here */
    uint32_t *words;      /* of the batch begun last, on the device */
    cudaEvent_t uploaded; /* host_words may be written again; NULL: none */
};

Backend *self(bt_backend_t *be)
{
    return reinterpret_cast<Backend *>(be);
}

/* Also clears CUDA's sticky last error, so that it is not blamed on a later
 * call. */
bt_status_t check(cudaError_t error)
{
    if (error == cudaSuccess) {
        return BT_OK;
    }
    (void)cudaGetLastError();
    return (error == cudaErrorMemoryAllocation) ? BT_ERR_NO_MEMORY
                                                : BT_ERR_DEVICE;
}

bt_status_t buffer_alloc(bt_backend_t *be, size_t bytes, void **ptr_p)
{
    void *ptr = nullptr;
    bt_status_t status = check(cudaMalloc(&ptr, bytes == 0 ? 1 : bytes));

    if (status != BT_OK) {
        return status;
    }
    status = check(cudaMemsetAsync(ptr, 0, bytes, self(be)->stream));
    if (status != BT_OK) {
        (void)cudaFree(ptr);
        return status;
    }
    *ptr_p = ptr;
    return BT_OK;
}

void buffer_free(bt_backend_t *be, void *ptr)
{
    (void)be;
    (void)cudaFree(ptr);
}

bt_status_t copy_in(bt_backend_t *be, void *dst, const void *src, size_t bytes)
{
    return check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice,
                                 self(be)->stream));
}

bt_status_t copy_out(bt_backend_t *be, void *dst, const void *src, size_t bytes)
{
    const bt_status_t status = check(cudaMemcpyAsync(
        dst, src, bytes, cudaMemcpyDeviceToHost, self(be)->stream));

    return (status == BT_OK) ? check(cudaStreamSynchronize(self(be)->stream))
                             : status;
}

void clear(bt_backend_t *be, void *ptr, size_t bytes)
{
    (void)cudaMemsetAsync(ptr, 0, bytes, self(be)->stream);
}

bt_status_t sync_stream(bt_backend_t *be)
{
    const bt_status_t status = check(cudaStreamSynchronize(self(be)->stream));

    return (status == BT_OK) ? check(cudaGetLastError()) : status;
}

bt_status_t memory_left(bt_backend_t *be, uint64_t *bytes_p)
{
    size_t left = 0;
    size_t total = 0;
    const bt_status_t status = check(cudaMemGetInfo(&left, &total));

    (void)be;
    if (status == BT_OK) {
        *bytes_p = left;
    }
    return status;
}

/* ---- tables of a batch ---- */

void batch_free(Backend *b)
{
    (void)cudaFree(b->words);
    (void)cudaFreeHost(b->host_words);
    if (b->uploaded != nullptr) {
        (void)cudaEventDestroy(b->uploaded);
    }
}

bt_status_t batch_reserve(bt_backend_t *be, const bt_batch_limits_t *limits)
{
    const size_t bytes = bt_batch_max_words(limits) * sizeof(uint32_t);
    Backend *b = self(be);
    Backend taken = {};
    void *ptr = nullptr;
    bt_status_t status = check(cudaMalloc(&ptr, bytes));

    taken.words = static_cast<uint32_t *>(ptr);
    if (status == BT_OK) {
        ptr = nullptr;
        status = check(cudaHostAlloc(&ptr, bytes, cudaHostAllocDefault));
        taken.host_words = static_cast<uint32_t *>(ptr);
    }
    if (status == BT_OK) {
        status = check(
            cudaEventCreateWithFlags(&taken.uploaded, cudaEventDisableTiming));
    }
    if (status != BT_OK) {
        batch_free(&taken);
        return status;
    }
    (void)cudaStreamSynchronize(b->stream); /* who reads the old ones is done */
    batch_free(b);
    b->words = taken.words;
    b->host_words = taken.host_words;
    b->uploaded = taken.uploaded;
    b->limits = *limits;
    return BT_OK;
}

/* One copy for all tables. The event is of the upload before: the words of it
 * have left the host's memory. An event that was never recorded is no wait. */
bt_status_t batch_begin(bt_backend_t *be, const bt_batch_t *batch)
{
    Backend *b = self(be);
    bt_status_t status;

    if ((b->words == nullptr) || !bt_batch_fits(batch, &b->limits)) {
        return BT_ERR_INVALID_PARAM;
    }
    status = check(cudaEventSynchronize(b->uploaded));
    if (status != BT_OK) {
        return status;
    }
    bt_batch_pack(batch, b->host_words);
    status =
        check(cudaMemcpyAsync(b->words, b->host_words,
                              bt_batch_layout(batch).n_words * sizeof(uint32_t),
                              cudaMemcpyHostToDevice, b->stream));
    return (status == BT_OK) ? check(cudaEventRecord(b->uploaded, b->stream))
                             : status;
}

/* ---- operations ---- */

/* One block per row. The sum of squares is taken by 16 virtual lanes in
 * ascending order and the pairwise tree 8, 4, 2, 1, exactly as the reference:
 * the same bits. */
__global__ void rmsnorm_kernel(const float *x, const float *weight, float eps,
                               uint32_t dim, float *out)
{
    BT_SHARED(float, lanes, kLanes);
    const float *row = x + static_cast<size_t>(blockIdx.x) * dim;
    float *out_row = out + static_cast<size_t>(blockIdx.x) * dim;
    const uint32_t t = threadIdx.x;
    float scale;

    if (t < kLanes) {
        float sum = 0.0f;

        for (uint32_t i = t; i < dim; i += kLanes) {
            const float value = bt_load(row + i);

            sum = fmaf(value, value, sum);
        }
        lanes.set(t, sum);
    }
    BT_SYNC();
    for (uint32_t half = kLanes / 2; half > 0; half /= 2) {
        if (t < half) {
            lanes.set(t, __fadd_rn(lanes.get(t), lanes.get(t + half)));
        }
        BT_SYNC();
    }
    scale = __fdiv_rn(
        1.0f, __fsqrt_rn(__fadd_rn(
                  __fdiv_rn(lanes.get(0), static_cast<float>(dim)), eps)));
    BT_SYNC(); /* out may be x */
    for (uint32_t i = t; i < dim; i += blockDim.x) {
        bt_store(out_row + i, __fmul_rn(__fmul_rn(bt_load(row + i), scale),
                                        bt_load(weight + i)));
    }
}

void rmsnorm(bt_backend_t *be, const float *x, const float *weight, float eps,
             uint32_t n_rows, uint32_t dim, float *out)
{
    if (n_rows > 0) {
        BT_LAUNCH(rmsnorm_kernel, n_rows, kThreads, self(be)->stream, x, weight,
                  eps, dim, out);
    }
}

__global__ void add_kernel(float *x, const float *y, size_t n)
{
    const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;

    if (i < n) {
        bt_store(x + i, __fadd_rn(bt_load(x + i), bt_load(y + i)));
    }
}

void add(bt_backend_t *be, float *x, const float *y, size_t n)
{
    if (n > 0) {
        BT_LAUNCH(add_kernel,
                  static_cast<unsigned>((n + kThreads - 1) / kThreads),
                  kThreads, self(be)->stream, x, y, n);
    }
}

/* One block per row of the result. */
__global__ void gather_rows_kernel(const float *x, const uint32_t *rows,
                                   uint32_t dim, float *out)
{
    const float *row =
        x + static_cast<size_t>(bt_load(rows + blockIdx.x)) * dim;
    float *out_row = out + static_cast<size_t>(blockIdx.x) * dim;

    for (uint32_t i = threadIdx.x; i < dim; i += blockDim.x) {
        bt_store(out_row + i, bt_load(row + i));
    }
}

void gather_rows(bt_backend_t *be, const float *x, const bt_batch_t *batch,
                 uint32_t dim, float *out)
{
    const uint32_t *rows = self(be)->words + bt_batch_layout(batch).logit_row;

    if (batch->n_logit_rows > 0) {
        BT_LAUNCH(gather_rows_kernel, batch->n_logit_rows, kThreads,
                  self(be)->stream, x, rows, dim, out);
    }
}

/* What fails shows at the next sync(). */
void copy_columns(bt_backend_t *be, const float *x, uint32_t n_rows,
                  uint32_t dim, float *out, uint32_t out_dim, uint32_t at)
{
    if ((n_rows > 0) && (dim > 0)) {
        (void)cudaMemcpy2DAsync(out + at, out_dim * sizeof(float), x,
                                dim * sizeof(float), dim * sizeof(float),
                                n_rows, cudaMemcpyDeviceToDevice,
                                self(be)->stream);
    }
}

/* Does (x, i) come before (y, j)? The largest first, of equals the lowest id.
 * kNone: nothing above -infinity was seen. */
const uint32_t kNone = 0xffffffffu;

__device__ bool precedes(float x, uint32_t i, float y, uint32_t j)
{
    return (i != kNone) && ((j == kNone) || (x > y) || ((x == y) && (i < j)));
}

/* One block per row, each thread every 256th value, then the tree. */
__global__ void argmax_kernel(const float *x, uint32_t dim, uint32_t *ids)
{
    BT_SHARED(float, best, kThreads);
    BT_SHARED(uint32_t, at, kThreads);
    const float *row = x + static_cast<size_t>(blockIdx.x) * dim;
    const uint32_t t = threadIdx.x;
    float mine = -INFINITY;
    uint32_t mine_at = kNone;

    for (uint32_t i = t; i < dim; i += kThreads) {
        const float value = bt_load(row + i);

        if (value > mine) { /* never of a NaN */
            mine = value;
            mine_at = i;
        }
    }
    best.set(t, mine);
    at.set(t, mine_at);
    BT_SYNC();
    for (uint32_t half = kThreads / 2; half > 0; half /= 2) {
        if ((t < half) && precedes(best.get(t + half), at.get(t + half),
                                   best.get(t), at.get(t))) {
            best.set(t, best.get(t + half));
            at.set(t, at.get(t + half));
        }
        BT_SYNC();
    }
    if (t == 0) {
        bt_store(ids + blockIdx.x, (at.get(0) == kNone) ? 0 : at.get(0));
    }
}

void argmax(bt_backend_t *be, const float *x, uint32_t n_rows, uint32_t dim,
            uint32_t *ids)
{
    if (n_rows > 0) {
        BT_LAUNCH(argmax_kernel, n_rows, kThreads, self(be)->stream, x, dim,
                  ids);
    }
}

void close_stream(bt_backend_t *be)
{
    (void)cudaStreamSynchronize(self(be)->stream);
    batch_free(self(be));
    (void)cudaStreamDestroy(self(be)->stream);
    std::free(be);
}

bt_kernels_ops_t make_ops()
{
    bt_kernels_ops_t ops;

    std::memset(&ops, 0, sizeof(ops));
    ops.buffer_alloc = buffer_alloc;
    ops.buffer_free = buffer_free;
    ops.copy_in = copy_in;
    ops.copy_out = copy_out;
    ops.clear = clear;
    ops.sync = sync_stream;
    ops.memory_left = memory_left;
    ops.batch_reserve = batch_reserve;
    ops.batch_begin = batch_begin;
    ops.rmsnorm = rmsnorm;
    ops.add = add;
    ops.gather_rows = gather_rows;
    ops.copy_columns = copy_columns;
    ops.argmax = argmax;
    ops.copier_open = bt_cuda_copier_open;
    ops.copier_close = bt_cuda_copier_close;
    ops.close = close_stream;
    return ops;
}

bt_status_t open_stream(Backend *be, const bt_backend_config_t *config)
{
    cudaDeviceProp prop;
    bt_status_t status = check(cudaSetDevice(static_cast<int>(config->device)));

    if (status != BT_OK) {
        return BT_ERR_NO_DEVICE;
    }
    status =
        check(cudaGetDeviceProperties(&prop, static_cast<int>(config->device)));
    if (status != BT_OK) {
        return BT_ERR_NO_DEVICE;
    }
    std::snprintf(be->name, sizeof(be->name), "cuda/sm_%d%d", prop.major,
                  prop.minor);
    return check(cudaStreamCreateWithFlags(&be->stream, cudaStreamNonBlocking));
}

} // namespace

extern "C" void *bt_cuda_stream(bt_backend_t *be)
{
    return self(be)->stream;
}

extern "C" int bt_cuda_device(bt_backend_t *be)
{
    return self(be)->device;
}

extern "C" bt_status_t bt_cuda_backend_open(const bt_backend_config_t *config,
                                            bt_backend_t **be_p)
{
    static const bt_kernels_ops_t ops = make_ops();
    int n_devices = 0;
    Backend *be;
    bt_status_t status;

    /* Without a driver this is cudaErrorInsufficientDriver (35). */
    if ((cudaGetDeviceCount(&n_devices) != cudaSuccess) ||
        (config->device >= static_cast<uint32_t>(n_devices))) {
        (void)cudaGetLastError();
        return BT_ERR_NO_DEVICE;
    }
    be = static_cast<Backend *>(std::calloc(1, sizeof(*be)));
    if (be == nullptr) {
        return BT_ERR_NO_MEMORY;
    }
    be->device = static_cast<int>(config->device);
    status = open_stream(be, config);
    if (status != BT_OK) {
        std::free(be);
        return status;
    }
    be->caps.name = be->name;
    be->caps.profile = "f32-seq1";
    be->caps.kv_layout = BT_KV_LAYOUT_PAIRS;
    be->caps.kv_align_bytes = 256; /* a device's transactions and copies */
    be->caps.kv_block_tokens = 2;
    be->caps.runs_ahead = true;
    be->base.ops = &ops;
    be->base.caps = &be->caps;
    *be_p = &be->base;
    return BT_OK;
}
