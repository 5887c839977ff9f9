/* SPDX-License-Identifier: Apache-2.0 */
/* Device, stream, buffers and the tables of a batch. */
#include <cuda_runtime.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/batch.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stage.h"
#include "kernels/pack/pack.h"

namespace
{

struct Backend {
    bt_backend_t base; /* first */
    bt_kernels_caps_t caps;
    char name[64];
    cudaStream_t stream;
    BtLauncher *launcher;
    int device;
    bt_batch_limits_t limits;
    uint32_t *host_words; /* pinned: batches are packed here */
    uint32_t *words;      /* of the batch begun last, on the device */
    cudaEvent_t uploaded; /* host_words may be written again; NULL: none */
    BtStage *stage;       /* NULL: nothing was uploaded yet */
    void *scratch;
    size_t scratch_bytes;
    uint32_t n_threads;
    uint32_t max_rows;
    bt_numerics_t numerics;
};

Backend *self(bt_backend_t *be)
{
    return reinterpret_cast<Backend *>(be);
}

/* All operations so far are in it. */
cudaStream_t stream_of(bt_backend_t *be)
{
    bt_launcher_flush(self(be)->launcher);
    return self(be)->stream;
}

bt_status_t take_memory(size_t bytes, void **ptr_p)
{
    void *ptr = nullptr;
    const bt_status_t status =
        bt_cuda_check(cudaMalloc(&ptr, bytes == 0 ? 1 : bytes));

    if (status == BT_OK) {
        *ptr_p = ptr;
    }
    return status;
}

bt_status_t buffer_alloc(bt_backend_t *be, size_t bytes, void **ptr_p)
{
    void *ptr = nullptr;
    bt_status_t status = take_memory(bytes, &ptr);

    if (status != BT_OK) {
        return status;
    }
    /* Zeroed in order with all streams: a copier's data may arrive first. */
    status = bt_cuda_check(cudaMemsetAsync(ptr, 0, bytes, self(be)->stream));
    if (status == BT_OK) {
        status = bt_cuda_check(cudaStreamSynchronize(self(be)->stream));
    }
    if (status != BT_OK) {
        (void)cudaFree(ptr);
        return status;
    }
    *ptr_p = ptr;
    return BT_OK;
}

void buffer_free(bt_backend_t *be, void *ptr)
{
    (void)stream_of(be); /* users of the buffer may be in flight, cudaFree()
                          * waits */
    (void)cudaFree(ptr);
}

bt_status_t copy_in(bt_backend_t *be, void *dst, const void *src, size_t bytes)
{
    return bt_cuda_check(cudaMemcpyAsync(
        dst, src, bytes, cudaMemcpyHostToDevice, stream_of(be)));
}

bt_status_t sync_stream(bt_backend_t *be)
{
    const bt_status_t status =
        bt_cuda_check(cudaStreamSynchronize(stream_of(be)));
    const bt_status_t of_calls = bt_cuda_take_error(be);

    return (status == BT_OK) ? of_calls : status;
}

bt_status_t copy_out(bt_backend_t *be, void *dst, const void *src, size_t bytes)
{
    const bt_status_t status = bt_cuda_check(cudaMemcpyAsync(
        dst, src, bytes, cudaMemcpyDeviceToHost, stream_of(be)));

    return (status == BT_OK) ? sync_stream(be) : status;
}

void clear(bt_backend_t *be, void *ptr, size_t bytes)
{
    (void)cudaMemsetAsync(ptr, 0, bytes, stream_of(be));
}

bt_status_t memory_left(bt_backend_t *be, uint64_t *bytes_p)
{
    size_t left = 0;
    size_t total = 0;
    const bt_status_t status = bt_cuda_check(cudaMemGetInfo(&left, &total));

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
    bt_status_t status = bt_cuda_check(cudaMalloc(&ptr, bytes));

    taken.words = static_cast<uint32_t *>(ptr);
    if (status == BT_OK) {
        ptr = nullptr;
        status =
            bt_cuda_check(cudaHostAlloc(&ptr, bytes, cudaHostAllocDefault));
        taken.host_words = static_cast<uint32_t *>(ptr);
    }
    if (status == BT_OK) {
        status = bt_cuda_check(
            cudaEventCreateWithFlags(&taken.uploaded, cudaEventDisableTiming));
    }
    if (status != BT_OK) {
        batch_free(&taken);
        return status;
    }
    (void)cudaStreamSynchronize(
        stream_of(be)); /* the reader of the old ones is done */
    batch_free(b);
    b->words = taken.words;
    b->host_words = taken.host_words;
    b->uploaded = taken.uploaded;
    b->limits = *limits;
    return BT_OK;
}

/* One copy for all tables. The event belongs to the previous upload, whose
 * words have then left host memory. An event that was never recorded does not
 * wait. */
bt_status_t batch_begin(bt_backend_t *be, const bt_batch_t *batch)
{
    Backend *b = self(be);
    bt_status_t status;

    if ((b->words == nullptr) || !bt_batch_fits(batch, &b->limits)) {
        return BT_ERR_INVALID_PARAM;
    }
    bt_launcher_flush(b->launcher); /* of the previous step, with its tables */
    status = bt_cuda_check(cudaEventSynchronize(b->uploaded));
    if (status != BT_OK) {
        return status;
    }
    bt_batch_pack(batch, b->host_words);
    status = bt_cuda_check(
        cudaMemcpyAsync(b->words, b->host_words,
                        bt_batch_layout(batch).n_words * sizeof(uint32_t),
                        cudaMemcpyHostToDevice, b->stream));
    return (status == BT_OK)
               ? bt_cuda_check(cudaEventRecord(b->uploaded, b->stream))
               : status;
}

void close_stream(bt_backend_t *be)
{
    (void)cudaStreamSynchronize(stream_of(be));
    bt_launcher_destroy(self(be)->launcher);
    batch_free(self(be));
    (void)cudaFree(self(be)->scratch);
    bt_stage_destroy(self(be)->stage);
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
    bt_cuda_rows_ops(&ops);
    bt_cuda_top_ops(&ops);
    bt_cuda_draw_ops(&ops);
    bt_cuda_experts_ops(&ops);
    bt_cuda_matmul_experts_ops(&ops);
    bt_cuda_score_ops(&ops);
    bt_cuda_kv_ops(&ops);
    bt_cuda_lora_ops(&ops);
    bt_cuda_weights_ops(&ops);
    bt_cuda_attention_ops(&ops);
    ops.copier_open = bt_cuda_copier_open;
    ops.copier_close = bt_cuda_copier_close;
    ops.returns_open = bt_cuda_returns_open;
    ops.returns_close = bt_cuda_returns_close;
    bt_cuda_coll_ops(&ops);
    bt_cuda_workload_ops(&ops);
    ops.close = close_stream;
    return ops;
}

/* ---- the device ---- */

const int kLeastMajor = 8; /* sm_80: asynchronous copies, products of bytes */

__attribute__((format(printf, 2, 3))) bt_status_t
no_device(const bt_backend_config_t *config, const char *format, ...)
{
    va_list args;

    (void)cudaGetLastError();
    if (config->why != nullptr) {
        va_start(args, format);
        std::vsnprintf(config->why, config->why_bytes, format, args);
        va_end(args);
    }
    return BT_ERR_NO_DEVICE;
}

/* Used where the driver cannot be queried. */
bt_status_t no_driver(const bt_backend_config_t *config)
{
    int driver = 0;
    int runtime = 0;

    (void)cudaDriverGetVersion(&driver); /* 0: there is none */
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0) {
        return no_device(config, "this host has no NVIDIA driver");
    }
    return no_device(config,
                     "the NVIDIA driver of this host is for CUDA %d.%d, this "
                     "build needs one for %d.%d",
                     driver / 1000, driver % 1000 / 10, runtime / 1000,
                     runtime % 1000 / 10);
}

bt_status_t check_count(const bt_backend_config_t *config)
{
    const char *visible = std::getenv("CUDA_VISIBLE_DEVICES");
    int n = 0;
    const cudaError_t error = cudaGetDeviceCount(&n);

    if (error == cudaErrorInsufficientDriver) {
        return no_driver(config);
    }
    if ((error == cudaErrorNoDevice) || ((error == cudaSuccess) && (n == 0))) {
        return no_device(config, "the NVIDIA driver shows no device%s%s",
                         (visible == nullptr) ? "" : ": CUDA_VISIBLE_DEVICES=",
                         (visible == nullptr) ? "" : visible);
    }
    if (error != cudaSuccess) {
        return no_device(config, "%s", cudaGetErrorString(error));
    }
    if (config->device >= static_cast<uint32_t>(n)) {
        return no_device(config, "device %u is not there: %d are",
                         config->device, n);
    }
    return BT_OK;
}

bt_status_t take_device(Backend *be, const bt_backend_config_t *config)
{
    const int device = static_cast<int>(config->device);
    cudaDeviceProp prop;
    cudaError_t error = cudaSetDevice(device);

    if (error == cudaSuccess) {
        error = cudaGetDeviceProperties(&prop, device);
    }
    if (error != cudaSuccess) {
        return no_device(config, "device %u: %s", config->device,
                         cudaGetErrorString(error));
    }
    if (prop.major < kLeastMajor) {
        return no_device(
            config, "device %u, %s, is an sm_%d%d; sm_%d0 is the least",
            config->device, prop.name, prop.major, prop.minor, kLeastMajor);
    }
    be->device = device;
    std::snprintf(be->name, sizeof(be->name), "cuda/sm_%d%d", prop.major,
                  prop.minor);
    return BT_OK;
}

bt_status_t open_stream(Backend *be, const bt_backend_config_t *config)
{
    bt_status_t status = check_count(config);

    if (status == BT_OK) {
        status = take_device(be, config);
    }
    if (status != BT_OK) {
        return status;
    }
    status = bt_cuda_check(
        cudaStreamCreateWithFlags(&be->stream, cudaStreamNonBlocking));
    if (status != BT_OK) {
        return status;
    }
    be->launcher = bt_launcher_create(be->stream);
    if (be->launcher == nullptr) {
        (void)cudaStreamDestroy(be->stream);
        return BT_ERR_NO_MEMORY;
    }
    return BT_OK;
}

} // namespace

extern "C" void *bt_cuda_stream(bt_backend_t *be)
{
    return stream_of(be);
}

BtLauncher *bt_cuda_launcher(bt_backend_t *be)
{
    return self(be)->launcher;
}

/* A failed launch returns nothing: without a check of the last error, the old
 * contents would be taken for its result. */
extern "C" bt_status_t bt_cuda_take_error(bt_backend_t *be)
{
    const bt_status_t of_calls =
        bt_cuda_check(bt_launcher_take_error(self(be)->launcher));

    return (of_calls == BT_OK) ? bt_cuda_check(cudaGetLastError()) : of_calls;
}

extern "C" uint32_t *bt_cuda_words(bt_backend_t *be)
{
    return self(be)->words;
}

extern "C" uint32_t bt_cuda_threads(bt_backend_t *be)
{
    return self(be)->n_threads;
}

extern "C" uint32_t bt_cuda_max_rows(bt_backend_t *be)
{
    return self(be)->max_rows;
}

extern "C" bt_numerics_t bt_cuda_numerics(bt_backend_t *be)
{
    return self(be)->numerics;
}

extern "C" void *bt_cuda_scratch(bt_backend_t *be)
{
    return self(be)->scratch;
}

extern "C" size_t bt_cuda_scratch_bytes(bt_backend_t *be)
{
    return self(be)->scratch_bytes;
}

extern "C" bt_status_t bt_cuda_scratch_reserve(bt_backend_t *be, size_t bytes)
{
    Backend *b = self(be);
    void *ptr = nullptr;
    bt_status_t status;

    if (bytes <= b->scratch_bytes) {
        return BT_OK;
    }
    status = bt_cuda_check(cudaMalloc(&ptr, bytes));
    if (status != BT_OK) {
        return status;
    }
    (void)cudaStreamSynchronize(
        stream_of(be)); /* the user of the old one is done */
    (void)cudaFree(b->scratch);
    b->scratch = ptr;
    b->scratch_bytes = bytes;
    return BT_OK;
}

extern "C" bt_status_t bt_cuda_upload(bt_backend_t *be, const void *src,
                                      size_t bytes, void **ptr_p)
{
    Backend *b = self(be);
    void *ptr = nullptr;
    bt_status_t status = take_memory(bytes, &ptr);

    if (status != BT_OK) {
        return status;
    }
    if (b->stage == nullptr) {
        b->stage = bt_stage_create();
    }
    status = (b->stage == nullptr)
                 ? copy_in(be, ptr, src, bytes)
                 : bt_stage_copy(b->stage, stream_of(be), ptr, src, bytes);
    if (status != BT_OK) {
        buffer_free(be, ptr);
        return status;
    }
    *ptr_p = ptr;
    return BT_OK;
}

extern "C" int bt_cuda_device(bt_backend_t *be)
{
    return self(be)->device;
}

extern "C" bt_status_t bt_cuda_backend_open(const bt_backend_config_t *config,
                                            bt_backend_t **be_p)
{
    static const bt_kernels_ops_t ops = make_ops();
    Backend *be;
    bt_status_t status;

    be = static_cast<Backend *>(std::calloc(1, sizeof(*be)));
    if (be == nullptr) {
        return BT_ERR_NO_MEMORY;
    }
    be->n_threads = (config->n_threads == 0) ? 1 : config->n_threads;
    be->max_rows = config->max_rows;
    be->numerics = config->numerics;
    status = open_stream(be, config);
    if (status != BT_OK) {
        std::free(be);
        return status;
    }
    be->caps.name = be->name;
    be->caps.profile = (be->numerics == BT_NUMERICS_TENSOR) ? BT_PROFILE_TENSOR
                                                            : BT_PROFILE_EXACT;
    be->caps.weight_types = BT_PACK_TYPES;
    be->caps.kv_types =
        1u << BT_KV_F16 | 1u << BT_KV_BF16 | 1u << BT_KV_INT8 | 1u << BT_KV_FP8;
    be->caps.max_head_dim = 256;
    be->caps.pack_version = BT_PACK_VERSION;
    be->caps.attention = BT_ATTENTION_WINDOW | BT_ATTENTION_SOFT_CAP |
                         BT_ATTENTION_SINKS | BT_ATTENTION_SLOPES;
    be->caps.kv_layout = BT_KV_LAYOUT_PAIRS;
    be->caps.kv_align_bytes = 256; /* a device's transactions and copies */
    be->caps.kv_block_tokens = 2;
    be->caps.runs_ahead = true;
    be->caps.takes_codes = true;
    be->base.ops = &ops;
    be->base.caps = &be->caps;
    *be_p = &be->base;
    return BT_OK;
}
