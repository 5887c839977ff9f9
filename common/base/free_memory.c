/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/free_memory.h"

#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"

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
