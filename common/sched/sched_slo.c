/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_slo.h"

#include <stdbool.h>

#include "common/base/status.h"
#include "common/sched/sched_cost.h"
#include "common/sched/sched_pipeline.h"

#define SLO_US_MOST \
    (UINT64_C(1) << 42) /* beyond all reason, and far from the end */

static uint64_t capped(double us)
{
    return (us < (double)SLO_US_MOST) ? (uint64_t)us : SLO_US_MOST;
}

static uint64_t with_error(double us, uint32_t error, uint32_t factor)
{
    const double times = (factor > 0) ? (double)factor / 1000.0 : 1.0;

    return capped(us * (1.0 + (double)error / 1000.0) * times);
}

uint64_t bt_sched_forecast_ttft_us(const bt_sched_forecast_t *outlook)
{
    const double seats = (double)outlook->n_over * (double)outlook->seat_us;
    const double ahead = (double)outlook->ahead_us;

    /* Concurrent: prompts are computed while seats become free. */
    return with_error(((ahead > seats) ? ahead : seats) +
                          (double)outlook->prompt_us,
                      outlook->error, outlook->first_factor);
}

uint64_t bt_sched_forecast_itl_us(const bt_sched_forecast_t *outlook)
{
    return with_error((double)outlook->step_us, outlook->error,
                      outlook->between_factor);
}

static uint32_t seconds_of(uint64_t us)
{
    const uint64_t s = us / 1000000 + 1;

    return (s < BT_SCHED_RETRY_MOST_S) ? (uint32_t)s : BT_SCHED_RETRY_MOST_S;
}

bt_sched_slo_verdict_t bt_sched_slo_check(const bt_sched_slo_t *target,
                                          const bt_sched_forecast_t *outlook,
                                          uint32_t *retry_s_p)
{
    const uint64_t ttft_us = (uint64_t)target->ttft_ms * 1000;
    const uint64_t itl_us = (uint64_t)target->itl_ms * 1000;
    const uint64_t first_us = bt_sched_forecast_ttft_us(outlook);

    if ((ttft_us > 0) && (first_us > ttft_us)) {
        *retry_s_p = seconds_of(first_us - ttft_us);
        return BT_SCHED_TTFT_MISSED;
    }
    if ((itl_us > 0) && (bt_sched_forecast_itl_us(outlook) > itl_us)) {
        *retry_s_p = seconds_of(outlook->seat_us);
        return BT_SCHED_ITL_MISSED;
    }
    return BT_SCHED_SLO_MET;
}

uint64_t bt_sched_rates_step_us(const bt_sched_rates_t *rates, uint32_t n_seqs,
                                uint32_t context_tokens)
{
    const double kiloreads = (double)n_seqs * (double)context_tokens / 1024;
    const double us = ((double)rates->decode_step_ns +
                       (double)n_seqs * (double)rates->decode_seq_ns +
                       kiloreads * (double)rates->decode_kiloread_ns) /
                      1000;

    return capped(us);
}

uint32_t bt_sched_rates_seats(const bt_sched_rates_t *rates,
                              uint32_t context_tokens, uint64_t itl_us,
                              uint32_t max_seats)
{
    const double each =
        (double)rates->decode_seq_ns +
        (double)context_tokens / 1024 * (double)rates->decode_kiloread_ns;
    const double left_ns =
        (double)itl_us * 1000 - (double)rates->decode_step_ns;

    if (each * (double)max_seats <= left_ns) { /* as where nothing is known */
        return max_seats;
    }
    return (left_ns < 2 * each) ? 1 : (uint32_t)(left_ns / each);
}

#define DISAGG_US_MOST \
    (UINT64_C(1) << 42) /* beyond all reason, far from the end */

static uint64_t sum(uint64_t a, uint64_t b)
{
    return ((a < DISAGG_US_MOST) && (b < DISAGG_US_MOST - a)) ? a + b
                                                              : DISAGG_US_MOST;
}

static uint64_t times(uint64_t us, uint64_t n)
{
    return ((n == 0) || (us < DISAGG_US_MOST / n)) ? us * n : DISAGG_US_MOST;
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
        ways.here_us = DISAGG_US_MOST;
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

/* Iterator over the prompt's blocks, each hashed with those before it. */
typedef struct walk {
    const uint32_t *tokens;
    uint32_t left, per_block;
    uint64_t hash;
} walk_t;

static walk_t walk_of(uint64_t whose, bt_hash128_t space,
                      const uint32_t *tokens, uint32_t n, uint32_t per_block)
{
    uint32_t blocks;

    BT_ASSERT(per_block > 0);
    blocks = n / per_block;
    return (walk_t){
        .tokens = tokens,
        .left = (blocks < BT_SCHED_PREFIX_MAX_BLOCKS)
                    ? blocks
                    : BT_SCHED_PREFIX_MAX_BLOCKS,
        .per_block = per_block,
        .hash = bt_hash64(&space, sizeof(space), whose),
    };
}

static bool walk_on(walk_t *walk)
{
    if (walk->left == 0) {
        return false;
    }
    walk->hash =
        bt_hash64(walk->tokens, walk->per_block * sizeof(uint32_t), walk->hash);
    walk->hash += (walk->hash == 0) ? 1 : 0; /* 0 is a free slot */
    walk->tokens += walk->per_block;
    walk->left--;
    return true;
}

void bt_sched_prefix_estimate_add(bt_sched_prefix_estimate_t *held,
                                  uint64_t whose, bt_hash128_t space,
                                  const uint32_t *tokens, uint32_t n,
                                  uint32_t tokens_per_block)
{
    walk_t walk = walk_of(whose, space, tokens, n, tokens_per_block);

    while (walk_on(&walk)) {
        held->slots[walk.hash % BT_SCHED_PREFIX_SLOTS] = walk.hash;
    }
}

uint32_t bt_sched_prefix_estimate_find(const bt_sched_prefix_estimate_t *held,
                                       uint64_t whose, bt_hash128_t space,
                                       const uint32_t *tokens, uint32_t n,
                                       uint32_t tokens_per_block)
{
    walk_t walk = walk_of(whose, space, tokens, n, tokens_per_block);
    uint32_t found = 0;

    while (walk_on(&walk) &&
           (held->slots[walk.hash % BT_SCHED_PREFIX_SLOTS] == walk.hash)) {
        found += tokens_per_block;
    }
    return found;
}
