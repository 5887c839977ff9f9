/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/limits.h"

#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

#define CGROUP_PATH_BYTES BT_LIMIT_BY_BYTES
#define CGROUP_LINE_BYTES 4096
#define LINE_BYTES        8192 /* a list of every second of 1,024 CPUs */
/* Version 1 says "no limit" with the largest number of whole pages. */
#define NO_LIMIT (UINT64_C(1) << 62)

/* Group as a folder, below the mount point of its hierarchy. */
typedef struct cgroup {
    char dir[CGROUP_PATH_BYTES]; /* with root in front */
    size_t root_len;
    size_t top_len; /* of the mounted one's; the walk up ends there */
    bool is_v1;
} cgroup_t;

/* Limit at one level; most UINT64_MAX: none. */
typedef void level_fn(const cgroup_t *cgroup, bt_limit_t *limit);

/* ---- files ---- */

/* Finds the text after a word at the start of a line. @return false: none */
static bool read_text(const char *dir, const char *name, const char *word,
                      char text[LINE_BYTES])
{
    BT_CLEANUP(fclose) FILE *file = NULL;
    const size_t n = strlen(word);
    char path[2 * CGROUP_PATH_BYTES];
    char line[LINE_BYTES];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "re");
    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        if (strncmp(line, word, n) == 0) {
            snprintf(text, LINE_BYTES, "%s", line + n);
            return true;
        }
    }
    return false;
}

/* @return UINT64_MAX: there is no such number ("max", "unlimited", or -1, which
 * is no number of anything, though sscanf() takes it) */
static uint64_t read_number(const char *dir, const char *name, const char *word)
{
    char text[LINE_BYTES];
    unsigned long long number;

    return (read_text(dir, name, word, text) && (strchr(text, '-') == NULL) &&
            (sscanf(text, " %llu", &number) == 1))
               ? number
               : UINT64_MAX;
}

static uint64_t or_zero(uint64_t value)
{
    return (value == UINT64_MAX) ? 0 : value;
}

/* ---- where the group is ---- */

/* Is the word in a list like "cpu,cpuacct"? */
static bool is_in_list(const char *list, const char *word)
{
    const size_t n = strlen(word);

    for (const char *at = list; (at = strstr(at, word)) != NULL; at += n) {
        if (((at == list) || (at[-1] == ',')) &&
            ((at[n] == '\0') || (at[n] == ','))) {
            return true;
        }
    }
    return false;
}

/* The path in a line "4:memory:/a/b" of /proc/self/cgroup, or in "0::/a/b"
 * where the controller is NULL. */
static bool read_own_path(const char *root, const char *controller,
                          char path[CGROUP_PATH_BYTES])
{
    BT_CLEANUP(fclose) FILE *file = NULL;
    char name[CGROUP_PATH_BYTES];
    char line[CGROUP_LINE_BYTES];

    snprintf(name, sizeof(name), "%s/proc/self/cgroup", root);
    file = fopen(name, "re");
    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        char *const list = strchr(line, ':');
        char *const own = (list != NULL) ? strchr(list + 1, ':') : NULL;

        if (own == NULL) {
            continue;
        }
        *own = '\0';
        own[1 + strcspn(own + 1, "\n")] = '\0';
        if ((strlen(own + 1) < CGROUP_PATH_BYTES) &&
            ((controller == NULL) ? (list[1] == '\0')
                                  : is_in_list(list + 1, controller))) {
            snprintf(path, CGROUP_PATH_BYTES, "%s", own + 1);
            return true;
        }
    }
    return false;
}

/* "\040" is a space, as in all of the kernel's lists of mounts. */
static void unescape(char *text)
{
    char *to = text;

    for (const char *at = text; *at != '\0'; to++) {
        if ((at[0] == '\\') && (strspn(at + 1, "01234567") >= 3)) {
            *to = (char)(((at[1] - '0') << 6) | ((at[2] - '0') << 3) |
                         (at[3] - '0'));
            at += 4;
        } else {
            *to = *at++;
        }
    }
    *to = '\0';
}

/* Parses one line of /proc/self/mountinfo: true if it is the hierarchy of
 * the controller (of version 2 if that is NULL), with the mounted group and
 * mount point. */
static bool read_mount(char *line, const char *controller,
                       char mounted[CGROUP_PATH_BYTES],
                       char mount_point[CGROUP_PATH_BYTES])
{
    char *const behind = strstr(line, " - ");
    char type[32];
    char options[CGROUP_LINE_BYTES];

    if ((behind == NULL) ||
        (sscanf(behind, " - %31s %*s %4095s", type, options) != 2) ||
        (sscanf(line, "%*s %*s %*s %1023s %1023s", mounted, mount_point) !=
         2)) {
        return false;
    }
    if ((controller == NULL) ? (strcmp(type, "cgroup2") != 0)
                             : (strcmp(type, "cgroup") != 0) ||
                                   !is_in_list(options, controller)) {
        return false;
    }
    unescape(mounted);
    unescape(mount_point);
    return true;
}

/* The last visible mount hides those before it. */
static bool find_mount(const char *root, const char *controller,
                       char mounted[CGROUP_PATH_BYTES],
                       char mount_point[CGROUP_PATH_BYTES])
{
    BT_CLEANUP(fclose) FILE *file = NULL;
    char name[2 * CGROUP_PATH_BYTES];
    char line[CGROUP_LINE_BYTES];
    char from[CGROUP_PATH_BYTES];
    char at[CGROUP_PATH_BYTES];
    bool found = false;

    snprintf(name, sizeof(name), "%s/proc/self/mountinfo", root);
    file = fopen(name, "re");
    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        if (!read_mount(line, controller, from, at)) {
            continue;
        }
        snprintf(name, sizeof(name), "%s%s", root, at);
        if (access(name, F_OK) == 0) {
            memcpy(mounted, from, CGROUP_PATH_BYTES);
            memcpy(mount_point, at, CGROUP_PATH_BYTES);
            found = true;
        }
    }
    return found;
}

/* @return the rest of the path below the mounted group, or NULL where it is not
 * below it (a mount of another namespace) */
static const char *below(const char *mounted, const char *path)
{
    const size_t n = (strcmp(mounted, "/") == 0) ? 0 : strlen(mounted);

    return ((strncmp(path, mounted, n) == 0) &&
            ((path[n] == '/') || (path[n] == '\0')))
               ? path + n
               : NULL;
}

static bool find_cgroup(const char *root, const char *controller,
                        cgroup_t *cgroup)
{
    char path[CGROUP_PATH_BYTES];
    char mounted[CGROUP_PATH_BYTES] = "/";
    char mount_point[CGROUP_PATH_BYTES];
    const char *rest;
    int top, all;

    if (!read_own_path(root, controller, path)) {
        return false;
    }
    if (!find_mount(root, controller, mounted, mount_point)) {
        snprintf(mount_point, sizeof(mount_point), "/sys/fs/cgroup%s%s",
                 (controller != NULL) ? "/" : "",
                 (controller != NULL) ? controller : "");
    }
    rest = below(mounted, path);
    rest = ((rest == NULL) || (strstr(rest, "/..") != NULL)) ? "" : rest;
    cgroup->is_v1 = controller != NULL;
    cgroup->root_len = strlen(root);
    top = snprintf(cgroup->dir, sizeof(cgroup->dir), "%s%s", root, mount_point);
    if (top >= (int)sizeof(cgroup->dir)) {
        return false;
    }
    cgroup->top_len = (size_t)top;
    all = snprintf(cgroup->dir, sizeof(cgroup->dir), "%s%s%s", root,
                   mount_point, rest);
    if (all >= (int)sizeof(cgroup->dir)) { /* too long: the limits above hold */
        cgroup->dir[cgroup->top_len] = '\0';
    }
    while ((all > top) && (cgroup->dir[strlen(cgroup->dir) - 1] == '/')) {
        cgroup->dir[strlen(cgroup->dir) - 1] = '\0';
        all--;
    }
    return true;
}

/* ---- levels ---- */

/* The level above. @return false: it was the mounted one */
static bool go_up(cgroup_t *cgroup)
{
    char *slash;

    if (strlen(cgroup->dir) <= cgroup->top_len) {
        return false;
    }
    slash = strrchr(cgroup->dir + cgroup->top_len, '/');
    cgroup->dir[(slash != NULL) ? (size_t)(slash - cgroup->dir)
                                : cgroup->top_len] = '\0';
    return true;
}

static void name_file(const cgroup_t *cgroup, const char *name,
                      bt_limit_t *limit)
{
    const int n = snprintf(limit->by, sizeof(limit->by), "%s/%s",
                           cgroup->dir + cgroup->root_len, name);

    if (n >= (int)sizeof(limit->by)) {
        snprintf(limit->by, sizeof(limit->by), "%s", name);
    }
}

static void look_at_cpus(const cgroup_t *cgroup, bt_limit_t *limit)
{
    static const char v2[] = "cpu.max";
    static const char v1[] = "cpu.cfs_quota_us";
    uint64_t quota = UINT64_MAX;
    uint64_t period = 0;
    uint64_t n;

    if (cgroup->is_v1) {
        quota = read_number(cgroup->dir, v1, "");
        period = or_zero(read_number(cgroup->dir, "cpu.cfs_period_us", ""));
    } else { /* "MOST PERIOD" in microseconds, or "max PERIOD" */
        char text[LINE_BYTES];
        unsigned long long words[2] = {0, 0};

        if (read_text(cgroup->dir, v2, "", text) &&
            (sscanf(text, "%llu %llu", &words[0], &words[1]) == 2)) {
            quota = words[0];
            period = words[1];
        }
    }
    if ((quota == UINT64_MAX) || (period == 0)) {
        return;
    }
    n = quota / period;
    limit->most = limit->left = (n == 0) ? 1 : n;
    name_file(cgroup, cgroup->is_v1 ? v1 : v2, limit);
}

/* Version 1 counts child groups separately, and "used" includes them. */
static uint64_t file_pages(const cgroup_t *cgroup)
{
    static const char *const words[2][2] = {
        {"active_file ", "inactive_file "},
        {"total_active_file ", "total_inactive_file "}};
    uint64_t bytes = 0;

    for (size_t i = 0; i < BT_ARRAY_LEN(words[0]); i++) {
        bytes += or_zero(
            read_number(cgroup->dir, "memory.stat", words[cgroup->is_v1][i]));
    }
    return bytes;
}

static void look_at_memory(const cgroup_t *cgroup, bt_limit_t *limit)
{
    const char *const name =
        cgroup->is_v1 ? "memory.limit_in_bytes" : "memory.max";
    const uint64_t most = read_number(cgroup->dir, name, "");
    uint64_t used = read_number(
        cgroup->dir, cgroup->is_v1 ? "memory.usage_in_bytes" : "memory.current",
        "");
    uint64_t files;

    if ((most >= NO_LIMIT) || (used == UINT64_MAX)) {
        return;
    }
    files = file_pages(cgroup);
    used -= (files < used) ? files : used;
    limit->most = most;
    limit->left = (used < most) ? most - used : 0;
    name_file(cgroup, name, limit);
}

static void look_at_tasks(const cgroup_t *cgroup, bt_limit_t *limit)
{
    const uint64_t most = read_number(cgroup->dir, "pids.max", "");
    const uint64_t used = or_zero(read_number(cgroup->dir, "pids.current", ""));

    if (most == UINT64_MAX) {
        return;
    }
    limit->most = most;
    limit->left = (used < most) ? most - used : 0;
    name_file(cgroup, "pids.max", limit);
}

/* Reads all levels of both versions and keeps the one that leaves the least:
 * if both are mounted, each controller is in one of them. */
static void find_tightest(const char *root, const char *controller,
                          level_fn *look, bt_limit_t *limit_p)
{
    const char *const hierarchies[] = {controller, NULL};
    bt_limit_t tightest = {.most = UINT64_MAX, .left = UINT64_MAX, .by = ""};

    for (size_t i = 0; i < BT_ARRAY_LEN(hierarchies); i++) {
        cgroup_t cgroup;
        bool more = find_cgroup(root, hierarchies[i], &cgroup);

        for (; more; more = go_up(&cgroup)) {
            bt_limit_t limit = {.most = UINT64_MAX, .left = UINT64_MAX};

            look(&cgroup, &limit);
            if (limit.left < tightest.left) {
                tightest = limit;
            }
        }
    }
    *limit_p = tightest;
}

void bt_cgroup_cpus(const char *root, bt_limit_t *limit_p)
{
    find_tightest(root, "cpu", look_at_cpus, limit_p);
}

void bt_cgroup_memory(const char *root, bt_limit_t *limit_p)
{
    find_tightest(root, "memory", look_at_memory, limit_p);
}

void bt_cgroup_tasks(const char *root, bt_limit_t *limit_p)
{
    find_tightest(root, "pids", look_at_tasks, limit_p);
}

uint64_t bt_cgroup_oom_kills(const char *root)
{
    static const struct {
        const char *controller, *file;
    } counters[] = {{"memory", "memory.oom_control"}, {NULL, "memory.events"}};
    char proc[CGROUP_PATH_BYTES];

    for (size_t i = 0; i < BT_ARRAY_LEN(counters); i++) {
        uint64_t n = UINT64_MAX;
        cgroup_t cgroup;

        if (find_cgroup(root, counters[i].controller, &cgroup)) {
            n = read_number(cgroup.dir, counters[i].file, "oom_kill ");
        }
        if (n != UINT64_MAX) {
            return n;
        }
    }
    snprintf(proc, sizeof(proc), "%s/proc", root);
    return or_zero(read_number(proc, "vmstat", "oom_kill "));
}

/* Capabilities that RLIMIT_NPROC does not bound (capability.h, fork.c). */
#define CAP_SYS_ADMIN    21
#define CAP_SYS_RESOURCE 24

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
    if (read_text(root, "proc/thread-self/status",
                  "Cpus_allowed_list:", list) ||
        read_text(root, "proc/self/status", "Cpus_allowed_list:", list)) {
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
    const uint64_t kib = read_number(root, "proc/meminfo", word);

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
    if (read_text(root, "proc/self/uid_map", "", text) &&
        ((sscanf(text, "%llu %llu %llu", &first, &outside, &n) != 3) ||
         (first != 0) || (outside != 0) || (n < UINT32_MAX))) {
        return false;
    }
    if (read_text(root, "proc/self/status", "CapEff:", text)) {
        held = strtoull(text, NULL, 16);
    }
    return (uid == 0) || ((held & ((UINT64_C(1) << CAP_SYS_ADMIN) |
                                   (UINT64_C(1) << CAP_SYS_RESOURCE))) != 0);
}

/* Threads of this user's that there are. */
static uint64_t count_threads(const char *root, uint64_t uid)
{
    BT_CLEANUP(closedir) DIR *dir = NULL;
    uint64_t n = 0;
    char path[CGROUP_PATH_BYTES];
    const struct dirent *entry;

    snprintf(path, sizeof(path), "%s/proc", root);
    dir = opendir(path);
    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        if (!isdigit((unsigned char)entry->d_name[0])) {
            continue;
        }
        snprintf(path, sizeof(path), "proc/%.32s/status", entry->d_name);
        if (read_number(root, path, "Uid:") == uid) {
            n += or_zero(read_number(root, path, "Threads:"));
        }
    }
    return n;
}

void bt_limits_threads(const char *root, bt_limit_t *limit_p)
{
    const uint64_t most =
        read_number(root, "proc/self/limits", "Max processes");
    const uint64_t uid = read_number(root, "proc/self/status", "Uid:");
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
