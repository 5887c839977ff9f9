/* SPDX-License-Identifier: Apache-2.0 */
/** @file limits.h
 *
 * Limits of CPUs, memory and processes for a process and its children: the
 * tighter of what the machine or the user has and what control groups leave
 * (cgroup.h). One answer for all: the launcher reads it for what it starts, a
 * worker or a tool that nobody started for itself, and `./baton check` and
 * `./baton doctor` tell it.
 *
 * @a root is as in cgroup.h: "" for this machine.
 */
#ifndef BT_COMMON_BASE_LIMITS_H
#define BT_COMMON_BASE_LIMITS_H

#include <stdbool.h>

#include "common/base/cgroup.h"

/** The limit of processes of a user, as bt_limit_t.by has it. */
#define BT_LIMITS_OF_USER "ulimit -u"

/** How many threads may compute at a time: allowed CPUs (taskset, cpuset), or
 *  the whole ones of a quota where these are fewer; `by` is "" unless a quota
 *  decides. At least 1. */
void bt_limits_cpus(const char *root, bt_limit_t *limit_p);

/** The number of bt_limits_cpus() on this machine alone. */
uint32_t bt_limits_n_cpus(void);

/** Bytes that may still be taken: `left` is the smaller of the machine's
 *  MemAvailable (then `by` is "", and `most` MemTotal) and what the groups
 *  leave. UINT64_MAX when neither can be read. */
void bt_limits_memory(const char *root, bt_limit_t *limit_p);

/** The bytes that bt_limits_memory() says are left on this machine. */
uint64_t bt_limits_memory_left(void);

/** Processes and threads that may still be started: what the groups leave
 *  (pids.max), or RLIMIT_NPROC of this user, who has those threads that can be
 *  seen. It does not bound root and those with CAP_SYS_RESOURCE or
 *  CAP_SYS_ADMIN. Reads all of /proc where that limit is set. */
void bt_limits_threads(const char *root, bt_limit_t *limit_p);

#endif
