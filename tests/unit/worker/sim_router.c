/* SPDX-License-Identifier: Apache-2.0 */
/* Routers: they send requests and keep books on the answers. */
#include "tests/unit/worker/sim.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"

void sim_router_send(uint32_t router, uint32_t node, const bt_msg_t *msg)
{
    bt_link_t *link = sim.nodes[node].links[router];

    if (link == NULL) {
        return;
    }
    bt_strbuf_reset(&sim.out);
    bt_wire_encode(msg, &sim.out);
    assert_int_equal(bt_strbuf_status(&sim.out), BT_OK);
    sim_queue(link, BT_LINK_MESSAGE, sim.out.data, sim.out.len);
}

void sim_cancel_leg(const sim_req_t *req, uint32_t k)
{
    bt_msg_t msg = {.type = BT_MSG_CANCEL};

    msg.u.cancel.key = req->key;
    if (req->legs[k].link != NULL) {
        sim_router_send(req->router, (k == 0) ? req->p : req->d, &msg);
    }
}

void sim_pass_grant(const sim_req_t *req)
{
    assert_non_null(req->grant);
    sim_queue(req->legs[0].link, BT_LINK_MESSAGE, req->grant, req->grant_bytes);
}

void sim_cancel(const sim_req_t *req)
{
    sim_cancel_leg(req, 0);
    sim_cancel_leg(req, 1);
}

static sim_req_t *sim_find(uint32_t router, bt_req_key_t key)
{
    for (uint32_t i = 0; i < sim.n_reqs; i++) {
        sim_req_t *req = &sim.reqs[i];

        if ((req->router == router) && (req->key.id == key.id) &&
            (req->key.attempt == key.attempt)) {
            return req;
        }
    }
    fail_msg("a message about a request that nobody made");
    return NULL;
}

static void sim_on_token(const bt_link_t *link, const bt_token_t *token)
{
    sim_req_t *req = sim_find(link->router, token->key);
    const uint32_t at = req->n_tokens + token->index;
    const uint64_t bit = 1ull << (token->index % 64);

    assert_true(at < req->n_want);
    assert_int_equal(token->id, req->want[at]);
    assert_int_equal(req->got_bits[token->index / 64] & bit, 0);
    req->got_bits[token->index / 64] |= bit;
    req->n_got++;
    assert_int_equal(token->finish != BT_FINISH_NONE, at + 1 == req->n_want);
    if (token->finish != BT_FINISH_NONE) {
        req->finished = true;
        if (token->index == 0) {
            sim_cancel_leg(req, 1); /* the grant is withdrawn */
        }
    }
}

static void sim_check_score(const sim_req_t *req, uint32_t at,
                            const bt_score_t *score)
{
    assert_true(score->logprob == sim_logprob(req->want, at, req->want[at]));
    assert_int_equal(score->n_top, req->wants.n_top);
    for (uint32_t k = 0; k < score->n_top; k++) {
        assert_int_equal(score->top_ids[k], k);
        assert_true(score->top_logprobs[k] == sim_logprob(req->want, at, k));
    }
}

/* Right values, once, in order within each row. */
static void sim_on_rows(sim_req_t *req, bt_link_t *link, const bt_msg_rows_t *m)
{
    const uint32_t each = BT_SCORE_BYTES(m->n_top);
    const bool of_output = m->kind == BT_ROWS_LOGITS;
    uint32_t *floats = of_output ? req->output_floats : req->context_floats;
    const uint32_t at = m->from + (of_output ? req->n_tokens : 1);

    if (m->kind == BT_ROWS_PROMPT_LOGPROBS) {
        assert_int_not_equal(req->wants.what & BT_WANT_PROMPT_LOGPROBS, 0);
        assert_int_equal(m->data_bytes % each, 0);
        for (uint32_t i = 0; i < m->data_bytes / each; i++) {
            bt_score_t score;

            bt_score_get(m->data + i * each, m->n_top, &score);
            assert_int_equal(m->from + i, 1 + req->n_told);
            sim_check_score(req, m->from + i, &score);
            req->n_told++;
        }
        return;
    }
    link->n_pieces++;
    assert_int_not_equal(
        req->wants.what & (of_output ? BT_WANT_LOGITS : BT_WANT_PROMPT_LOGITS),
        0);
    assert_int_equal(m->offset, floats[m->from]);
    for (uint32_t i = 0; i < m->data_bytes / sizeof(float); i++) {
        float value;

        memcpy(&value, m->data + i * sizeof(value), sizeof(value));
        assert_true(value == sim_logit(req->want, at, m->offset + i));
        floats[m->from]++;
    }
    assert_true(floats[m->from] <= SIM_VOCAB);
}

static void sim_on_scores(const bt_link_t *link, const bt_msg_tokens_t *tokens)
{
    for (uint32_t i = 0; i < tokens->n_scores; i++) {
        const bt_token_t *token = &tokens->tokens[tokens->scores[i].token];
        sim_req_t *req = sim_find(link->router, token->key);

        assert_int_not_equal(req->wants.what & BT_WANT_LOGPROBS, 0);
        sim_check_score(req, req->n_tokens + token->index,
                        &tokens->scores[i].score);
        req->n_scores++;
    }
}

static void sim_on_grant(sim_req_t *req, const uint8_t *data, size_t bytes)
{
    assert_null(req->grant);
    req->grant = bt_memdup(data, bytes);
    req->grant_bytes = bytes;
    if (!req->hold_grant && (req->legs[0].link != NULL)) {
        sim_queue(req->legs[0].link, BT_LINK_MESSAGE, data, bytes);
    }
}

static sim_leg_t *sim_leg_of(sim_req_t *req, const bt_link_t *link)
{
    sim_leg_t *leg = &req->legs[(link->node == &sim.nodes[req->d]) ? 1 : 0];

    assert_ptr_equal(leg->link, link);
    assert_int_equal(leg->n_ended, 0); /* nothing after the end */
    return leg;
}

static void sim_on_end(sim_req_t *req, sim_leg_t *leg, const bt_msg_t *msg)
{
    if (msg->type == BT_MSG_FAILED) {
        leg->n_failed++;
        leg->status = (bt_status_t)msg->u.failed.status;
        assert_int_equal(leg->n_failed, 1);
        assert_true(strlen(msg->u.failed.text) > 0);
    } else {
        leg->n_ended++;
    }
    if (sim.cut_losses && !req->finished &&
        ((msg->type == BT_MSG_FAILED) || (leg == &req->legs[1]))) {
        sim_cancel_leg(req, (leg == &req->legs[0]) ? 1 : 0);
    }
}

bt_status_t bt_link_post(bt_link_t *link, const void *data, size_t bytes)
{
    sim_req_t *req;
    bt_msg_t msg;

    if (!link->open) {
        return BT_ERR_BUSY;
    }
    bt_alloc_fail_at(0);
    assert_int_equal(bt_wire_decode(sim.decoder, data, bytes, &msg), BT_OK);
    switch (msg.type) {
    case BT_MSG_TOKENS:
        for (uint32_t i = 0; i < msg.u.tokens.n; i++) {
            (void)sim_leg_of(sim_find(link->router, msg.u.tokens.tokens[i].key),
                             link);
            sim_on_token(link, &msg.u.tokens.tokens[i]);
        }
        sim_on_scores(link, &msg.u.tokens);
        break;
    case BT_MSG_GRANT:
        req = sim_find(link->router, msg.u.grant.key);
        (void)sim_leg_of(req, link);
        sim_on_grant(req, data, bytes);
        break;
    case BT_MSG_ROWS:
        req = sim_find(link->router, msg.u.rows.key);
        (void)sim_leg_of(req, link);
        sim_on_rows(req, link, &msg.u.rows);
        break;
    case BT_MSG_PREFILLED:
        sim_find(link->router, msg.u.prefilled.key)->n_prefilled++;
        break;
    case BT_MSG_JOINED:
        sim_find(link->router, msg.u.joined.key)->n_joined++;
        break;
    case BT_MSG_FAILED:
        req = sim_find(link->router, msg.u.failed.key);
        sim_on_end(req, sim_leg_of(req, link), &msg);
        break;
    case BT_MSG_ENDED:
        req = sim_find(link->router, msg.u.ended.key);
        sim_on_end(req, sim_leg_of(req, link), &msg);
        break;
    case BT_MSG_DRAIN:
        link->n_drains++;
        break;
    case BT_MSG_KV_LINK:
    case BT_MSG_CACHE_IS_EMPTY:
        break;
    default:
        assert_int_equal(msg.type, BT_MSG_STATS);
        link->node->stats = msg.u.stats;
        break;
    }
    return BT_OK;
}

void sim_link_up_speaking(uint32_t router, uint32_t node, bt_wire_range_t range)
{
    bt_msg_t msg = {.type = BT_MSG_HELLO};
    bt_link_t *link;

    if ((sim.nodes[node].links[router] != NULL) || sim.nodes[node].dead) {
        return;
    }
    link = bt_calloc(1, sizeof(*link));
    assert_non_null(link);
    link->node = &sim.nodes[node];
    link->router = router;
    link->open = true;
    sim.nodes[node].links[router] = link;
    snprintf(msg.u.hello.name, sizeof(msg.u.hello.name), "router-%u", router);
    msg.u.hello.protocol = range.newest;
    msg.u.hello.protocol_min = range.oldest;
    msg.u.hello.tp = msg.u.hello.pp = 1;
    bt_strbuf_reset(&sim.out);
    bt_wire_encode(&msg, &sim.out);
    assert_int_equal(bt_strbuf_status(&sim.out), BT_OK);
    sim_queue(link, BT_LINK_UP, sim.out.data, sim.out.len);
}

void sim_link_up(uint32_t router, uint32_t node)
{
    sim_link_up_speaking(router, node, bt_wire_range_ours());
}

void sim_role(uint32_t router, uint32_t node, uint32_t roles)
{
    const bt_msg_t msg = {.type = BT_MSG_ROLE, .u.role = {.roles = roles}};

    sim.nodes[node].roles_ever |= roles;
    sim_router_send(router, node, &msg);
}

void sim_duty(uint32_t router, uint32_t node, uint32_t duty)
{
    const bt_msg_t msg = {.type = BT_MSG_ROLE, .u.role = {.duty = duty}};

    sim_router_send(router, node, &msg);
}

void sim_make_peer(uint32_t d, bt_msg_peer_t *peer)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    static bt_wire_rank_t rank;
    const bt_worker_t *w = &sim.nodes[d].w;
    size_t bytes = 0;

    assert_int_equal(bt_kvt_export(w->kvt, blob, sizeof(blob), &bytes), BT_OK);
    rank = (bt_wire_rank_t){.block_bytes = w->block_bytes,
                            .kvt = blob,
                            .kvt_bytes = (uint32_t)bytes};
    *peer = (bt_msg_peer_t){.instance = w->instance,
                            .ranks = &rank,
                            .n_ranks = 1,
                            .tp = w->split.tp,
                            .pp = w->split.pp,
                            .layout = w->kv_layout};
    snprintf(peer->name, sizeof(peer->name), "decode-%u", d);
}

void sim_peer(uint32_t router, uint32_t p, uint32_t d)
{
    bt_msg_t msg = {.type = BT_MSG_PEER};

    sim_make_peer(d, &msg.u.peer);
    sim_router_send(router, p, &msg);
}

void sim_peer_gone(uint32_t router, uint32_t p, uint32_t d)
{
    bt_msg_t msg = {.type = BT_MSG_PEER_GONE};

    msg.u.peer_gone.instance = sim.nodes[d].w.instance;
    sim_router_send(router, p, &msg);
}

void sim_make_leg(const sim_req_t *req, uint32_t k, uint32_t kind,
                  uint32_t deadline_ms, uint32_t priority, bt_msg_t *msg)
{
    bt_msg_request_t *m = &msg->u.request;

    *msg = (bt_msg_t){.type = BT_MSG_REQUEST};
    m->key = req->key;
    m->kind = kind;
    m->peer = (kind == BT_REQUEST_LOCAL)
                  ? 0
                  : sim.nodes[(k == 0) ? req->d : req->p].w.instance;
    m->n_prompt = req->n_tokens;
    m->n_tokens = req->n_tokens;
    m->tokens = req->want;
    m->max_new = req->max_new;
    m->deadline_ms = deadline_ms;
    m->priority = priority;
    m->sampling = bt_sampling_default();
    m->sampling.n_end_ids = 1;
    m->sampling.end_ids[0] = SIM_END_ID;
    m->sampling.seed = req->seed;
    m->fanout = req->group;
    m->fanout_size = req->group_size;
    m->wants = req->wants;
    if (sim.lend_prompts && (m->fanout != 0) && (m->fanout != m->key.id)) {
        m->tokens = NULL;
        m->n_tokens = 0;
    }
}

void sim_send_leg(sim_req_t *req, uint32_t k, uint32_t kind,
                  uint32_t deadline_ms, uint32_t priority)
{
    const uint32_t node = (k == 0) ? req->p : req->d;
    bt_msg_t msg;

    sim_make_leg(req, k, kind, deadline_ms, priority, &msg);
    req->legs[k].link = sim.nodes[node].links[req->router];
    sim_router_send(req->router, node, &msg);
}

void sim_want(sim_req_t *req)
{
    req->n_want = req->n_tokens;
    do {
        req->want[req->n_want] = sim_draw(req->want, req->n_want, req->seed);
        req->n_want++;
    } while ((req->n_want < req->n_tokens + req->max_new) &&
             (req->want[req->n_want - 1] != SIM_END_ID));
}

sim_req_t *sim_req_new(uint32_t router, uint32_t p, uint32_t d,
                       uint32_t n_tokens, uint32_t max_new)
{
    sim_req_t *req = &sim.reqs[sim.n_reqs];
    const uint32_t id = ++sim.n_reqs;

    assert_true(id < SIM_MAX_REQS);
    *req = (sim_req_t){.router = router,
                       .p = p,
                       .d = d,
                       .key = {.id = id, .attempt = 1},
                       .n_tokens = n_tokens,
                       .max_new = max_new,
                       .wants = sim.wants};
    /* Some begin alike: with none, some or many blocks in common. */
    for (uint32_t i = 0; i < n_tokens; i++) {
        const uint32_t who = (i < id % 5 * SIM_T) ? id % 3 : id;

        req->want[i] = (who * 131 + i * 7) % SIM_VOCAB;
    }
    sim_want(req);
    return req;
}

sim_req_t *sim_group_new(uint32_t router, uint32_t p, uint32_t d, uint32_t n,
                         uint32_t n_tokens, uint32_t max_new)
{
    sim_req_t *first = sim_req_new(router, p, d, n_tokens, max_new);

    for (uint32_t i = 0; i < n; i++) {
        sim_req_t *req =
            (i == 0) ? first : sim_req_new(router, p, d, n_tokens, max_new);

        req->seed = first->key.id * 1000 + i;
        req->group = first->key.id;
        req->group_size = n;
        memcpy(req->want, first->want, n_tokens * sizeof(req->want[0]));
        sim_want(req);
    }
    return first;
}

static void send_both(sim_req_t *req)
{
    if (req->p == req->d) {
        sim_send_leg(req, 1, BT_REQUEST_LOCAL, 0, 0);
    } else {
        sim_send_leg(req, 0, BT_REQUEST_PREFILL, 0, 0);
        sim_send_leg(req, 1, BT_REQUEST_GENERATE, 0, 0);
    }
}

sim_req_t *sim_request(uint32_t router, uint32_t p, uint32_t d,
                       uint32_t n_tokens, uint32_t max_new)
{
    sim_req_t *req = sim_req_new(router, p, d, n_tokens, max_new);

    send_both(req);
    return req;
}

sim_req_t *sim_request_of(uint32_t router, uint32_t p, uint32_t d,
                          uint32_t n_tokens, uint32_t max_new)
{
    sim_req_t *req = sim_req_new(router, p, d, n_tokens, max_new);

    while (req->n_want < n_tokens + max_new) {
        req = sim_req_new(router, p, d, n_tokens, max_new);
    }
    send_both(req);
    return req;
}

sim_req_t *sim_group_of(uint32_t router, uint32_t p, uint32_t d, uint32_t n,
                        uint32_t n_tokens, uint32_t max_new)
{
    sim_req_t *first = sim_group_new(router, p, d, n, n_tokens, max_new);

    for (uint32_t i = 0; i < n; i++) {
        while (first[i].n_want < n_tokens + max_new) {
            first[i].seed += 100;
            sim_want(&first[i]);
        }
        send_both(&first[i]);
    }
    return first;
}

void sim_check_answered(const sim_req_t *req)
{
    assert_true(req->finished);
    assert_int_equal(req->n_got, req->n_want - req->n_tokens);
    assert_int_equal(req->legs[0].n_failed, 0);
    assert_int_equal(req->legs[1].n_failed, 0);
}
