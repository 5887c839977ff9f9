/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_age.h
 *
 * Estimates that age. A forecast decides what is admitted, and only admitted
 * requests are measured: a wrong estimate that rejects everything would never
 * be corrected. Two remedies, for every learned estimate in this folder:
 *
 *     ageing   an estimate that has not been measured for a while weighs
 *              less, so that the next measurement weighs more
 *     probe    a request that would be rejected is admitted anyway, when
 *              nothing is queued before it, no other probe is in flight and
 *              the last one ended at least BT_SCHED_PROBE_EVERY_US ago
 *
 *     due ──sent──▶ out ──back──▶ resting ── BT_SCHED_PROBE_EVERY_US ──▶ due
 *
 * A probe ends with its first token, or when it ends without one.
 *
 * Threads: pure; no clock of its own.
 * Source:  R. S. Sutton, A. G. Barto, "Reinforcement Learning", 2nd ed., 2.5
 *          (weights of a nonstationary mean), 2.7 (untried actions are tried
 *          again); M. Nygard, "Release It!", 2nd ed., 5.2 (a circuit breaker
 *          that is half open lets one call through).
 */
#ifndef BT_COMMON_SCHED_AGE_H
#define BT_COMMON_SCHED_AGE_H

#include <stdbool.h>
#include <stdint.h>

/** Time from the end of one probe to the next. */
#define BT_SCHED_PROBE_EVERY_US 1000000u

/** State of the probes of one estimate. All zero at first: one is due. */
typedef struct bt_sched_probe {
    bool is_out;
    uint64_t rests_until_us;
} bt_sched_probe_t;

/** Returns the fraction of its weight that a measurement keeps: half at the
 *  age half_us, a quarter at twice that. @return 1 to 0 */
double bt_sched_age_left(uint64_t age_us, uint64_t half_us);

/**
 * Returns the weight of the newest sample in a moving mean.
 * @param [in] share   weight when samples are dense
 * @param [in] age_us  time since the previous sample
 * @return share, or the weight that older samples have lost by age, if larger
 */
double bt_sched_age_share(double share, uint64_t age_us, uint64_t half_us);

/** Returns the time from @a earlier_us to @a now_us; 0 if negative, or if @a
 *  earlier_us is 0 (never). */
static inline uint64_t bt_sched_age_us(uint64_t earlier_us, uint64_t now_us)
{
    return ((earlier_us > 0) && (now_us > earlier_us)) ? now_us - earlier_us
                                                       : 0;
}

/** True when a probe may be sent now. */
bool bt_sched_probe_is_due(const bt_sched_probe_t *probe, uint64_t now_us);
/** Records that a probe is in flight: no other is due until it ends. */
void bt_sched_probe_sent(bt_sched_probe_t *probe);
/** Records the end of a probe, or that an ordinary request was just
 *  measured: the next probe is due BT_SCHED_PROBE_EVERY_US later. */
void bt_sched_probe_back(bt_sched_probe_t *probe, uint64_t now_us);

#endif
