/* SPDX-License-Identifier: Apache-2.0 */
/** @file core_wait.h
 *
 * Detects whether another process of this host is starved of CPU. A silent
 * process may be dead, stopped, blocked or spinning, or it may be starved: it
 * has work and gets no core, because other processes use them or because its
 * CPU quota is used up. Linux distinguishes these cases, without any help from
 * that process:
 *
 *     /proc/PID/task/TID/stat        state R and unchanged processor time:
 *                                    it waits. T: stopped. S, D: blocked.
 *     /proc/PID/task/TID/schedstat   time on a core, time in the run queue,
 *                                    turns (Documentation/scheduler/
 *                                    sched-stats.rst)
 *
 * Time in the run queue is accounted when a thread gets its turn, so while it
 * waits only the state shows it. A process waits when its first thread does, or
 * when that is blocked and another one waits, perhaps with what the first one
 * needs. Threads of a lower weight than the first one do not count: they are
 * meant to wait.
 *
 * Threads: one thread owns a bt_core_wait_t.
 */
#ifndef BT_COMMON_BASE_CORE_WAIT_H
#define BT_COMMON_BASE_CORE_WAIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define BT_CORE_WAIT_THREADS 64u /**< most threads examined */

/** Sample of one thread. */
typedef struct bt_core_wait_thread {
    int32_t tid;
    char state;         /**< as in proc(5) */
    bool is_background; /**< lower weight than the first thread */
    bool is_idle_class;
    int32_t nice;
    uint64_t ran_ns, waited_ns, n_turns;
} bt_core_wait_thread_t;

/** Last sample of a process. Zero-initialise. */
typedef struct bt_core_wait {
    uint64_t looked_ms; /**< time of the sample; 0: none, or unreadable */
    uint32_t n_threads;
    bt_core_wait_thread_t threads[BT_CORE_WAIT_THREADS]; /**< by tid */
} bt_core_wait_t;

/**
 * Returns how long a thread waited for a core between two samples. Pure.
 * @return at most @a passed_ms
 */
uint64_t bt_core_wait_of(const bt_core_wait_thread_t *before,
                         const bt_core_wait_thread_t *after,
                         uint64_t passed_ms);

/**
 * Samples a process and returns how long it waited for a core since the last
 * sample, which was of this process; 0 at the first one, and if the system does
 * not report it. Some 20 us, and as much for each thread unless the first one
 * waits.
 * @param now_ms  monotonic, not 0
 * @return ms, at most the time since the last sample
 */
uint64_t bt_core_wait_look(bt_core_wait_t *wait, pid_t pid, uint64_t now_ms);

#endif
