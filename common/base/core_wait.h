/* SPDX-License-Identifier: Apache-2.0 */
/** @file core_wait.h
 *
 * Does another process of this host wait for a core? One that says nothing may
 * be dead, stopped, blocked or spinning, or it may be starved: it has work and
 * gets no core, because others have them or because its quota of processor time
 * is used up. Linux tells them apart, without any part of that process:
 *
 *     /proc/PID/task/TID/stat        state R and the same processor time:
 *                                    it waits. T: stopped. S, D: blocked.
 *     /proc/PID/task/TID/schedstat   time on a core, time in the run queue,
 *                                    turns (Documentation/scheduler/
 *                                    sched-stats.rst)
 *
 * Time in the run queue is booked when a thread gets its turn, so while it
 * waits the state alone tells. A process waits when its first thread does, or
 * when that is blocked and another one waits, perhaps with what the first one
 * needs. Threads that were given a lower weight than the first one do not
 * count: they are meant to wait.
 *
 * Threads: one thread owns a bt_core_wait_t.
 */
#ifndef BT_COMMON_BASE_CORE_WAIT_H
#define BT_COMMON_BASE_CORE_WAIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define BT_CORE_WAIT_THREADS 64u /**< of a process, that are looked at */

/** One thread, at one moment. */
typedef struct bt_core_wait_thread {
    int32_t tid;
    char state;         /**< as in proc(5) */
    bool is_background; /**< of a lower weight than the first thread */
    bool is_idle_class;
    int32_t nice;
    uint64_t ran_ns, waited_ns, n_turns;
} bt_core_wait_thread_t;

/** Zero-initialise. */
typedef struct bt_core_wait {
    uint64_t looked_ms; /**< 0: never, or it could not be read */
    uint32_t n_threads;
    bt_core_wait_thread_t threads[BT_CORE_WAIT_THREADS]; /**< by tid */
} bt_core_wait_t;

/** How long the thread waited for a core between two looks. Pure.
 *  @return at most @a passed_ms */
uint64_t bt_core_wait_of(const bt_core_wait_thread_t *before,
                         const bt_core_wait_thread_t *after,
                         uint64_t passed_ms);

/** How long the process waited for a core since the last look, which was of the
 *  same process; 0 at the first one, and where the system does not tell. Some
 *  20 us, and as much for each thread unless the first one waits.
 *  @param now_ms  monotonic, not 0
 *  @return ms, at most what has passed */
uint64_t bt_core_wait_look(bt_core_wait_t *wait, pid_t pid, uint64_t now_ms);

#endif
