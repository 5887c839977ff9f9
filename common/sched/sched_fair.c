/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_fair.h"

void bt_sched_fair_init(bt_sched_fair_t *fair)
{
    bt_list_init(&fair->backlog);
    fair->weights = 0;
    fair->now = 0;
}

static uint32_t cut_weight(uint32_t weight)
{
    if (weight < 1) {
        return 1;
    }
    return (weight < BT_SCHED_FAIR_MAX_WEIGHT) ? weight
                                               : BT_SCHED_FAIR_MAX_WEIGHT;
}

void bt_sched_flow_init(bt_sched_flow_t *flow, uint32_t weight)
{
    bt_list_init(&flow->link);
    flow->weight = cut_weight(weight);
    flow->time = 0;
}

void bt_sched_fair_set_weight(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                              uint32_t weight)
{
    const uint32_t cut = cut_weight(weight);

    if (!bt_list_empty(&flow->link)) {
        fair->weights += cut;
        fair->weights -= flow->weight;
    }
    flow->weight = cut;
}

/* Inserts a flow behind those with an equal time. Searches from the back,
 * where a served flow usually belongs. */
static void insert(bt_sched_fair_t *fair, bt_sched_flow_t *flow)
{
    bt_list_t *before = &fair->backlog;

    while ((before->prev != &fair->backlog) &&
           (flow->time < bt_sched_flow_of(before->prev)->time)) {
        before = before->prev;
    }
    bt_list_push_back(before, &flow->link); /* in front of `before` */
}

static void move(bt_sched_fair_t *fair, bt_sched_flow_t *flow)
{
    if (!bt_list_empty(&flow->link)) {
        bt_list_remove(&flow->link);
        insert(fair, flow);
    }
}

void bt_sched_fair_wait(bt_sched_fair_t *fair, bt_sched_flow_t *flow)
{
    bt_sched_fair_wait_since(fair, flow, UINT64_MAX);
}

void bt_sched_fair_wait_since(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                              uint64_t oldest)
{
    const uint64_t from = (oldest < fair->now) ? oldest : fair->now;

    if (bt_list_empty(&flow->link)) {
        if (flow->time < from) {
            flow->time = from;
        }
        fair->weights += flow->weight;
        insert(fair, flow);
    }
}

void bt_sched_fair_rest(bt_sched_fair_t *fair, bt_sched_flow_t *flow)
{
    if (!bt_list_empty(&flow->link)) {
        bt_list_remove(&flow->link);
        fair->weights -= flow->weight;
    }
}

static uint64_t price_of(const bt_sched_flow_t *flow, uint64_t work)
{
    uint64_t scaled;

    if (__builtin_mul_overflow(work, BT_SCHED_FAIR_UNIT, &scaled)) {
        scaled = UINT64_MAX;
    }
    return scaled / flow->weight;
}

void bt_sched_fair_charge(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                          uint64_t work)
{
    if (flow->time > fair->now) {
        fair->now = flow->time;
    }
    bt_sched_fair_add(fair, flow, (work > 0) ? work : 1);
}

void bt_sched_fair_add(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                       uint64_t work)
{
    if (__builtin_add_overflow(flow->time, price_of(flow, work), &flow->time)) {
        flow->time = UINT64_MAX;
    }
    move(fair, flow);
}

void bt_sched_fair_refund(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                          uint64_t work)
{
    const uint64_t price = price_of(flow, work);

    flow->time -= (price < flow->time) ? price : flow->time;
    move(fair, flow);
}

void bt_sched_fair_passed(bt_sched_fair_t *fair, bt_sched_flow_t *flow)
{
    if (flow->time < fair->now) {
        flow->time = fair->now;
        move(fair, flow);
    }
}

bool bt_sched_fair_is_even(const bt_sched_fair_t *fair,
                           const bt_sched_flow_t *flow)
{
    return bt_list_empty(&flow->link) && (flow->time <= fair->now);
}

uint64_t bt_sched_fair_share(const bt_sched_fair_t *fair,
                             const bt_sched_flow_t *flow, uint64_t total)
{
    const uint64_t all =
        fair->weights + (bt_list_empty(&flow->link) ? flow->weight : 0);

    return (total * flow->weight + all - 1) / all;
}
