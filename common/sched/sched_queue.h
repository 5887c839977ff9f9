/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_queue.h
 *
 * Whose turn it is: the one order of every queue, at the router, at a worker
 * and in an iteration. By the time at which each is due:
 *
 *     when it came + its slack + what it lacks of the top level of priority
 *
 *     slack     what its order grants others before it (sched_order.h), at most
 *               BT_SCHED_SLACK_MS: none, where first come is first served
 *     priority  a level is a head start of BT_SCHED_LEVEL_MS, and
 *               BT_SCHED_TOP_LEVEL of them are the most that count
 *
 * So who waits rises against those that come later, and nobody is overtaken by
 * one that came more than four minutes after it (two for slack, two for
 * priority), whatever their kinds: BT_SCHED_MAX_WAIT_MS. All grow older alike:
 * the order of two never changes while they wait, a queue is a sorted list, and
 * no clock is asked. Slack may only shrink, of what is being computed.
 *
 * Threads: none of these functions lock; one thread owns a queue.
 * Source:  A. Silberschatz, J. Peterson, P. Galvin, "Operating System
 *          Concepts", section on scheduling (ageing against starvation).
 */
#ifndef BT_COMMON_SCHED_QUEUE_H
#define BT_COMMON_SCHED_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

#define BT_SCHED_LEVEL_MS  5000u
#define BT_SCHED_TOP_LEVEL 24u
#define BT_SCHED_SLACK_MS  120000u
/** Who came later by more than this overtakes nobody. */
#define BT_SCHED_MAX_WAIT_MS \
    (BT_SCHED_SLACK_MS + BT_SCHED_LEVEL_MS * BT_SCHED_TOP_LEVEL)

/** A place in a queue; embedded in whatever waits. */
typedef struct bt_sched_turn {
    bt_list_t link;    /**< in a queue, or in none */
    uint32_t priority; /**< levels; higher is sooner */
    uint64_t since_us; /**< when it came, by the owner's clock */
    uint64_t slack_us; /**< counts up to BT_SCHED_SLACK_MS */
} bt_sched_turn_t;

/** In no queue yet, without slack. */
static inline void bt_sched_turn_init(bt_sched_turn_t *turn, uint32_t priority,
                                      uint64_t since_us)
{
    bt_list_init(&turn->link);
    turn->priority = priority;
    turn->since_us = since_us;
    turn->slack_us = 0;
}

/** Is @a a to go before @a b? A strict order: of two that stand alike neither
 *  does. */
bool bt_sched_turn_before(const bt_sched_turn_t *a, const bt_sched_turn_t *b);

/** Into its place, behind those that stand alike. Who came last is looked for
 *  from the back: O(those that it overtakes). */
void bt_sched_queue_insert(bt_list_t *queue, bt_sched_turn_t *turn);

/** Its slack is another one now: it moves, if it is in a queue and has to. */
void bt_sched_queue_set_slack(bt_list_t *queue, bt_sched_turn_t *turn,
                              uint64_t slack_us);

static inline bt_sched_turn_t *bt_sched_turn_of(bt_list_t *link)
{
    return BT_CONTAINER_OF(link, bt_sched_turn_t, link);
}

/** @return the first or the last of a queue, NULL when it is empty. */
static inline bt_sched_turn_t *bt_sched_queue_first(const bt_list_t *queue)
{
    return bt_list_empty(queue) ? NULL : bt_sched_turn_of(queue->next);
}

static inline bt_sched_turn_t *bt_sched_queue_last(const bt_list_t *queue)
{
    return bt_list_empty(queue) ? NULL : bt_sched_turn_of(queue->prev);
}

#endif
