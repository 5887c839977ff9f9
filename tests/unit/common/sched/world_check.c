/* SPDX-License-Identifier: Apache-2.0 */
/* What must be true after every event. */
#include <string.h>

#include "tests/support/testsupport.h"
#include "tests/unit/common/sched/world.h"

/* ---- order ---- */

static uint64_t levels_of(const bt_sched_turn_t *turn)
{
    return (turn->priority < 24) ? turn->priority : 24;
}

/* By the words of sched_queue.h: five seconds for a level, 24 at most. Of no
 * higher rank, and later by more than the other one's slack: never. */
void w_check_passed(const bt_sched_turn_t *chosen, const bt_sched_turn_t *left,
                    uint64_t slack_us)
{
    const uint64_t a = levels_of(chosen);
    const uint64_t b = levels_of(left);
    const uint64_t ahead_us = (a > b) ? (a - b) * 5000000u : 0;

    assert_true(chosen->since_us <= left->since_us + slack_us + ahead_us);
    w.n_passed_over += chosen->since_us > left->since_us;
}

static bool is_planned(const w_node_t *node, const bt_sched_seq_t *seq)
{
    for (uint32_t i = 0; i < node->n_items; i++) {
        if (node->items[i].seq == seq) {
            return true;
        }
    }
    return false;
}

void w_check_inside(const w_node_t *node, const bt_sched_item_t *item)
{
    const uint32_t left = item->seq->n_tokens - item->seq->n_computed;

    assert_true(left > 1);
    assert_in_range(item->n_new, 1, left);
    assert_int_equal(item->last_chunk, item->n_new == left);
    assert_true(item->n_new <= node->chunk.max_tokens);
    assert_true(bt_sched_seq_may_run(item->seq));
    assert_false(is_planned(node, item->seq));
    for (uint32_t i = 0; i < node->n_items; i++) {
        const bt_sched_seq_t *seq = node->items[i].seq;

        assert_true(seq->n_tokens - seq->n_computed > 1);
        assert_true(bt_sched_turn_before(&item->seq->turn, &seq->turn));
    }
}

void w_check_plan(const w_node_t *node, uint32_t budget, uint32_t n_context)
{
    uint32_t n_steps = 0;
    uint32_t sum = 0;

    for (uint32_t i = 0; i < node->n_items; i++) {
        const bt_sched_seq_t *seq = node->items[i].seq;
        const uint32_t left = seq->n_tokens - seq->n_computed;

        assert_in_range(node->items[i].n_new, 1, left);
        n_steps += left == 1;
        sum += (left > 1) ? node->items[i].n_new : 0;
    }
    assert_int_equal(sum, n_context);
    assert_true(node->n_items <= node->sched.max_seats);
    assert_true(n_context <=
                ((budget >= n_steps + W_T) ? budget - n_steps : W_T));
    for (bt_list_t *pos = node->running.next; pos != &node->running;
         pos = pos->next) {
        bt_sched_seq_t *seq =
            BT_CONTAINER_OF(bt_sched_turn_of(pos), bt_sched_seq_t, turn);
        const w_leg_t *leg = BT_CONTAINER_OF(seq, w_leg_t, seq);

        if (is_planned(node, seq)) {
            continue;
        }
        if (!bt_sched_seq_may_run(seq)) {
            w.n_sat_out++;
            continue;
        }
        /* It waits though it could run: others have the budget, rightly. */
        assert_true(n_context > 0);
        assert_true(seq->n_tokens - seq->n_computed > 1);
        for (uint32_t i = n_steps; i < node->n_items; i++) {
            w_check_passed(&node->items[i].seq->turn, &seq->turn,
                           (leg->grower.n_pauses > 0)
                               ? 0
                               : w_slack_most(w.order, leg->whole_us,
                                              seq->turn.since_us,
                                              seq->deadline_us));
        }
    }
}

/* ---- shares ---- */

void w_shares_restart(void)
{
    w.n_marks = 0;
}

static void check_window(const w_mark_t *from, const w_mark_t *to)
{
    const double all = (double)(to->all - from->all);
    uint64_t weights = 0;
    double among = 0;

    for (uint32_t i = 0; i < W_TENANTS; i++) {
        if ((w.tenants[i].n_queued > 0) && !w.tenants[i].is_limited) {
            weights += w.tenants[i].flow.weight;
            among += (double)(int64_t)(to->had[i] - from->had[i]);
        }
    }
    for (uint32_t i = 0; i < W_TENANTS; i++) {
        const w_tenant_t *tenant = &w.tenants[i];
        const double had = (double)(int64_t)(to->had[i] - from->had[i]);
        const double share =
            (double)tenant->flow.weight / (double)(weights ? weights : 1);

        if ((tenant->n_queued > 0) && !tenant->is_limited) {
            assert_true((had - share * among < 0.05 * all) &&
                        (share * among - had < 0.05 * all));
        }
    }
    w.n_windows++;
}

void w_shares_mark(void)
{
    w_mark_t mark = {0};

    for (uint32_t i = 0; i < W_TENANTS; i++) {
        mark.had[i] = w.tenants[i].had;
        mark.all += w.tenants[i].had;
    }
    if (w.n_marks == 0) {
        w.marks[w.n_marks++] = mark;
        return;
    }
    if ((int64_t)(mark.all - w.marks[w.n_marks - 1].all) <
        (int64_t)W_MARK_EACH) {
        return;
    }
    if (w.n_marks == W_MARKS) {
        memmove(w.marks, w.marks + 1, (W_MARKS - 1) * sizeof(w.marks[0]));
        w.n_marks--;
    }
    w.marks[w.n_marks++] = mark;
    for (uint32_t i = w.n_marks; i > 0; i--) {
        if (mark.all - w.marks[i - 1].all >= W_WINDOW) {
            check_window(&w.marks[i - 1], &mark);
            break;
        }
    }
}

/* ---- blocks, seats ---- */

static void check_node(const w_node_t *node)
{
    uint32_t owners[W_BLOCKS] = {0};
    uint32_t sharers[W_BLOCKS] = {0};
    uint32_t n_inside = 0, n_leased = 0, n_waiting = 0, n_held = 0, n_owned = 0;
    uint32_t leased_seats = 0;

    for (uint32_t i = 0; i < W_LEGS; i++) {
        const w_leg_t *leg = &w.legs[i];

        if ((leg->phase == W_NONE) || (leg->node != node)) {
            continue;
        }
        for (uint32_t k = 0; k < leg->grower.n_held; k++) {
            owners[leg->ids[k]]++;
            sharers[leg->ids[k]] += (k < W_PREFIX) && leg->has_prefix;
        }
        n_inside += (leg->phase == W_RUNS) || (leg->phase == W_LEAVES) ||
                    (leg->phase == W_STOPS);
        leased_seats += leg->phase == W_LEASED;
        n_leased += (leg->phase == W_LEASED) ? leg->claim.n_blocks : 0;
        n_waiting += ((leg->claim.want == BT_SCHED_CONTEXT) && !leg->granted &&
                      ((leg->phase == W_RUNS) || (leg->phase == W_WAITING)))
                         ? leg->grower.n_held
                         : 0;
        n_held += leg->grower.n_held;
        assert_true((leg->phase != W_QUEUED) || (leg->grower.n_held == 0));
        assert_true((leg->phase != W_DROPPED) || (leg->grower.n_held == 0));
    }
    for (uint32_t i = 0; i < node->sched.n_blocks; i++) {
        /* Two only of a beginning that all of them have. */
        assert_true((owners[i] <= 1) || (owners[i] == sharers[i]));
        n_owned += owners[i] > 0;
    }
    assert_int_equal(n_owned + bt_kv_pool_n_free(node->pool),
                     node->sched.n_blocks);
    assert_true(n_held >= n_owned);
    assert_int_equal(n_inside, node->n_inside);
    assert_int_equal(leased_seats, node->admit.leased_seats);
    assert_int_equal(n_leased, node->admit.leased_blocks);
    assert_int_equal(n_waiting, node->admit.waiting_blocks);
    assert_true(n_inside + leased_seats <= node->sched.max_seats);
    /* Nobody holds anything, so whoever is first begins. */
    assert_true((n_owned + n_inside > 0) ||
                (bt_list_empty(&node->admit.granted) &&
                 bt_list_empty(&node->admit.ungranted) &&
                 bt_list_empty(&node->admit.leases)));
}

/* ---- somebody gets on ---- */

static void check_progress(void)
{
    uint32_t roles = 0;
    bool goes_on = w.n_live == 0;

    for (uint32_t i = 0; i < w.n_nodes; i++) {
        const w_node_t *node = &w.nodes[i];

        if (node->alive) {
            roles |=
                (node->sched.health == BT_SCHED_UP) ? node->sched.roles : 0;
            goes_on = goes_on || node->steps || (node->stuck_since_us != 0);
        }
    }
    for (uint32_t i = 0; !goes_on && (i < W_LEGS); i++) {
        const w_leg_t *leg = &w.legs[i];

        goes_on = (leg->phase == W_AWAY) || (leg->phase == W_SENDING) ||
                  (leg->phase == W_QUARANTINE) ||
                  ((leg->phase == W_LEASED) && leg->req->grant_away);
    }
    if (((roles & BT_SCHED_PREFILL) != 0) && ((roles & BT_SCHED_DECODE) != 0)) {
        assert_true(goes_on);
    }
}

void w_check(void)
{
    for (uint32_t i = 0; i < w.n_nodes; i++) {
        if (w.nodes[i].alive) {
            check_node(&w.nodes[i]);
        }
    }
    check_progress();
    assert_int_equal(w.n_came, w.n_over + w.n_live);
}

void w_check_empty(void)
{
    assert_int_equal(w.n_live, 0);
    assert_int_equal(w.n_came, w.n_over);
    assert_true(bt_list_empty(&w.fair.backlog));
    for (uint32_t i = 0; i < W_LEGS; i++) {
        assert_int_equal(w.legs[i].phase, W_NONE);
    }
    for (uint32_t i = 0; i < w.n_nodes; i++) {
        const w_node_t *node = &w.nodes[i];

        assert_int_equal(bt_kv_pool_n_free(node->pool), node->sched.n_blocks);
        assert_int_equal(node->n_inside, 0);
        assert_int_equal(node->sched.seats, 0);
        assert_int_equal(node->sched.blocks, 0);
        assert_int_equal(node->sched.prefill_tokens, 0);
    }
}
