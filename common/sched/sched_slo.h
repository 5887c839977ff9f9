/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_slo.h
 *
 * Targets of a request: the time to its first token and the mean time between
 * tokens. What it will meet is forecast from what steps take here
 * (sched_cost.h), before anything is done for it; who cannot be served in time
 * is told at once, and when it may come again, so that the others are.
 *
 *     time to first token   the context phases that go first, its own, and,
 *                           where all seats are taken, the time until as many
 *                           are free as have come before it
 *     between tokens        an iteration of the worker that would generate,
 *                           with one sequence more
 *
 * A forecast counts with the mean error of those of late on top, and times what
 * promises took at worst (sched_safety_factor.h). Where steps have not been
 * measured yet nothing is refused.
 *
 * A worker with a target between tokens runs no more sequences at a time than
 * keep it: bt_sched_rates_seats().
 *
 * Threads: pure.
 * Source:  Zhong et al., "DistServe", OSDI 2024 (goodput under targets of TTFT
 *          and TPOT); Qin et al., "Mooncake", FAST 2025, section 7 (early
 *          rejection by prediction).
 */
#ifndef BT_COMMON_SCHED_TARGET_H
#define BT_COMMON_SCHED_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_cost.h"

/** Nobody is told to come back later than in so many seconds. */
#define BT_SCHED_RETRY_MOST_S 600u

/** 0: none. */
typedef struct bt_sched_slo {
    uint32_t ttft_ms;
    uint32_t itl_ms; /**< the mean of an answer */
} bt_sched_slo_t;

/** What a request meets. */
typedef struct bt_sched_forecast {
    uint64_t ahead_us;  /**< context phases before it, where they are least */
    uint64_t prompt_us; /**< its own */
    uint32_t n_over;    /**< seats that must be free first, its own among them;
                             0: there is one */
    uint64_t seat_us;   /**< from one that is free to the next */
    uint64_t step_us;   /**< an iteration with it; 0: not measured */
    uint32_t error;     /**< thousandths of a forecast, of late */
    /** Thousandths by which forecasts of the first token, and of the time
     *  between, are too short at worst (sched_safety_factor.h); 0 counts as
     * 1000. */
    uint32_t first_factor, between_factor;
} bt_sched_forecast_t;

typedef enum bt_sched_slo_verdict {
    BT_SCHED_SLO_MET,
    BT_SCHED_TTFT_MISSED, /**< the time to the first token */
    BT_SCHED_ITL_MISSED,  /**< the time between tokens */
} bt_sched_slo_verdict_t;

/** us; mean error and factor are in it. */
uint64_t bt_sched_forecast_ttft_us(const bt_sched_forecast_t *outlook);
uint64_t bt_sched_forecast_itl_us(const bt_sched_forecast_t *outlook);

/**
 * @param [out] retry_s_p  Only where it is late: in so many seconds it would
 *                         not be, if nobody else came; at least 1.
 */
bt_sched_slo_verdict_t bt_sched_slo_check(const bt_sched_slo_t *target,
                                          const bt_sched_forecast_t *outlook,
                                          uint32_t *retry_s_p);

/** An iteration of n sequences, each with so many tokens in its cache.
 *  @return us; 0: not measured there */
uint64_t bt_sched_rates_step_us(const bt_sched_rates_t *rates, uint32_t n_seqs,
                                uint32_t context_tokens);

/** The most sequences of which an iteration takes no more than itl_us.
 *  @return 1 to max_seats; max_seats where nothing was measured */
uint32_t bt_sched_rates_seats(const bt_sched_rates_t *rates,
                              uint32_t context_tokens, uint64_t itl_us,
                              uint32_t max_seats);

#endif
