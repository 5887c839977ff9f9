/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_disagg.h"

#include "common/sched/sched_age.h"
#include "common/sched/sched_core_donation.h"
#include "common/sched/sched_slo.h"

#define US_MOST (UINT64_C(1) << 42) /* beyond all reason, far from the end */

static uint64_t sum(uint64_t a, uint64_t b)
{
    return ((a < US_MOST) && (b < US_MOST - a)) ? a + b : US_MOST;
}

static uint64_t times(uint64_t us, uint64_t n)
{
    return ((n == 0) || (us < US_MOST / n)) ? us * n : US_MOST;
}

/* Time of the tokens left to compute there. At least the last token is,
 * because the first one of the answer is sampled from it. */
static uint64_t own_us(const bt_sched_disagg_t *local,
                       const bt_sched_site_t *site)
{
    const uint32_t most = local->n_tokens - 1;
    const uint32_t from = (site->n_held < most) ? site->n_held : most;

    return bt_sched_rates_rest_us(&site->rates, from, local->n_tokens,
                                  local->chunk_tokens);
}

/* Time of the batch's steps beside prefills of this duration: of each
 * iteration they get the rest of the latency target, or as long as a step. */
static uint64_t steps_beside_us(uint64_t prompts_us, uint64_t step_us)
{
    const uint64_t left_us = (step_us < BT_SCHED_DISAGG_ITL_US / 2)
                                 ? BT_SCHED_DISAGG_ITL_US - step_us
                                 : step_us;

    return (step_us == 0) ? 0
                          : times(step_us, prompts_us / left_us +
                                               (prompts_us % left_us != 0));
}

/* Sequences that generate when the prompt's turn comes. */
static uint32_t n_seqs_then(const bt_sched_disagg_t *local)
{
    const uint32_t most = UINT32_MAX - local->n_running;

    return local->n_running +
           ((local->n_before < most) ? local->n_before : most);
}

/* True when it will have waited there until it wants the cores of generating
 * workers. */
static bool is_overdue(const bt_sched_disagg_t *local, uint64_t own_us)
{
    const bt_sched_work_t work = {.whole_us = own_us};

    return bt_sched_wants_cores(&work, local->away.ahead_us);
}

bt_sched_disagg_times_t bt_sched_disagg_forecast(const bt_sched_disagg_t *local)
{
    const uint64_t away_us = own_us(local, &local->away);
    const uint64_t here_us = own_us(local, &local->here);
    const uint32_t n_seqs = n_seqs_then(local);
    const uint64_t prompts_us = sum(local->here.ahead_us, here_us);
    const uint64_t step_us =
        (n_seqs == 0) ? 0
                      : bt_sched_rates_step_us(&local->batch_rates, n_seqs,
                                               local->context_tokens);
    bt_sched_disagg_times_t ways = {.is_known = true};

    if ((away_us == 0) || (here_us == 0) || ((n_seqs > 0) && (step_us == 0))) {
        return (bt_sched_disagg_times_t){.is_known = false};
    }
    ways.away_us = sum(sum(local->away.ahead_us, away_us),
                       bt_sched_rates_transfer_us(&local->transfer_rates,
                                                  local->transfer_bytes));
    ways.here_us = sum(prompts_us, steps_beside_us(prompts_us, step_us));
    ways.is_away_free = local->away.ahead_us == 0;
    ways.is_here_free = (local->here.ahead_us == 0) && (n_seqs == 0);
    if (local->is_promised || !is_overdue(local, away_us)) {
        ways.loss_us = times(here_us, n_seqs);
    }
    if (local->is_static && (n_seqs > 0)) {
        ways.here_us = US_MOST;
    }
    return ways;
}

/* Aged value of a forecast that was confirmed this long before the other. */
static double aged(uint64_t us, bool is_free, uint64_t at_us,
                   uint64_t other_at_us)
{
    const uint64_t older_us = (at_us < other_at_us) ? other_at_us - at_us : 0;

    if (!is_free || (older_us <= BT_SCHED_DISAGG_REST_US)) {
        return (double)us;
    }
    return (double)us * bt_sched_age_left(older_us - BT_SCHED_DISAGG_REST_US,
                                          BT_SCHED_DISAGG_HALF_US);
}

bool bt_sched_disagg_is_local(const bt_sched_disagg_times_t *ways,
                              uint64_t away_at_us, uint64_t here_at_us)
{
    return ways->is_known &&
           (aged(sum(ways->here_us, ways->loss_us), ways->is_here_free,
                 here_at_us, away_at_us) <
            aged(ways->away_us, ways->is_away_free, away_at_us, here_at_us));
}
