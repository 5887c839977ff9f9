/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/limits.h"

#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 1024
#define LINE_BYTES 8192 /* a list of every second of 1,024 CPUs */

/* Capabilities that RLIMIT_NPROC does not bound (capability.h, fork.c). */
#define CAP_SYS_ADMIN    21
#define CAP_SYS_RESOURCE 24

/* Finds the text after a word at the start of a line. @return false: none */
static bool read_text(const char *root, const char *name, const char *word,
                      char text[LINE_BYTES])
{
    const size_t n = strlen(word);
    char path[PATH_BYTES];
    char line[LINE_BYTES];
    bool found = false;
    FILE *file;

    snprintf(path, sizeof(path), "%s%s", root, name);
    file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    while (!found && (fgets(line, sizeof(line), file) != NULL)) {
        if (strncmp(line, word, n) == 0) {
            snprintf(text, LINE_BYTES, "%s", line + n);
            found = true;
        }
    }
    fclose(file);
    return found;
}

/* @return UINT64_MAX: there is no such number ("unlimited") */
static uint64_t read_number(const char *root, const char *name,
                            const char *word)
{
    char text[LINE_BYTES];
    unsigned long long number;

    return (read_text(root, name, word, text) &&
            (sscanf(text, " %llu", &number) == 1))
               ? number
               : UINT64_MAX;
}

/* ---- CPUs ---- */

/* How many a list "0-3,8" has. */
static uint32_t count_listed(const char *list)
{
    uint32_t n = 0;

    list += strspn(list, " \t");
    while (isdigit((unsigned char)*list)) {
        char *end;
        const unsigned long first = strtoul(list, &end, 10);
        const unsigned long last =
            (*end == '-') ? strtoul(end + 1, &end, 10) : first;

        n += (last >= first) ? (uint32_t)(last - first + 1) : 0;
        list = (*end == ',') ? end + 1 : end;
    }
    return n;
}

static uint32_t allowed_cpus(const char *root)
{
    char list[LINE_BYTES];
    cpu_set_t set;
    uint32_t n = 0;

    /* The call of the kernel fails where it knows more than the set holds. */
    if (read_text(root, "/proc/thread-self/status",
                  "Cpus_allowed_list:", list) ||
        read_text(root, "/proc/self/status", "Cpus_allowed_list:", list)) {
        n = count_listed(list);
    } else if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        n = (uint32_t)CPU_COUNT(&set);
    }
    return (n == 0) ? 1 : n;
}

void bt_limits_cpus(const char *root, bt_limit_t *limit_p)
{
    const uint32_t n = allowed_cpus(root);
    bt_limit_t limit;

    bt_cgroup_cpus(root, &limit);
    if (limit.most >= n) {
        limit = (bt_limit_t){.most = n, .left = n, .by = ""};
    }
    *limit_p = limit;
}

uint32_t bt_limits_n_cpus(void)
{
    bt_limit_t limit;

    bt_limits_cpus("", &limit);
    return (uint32_t)limit.most;
}

/* ---- memory ---- */

static uint64_t read_kib(const char *root, const char *word)
{
    const uint64_t kib = read_number(root, "/proc/meminfo", word);

    return (kib == UINT64_MAX) ? kib : kib * 1024;
}

void bt_limits_memory(const char *root, bt_limit_t *limit_p)
{
    const uint64_t left = read_kib(root, "MemAvailable:");
    bt_limit_t limit;

    bt_cgroup_memory(root, &limit);
    if (left <= limit.left) {
        limit = (bt_limit_t){
            .most = read_kib(root, "MemTotal:"), .left = left, .by = ""};
    }
    *limit_p = limit;
}

uint64_t bt_limits_memory_left(void)
{
    bt_limit_t limit;

    bt_limits_memory("", &limit);
    return limit.left;
}

/* ---- threads ---- */

static bool is_free_of_rlimit(const char *root, uint64_t uid)
{
    unsigned long long first = 1, outside = 1, n = 0, held = 0;
    char text[LINE_BYTES];

    /* Root of a user namespace, and its capabilities there, do not count. */
    if (read_text(root, "/proc/self/uid_map", "", text) &&
        ((sscanf(text, "%llu %llu %llu", &first, &outside, &n) != 3) ||
         (first != 0) || (outside != 0) || (n < UINT32_MAX))) {
        return false;
    }
    if (read_text(root, "/proc/self/status", "CapEff:", text)) {
        held = strtoull(text, NULL, 16);
    }
    return (uid == 0) || ((held & ((UINT64_C(1) << CAP_SYS_ADMIN) |
                                   (UINT64_C(1) << CAP_SYS_RESOURCE))) != 0);
}

/* Threads of this user's that there are. */
static uint64_t count_threads(const char *root, uint64_t uid)
{
    uint64_t n = 0;
    char path[PATH_BYTES];
    const struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/proc", root);
    dir = opendir(path);
    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        uint64_t own;

        if (!isdigit((unsigned char)entry->d_name[0])) {
            continue;
        }
        snprintf(path, sizeof(path), "/proc/%.32s/status", entry->d_name);
        if (read_number(root, path, "Uid:") == uid) {
            own = read_number(root, path, "Threads:");
            n += (own == UINT64_MAX) ? 0 : own;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

void bt_limits_threads(const char *root, bt_limit_t *limit_p)
{
    const uint64_t most =
        read_number(root, "/proc/self/limits", "Max processes");
    const uint64_t uid = read_number(root, "/proc/self/status", "Uid:");
    bt_limit_t limit;
    uint64_t used;

    bt_cgroup_tasks(root, &limit);
    if ((most != UINT64_MAX) && !is_free_of_rlimit(root, uid)) {
        used = count_threads(root, uid);
        if ((most < used) || (most - used < limit.left)) {
            limit = (bt_limit_t){.most = most,
                                 .left = (used < most) ? most - used : 0,
                                 .by = BT_LIMITS_OF_USER};
        }
    }
    *limit_p = limit;
}
