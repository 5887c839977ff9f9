/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/stage.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

struct BtStage {
    struct {
        void *bytes;      /* pinned */
        cudaEvent_t sent; /* it may be written again */
    } slots[BT_STAGE_SLOTS];
    uint32_t next;
};

BtStage *bt_stage_create()
{
    BtStage *stage = static_cast<BtStage *>(std::calloc(1, sizeof(*stage)));

    if (stage == nullptr) {
        return nullptr;
    }
    for (auto &slot : stage->slots) {
        if ((cudaHostAlloc(&slot.bytes, BT_STAGE_SLOT_BYTES,
                           cudaHostAllocDefault) != cudaSuccess) ||
            (cudaEventCreateWithFlags(&slot.sent, cudaEventDisableTiming) !=
             cudaSuccess)) {
            (void)cudaGetLastError(); /* harmless */
            bt_stage_destroy(stage);
            return nullptr;
        }
    }
    return stage;
}

void bt_stage_destroy(BtStage *stage)
{
    if (stage == nullptr) {
        return;
    }
    for (auto &slot : stage->slots) {
        if (slot.sent != nullptr) {
            (void)cudaEventDestroy(slot.sent);
        }
        (void)cudaFreeHost(slot.bytes);
    }
    std::free(stage);
}

bt_status_t bt_stage_copy(BtStage *stage, cudaStream_t stream, void *dst,
                          const void *src, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += BT_STAGE_SLOT_BYTES) {
        auto &slot = stage->slots[stage->next++ % BT_STAGE_SLOTS];
        const size_t n = (bytes - at < BT_STAGE_SLOT_BYTES)
                             ? bytes - at
                             : BT_STAGE_SLOT_BYTES;

        if (cudaEventSynchronize(slot.sent) != cudaSuccess) {
            (void)cudaGetLastError();
            return BT_ERR_DEVICE;
        }
        std::memcpy(slot.bytes, static_cast<const uint8_t *>(src) + at, n);
        if ((cudaMemcpyAsync(static_cast<uint8_t *>(dst) + at, slot.bytes, n,
                             cudaMemcpyHostToDevice, stream) != cudaSuccess) ||
            (cudaEventRecord(slot.sent, stream) != cudaSuccess)) {
            /* Copies in flight must not read a slot that is being
             * overwritten. */
            (void)cudaStreamSynchronize(stream);
            (void)cudaGetLastError();
            return BT_ERR_DEVICE;
        }
    }
    return BT_OK;
}
