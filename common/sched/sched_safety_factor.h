/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_safety_factor.h
 *
 * Safety factor for latency forecasts: how much longer than forecast a promised
 * request takes at worst, such that one of BT_SCHED_SAFETY_FACTOR_ONE_OF takes
 * longer still. A mean error does not show that: whether a promise holds
 * depends on everything that happens afterwards, such as cores that others want
 * back and prompts that overtake.
 *
 * A broken promise raises the factor, at most to the value that would have kept
 * it; a kept one lowers it a little, so that after overload it is low again
 * within some hundred requests. If nothing is promised for more than
 * BT_SCHED_SAFETY_FACTOR_REST_US the factor decays to 1, with the half-life
 * BT_SCHED_SAFETY_FACTOR_HALF_US: an old overload says little about the
 * present.
 *
 * A probe (sched_age.h) is promised nothing. If it would have kept its promise
 * it moves the factor a quarter of the way to its own ratio: while the factor
 * rejects other requests there are no hundred to learn from.
 *
 * Threads: pure; the holder owns it.
 * Source:  Robbins, Monro, "A Stochastic Approximation Method", 1951 (of a
 *          quantile).
 */
#ifndef BT_COMMON_SCHED_SAFETY_FACTOR_H
#define BT_COMMON_SCHED_SAFETY_FACTOR_H

#include <stdint.h>

#define BT_SCHED_SAFETY_FACTOR_ONE_OF 200u
/** Upper limit, in thousandths; beyond it nothing would be promised:
 *  requests take twice as long as forecast. */
#define BT_SCHED_SAFETY_FACTOR_MOST 2000u

#define BT_SCHED_SAFETY_FACTOR_REST_US 10000000u
#define BT_SCHED_SAFETY_FACTOR_HALF_US 30000000u
/** Learned safety factor. */

typedef struct bt_sched_safety_factor {
    double factor;
    double least;   /**< lower limit of the factor */
    uint64_t at_us; /**< when it was last learned; 0: never */
} bt_sched_safety_factor_t;

/**
 * Initialises the factor to 1.
 * @param [in] least  lower limit in thousandths, at most 1000
 */
void bt_sched_safety_factor_init(bt_sched_safety_factor_t *margin,
                                 uint32_t least);
/** Learns from a promised request: its forecast, without the factor, and its
 *  actual time. A forecast of 0 teaches nothing. */
void bt_sched_safety_factor_learn(bt_sched_safety_factor_t *margin,
                                  uint64_t forecast_us, uint64_t us,
                                  uint64_t now_us);
/** Learns from a probe: its forecast, without the factor, and its actual
 *  time. A forecast of 0 teaches nothing. */
void bt_sched_safety_factor_probe(bt_sched_safety_factor_t *margin,
                                  uint64_t forecast_us, uint64_t us,
                                  uint64_t now_us);
/** Returns the factor in thousandths, for bt_sched_forecast_t.first_factor
 *  and .between_factor. */
uint32_t bt_sched_safety_factor_now(const bt_sched_safety_factor_t *margin,
                                    uint64_t now_us);

#endif
