/* SPDX-License-Identifier: Apache-2.0 */
/* Workers of both roles, and roles that change while requests run. */
#include "tests/unit/worker/sim.h"

#include "common/base/log.h"
#include "decode_worker/decode.h"
#include "prefill_worker/prefill.h"

#define BOTH BT_ROLES_BOTH

static const uint32_t two_of_both[] = {BOTH, BOTH, BOTH};

static uint64_t rng;

static uint32_t below(uint32_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33) % n;
}

static void single_worker_of_both_roles_answers(void **state)
{
    sim_req_t *req;

    (void)state;
    sim_open_roles(1, two_of_both, 32, BT_KVT_PATH_AUTO);
    req = sim_request_of(0, 0, 0, 21, 6);
    sim_settle();
    sim_check_answered(req);
    assert_int_equal(sim.nodes[0].stats.roles, BOTH);
    sim_check_empty();
    sim_close();
}

static void workers_of_both_roles_send_each_other_kv(void **state)
{
    static const bt_kvt_path_t paths[] = {BT_KVT_PATH_AUTO,
                                          BT_KVT_PATH_NETWORK};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        sim_req_t *reqs[2];

        sim_open_roles(2, two_of_both, 64, paths[i]);
        for (uint32_t n = 0; n < 8; n++) {
            reqs[0] = sim_request_of(0, 0, 1, 21, 6);
            reqs[1] = sim_request_of(1, 1, 0, 30, 6);
            sim_rounds(n);
            if (n == 3) {
                sim_settle();
            }
        }
        sim_settle();
        sim_check_answered(reqs[0]);
        sim_check_answered(reqs[1]);
        sim_check_empty();
        sim_close();
    }
}

/* At each round of its life; and the next ones go the other way. */
static void running_requests_keep_their_role_after_a_change(void **state)
{
    static const uint32_t roles[] = {BT_ROLE_PREFILL, BT_ROLE_DECODE};

    (void)state;
    for (uint32_t at = 0; at < 24; at++) {
        sim_req_t *before;
        sim_req_t *after;

        sim_open_roles(2, roles, 32,
                       (at % 2 == 0) ? BT_KVT_PATH_AUTO : BT_KVT_PATH_NETWORK);
        before = sim_request_of(0, 0, 1, 30, 8);
        sim_rounds(at);
        sim_role(0, 0, BT_ROLE_DECODE);
        sim_role(1, 1, BT_ROLE_PREFILL);
        sim_rounds(2);
        assert_int_equal(sim.nodes[0].stats.roles, BT_ROLE_DECODE);
        assert_int_equal(sim.nodes[1].stats.roles, BT_ROLE_PREFILL);
        sim_peer(0, 1, 0);
        after = sim_request_of(0, 1, 0, 21, 6);
        sim_settle();
        sim_check_answered(before);
        sim_check_answered(after);
        sim_check_empty();
        sim_close();
    }
}

/* Its router has not heard of the change. */
static void request_for_the_previous_role_is_served(void **state)
{
    static const uint32_t roles[] = {BT_ROLE_DECODE, BT_ROLE_PREFILL};
    sim_req_t *req;

    (void)state;
    sim_open_roles(2, roles, 32, BT_KVT_PATH_AUTO);
    sim_peer(0, 0, 1);
    req = sim_request_of(0, 0, 1, 21, 6);
    sim_settle();
    sim_check_answered(req);
    sim_check_empty();
    sim_close();
}

static void invalid_role_is_refused(void **state)
{
    (void)state;
    sim_open_roles(1, two_of_both, 32, BT_KVT_PATH_AUTO);
    sim_role(0, 0, 0);
    sim_role(0, 0, BOTH + 1);
    sim_role(0, 0, BOTH | 0x80000000u);
    sim_rounds(2);
    assert_int_equal(sim.nodes[0].w.roles, BOTH);
    assert_non_null(sim.nodes[0].links[0]);
    sim_close();
    bt_test_expect_log_lines(3);
}

/* A grant that names a job which is to generate here. */
static void grant_for_the_other_role_is_ignored(void **state)
{
    sim_req_t *req;

    (void)state;
    sim_open_roles(2, two_of_both, 32, BT_KVT_PATH_AUTO);
    req = sim_request_of(0, 0, 1, 21, 6);
    req->hold_grant = true;
    sim_rounds(4);
    assert_non_null(req->grant);
    sim_queue(req->legs[1].link, BT_LINK_MESSAGE, req->grant, req->grant_bytes);
    sim_rounds(2);
    sim_pass_grant(req);
    sim_settle();
    sim_check_answered(req);
    sim_check_empty();
    sim_close();
    bt_test_expect_log_lines(1);
}

static void worker_of_both_roles_drains(void **state)
{
    sim_req_t *there;
    sim_req_t *back;
    sim_req_t *local;

    (void)state;
    sim_open_roles(2, two_of_both, 64, BT_KVT_PATH_AUTO);
    there = sim_request_of(0, 0, 1, 21, 8);
    back = sim_request_of(0, 1, 0, 21, 8);
    local = sim_request_of(0, 0, 0, 9, 8);
    sim_rounds(2);
    sim_terminate(&sim.nodes[0]);
    sim_role(0, 0, BT_ROLE_DECODE); /* it does not stay for that */
    sim_settle();
    sim_check_answered(there);
    sim_check_answered(back);
    sim_check_answered(local);
    assert_true(sim.nodes[0].over);
    assert_int_equal(sim.nodes[0].code, 0);
    sim_check_empty();
    sim_close();
}

/* It finishes what it has, refuses what comes, says so to all, and ends when it
 * is told to and nothing is left. */
static void draining_worker_takes_requests_only_after_resume(void **state)
{
    sim_req_t *before;
    sim_req_t *off;
    sim_req_t *on;

    (void)state;
    sim_open_roles(1, two_of_both, 64, BT_KVT_PATH_AUTO);
    before = sim_request_of(0, 0, 0, 21, 8);
    sim_rounds(2);
    assert_int_equal(sim.nodes[0].stats.duty, BT_ADMIN_STATE_ON);
    sim_duty(0, 0, BT_ADMIN_STATE_OFF);
    sim_rounds(2);
    assert_int_equal(sim.nodes[0].stats.duty, BT_ADMIN_STATE_OFF);
    off = sim_request_of(0, 0, 0, 9, 8);
    sim_settle();
    sim_check_answered(before);
    assert_int_equal(off->legs[1].status, BT_ERR_BUSY);
    assert_false(sim.nodes[0].over);

    sim_duty(0, 0, BT_ADMIN_STATE_ON);
    sim_rounds(2);
    assert_int_equal(sim.nodes[0].stats.duty, BT_ADMIN_STATE_ON);
    on = sim_request_of(0, 0, 0, 9, 8);
    sim_rounds(2);
    sim_duty(0, 0, BT_ADMIN_STATE_END);
    sim_duty(0, 0, BT_ADMIN_STATE_ON); /* that is not taken back */
    sim_duty(0, 0, BT_ADMIN_STATE_END + 1);
    sim_settle();
    sim_check_answered(on);
    sim_rounds(2);
    assert_true(sim.nodes[0].over);
    assert_int_equal(sim.nodes[0].code, 0);
    sim_check_empty();
    sim_close();
    bt_test_expect_log_lines(1);
}

/* Requests in all directions between workers of both roles, with pools of a few
 * sequences, and nothing that would end them but their answer: no deadline, no
 * cancel. Prompts are of at most half the pool (of 14 blocks, 7 = 28 tokens),
 * and so are sequences. */
static void workers_of_both_roles_do_not_deadlock_on_blocks(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        uint32_t n_withdrawn = 0;

        rng = seed;
        sim_open_roles(2 + seed % 2, two_of_both, 14,
                       (seed % 4 < 2) ? BT_KVT_PATH_AUTO : BT_KVT_PATH_NETWORK);
        bt_log_init("sim", BT_LOG_LEVEL_ERROR);
        for (uint32_t i = 0; i < 60; i++) {
            const uint32_t p = below(sim.n_nodes);
            const uint32_t d = below(sim.n_nodes);
            const uint32_t n_tokens = 1 + below(20);
            const uint32_t max_new = 1 + below(28 - n_tokens);

            (void)sim_request(below(SIM_ROUTERS), p, d, n_tokens, max_new);
            sim_rounds(below(3));
        }
        sim_settle();
        for (uint32_t i = 0; i < sim.n_reqs; i++) {
            sim_check_answered(&sim.reqs[i]);
            n_withdrawn += sim.reqs[i].legs[1].n_failed;
        }
        assert_int_equal(n_withdrawn, 0);
        sim_check_empty();
        sim_close();
    }
}

/* The same with some that are larger than half the pool: a lease may be taken
 * back then, which the router answers with another attempt. All end. */
static void request_over_its_block_share_completes(void **state)
{
    uint32_t n_answered = 0;
    uint32_t n_requests = 0;

    (void)state;
    sim_expect_failures();
    for (uint32_t seed = 1; seed <= 60; seed++) {
        rng = seed;
        sim_open_roles(2 + seed % 2, two_of_both, 12, BT_KVT_PATH_AUTO);
        bt_log_init("sim", BT_LOG_LEVEL_ERROR);
        sim.cut_losses = true;
        for (uint32_t i = 0; i < 40; i++) {
            const uint32_t p = below(sim.n_nodes);
            const uint32_t d = below(sim.n_nodes);
            const uint32_t n_tokens = 1 + below(40); /* of 48 */
            const uint32_t max_new = 1 + below(8);

            (void)sim_request(below(SIM_ROUTERS), p, d, n_tokens, max_new);
            sim_rounds(below(4));
        }
        sim_settle();
        for (uint32_t i = 0; i < sim.n_reqs; i++) {
            const sim_leg_t *leg = &sim.reqs[i].legs[1];

            n_answered += sim.reqs[i].finished;
            if (leg->n_failed > 0) {
                assert_true((leg->status == BT_ERR_BUSY) ||
                            (leg->status == BT_ERR_CANCELED));
            }
        }
        n_requests += sim.n_reqs;
        sim_check_empty();
        sim_close();
    }
    print_message("%u of %u were answered at the first attempt\n", n_answered,
                  n_requests);
    assert_true(n_answered > n_requests * 9 / 10);
    sim_expected();
}

/* Two decode workers have leased nearly all of their blocks when both become
 * prefill workers, of each other's leases: the one that loses patience takes a
 * lease back, and all goes on. */
static void leases_of_the_previous_role_are_revoked(void **state)
{
    static const uint32_t roles[] = {BT_ROLE_DECODE, BT_ROLE_DECODE};
    sim_req_t *reqs[2];

    (void)state;
    sim_expect_failures();
    sim_open_roles(2, roles, 8, BT_KVT_PATH_AUTO);
    sim.cut_losses = true;
    sim.nodes[1].config.dead_ms = 400; /* patience: 503 ms against 101 */
    sim_peer(0, 0, 1);
    sim_peer(0, 1, 0);
    for (uint32_t i = 0; i < 2; i++) { /* 27 tokens: 7 of 8 blocks */
        reqs[i] = sim_req_new(0, i, 1 - i, 20, 8);
        sim_send_leg(reqs[i], 1, BT_REQUEST_GENERATE, 0, 0);
    }
    sim_rounds(3);
    assert_int_equal(sim.nodes[0].w.admit.leased_blocks, 7);
    assert_int_equal(sim.nodes[1].w.admit.leased_blocks, 7);
    for (uint32_t i = 0; i < 2; i++) {
        sim_role(0, i, BOTH);
        sim_send_leg(reqs[i], 0, BT_REQUEST_PREFILL, 0, 0);
    }
    sim_rounds(4);
    for (uint32_t i = 0; i < 2; i++) { /* now they are granted */
        sim_pass_grant(reqs[i]);
    }
    sim_rounds(90);
    assert_int_equal(reqs[0]->n_got + reqs[1]->n_got, 0);
    sim_settle();
    /* Node 0 gave up its lease, so that its context phase could run. */
    assert_int_equal(reqs[1]->legs[1].status, BT_ERR_BUSY);
    sim_check_answered(reqs[0]);
    sim_check_empty();
    sim_close();
    sim_expected();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(single_worker_of_both_roles_answers),
        BT_TEST(workers_of_both_roles_send_each_other_kv),
        BT_TEST(running_requests_keep_their_role_after_a_change),
        BT_TEST(request_for_the_previous_role_is_served),
        BT_TEST(invalid_role_is_refused),
        BT_TEST(grant_for_the_other_role_is_ignored),
        BT_TEST(worker_of_both_roles_drains),
        BT_TEST(draining_worker_takes_requests_only_after_resume),
        BT_TEST(workers_of_both_roles_do_not_deadlock_on_blocks),
        BT_TEST(request_over_its_block_share_completes),
        BT_TEST(leases_of_the_previous_role_are_revoked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
