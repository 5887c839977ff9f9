/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_queue.h"

static uint32_t level_of(const bt_sched_turn_t *turn)
{
    return (turn->priority < BT_SCHED_TOP_LEVEL) ? turn->priority
                                                 : BT_SCHED_TOP_LEVEL;
}

static uint64_t slack_of(const bt_sched_turn_t *turn)
{
    const uint64_t most_us = (uint64_t)BT_SCHED_SLACK_MS * 1000u;

    return (turn->slack_us < most_us) ? turn->slack_us : most_us;
}

/* Due time: arrival + slack + priority levels below the top level. */
static uint64_t due_us(const bt_sched_turn_t *turn)
{
    return turn->since_us + slack_of(turn) +
           (uint64_t)(BT_SCHED_TOP_LEVEL - level_of(turn)) * BT_SCHED_LEVEL_MS *
               1000u;
}

bool bt_sched_turn_before(const bt_sched_turn_t *a, const bt_sched_turn_t *b)
{
    const uint64_t due_a = due_us(a);
    const uint64_t due_b = due_us(b);

    return (due_a != due_b) ? due_a < due_b : level_of(a) > level_of(b);
}

void bt_sched_queue_insert(bt_list_t *queue, bt_sched_turn_t *turn)
{
    bt_list_t *before = queue;

    while ((before->prev != queue) &&
           bt_sched_turn_before(turn, bt_sched_turn_of(before->prev))) {
        before = before->prev;
    }
    bt_list_push_back(before, &turn->link); /* in front of `before` */
}

void bt_sched_queue_set_slack(bt_list_t *queue, bt_sched_turn_t *turn,
                              uint64_t slack_us)
{
    const bool moves = slack_us != turn->slack_us;

    turn->slack_us = slack_us;
    if (moves && !bt_list_empty(&turn->link)) {
        bt_list_remove(&turn->link);
        bt_sched_queue_insert(queue, turn);
    }
}
