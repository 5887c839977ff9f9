/* SPDX-License-Identifier: Apache-2.0 */
/** @file turn.h
 *
 * Work that several callbacks of the event loop cause and that is done once:
 * what they have to say to a worker, or to a client, leaves in one write.
 *
 *     callback, callback, …  ── bt_turn_put_off() ──▶ end of the loop's turn
 *
 * A turn ends when no event is left, and after half a millisecond of callbacks
 * in any case, so a busy loop makes nobody wait longer than that.
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_FRONTEND_TURN_H
#define BT_ROUTER_FRONTEND_TURN_H

#include <stdint.h>

#include "common/base/list.h"

#define BT_TURN_US 500 /**< what was put off waits for so long at most */

typedef struct bt_turn_work {
    bt_list_t link; /**< in bt_turn_t.due */
    void (*run)(struct bt_turn_work *work);
} bt_turn_work_t;

typedef struct bt_turn {
    bt_list_t due;
    uint64_t since_us; /**< when the first of `due` was put off */
} bt_turn_t;

void bt_turn_init(bt_turn_t *turn);
void bt_turn_work_init(bt_turn_work_t *work, void (*run)(bt_turn_work_t *work));
/** Nothing where it waits already. @param now_us  of bt_now_us() */
void bt_turn_put_off(bt_turn_t *turn, bt_turn_work_t *work, uint64_t now_us);
/** A callback is over: do what has waited for BT_TURN_US. */
void bt_turn_step(bt_turn_t *turn, uint64_t now_us);
/** Do all that waits, in the order in which it was put off; what it puts off
 *  itself is of the next turn. */
void bt_turn_finish(bt_turn_t *turn);
/** It is not done. Also of work that does not wait. */
void bt_turn_forget(bt_turn_work_t *work);

#endif
