/* SPDX-License-Identifier: Apache-2.0 */
/** @file process_state.h
 *
 * State machine and restart policy of one process. Pure: the caller passes the
 * time.
 *
 *     STOPPED          ──START, RESTART──▶ STARTING  ──HOLD──▶ WAITING
 *     STARTING         ──READY──▶ READY   ──GAVE_UP──▶ STOPPED
 *     STARTING, READY  ──ENDED──▶ WAITING  ──STOP──▶ STOPPING
 *                      ──RESTART──▶ CHANGING
 *     STOPPING         ──ENDED──▶ STOPPED  ──START, RESTART──▶ CHANGING
 *     CHANGING         ──ENDED──▶ STARTING ──STOP──▶ STOPPING
 *     WAITING          ──PAUSE_OVER, START, RESTART──▶ STARTING
 *                      ──STOP──▶ STOPPED
 *
 * An event without an arrow in a state does not change the state.
 *
 * A process that ended by itself starts again after a pause: 0.5, 1, 2 ... 30
 * s. After a healthy minute the restart is immediate and the pauses begin anew.
 * A process that was never ready is given up after its fifth end, or after the
 * first one that reports a retry to be useless.
 */
#ifndef BT_LAUNCHER_PROCESS_STATE_H
#define BT_LAUNCHER_PROCESS_STATE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum bt_process_state {
    BT_PROCESS_STOPPED,  /**< not running, and not started automatically */
    BT_PROCESS_STARTING, /**< running, and not ready yet */
    BT_PROCESS_READY,
    BT_PROCESS_STOPPING, /**< got SIGTERM, to stay stopped */
    BT_PROCESS_CHANGING, /**< got SIGTERM, to start again */
    BT_PROCESS_WAITING, /**< ended by itself, or held at launch; starts later */
} bt_process_state_t;
#define BT_PROCESS_STATES 6

typedef enum bt_process_state_event {
    BT_PROCESS_EVENT_START, /**< by an admin command, or the launch */
    BT_PROCESS_EVENT_HOLD,  /**< by the launch: other processes come first */
    BT_PROCESS_EVENT_STOP, /**< by an admin command, or the end of the launch */
    BT_PROCESS_EVENT_RESTART,    /**< by an admin command */
    BT_PROCESS_EVENT_READY,      /**< by the process */
    BT_PROCESS_EVENT_ENDED,      /**< the process was reaped */
    BT_PROCESS_EVENT_GAVE_UP,    /**< failed to start, and a retry is useless */
    BT_PROCESS_EVENT_PAUSE_OVER, /**< the pause is over, or the others have
                                    started */
} bt_process_state_event_t;
#define BT_PROCESS_EVENTS 8

/** @return the state after the event; @a state itself when nothing changes. */
bt_process_state_t bt_process_state_after(bt_process_state_t state,
                                          bt_process_state_event_t event);

/** True when there is a process that has not been reaped (or should be one). */
bool bt_process_state_runs(bt_process_state_t state);

#define BT_RESTART_FIRST_PAUSE_MS   500
#define BT_RESTART_LONGEST_PAUSE_MS 30000
#define BT_RESTART_HEALTHY_MS       60000
#define BT_RESTART_EARLY_EXITS      5

typedef struct bt_restart {
    uint32_t next_pause_ms;
    uint32_t early_exits; /**< ends before the process was ever ready */
    bool was_ever_ready;
    bool is_ready;
    uint64_t ready_ms; /**< since when ready, while is_ready */
} bt_restart_t;

void bt_restart_init(bt_restart_t *restart);

void bt_restart_ready(bt_restart_t *restart, uint64_t now_ms);

/** Decides about a restart after the process ended.
 *  @param [in] is_final  a retry would end in an equal way, if the process was
 *                        never ready
 *  @return false: give up; true: start again after *pause_ms_p. */
bool bt_restart_exited(bt_restart_t *restart, uint64_t now_ms, bool is_final,
                       uint32_t *pause_ms_p);

#endif
