/* SPDX-License-Identifier: Apache-2.0 */
/** @file stuck.h
 *
 * Does the compute thread still get on? Its marks (bt_engine_progress()) move
 * with every operation of a layer, so how long a step takes does not matter,
 * only how long nothing of it ends.
 *
 * Time counts as far as somebody was looking: of an interval between two looks
 * at most an eighth of the limit, for a process that was stopped, or got no
 * turn, knows of itself only that its threads all stood still together.
 *
 * Pure: marks and time in, the verdict out.
 */
#ifndef BT_WORKER_STUCK_H
#define BT_WORKER_STUCK_H

#include <stdbool.h>
#include <stdint.h>

/** Without a new mark, at least, before the limit. */
#define BT_STUCK_LOOKS 8

typedef struct bt_stuck {
    bool busy;          /**< at the last look */
    uint64_t marks;     /**< likewise */
    uint64_t looked_ms; /**< when that was */
    uint64_t still_ms;  /**< so long the marks have been what they are */
} bt_stuck_t;

/** Look once; all zeros before the first time.
 *  @param [in] busy   the thread has work; without, nothing is expected of it
 *  @param [in] marks  any number that changes when it gets on
 *  @param [in] now_ms  monotonic
 *  @return whether it had work and stood still for @a limit_ms */
bool bt_stuck_look(bt_stuck_t *stuck, bool busy, uint64_t marks,
                   uint64_t now_ms, uint32_t limit_ms);

#endif
