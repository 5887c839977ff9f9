/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_slo.h"

#define US_MOST \
    (UINT64_C(1) << 42) /* beyond all reason, and far from the end */

static uint64_t capped(double us)
{
    return (us < (double)US_MOST) ? (uint64_t)us : US_MOST;
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
    const double room = (double)itl_us * 1000 - (double)rates->decode_step_ns;

    if (each * (double)max_seats <= room) { /* as where nothing is known */
        return max_seats;
    }
    return (room < 2 * each) ? 1 : (uint32_t)(room / each);
}
