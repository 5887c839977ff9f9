/* SPDX-License-Identifier: Apache-2.0 */
/** @file turn.h
 *
 * Deferred work that several callbacks of the event loop request and that runs
 * once: their output for one worker, or one client, leaves in one write.
 *
 *     callback, callback, …  ── bt_turn_put_off() ──▶ end of the loop's turn
 *
 * A turn ends when no event is left, and after half a millisecond of callbacks
 * in any case, so a busy loop delays output no longer than that.
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_FRONTEND_TURN_H
#define BT_ROUTER_FRONTEND_TURN_H

#include <stdint.h>

#include "common/base/containers.h"

#define BT_TURN_US 500 /**< maximum delay of deferred work in us */

typedef struct bt_turn_work {
    bt_list_t link; /**< link in bt_turn_t.due */
    void (*run)(struct bt_turn_work *work);
} bt_turn_work_t;

typedef struct bt_turn {
    bt_list_t due;
    uint64_t since_us; /**< when the first entry of `due` was deferred */
} bt_turn_t;

void bt_turn_init(bt_turn_t *turn);
void bt_turn_work_init(bt_turn_work_t *work, void (*run)(bt_turn_work_t *work));
/** Defers work to the end of the turn; does nothing if the work is deferred
 *  already. @param now_us  from bt_now_us() */
void bt_turn_put_off(bt_turn_t *turn, bt_turn_work_t *work, uint64_t now_us);
/** Ends a callback: runs work that was deferred for BT_TURN_US. */
void bt_turn_step(bt_turn_t *turn, uint64_t now_us);
/** Runs all deferred work, in the order in which it was deferred; work deferred
 *  meanwhile belongs to the next turn. */
void bt_turn_finish(bt_turn_t *turn);
/** Cancels deferred work. Does nothing if the work is not deferred. */
void bt_turn_forget(bt_turn_work_t *work);

#endif
