/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/compute_watchdog.h"

bool bt_compute_watchdog_check(bt_compute_watchdog_t *stuck, bool busy,
                               uint64_t marks, uint64_t now_ms,
                               uint32_t limit_ms)
{
    const uint64_t most_ms = (uint64_t)limit_ms / BT_STUCK_LOOKS;
    const uint64_t since_ms = now_ms - stuck->looked_ms;
    const bool same = busy && stuck->busy && (marks == stuck->marks);

    stuck->still_ms =
        same ? stuck->still_ms + ((since_ms < most_ms) ? since_ms : most_ms)
             : 0;
    stuck->busy = busy;
    stuck->marks = marks;
    stuck->looked_ms = now_ms;
    return busy && (stuck->still_ms >= limit_ms);
}
