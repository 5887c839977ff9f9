/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/memory.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_POOL_BYTES (1024ull << 20)

uint64_t bt_memory_pool(const bt_memory_room_t *room)
{
    const uint64_t all =
        room->own_memory ? room->device_available_bytes : room->available_bytes;
    const uint64_t model =
        room->own_memory ? room->device_model_bytes + room->device_later_bytes
                         : room->model_bytes;
    const uint64_t left = (all > model) ? all - model : 0;
    const uint64_t share =
        (room->percent > 0) ? left / 100 * room->percent : left / 4;
    uint64_t most = left / 4;

    if (room->own_memory) {
        return share;
    }
    most = (most < DEFAULT_POOL_BYTES) ? most : DEFAULT_POOL_BYTES;
    return (share < most) ? share : most;
}

static bt_status_t check_place(const char *place, uint64_t available,
                               uint64_t model, uint64_t later, uint64_t pool,
                               char *why, size_t why_bytes)
{
    const uint64_t all = model + later + pool;
    char kept[64] = "";

    if (all <= available) {
        return BT_OK;
    }
    if (later > 0) {
        snprintf(kept, sizeof(kept), ", libraries and graphs %llu MiB",
                 (unsigned long long)(later >> 20));
    }
    snprintf(why, why_bytes,
             "not enough %smemory: the model takes %llu MiB%s and the KV pool "
             "%llu MiB, %llu MiB are available, %llu MiB are missing",
             place, (unsigned long long)(model >> 20), kept,
             (unsigned long long)(pool >> 20),
             (unsigned long long)(available >> 20),
             (unsigned long long)(((all - available) >> 20) + 1));
    return BT_ERR_NO_MEMORY;
}

static void add_limit(const bt_memory_room_t *room, char *why, size_t why_bytes)
{
    const size_t n = strlen(why);

    if ((room->limit_by != NULL) && (room->limit_by[0] != '\0')) {
        snprintf(why + n, why_bytes - n, "; the cgroup has %llu MiB (%s)",
                 (unsigned long long)(room->limit_bytes >> 20), room->limit_by);
    }
}

bt_status_t bt_memory_check(const bt_memory_room_t *room, uint64_t pool_bytes,
                            char *why, size_t why_bytes)
{
    const uint64_t here = room->own_memory ? 0 : pool_bytes;
    bt_status_t status = check_place(
        "", room->available_bytes, room->model_bytes, 0, here, why, why_bytes);

    if (status != BT_OK) {
        add_limit(room, why, why_bytes);
    }
    if ((status == BT_OK) && room->own_memory) {
        status = check_place("device ", room->device_available_bytes,
                             room->device_model_bytes, room->device_later_bytes,
                             pool_bytes, why, why_bytes);
    }
    return status;
}
