/* SPDX-License-Identifier: Apache-2.0 */
/** @file clock.h
 *
 * Monotonic time. Pure modules (common/kv, common/sched, router/core) do not
 * read it: they get the time as a parameter, so that tests inject it.
 */
#ifndef BT_COMMON_BASE_CLOCK_H
#define BT_COMMON_BASE_CLOCK_H

#include <stdint.h>

uint64_t bt_now_ns(void);        /**< CLOCK_MONOTONIC */
uint64_t bt_thread_cpu_ns(void); /**< CPU time of the calling thread */
/** Returns the current difference between the time of day and the monotonic
 *  clock. */
int64_t bt_unix_minus_monotonic_ns(void);

static inline uint64_t bt_unix_us(void) /**< CLOCK_REALTIME */
{
    return (uint64_t)(bt_unix_minus_monotonic_ns() + (int64_t)bt_now_ns()) /
           1000u;
}

static inline uint64_t bt_now_ms(void)
{
    return bt_now_ns() / 1000000u;
}

static inline uint64_t bt_now_us(void)
{
    return bt_now_ns() / 1000u;
}

#endif
