/* SPDX-License-Identifier: Apache-2.0 */
/** @file limits.h
 *
 * Limits of CPUs, memory and processes for a process and its children: the
 * tighter of the machine's or user's limit and what control groups leave
 * (cgroup.h). One source for all: the launcher reads it for the processes that
 * it starts, a worker or tool without a launcher for itself, and `./baton
 * check` and `./baton doctor` print it.
 *
 * @a root is as in cgroup.h: "" for this machine.
 */
#ifndef BT_COMMON_BASE_LIMITS_H
#define BT_COMMON_BASE_LIMITS_H

#include <stdbool.h>

#include "common/base/cgroup.h"

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
