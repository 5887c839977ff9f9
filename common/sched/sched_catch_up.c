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

/* Returns how many of the missing rows are computed; with credit: all of them
 * will be, one iteration after the other. */
static uint32_t count_rows(const bt_sched_catch_up_t *state,
                           const bt_sched_catch_up_step_t *step,
                           uint32_t n_missing, bool by_credit)
{
    const uint32_t least = (n_missing < BT_SCHED_CATCH_UP_LEAST)
                               ? n_missing
                               : BT_SCHED_CATCH_UP_LEAST;
    const uint32_t most = (n_missing < BT_SCHED_CATCH_UP_ROWS)
                              ? n_missing
                              : BT_SCHED_CATCH_UP_ROWS;
    const double most_us =
        (step->most_us > step->alone_us)
            ? fmax(step->most_us - step->alone_us - step->drafts_us, 0)
            : INFINITY;
    double us;

    if (!(state->row_us > 0)) { /* they may take as long as an iteration */
        return (step->alone_us <= most_us) ? least : 0;
    }
    us = step->alone_us * (by_credit ? OTHERS_SHARE : SHARE);
    us = fmax(us, least * state->row_us);
    if (by_credit) {
        if (state->credit_us < n_missing * state->row_us) {
            return 0;
        }
        us = fmin(us, state->credit_us);
    }
    return min_rows(fmin(us, most_us) / state->row_us + 1e-6, most);
}

uint32_t bt_sched_catch_up_next(const bt_sched_catch_up_plan_t *plan,
                                const bt_sched_lag_t *lags, uint32_t n)
{
    uint32_t best = n;

    for (uint32_t i = 0; i < n; i++) {
        if ((lags[i].n_missing > 0) &&
            ((best == n) ||
             (plan->is_one && (lags[i].n_missing < lags[best].n_missing)))) {
            best = i;
        }
    }
    return best;
}

/* Time of a token is that of an iteration, which all sequences share. */
static void leave_out(const bt_sched_catch_up_t *state,
                      const bt_sched_catch_up_step_t *step,
                      bt_sched_lag_t *lags, uint32_t n)
{
    const double token_us = step->alone_us / step->n_seqs;

    for (uint32_t i = 0; i < n; i++) {
        if (lags[i].n_missing * state->row_us >
            SAVED * token_us * lags[i].n_left) {
            lags[i].n_missing = 0;
        }
    }
}

bt_sched_catch_up_plan_t bt_sched_catch_up_plan(
    bt_sched_catch_up_t *state, const bt_sched_rounds_t *rounds,
    const bt_sched_catch_up_step_t *step, bt_sched_lag_t *lags, uint32_t n)
{
    const bool is_trial = rounds->catch_up == BT_SCHED_CATCH_UP_ONE;
    const bool is_first = is_trial && (rounds->times.n_steps == 0);
    const bool by_credit = (is_trial && !is_first) || step->others_wait;
    const double gain_us = step->alone_us * OTHERS_SHARE;
    bt_sched_catch_up_plan_t plan = {.is_one = is_trial || by_credit};
    uint32_t n_missing = 0;

    state->credit_us = fmin(state->credit_us + gain_us, CREDIT_STEPS * gain_us);
    if (rounds->catch_up == BT_SCHED_CATCH_UP_NONE) {
        return plan;
    }
    if (!is_trial) {
        leave_out(state, step, lags, n);
    }
    if (plan.is_one) {
        const uint32_t i = bt_sched_catch_up_next(&plan, lags, n);

        n_missing = (i < n) ? lags[i].n_missing : 0;
    } else {
        for (uint32_t i = 0; i < n; i++) {
            n_missing += lags[i].n_missing;
        }
    }
    plan.n_rows = count_rows(state, step, n_missing, by_credit);
    return plan;
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
