/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_queue.h"

#include <string.h>

#include "common/base/status.h"

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

/* Tokens of the sequence to run now: all that are left, or as many as the
 * budget and its blocks allow down to a block boundary. 0 when not even one
 * block fits. */
static uint32_t chunk_tokens(const bt_sched_seq_t *seq, uint32_t budget,
                             uint32_t tokens_per_block)
{
    const uint32_t left = seq->n_tokens - seq->n_computed;
    uint32_t end = (left <= budget) ? seq->n_tokens : seq->n_computed + budget;

    if ((seq->kv_limit != 0) && (seq->kv_limit < end)) {
        end = seq->kv_limit;
    }
    if (end >= seq->n_tokens) {
        return left;
    }
    end -= end % tokens_per_block;
    return (end > seq->n_computed) ? end - seq->n_computed : 0;
}

uint32_t bt_sched_plan(const bt_list_t *running, uint32_t token_budget,
                       uint32_t tokens_per_block, uint32_t max_items,
                       bt_sched_item_t *items, uint32_t *n_context_p)
{
    uint32_t n_items = 0;
    uint32_t n_context = 0;
    uint32_t budget = token_budget;
    bool top_is_done = false;

    BT_ASSERT(token_budget >= tokens_per_block);

    /* Generation steps are never held back by chunks: the gap between two
     * tokens of a stream is what its client notices. */
    BT_LIST_FOR_EACH_ENTRY(bt_sched_seq_t, seq, running, turn.link) {
        const uint32_t left = seq->n_tokens - seq->n_computed;

        if ((left == 1 + seq->n_drafts) && (n_items < max_items) &&
            bt_sched_seq_may_run(seq)) {
            items[n_items++] = (bt_sched_item_t){seq, left, true};
            budget -= (budget > left) ? left : budget;
        }
    }

    /* With many generations the budget may be used up; one block per iteration
     * still goes to the context phase, or a full batch would starve it. */
    if (budget < tokens_per_block) {
        budget = tokens_per_block;
    }

    BT_LIST_FOR_EACH_ENTRY(bt_sched_seq_t, seq, running, turn.link) {
        const uint32_t left = seq->n_tokens - seq->n_computed;
        uint32_t n_new;

        if (top_is_done && (seq->turn.priority == 0)) {
            break; /* its first token would wait for this one's chunk */
        }
        if ((left <= 1 + seq->n_drafts) || (n_items == max_items) ||
            (budget == 0) || !bt_sched_seq_may_run(seq)) {
            continue;
        }
        n_new = chunk_tokens(seq, budget, tokens_per_block);
        if (n_new == 0) {
            break; /* in order: a later, shorter one must not overtake for
                      ever */
        }
        top_is_done |=
            (n_new == left) && (seq->turn.priority >= BT_SCHED_TOP_LEVEL);
        items[n_items++] = (bt_sched_item_t){seq, n_new, n_new == left};
        n_context += n_new;
        budget -= n_new;
    }

    *n_context_p = n_context;
    return n_items;
}

/* For sequences with chunks to compute: whether one is in the plan. */
static bool is_among(const bt_sched_item_t *items, uint32_t n_items,
                     const bt_sched_seq_t *seq)
{
    for (uint32_t i = 0; i < n_items; i++) {
        if (items[i].seq == seq) {
            return true;
        }
    }
    return false;
}

bool bt_sched_plan_preempting(const bt_list_t *running,
                              const bt_sched_item_t *under_way,
                              uint32_t n_under_way, uint32_t token_budget,
                              uint32_t tokens_per_block,
                              bt_sched_item_t *item_p)
{
    for (uint32_t i = 0; i < n_under_way; i++) {
        if (!bt_sched_seq_has_chunks(under_way[i].seq)) {
            return false;
        }
    }
    BT_LIST_FOR_EACH_ENTRY(bt_sched_seq_t, seq, running, turn.link) {
        const uint32_t left = seq->n_tokens - seq->n_computed;
        uint32_t n_new;

        if (is_among(under_way, n_under_way, seq)) {
            return false;
        }
        if (!bt_sched_seq_has_chunks(seq) || !bt_sched_seq_may_run(seq)) {
            continue;
        }
        n_new = chunk_tokens(seq, token_budget, tokens_per_block);
        if (n_new > 0) {
            *item_p = (bt_sched_item_t){seq, n_new, n_new == left};
        }
        return n_new > 0;
    }
    return false;
}

uint32_t bt_sched_limit_rows(bt_sched_item_t *items, uint32_t n_items,
                             uint32_t max_rows, uint32_t *n_context_p)
{
    uint32_t n_left = max_rows;
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_items; i++) {
        bt_sched_item_t item = items[i];
        const bt_sched_seq_t *seq = item.seq;
        const uint32_t n_drawn_from = item.last_chunk ? 1 + seq->n_drafts : 0;
        const uint32_t from = (seq->rows_from > seq->n_computed)
                                  ? seq->rows_from
                                  : seq->n_computed;
        uint32_t end = seq->n_computed + item.n_new - n_drawn_from;

        end = (seq->rows_end < end) ? seq->rows_end : end;
        if ((end > from) && (end - from > n_left)) {
            const uint32_t n_new = from + n_left - seq->n_computed;

            *n_context_p -= item.n_new - n_new;
            item = (bt_sched_item_t){item.seq, n_new, false};
            end = from + n_left;
        }
        n_left -= (end > from) ? end - from : 0;
        if (item.n_new > 0) {
            items[n++] = item;
        }
    }
    return n;
}
