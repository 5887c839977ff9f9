/* SPDX-License-Identifier: Apache-2.0 */
/* Priority is kept to the end: in the queues of both workers and in the chunks
 * of an iteration. */
#include "tests/unit/worker/sim.h"

#define HELD_ROUNDS 30u

static sim_req_t *request_with(uint32_t n_tokens, uint32_t max_new,
                               uint32_t priority)
{
    sim_req_t *req = sim_req_new(0, 0, 1, n_tokens, max_new);

    while (req->n_want < n_tokens + max_new) { /* no end id comes before */
        req = sim_req_new(0, 0, 1, n_tokens, max_new);
    }
    sim_send_leg(req, 0, BT_REQUEST_PREFILL, 0, priority);
    sim_send_leg(req, 1, BT_REQUEST_GENERATE, 0, priority);
    return req;
}

/* A decode worker of 8 blocks: each of these takes 6 of them. */
static void grants_follow_priority_then_age(void **state)
{
    sim_req_t *first, *low, *high, *higher;

    (void)state;
    sim_open(1, 64, 8, BT_KVT_PATH_AUTO);
    first = request_with(16, 8, 0);
    first->hold_grant = true;
    sim_rounds(HELD_ROUNDS);
    low = request_with(16, 8, 0);
    low->hold_grant = true;
    sim_rounds(1);
    high = request_with(16, 8, 1);
    high->hold_grant = true;
    sim_rounds(1);
    higher = request_with(16, 8, 2);
    higher->hold_grant = true;
    sim_rounds(HELD_ROUNDS);
    assert_non_null(first->grant);
    assert_null(higher->grant);
    sim_pass_grant(first);
    sim_rounds(HELD_ROUNDS);
    sim_check_answered(first);
    assert_non_null(higher->grant);
    assert_null(high->grant);
    sim_pass_grant(higher);
    sim_rounds(HELD_ROUNDS);
    assert_non_null(high->grant);
    assert_null(low->grant);
    sim_pass_grant(high);
    sim_rounds(HELD_ROUNDS);
    sim_pass_grant(low);
    sim_settle();
    sim_check_answered(low);
    sim_check_empty();
    sim_close();
}

/* Both are in the engine: 8 tokens of 40 are computed in an iteration, all of
 * them of the one that matters more, though it came later. */
static void chunks_follow_priority(void **state)
{
    sim_req_t *low, *high;

    (void)state;
    sim_open(1, 64, 64, BT_KVT_PATH_AUTO);
    low = request_with(40, 2, 0);
    sim_rounds(2);
    high = request_with(40, 2, 1);
    while (high->n_prefilled == 0) {
        sim_round();
        assert_int_equal(low->n_prefilled, 0);
    }
    assert_int_equal(low->n_prefilled, 0);
    sim_settle();
    sim_check_answered(low);
    sim_check_answered(high);
    sim_check_empty();
    sim_close();
}

/* With a minute each, whoever's first token is due sooner; who names none has
 * the minute. */
static void deadline_order_uses_the_ttft_target(void **state)
{
    static const uint32_t first_ms[] = {0, 30000, 1000};
    sim_req_t *reqs[3];

    (void)state;
    sim_open(1, 64, 64, BT_KVT_PATH_AUTO);
    sim_order_prompts(BT_SCHED_DEADLINE);
    for (uint32_t i = 0; i < 3; i++) {
        sim_req_t *req = sim_req_new(0, 0, 1, 40, 2);
        bt_msg_t msg;

        while (req->n_want < 42) { /* no end id comes before */
            req = sim_req_new(0, 0, 1, 40, 2);
        }
        sim_make_leg(req, 0, BT_REQUEST_PREFILL, 60000, 0, &msg);
        msg.u.request.first_ms = first_ms[i];
        req->legs[0].link = sim.nodes[0].links[0];
        sim_router_send(0, 0, &msg);
        sim_send_leg(req, 1, BT_REQUEST_GENERATE, 60000, 0);
        reqs[i] = req;
    }
    while (reqs[2]->n_prefilled == 0) {
        sim_round();
    }
    assert_int_equal(reqs[1]->n_prefilled, 0);
    while (reqs[1]->n_prefilled == 0) {
        sim_round();
    }
    assert_int_equal(reqs[0]->n_prefilled, 0);
    sim_settle();
    sim_check_answered(reqs[0]);
    sim_check_empty();
    sim_close();
}

/* A pool of 16 blocks, half of it for KV without a grant: the third does not
 * begin. Of two that wait for its place the one that matters more gets it. */
static void prefills_start_by_priority_then_age(void **state)
{
    sim_req_t *held[2];
    sim_req_t *low, *high;

    (void)state;
    sim_open(1, 16, 64, BT_KVT_PATH_AUTO);
    for (uint32_t i = 0; i < 2; i++) {
        held[i] = request_with(16, 6, 0);
        held[i]->hold_grant = true;
    }
    sim_rounds(HELD_ROUNDS);
    low = request_with(16, 6, 0);
    low->hold_grant = true;
    sim_rounds(1);
    high = request_with(16, 6, 1);
    high->hold_grant = true;
    sim_rounds(HELD_ROUNDS);
    assert_int_equal(low->n_got + high->n_got, 0);
    sim_pass_grant(held[0]);
    sim_rounds(HELD_ROUNDS);
    assert_int_equal(high->n_got, 1);
    assert_int_equal(low->n_got, 0);
    sim_pass_grant(held[1]);
    sim_pass_grant(high);
    sim_rounds(HELD_ROUNDS);
    sim_pass_grant(low);
    sim_settle();
    sim_check_answered(low);
    sim_check_answered(high);
    sim_check_empty();
    sim_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(grants_follow_priority_then_age),
        BT_TEST(chunks_follow_priority),
        BT_TEST(deadline_order_uses_the_ttft_target),
        BT_TEST(prefills_start_by_priority_then_age),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
