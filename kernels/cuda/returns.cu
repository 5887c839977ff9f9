/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/returns.h: pinned memory and an event for each slot, on the stream of
 * the operations. */
#include <cuda_runtime.h>

#include <cstdlib>

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda.h"

namespace
{

struct Slot {
    void *host; /* pinned */
    cudaEvent_t there;
    bt_status_t status; /* of its send() */
};

struct Returns {
    bt_backend_t *be;
    Slot *slots;
    uint32_t n_slots; /* that are whole */
};

Returns *self(void *user)
{
    return static_cast<Returns *>(user);
}

void send(void *user, uint32_t i, const void *src, size_t bytes)
{
    Slot *slot = &self(user)->slots[i];
    const cudaStream_t stream =
        static_cast<cudaStream_t>(bt_cuda_stream(self(user)->be));

    slot->status =
        (bytes == 0)
            ? BT_OK
            : bt_cuda_check(cudaMemcpyAsync(slot->host, src, bytes,
                                            cudaMemcpyDeviceToHost, stream));
    if (slot->status == BT_OK) {
        slot->status = bt_cuda_check(cudaEventRecord(slot->there, stream));
    }
}

bt_status_t wait(void *user, uint32_t i, const void **host_p)
{
    const Slot *slot = &self(user)->slots[i];
    bt_status_t status = slot->status;
    bt_status_t of_calls;

    if (status == BT_OK) {
        status = bt_cuda_check(cudaEventSynchronize(slot->there));
    }
    of_calls = bt_cuda_take_error(self(user)->be);
    status = (status == BT_OK) ? of_calls : status;
    if (status == BT_OK) {
        *host_p = slot->host;
    }
    return status;
}

bt_status_t make_slot(Slot *slot, size_t bytes)
{
    void *host = nullptr;
    bt_status_t status = bt_cuda_check(
        cudaHostAlloc(&host, (bytes == 0) ? 1 : bytes, cudaHostAllocDefault));

    if (status != BT_OK) {
        return status;
    }
    status = bt_cuda_check(
        cudaEventCreateWithFlags(&slot->there, cudaEventDisableTiming));
    if (status != BT_OK) {
        (void)cudaFreeHost(host);
        return status;
    }
    slot->host = host;
    return BT_OK;
}

void release(Returns *r)
{
    for (uint32_t i = 0; i < r->n_slots; i++) {
        (void)cudaEventDestroy(r->slots[i].there);
        (void)cudaFreeHost(r->slots[i].host);
    }
    std::free(r->slots);
    std::free(r);
}

} // namespace

extern "C" bt_status_t bt_cuda_returns_open(bt_backend_t *be, uint32_t n_slots,
                                            size_t bytes,
                                            bt_returns_t *returns_p)
{
    Returns *r = static_cast<Returns *>(std::calloc(1, sizeof(*r)));
    bt_status_t status = BT_OK;

    if (r == nullptr) {
        return BT_ERR_NO_MEMORY;
    }
    r->be = be;
    r->slots = static_cast<Slot *>(std::calloc(n_slots, sizeof(*r->slots)));
    if (r->slots == nullptr) {
        std::free(r);
        return BT_ERR_NO_MEMORY;
    }
    while ((status == BT_OK) && (r->n_slots < n_slots)) {
        status = make_slot(&r->slots[r->n_slots], bytes);
        r->n_slots += (status == BT_OK) ? 1 : 0;
    }
    if (status != BT_OK) {
        release(r);
        return status;
    }
    returns_p->user = r;
    returns_p->n_slots = n_slots;
    returns_p->send = send;
    returns_p->wait = wait;
    return BT_OK;
}

extern "C" void bt_cuda_returns_close(bt_returns_t *returns)
{
    if (returns->user == nullptr) {
        return;
    }
    (void)cudaStreamSynchronize(
        static_cast<cudaStream_t>(bt_cuda_stream(self(returns->user)->be)));
    release(self(returns->user));
    returns->user = nullptr;
}
