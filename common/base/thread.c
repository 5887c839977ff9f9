/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/thread.h"

#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A waking thread with a shorter slice need not let the running one finish its
 * own (some 3 ms). With 100 us, the shortest there is, the 99th percentile of
 * the time to wake beside a busy thread fell from 200..800 us to 37. */
#define BRIEF_NS 100000u

/* Of the kernel (sched_setattr(2)); its header cannot be had beside sched.h. */
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

void bt_thread_works_long(void)
{
    slice_set(0);
}
