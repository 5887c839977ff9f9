/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_order.h
 *
 * In which order prompts are computed, and sequences come to generate: what
 * slack each has (sched_queue.h).
 *
 *     fcfs      none: who came first
 *     srpt      shortest remaining first, with ageing: BT_SCHED_STRETCH times
 *               the time that computing it takes, and no more than 32 times
 *               that for what is left of it; so for its last 32nd it moves
 *               up, and one that is nearly there is not stopped for another
 *     deadline  earliest deadline first: the time from when it came to its
 *               deadline, which is that of the whole answer (a request's own
 *               timeout, or --request-timeout-ms); one without has all slack
 *               there is, as has one that is further off than that
 *
 *     length    shortest answer first, with ageing: BT_SCHED_STRETCH times the
 *               time that all of it takes here at most. It is for those that
 *               generate: those of like lengths stand together, so static
 *               batches (sched_batch.h) are of such
 *
 * The bound of srpt: who came later overtakes a prompt that takes t only in the
 * first BT_SCHED_STRETCH x t after it came. Whatever comes then waits. So
 * however many shorter ones come, a prompt waits for what was there before it,
 * what comes in that time, and itself: where one alone finds its worker busy
 * all the time with shorter ones, it is complete after at most
 * BT_SCHED_STRETCH + 1 times t and what the others' queue is by then. That of
 * length is the same, to where it begins: BT_SCHED_STRETCH times t after it
 * came nobody comes before it any more.
 *
 * The times are predictions (sched_cost.h). A wrong one makes an order less
 * good and changes no token (I1).
 *
 * Threads: pure.
 * Source:  L. Schrage, "A Proof of the Optimality of the Shortest Remaining
 *          Processing Time Discipline", Operations Research 16, 1968; M.
 * Dertouzos, "Control Robotics: the Procedural Control of Physical Processes",
 * 1974 (earliest deadline first).
 */
#ifndef BT_COMMON_SCHED_ORDER_H
#define BT_COMMON_SCHED_ORDER_H

#include <stdbool.h>
#include <stdint.h>

typedef enum bt_sched_order {
    BT_SCHED_SRPT, /**< the default */
    BT_SCHED_FCFS,
    BT_SCHED_DEADLINE,
    BT_SCHED_LENGTH,
    BT_SCHED_N_ORDERS,
} bt_sched_order_t;

/** How many times its own length a prompt or an answer lets others pass. */
#define BT_SCHED_STRETCH 4u

/** What an order goes by. */
typedef struct bt_sched_work {
    uint64_t since_us;    /**< when it came */
    uint64_t deadline_us; /**< by the same clock; UINT64_MAX: none */
    uint64_t whole_us;    /**< to compute all of it */
    uint64_t left_us;     /**< to compute what is left */
    uint64_t answer_us;   /**< for all that a worker has to do for it: length */
} bt_sched_work_t;

/** @return at most BT_SCHED_SLACK_MS. */
uint64_t bt_sched_slack_us(bt_sched_order_t order, const bt_sched_work_t *work);

/** "srpt" and the like. */
const char *bt_sched_order_name(bt_sched_order_t order);
/** @return false: no order is called so */
bool bt_sched_order_find(const char *name, bt_sched_order_t *order_p);

#endif
