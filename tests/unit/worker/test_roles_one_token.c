/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of one token at a prefill worker: nobody is to get their KV. */
#include "tests/unit/worker/sim.h"

#define HELD_ROUNDS 30u

/* As the router sends it: to the prefill worker alone, which is named as its
 * own peer. */
static sim_req_t *one_token_alone(uint32_t n_tokens)
{
    sim_req_t *req = sim_req_new(0, 0, 1, n_tokens, 1);
    bt_msg_t msg;

    sim_make_leg(req, 0, BT_REQUEST_PREFILL, 0, 0, &msg);
    msg.u.request.peer = sim.nodes[0].w.instance;
    req->legs[0].link = sim.nodes[0].links[0];
    sim_router_send(0, 0, &msg);
    return req;
}

static uint64_t bytes_sent(void)
{
    bt_kvt_counters_t counters;

    bt_kvt_counters(sim.nodes[0].w.kvt, &counters);
    return counters.bytes_sent;
}

static void one_token_request_ends_at_the_prefill_worker(void **state)
{
    sim_req_t *req;

    (void)state;
    sim_open(1, 16, 64, BT_KVT_PATH_AUTO);
    req = one_token_alone(40);
    sim_settle();
    sim_check_answered(req);
    assert_int_equal(req->n_prefilled, 1);
    assert_int_equal(bytes_sent(), 0);
    sim_check_empty();
    sim_close();
}

/* A router of an older build asks a decode worker too, whose grant is there
 * before the first of the chunks. */
static void grant_for_a_one_token_request_sends_nothing(void **state)
{
    sim_req_t *req;
    sim_req_t *other;

    (void)state;
    sim_open(1, 16, 64, BT_KVT_PATH_AUTO);
    req = sim_request(0, 0, 1, 40, 1);
    sim_settle();
    assert_non_null(req->grant);
    sim_check_answered(req);
    assert_int_equal(bytes_sent(), 0);
    other = sim_request_of(0, 0, 1, 40, 2); /* which does send */
    sim_settle();
    sim_check_answered(other);
    assert_true(bytes_sent() > 0);
    sim_check_empty();
    sim_close();
}

/* Two requests hold the share for waiting KV, 8 of 16 blocks; a third one has
 * to wait for its grant. Who needs none does not. */
static void one_token_request_does_not_wait_for_grants(void **state)
{
    const bt_sched_admit_t *admit = &sim.nodes[0].w.admit;
    sim_req_t *held[3];
    sim_req_t *req;

    (void)state;
    sim_open(1, 16, 64, BT_KVT_PATH_AUTO);
    for (uint32_t i = 0; i < 3; i++) {
        held[i] = sim_request_of(0, 0, 1, 16, 6);
        held[i]->hold_grant = true;
    }
    sim_rounds(HELD_ROUNDS);
    assert_int_equal(admit->waiting_blocks, 8);
    assert_int_equal(held[2]->n_got, 0);
    req = one_token_alone(28);
    sim_rounds(HELD_ROUNDS);
    sim_check_answered(req);
    assert_int_equal(admit->waiting_blocks, 8);
    assert_int_equal(held[2]->n_got, 0);

    /* Where there is no room, waiting KV makes some: 9 of 16 blocks. */
    req = one_token_alone(36);
    sim_rounds(HELD_ROUNDS);
    sim_check_answered(req);
    for (uint32_t i = 0; i < 3; i++) {
        sim_pass_grant(held[i]);
    }
    sim_settle();
    for (uint32_t i = 0; i < 3; i++) {
        sim_check_answered(held[i]);
    }
    sim_check_empty();
    sim_close();
}

static void one_token_request_can_be_canceled_at_any_time(void **state)
{
    (void)state;
    for (uint32_t at = 0; at < 12; at++) {
        sim_req_t *req;

        sim_open(1, 16, 64, BT_KVT_PATH_AUTO);
        req = one_token_alone(40);
        sim_rounds(at);
        sim_cancel(req);
        sim_settle();
        assert_int_equal(req->legs[0].n_ended, 1);
        assert_int_equal(bytes_sent(), 0);
        sim_check_empty();
        sim_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(one_token_request_ends_at_the_prefill_worker),
        BT_TEST(grant_for_a_one_token_request_sends_nothing),
        BT_TEST(one_token_request_does_not_wait_for_grants),
        BT_TEST(one_token_request_can_be_canceled_at_any_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
