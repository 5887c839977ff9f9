/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A waking thread with a shorter slice need not let the running one finish its
 * own (some 3 ms). With 100 us, the shortest there is, the 99th percentile of
 * the time to wake beside a busy thread fell from 200..800 us to 37.
 *
 * Who has used up its slice when the clock ticks (every 4 ms where HZ is 250)
 * waits for the busy thread until it ticks again. Of bursts of 300 us beside a
 * busy thread one in ten was 1.5 ms late then, and one in a hundred 4 ms. With
 * 2 ms beside slices of 100 ms, the longest there are, it was 83 us; with 2 ms
 * beside the usual ones it was worse than with 100 us. */
#define BRIEF_NS 100000u
#define BURST_NS 2000000u
#define LONG_NS  100000000u

/* A weight of 36, where a router's other threads have 1024 and workers, at 5,
 * 335 (sched(7)). */
#define BACKGROUND_NICE 15
#define MOST_NICE       19

/* Struct of the kernel (sched_setattr(2)), whose header cannot be had beside
 * sched.h. */
typedef struct attr {
    uint32_t size;
    uint32_t sched_policy;
    uint64_t sched_flags;
    int32_t sched_nice;
    uint32_t sched_priority;
    uint64_t sched_runtime, sched_deadline, sched_period;
} attr_t;

static void slice_set(uint64_t ns)
{
    attr_t attr = {.size = sizeof(attr)};

    /* Whatever else was set for this process stays as it is. */
    if ((syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) != 0) ||
        (attr.sched_policy != SCHED_OTHER)) {
        return;
    }
    attr.sched_runtime = ns;
    (void)!syscall(SYS_sched_setattr, 0, &attr, 0);
}

void bt_thread_works_briefly(void)
{
    slice_set(BRIEF_NS);
}

void bt_thread_works_in_bursts(void)
{
    slice_set(BURST_NS);
}

void bt_thread_works_long(bool alone)
{
    slice_set(alone ? LONG_NS : 0);
}

void bt_thread_works_when_idle(void)
{
    const struct sched_param none = {0};

    if (sched_setscheduler(0, SCHED_IDLE, &none) != 0) {
        (void)setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
    }
}

void bt_thread_lower_priority(uint32_t nice)
{
    const id_t id = (id_t)gettid();
    int now;

    errno = 0;
    now = getpriority(PRIO_PROCESS, id);
    if ((nice == 0) || ((now == -1) && (errno != 0))) {
        return;
    }
    (void)setpriority(PRIO_PROCESS, id,
                      (nice < (uint32_t)(MOST_NICE - now)) ? now + (int)nice
                                                           : MOST_NICE);
}

void bt_thread_works_in_background(void)
{
    bt_thread_lower_priority(BACKGROUND_NICE);
}

int bt_thread_start(pthread_t *id_p, void *(*main)(void *), void *arg)
{
    sigset_t all;
    sigset_t old;
    int err;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(id_p, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return err;
}

void bt_thread_deadline(uint64_t timeout_ms, struct timespec *when_p)
{
    struct timespec when;

    clock_gettime(CLOCK_MONOTONIC, &when);
    when.tv_sec += (time_t)(timeout_ms / 1000);
    when.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (when.tv_nsec >= 1000000000) {
        when.tv_sec++;
        when.tv_nsec -= 1000000000;
    }
    *when_p = when;
}

void bt_thread_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}
