/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/walltime.h"

#include <stdio.h>
#include <time.h>

int64_t bt_walltime_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void bt_walltime_print(int64_t unix_ms, char text[BT_WALLTIME_BYTES])
{
    const time_t seconds = (time_t)(unix_ms / 1000);
    struct tm tm = {0};

    gmtime_r(&seconds, &tm);
    /* The remainders show the compiler that it fits. */
    snprintf(text, BT_WALLTIME_BYTES,
             "%04u-%02u-%02uT%02u:%02u:%02u.%03u+00:00",
             (unsigned)(tm.tm_year + 1900) % 10000u,
             (unsigned)(tm.tm_mon + 1) % 100u, (unsigned)tm.tm_mday % 100u,
             (unsigned)tm.tm_hour % 100u, (unsigned)tm.tm_min % 100u,
             (unsigned)tm.tm_sec % 100u, (unsigned)(unix_ms % 1000) % 1000u);
}
