/* SPDX-License-Identifier: Apache-2.0 */
/** @file cgroup.h
 *
 * The limits of the control groups (cgroups) that this process is in, of
 * version 1 and 2. A group is bounded by those that it lies in, so every level
 * is looked at, up to the one that is mounted:
 *
 *     /proc/self/cgroup     4:memory:/a/b            0::/a/b
 *     /proc/self/mountinfo  / on /sys/fs/cgroup/memory, cgroup (memory)
 *
 *     /sys/fs/cgroup/memory/a/b/memory.limit_in_bytes      its own
 *     /sys/fs/cgroup/memory/a/memory.limit_in_bytes        the tightest
 *     /sys/fs/cgroup/memory/memory.limit_in_bytes          the mounted one's
 *
 * A container sees its own group as the mounted one. Where no mount is found,
 * the usual places in /sys/fs/cgroup are looked at. Source: Linux,
 * admin-guide/cgroup-v1 and cgroup-v2.rst, proc(5).
 *
 * Each function takes @a root, a folder in which the files are looked for: ""
 * for this machine, another one for tests. Pure but for reading.
 */
#ifndef BT_COMMON_BASE_CGROUP_H
#define BT_COMMON_BASE_CGROUP_H

#include <stdint.h>

#define BT_LIMIT_BY_BYTES 1024

/** How much of something this process may have. */
typedef struct bt_limit {
    uint64_t most;              /**< UINT64_MAX: there is no limit */
    uint64_t left;              /**< of it; UINT64_MAX: there is no limit */
    char by[BT_LIMIT_BY_BYTES]; /**< what sets it: the path of a file (without
                                     root), or what it is called; "": none */
} bt_limit_t;

/** CPUs whose time the groups may have: quota by period, rounded down, at least
 *  1. What is left is the same number. */
void bt_cgroup_cpus(const char *root, bt_limit_t *limit_p);

/** Bytes of memory, of the level that leaves the least. Pages of files count as
 *  free, for they go when something else needs their place, as MemAvailable has
 *  it: the packed weights that another worker of this group mapped are among
 *  them, and must not count twice. */
void bt_cgroup_memory(const char *root, bt_limit_t *limit_p);

/** Tasks (processes and their threads), of the level that leaves the least. */
void bt_cgroup_tasks(const char *root, bt_limit_t *limit_p);

/** How often the kernel has killed a process of this group for want of memory;
 *  where no group counts it, a process of this machine. Only good to compare
 *  with what it was before. */
uint64_t bt_cgroup_oom_kills(const char *root);

#endif
