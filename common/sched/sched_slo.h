/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_slo.h
 *
 * Latency targets (SLO) of a request: time to first token and mean inter-token
 * latency. Both are forecast from measured step times (sched_cost.h) before any
 * work is done; a request that cannot be served in time is rejected at once,
 * with the time after which to retry, so that the others meet their targets.
 *
 *     time to first token   the prefills queued before it, its own, and, if
 *                           all seats are taken, the time until enough are
 *                           free for it and the requests before it
 *     inter-token latency   an iteration of the worker that would generate,
 *                           with one more sequence
 *
 * A forecast includes the recent mean error and the safety factor for promised
 * requests (sched_safety_factor.h). While steps have not been measured nothing
 * is rejected.
 *
 * A worker with an inter-token latency target runs no more sequences at a time
 * than meet it: bt_sched_rates_seats().
 *
 * Threads: pure.
 * Source:  Zhong et al., "DistServe", OSDI 2024 (goodput under targets of TTFT
 *          and TPOT); Qin et al., "Mooncake", FAST 2025, section 7 (early
 *          rejection by prediction).
 */
#ifndef BT_COMMON_SCHED_SLO_H
#define BT_COMMON_SCHED_SLO_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_cost.h"

/** Upper limit of a retry time, in seconds. */
#define BT_SCHED_RETRY_MOST_S 600u

/** Latency targets of a request. 0: none. */
typedef struct bt_sched_slo {
    uint32_t ttft_ms;
    uint32_t itl_ms; /**< mean of an answer */
} bt_sched_slo_t;

/** Inputs of the forecast for a request. */
typedef struct bt_sched_forecast {
    uint64_t ahead_us;  /**< prefills before it, where they take the least */
    uint64_t prompt_us; /**< the request's own prefill */
    uint32_t n_over;    /**< seats that must become free, its own included;
                             0: one is free */
    uint64_t seat_us;   /**< time between two seats becoming free */
    uint64_t step_us;   /**< an iteration with it; 0: not measured */
    uint32_t error;     /**< recent mean error, thousandths of a forecast */
    /** Safety factors of the forecasts of TTFT and of inter-token latency,
     *  in thousandths (sched_safety_factor.h); 0 counts as 1000. */
    uint32_t first_factor, between_factor;
} bt_sched_forecast_t;

typedef enum bt_sched_slo_verdict {
    BT_SCHED_SLO_MET,
    BT_SCHED_TTFT_MISSED, /**< time to first token */
    BT_SCHED_ITL_MISSED,  /**< inter-token latency */
} bt_sched_slo_verdict_t;

/** Return the forecast TTFT and inter-token latency in us, with mean error
 *  and safety factor. */
uint64_t bt_sched_forecast_ttft_us(const bt_sched_forecast_t *outlook);
uint64_t bt_sched_forecast_itl_us(const bt_sched_forecast_t *outlook);

/**
 * Compares a forecast with the targets.
 * @param [out] retry_s_p  Set only if a target is missed: seconds until it
 *     would be met if no other request came; at least 1.
 */
bt_sched_slo_verdict_t bt_sched_slo_check(const bt_sched_slo_t *target,
                                          const bt_sched_forecast_t *outlook,
                                          uint32_t *retry_s_p);

/**
 * Returns the time of an iteration of n sequences, each with @a context_tokens
 * tokens in its cache.
 * @return us; 0: not measured there
 */
uint64_t bt_sched_rates_step_us(const bt_sched_rates_t *rates, uint32_t n_seqs,
                                uint32_t context_tokens);

/**
 * Returns the most sequences whose iteration takes at most itl_us.
 * @return 1 to max_seats; max_seats if nothing was measured
 */
uint32_t bt_sched_rates_seats(const bt_sched_rates_t *rates,
                              uint32_t context_tokens, uint64_t itl_us,
                              uint32_t max_seats);

#endif
