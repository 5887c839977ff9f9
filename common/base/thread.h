/* SPDX-License-Identifier: Apache-2.0 */
/** @file thread.h
 *
 * Threads: how they start, how long one waits for another, and how the kernel
 * shares a core between them. The last needs no privilege: Linux 6.12 and later
 * do it (EEVDF with a slice of each thread's own), earlier ones ignore it; so
 * do we.
 *
 *     compute      ██████████████████████████░░██████████   long
 *     control                                ██             briefly, in bursts
 *                                            ↑ there is something for it
 */
#ifndef BT_COMMON_BASE_THREAD_H
#define BT_COMMON_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/** This thread, and those it makes from now on, wait much and work briefly:
 *  when there is something for them they want a core at once, also where
 *  another thread computes. */
void bt_thread_works_briefly(void);

/** The same beside threads that compute alone, bt_thread_works_long(true), and
 *  for work of up to a millisecond at a time, which is then done in one go. */
void bt_thread_works_in_bursts(void);

/** This thread computes for long: the usual slice again.
 *  @param alone  nobody else computes on its core, only threads that work
 *                briefly or in bursts do beside it: a slice so long that they
 *                always come first. Two such threads on a core would take turns
 *                of a tenth of a second. */
void bt_thread_works_long(bool alone);

/** This thread computes only where its core would be idle else: the kernel's
 *  idle class, which gives way to every other thread at once. Where that is
 *  refused, the least weight that there is (nice 19). For good: back needs
 *  privilege. */
void bt_thread_works_when_idle(void);

/** This thread, and those it makes from now on, have a lower weight where they
 *  share a core with others: `nice` is added to their nice value, which is 19
 *  at most (setpriority(2)). For good: back needs privilege. */
void bt_thread_lower_priority(uint32_t nice);

/** This thread does what takes long and nobody waits for: 15 is added to its
 * nice value. Beside a worker's thread that computes on the same core (nice 5)
 * it has a tenth of the time. For good: back needs privilege. */
void bt_thread_works_in_background(void);

/** A thread that takes no signals: those belong to the program's own.
 *  @return errno */
int bt_thread_start(pthread_t *id_p, void *(*main)(void *), void *arg);

/** So long from now, by CLOCK_MONOTONIC, for who waits for a thread. */
void bt_thread_deadline(uint64_t timeout_ms, struct timespec *when_p);

#endif
