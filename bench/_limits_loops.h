/* SPDX-License-Identifier: Apache-2.0 */
/** @file _limits_loops.h  The loops that _limits.c times. */
#ifndef BT_BENCH_LIMITS_LOOPS_H
#define BT_BENCH_LIMITS_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#include "bench/_limits.h"

/** What a loop works on: the stream's part of one thread. */
typedef struct bt_loop_work {
    const void *data; /**< 64-byte aligned; the stream only */
    size_t n;         /**< bytes, a multiple of 512; else turns of the loop */
} bt_loop_work_t;

typedef struct bt_loop {
    const char *isa;
    /** @return anything: it keeps the work from being optimised away */
    uint64_t (*run)(const bt_loop_work_t *work);
    double per_n; /**< bytes or operations for each of n */
} bt_loop_t;

/** The widest that this CPU has; run is NULL: there is none. */
bt_loop_t bt_loop_for(bt_limit_t what);

#endif
