/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_order.h
 *
 * Scheduling policy: the order in which prompts are computed and sequences
 * begin to generate, as the slack of each (sched_queue.h).
 *
 *     fcfs      none: first come, first served
 *     srpt      shortest remaining first, with ageing: BT_SCHED_STRETCH times
 *               the request's compute time, and at most 32 times that for
 *               the remaining part; so for its last 32nd it moves up, and one
 *               that is nearly complete is not stopped for another
 *     deadline  earliest deadline first: the time from arrival to the
 *               deadline of the whole answer (a request's own timeout, or
 *               --request-timeout-ms); a request without a deadline, or with
 *               one further off than the maximum slack, has the maximum
 *
 *     length    shortest answer first, with ageing: BT_SCHED_STRETCH times the
 *               longest time that all of it takes here. For generation:
 *               requests of similar lengths are adjacent, so static batches
 *               (sched_batch.h) consist of such
 *
 * The bound of srpt: a later request overtakes a prompt of compute time t only
 * if it arrives in the first BT_SCHED_STRETCH x t after that prompt. Everything
 * that arrives afterwards waits. So however many shorter prompts arrive, a
 * prompt waits for what was queued before it, what arrives in that time, and
 * itself: if its worker is always busy with shorter ones, it completes after at
 * most BT_SCHED_STRETCH + 1 times t plus the others' queue by then. The bound
 * of length holds up to the begin: BT_SCHED_STRETCH times t after its arrival
 * no new request overtakes it.
 *
 * The times are predictions (sched_cost.h). A wrong one makes an order worse
 * and changes no token (I1).
 *
 * Threads: pure.
 * Source:  L. Schrage, "A Proof of the Optimality of the Shortest Remaining
 *          Processing Time Discipline", Operations Research 16, 1968;
 *          M. Dertouzos, "Control Robotics: the Procedural Control of Physical
 *          Processes", 1974 (earliest deadline first).
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

/** Stretch: how many times its own length a prompt or an answer lets others
 *  overtake it. */
#define BT_SCHED_STRETCH 4u

/** Request properties that an order uses. */
typedef struct bt_sched_work {
    uint64_t since_us;    /**< arrival */
    uint64_t deadline_us; /**< by the clock of since_us; UINT64_MAX: none */
    uint64_t whole_us;    /**< to compute all of it */
    uint64_t left_us;     /**< to compute the remaining part */
    uint64_t answer_us;   /**< for all work of the request at a worker:
                               length */
} bt_sched_work_t;

/** Returns a request's slack under an order. @return at most
 *  BT_SCHED_SLACK_MS. */
uint64_t bt_sched_slack_us(bt_sched_order_t order, const bt_sched_work_t *work);

/** Returns the name of an order, such as "srpt". */
const char *bt_sched_order_name(bt_sched_order_t order);
/**
 * Finds an order by name.
 * @return false: no order has this name
 */
bool bt_sched_order_find(const char *name, bt_sched_order_t *order_p);

#endif
