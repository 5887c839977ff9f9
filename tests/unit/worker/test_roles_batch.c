/* SPDX-License-Identifier: Apache-2.0 */
/* Static batches at a decode worker of 4 seats: who is in which. sim_engine.c
 * proves every byte, sim_router.c every token. */
#include "tests/unit/worker/sim.h"

#include "decode_worker/decode.h"

#define D         1u /* the node */
#define D_BLOCKS  60u
#define N_PROMPT  6u
#define N_LONG    30u
#define N_SHORT   4u
#define ANY_ROUND 60u

static const bt_sched_batch_t *batch(void)
{
    return &sim.nodes[D].w.admit.batch;
}

static void open_with(bool is_static, uint32_t d_blocks)
{
    sim_open(1, 64, d_blocks, BT_KVT_PATH_AUTO);
    if (is_static) {
        sim_batch_statically();
    }
}

static void close_empty(void)
{
    sim_check_empty();
    for (uint32_t i = BT_SCHED_COMING; i < BT_SCHED_N_PARTS; i++) {
        assert_int_equal(batch()->n[i], 0);
    }
    assert_false(batch()->is_closed);
    sim_close();
}

/* @return rounds until it was */
static uint32_t rounds_until_finished(const sim_req_t *req)
{
    uint32_t n = 0;

    while (!req->finished) {
        sim_round();
        assert_true(++n < 1000);
    }
    return n;
}

static void rounds_until_n_got(const sim_req_t *req, uint32_t n)
{
    for (uint32_t i = 0; req->n_got < n; i++) {
        sim_round();
        assert_true(i < 1000);
    }
}

/* By a prefill worker, or here. The short one, which comes in the midst, ends
 * long before the long one where it may join it. */
static void late_request_waits_for_the_next_static_batch(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        const bool is_static = (i & 1u) != 0;
        const uint32_t p = ((i & 2u) != 0) ? D : 0;
        sim_req_t *first, *later;

        open_with(is_static, D_BLOCKS);
        first = sim_request_of(0, p, D, N_PROMPT, N_LONG);
        rounds_until_n_got(first, 5);
        later = sim_request_of(0, p, D, N_PROMPT, N_SHORT);
        if (is_static) {
            (void)rounds_until_finished(first);
            /* Its first token is the prefill worker's, if there is one. */
            assert_int_equal(later->n_got, (p == D) ? 0 : 1);
            assert_false(later->finished);
        } else {
            (void)rounds_until_finished(later);
            assert_false(first->finished);
        }
        sim_settle();
        sim_check_answered(first);
        sim_check_answered(later);
        close_empty();
    }
}

/* Four come at once, a fifth finds no seat; the seats of those that end first
 * stay empty, and their answers are out. */
static void static_batch_starts_together_and_refills_no_seats(void **state)
{
    sim_req_t *reqs[5];

    (void)state;
    open_with(true, D_BLOCKS);
    for (uint32_t i = 0; i < 5; i++) {
        reqs[i] =
            sim_request_of(0, 0, D, N_PROMPT, (i == 0) ? N_LONG : N_SHORT);
    }
    while (batch()->n[BT_SCHED_INSIDE] == 0) {
        sim_round();
    }
    assert_int_equal(batch()->n[BT_SCHED_INSIDE], 4);
    while (!reqs[3]->finished) {
        sim_round();
    }
    assert_true(reqs[1]->finished && reqs[2]->finished);
    sim_rounds(5);
    assert_false(reqs[0]->finished);
    assert_int_equal(batch()->n[BT_SCHED_INSIDE], 1);
    assert_int_equal(reqs[4]->n_joined, 0);
    sim_settle();
    for (uint32_t i = 0; i < 5; i++) {
        sim_check_answered(reqs[i]);
    }
    close_empty();
}

/* The grant of one is on its way for long: the other is ready and waits for
 * it, to its deadline, its cancel or its KV. */
static void static_batch_waits_for_kv_up_to_a_limit(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 3; way++) {
        sim_req_t *ready, *held;

        open_with(true, D_BLOCKS);
        ready = sim_request_of(0, 0, D, N_PROMPT, N_SHORT);
        held = sim_req_new(0, 0, D, N_PROMPT, N_SHORT);
        held->hold_grant = true;
        sim_send_leg(held, 0, BT_REQUEST_PREFILL, 0, 0);
        sim_send_leg(held, 1, BT_REQUEST_GENERATE, (way == 0) ? 150 : 0, 0);
        sim_rounds(100);
        assert_int_equal(batch()->n[BT_SCHED_READY], 1);
        assert_int_equal(batch()->n[BT_SCHED_COMING], 1);
        assert_int_equal(ready->n_got, 1);
        if (way == 0) {
            sim_expect_failures();
            sim_rounds(100);
            sim_expected();
            assert_true(ready->finished);
            sim_cancel_leg(held, 0);
        } else if (way == 1) {
            sim_cancel(held);
        } else {
            sim_pass_grant(held);
        }
        sim_settle();
        sim_check_answered(ready);
        assert_int_equal(held->finished, way == 2);
        close_empty();
    }
}

/* At each round of its life, with others of its batch and one behind it. */
static void cancel_in_a_static_batch_releases_everything(void **state)
{
    (void)state;
    for (uint32_t at = 0; at < ANY_ROUND; at++) {
        sim_req_t *others[3];
        sim_req_t *one;

        open_with(true, D_BLOCKS);
        others[0] = sim_request_of(0, 0, D, 3 * N_PROMPT, N_SHORT);
        one = sim_request_of(0, 0, D, N_PROMPT, N_LONG);
        others[1] =
            sim_request_of(0, (at % 2 == 0) ? 0 : D, D, N_PROMPT, N_LONG);
        sim_rounds(at);
        others[2] = sim_request_of(0, 0, D, N_PROMPT, N_SHORT);
        sim_cancel(one);
        sim_settle();
        for (uint32_t i = 0; i < 3; i++) {
            sim_check_answered(others[i]);
        }
        close_empty();
    }
}

/* Choices of one prompt are one of the batch until it starts. Its prefill
 * worker is lost when their KV is here already: they go on. */
static void group_waits_for_its_leader_without_a_sender(void **state)
{
    sim_req_t *group, *held;

    (void)state;
    sim_open(1, 64, D_BLOCKS, BT_KVT_PATH_AUTO);
    sim_batch_statically();
    group = sim_group_of(0, 0, D, 3, N_PROMPT, N_SHORT);
    held = sim_req_new(0, 0, D, N_PROMPT, N_SHORT);
    held->hold_grant = true;
    sim_send_leg(held, 0, BT_REQUEST_PREFILL, 0, 0);
    sim_send_leg(held, 1, BT_REQUEST_GENERATE, 0, 0);
    sim_rounds(50);
    assert_int_equal(batch()->n[BT_SCHED_READY], 1);
    assert_int_equal(batch()->n[BT_SCHED_INSIDE], 0);
    sim_expect_failures();
    sim_kill(0);
    sim_rounds(20);
    sim_expected();
    sim_settle();
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(group[i].finished);
        assert_int_equal(group[i].legs[1].n_failed, 0);
    }
    assert_int_equal(held->legs[1].n_failed, 1);
    close_empty();
}

/* Room for one and a half of them: a paused one goes on within its batch. */
static void preempted_sequences_resume_in_their_static_batch(void **state)
{
    bool was_paused = false;
    sim_req_t *a, *b, *later;

    (void)state;
    open_with(true, 14);
    sim_let_grow();
    a = sim_request_of(0, 0, D, 9, 40);
    b = sim_request_of(0, 0, D, 9, 40);
    later = sim_req_new(0, 0, D, 9, N_SHORT);
    sim_rounds(8);
    sim_send_leg(later, 0, BT_REQUEST_PREFILL, 0, 0);
    sim_send_leg(later, 1, BT_REQUEST_GENERATE, 0, 24); /* before all others */
    while (!a->finished || !b->finished) {
        sim_round();
        was_paused = was_paused || (batch()->n[BT_SCHED_PAUSED] > 0);
        assert_true(later->n_got <= 1);
    }
    assert_true(was_paused);
    sim_settle();
    sim_check_answered(a);
    sim_check_answered(b);
    sim_check_answered(later);
    close_empty();
}

/* Who is told to end takes nobody more, and finishes all its batches. */
static void draining_worker_finishes_its_batches(void **state)
{
    sim_req_t *first, *later;

    (void)state;
    open_with(true, D_BLOCKS);
    first = sim_request_of(0, 0, D, N_PROMPT, N_LONG);
    rounds_until_n_got(first, 5);
    later = sim_request_of(0, 0, D, N_PROMPT, N_LONG);
    sim_rounds(2);
    sim_terminate(&sim.nodes[D]);
    (void)rounds_until_finished(later);
    sim_settle();
    sim_check_answered(first);
    sim_check_answered(later);
    assert_true(sim.nodes[D].over);
    sim_close();
}

/* While the first runs, others wait: 1 long, 4 short. They are sorted, and the
 * short ones share the next batch. */
static void static_batches_by_length_group_similar_lengths(void **state)
{
    static const struct {
        bt_sched_order_t order;
        bool long_is_last;
    } cases[] = {{BT_SCHED_FCFS, false}, {BT_SCHED_LENGTH, true}};

    (void)state;
    for (uint32_t c = 0; c < BT_ARRAY_LEN(cases); c++) {
        sim_req_t *first, *long_one;
        sim_req_t *others[4];

        open_with(true, D_BLOCKS);
        sim_order_prompts(cases[c].order);
        first = sim_request_of(0, 0, D, N_PROMPT, N_LONG);
        rounds_until_n_got(first, 5);
        long_one = sim_request_of(0, 0, D, N_PROMPT, N_LONG);
        sim_rounds(2);
        for (uint32_t i = 0; i < 4; i++) {
            others[i] = sim_request_of(0, 0, D, N_PROMPT, N_SHORT);
        }
        (void)rounds_until_finished(first);
        while (long_one->n_joined == 0) {
            sim_round();
        }
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(others[i]->finished, cases[c].long_is_last);
        }
        sim_settle();
        sim_check_answered(long_one);
        for (uint32_t i = 0; i < 4; i++) {
            sim_check_answered(others[i]);
        }
        close_empty();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(late_request_waits_for_the_next_static_batch),
        BT_TEST(static_batch_starts_together_and_refills_no_seats),
        BT_TEST(static_batch_waits_for_kv_up_to_a_limit),
        BT_TEST(cancel_in_a_static_batch_releases_everything),
        BT_TEST(group_waits_for_its_leader_without_a_sender),
        BT_TEST(preempted_sequences_resume_in_their_static_batch),
        BT_TEST(draining_worker_finishes_its_batches),
        BT_TEST(static_batches_by_length_group_similar_lengths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
