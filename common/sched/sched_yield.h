/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_yield.h
 *
 * When does a worker that generates let others have its cores, though it has
 * work itself?
 *
 * Workers of one host compute on each other's idle cores (docs/adr/0015). That
 * alone fills the cores, but it does not say where requests wait: between a
 * stage that is just too slow and one that is just quick enough all of them
 * stand before the first. So a prompt that has waited BT_SCHED_YIELD_STRETCH
 * times as long as it takes wants all cores, and who generates there then
 * sleeps after each iteration for as long as that took:
 *
 *     waits      ······················▶ wanted ──────────▶ not any more
 *     generates  ████████████████████████▌    ▐████▌    ▐████████████████
 *     prompts    ██████ own core ████████ both █ own █ both █ own ████████
 *
 * So inter-token latency at most doubles, and never beyond its target for that;
 * where it is beyond the target already nobody gives way. The wait is relative
 * to the prompt's own length, as its ageing is (sched_order.h): that a long one
 * waits for short ones is no reason by itself.
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

#define BT_SCHED_YIELD_STRETCH BT_SCHED_STRETCH
/** Nobody gives way for waits below this. */
#define BT_SCHED_YIELD_LEAST_US 50000u

/** Has this prompt waited for so long that it wants the cores of others? */
bool bt_sched_wants_cores(const bt_sched_work_t *work, uint64_t now_us);

/**
 * Somebody wants the cores of a worker that generates. How long does it sleep
 * before the next iteration?
 *
 * @param [in] step_us  What its last one took.
 * @param [in] itl_us   The target of inter-token latency.
 * @return us; 0: not at all
 */
uint64_t bt_sched_yield_us(uint64_t step_us, uint64_t itl_us);

#endif
