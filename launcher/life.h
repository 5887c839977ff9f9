/* SPDX-License-Identifier: Apache-2.0 */
/** @file life.h
 *
 * The life of one process: what it is in, and what each event makes of it.
 * Pure.
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
 * An event that stands at no arrow of a state changes nothing in it.
 */
#ifndef BT_LAUNCHER_LIFE_H
#define BT_LAUNCHER_LIFE_H

#include <stdbool.h>

typedef enum bt_life {
    BT_LIFE_STOPPED,  /**< does not run and will not by itself */
    BT_LIFE_STARTING, /**< runs, and has not said that it is ready */
    BT_LIFE_READY,
    BT_LIFE_STOPPING, /**< has got SIGTERM, to stay stopped */
    BT_LIFE_CHANGING, /**< has got SIGTERM, to start again */
    BT_LIFE_WAITING,  /**< ended by itself, or held at the launch; starts
                           later */
} bt_life_t;
#define BT_LIFE_STATES 6

typedef enum bt_life_event {
    BT_LIFE_START,      /**< an order, or the launch */
    BT_LIFE_HOLD,       /**< the launch: others come first */
    BT_LIFE_STOP,       /**< an order, or the launch's end */
    BT_LIFE_RESTART,    /**< an order */
    BT_LIFE_SAID_READY, /**< it */
    BT_LIFE_ENDED,      /**< it: the process was reaped */
    BT_LIFE_GAVE_UP,    /**< it could not start, and will not do better */
    BT_LIFE_PAUSE_OVER, /**< the clock, or those others */
} bt_life_event_t;
#define BT_LIFE_EVENTS 8

/** @return the state after the event; @a life itself when nothing changes. */
bt_life_t bt_life_after(bt_life_t life, bt_life_event_t event);

/** Is there an arrow from one to the other? */
bool bt_life_is_edge(bt_life_t from, bt_life_t to);

/** Is there a process (or should there be, until it is reaped)? */
bool bt_life_runs(bt_life_t life);

#endif
