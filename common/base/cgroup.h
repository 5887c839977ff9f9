/* SPDX-License-Identifier: Apache-2.0 */
/** @file cgroup.h
 *
 * Limits of the control groups (cgroups) of this process, of version 1 and 2. A
 * group is bounded by its ancestors, so every level is read, up to the mounted
 * one:
 *
 *     /proc/self/cgroup     4:memory:/a/b            0::/a/b
 *     /proc/self/mountinfo  / on /sys/fs/cgroup/memory, cgroup (memory)
 *
 *     /sys/fs/cgroup/memory/a/b/memory.limit_in_bytes      its own
 *     /sys/fs/cgroup/memory/a/memory.limit_in_bytes        the tightest
 *     /sys/fs/cgroup/memory/memory.limit_in_bytes          the mounted one's
 *
 * A container sees its own group as the mounted one. If no mount is found, the
 * usual places in /sys/fs/cgroup are read.
 *
 * Each function takes @a root, a folder that contains the files: "" for this
 * machine, another one for tests. Pure but for reading.
 *
 * Source: Linux, admin-guide/cgroup-v1 and cgroup-v2.rst, proc(5).
 */
#ifndef BT_COMMON_BASE_CGROUP_H
#define BT_COMMON_BASE_CGROUP_H

#include <stdint.h>

#define BT_LIMIT_BY_BYTES 1024

/** Limit of one resource of this process. */
typedef struct bt_limit {
    uint64_t most;              /**< UINT64_MAX: there is no limit */
    uint64_t left;              /**< remaining part; UINT64_MAX: there is no
                                     limit */
    char by[BT_LIMIT_BY_BYTES]; /**< source of the limit: path of a file
                                     (without root), or its name; "": none */
} bt_limit_t;

/** Returns the CPUs whose time the groups may use: quota by period, rounded
 *  down, at least 1. `left` equals `most`. */
void bt_cgroup_cpus(const char *root, bt_limit_t *limit_p);

/**
 * Returns bytes of memory, of the level that leaves the least. Page cache
 * counts as free, as in MemAvailable, because it can be reclaimed: the packed
 * weights that another worker of this group mapped are part of it, and must not
 * count twice.
 */
void bt_cgroup_memory(const char *root, bt_limit_t *limit_p);

/** Returns tasks (processes and their threads), of the level that leaves the
 *  least. */
void bt_cgroup_tasks(const char *root, bt_limit_t *limit_p);

/** Returns how often the kernel has killed a process of this group for lack
 *  of memory; if no group counts it, a process of this machine. Only useful
 *  to compare with an earlier value. */
uint64_t bt_cgroup_oom_kills(const char *root);

#endif
