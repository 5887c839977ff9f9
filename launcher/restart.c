/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/restart.h"

#include <string.h>

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
