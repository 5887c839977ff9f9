/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/clock.h"

#include <time.h>

uint64_t bt_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int64_t bt_unix_minus_monotonic_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec -
           (int64_t)bt_now_ns();
}
