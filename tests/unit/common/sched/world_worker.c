/* SPDX-License-Identifier: Apache-2.0 */
/* A worker: as worker/preempt.c, worker/preempt.c and an engine do it. */
#include <string.h>

#include "tests/support/testsupport.h"
#include "tests/unit/common/sched/world.h"

#define STEP_US     20000u
#define TOKEN_US    4000u
#define SEQ_US      1500u
#define PATIENCE_US 500000u

static w_leg_t *leg_of(bt_sched_claim_t *claim)
{
    return BT_CONTAINER_OF(claim, w_leg_t, claim);
}

static w_leg_t *leg_of_seq(bt_sched_seq_t *seq)
{
    return BT_CONTAINER_OF(seq, w_leg_t, seq);
}

void w_node_open(w_node_t *node)
{
    bt_sched_worker_t *sched = &node->sched;

    node->alive = true;
    node->steps = false;
    node->n_inside = node->n_items = 0;
    node->stuck_since_us = 0;
    node->rate = 100;
    sched->health = BT_SCHED_UP;
    sched->max_seats = 4 + w_below(W_SEATS - 3);
    sched->n_blocks = 2 * W_LONGEST + w_below(W_BLOCKS - 2 * W_LONGEST + 1);
    bt_list_init(&node->running);
    bt_sched_admit_init(&node->admit, sched->n_blocks, sched->max_seats,
                        20 + w_below(60));
    bt_sched_preempt_init(&node->pause, w.pauses, W_T, W_T);
    bt_sched_cost_init(&node->cost);
    bt_sched_chunk_init(&node->chunk, w_below(4) == 0, W_T * (1 + w_below(8)),
                        W_T, 1000 * (50 + w_below(300)));
    assert_int_equal(bt_kv_pool_create(sched->n_blocks, &node->pool), BT_OK);
    w_roles(node, sched->roles);
}

void w_node_close(w_node_t *node)
{
    for (uint32_t i = 0; i < W_LEGS; i++) {
        if ((w.legs[i].phase != W_NONE) && (w.legs[i].node == node)) {
            w_leg_free(&w.legs[i]);
        }
    }
    assert_int_equal(bt_kv_pool_n_free(node->pool), node->sched.n_blocks);
    bt_kv_pool_destroy(node->pool);
    node->pool = NULL;
    node->steps = false;
    node->n_items = 0;
}

/* ---- what a leg holds ---- */

static void give_back(w_leg_t *leg)
{
    for (uint32_t i = 0; i < leg->grower.n_held; i++) {
        bt_kv_pool_unref(leg->node->pool, leg->ids[i]);
    }
    leg->grower.n_held = leg->n_prefix = 0;
}

static void to_engine(w_leg_t *leg)
{
    leg->phase = W_RUNS;
    leg->node->n_inside++;
    bt_sched_queue_insert(&leg->node->running, &leg->seq.turn);
    if (leg->node->pause.is_on && (leg->claim.want != BT_SCHED_CONTEXT)) {
        bt_sched_preempt_in(&leg->node->pause, &leg->grower, false);
    }
}

static void from_engine(w_leg_t *leg)
{
    bt_list_remove(&leg->seq.turn.link);
    bt_sched_preempt_out(&leg->node->pause, &leg->grower);
    leg->node->n_inside--;
}

static bool holds_share(const w_leg_t *leg)
{
    return (leg->claim.want == BT_SCHED_CONTEXT) && !leg->granted &&
           ((leg->phase == W_RUNS) || (leg->phase == W_WAITING));
}

void w_leg_free(w_leg_t *leg)
{
    if ((leg->phase == W_RUNS) || (leg->phase == W_LEAVES) ||
        (leg->phase == W_STOPS)) {
        from_engine(leg);
    }
    if (holds_share(leg)) {
        bt_sched_admit_free_waiting(&leg->node->admit, &leg->claim);
    }
    if (leg->claim.is_leased) {
        bt_sched_admit_free_lease(&leg->node->admit, &leg->claim);
    }
    bt_list_remove(&leg->claim.turn.link);
    give_back(leg);
    leg->phase = W_NONE;
    leg->node = NULL;
    leg->req = NULL;
}

void w_leg_leave(w_leg_t *leg)
{
    leg->req = NULL;
    switch (leg->phase) {
    case W_RUNS:
    case W_LEAVES:
        if (leg->node->steps) { /* until its end */
            if (holds_share(leg)) {
                bt_sched_admit_free_waiting(&leg->node->admit, &leg->claim);
            }
            if (!bt_list_empty(&leg->grower.turn.link)) {
                bt_sched_preempt_out(&leg->node->pause, &leg->grower);
                bt_sched_preempt_in(&leg->node->pause, &leg->grower, true);
            }
            leg->phase = W_STOPS;
            return;
        }
        break;
    case W_LEASED:
    case W_SENDING:
        if (leg->claim.is_leased) {
            bt_sched_admit_free_lease(&leg->node->admit, &leg->claim);
        }
        leg->phase = W_QUARANTINE;
        return;
    default:
        break;
    }
    w_leg_free(leg);
}

/* ---- it comes ---- */

static uint64_t slack_of(const w_leg_t *leg)
{
    const w_node_t *node = leg->node;
    const bt_sched_work_t work = {
        .since_us = leg->seq.turn.since_us,
        .deadline_us = leg->seq.deadline_us,
        .whole_us = leg->whole_us,
        .left_us = bt_sched_cost_prompt_us(&node->cost, leg->seq.n_computed,
                                           leg->seq.n_tokens,
                                           node->chunk.alone.tokens),
    };

    return bt_sched_slack_us(w.order, &work);
}

static void wait_for_turn(w_leg_t *leg)
{
    bt_sched_admit_t *a = &leg->node->admit;
    bt_list_t *queue = &a->leases;

    if (leg->claim.want == BT_SCHED_CONTEXT) {
        queue = leg->granted ? &a->granted : &a->ungranted;
        leg->claim.n_blocks = leg->grower.n_most;
    } else {
        leg->claim.n_blocks =
            bt_sched_preempt_begins_with(&leg->node->pause, &leg->grower);
    }
    leg->phase = W_QUEUED;
    bt_sched_queue_insert(queue, &leg->claim.turn);
}

void w_leg_queue(w_leg_t *leg)
{
    leg->whole_us = bt_sched_cost_prompt_us(
        &leg->node->cost, 0, leg->seq.n_tokens, leg->node->chunk.alone.tokens);
    if (leg->claim.want != BT_SCHED_LEASE) {
        leg->claim.turn.slack_us = leg->seq.turn.slack_us = slack_of(leg);
    }
    wait_for_turn(leg);
}

void w_leg_grant(w_leg_t *leg)
{
    assert_false(leg->granted);
    if (holds_share(leg)) {
        bt_sched_admit_free_waiting(&leg->node->admit, &leg->claim);
    }
    leg->granted = true;
    if (leg->phase == W_WAITING) {
        bt_list_remove(&leg->claim.turn.link);
        leg->phase = W_SENDING;
    } else if (leg->phase != W_RUNS) {
        assert_true((leg->phase == W_QUEUED) || (leg->phase == W_DROPPED));
        bt_list_remove(&leg->claim.turn.link);
        wait_for_turn(leg);
    }
}

void w_leg_join(w_leg_t *leg)
{
    assert_int_equal(leg->phase, W_LEASED);
    bt_sched_admit_free_lease(&leg->node->admit, &leg->claim);
    leg->seq.n_tokens = leg->req->n_prompt + leg->req->n_out;
    leg->seq.n_computed = leg->seq.n_tokens - 1;
    leg->grower.n_known = leg->seq.n_tokens;
    to_engine(leg);
}

/* ---- who begins ---- */

/* One of the same tenant that holds the computed beginning. */
static const w_leg_t *who_has_prefix(const w_leg_t *leg)
{
    for (uint32_t i = 0; leg->has_prefix && (i < W_LEGS); i++) {
        const w_leg_t *other = &w.legs[i];

        if ((other->phase != W_NONE) && (other != leg) &&
            (other->node == leg->node) && (other->tenant == leg->tenant) &&
            other->has_prefix && (other->grower.n_held >= W_PREFIX) &&
            (other->seq.n_computed >= W_PREFIX * W_T)) {
            return other;
        }
    }
    return NULL;
}

static void take_blocks(w_leg_t *leg, const w_leg_t *other)
{
    const uint32_t n_prefix = (other != NULL) ? W_PREFIX : 0;

    for (uint32_t i = 0; i < n_prefix; i++) {
        leg->ids[i] = other->ids[i];
        bt_kv_pool_ref(leg->node->pool, leg->ids[i]);
    }
    assert_int_equal(bt_kv_pool_acquire(leg->node->pool,
                                        leg->claim.n_blocks - n_prefix,
                                        leg->ids + n_prefix),
                     BT_OK);
    leg->grower.n_held = leg->claim.n_blocks;
    leg->n_prefix = n_prefix;
    leg->seq.n_computed = n_prefix * W_T;
    w.n_shared += n_prefix > 0;
}

static void begin(w_leg_t *leg, const w_leg_t *other)
{
    bt_list_remove(&leg->claim.turn.link);
    take_blocks(leg, other);
    w.n_resumes += leg->is_paused;
    leg->is_paused = false;
    if (leg->claim.want == BT_SCHED_LEASE) {
        leg->phase = W_LEASED;
        leg->req->grant_away = true;
        bt_sched_admit_hold_lease(&leg->node->admit, &leg->claim);
        return;
    }
    to_engine(leg);
    if (holds_share(leg)) {
        bt_sched_admit_hold_waiting(&leg->node->admit, &leg->claim);
        assert_true((leg->node->admit.waiting_blocks <=
                     leg->node->admit.waiting_share) ||
                    (leg->node->admit.waiting_blocks == leg->claim.n_blocks));
    }
}

static bool drop(w_node_t *node)
{
    bt_sched_claim_t *claim = bt_sched_admit_victim(&node->admit);

    if (claim == NULL) {
        return false;
    }
    assert_int_equal(leg_of(claim)->phase, W_WAITING);
    bt_sched_admit_free_waiting(&node->admit, claim);
    bt_list_remove(&claim->turn.link);
    give_back(leg_of(claim));
    leg_of(claim)->phase = W_DROPPED;
    leg_of(claim)->seq.n_computed = 0;
    w.n_drops++;
    return true;
}

static bool try_to_begin(w_node_t *node, bt_sched_claim_t *claim)
{
    w_leg_t *leg = leg_of(claim);
    const w_leg_t *other = who_has_prefix(leg);
    const uint32_t n_free = bt_kv_pool_n_free(node->pool);
    const uint32_t n_spare = (claim->want == BT_SCHED_CONTEXT)
                                 ? 0
                                 : bt_sched_preempt_spare(&node->pause);

    for (bt_list_t *pos = claim->turn.link.next;
         (pos != &node->admit.granted) && (pos != &node->admit.ungranted) &&
         (pos != &node->admit.leases);
         pos = pos->next) {
        bt_sched_turn_t *turn = bt_sched_turn_of(pos);
        const w_leg_t *left = leg_of(bt_sched_claim_of(turn));
        const bool is_free =
            (left->claim.want == BT_SCHED_LEASE) || (left->grower.n_pauses > 0);

        w_check_passed(&claim->turn, turn,
                       is_free ? 0
                               : w_slack_most(w.order, left->whole_us,
                                              turn->since_us,
                                              left->seq.deadline_us));
    }
    switch (bt_sched_admit_judge(
        &node->admit, claim, claim->n_blocks - ((other != NULL) ? W_PREFIX : 0),
        (n_free > n_spare) ? n_free - n_spare : 0)) {
    case BT_SCHED_BEGIN:
        begin(leg, other);
        return true;
    case BT_SCHED_DROP:
        return drop(node);
    case BT_SCHED_WAIT:
        break;
    }
    return false;
}

/* ---- pauses ---- */

static void park(w_leg_t *leg)
{
    from_engine(leg);
    give_back(leg);
    leg->is_paused = true;
    leg->grower.leaves = false;
    leg->grower.n_pauses++;
    leg->seq.n_computed = 0;
    leg->claim.turn.slack_us = leg->seq.turn.slack_us = 0;
    leg->claim.want = BT_SCHED_BOTH_PHASES;
    wait_for_turn(leg);
}

static void pause_one(w_leg_t *leg)
{
    w.n_pauses++;
    assert_int_equal(leg->phase, W_RUNS);
    assert_ptr_not_equal(&leg->grower.turn,
                         bt_sched_queue_first(&leg->node->pause.running));
    if (!leg->node->steps) {
        park(leg);
        return;
    }
    leg->phase = W_LEAVES;
    bt_sched_preempt_out(&leg->node->pause, &leg->grower);
    bt_sched_preempt_in(&leg->node->pause, &leg->grower, true);
}

static void grow(w_leg_t *leg, uint32_t n)
{
    assert_true(leg->grower.n_held + n <= leg->grower.n_most);
    assert_int_equal(
        bt_kv_pool_acquire(leg->node->pool, n, leg->ids + leg->grower.n_held),
        BT_OK);
    leg->grower.n_held += n;
}

static bool serve(w_node_t *node)
{
    bt_sched_kv_demand_t *who = NULL;
    uint32_t n = 0;

    for (;;) {
        switch (bt_sched_preempt_next(
            &node->pause, bt_kv_pool_n_free(node->pool), &who, &n)) {
        case BT_SCHED_ENOUGH:
            return true;
        case BT_SCHED_GROW:
            grow(BT_CONTAINER_OF(who, w_leg_t, grower), n);
            break;
        case BT_SCHED_PAUSE:
            if (!drop(node)) {
                pause_one(BT_CONTAINER_OF(who, w_leg_t, grower));
            }
            break;
        case BT_SCHED_AWAIT:
            return false;
        case BT_SCHED_SHORT:
            if (!drop(node)) {
                return false;
            }
            break;
        }
    }
}

/* The lease that came last is taken back: its request runs again. */
static void take_back(w_node_t *node)
{
    w_leg_t *last = NULL;

    for (uint32_t i = 0; i < W_LEGS; i++) {
        w_leg_t *leg = &w.legs[i];

        if ((leg->phase == W_LEASED) && (leg->node == node) &&
            ((last == NULL) ||
             bt_sched_turn_before(&last->claim.turn, &leg->claim.turn))) {
            last = leg;
        }
    }
    if (last != NULL) {
        w.n_taken_back++;
        w_rerun(last->req);
    }
}

static void unstick(w_node_t *node)
{
    if (!bt_sched_admit_is_stuck(&node->admit) &&
        !bt_sched_preempt_is_stuck(&node->pause)) {
        node->stuck_since_us = 0;
    } else if (node->stuck_since_us == 0) {
        node->stuck_since_us = w.now_us;
    } else if (w.now_us - node->stuck_since_us >=
               PATIENCE_US * (1 + node->sched.id)) {
        node->stuck_since_us = w.now_us;
        take_back(node);
    }
}

/* ---- steps ---- */

static void begin_step(w_node_t *node)
{
    bt_sched_step_t step = {0};
    uint32_t position = 0;
    uint32_t n_context = 0;
    uint32_t budget;

    for (bt_list_t *pos = node->running.prev; pos != &node->running;
         pos = pos->prev) {
        w_leg_t *leg = leg_of_seq(
            BT_CONTAINER_OF(bt_sched_turn_of(pos), bt_sched_seq_t, turn));

        leg->seq.kv_limit = (node->pause.is_on && leg->grower.n_held > 0)
                                ? leg->grower.n_held * W_T
                                : 0;
        if (leg->seq.n_tokens - leg->seq.n_computed == 1) {
            step.n_seqs++;
            step.reads += leg->seq.n_tokens;
        } else {
            position = leg->seq.n_computed;
        }
    }
    budget = step.n_seqs +
             bt_sched_chunk_tokens(&node->chunk, &node->cost, &step, position);
    node->n_items = bt_sched_plan(&node->running, budget, W_T, W_SEATS,
                                  node->items, &n_context);
    w_check_plan(node, budget, n_context);
    if (node->n_items == 0) {
        return;
    }
    step.n_tokens = n_context;
    step.pairs = (uint64_t)n_context * n_context / 2;
    node->step = step;
    node->steps = true;
    node->step_from_us = w.now_us;
    node->step_until_us = w.now_us + (uint64_t)(STEP_US + n_context * TOKEN_US +
                                                step.n_seqs * SEQ_US) *
                                         node->rate / 100;
    w.n_steps++;
}

static void draw(w_leg_t *leg)
{
    w_req_t *req = leg->req;

    if ((leg->claim.want != BT_SCHED_CONTEXT) || !leg->has_token) {
        req->n_out++; /* not twice, where its KV was dropped */
    }
    leg->has_token = true;
    leg->node->sched.prefill_tokens -= leg->prefill_tokens;
    leg->prefill_tokens = 0;
    if (req->n_out == req->n_answer) {
        w_finish(req);
        return;
    }
    if (leg->claim.want != BT_SCHED_CONTEXT) {
        leg->seq.n_tokens++;
        leg->grower.n_known = leg->seq.n_tokens;
        return;
    }
    from_engine(leg);
    leg->phase = leg->granted ? W_SENDING : W_WAITING;
    if (!leg->granted) {
        leg->claim.turn.slack_us = 0;
        bt_sched_queue_insert(&leg->node->admit.waiting, &leg->claim.turn);
    }
}

/* K and V of an item are there. */
static void advance(w_node_t *node, const bt_sched_item_t *item)
{
    w_leg_t *leg = leg_of_seq(item->seq);

    leg->seq.n_computed += item->n_new;
    assert_true(leg->seq.n_computed <= leg->seq.n_tokens);
    if (leg->phase == W_STOPS) {
        return;
    }
    if (item->last_chunk) {
        draw(leg);
    } else if (leg->grower.n_pauses == 0) {
        bt_sched_queue_set_slack(&node->running, &leg->seq.turn, slack_of(leg));
    }
}

/* Between two layers of the step under way, which takes so much longer. */
static void compute_inside(w_node_t *node)
{
    bt_sched_item_t item;
    uint64_t us;

    if (!bt_sched_plan_preempting(&node->running, node->items, node->n_items,
                                  node->chunk.alone.tokens, W_T, &item) ||
        (leg_of_seq(item.seq)->phase != W_RUNS)) {
        return;
    }
    w_check_inside(node, &item);
    us = (STEP_US + (uint64_t)item.n_new * TOKEN_US) * node->rate / 100;
    node->step_from_us += us;
    node->step_until_us += us;
    w.n_inside++;
    advance(node, &item);
}

void w_node_end_step(w_node_t *node)
{
    bt_sched_cost_learn(&node->cost, &node->step,
                        (w.now_us - node->step_from_us) * 1000);
    node->steps = false;
    for (uint32_t i = 0; i < node->n_items; i++) {
        advance(node, &node->items[i]);
    }
    for (uint32_t i = 0; i < W_LEGS; i++) {
        w_leg_t *leg = &w.legs[i];

        if ((leg->node == node) && (leg->phase == W_STOPS)) {
            w_leg_free(leg);
        } else if ((leg->node == node) && (leg->phase == W_LEAVES)) {
            park(leg);
        }
    }
}

void w_node_tick(w_node_t *node)
{
    bt_sched_claim_t *claim = NULL;
    uint32_t taken;

    do {
        if (!serve(node)) {
            break;
        }
        taken = node->n_inside + node->admit.leased_seats;
        assert_true(taken <= node->sched.max_seats);
        claim =
            bt_sched_admit_next(&node->admit, node->sched.max_seats - taken);
    } while ((claim != NULL) && try_to_begin(node, claim));
    unstick(node);
    if (node->steps) {
        compute_inside(node);
    } else {
        begin_step(node);
    }
}

void w_node_lend(w_node_t *node, uint32_t rate)
{
    w.n_lent++;
    if (node->steps && (node->step_until_us > w.now_us)) {
        node->step_until_us =
            w.now_us + (node->step_until_us - w.now_us) * rate / node->rate;
    }
    node->rate = rate;
}
