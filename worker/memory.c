/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/memory.h"

#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"

#define DEFAULT_POOL_BYTES (1024ull << 20)

/* The number behind a word at the start of a line; UINT64_MAX: there is none,
 * as in a limit that is "max". */
static uint64_t read_field(const char *path, const char *word)
{
    FILE *file = fopen(path, "r");
    const size_t n = strlen(word);
    unsigned long long number = 0;
    uint64_t value = UINT64_MAX;
    char line[256];

    if (file == NULL) {
        return value;
    }
    while ((value == UINT64_MAX) && (fgets(line, sizeof(line), file) != NULL)) {
        if ((strncmp(line, word, n) == 0) &&
            (sscanf(line + n, " %llu", &number) == 1)) {
            value = number;
        }
    }
    fclose(file);
    return value;
}

static uint64_t mem_available(void)
{
    const uint64_t kib = read_field("/proc/meminfo", "MemAvailable:");

    return (kib == UINT64_MAX) ? kib : kib * 1024;
}

/* "Used" has the pages of files too, which go when something else needs their
 * place, as MemAvailable takes into account: the packed weights that another
 * worker of this group mapped are among them, and must not count twice. */
static uint64_t file_pages(const char *dir)
{
    static const char *const words[] = {"active_file ", "inactive_file "};
    char path[256];
    uint64_t bytes = 0;

    snprintf(path, sizeof(path), "%s/memory.stat", dir);
    for (size_t i = 0; i < BT_ARRAY_LEN(words); i++) {
        const uint64_t value = read_field(path, words[i]);

        bytes += (value == UINT64_MAX) ? 0 : value;
    }
    return bytes;
}

uint64_t bt_memory_cgroup_left(const char *dir)
{
    char path[256];
    uint64_t limit;
    uint64_t used;
    uint64_t files;

    snprintf(path, sizeof(path), "%s/memory.max", dir);
    limit = read_field(path, "");
    snprintf(path, sizeof(path), "%s/memory.current", dir);
    used = read_field(path, "");
    if ((limit == UINT64_MAX) || (used == UINT64_MAX)) {
        return UINT64_MAX;
    }
    files = file_pages(dir);
    used -= (files < used) ? files : used;
    return (used < limit) ? limit - used : 0;
}

uint64_t bt_memory_available(void)
{
    const uint64_t machine = mem_available();
    const uint64_t group = bt_memory_cgroup_left("/sys/fs/cgroup");

    return (machine < group) ? machine : group;
}

uint64_t bt_memory_pool(const bt_memory_room_t *room)
{
    const uint64_t all =
        room->own_memory ? room->device_available_bytes : room->available_bytes;
    const uint64_t model =
        room->own_memory ? room->device_model_bytes : room->model_bytes;
    const uint64_t left = (all > model) ? (all - model) / 4 : 0;

    return (room->own_memory || (left < DEFAULT_POOL_BYTES))
               ? left
               : DEFAULT_POOL_BYTES;
}

static bt_status_t check_place(const char *place, uint64_t available,
                               uint64_t model, uint64_t pool, char *why,
                               size_t why_bytes)
{
    if (model + pool <= available) {
        return BT_OK;
    }
    snprintf(why, why_bytes,
             "not enough %smemory: the model takes %llu MiB and the KV pool "
             "%llu MiB, %llu MiB are available, %llu MiB are missing",
             place, (unsigned long long)(model >> 20),
             (unsigned long long)(pool >> 20),
             (unsigned long long)(available >> 20),
             (unsigned long long)(((model + pool - available) >> 20) + 1));
    return BT_ERR_NO_MEMORY;
}

bt_status_t bt_memory_check(const bt_memory_room_t *room, uint64_t pool_bytes,
                            char *why, size_t why_bytes)
{
    const uint64_t here = room->own_memory ? 0 : pool_bytes;
    bt_status_t status = check_place("", room->available_bytes,
                                     room->model_bytes, here, why, why_bytes);

    if ((status == BT_OK) && room->own_memory) {
        status =
            check_place("device ", room->device_available_bytes,
                        room->device_model_bytes, pool_bytes, why, why_bytes);
    }
    return status;
}
