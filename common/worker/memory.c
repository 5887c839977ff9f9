/* SPDX-License-Identifier: Apache-2.0 */
#include "common/worker/memory.h"

#include <stdio.h>

#define DEFAULT_POOL_BYTES (1024ull << 20)

static uint64_t mem_available(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    unsigned long long kib = 0;
    char line[256];
    uint64_t bytes = UINT64_MAX;

    if (file == NULL) {
        return bytes;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) {
            bytes = kib * 1024;
            break;
        }
    }
    fclose(file);
    return bytes;
}

static uint64_t read_number(const char *path)
{
    FILE *file = fopen(path, "r");
    unsigned long long value = 0;
    int n;

    if (file == NULL) {
        return UINT64_MAX;
    }
    n = fscanf(file, "%llu", &value); /* "max" is no number */
    fclose(file);
    return (n == 1) ? value : UINT64_MAX;
}

static uint64_t cgroup_left(void)
{
    const uint64_t limit = read_number("/sys/fs/cgroup/memory.max");
    const uint64_t used = read_number("/sys/fs/cgroup/memory.current");

    if ((limit == UINT64_MAX) || (used == UINT64_MAX)) {
        return UINT64_MAX;
    }
    return (used < limit) ? limit - used : 0;
}

uint64_t bt_memory_available(void)
{
    const uint64_t machine = mem_available();
    const uint64_t group = cgroup_left();

    return (machine < group) ? machine : group;
}

uint64_t bt_memory_default_pool(uint64_t available, uint64_t model_bytes)
{
    const uint64_t left =
        (available > model_bytes) ? (available - model_bytes) / 4 : 0;

    return (left < DEFAULT_POOL_BYTES) ? left : DEFAULT_POOL_BYTES;
}
