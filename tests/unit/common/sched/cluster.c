/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/common/sched/cluster.h"

#include <string.h>

#include "tests/support/draw.h"
#include "tests/support/testsupport.h"

#define N_AWAY 3u /* rounds that a message is under way, less than this */

uint32_t c_below(cluster_t *c, uint32_t n)
{
    return (uint32_t)draw_below(&c->rng, n);
}

bool c_chance(cluster_t *c, uint32_t percent)
{
    return c_below(c, 100) < percent;
}

/* FNV-1a over what happened: two runs of a seed are compared by it. */
static void note(cluster_t *c, uint32_t kind, uint64_t what)
{
    c->n_events++;
    c->digest = (c->digest ^ (what * 16 + kind)) * 0x100000001b3u;
}

static uint64_t now_us(const cluster_t *c)
{
    return (uint64_t)c->round * C_ROUND_US;
}

#define TOKEN_US 1000u

static uint64_t slack_of(const cluster_t *c, const c_req_t *req,
                         uint64_t since_us, uint32_t n_left)
{
    const bt_sched_work_t work = {
        .since_us = since_us,
        .deadline_us = req->deadline_us,
        .whole_us = (uint64_t)(req->n_prompt + req->n_out) * TOKEN_US,
        .left_us = (uint64_t)n_left * TOKEN_US,
    };

    return bt_sched_slack_us(c->order, &work);
}

/* Of one of whose prompt nothing is computed. */
static uint64_t whole_slack_of(const cluster_t *c, const c_req_t *req,
                               uint64_t since_us)
{
    return slack_of(c, req, since_us, req->n_prompt + req->n_out);
}

static uint32_t blocks_for(uint32_t n_tokens)
{
    return (n_tokens + C_T - 1) / C_T;
}

/* One token is all that is missing. */
static bool is_alone(const c_req_t *req)
{
    return (req->context.node != NULL) && (req->decode.node == NULL);
}

/* ---- workers ---- */

/* Of a worker with work of both kinds, or that may get it. */
static void set_reserve(c_node_t *node)
{
    const bool contexts =
        ((node->sched.roles & BT_SCHED_PREFILL) != 0) || (node->n_contexts > 0);
    const bool leases =
        ((node->sched.roles & BT_SCHED_DECODE) != 0) || (node->n_leases > 0);

    bt_sched_admit_reserve(&node->admit, (contexts && leases) ? C_LONGEST : 0);
}

void c_join(cluster_t *c, c_node_t *node)
{
    node->alive = true;
    node->used_blocks = node->n_running = 0;
    node->n_contexts = node->n_leases = 0;
    memset(node->quarantined, 0, sizeof(node->quarantined));
    bt_list_init(&node->running);
    node->sched.health = BT_SCHED_UP;
    node->sched.seats = 0;
    node->sched.blocks = node->sched.prefill_tokens = 0;
    node->sched.max_seats = 2 + c_below(c, C_SEATS - 1);
    node->sched.n_blocks = 2 * C_LONGEST + c_below(c, 60);
    node->budget = C_T + c_below(c, 100);
    bt_sched_admit_init(&node->admit, node->sched.n_blocks,
                        node->sched.max_seats, 1 + c_below(c, 99));
    set_reserve(node);
    bt_list_push_back(&c->workers, &node->sched.link);
    note(c, 1, node->sched.id);
}

void c_open(cluster_t *c, uint64_t seed, uint32_t n_nodes,
            const uint32_t *roles)
{
    memset(c, 0, sizeof(*c));
    c->rng = seed;
    c->round = 1;
    c->n_nodes = n_nodes;
    bt_list_init(&c->workers);
    bt_list_init(&c->queue);
    for (uint32_t i = 0; i < n_nodes; i++) {
        c->nodes[i].sched.id = 1 + i;
        c->nodes[i].sched.roles = roles[i];
        c_join(c, &c->nodes[i]);
    }
}

void c_change_roles(cluster_t *c, c_node_t *node, uint32_t roles)
{
    node->sched.roles = roles;
    set_reserve(node);
    note(c, 2, node->sched.id * 8 + roles);
}

/* ---- legs ---- */

/* One more or less at its worker. */
static void count(const c_leg_t *leg, uint32_t by)
{
    c_node_t *node = leg->node;

    if (leg->claim.want == BT_SCHED_CONTEXT) {
        node->n_contexts += by;
    } else {
        node->n_leases += by;
    }
    set_reserve(node);
}

static void leg_open(cluster_t *c, c_req_t *req, c_leg_t *leg,
                     bt_sched_worker_t *worker, bt_sched_want_t want)
{
    const uint32_t n_tokens = req->n_prompt + req->n_out;
    const uint32_t left = req->max_new - req->n_out;

    memset(leg, 0, sizeof(*leg));
    leg->req = req;
    leg->node = BT_CONTAINER_OF(worker, c_node_t, sched);
    leg->phase = C_AWAY;
    leg->due = c->round + c_below(c, N_AWAY);
    leg->claim.want = want;
    leg->claim.n_blocks =
        blocks_for((want == BT_SCHED_CONTEXT) ? n_tokens : n_tokens + left - 1);
    worker->seats++;
    worker->blocks += leg->claim.n_blocks;
    if (want != BT_SCHED_LEASE) {
        leg->prefill_tokens = n_tokens;
        worker->prefill_tokens += n_tokens;
    }
}

static void prefilled(c_leg_t *leg)
{
    leg->node->sched.prefill_tokens -= leg->prefill_tokens;
    leg->prefill_tokens = 0;
}

static void give_back(c_leg_t *leg)
{
    c_node_t *node = leg->node;

    assert_true(node->used_blocks >= leg->claim.n_blocks);
    node->used_blocks -= leg->claim.n_blocks;
}

static bool is_waiting_kv(const c_leg_t *leg)
{
    return (leg->claim.want == BT_SCHED_CONTEXT) && !leg->granted;
}

/* Gone from its worker, in whatever phase. */
static void leg_close(cluster_t *c, c_leg_t *leg)
{
    c_node_t *node = leg->node;

    if (node == NULL) {
        return;
    }
    switch (leg->phase) {
    case C_QUEUED:
        bt_list_remove(&leg->claim.turn.link);
        break;
    case C_RUNNING:
        bt_list_remove(&leg->seq.turn.link);
        node->n_running--;
        give_back(leg);
        break;
    case C_WAITING:
        bt_list_remove(&leg->claim.turn.link);
        give_back(leg);
        break;
    case C_LEASED: /* somebody may still write to its blocks */
        bt_sched_admit_free_lease(&node->admit, &leg->claim);
        node->quarantined[(c->round + 1 + c_below(c, 6)) % 8] +=
            leg->claim.n_blocks;
        break;
    case C_SENDING:
        give_back(leg);
        break;
    case C_NONE:
    case C_AWAY:
    case C_DROPPED:
        break;
    }
    if (((leg->phase == C_RUNNING) || (leg->phase == C_WAITING)) &&
        is_waiting_kv(leg)) {
        bt_sched_admit_free_waiting(&node->admit, &leg->claim);
    }
    prefilled(leg);
    node->sched.seats--;
    node->sched.blocks -= leg->claim.n_blocks;
    if (leg->phase != C_AWAY) {
        count(leg, UINT32_MAX);
    }
    leg->phase = C_NONE;
    leg->node = NULL;
}

static void forget_legs(cluster_t *c, c_req_t *req)
{
    leg_close(c, &req->context);
    leg_close(c, &req->decode);
    req->grant_due = 0;
}

void c_end(cluster_t *c, c_req_t *req)
{
    forget_legs(c, req);
    bt_list_remove(&req->turn.link);
    req->live = req->is_queued = false;
    c->n_live--;
    note(c, 3, (uint64_t)(req - c->reqs));
}

static void rerun(cluster_t *c, c_req_t *req)
{
    forget_legs(c, req);
    if (++req->n_attempts == 3) {
        c->n_failed++;
        c_end(c, req);
        return;
    }
    c->n_reruns++;
    req->is_queued = true;
    req->turn.slack_us = whole_slack_of(c, req, req->turn.since_us);
    bt_sched_queue_insert(&c->queue, &req->turn);
}

void c_die(cluster_t *c, c_node_t *node)
{
    node->alive = false;
    node->sched.health = BT_SCHED_DRAINING;
    bt_list_remove(&node->sched.link);
    note(c, 4, node->sched.id);
    for (uint32_t i = 0; i < C_REQS; i++) {
        c_req_t *req = &c->reqs[i];

        if (req->live &&
            ((req->context.node == node) || (req->decode.node == node))) {
            rerun(c, req);
        }
    }
}

/* ---- the router ---- */

c_req_t *c_arrive(cluster_t *c, uint32_t priority, uint32_t n_prompt,
                  uint32_t max_new)
{
    c_req_t *req = c->reqs;

    while ((req < c->reqs + C_REQS) && req->live) {
        req++;
    }
    if (req == c->reqs + C_REQS) {
        return NULL;
    }
    memset(req, 0, sizeof(*req));
    req->live = req->is_queued = true;
    req->n_prompt = n_prompt;
    req->max_new = max_new;
    req->deadline_us =
        c_chance(c, 50) ? UINT64_MAX : now_us(c) + 1000000u * c_below(c, 200);
    bt_sched_turn_init(&req->turn, priority, now_us(c));
    req->turn.slack_us = whole_slack_of(c, req, now_us(c));
    bt_sched_queue_insert(&c->queue, &req->turn);
    c->n_live++;
    note(c, 5, (uint64_t)(req - c->reqs));
    return req;
}

static void check_placement(const bt_sched_placement_t *p, uint32_t left)
{
    if (p->prefill != NULL) {
        assert_true((p->prefill->roles & BT_SCHED_PREFILL) != 0);
        assert_true(p->prefill->health != BT_SCHED_DRAINING);
        assert_true((p->decode != NULL) == (left > 1));
    }
    if (p->decode != NULL) {
        assert_true((p->decode->roles & BT_SCHED_DECODE) != 0);
        assert_true(p->decode->health != BT_SCHED_DRAINING);
    }
    assert_true((p->prefill != NULL) || (p->decode != NULL));
    assert_ptr_not_equal(p->prefill, p->decode);
}

/* @return false when it found none */
static bool place_wildly(cluster_t *c, uint32_t left, bt_sched_placement_t *p)
{
    c_node_t *a = &c->nodes[c_below(c, c->n_nodes)];
    c_node_t *b = &c->nodes[c_below(c, c->n_nodes)];

    if ((a == b) || !a->alive || !b->alive) {
        return false;
    }
    *p = (bt_sched_placement_t){.prefill = &a->sched,
                                .decode = (left > 1) ? &b->sched : NULL};
    return true;
}

static bool place(cluster_t *c, c_req_t *req)
{
    const uint32_t left = req->max_new - req->n_out;
    const bt_sched_request_t request = {.n_tokens = req->n_prompt + req->n_out,
                                        .max_new = left,
                                        .priority = req->turn.priority};
    bt_sched_placement_t p;
    bt_sched_placement_t again;

    if (!bt_sched_place(&c->workers, &request, &p)) {
        return false; /* nobody can be asked */
    }
    check_placement(&p, left);
    if (!bt_sched_placement_is_healthy(&p)) {
        return false;
    }
    memset(&again, 0xff, sizeof(again));
    assert_true(bt_sched_place(&c->workers, &request, &again));
    assert_true((p.prefill == again.prefill) && (p.decode == again.decode) &&
                (p.cause == again.cause));
    if (c->is_wild) {
        (void)place_wildly(c, left, &p);
    }
    bt_sched_take(&p, &c->n_taken);
    bt_list_remove(&req->turn.link);
    req->is_queued = false;
    if (p.prefill == NULL) {
        leg_open(c, req, &req->decode, p.decode, BT_SCHED_BOTH_PHASES);
        c->n_locals++;
    } else {
        leg_open(c, req, &req->context, p.prefill, BT_SCHED_CONTEXT);
        if (p.decode != NULL) {
            leg_open(c, req, &req->decode, p.decode, BT_SCHED_LEASE);
        } else {
            c->n_ones++;
        }
    }
    note(c, 6, (uint64_t)(req - c->reqs));
    return true;
}

static void dispatch(cluster_t *c)
{
    bt_list_t *pos;
    bt_list_t *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &c->queue)
    {
        if (!place(c, BT_CONTAINER_OF(pos, c_req_t, turn.link))) {
            return;
        }
    }
}

/* ---- what arrives ---- */

static void arrive_at_worker(cluster_t *c, c_req_t *req, c_leg_t *leg)
{
    bt_sched_admit_t *admit;

    if ((leg->node == NULL) || (leg->phase != C_AWAY) ||
        (c->round < leg->due)) {
        return;
    }
    admit = &leg->node->admit;
    leg->phase = C_QUEUED;
    count(leg, 1);
    bt_sched_turn_init(&leg->claim.turn, req->turn.priority, now_us(c));
    bt_sched_turn_init(&leg->seq.turn, req->turn.priority, now_us(c));
    leg->claim.turn.slack_us = whole_slack_of(c, req, now_us(c));
    leg->seq.turn.slack_us = leg->claim.turn.slack_us;
    leg->granted = (leg == &req->context) && is_alone(req);
    bt_sched_queue_insert((leg->claim.want != BT_SCHED_CONTEXT) ? &admit->leases
                          : leg->granted ? &admit->granted
                                         : &admit->ungranted,
                          &leg->claim.turn);
    note(c, 7, leg->node->sched.id);
}

static void send_kv(cluster_t *c, c_leg_t *leg)
{
    leg->phase = C_SENDING;
    leg->due = c->round + 1 + c_below(c, 4);
}

static void arrive_grant(cluster_t *c, c_req_t *req)
{
    c_leg_t *leg = &req->context;

    if ((req->grant_due == 0) || (c->round < req->grant_due) ||
        (leg->phase == C_AWAY)) {
        return;
    }
    req->grant_due = 0;
    leg->granted = true;
    note(c, 8, leg->node->sched.id);
    switch (leg->phase) {
    case C_QUEUED:
        bt_list_remove(&leg->claim.turn.link);
        bt_sched_queue_insert(&leg->node->admit.granted, &leg->claim.turn);
        break;
    case C_RUNNING:
        bt_sched_admit_free_waiting(&leg->node->admit, &leg->claim);
        break;
    case C_WAITING:
        bt_list_remove(&leg->claim.turn.link);
        bt_sched_admit_free_waiting(&leg->node->admit, &leg->claim);
        send_kv(c, leg);
        break;
    case C_DROPPED:
        leg->phase = C_QUEUED;
        leg->claim.turn.slack_us =
            whole_slack_of(c, req, leg->claim.turn.since_us);
        bt_sched_queue_insert(&leg->node->admit.granted, &leg->claim.turn);
        break;
    case C_NONE:
    case C_AWAY:
    case C_SENDING:
    case C_LEASED:
        fail_msg("a grant in phase %u", (unsigned)leg->phase);
    }
}

static void run(c_leg_t *leg)
{
    leg->phase = C_RUNNING;
    leg->node->n_running++;
    bt_sched_queue_insert(&leg->node->running, &leg->seq.turn);
}

static void arrive_kv(cluster_t *c, c_req_t *req)
{
    c_leg_t *from = &req->context;
    c_leg_t *to = &req->decode;

    if ((from->phase != C_SENDING) || (c->round < from->due)) {
        return;
    }
    assert_int_equal(to->phase, C_LEASED);
    leg_close(c, from);
    bt_sched_admit_free_lease(&to->node->admit, &to->claim);
    to->seq.n_tokens = req->n_prompt + req->n_out;
    to->seq.n_computed = to->seq.n_tokens - 1;
    run(to);
    note(c, 9, to->node->sched.id);
}

/* ---- a worker's round ---- */

static c_leg_t *leg_of(bt_sched_claim_t *claim)
{
    return BT_CONTAINER_OF(claim, c_leg_t, claim);
}

static void begin(cluster_t *c, c_leg_t *leg)
{
    c_node_t *node = leg->node;

    bt_list_remove(&leg->claim.turn.link);
    node->used_blocks += leg->claim.n_blocks;
    if (leg->claim.want == BT_SCHED_LEASE) {
        leg->phase = C_LEASED;
        bt_sched_admit_hold_lease(&node->admit, &leg->claim);
        leg->req->grant_due = c->round + 1 + c_below(c, N_AWAY);
        return;
    }
    leg->seq.n_tokens = leg->req->n_prompt + leg->req->n_out;
    if (leg->has_token) {
        leg->seq.n_tokens--; /* token #1 is drawn again, and is the same */
    }
    leg->seq.n_computed = 0;
    if (is_waiting_kv(leg)) {
        bt_sched_admit_hold_waiting(&node->admit, &leg->claim);
    }
    run(leg);
}

static void drop(cluster_t *c, c_node_t *node)
{
    c_leg_t *leg = leg_of(bt_sched_admit_victim(&node->admit));

    assert_int_equal(leg->phase, C_WAITING);
    bt_list_remove(&leg->claim.turn.link);
    bt_sched_admit_free_waiting(&node->admit, &leg->claim);
    give_back(leg);
    leg->phase = C_DROPPED;
    c->n_drops++;
    note(c, 10, node->sched.id);
}

static void check_shares(const c_node_t *node)
{
    const bt_sched_admit_t *a = &node->admit;

    assert_true(node->used_blocks <= a->n_blocks);
    assert_true(node->n_running + a->leased_seats <= a->max_seats);
    assert_true(a->leased_blocks <= node->used_blocks);
    assert_true(a->waiting_blocks <= node->used_blocks);
}

/* As worker/preempt.c has it. */
static void let_begin(cluster_t *c, c_node_t *node)
{
    bt_sched_admit_t *a = &node->admit;

    for (;;) {
        const uint32_t seats = a->max_seats - node->n_running - a->leased_seats;
        bt_sched_claim_t *claim = bt_sched_admit_next(a, seats);
        bt_sched_verdict_t verdict;

        if (claim == NULL) {
            return;
        }
        /* Some of its blocks others hold now; which is nobody's loss here. */
        verdict = bt_sched_admit_judge(a, claim, claim->n_blocks,
                                       a->n_blocks - node->used_blocks);
        note(c, 11, node->sched.id * 4 + verdict);
        if (verdict == BT_SCHED_WAIT) {
            return;
        }
        if (verdict == BT_SCHED_DROP) {
            drop(c, node);
            continue;
        }
        begin(c, leg_of(claim));
        check_shares(node);
        assert_true((claim->want != BT_SCHED_CONTEXT) ||
                    leg_of(claim)->granted ||
                    (a->waiting_blocks <= a->waiting_share) ||
                    (a->waiting_blocks == claim->n_blocks));
        assert_true((claim->want != BT_SCHED_LEASE) ||
                    (a->leased_blocks + a->context_blocks <= a->n_blocks) ||
                    (a->leased_blocks == claim->n_blocks));
    }
}

/* What the plan gives is as sched_queue.h promises. */
static void check_plan(const c_node_t *node, const bt_sched_item_t *items,
                       uint32_t n, uint32_t n_context)
{
    uint32_t n_steps = 0;
    uint32_t sum = 0;
    const bt_sched_seq_t *last = NULL;

    for (uint32_t i = 0; i < n; i++) {
        const bt_sched_seq_t *seq = items[i].seq;
        const uint32_t left = seq->n_tokens - seq->n_computed;
        const uint32_t end = seq->n_computed + items[i].n_new;

        assert_true((items[i].n_new >= 1) && (items[i].n_new <= left));
        assert_int_equal(items[i].last_chunk, items[i].n_new == left);
        if (left == 1) {
            assert_int_equal(n_steps, i); /* steps come first */
            n_steps++;
            continue;
        }
        assert_true(items[i].last_chunk || (end % C_T == 0));
        assert_true((last == NULL) ||
                    !bt_sched_turn_before(&seq->turn, &last->turn));
        last = seq;
        sum += items[i].n_new;
    }
    assert_int_equal(sum, n_context);
    assert_true(sum <= ((node->budget >= n_steps + C_T) ? node->budget - n_steps
                                                        : C_T));
}

/* Every sequence with one token left is in the plan, and of the others the
 * first ones, one at least: nobody is overtaken, nobody starves. */
static void check_nobody_left_out(const c_node_t *node,
                                  const bt_sched_item_t *items, uint32_t n)
{
    const bt_list_t *head = &node->running;
    uint32_t n_steps = 0;
    uint32_t n_chunks = 0;

    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        const bt_sched_seq_t *seq =
            BT_CONTAINER_OF(pos, bt_sched_seq_t, turn.link);

        if (seq->n_tokens - seq->n_computed == 1) {
            assert_true(n_steps < n);
            assert_ptr_equal(items[n_steps].seq, seq);
            n_steps++;
        }
    }
    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        const bt_sched_seq_t *seq =
            BT_CONTAINER_OF(pos, bt_sched_seq_t, turn.link);

        if (seq->n_tokens - seq->n_computed > 1) {
            assert_true((n_chunks > 0) || (n > n_steps));
            if (n_steps + n_chunks < n) {
                assert_ptr_equal(items[n_steps + n_chunks].seq, seq);
                n_chunks++;
            }
        }
    }
    assert_int_equal(n, n_steps + n_chunks);
}

/* All known tokens of the leg are computed: the next one is drawn. */
static void drawn(cluster_t *c, c_leg_t *leg)
{
    c_req_t *req = leg->req;

    prefilled(leg);
    /* Not twice, where its KV was dropped. */
    if ((leg->claim.want != BT_SCHED_CONTEXT) || !leg->has_token) {
        req->n_out++;
    }
    leg->has_token = true;
    leg->seq.n_tokens++;
    if (req->n_out == req->max_new) {
        c->n_done++;
        c_end(c, req);
        return;
    }
    if (leg->claim.want != BT_SCHED_CONTEXT) {
        return;
    }
    bt_list_remove(&leg->seq.turn.link);
    leg->node->n_running--;
    if (leg->granted) {
        send_kv(c, leg);
    } else {
        leg->phase = C_WAITING;
        leg->claim.turn.slack_us = 0;
        bt_sched_queue_insert(&leg->node->admit.waiting, &leg->claim.turn);
    }
}

static void iterate(cluster_t *c, c_node_t *node)
{
    bt_sched_item_t items[C_SEATS];
    bt_sched_item_t again[C_SEATS];
    uint32_t n_context = 0;
    uint32_t n_context_again = 0;
    const uint32_t n = bt_sched_plan(&node->running, node->budget, C_T, C_SEATS,
                                     items, &n_context);

    assert_int_equal(bt_sched_plan(&node->running, node->budget, C_T, C_SEATS,
                                   again, &n_context_again),
                     n);
    assert_int_equal(n_context, n_context_again);
    check_plan(node, items, n, n_context);
    check_nobody_left_out(node, items, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_true((items[i].seq == again[i].seq) &&
                    (items[i].n_new == again[i].n_new));
        note(c, 12, items[i].n_new);
        items[i].seq->n_computed += items[i].n_new;
        if (items[i].last_chunk) {
            drawn(c, BT_CONTAINER_OF(items[i].seq, c_leg_t, seq));
        } else {
            const c_leg_t *leg = BT_CONTAINER_OF(items[i].seq, c_leg_t, seq);

            bt_sched_queue_set_slack(
                &node->running, &items[i].seq->turn,
                slack_of(c, leg->req, leg->seq.turn.since_us,
                         leg->seq.n_tokens - leg->seq.n_computed));
        }
    }
}

void c_step(cluster_t *c)
{
    c->round++;
    dispatch(c);
    for (uint32_t i = 0; i < C_REQS; i++) {
        c_req_t *req = &c->reqs[i];

        if (req->live && !req->is_queued) {
            arrive_at_worker(c, req, &req->context);
            arrive_at_worker(c, req, &req->decode);
            arrive_grant(c, req);
            arrive_kv(c, req);
        }
    }
    for (uint32_t i = 0; i < c->n_nodes; i++) {
        c_node_t *node = &c->nodes[i];

        if (node->alive) {
            node->used_blocks -= node->quarantined[c->round % 8];
            node->quarantined[c->round % 8] = 0;
            let_begin(c, node);
            iterate(c, node);
            check_shares(node);
        }
    }
}

void c_check_empty(const cluster_t *c)
{
    assert_int_equal(c->n_live, 0);
    assert_true(bt_list_empty(&c->queue));
    for (uint32_t i = 0; i < c->n_nodes; i++) {
        const c_node_t *node = &c->nodes[i];
        const bt_sched_admit_t *a = &node->admit;

        if (node->alive) {
            assert_int_equal(node->used_blocks, 0);
            assert_int_equal(node->n_running, 0);
            assert_true(bt_list_empty(&node->running));
            assert_true(bt_list_empty(&a->granted));
            assert_true(bt_list_empty(&a->ungranted));
            assert_true(bt_list_empty(&a->leases));
            assert_true(bt_list_empty(&a->waiting));
            assert_int_equal(a->waiting_blocks, 0);
            assert_int_equal(a->leased_blocks, 0);
            assert_int_equal(a->leased_seats, 0);
            assert_int_equal(node->sched.seats, 0);
            assert_int_equal(node->sched.blocks, 0);
            assert_int_equal(node->sched.prefill_tokens, 0);
        }
    }
}
