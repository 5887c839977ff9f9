/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives table over NCCL: the only includer of nccl.h.
 *
 * A sum is not ncclAllReduce(), whose order NCCL chooses by sizes and machines:
 * all parts are gathered, piece by piece, and each rank adds them in the order
 * of coll_shm.h (coll_sum.cu). So ranks on devices have the bytes of ranks on
 * CPUs, over any interconnect. */
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>

#include "kernels/cuda/device.h"

static_assert(sizeof(ncclUniqueId) == BT_COLLECTIVES_ID_BYTES,
              "the id's size is part of our interface");

namespace
{

const size_t kPieceFloats = BT_CUDA_SUM_BYTES / sizeof(float);

struct Collectives {
    bt_collectives_t base; /* first */
    ncclComm_t comm;
    bt_backend_t *be;
};

bt_status_t check(ncclResult_t result)
{
    return (result == ncclSuccess) ? BT_OK : BT_ERR_DEVICE;
}

/* A call, recorded among the launches (launch.h), so that a step of ranks is
 * one graph as well. The next wait reports its errors. */
struct Call {
    ncclComm_t comm;
    const void *send;
    void *recv;
    size_t bytes;
    size_t peer; /* or root */
};

cudaError_t told(ncclResult_t result)
{
    return (result == ncclSuccess) ? cudaSuccess : cudaErrorLaunchFailure;
}

const Call *call_of(const void *noted)
{
    return static_cast<const Call *>(noted);
}

cudaError_t run_gather(const void *noted, cudaStream_t stream)
{
    const Call *c = call_of(noted);

    return told(
        ncclAllGather(c->send, c->recv, c->bytes, ncclUint8, c->comm, stream));
}

cudaError_t run_broadcast(const void *noted, cudaStream_t stream)
{
    const Call *c = call_of(noted);

    return told(ncclBroadcast(c->send, c->recv, c->bytes, ncclUint8,
                              static_cast<int>(c->peer), c->comm, stream));
}

cudaError_t run_send(const void *noted, cudaStream_t stream)
{
    const Call *c = call_of(noted);

    return told(ncclSend(c->send, c->bytes, ncclUint8,
                         static_cast<int>(c->peer), c->comm, stream));
}

cudaError_t run_recv(const void *noted, cudaStream_t stream)
{
    const Call *c = call_of(noted);

    return told(ncclRecv(c->recv, c->bytes, ncclUint8,
                         static_cast<int>(c->peer), c->comm, stream));
}

void note(const Collectives *c, BtRunCall run, const void *send, void *recv,
          size_t bytes, uint32_t peer)
{
    new (bt_launcher_slot(bt_cuda_launcher(c->be), run, sizeof(Call)))
        Call{c->comm, send, recv, bytes, peer};
}

bt_status_t all_reduce_sum(void *ctx, float *buf, size_t n)
{
    const Collectives *c = static_cast<const Collectives *>(ctx);
    float *parts = static_cast<float *>(bt_cuda_scratch(c->be));

    for (size_t at = 0; at < n; at += kPieceFloats) {
        const size_t piece = (n - at < kPieceFloats) ? n - at : kPieceFloats;

        note(c, run_gather, buf + at, parts, piece * sizeof(float), 0);
        bt_cuda_sum_parts(c->be, parts, c->base.size, piece, buf + at);
    }
    return BT_OK;
}

bt_status_t all_gather(void *ctx, const void *send, void *recv,
                       size_t bytes_each)
{
    note(static_cast<const Collectives *>(ctx), run_gather, send, recv,
         bytes_each, 0);
    return BT_OK;
}

bt_status_t broadcast(void *ctx, void *buf, size_t bytes, uint32_t root)
{
    const Collectives *c = static_cast<const Collectives *>(ctx);

    if (root >= c->base.size) {
        return BT_ERR_INVALID_PARAM;
    }
    note(c, run_broadcast, buf, buf, bytes, root);
    return BT_OK;
}

bt_status_t send_to(void *ctx, const void *buf, size_t bytes, uint32_t to)
{
    const Collectives *c = static_cast<const Collectives *>(ctx);

    if ((to >= c->base.size) || (to == c->base.rank)) {
        return BT_ERR_INVALID_PARAM;
    }
    note(c, run_send, buf, nullptr, bytes, to);
    return BT_OK;
}

bt_status_t recv_from(void *ctx, void *buf, size_t bytes, uint32_t from)
{
    const Collectives *c = static_cast<const Collectives *>(ctx);

    if ((from >= c->base.size) || (from == c->base.rank)) {
        return BT_ERR_INVALID_PARAM;
    }
    note(c, run_recv, nullptr, buf, bytes, from);
    return BT_OK;
}

bt_status_t collectives_id(bt_backend_t *be,
                           uint8_t id[BT_COLLECTIVES_ID_BYTES])
{
    ncclUniqueId unique;
    const bt_status_t status = check(ncclGetUniqueId(&unique));

    (void)be;
    if (status == BT_OK) {
        std::memcpy(id, &unique, sizeof(unique));
    }
    return status;
}

bt_status_t collectives_open(bt_backend_t *be, uint32_t rank, uint32_t size,
                             const uint8_t id[BT_COLLECTIVES_ID_BYTES],
                             bt_collectives_t **coll_p)
{
    ncclUniqueId unique;
    bt_status_t status;
    Collectives *c;

    if (size > BT_CUDA_MAX_RANKS) {
        return BT_ERR_INVALID_PARAM;
    }
    status = bt_cuda_scratch_reserve(be, size * BT_CUDA_SUM_BYTES);
    if (status != BT_OK) {
        return status;
    }
    c = static_cast<Collectives *>(std::calloc(1, sizeof(*c)));
    if (c == nullptr) {
        return BT_ERR_NO_MEMORY;
    }
    std::memcpy(&unique, id, sizeof(unique));
    status = check(ncclCommInitRank(&c->comm, static_cast<int>(size), unique,
                                    static_cast<int>(rank)));
    if (status != BT_OK) {
        std::free(c);
        return status;
    }
    c->be = be;
    c->base.ctx = c;
    c->base.rank = rank;
    c->base.size = size;
    c->base.all_reduce_sum = all_reduce_sum;
    c->base.all_gather = all_gather;
    c->base.broadcast = broadcast;
    c->base.send = send_to;
    c->base.recv = recv_from;
    *coll_p = &c->base;
    return BT_OK;
}

/* Not ncclCommDestroy(), which would wait for ranks that may be gone. */
void collectives_close(bt_collectives_t *coll)
{
    if (coll == nullptr) {
        return;
    }
    Collectives *c = static_cast<Collectives *>(coll->ctx);
    bt_launcher_forget(bt_cuda_launcher(c->be)); /* graphs have calls of it */
    (void)ncclCommAbort(c->comm);
    std::free(c);
}

} // namespace

extern "C" void bt_cuda_coll_ops(bt_kernels_ops_t *ops)
{
    ops->collectives_id = collectives_id;
    ops->collectives_open = collectives_open;
    ops->collectives_close = collectives_close;
}
