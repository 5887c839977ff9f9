/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/process_state.h"

#define STOPPED  BT_LIFE_STOPPED
#define STARTING BT_LIFE_STARTING
#define READY    BT_LIFE_READY
#define STOPPING BT_LIFE_STOPPING
#define CHANGING BT_LIFE_CHANGING
#define WAITING  BT_LIFE_WAITING

/* The diagram of the header, a row per state. */
static const bt_process_state_t after[BT_LIFE_STATES][BT_LIFE_EVENTS] = {
    /*             START     HOLD      STOP      RESTART
                   SAID_READY ENDED    GAVE_UP   PAUSE_OVER */
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

bt_process_state_t bt_process_state_after(bt_process_state_t life,
                                          bt_process_state_event_t event)
{
    return after[life][event];
}

bool bt_process_state_is_edge(bt_process_state_t from, bt_process_state_t to)
{
    for (unsigned event = 0; event < BT_LIFE_EVENTS; event++) {
        if ((after[from][event] == to) && (from != to)) {
            return true;
        }
    }
    return false;
}

bool bt_process_state_runs(bt_process_state_t life)
{
    return (life != BT_LIFE_STOPPED) && (life != BT_LIFE_WAITING);
}
