/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_order.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/sched/sched_queue.h"

#define MOST_US    ((uint64_t)BT_SCHED_SLACK_MS * 1000u)
#define LAST_PARTS 32u /* the last one of this many parts moves a prompt up */

/* No product of times runs over. */
static uint64_t times(uint64_t us, uint64_t n)
{
    return (us < MOST_US / n) ? us * n : MOST_US;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return (a < b) ? a : b;
}

static uint64_t slack_fcfs(const bt_sched_work_t *work)
{
    (void)work;
    return 0;
}

static uint64_t slack_srpt(const bt_sched_work_t *work)
{
    return min_u64(times(work->whole_us, BT_SCHED_STRETCH),
                   times(work->left_us, BT_SCHED_STRETCH * LAST_PARTS));
}

static uint64_t slack_deadline(const bt_sched_work_t *work)
{
    return (work->deadline_us <= work->since_us)
               ? 0
               : min_u64(work->deadline_us - work->since_us, MOST_US);
}

static uint64_t slack_length(const bt_sched_work_t *work)
{
    return times(work->answer_us, BT_SCHED_STRETCH);
}

static const struct {
    const char *name;
    uint64_t (*slack_us)(const bt_sched_work_t *work);
} orders[BT_SCHED_N_ORDERS] = {
    [BT_SCHED_SRPT] = {"srpt", slack_srpt},
    [BT_SCHED_FCFS] = {"fcfs", slack_fcfs},
    [BT_SCHED_DEADLINE] = {"deadline", slack_deadline},
    [BT_SCHED_LENGTH] = {"length", slack_length},
};

uint64_t bt_sched_slack_us(bt_sched_order_t order, const bt_sched_work_t *work)
{
    BT_ASSERT(order < BT_SCHED_N_ORDERS);
    return orders[order].slack_us(work);
}

const char *bt_sched_order_name(bt_sched_order_t order)
{
    BT_ASSERT(order < BT_SCHED_N_ORDERS);
    return orders[order].name;
}

bool bt_sched_order_find(const char *name, bt_sched_order_t *order_p)
{
    for (unsigned i = 0; i < BT_SCHED_N_ORDERS; i++) {
        if (strcmp(orders[i].name, name) == 0) {
            *order_p = (bt_sched_order_t)i;
            return true;
        }
    }
    return false;
}
