/* SPDX-License-Identifier: Apache-2.0 */
/** @file limits.h
 *
 * CPUs, memory and processes that this machine and its control groups leave.
 */
#ifndef BT_COMMON_BASE_LIMITS_H
#define BT_COMMON_BASE_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

/*
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

/*
 * Limits of CPUs, memory and processes for a process and its children: the
 * tighter of the machine's or user's limit and what control groups leave. One
 * source for all: the launcher reads it for the processes that it starts, a
 * worker or tool without a launcher for itself, and `./baton check` and
 * `./baton doctor` print it.
 *
 * @a root is "" for this machine.
 */

/** Value of bt_limit_t.by for the user's limit of processes. */
#define BT_LIMITS_OF_USER "ulimit -u"

/** Returns how many threads may compute at a time: allowed CPUs (taskset,
 *  cpuset), or the whole CPUs of a quota if fewer; `by` is "" unless a quota
 *  decides. At least 1. */
void bt_limits_cpus(const char *root, bt_limit_t *limit_p);

/** Returns the number of bt_limits_cpus() for this machine. */
uint32_t bt_limits_n_cpus(void);

/** Returns the bytes that may still be allocated: `left` is the smaller of
 *  the machine's MemAvailable (then `by` is "", and `most` MemTotal) and
 *  what the groups leave. UINT64_MAX when neither can be read. */
void bt_limits_memory(const char *root, bt_limit_t *limit_p);

/** Returns `left` of bt_limits_memory() for this machine. */
uint64_t bt_limits_memory_left(void);

/**
 * Returns the processes and threads that may still be started: what the groups
 * leave (pids.max), or RLIMIT_NPROC less this user's visible threads.
 * RLIMIT_NPROC does not bound root and users with CAP_SYS_RESOURCE or
 * CAP_SYS_ADMIN. Reads all of /proc if that limit is set.
 */
void bt_limits_threads(const char *root, bt_limit_t *limit_p);

#endif
