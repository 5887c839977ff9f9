/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_catch_up.h"

#include <math.h>

#define SHARE        (1.0 / 2)  /* of the time of those that wait for drafts */
#define OTHERS_SHARE (1.0 / 20) /* BT_SCHED_DRAFT_SLOWER */
#define CREDIT_STEPS 1024       /* iterations whose credit is kept */
#define COLD_CALLS   1u         /* the first reads weights from a file */
#define TIME_SHARE   0.25       /* of the newest measurement */
#define TIME_CLIP    1.0        /* relative: a busy machine teaches no more */
#define SAVED        0.5 /* of a token's time, by drafts that are right */

static uint32_t min_rows(double a, uint32_t b)
{
    return (a < (double)b) ? (uint32_t)a : b;
}

uint32_t bt_sched_catch_up_rows(bt_sched_catch_up_t *state,
                                const bt_sched_catch_up_step_t *step,
                                uint32_t n_missing)
{
    const double gain_us = step->alone_us * OTHERS_SHARE;
    const uint32_t least = (n_missing < BT_SCHED_CATCH_UP_LEAST)
                               ? n_missing
                               : BT_SCHED_CATCH_UP_LEAST;
    const uint32_t most = (n_missing < BT_SCHED_CATCH_UP_ROWS)
                              ? n_missing
                              : BT_SCHED_CATCH_UP_ROWS;
    const double most_us = (step->most_us > step->alone_us)
                               ? step->most_us - step->alone_us
                               : INFINITY;
    double us;

    state->credit_us = fmin(state->credit_us + gain_us, CREDIT_STEPS * gain_us);
    if (!(state->row_us > 0)) {
        return least;
    }
    us = step->alone_us * (step->delays_others ? OTHERS_SHARE : SHARE);
    us = fmax(us, least * state->row_us);
    if (step->delays_others) {
        if (state->credit_us < n_missing * state->row_us) {
            return 0;
        }
        us = fmin(us, state->credit_us);
    }
    return min_rows(fmin(us, most_us) / state->row_us + 1e-6, most);
}

void bt_sched_catch_up_learn(bt_sched_catch_up_t *state, uint32_t n_rows,
                             double us)
{
    double change;

    if ((n_rows == 0) || !(us > 0)) {
        return;
    }
    state->credit_us = fmax(state->credit_us - us, 0);
    if (state->n_calls < COLD_CALLS) {
        state->n_calls++;
        return;
    }
    if (!(state->row_us > 0)) {
        state->row_us = us / n_rows;
        return;
    }
    change = us / n_rows / state->row_us - 1;
    state->row_us *= 1 + TIME_SHARE * fmin(change, TIME_CLIP);
}

bool bt_sched_catch_up_pays(const bt_sched_catch_up_t *state, double token_us,
                            uint32_t n_missing, uint32_t n_left)
{
    return n_missing * state->row_us <= SAVED * token_us * n_left;
}
