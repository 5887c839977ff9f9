/* SPDX-License-Identifier: Apache-2.0 */
#include "prefill_worker/job_life.h"

/* No arrow: no arrow leads to QUEUED, so its zero can mean that. */
#define NONE BT_PREFILL_QUEUED

/* The diagram of the header, a row per phase. */
static const bt_prefill_phase_t after[BT_PREFILL_PHASES][BT_PREFILL_EVENTS] = {
    [BT_PREFILL_QUEUED] =
        {
            [BT_PREFILL_GRANT] = BT_PREFILL_GRANTED,
            [BT_PREFILL_START] = BT_PREFILL_COMPUTING,
            [BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
        },
    [BT_PREFILL_GRANTED] =
        {
            [BT_PREFILL_START] = BT_PREFILL_STREAMING,
            [BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
        },
    [BT_PREFILL_COMPUTING] =
        {
            [BT_PREFILL_GRANT] = BT_PREFILL_STREAMING,
            [BT_PREFILL_COMPUTED] = BT_PREFILL_WAITING,
            [BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
        },
    [BT_PREFILL_STREAMING] =
        {
            [BT_PREFILL_COMPUTED] = BT_PREFILL_SENDING,
            [BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
        },
    [BT_PREFILL_WAITING] =
        {
            [BT_PREFILL_GRANT] = BT_PREFILL_SENDING,
            [BT_PREFILL_DROP] = BT_PREFILL_DROPPED,
            [BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
        },
    [BT_PREFILL_SENDING] =
        {
            [BT_PREFILL_SENT] = BT_PREFILL_ENDED,
            [BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
        },
    [BT_PREFILL_DROPPED] =
        {
            [BT_PREFILL_GRANT] = BT_PREFILL_RESUMING,
            [BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
        },
    [BT_PREFILL_RESUMING] =
        {
            [BT_PREFILL_START] = BT_PREFILL_STREAMING,
            [BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
        },
    [BT_PREFILL_FOLLOWING] =
        {
            [BT_PREFILL_START] = BT_PREFILL_DRAWING,
            [BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
        },
    [BT_PREFILL_DRAWING] =
        {
            [BT_PREFILL_COMPUTED] = BT_PREFILL_SHARING,
            [BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
        },
    [BT_PREFILL_SHARING] =
        {
            [BT_PREFILL_SENT] = BT_PREFILL_ENDED,
            [BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
        },
    [BT_PREFILL_ENDING] = {[BT_PREFILL_FREE] = BT_PREFILL_ENDED},
    [BT_PREFILL_ENDED] = {NONE},
};

bool bt_prefill_phase_after(bt_prefill_phase_t phase, bt_prefill_event_t event,
                            bt_prefill_phase_t *next_p)
{
    if (after[phase][event] == NONE) {
        return false;
    }
    *next_p = after[phase][event];
    return true;
}

unsigned bt_prefill_phase_facts(bt_prefill_phase_t phase)
{
    static const unsigned facts[BT_PREFILL_PHASES] = {
        [BT_PREFILL_QUEUED] = 0,
        [BT_PREFILL_GRANTED] = BT_PREFILL_IS_GRANTED,
        [BT_PREFILL_COMPUTING] = BT_PREFILL_HAS_BLOCKS | BT_PREFILL_IN_ENGINE |
                                 BT_PREFILL_IS_WAITING_KV,
        [BT_PREFILL_STREAMING] = BT_PREFILL_IS_GRANTED | BT_PREFILL_HAS_BLOCKS |
                                 BT_PREFILL_IN_ENGINE,
        [BT_PREFILL_WAITING] = BT_PREFILL_HAS_BLOCKS | BT_PREFILL_IS_WAITING_KV,
        [BT_PREFILL_SENDING] = BT_PREFILL_IS_GRANTED | BT_PREFILL_HAS_BLOCKS,
        [BT_PREFILL_DROPPED] = BT_PREFILL_IS_PAUSED,
        [BT_PREFILL_RESUMING] = BT_PREFILL_IS_GRANTED | BT_PREFILL_IS_PAUSED,
        [BT_PREFILL_FOLLOWING] = BT_PREFILL_IS_GRANTED,
        [BT_PREFILL_DRAWING] = BT_PREFILL_IS_GRANTED | BT_PREFILL_HAS_BLOCKS |
                               BT_PREFILL_IN_ENGINE,
        [BT_PREFILL_SHARING] = BT_PREFILL_IS_GRANTED,
        [BT_PREFILL_ENDING] = BT_PREFILL_IS_OVER,
        [BT_PREFILL_ENDED] = BT_PREFILL_IS_OVER,
    };

    return facts[phase];
}
