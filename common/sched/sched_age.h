/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_age.h
 *
 * Estimates that age. A forecast decides what is admitted, and only what is
 * admitted is measured: a wrong estimate that keeps all away is never
 * corrected by what comes. Two remedies, for everything that is learned here:
 *
 *     ageing   what nobody has measured for a while counts for less, so that
 *              the next measurement counts for more
 *     probe    what would be refused is admitted all the same, where nothing
 *              stands before it, no other probe is under way and the last one
 *              is over for BT_SCHED_PROBE_EVERY_US
 *
 *     due ──sent──▶ out ──back──▶ resting ── BT_SCHED_PROBE_EVERY_US ──▶ due
 *
 * A probe is over when its first token is there, or when it ends without one.
 *
 * Threads: pure; no clock of its own.
 * Source:  R. S. Sutton, A. G. Barto, "Reinforcement Learning", 2nd ed., 2.5
 *          (weights of a nonstationary mean), 2.7 (what has long not been tried
 *          is tried); M. Nygard, "Release It!", 2nd ed., 5.2 (a circuit breaker
 *          that is half open lets one call through).
 */
#ifndef BT_COMMON_SCHED_AGE_H
#define BT_COMMON_SCHED_AGE_H

#include <stdbool.h>
#include <stdint.h>

/** From the end of one probe to the next. */
#define BT_SCHED_PROBE_EVERY_US 1000000u

/** All zero at first: one is due. */
typedef struct bt_sched_probe {
    bool is_out;
    uint64_t rests_until_us;
} bt_sched_probe_t;

/** The share of its weight that a measurement keeps: half at the age half_us, a
 *  quarter at twice that. @return 1 to 0 */
double bt_sched_age_left(uint64_t age_us, uint64_t half_us);

/** Share of the newest sample in a mean.
 *  @param [in] share   where samples are dense
 *  @param [in] age_us  since the sample before
 *  @return share, or what the others have lost by age, if that is more */
double bt_sched_age_share(double share, uint64_t age_us, uint64_t half_us);

/** From @a earlier_us to @a now_us; 0 where that is no time, or where nothing
 *  was earlier (0). */
static inline uint64_t bt_sched_age_us(uint64_t earlier_us, uint64_t now_us)
{
    return ((earlier_us > 0) && (now_us > earlier_us)) ? now_us - earlier_us
                                                       : 0;
}

/** @return whether a probe may be sent now */
bool bt_sched_probe_is_due(const bt_sched_probe_t *probe, uint64_t now_us);
/** A probe is under way: no other one is due until it is back. */
void bt_sched_probe_sent(bt_sched_probe_t *probe);
/** A probe is over, or a request that is none was just measured: the next probe
 *  is due BT_SCHED_PROBE_EVERY_US later. */
void bt_sched_probe_back(bt_sched_probe_t *probe, uint64_t now_us);

#endif
