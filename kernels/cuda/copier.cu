/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/copier.h: one stream in each direction, because a device has a copy
 * engine for each, one stream for copies from device to device, and one event
 * per ticket. */
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/hash.h"
#include "kernels/device_hash.h"

namespace
{

struct Copier {
    int device;
    cudaStream_t to_host, to_device, across;
    uint32_t n_events;
    cudaEvent_t *events; /* by ticket */
    /* BT_CUDA_HASH_SUMS by ticket, and how many there are. */
    uint64_t *sums, *host_sums;
    uint32_t *n_sums;
    const char *why_not;
};

/* Contents of a handle; the rest is zeros. */
struct Handle {
    uint32_t magic, hash_version;
    cudaIpcMemHandle_t of_cuda;
};

static_assert(sizeof(Handle) <= BT_COPIER_HANDLE_BYTES, "room for it");

const uint32_t kMagic = 0x43495442; /* "BTIC" */
const size_t kSumBytes = BT_CUDA_HASH_SUMS * sizeof(uint64_t);

Copier *self(void *user)
{
    return static_cast<Copier *>(user);
}

bt_status_t host_alloc(void *user, size_t bytes, void **ptr_p)
{
    void *ptr = nullptr;
    bt_status_t status = bt_cuda_check(cudaSetDevice(self(user)->device));

    if (status == BT_OK) {
        status =
            bt_cuda_check(cudaHostAlloc(&ptr, bytes, cudaHostAllocDefault));
    }
    if (status == BT_OK) {
        *ptr_p = ptr;
    }
    return status;
}

void host_free(void *user, void *ptr)
{
    (void)user;
    (void)cudaFreeHost(ptr);
}

/* Assigns the work submitted to the stream so far to the ticket. */
bt_status_t mark(Copier *c, cudaStream_t stream, uint32_t ticket)
{
    const bt_status_t status =
        bt_cuda_check(cudaEventRecord(c->events[ticket], stream));

    if (status != BT_OK) {
        /* The copy was begun, but no event will report its end. */
        (void)cudaStreamSynchronize(stream);
        (void)cudaGetLastError();
    }
    return status;
}

bt_status_t begin(Copier *c, void *dst, const void *src, size_t bytes,
                  cudaMemcpyKind kind, cudaStream_t stream, uint32_t ticket)
{
    bt_status_t status = bt_cuda_check(cudaSetDevice(c->device));

    if (status == BT_OK) {
        status = bt_cuda_check(cudaMemcpyAsync(dst, src, bytes, kind, stream));
    }
    return (status == BT_OK) ? mark(c, stream, ticket) : status;
}

bt_status_t to_host(void *user, void *host, const void *device, size_t bytes,
                    uint32_t ticket)
{
    return begin(self(user), host, device, bytes, cudaMemcpyDeviceToHost,
                 self(user)->to_host, ticket);
}

bt_status_t to_device(void *user, void *device, const void *host, size_t bytes,
                      uint32_t ticket)
{
    return begin(self(user), device, host, bytes, cudaMemcpyHostToDevice,
                 self(user)->to_device, ticket);
}

void wait_all(void *user)
{
    (void)cudaStreamSynchronize(self(user)->to_host);
    (void)cudaStreamSynchronize(self(user)->to_device);
    (void)cudaStreamSynchronize(self(user)->across);
    (void)cudaGetLastError();
}

bt_status_t query(void *user, uint32_t ticket)
{
    const cudaError_t error = cudaEventQuery(self(user)->events[ticket]);

    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return BT_INPROGRESS;
    }
    if (error != cudaSuccess) {
        wait_all(user); /* it has ended, whichever operation failed */
    }
    return bt_cuda_check(error);
}

/* ---- shared memory of devices ---- */

bt_status_t refused(Copier *c, cudaError_t error)
{
    c->why_not = cudaGetErrorString(error);
    (void)cudaGetLastError();
    return BT_ERR_UNSUPPORTED;
}

bt_status_t share(void *user, void *buffer,
                  uint8_t handle[BT_COPIER_HANDLE_BYTES])
{
    Copier *c = self(user);
    Handle made = {kMagic, BT_DEVICE_HASH_VERSION, {}};
    cudaError_t error = cudaSetDevice(c->device);

    if (error == cudaSuccess) {
        error = cudaIpcGetMemHandle(&made.of_cuda, buffer);
    }
    if (error != cudaSuccess) {
        return refused(c, error);
    }
    std::memset(handle, 0, BT_COPIER_HANDLE_BYTES);
    std::memcpy(handle, &made, sizeof(made));
    return BT_OK;
}

bt_status_t open_shared(void *user,
                        const uint8_t handle[BT_COPIER_HANDLE_BYTES],
                        void **buffer_p)
{
    Copier *c = self(user);
    void *buffer = nullptr;
    cudaError_t error;
    Handle of;

    std::memcpy(&of, handle, sizeof(of));
    if ((of.magic != kMagic) || (of.hash_version != BT_DEVICE_HASH_VERSION)) {
        c->why_not = "it is of another kind of device, or of another build";
        return BT_ERR_UNSUPPORTED;
    }
    error = cudaSetDevice(c->device);
    if (error == cudaSuccess) {
        error = cudaIpcOpenMemHandle(&buffer, of.of_cuda,
                                     cudaIpcMemLazyEnablePeerAccess);
    }
    if (error != cudaSuccess) {
        return refused(c, error);
    }
    *buffer_p = buffer;
    return BT_OK;
}

void close_shared(void *user, void *buffer)
{
    (void)cudaSetDevice(self(user)->device);
    (void)cudaIpcCloseMemHandle(buffer);
    (void)cudaGetLastError();
}

const char *why_not(void *user)
{
    return self(user)->why_not;
}

bt_status_t between(void *user, void *to, const void *from, size_t bytes,
                    uint64_t seed, uint32_t ticket)
{
    Copier *c = self(user);
    uint64_t *sums = c->sums + ticket * BT_CUDA_HASH_SUMS;
    bt_status_t status;

    /* Offsets come from peers; an unaligned one would end the context. */
    if (((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) %
         sizeof(uint32_t)) != 0) {
        return BT_ERR_INVALID_PARAM;
    }
    status = bt_cuda_check(cudaSetDevice(c->device));
    if (status == BT_OK) {
        status = bt_cuda_check(bt_cuda_hash(to, from, bytes, seed, c->across,
                                            sums, &c->n_sums[ticket]));
    }
    if (status != BT_OK) {
        return status;
    }
    status = bt_cuda_check(cudaMemcpyAsync(
        c->host_sums + ticket * BT_CUDA_HASH_SUMS, sums,
        c->n_sums[ticket] * sizeof(*sums), cudaMemcpyDeviceToHost, c->across));
    if (status != BT_OK) {
        /* As in mark(): the kernel was begun. */
        (void)cudaStreamSynchronize(c->across);
        (void)cudaGetLastError();
        return status;
    }
    return mark(c, c->across, ticket);
}

bt_status_t hash(void *user, const void *device, size_t bytes, uint64_t seed,
                 uint32_t ticket)
{
    return between(user, nullptr, device, bytes, seed, ticket);
}

uint64_t hashed(void *user, uint32_t ticket)
{
    const Copier *c = self(user);
    uint64_t sum = 0;

    for (uint32_t i = 0; i < c->n_sums[ticket]; i++) {
        sum += c->host_sums[ticket * BT_CUDA_HASH_SUMS + i];
    }
    return sum;
}

/* ---- open and close ---- */

void release(Copier *c)
{
    for (uint32_t i = 0; i < c->n_events; i++) {
        (void)cudaEventDestroy(c->events[i]);
    }
    if (c->to_host != nullptr) {
        (void)cudaStreamDestroy(c->to_host);
    }
    if (c->to_device != nullptr) {
        (void)cudaStreamDestroy(c->to_device);
    }
    if (c->across != nullptr) {
        (void)cudaStreamDestroy(c->across);
    }
    if (c->sums != nullptr) {
        (void)cudaFree(c->sums);
    }
    if (c->host_sums != nullptr) {
        (void)cudaFreeHost(c->host_sums);
    }
    std::free(c->n_sums);
    std::free(c->events);
    std::free(c);
}

bt_status_t prepare(Copier *c, uint32_t n_tickets)
{
    bt_status_t status = bt_cuda_check(cudaSetDevice(c->device));

    if (status == BT_OK) {
        status = bt_cuda_check(
            cudaStreamCreateWithFlags(&c->to_host, cudaStreamNonBlocking));
    }
    if (status == BT_OK) {
        status = bt_cuda_check(
            cudaStreamCreateWithFlags(&c->to_device, cudaStreamNonBlocking));
    }
    if (status == BT_OK) {
        status = bt_cuda_check(
            cudaStreamCreateWithFlags(&c->across, cudaStreamNonBlocking));
    }
    if (status == BT_OK) {
        status = bt_cuda_check(cudaMalloc(reinterpret_cast<void **>(&c->sums),
                                          n_tickets * kSumBytes));
    }
    if (status == BT_OK) {
        status = bt_cuda_check(
            cudaHostAlloc(reinterpret_cast<void **>(&c->host_sums),
                          n_tickets * kSumBytes, cudaHostAllocDefault));
    }
    while ((status == BT_OK) && (c->n_events < n_tickets)) {
        status = bt_cuda_check(cudaEventCreateWithFlags(
            &c->events[c->n_events], cudaEventDisableTiming));
        c->n_events += (status == BT_OK) ? 1 : 0;
    }
    return status;
}

} // namespace

extern "C" bt_status_t bt_cuda_copier_open(bt_backend_t *be, uint32_t n_tickets,
                                           bt_copier_t *copier_p)
{
    Copier *c = static_cast<Copier *>(std::calloc(1, sizeof(*c)));
    bt_status_t status;

    if (c == nullptr) {
        return BT_ERR_NO_MEMORY;
    }
    c->events =
        static_cast<cudaEvent_t *>(std::calloc(n_tickets, sizeof(*c->events)));
    c->n_sums =
        static_cast<uint32_t *>(std::calloc(n_tickets, sizeof(*c->n_sums)));
    if ((c->events == nullptr) || (c->n_sums == nullptr)) {
        release(c);
        return BT_ERR_NO_MEMORY;
    }
    c->device = bt_cuda_device(be);
    status = prepare(c, n_tickets);
    if (status != BT_OK) {
        release(c);
        return status;
    }
    copier_p->user = c;
    copier_p->n_tickets = n_tickets;
    copier_p->host_alloc = host_alloc;
    copier_p->host_free = host_free;
    copier_p->to_host = to_host;
    copier_p->to_device = to_device;
    copier_p->share_name = "cuda_ipc";
    copier_p->share = share;
    copier_p->open_shared = open_shared;
    copier_p->close_shared = close_shared;
    copier_p->why_not = why_not;
    copier_p->between = between;
    copier_p->hash = hash;
    copier_p->hashed = hashed;
    copier_p->query = query;
    copier_p->wait_all = wait_all;
    return BT_OK;
}

extern "C" void bt_cuda_copier_close(bt_copier_t *copier)
{
    if ((copier == nullptr) || (copier->user == nullptr)) {
        return;
    }
    release(self(copier->user));
    copier->user = nullptr;
}
