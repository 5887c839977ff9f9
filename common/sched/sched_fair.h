/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_fair.h
 *
 * Whose turn it is among tenants: weighted fair queueing in work.
 * Each tenant is a *flow* with a virtual time, which rises by work / weight as
 * it is served; the backlogged flow with the least is next:
 *
 *     flow   virtual time
 *     A  ████████████▌          charge(A, 8) at weight 2 ─▶ + 4
 *     B  ███████▌  ◀── next
 *     C  ─ nothing waits ─      wait(C): from the time of now, not from before
 *
 * So over any stretch in which both are backlogged the work of two flows, each
 * by its weight, differs by no more than a largest request of either:
 *
 *     | W_a / w_a - W_b / w_b |  <=  L_a / w_a + L_b / w_b
 *
 * and no flow waits for more than one request of each other flow, by weights.
 * Who was away has no claim on what others had meanwhile, nor has who could not
 * be served for a limit of its own: bt_sched_fair_passed().
 *
 * Work is told when it begins, as much as it is thought to be
 * (sched_token_cost.h); what it turned out less is given back at its end, what
 * was more is charged. The order of requests within a flow is the owner's
 * (sched_queue.h), for the price is paid when one goes, not when it comes.
 *
 * Threads: one thread owns it. Pure.
 * Source:  P. Goyal, H. Vin, H. Cheng, "Start-time Fair Queuing", SIGCOMM 1996;
 *          Y. Sheng et al., "Fairness in Serving Large Language Models", OSDI
 *          2024 (the virtual token counter); W. Jin, J. Chase, J. Kaur,
 *          "Interposed Proportional Sharing", SIGMETRICS 2004 (min-SFQ(D):
 *          bt_sched_fair_wait_since()).
 */
#ifndef BT_COMMON_SCHED_FAIR_H
#define BT_COMMON_SCHED_FAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

#define BT_SCHED_FAIR_MAX_WEIGHT 1000u

/** A tenant's; embedded in the owner's. */
typedef struct bt_sched_flow {
    bt_list_t link; /**< in fair->backlog while something of it waits */
    uint32_t weight;
    uint64_t time; /**< virtual, BT_SCHED_FAIR_UNIT for a unit of work */
} bt_sched_flow_t;

/** Weights divide it with little loss; a million a second (microseconds of one
 *  worker, or tokens) take nine years to pass 64 bits. */
#define BT_SCHED_FAIR_UNIT 65536u

typedef struct bt_sched_fair {
    bt_list_t backlog; /**< flows by their time, the next one first */
    uint64_t weights;  /**< of those in it */
    uint64_t now;      /**< virtual: of the flow that was served last */
} bt_sched_fair_t;

void bt_sched_fair_init(bt_sched_fair_t *fair);
/** @param [in] weight  1 .. BT_SCHED_FAIR_MAX_WEIGHT; what is outside is cut */
void bt_sched_flow_init(bt_sched_flow_t *flow, uint32_t weight);
/** From the next charge on. */
void bt_sched_fair_set_weight(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                              uint32_t weight);
/** Something of it waits, or nothing any more. What is so already stays. */
void bt_sched_fair_wait(bt_sched_fair_t *fair, bt_sched_flow_t *flow);
/** Where what was served is queued once more, behind a server's door: of that
 *  the oldest that is not done had this time when it went. Who comes now stands
 *  beside it, not behind all that went meanwhile. */
void bt_sched_fair_wait_since(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                              uint64_t oldest);
void bt_sched_fair_rest(bt_sched_fair_t *fair, bt_sched_flow_t *flow);
/** It is served. O(backlogged flows) at most. */
void bt_sched_fair_charge(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                          uint64_t work);
/** So much of what was charged was not done. */
void bt_sched_fair_refund(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                          uint64_t work);
/** So much more was done than was charged. */
void bt_sched_fair_add(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                       uint64_t work);
/** It was its turn, and a limit of its own kept it from being served, while
 *  others were: it has no claim on that. */
void bt_sched_fair_passed(bt_sched_fair_t *fair, bt_sched_flow_t *flow);
/** Can the flow be forgotten? Not while it has had more than its share. */
bool bt_sched_fair_is_even(const bt_sched_fair_t *fair,
                           const bt_sched_flow_t *flow);
/** A share of @a total by the weights of those that are backlogged, the flow's
 *  own among them, rounded up. */
uint64_t bt_sched_fair_share(const bt_sched_fair_t *fair,
                             const bt_sched_flow_t *flow, uint64_t total);

static inline bt_sched_flow_t *bt_sched_flow_of(bt_list_t *link)
{
    return BT_CONTAINER_OF(link, bt_sched_flow_t, link);
}

#endif
