/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_local.h"

#include "common/sched/sched_target.h"

#define US_MOST (UINT64_C(1) << 42) /* beyond all reason, far from the end */

static uint64_t sum(uint64_t a, uint64_t b)
{
    return ((a < US_MOST) && (b < US_MOST - a)) ? a + b : US_MOST;
}

static uint64_t times(uint64_t us, uint64_t n)
{
    return ((n == 0) || (us < US_MOST / n)) ? us * n : US_MOST;
}

/* What is left to compute there. At least the last token is, for the first one
 * of the answer is drawn behind it. */
static uint64_t own_us(const bt_sched_local_t *local,
                       const bt_sched_site_t *site)
{
    const uint32_t most = local->n_tokens - 1;
    const uint32_t from = (site->n_held < most) ? site->n_held : most;

    return bt_sched_rates_rest_us(&site->rates, from, local->n_tokens,
                                  local->chunk_tokens);
}

static uint64_t n_chunks(const bt_sched_local_t *local)
{
    const uint32_t held = local->here.n_held;
    const uint32_t n = (held < local->n_tokens) ? local->n_tokens - held : 1;

    return n / local->chunk_tokens + (n % local->chunk_tokens != 0);
}

bt_sched_ways_t bt_sched_ways_forecast(const bt_sched_local_t *local)
{
    const uint64_t away_us = own_us(local, &local->away);
    const uint64_t here_us = own_us(local, &local->here);
    const uint64_t step_us =
        (local->n_running == 0)
            ? 0
            : bt_sched_rates_step_us(&local->batch_rates, local->n_running,
                                     local->context_tokens);
    bt_sched_ways_t ways = {.is_known = true};

    if ((away_us == 0) || (here_us == 0) ||
        ((local->n_running > 0) && (step_us == 0))) {
        return (bt_sched_ways_t){.is_known = false};
    }
    ways.away_us = sum(sum(local->away.ahead_us, away_us),
                       bt_sched_rates_transfer_us(&local->transfer_rates,
                                                  local->transfer_bytes));
    ways.here_us = sum(sum(local->here.ahead_us, here_us),
                       times(step_us, n_chunks(local)));
    ways.loss_us = times(here_us, local->n_running);
    return ways;
}

bool bt_sched_ways_here(const bt_sched_ways_t *ways)
{
    return ways->is_known &&
           (sum(ways->here_us, ways->loss_us) < ways->away_us);
}
