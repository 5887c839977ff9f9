/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/copier.h: one stream in each direction, because a device has a copy
 * engine for each, and one event per ticket. */
#include <cuda_runtime.h>

#include <cstdlib>

#include "kernels/cuda/cuda.h"

namespace
{

struct Copier {
    int device;
    cudaStream_t to_host, to_device;
    uint32_t n_events;
    cudaEvent_t *events; /* by ticket */
};

Copier *self(void *user)
{
    return static_cast<Copier *>(user);
}

bt_status_t check(cudaError_t error)
{
    if (error == cudaSuccess) {
        return BT_OK;
    }
    (void)cudaGetLastError();
    return (error == cudaErrorMemoryAllocation) ? BT_ERR_NO_MEMORY
                                                : BT_ERR_DEVICE;
}

bt_status_t host_alloc(void *user, size_t bytes, void **ptr_p)
{
    void *ptr = nullptr;
    bt_status_t status = check(cudaSetDevice(self(user)->device));

    if (status == BT_OK) {
        status = check(cudaHostAlloc(&ptr, bytes, cudaHostAllocDefault));
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

bt_status_t begin(Copier *c, void *dst, const void *src, size_t bytes,
                  cudaMemcpyKind kind, cudaStream_t stream, uint32_t ticket)
{
    bt_status_t status = check(cudaSetDevice(c->device));

    if (status == BT_OK) {
        status = check(cudaMemcpyAsync(dst, src, bytes, kind, stream));
    }
    if (status != BT_OK) {
        return status;
    }
    status = check(cudaEventRecord(c->events[ticket], stream));
    if (status != BT_OK) {
        /* It was begun, and nothing will tell when it ends. */
        (void)cudaStreamSynchronize(stream);
        (void)cudaGetLastError();
    }
    return status;
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

bt_status_t query(void *user, uint32_t ticket)
{
    const cudaError_t error = cudaEventQuery(self(user)->events[ticket]);

    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return BT_INPROGRESS;
    }
    return check(error);
}

void wait_all(void *user)
{
    (void)cudaStreamSynchronize(self(user)->to_host);
    (void)cudaStreamSynchronize(self(user)->to_device);
    (void)cudaGetLastError();
}

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
    std::free(c->events);
    std::free(c);
}

bt_status_t prepare(Copier *c, uint32_t n_tickets)
{
    bt_status_t status = check(cudaSetDevice(c->device));

    if (status == BT_OK) {
        status = check(
            cudaStreamCreateWithFlags(&c->to_host, cudaStreamNonBlocking));
    }
    if (status == BT_OK) {
        status = check(
            cudaStreamCreateWithFlags(&c->to_device, cudaStreamNonBlocking));
    }
    while ((status == BT_OK) && (c->n_events < n_tickets)) {
        status = check(cudaEventCreateWithFlags(&c->events[c->n_events],
                                                cudaEventDisableTiming));
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
    if (c->events == nullptr) {
        std::free(c);
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
