/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_core_donation.h
 *
 * When does a worker that generates let others have its cores, though it has
 * work itself?
 *
 * Workers of one host compute on each other's idle cores (docs/adr/0015). That
 * alone fills the cores, but it does not say where requests wait: between a
 * stage that is just too slow and one that is just quick enough all of them
 * stand before the first. So a prompt that has waited BT_SCHED_DONATION_STRETCH
 * times as long as it takes wants all cores, and who generates there then
 * sleeps after each iteration for as long as that took:
 *
 *     waits      ······················▶ wanted ──────────▶ not any more
 *     generates  ████████████████████████▌    ▐████▌    ▐████████████████
 *     prompts    ██████ own core ████████ both █ own █ both █ own ████████
 *
 * So inter-token latency at most doubles, and never beyond its target for that;
 * where it is beyond the target already nobody gives way. A sequence with a
 * target of its own has it of the mean of its answer, as it is measured: what
 * it may spare is what is left until its next token is due, and of all that run
 * the one with the least to spare decides. So what a forecast promised before
 * anybody gave way (sched_slo.h) holds. The wait is relative to the prompt's
 * own length, as its ageing is (sched_order.h): that a long one waits for short
 * ones is no reason by itself.
 *
 * Threads: pure.
 * Source:  M. Bender, S. Chakrabarti, S. Muthukrishnan, "Flow and Stretch
 *          Metrics for Scheduling Continuous Job Streams", SODA 1998 (waiting
 *          in multiples of the own length).
 */
#ifndef BT_COMMON_SCHED_YIELD_H
#define BT_COMMON_SCHED_YIELD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_order.h"

#define BT_SCHED_DONATION_STRETCH BT_SCHED_STRETCH
/** Nobody gives way for waits below this. */
#define BT_SCHED_DONATION_LEAST_US 50000u

/** Has this prompt waited for so long that it wants the cores of others? */
bool bt_sched_wants_cores(const bt_sched_work_t *work, uint64_t now_us);

/** Of a target of one sequence, one of so many parts is not spared: for what
 *  comes after, steps that take longer. */
#define BT_SCHED_DONATION_MARGIN 8u

/** How far a sequence has got on with its target. */
typedef struct bt_sched_itl_progress {
    uint64_t itl_us;   /**< of the mean time between its tokens */
    uint64_t spent_us; /**< since the first of them */
    uint32_t n_tokens; /**< after that one */
} bt_sched_itl_progress_t;

/**
 * What a sequence may wait before the next iteration, which takes step_us.
 *
 * @return us; 0: nothing, its next token is late
 */
uint64_t bt_sched_spare_us(const bt_sched_itl_progress_t *pace,
                           uint64_t step_us);

/**
 * Somebody wants the cores of a worker that generates. How long does it sleep
 * before the next iteration?
 *
 * @param [in] step_us   What its last one took.
 * @param [in] spare_us  What those that run may spare, the least.
 * @return us; 0: not at all
 */
uint64_t bt_sched_donation_us(uint64_t step_us, uint64_t spare_us);

#endif
