/* SPDX-License-Identifier: Apache-2.0 */
/** @file process_state.h
 *
 * State machine of one process. Pure.
 *
 *     STOPPED          ──START, RESTART──▶ STARTING  ──HOLD──▶ WAITING
 *     STARTING         ──SAID_READY──▶ READY   ──GAVE_UP──▶ STOPPED
 *     STARTING, READY  ──ENDED──▶ WAITING  ──STOP──▶ STOPPING
 *                      ──RESTART──▶ CHANGING
 *     STOPPING         ──ENDED──▶ STOPPED  ──START, RESTART──▶ CHANGING
 *     CHANGING         ──ENDED──▶ STARTING ──STOP──▶ STOPPING
 *     WAITING          ──PAUSE_OVER, START, RESTART──▶ STARTING
 *                      ──STOP──▶ STOPPED
 *
 * An event without an arrow in a state does not change the state.
 */
#ifndef BT_LAUNCHER_PROCESS_STATE_H
#define BT_LAUNCHER_PROCESS_STATE_H

#include <stdbool.h>

typedef enum bt_process_state {
    BT_LIFE_STOPPED,  /**< not running, and not started automatically */
    BT_LIFE_STARTING, /**< running, and not ready yet */
    BT_LIFE_READY,
    BT_LIFE_STOPPING, /**< got SIGTERM, to stay stopped */
    BT_LIFE_CHANGING, /**< got SIGTERM, to start again */
    BT_LIFE_WAITING,  /**< ended by itself, or held at launch; starts later */
} bt_process_state_t;
#define BT_LIFE_STATES 6

typedef enum bt_process_state_event {
    BT_LIFE_START,      /**< by an admin command, or the launch */
    BT_LIFE_HOLD,       /**< by the launch: other processes come first */
    BT_LIFE_STOP,       /**< by an admin command, or the end of the launch */
    BT_LIFE_RESTART,    /**< by an admin command */
    BT_LIFE_SAID_READY, /**< by the process */
    BT_LIFE_ENDED,      /**< the process was reaped */
    BT_LIFE_GAVE_UP,    /**< failed to start, and a retry is useless */
    BT_LIFE_PAUSE_OVER, /**< the pause is over, or the others have started */
} bt_process_state_event_t;
#define BT_LIFE_EVENTS 8

/** @return the state after the event; @a life itself when nothing changes. */
bt_process_state_t bt_process_state_after(bt_process_state_t life,
                                          bt_process_state_event_t event);

/** True when there is an arrow from one state to the other. */
bool bt_process_state_is_edge(bt_process_state_t from, bt_process_state_t to);

/** True when there is a process that has not been reaped (or should be one). */
bool bt_process_state_runs(bt_process_state_t life);

#endif
