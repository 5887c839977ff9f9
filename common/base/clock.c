/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/clock.h"

#include <time.h>

static uint64_t read_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t bt_now_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t bt_thread_cpu_ns(void)
{
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

int64_t bt_unix_minus_monotonic_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec -
           (int64_t)bt_now_ns();
}
