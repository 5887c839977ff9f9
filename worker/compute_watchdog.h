/* SPDX-License-Identifier: Apache-2.0 */
/** @file compute_watchdog.h
 *
 * Watchdog of the compute thread. Its marks (bt_engine_progress()) change with
 * every operation of a layer, so the check does not depend on how long a step
 * takes, only on how long no operation ends.
 *
 * Time between two looks counts at most an eighth of the limit: after this
 * process was stopped or got no CPU, all its threads had stood still, so the
 * compute thread is not to blame.
 *
 * Pure: marks and time in, the verdict out.
 */
#ifndef BT_WORKER_COMPUTE_WATCHDOG_H
#define BT_WORKER_COMPUTE_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

/** Least number of looks without a new mark before the limit is reached. */
#define BT_STUCK_LOOKS 8

typedef struct bt_compute_watchdog {
    bool busy;          /**< the thread had work at the last look */
    uint64_t marks;     /**< marks at the last look */
    uint64_t looked_ms; /**< time of the last look */
    uint64_t still_ms;  /**< time for which the marks have not changed */
} bt_compute_watchdog_t;

/** Checks once; @a stuck is all zeros before the first time.
 *  @param [in] busy   the thread has work; without, no progress is expected
 *  @param [in] marks  any number that changes with progress
 *  @param [in] now_ms  monotonic
 *  @return whether the thread had work and made no progress for @a limit_ms */
bool bt_compute_watchdog_check(bt_compute_watchdog_t *stuck, bool busy,
                               uint64_t marks, uint64_t now_ms,
                               uint32_t limit_ms);

#endif
