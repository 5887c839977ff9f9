/* SPDX-License-Identifier: Apache-2.0 */
/** @file threads.h
 *
 * Current state of the threads of a process, logged to explain why the process
 * was killed:
 *
 *     prefill-0 thread 4711 (baton-prefill-w): state S, waits in futex_do_wait,
 *     ran 1204 ms, waited 31 ms for a core in 210 turns
 *     prefill-0 thread 4711 is in: futex_do_wait < __futex_wait < do_futex
 *
 * Source: /proc/PID/task/TID/{stat,wchan,schedstat,stack}, as in proc(5). Only
 * root can read the kernel stack.
 */
#ifndef BT_LAUNCHER_THREADS_H
#define BT_LAUNCHER_THREADS_H

#include <sys/types.h>

/** Logs the threads of a process, at most 64. Takes some 50 us per thread. */
void bt_threads_log(const char *name, pid_t pid);

#endif
