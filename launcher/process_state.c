/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/process_state.h"

#include <string.h>

/* ---- states ---- */

#define STOPPED  BT_PROCESS_STOPPED
#define STARTING BT_PROCESS_STARTING
#define READY    BT_PROCESS_READY
#define STOPPING BT_PROCESS_STOPPING
#define CHANGING BT_PROCESS_CHANGING
#define WAITING  BT_PROCESS_WAITING

/* The diagram of the header, a row per state. */
static const bt_process_state_t after[BT_PROCESS_STATES][BT_PROCESS_EVENTS] = {
    /*             START     HOLD      STOP      RESTART
                   READY ENDED    GAVE_UP   PAUSE_OVER */
    [STOPPED] = {STARTING, WAITING, STOPPED, STARTING, STOPPED, STOPPED,
                 STOPPED, STOPPED},
    [STARTING] = {STARTING, STARTING, STOPPING, CHANGING, READY, WAITING,
                  STOPPED, STARTING},
    [READY] = {READY, READY, STOPPING, CHANGING, READY, WAITING, READY, READY},
    [STOPPING] = {CHANGING, STOPPING, STOPPING, CHANGING, STOPPING, STOPPED,
                  STOPPING, STOPPING},
    [CHANGING] = {CHANGING, CHANGING, STOPPING, CHANGING, CHANGING, STARTING,
                  CHANGING, CHANGING},
    [WAITING] = {STARTING, WAITING, STOPPED, STARTING, WAITING, WAITING,
                 WAITING, STARTING},
};

bt_process_state_t bt_process_state_after(bt_process_state_t state,
                                          bt_process_state_event_t event)
{
    return after[state][event];
}

bool bt_process_state_runs(bt_process_state_t state)
{
    return (state != BT_PROCESS_STOPPED) && (state != BT_PROCESS_WAITING);
}

/* ---- restart policy ---- */

void bt_restart_init(bt_restart_t *restart)
{
    memset(restart, 0, sizeof(*restart));
    restart->next_pause_ms = BT_RESTART_FIRST_PAUSE_MS;
}

void bt_restart_ready(bt_restart_t *restart, uint64_t now_ms)
{
    restart->was_ever_ready = true;
    restart->is_ready = true;
    restart->ready_ms = now_ms;
}

bool bt_restart_exited(bt_restart_t *restart, uint64_t now_ms, bool is_final,
                       uint32_t *pause_ms_p)
{
    if (restart->is_ready &&
        (now_ms - restart->ready_ms >= BT_RESTART_HEALTHY_MS)) {
        restart->next_pause_ms = 0;
    }
    restart->is_ready = false;
    if (!restart->was_ever_ready) {
        restart->early_exits++;
        if (is_final || (restart->early_exits >= BT_RESTART_EARLY_EXITS)) {
            return false;
        }
    }

    *pause_ms_p = restart->next_pause_ms;
    restart->next_pause_ms *= 2;
    if (restart->next_pause_ms == 0) {
        restart->next_pause_ms = BT_RESTART_FIRST_PAUSE_MS;
    } else if (restart->next_pause_ms > BT_RESTART_LONGEST_PAUSE_MS) {
        restart->next_pause_ms = BT_RESTART_LONGEST_PAUSE_MS;
    }
    return true;
}
