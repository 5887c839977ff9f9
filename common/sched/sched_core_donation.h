/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_core_donation.h
 *
 * Decides when a generating worker donates its cores to other workers, though
 * it has work itself.
 *
 * Workers of one host compute on each other's idle cores (docs/adr/0015). That
 * keeps the cores busy, but does not bound queueing: between a stage that is
 * slightly too slow and one that is just fast enough, all requests queue at the
 * first. So a prompt that has waited BT_SCHED_DONATION_STRETCH times its own
 * compute time wants all cores, and the generating worker on that host then
 * sleeps after each iteration for as long as the iteration took:
 *
 *     waits      ······················▶ wanted ──────────▶ not any more
 *     generates  ████████████████████████▌    ▐████▌    ▐████████████████
 *     prompts    ██████ own core ████████ both █ own █ both █ own ████████
 *
 * So donation at most doubles inter-token latency, and never beyond its target;
 * where it exceeds the target already, no cores are donated. A sequence's own
 * target is for the mean of its answer, as it is measured: its slack is the
 * time left until its next token is due, and the smallest slack of all running
 * sequences decides. So a forecast promised before the donation (sched_slo.h)
 * holds. The wait is relative to the prompt's own length, like its ageing
 * (sched_order.h): a long prompt that waits for short ones is no reason by
 * itself.
 *
 * Threads: pure.
 * Source:  M. Bender, S. Chakrabarti, S. Muthukrishnan, "Flow and Stretch
 *          Metrics for Scheduling Continuous Job Streams", SODA 1998 (waiting
 *          in multiples of the own length).
 */
#ifndef BT_COMMON_SCHED_CORE_DONATION_H
#define BT_COMMON_SCHED_CORE_DONATION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_order.h"

#define BT_SCHED_DONATION_STRETCH BT_SCHED_STRETCH
/** Shortest wait of a prompt for which cores are donated. */
#define BT_SCHED_DONATION_LEAST_US 50000u

/** True when a prompt has waited long enough to want other workers' cores. */
bool bt_sched_wants_cores(const bt_sched_work_t *work, uint64_t now_us);

/** Reciprocal of the part of a sequence's target that is not donated: a
 *  reserve for later, longer steps. */
#define BT_SCHED_DONATION_MARGIN 8u

/** Progress of a sequence against its inter-token latency target. */
typedef struct bt_sched_itl_progress {
    uint64_t itl_us;   /**< target of the mean time between its tokens */
    uint64_t spent_us; /**< time since its first token */
    uint32_t n_tokens; /**< tokens after the first */
} bt_sched_itl_progress_t;

/**
 * Returns how long a sequence can wait before the next iteration, which takes
 * step_us.
 *
 * @return us; 0: no time, its next token is late
 */
uint64_t bt_sched_spare_us(const bt_sched_itl_progress_t *pace,
                           uint64_t step_us);

/**
 * Returns how long a generating worker whose cores are wanted sleeps before the
 * next iteration.
 *
 * @param [in] step_us   Duration of the last iteration.
 * @param [in] spare_us  Smallest slack of the running sequences.
 * @return us; 0: no sleep
 */
uint64_t bt_sched_donation_us(uint64_t step_us, uint64_t spare_us);

#endif
