/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants, the router and what is under way. */
#include "tests/unit/common/sched/world.h"

#include <string.h>

#include "tests/support/draw.h"
#include "tests/support/testsupport.h"

world_t w;

uint32_t w_below(uint32_t n)
{
    return (uint32_t)draw_below(&w.rng, n);
}

/* ---- legs, as the router counts them ---- */

static void count_leg(w_leg_t *leg, const w_req_t *req)
{
    bt_sched_worker_t *worker = &leg->node->sched;

    leg->counted_blocks = leg->grower.n_most;
    leg->prefill_tokens =
        (leg->claim.want == BT_SCHED_LEASE) ? 0 : req->n_prompt + req->n_out;
    worker->seats++;
    worker->blocks += leg->counted_blocks;
    worker->prefill_tokens += leg->prefill_tokens;
}

static void uncount_leg(w_leg_t *leg)
{
    bt_sched_worker_t *worker = &leg->node->sched;

    worker->seats--;
    worker->blocks -= leg->counted_blocks;
    worker->prefill_tokens -= leg->prefill_tokens;
    leg->prefill_tokens = leg->counted_blocks = 0;
}

static w_leg_t *leg_open(w_req_t *req, bt_sched_worker_t *worker,
                         bt_sched_want_t want)
{
    const uint32_t n_tokens = req->n_prompt + req->n_out;
    const uint32_t left = req->max_new - req->n_out;
    w_leg_t *leg = w.legs;

    while (leg->phase != W_NONE) {
        leg++;
        assert_true(leg < w.legs + W_LEGS);
    }
    memset(leg, 0, sizeof(*leg));
    leg->phase = W_AWAY;
    leg->req = req;
    leg->tenant = req->tenant;
    leg->node = BT_CONTAINER_OF(worker, w_node_t, sched);
    leg->claim.want = want;
    leg->granted = (want == BT_SCHED_CONTEXT) && (left == 1);
    leg->has_prefix = req->has_prefix && (want != BT_SCHED_LEASE);
    leg->grower.n_known = n_tokens;
    leg->grower.n_most = w_blocks_for(
        (want == BT_SCHED_CONTEXT) ? n_tokens : n_tokens + left - 1);
    bt_sched_turn_init(&leg->claim.turn, req->turn.priority,
                       req->turn.since_us);
    bt_sched_turn_init(&leg->grower.turn, req->turn.priority,
                       req->turn.since_us);
    bt_sched_turn_init(&leg->seq.turn, req->turn.priority, req->turn.since_us);
    leg->seq.n_tokens = n_tokens;
    leg->seq.deadline_us = req->deadline_us;
    count_leg(leg, req);
    return leg;
}

static void leave(w_leg_t **leg_p)
{
    if (*leg_p != NULL) {
        uncount_leg(*leg_p);
        w_leg_leave(*leg_p);
        *leg_p = NULL;
    }
}

static void leave_both(w_req_t *req)
{
    if ((req->context != NULL) || (req->decode != NULL)) {
        w.tenants[req->tenant].n_inside--;
    }
    leave(&req->context);
    leave(&req->decode);
    req->grant_away = false;
}

/* ---- requests ---- */

static void enqueue(w_req_t *req)
{
    w_tenant_t *tenant = &w.tenants[req->tenant];

    req->is_queued = true;
    bt_sched_queue_insert(&tenant->queue, &req->turn);
    if (tenant->n_queued++ == 0) {
        w_shares_restart();
        bt_sched_fair_wait(&w.fair, &tenant->flow);
    }
}

static void dequeue(w_req_t *req)
{
    w_tenant_t *tenant = &w.tenants[req->tenant];

    req->is_queued = false;
    bt_list_remove(&req->turn.link);
    if (--tenant->n_queued == 0) {
        w_shares_restart();
        bt_sched_fair_rest(&w.fair, &tenant->flow);
    }
}

uint64_t w_slack_most(bt_sched_order_t order, uint64_t whole_us,
                      uint64_t since_us, uint64_t deadline_us)
{
    const uint64_t most = (uint64_t)BT_SCHED_SLACK_MS * 1000;
    uint64_t slack = 0;

    if (order == BT_SCHED_SRPT) {
        slack = 4 * whole_us;
    } else if (order == BT_SCHED_DEADLINE) {
        slack = (deadline_us > since_us) ? deadline_us - since_us : 0;
    }
    return (slack < most) ? slack : most;
}

#define GUESS_US 5000u /* for a token, by the router */

void w_arrive(uint32_t tenant)
{
    w_req_t *req = w.reqs;
    bt_sched_work_t work;

    while ((req < w.reqs + W_REQS) && req->live) {
        req++;
    }
    if ((req == w.reqs + W_REQS) ||
        (w.tenants[tenant].n_queued >= W_REQS / W_TENANTS)) {
        return;
    }
    memset(req, 0, sizeof(*req));
    req->live = true;
    req->tenant = tenant;
    req->n_prompt = 1 + w_below((w_below(4) == 0) ? 80 : 30);
    req->has_prefix = (req->n_prompt > W_PREFIX * W_T) && (w_below(2) == 0);
    req->max_new = 1 + w_below((w_below(2) == 0) ? 45 : 12);
    req->n_answer =
        (w_below(2) == 0) ? req->max_new : 1 + w_below(req->max_new);
    if (tenant == 0) { /* one that asks for much more than it takes */
        req->max_new = 45;
        req->n_answer = 1 + w_below(3);
    }
    bt_sched_turn_init(&req->turn, (w_below(3) == 0) ? w_below(30) : 0,
                       w.now_us);
    req->deadline_us =
        (w_below(2) == 0) ? UINT64_MAX : w.now_us + 1000u * w_below(100000);
    work = (bt_sched_work_t){.since_us = w.now_us,
                             .deadline_us = req->deadline_us,
                             .whole_us = req->n_prompt * GUESS_US,
                             .left_us = req->n_prompt * GUESS_US};
    req->turn.slack_us = bt_sched_slack_us(w.order, &work);
    req->bound_us =
        w_slack_most(w.order, work.whole_us, w.now_us, req->deadline_us);
    w.n_live++;
    w.n_came++;
    enqueue(req);
}

/* It is over, once. What was not used is given back. */
static void over(w_req_t *req)
{
    w_tenant_t *tenant = &w.tenants[req->tenant];
    const uint64_t done = req->n_prompt + req->n_out;

    assert_true(req->live);
    if (req->is_queued) {
        dequeue(req);
    }
    leave_both(req);
    if (req->charged > done) {
        bt_sched_fair_refund(&w.fair, &tenant->flow, req->charged - done);
        tenant->had -= req->charged - done;
    }
    req->live = false;
    w.n_live--;
    w.n_over++;
}

void w_finish(w_req_t *req)
{
    assert_int_equal(req->n_out, req->n_answer);
    w.n_done++;
    over(req);
}

void w_cancel(w_req_t *req)
{
    w.n_canceled++;
    over(req);
}

void w_rerun(w_req_t *req)
{
    leave_both(req);
    if (++req->n_attempts == W_ATTEMPTS) {
        w.n_failed++;
        over(req);
        return;
    }
    w.n_reruns++;
    enqueue(req);
}

/* ---- dispatch ---- */

static bool place(w_req_t *req)
{
    const bt_sched_request_t request = {.n_tokens = req->n_prompt + req->n_out,
                                        .max_new = req->max_new - req->n_out,
                                        .priority = req->turn.priority};
    bt_sched_placement_t p;

    if (!bt_sched_place(&w.workers, &request, &p) ||
        !bt_sched_placement_takes(&p)) {
        return false;
    }
    bt_sched_take(&p, &w.n_taken);
    dequeue(req);
    if (p.prefill == NULL) {
        req->decode = leg_open(req, p.decode, BT_SCHED_BOTH_PHASES);
        return true;
    }
    assert_true((p.decode != NULL) == (request.max_new > 1));
    req->context = leg_open(req, p.prefill, BT_SCHED_CONTEXT);
    if (p.decode != NULL) {
        req->decode = leg_open(req, p.decode, BT_SCHED_LEASE);
    }
    return true;
}

static void charge(w_req_t *req)
{
    w_tenant_t *tenant = &w.tenants[req->tenant];

    if (req->charged == 0) { /* a re-run costs nothing */
        req->charged = req->n_prompt + req->max_new;
        bt_sched_fair_charge(&w.fair, &tenant->flow, req->charged);
        tenant->had += req->charged;
    }
    tenant->n_inside++;
}

/* @return false when the first of them can go nowhere */
static bool send_first_of(w_tenant_t *tenant)
{
    bt_sched_turn_t *turn = bt_sched_queue_first(&tenant->queue);
    w_req_t *req = BT_CONTAINER_OF(turn, w_req_t, turn);

    for (bt_list_t *pos = turn->link.next; pos != &tenant->queue;
         pos = pos->next) {
        const w_req_t *other = BT_CONTAINER_OF(pos, w_req_t, turn.link);

        w_check_passed(turn, &other->turn, other->bound_us);
    }
    if (!place(req)) {
        return false;
    }
    charge(req);
    w_shares_mark();
    return true;
}

static void set_limited(w_tenant_t *tenant, bool is_limited)
{
    if (tenant->is_limited != is_limited) {
        tenant->is_limited = is_limited;
        w_shares_restart();
    }
}

/* @return one that went */
static bool send_next(void)
{
    for (bt_list_t *pos = w.fair.backlog.next; pos != &w.fair.backlog;
         pos = pos->next) {
        w_tenant_t *tenant =
            BT_CONTAINER_OF(bt_sched_flow_of(pos), w_tenant_t, flow);

        set_limited(tenant, tenant->n_inside >= tenant->max_inside);
        if (!tenant->is_limited) {
            return send_first_of(tenant);
        }
    }
    return false;
}

void w_dispatch(void)
{
    while (send_next()) {
    }
    for (uint32_t i = 0; i < W_TENANTS; i++) {
        if (w.tenants[i].is_limited) {
            bt_sched_fair_passed(&w.fair, &w.tenants[i].flow);
        }
    }
}

/* ---- messages ---- */

static bool is_under_way(const w_leg_t *leg)
{
    return (leg->phase == W_AWAY) || (leg->phase == W_QUARANTINE) ||
           (leg->phase == W_SENDING) ||
           ((leg->phase == W_LEASED) && leg->req->grant_away);
}

static void arrive_kv(w_leg_t *context)
{
    w_req_t *req = context->req;
    w_leg_t *decode = req->decode;

    uncount_leg(context);
    req->context = NULL;
    w_leg_free(context);
    w_leg_join(decode);
}

bool w_deliver(void)
{
    const uint32_t from = w_below(W_LEGS);

    for (uint32_t i = 0; i < W_LEGS; i++) {
        w_leg_t *leg = &w.legs[(from + i) % W_LEGS];

        if ((leg->phase == W_NONE) || !is_under_way(leg)) {
            continue;
        }
        if (leg->phase == W_AWAY) {
            w_leg_queue(leg);
        } else if (leg->phase == W_QUARANTINE) {
            w_leg_free(leg);
        } else if (leg->phase == W_SENDING) {
            arrive_kv(leg);
        } else if (leg->req->context->phase != W_AWAY) {
            leg->req->grant_away = false;
            w_leg_grant(leg->req->context);
        } else {
            w_leg_queue(leg->req->context); /* in order, behind it */
        }
        return true;
    }
    return false;
}

/* ---- workers ---- */

void w_join(w_node_t *node)
{
    w_node_open(node);
    bt_list_push_back(&w.workers, &node->sched.link);
}

void w_die(w_node_t *node)
{
    bt_list_remove(&node->sched.link);
    node->alive = false;
    w.n_deaths++;
    for (uint32_t i = 0; i < W_REQS; i++) {
        w_req_t *req = &w.reqs[i];

        if (req->live &&
            (((req->context != NULL) && (req->context->node == node)) ||
             ((req->decode != NULL) && (req->decode->node == node)))) {
            w_rerun(req);
        }
    }
    w_node_close(node);
    assert_int_equal(node->sched.seats, 0);
    assert_int_equal(node->sched.blocks, 0);
    assert_int_equal(node->sched.prefill_tokens, 0);
}

void w_roles(w_node_t *node, uint32_t roles)
{
    const uint32_t both = BT_SCHED_PREFILL | BT_SCHED_DECODE;

    node->sched.roles = roles;
    bt_sched_admit_reserve(&node->admit,
                           ((roles & both) == both) ? W_LONGEST : 0);
}

void w_open(uint32_t seed)
{
    static const uint32_t roles[] = {BT_SCHED_PREFILL, BT_SCHED_DECODE,
                                     BT_SCHED_PREFILL | BT_SCHED_DECODE,
                                     BT_SCHED_DECODE | BT_SCHED_LOCAL};

    w.rng = seed;
    w.now_us = 1000000;
    w.order = (bt_sched_order_t)(seed % BT_SCHED_N_ORDERS);
    w.pauses = seed / BT_SCHED_N_ORDERS % 2 == 0;
    w.floods = seed / (2 * BT_SCHED_N_ORDERS) % 2 == 0;
    w.n_nodes = 2 + w_below(W_NODES - 1);
    w.n_live = w.n_marks = 0;
    bt_list_init(&w.workers);
    bt_sched_fair_init(&w.fair);
    memset(w.nodes, 0, sizeof(w.nodes));
    memset(w.legs, 0, sizeof(w.legs));
    memset(w.reqs, 0, sizeof(w.reqs));
    memset(w.tenants, 0, sizeof(w.tenants));
    for (uint32_t i = 0; i < W_TENANTS; i++) {
        bt_sched_flow_init(&w.tenants[i].flow, 1 + w_below(8));
        bt_list_init(&w.tenants[i].queue);
        w.tenants[i].max_inside = (w_below(4) == 0) ? 3 : W_REQS;
    }
    for (uint32_t i = 0; i < w.n_nodes; i++) {
        w.nodes[i].sched.id = 1 + i;
        w.nodes[i].sched.roles = (i < 2) ? roles[i] : roles[w_below(4)];
        w_join(&w.nodes[i]);
    }
}
