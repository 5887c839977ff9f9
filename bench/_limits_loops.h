/* SPDX-License-Identifier: Apache-2.0 */
/** @file _limits_loops.h  Loops that _limits.c times. */
#ifndef BT_BENCH_LIMITS_LOOPS_H
#define BT_BENCH_LIMITS_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#include "bench/_limits.h"

/** Input of a loop: one thread's part of the stream. */
typedef struct bt_loop_work {
    const void *data; /**< 64-byte aligned; the stream only */
    size_t n;         /**< bytes, a multiple of 512; otherwise loop
                           iterations */
} bt_loop_work_t;

typedef struct bt_loop {
    const char *isa;
    /** Runs the loop. @return an arbitrary value that keeps the work from being
     *  optimised away */
    uint64_t (*run)(const bt_loop_work_t *work);
    double per_n; /**< bytes or operations per unit of n */
} bt_loop_t;

/** Returns the widest loop that this CPU supports; run is NULL: none. */
bt_loop_t bt_loop_for(bt_limit_t what);

#endif
