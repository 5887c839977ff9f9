/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_preempt.h"

#include <string.h>

#include "common/base/status.h"

void bt_sched_preempt_init(bt_sched_preempt_t *pause, bool is_on,
                           uint32_t tokens_per_block, uint32_t ahead_tokens)
{
    memset(pause, 0, sizeof(*pause));
    pause->is_on = is_on;
    pause->tokens_per_block = tokens_per_block;
    pause->ahead_tokens = ahead_tokens;
    bt_list_init(&pause->running);
}

/* Spans for the known tokens and some ahead. */
static uint32_t spans_with(const bt_sched_preempt_t *pause,
                           const bt_sched_kv_demand_t *grower, uint64_t ahead)
{
    const uint64_t n_tokens = grower->n_known + ahead;
    const uint64_t n =
        (n_tokens + pause->tokens_per_block - 1) / pause->tokens_per_block;

    return (n < grower->n_most) ? (uint32_t)n : grower->n_most;
}

uint32_t bt_sched_preempt_begins_with(const bt_sched_preempt_t *pause,
                                      const bt_sched_kv_demand_t *grower)
{
    const uint32_t n = (grower->n_pauses < 20) ? grower->n_pauses : 20;

    if (!pause->is_on) {
        return grower->n_most;
    }
    return spans_with(pause, grower, (uint64_t)pause->ahead_tokens << n);
}

void bt_sched_preempt_in(bt_sched_preempt_t *pause,
                         bt_sched_kv_demand_t *grower, bool leaves)
{
    grower->leaves = leaves;
    bt_sched_queue_insert(&pause->running, &grower->turn);
    pause->n_running++;
}

void bt_sched_preempt_out(bt_sched_preempt_t *pause,
                          bt_sched_kv_demand_t *grower)
{
    if (bt_list_empty(&grower->turn.link)) {
        return;
    }
    bt_list_remove(&grower->turn.link);
    pause->n_running--;
    pause->lacks = pause->lacks && (pause->n_running > 0);
}

static bt_sched_kv_demand_t *grower_at(bt_list_t *link)
{
    return bt_sched_kv_demand_of(bt_sched_turn_of(link));
}

static uint32_t lack_of(const bt_sched_preempt_t *pause,
                        const bt_sched_kv_demand_t *grower)
{
    const uint32_t want = spans_with(pause, grower, pause->ahead_tokens);

    return (!grower->leaves && (want > grower->n_held)) ? want - grower->n_held
                                                        : 0;
}

/* The first that lacks blocks, or NULL. */
static bt_sched_kv_demand_t *first_that_lacks(const bt_sched_preempt_t *pause)
{
    for (bt_list_t *pos = pause->running.next; pos != &pause->running;
         pos = pos->next) {
        if (lack_of(pause, grower_at(pos)) > 0) {
            return grower_at(pos);
        }
    }
    return NULL;
}

static bool somebody_leaves(const bt_sched_preempt_t *pause)
{
    for (bt_list_t *pos = pause->running.next; pos != &pause->running;
         pos = pos->next) {
        if (grower_at(pos)->leaves) {
            return true;
        }
    }
    return false;
}

/* The last sequence behind this one that is not leaving, or NULL. */
static bt_sched_kv_demand_t *victim_for(const bt_sched_preempt_t *pause,
                                        const bt_sched_kv_demand_t *grower)
{
    bt_list_t *pos = pause->running.prev;

    while ((pos != &grower->turn.link) && grower_at(pos)->leaves) {
        pos = pos->prev;
    }
    return (pos == &grower->turn.link) ? NULL : grower_at(pos);
}

bt_sched_preempt_step_t bt_sched_preempt_next(bt_sched_preempt_t *pause,
                                              uint32_t free_spans,
                                              bt_sched_kv_demand_t **who_p,
                                              uint32_t *n_spans_p)
{
    bt_sched_kv_demand_t *grower = first_that_lacks(pause);
    bt_sched_kv_demand_t *victim;

    pause->lacks = grower != NULL;
    if (grower == NULL) {
        return BT_SCHED_ENOUGH;
    }
    if (lack_of(pause, grower) <= free_spans) {
        *who_p = grower;
        *n_spans_p = lack_of(pause, grower);
        return BT_SCHED_GROW;
    }
    /* One at a time: how much is released is known when it has left. */
    if (somebody_leaves(pause)) {
        return BT_SCHED_AWAIT;
    }
    victim = victim_for(pause, grower);
    if (victim == NULL) {
        return BT_SCHED_SHORT;
    }
    *who_p = victim;
    return BT_SCHED_PAUSE;
}

bool bt_sched_preempt_is_stuck(const bt_sched_preempt_t *pause)
{
    return pause->lacks && (pause->n_running == 1) && !somebody_leaves(pause);
}

uint32_t bt_sched_preempt_spare(const bt_sched_preempt_t *pause)
{
    return pause->n_running;
}
