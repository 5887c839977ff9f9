/* SPDX-License-Identifier: Apache-2.0 */
/* Registration of shared-memory regions. With the option off there are none:
 * clients that clean up after an earlier run, or query regions, still
 * succeed. */
#include <grpc_service.pb-c.h>
#include <string.h>

#include "router/grpc/gdoor_priv.h"

typedef Inference__SystemSharedMemoryStatusResponse status_t;
typedef Inference__SystemSharedMemoryStatusResponse__RegionsEntry entry_t;
typedef Inference__SystemSharedMemoryStatusResponse__RegionStatus region_t;

/* ---- system shared memory ---- */

static void set_entry(entry_t *entry, region_t *region,
                      const bt_region_info_t *info)
{
    *entry = (entry_t)
        INFERENCE__SYSTEM_SHARED_MEMORY_STATUS_RESPONSE__REGIONS_ENTRY__INIT;
    *region = (region_t)
        INFERENCE__SYSTEM_SHARED_MEMORY_STATUS_RESPONSE__REGION_STATUS__INIT;
    region->name = bt_pb_text(info->name);
    region->key = bt_pb_text(info->key);
    region->offset = info->offset;
    region->byte_size = info->bytes;
    entry->key = region->name;
    entry->value = region;
}

/* @param [in] name  "": all */
static void answer_status(bt_gcall_t *call, const bt_regions_t *regions,
                          const char *name)
{
    status_t answer = INFERENCE__SYSTEM_SHARED_MEMORY_STATUS_RESPONSE__INIT;
    const size_t n = (regions != NULL) ? bt_regions_count(regions) : 0;
    bt_pb_scratch_t scratch = {0};
    entry_t *entries = bt_pb_scratch_take(&scratch, n + 1, sizeof(*entries));
    region_t *items = bt_pb_scratch_take(&scratch, n + 1, sizeof(*items));
    entry_t **list = bt_pb_scratch_take(&scratch, n + 1, sizeof(*list));

    if (list == NULL) {
        bt_pb_scratch_fini(&scratch);
        bt_gcall_end(call, BT_GRPC_UNAVAILABLE,
                     "out of memory for this answer");
        return;
    }
    answer.regions = list;
    for (size_t i = 0; i < n; i++) {
        const bt_region_info_t *info = bt_regions_at(regions, i);

        if ((name[0] == '\0') || (strcmp(name, info->name) == 0)) {
            set_entry(&entries[i], &items[i], info);
            list[answer.n_regions++] = &entries[i];
        }
    }
    if ((name[0] != '\0') && (answer.n_regions == 0)) {
        bt_gcall_end(call, BT_GRPC_NOT_FOUND,
                     "no region of shared memory of this name is registered");
    } else {
        bt_gdoor_answer(call, &answer.base);
    }
    bt_pb_scratch_fini(&scratch);
}

void bt_memory_status(bt_gcall_t *call, bt_gmessage_t *message)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    Inference__SystemSharedMemoryStatusRequest *request;
    bt_pb_room_t room;

    request = (Inference__SystemSharedMemoryStatusRequest *)bt_gdoor_read(
        call, message,
        &inference__system_shared_memory_status_request__descriptor, &room);
    if (request != NULL) {
        answer_status(call, door->front->regions, request->name);
        bt_pb_free(&room, &request->base);
    }
}

void bt_memory_register(bt_gcall_t *call, bt_gmessage_t *message)
{
    static const Inference__SystemSharedMemoryRegisterResponse answer =
        INFERENCE__SYSTEM_SHARED_MEMORY_REGISTER_RESPONSE__INIT;
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    Inference__SystemSharedMemoryRegisterRequest *request;
    bt_api_error_t error = {0};
    bt_pb_room_t room;

    if (door->front->regions == NULL) {
        bt_gmessage_fini(bt_gcall_grpc(call), message);
        bt_gcall_end(call, BT_GRPC_UNIMPLEMENTED,
                     "shared memory with clients is not served "
                     "(--shared-memory off): send the tensors themselves");
        return;
    }
    request = (Inference__SystemSharedMemoryRegisterRequest *)bt_gdoor_read(
        call, message,
        &inference__system_shared_memory_register_request__descriptor, &room);
    if (request == NULL) {
        return;
    }
    if (bt_regions_register(door->front->regions, request->name, request->key,
                            request->offset, request->byte_size,
                            &error) == BT_OK) {
        bt_gdoor_answer(call, &answer.base);
    } else {
        bt_gdoor_fail(call, &error);
    }
    bt_pb_free(&room, &request->base);
}

/* Unregistering an absent region succeeds. */
void bt_memory_unregister(bt_gcall_t *call, bt_gmessage_t *message)
{
    static const Inference__SystemSharedMemoryUnregisterResponse answer =
        INFERENCE__SYSTEM_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    Inference__SystemSharedMemoryUnregisterRequest *request;
    bt_pb_room_t room;

    request = (Inference__SystemSharedMemoryUnregisterRequest *)bt_gdoor_read(
        call, message,
        &inference__system_shared_memory_unregister_request__descriptor, &room);
    if (request == NULL) {
        return;
    }
    if (door->front->regions != NULL) {
        bt_regions_unregister(door->front->regions, (request->name[0] == '\0')
                                                        ? NULL
                                                        : request->name);
    }
    bt_pb_free(&room, &request->base);
    bt_gdoor_answer(call, &answer.base);
}

/* ---- CUDA shared memory ---- */

/* Nothing was registered, so there is nothing to report or to remove. The
 * answers are empty messages. */
void bt_memory_cuda_none(bt_gcall_t *call, bt_gmessage_t *message)
{
    static const Inference__CudaSharedMemoryUnregisterResponse answer =
        INFERENCE__CUDA_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;

    bt_gmessage_fini(bt_gcall_grpc(call), message);
    bt_gdoor_answer(call, &answer.base);
}

void bt_memory_cuda_register(bt_gcall_t *call, bt_gmessage_t *message)
{
    bt_gmessage_fini(bt_gcall_grpc(call), message);
    bt_gcall_end(
        call, BT_GRPC_UNIMPLEMENTED,
        "CUDA shared memory is not served: tensors are in the router's "
        "memory, which has no device");
}
