/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_safety_factor.h
 *
 * How much longer than forecast what was promised takes, at worst: a factor for
 * forecasts, such that one of BT_SCHED_SAFETY_FACTOR_ONE_OF takes longer still.
 * A mean error does not tell that: a promise is kept or broken by the whole of
 * what comes after it, the cores that others want back, the prompts that
 * overtake.
 *
 * A promise that is broken moves the factor up, at most to where that one would
 * have been kept; one that is kept moves it down by a little, so that after
 * hard times it is low again in some hundred answers. Where nothing is promised
 * for more than BT_SCHED_SAFETY_FACTOR_REST_US it goes back to 1, half of the
 * way in BT_SCHED_SAFETY_FACTOR_HALF_US: what was learned in hard times says
 * little of later.
 *
 * A probe (sched_age.h) was promised nothing. One that would have kept its
 * promise moves the factor a quarter of the way to where that is just so: while
 * the factor keeps others away there are no hundred answers to learn from.
 *
 * Threads: pure; whoever has one owns it.
 * Source:  Robbins, Monro, "A Stochastic Approximation Method", 1951 (of a
 *          quantile).
 */
#ifndef BT_COMMON_SCHED_MARGIN_H
#define BT_COMMON_SCHED_MARGIN_H

#include <stdint.h>

#define BT_SCHED_SAFETY_FACTOR_ONE_OF 200u
/** Beyond it nothing would be promised: forecasts twice as long as measured. */
#define BT_SCHED_SAFETY_FACTOR_MOST 2000u

#define BT_SCHED_SAFETY_FACTOR_REST_US 10000000u
#define BT_SCHED_SAFETY_FACTOR_HALF_US 30000000u

typedef struct bt_sched_safety_factor {
    double factor;
    double least;   /**< it is never less */
    uint64_t at_us; /**< when it was learned last; 0: never */
} bt_sched_safety_factor_t;

/** A factor of 1. @param least  thousandths, at most 1000 */
void bt_sched_safety_factor_init(bt_sched_safety_factor_t *margin,
                                 uint32_t least);
/** What was forecast so, without the factor, took so long. A forecast of 0
 *  teaches nothing. */
void bt_sched_safety_factor_learn(bt_sched_safety_factor_t *margin,
                                  uint64_t forecast_us, uint64_t us,
                                  uint64_t now_us);
/** The same of a probe. */
void bt_sched_safety_factor_probe(bt_sched_safety_factor_t *margin,
                                  uint64_t forecast_us, uint64_t us,
                                  uint64_t now_us);
/** Thousandths: bt_sched_forecast_t.first_factor, .between_factor. */
uint32_t bt_sched_safety_factor_now(const bt_sched_safety_factor_t *margin,
                                    uint64_t now_us);

#endif
