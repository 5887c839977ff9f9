/* SPDX-License-Identifier: Apache-2.0 */
#include "decode_worker/job_life.h"

/* No arrow: no arrow leads to QUEUED, so its zero can mean that. */
#define NONE BT_DECODE_QUEUED

/* The diagram of the header, a row per phase. */
static const bt_decode_phase_t after[BT_DECODE_PHASES][BT_DECODE_EVENTS] = {
    [BT_DECODE_QUEUED] =
        {
            [BT_DECODE_OPEN] = BT_DECODE_LEASED,
            [BT_DECODE_RUN] = BT_DECODE_RUNNING,
            [BT_DECODE_ABORT] = BT_DECODE_ENDING,
        },
    [BT_DECODE_LEASED] =
        {
            [BT_DECODE_PROVEN] = BT_DECODE_JOINING,
            [BT_DECODE_ABORT] = BT_DECODE_QUARANTINED,
        },
    [BT_DECODE_JOINING] =
        {
            [BT_DECODE_RUN] = BT_DECODE_RUNNING,
            [BT_DECODE_ABORT] = BT_DECODE_ENDING,
        },
    [BT_DECODE_FOLLOWING] =
        {
            [BT_DECODE_OPEN] = BT_DECODE_SHARING,
            [BT_DECODE_RUN] = BT_DECODE_RUNNING,
            [BT_DECODE_ABORT] = BT_DECODE_ENDING,
        },
    [BT_DECODE_SHARING] =
        {
            [BT_DECODE_RUN] = BT_DECODE_RUNNING,
            [BT_DECODE_ABORT] = BT_DECODE_ENDING,
        },
    [BT_DECODE_RUNNING] =
        {
            [BT_DECODE_LEFT] = BT_DECODE_ENDING,
            [BT_DECODE_PAUSE] = BT_DECODE_PAUSING,
            [BT_DECODE_ABORT] = BT_DECODE_STOPPING,
        },
    [BT_DECODE_PAUSING] =
        {
            [BT_DECODE_LEFT] = BT_DECODE_ENDING,
            [BT_DECODE_PARK] = BT_DECODE_PAUSED,
            [BT_DECODE_ABORT] = BT_DECODE_STOPPING,
        },
    [BT_DECODE_PAUSED] =
        {
            [BT_DECODE_RUN] = BT_DECODE_RUNNING,
            [BT_DECODE_ABORT] = BT_DECODE_ENDING,
        },
    [BT_DECODE_STOPPING] = {[BT_DECODE_LEFT] = BT_DECODE_ENDING},
    [BT_DECODE_QUARANTINED] = {[BT_DECODE_FREE] = BT_DECODE_ENDED},
    [BT_DECODE_ENDING] = {[BT_DECODE_FREE] = BT_DECODE_ENDED},
    [BT_DECODE_ENDED] = {NONE},
};

bool bt_decode_phase_after(bt_decode_phase_t phase, bt_decode_event_t event,
                           bt_decode_phase_t *next_p)
{
    if (after[phase][event] == NONE) {
        return false;
    }
    *next_p = after[phase][event];
    return true;
}

unsigned bt_decode_phase_facts(bt_decode_phase_t phase)
{
    static const unsigned facts[BT_DECODE_PHASES] = {
        [BT_DECODE_QUEUED] = 0,
        [BT_DECODE_LEASED] = BT_DECODE_HAS_SEAT | BT_DECODE_HAS_BLOCKS,
        [BT_DECODE_JOINING] = BT_DECODE_HAS_SEAT | BT_DECODE_HAS_BLOCKS,
        [BT_DECODE_FOLLOWING] = 0,
        [BT_DECODE_SHARING] = BT_DECODE_HAS_BLOCKS,
        [BT_DECODE_RUNNING] =
            BT_DECODE_HAS_SEAT | BT_DECODE_HAS_BLOCKS | BT_DECODE_IN_ENGINE,
        [BT_DECODE_PAUSING] =
            BT_DECODE_HAS_SEAT | BT_DECODE_HAS_BLOCKS | BT_DECODE_IN_ENGINE,
        [BT_DECODE_PAUSED] = 0,
        [BT_DECODE_STOPPING] = BT_DECODE_HAS_SEAT | BT_DECODE_HAS_BLOCKS |
                               BT_DECODE_IN_ENGINE | BT_DECODE_IS_OVER,
        [BT_DECODE_QUARANTINED] =
            BT_DECODE_HAS_BLOCKS | BT_DECODE_IS_QUARANTINED | BT_DECODE_IS_OVER,
        [BT_DECODE_ENDING] = BT_DECODE_IS_OVER,
        [BT_DECODE_ENDED] = BT_DECODE_IS_OVER,
    };

    return facts[phase];
}

bt_sched_part_t bt_decode_phase_part(bt_decode_phase_t phase)
{
    static const bt_sched_part_t parts[BT_DECODE_PHASES] = {
        [BT_DECODE_QUEUED] = BT_SCHED_OUTSIDE,
        [BT_DECODE_LEASED] = BT_SCHED_COMING,
        [BT_DECODE_JOINING] = BT_SCHED_READY,
        [BT_DECODE_FOLLOWING] = BT_SCHED_OUTSIDE,
        [BT_DECODE_SHARING] = BT_SCHED_OUTSIDE,
        [BT_DECODE_RUNNING] = BT_SCHED_INSIDE,
        [BT_DECODE_PAUSING] = BT_SCHED_INSIDE,
        [BT_DECODE_PAUSED] = BT_SCHED_PAUSED,
        [BT_DECODE_STOPPING] = BT_SCHED_INSIDE,
        [BT_DECODE_QUARANTINED] = BT_SCHED_OUTSIDE,
        [BT_DECODE_ENDING] = BT_SCHED_OUTSIDE,
        [BT_DECODE_ENDED] = BT_SCHED_OUTSIDE,
    };

    return parts[phase];
}
