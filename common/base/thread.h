/* SPDX-License-Identifier: Apache-2.0 */
/** @file thread.h
 *
 * Threads: how they start, how long one waits for another, and how the kernel
 *          shares a core between them. Scheduling classes need no privilege:
 *          Linux 6.12 and later support them (EEVDF with a slice for each
 *          thread), earlier kernels ignore them.
 *
 *     compute      ██████████████████████████░░██████████   long
 *     control                                ██             briefly, in bursts
 *                                            ↑ work arrives
 */
#ifndef BT_COMMON_BASE_THREAD_H
#define BT_COMMON_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/** Declares that the calling thread, and threads that it creates from now
 *  on, mostly wait and work briefly: when work arrives they get a core at
 *  once, even where another thread computes. */
void bt_thread_works_briefly(void);

/** Declares that the calling thread, and threads that it creates from now
 *  on, mostly wait and then work for up to a millisecond in one go, on a
 *  core beside threads that compute alone, bt_thread_works_long(true). */
void bt_thread_works_in_bursts(void);

/**
 * Declares that the calling thread computes for long: the usual slice.
 * @param alone  no other thread computes on its core, only threads that work
 *               briefly or in bursts share it: a slice so long that those
 *               always run first. Two such threads on a core would alternate
 *               every tenth of a second.
 */
void bt_thread_works_long(bool alone);

/** Restricts the calling thread to idle cores: the kernel's idle class,
 *  which yields to every other thread at once. If that is refused, the
 *  lowest weight (nice 19). Permanent: undoing it needs privilege. */
void bt_thread_works_when_idle(void);

/** Lowers the weight of the calling thread, and of threads that it creates
 *  from now on, where they share a core with others: `nice` is added to
 *  their nice value, at most 19 (setpriority(2)). Permanent: undoing it
 *  needs privilege. */
void bt_thread_lower_priority(uint32_t nice);

/** Declares that the calling thread does long work that nothing waits for:
 *  15 is added to its nice value. Beside a worker's thread that computes on
 *  one core (nice 5) it gets a tenth of the time. Permanent: undoing it
 *  needs privilege. */
void bt_thread_works_in_background(void);

/** Starts a thread that blocks all signals: those belong to the program's
 *  own threads. @return errno */
int bt_thread_start(pthread_t *id_p, void *(*main)(void *), void *arg);

/** Returns the time @a timeout_ms from now by CLOCK_MONOTONIC, for waiting
 *  for a thread. */
void bt_thread_deadline(uint64_t timeout_ms, struct timespec *when_p);

/** Initializes a condition that is waited for until such a time. */
void bt_thread_cond_init(pthread_cond_t *cond);

/*
 * Pause instruction for spin loops that wait for another core.
 */

/** Lets this core's other hardware thread run, and saves power. */
static inline void bt_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
