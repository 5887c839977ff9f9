/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_reject_delay.h"

#define APART_US (1000000u / BT_SCHED_REJECT_DELAY_RATE)
#define BURST_US (APART_US * BT_SCHED_REJECT_DELAY_BURST)

uint64_t bt_sched_reject_delay_us(bt_sched_reject_delay_t *pace,
                                  uint64_t now_us)
{
    const uint64_t last_us = now_us + BURST_US + BT_SCHED_REJECT_DELAY_MOST_US;
    uint64_t due_us = pace->due_us;

    if (due_us < now_us) {
        due_us = now_us;
    } else if (due_us > last_us) { /* many at once are no debt for later */
        due_us = last_us;
    }
    pace->due_us = due_us + APART_US;
    return (due_us - now_us > BURST_US) ? due_us - now_us - BURST_US : 0;
}
