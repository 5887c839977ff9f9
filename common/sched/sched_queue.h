/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_queue.h
 *
 * Order of every queue: at the router, at a worker and in an iteration. Entries
 * are sorted by the time at which each is due:
 *
 *     arrival + slack + priority levels below the top level
 *
 *     slack     how much later requests may overtake it under its scheduling
 *               order (sched_order.h), at most BT_SCHED_SLACK_MS: none for
 *               first come, first served
 *     priority  a level is a head start of BT_SCHED_LEVEL_MS, and at most
 *               BT_SCHED_TOP_LEVEL levels count
 *
 * So a waiting entry rises against later ones, and none is overtaken by one
 * that arrived more than four minutes after it (two for slack, two for
 * priority), whatever their kinds: BT_SCHED_MAX_WAIT_MS. All age at one rate:
 * the order of two never changes while they wait, a queue is a sorted list, and
 * no clock is read. Slack may only shrink, for what is being computed.
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
/** Longest lead: an entry that arrived later by more than this overtakes
 *  none. */
#define BT_SCHED_MAX_WAIT_MS \
    (BT_SCHED_SLACK_MS + BT_SCHED_LEVEL_MS * BT_SCHED_TOP_LEVEL)

/** Queue entry; embedded in whatever waits. */
typedef struct bt_sched_turn {
    bt_list_t link;    /**< in a queue, or in none */
    uint32_t priority; /**< levels; higher is sooner */
    uint64_t since_us; /**< arrival, by the owner's clock */
    uint64_t slack_us; /**< counts up to BT_SCHED_SLACK_MS */
} bt_sched_turn_t;

/** Initialises an entry in no queue, without slack. */
static inline void bt_sched_turn_init(bt_sched_turn_t *turn, uint32_t priority,
                                      uint64_t since_us)
{
    bt_list_init(&turn->link);
    turn->priority = priority;
    turn->since_us = since_us;
    turn->slack_us = 0;
}

/** True when @a a goes before @a b. A strict order: of two equal entries
 *  neither does. */
bool bt_sched_turn_before(const bt_sched_turn_t *a, const bt_sched_turn_t *b);

/** Inserts an entry behind equal ones. Searches from the back: O(entries
 *  that it overtakes). */
void bt_sched_queue_insert(bt_list_t *queue, bt_sched_turn_t *turn);

/** Changes an entry's slack, and moves the entry if it is queued and has to
 *  move. */
void bt_sched_queue_set_slack(bt_list_t *queue, bt_sched_turn_t *turn,
                              uint64_t slack_us);

static inline bt_sched_turn_t *bt_sched_turn_of(bt_list_t *link)
{
    return BT_CONTAINER_OF(link, bt_sched_turn_t, link);
}

/** Return the first or the last entry of a queue, NULL when it is empty. */
static inline bt_sched_turn_t *bt_sched_queue_first(const bt_list_t *queue)
{
    return bt_list_empty(queue) ? NULL : bt_sched_turn_of(queue->next);
}

static inline bt_sched_turn_t *bt_sched_queue_last(const bt_list_t *queue)
{
    return bt_list_empty(queue) ? NULL : bt_sched_turn_of(queue->prev);
}

#endif
