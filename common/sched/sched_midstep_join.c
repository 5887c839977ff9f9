/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_midstep_join.h"

/* Whole passes that may follow one another. */
#define MOST_PASSES 2u

static uint32_t most(const bt_sched_midstep_join_t *late)
{
    return MOST_PASSES * BT_SCHED_MIDSTEP_JOIN_SHARE * late->n_layers;
}

void bt_sched_midstep_join_init(bt_sched_midstep_join_t *late,
                                uint32_t n_layers)
{
    late->n_layers = n_layers;
    late->credit = most(late);
}

void bt_sched_midstep_join_step(bt_sched_midstep_join_t *late)
{
    late->credit += late->n_layers;
    if (late->credit > most(late)) {
        late->credit = most(late);
    }
}

/* In the last eighth to wait for the next iteration is as good. */
bool bt_sched_midstep_join_may(const bt_sched_midstep_join_t *late,
                               uint32_t n_done)
{
    return (n_done <= late->n_layers - late->n_layers / 8) &&
           (n_done < late->n_layers) &&
           (late->credit >= BT_SCHED_MIDSTEP_JOIN_SHARE * n_done);
}

void bt_sched_midstep_join_spend(bt_sched_midstep_join_t *late, uint32_t n_done)
{
    late->credit -= BT_SCHED_MIDSTEP_JOIN_SHARE * n_done;
}
