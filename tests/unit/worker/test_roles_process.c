/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker refuses, how it stops, and what it does without memory. */
#include "tests/unit/worker/sim.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "prefill_worker/prefill.h"

#define HELD_ROUNDS 30u

static void send_changed(sim_req_t *req, uint32_t k, const bt_msg_t *msg)
{
    const uint32_t node = (k == 0) ? req->p : req->d;

    req->legs[k].link = sim.nodes[node].links[req->router];
    sim_router_send(req->router, node, msg);
}

static void check_refused(sim_req_t *req, uint32_t k, bt_status_t status)
{
    sim_rounds(2);
    assert_int_equal(req->legs[k].status, status);
    assert_int_equal(req->legs[k].n_failed, 1);
    assert_int_equal(req->legs[k].n_ended, 1);
    assert_int_equal(sim.nodes[(k == 0) ? req->p : req->d].w.n_jobs, 0);
}

static void request_over_the_limits_is_refused_at_once(void **state)
{
    sim_req_t *req;
    bt_msg_t msg;

    (void)state;
    sim_expect_failures();
    sim_open(1, 8, 32, BT_KVT_PATH_AUTO);

    req = sim_req_new(0, 0, 1, 90, 7); /* 97 of a context of 96 */
    sim_send_leg(req, 1, BT_REQUEST_GENERATE, 0, 0);
    check_refused(req, 1, BT_ERR_INVALID_PARAM);

    req = sim_req_new(0, 0, 1, 10, 7);
    sim_make_leg(req, 1, BT_REQUEST_GENERATE, 0, 0, &msg);
    msg.u.request.max_new = BT_WIRE_MAX_TOKENS;
    send_changed(req, 1, &msg);
    check_refused(req, 1, BT_ERR_INVALID_PARAM);

    req = sim_req_new(0, 0, 1, 33, 7); /* 9 blocks of 8 */
    sim_send_leg(req, 0, BT_REQUEST_PREFILL, 0, 0);
    check_refused(req, 0, BT_ERR_NO_BLOCKS);

    req = sim_req_new(0, 0, 1, 9, 7);
    req->want[3] = SIM_VOCAB;
    sim_send_leg(req, 0, BT_REQUEST_PREFILL, 0, 0);
    check_refused(req, 0, BT_ERR_INVALID_PARAM);

    for (uint32_t kind = BT_REQUEST_PREFILL; kind <= BT_REQUEST_GENERATE;
         kind++) {
        req = sim_req_new(0, 0, 1, 9, 7); /* to itself */
        sim_make_leg(req, 1, kind, 0, 0, &msg);
        msg.u.request.peer = sim.nodes[1].w.instance;
        send_changed(req, 1, &msg);
        check_refused(req, 1, BT_ERR_INVALID_PARAM);
    }

    /* Peer 0 would be a window that anybody may write. */
    req = sim_req_new(0, 0, 1, 9, 7);
    sim_make_leg(req, 1, BT_REQUEST_GENERATE, 0, 0, &msg);
    msg.u.request.peer = 0;
    send_changed(req, 1, &msg);
    check_refused(req, 1, BT_ERR_INVALID_PARAM);

    sim_check_empty();
    sim_close();
    sim_expected();
}

/* Its answers could not be told apart: whoever does that is broken. */
static void duplicate_request_ends_the_link(void **state)
{
    sim_req_t *req;
    sim_req_t *other;

    (void)state;
    sim_expect_failures();
    sim_open(1, 64, 64, BT_KVT_PATH_AUTO);
    other = sim_request_of(1, 0, 1, 21, 6);
    req = sim_request_of(0, 0, 1, 21, 6);
    sim_send_leg(req, 0, BT_REQUEST_PREFILL, 0, 0);
    sim_rounds(2);
    assert_null(sim.nodes[0].links[0]);
    sim_cancel(req);
    sim_settle();
    sim_check_answered(other);
    sim_check_empty();
    sim_close();
    sim_expected();
}

static void malformed_message_ends_the_link(void **state)
{
    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    sim_rounds(2);
    sim_queue(sim.nodes[1].links[0], BT_LINK_MESSAGE, "\xc1", 1);
    sim_rounds(2);
    assert_null(sim.nodes[1].links[0]);
    assert_int_equal(sim.nodes[1].w.n_links, 1);
    sim_close();
    sim_expected();
}

static void messages_for_other_roles_are_only_logged(void **state)
{
    const bt_msg_t drain = {.type = BT_MSG_DRAIN};
    const bt_wire_region_t window = {.blob = (const uint8_t *)"x",
                                     .blob_bytes = 1};
    bt_msg_t grant = {.type = BT_MSG_GRANT};
    bt_msg_t cancel = {.type = BT_MSG_CANCEL};

    (void)state;
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    sim_router_send(0, 1, &drain);
    grant.u.grant.regions = &window;
    grant.u.grant.n_regions = 1;
    sim_router_send(0, 0, &grant);  /* of nobody: canceled meanwhile */
    sim_router_send(0, 0, &cancel); /* ended meanwhile */
    sim_peer(0, 1, 1);              /* itself */
    sim_peer_gone(0, 1, 1);
    sim_rounds(3);
    assert_non_null(sim.nodes[0].links[0]);
    assert_non_null(sim.nodes[1].links[0]);
    sim_close();
    bt_test_expect_log_lines(1);
}

static void sigterm_finishes_running_requests_and_refuses_new_ones(void **state)
{
    sim_req_t *req;
    sim_req_t *late;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    req = sim_request_of(0, 0, 1, 21, 8);
    sim_rounds(2);
    bt_link_close(sim.nodes[1].links[1], "gone");
    sim_terminate(&sim.nodes[0]);
    sim_terminate(&sim.nodes[1]);
    sim_rounds(2);
    sim_link_up(1, 1); /* it comes back and has to be told as well */
    late = sim_request_of(0, 0, 1, 9, 4);
    sim_rounds(2);
    assert_int_equal(sim.nodes[1].links[0]->n_drains, 1);
    assert_int_equal(sim.nodes[1].links[1]->n_drains, 1);
    assert_int_equal(late->legs[0].status, BT_ERR_BUSY);
    assert_int_equal(late->legs[1].status, BT_ERR_BUSY);
    sim_settle();
    sim_check_answered(req);
    assert_true(sim.nodes[0].over && sim.nodes[1].over);
    assert_int_equal(sim.nodes[0].code, 0);
    assert_int_equal(sim.nodes[1].code, 0);
    sim_check_empty();
    sim_close();
    sim_expected();
}

static void sigterm_does_not_wait_for_a_lost_router(void **state)
{
    sim_req_t *req;

    (void)state;
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    req = sim_request_of(0, 0, 1, 21, 8);
    req->hold_grant = true; /* for ever */
    sim_rounds(10);
    sim_terminate(&sim.nodes[0]);
    sim_rounds(3);
    assert_false(sim.nodes[0].over);
    bt_link_close(sim.nodes[0].links[0], "gone");
    sim_rounds(3);
    assert_true(sim.nodes[0].over);
    sim_close();
}

/* It has had a signal; another one comes a second after that. */
static void terminate_again(sim_node_t *node)
{
    assert_true(node->w.draining);
    node->w.wishes.first_ms -= BT_STOP_SAME_MS;
    sim_terminate(node);
}

static void sigterm_waits_at_most_the_drain_limit(void **state)
{
    sim_req_t *req;

    (void)state;
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    req = sim_request_of(0, 0, 1, 21, 8);
    req->hold_grant = true;
    sim_rounds(10);
    sim_terminate(&sim.nodes[0]);
    sim_rounds(450); /* drain_ms is 500 */
    assert_false(sim.nodes[0].over);
    sim_terminate(&sim.nodes[1]);
    sim_rounds(60);
    assert_true(sim.nodes[0].over);
    assert_false(sim.nodes[1].over);
    sim_terminate(&sim.nodes[1]); /* the same wish */
    sim_rounds(2);
    assert_false(sim.nodes[1].over);
    terminate_again(&sim.nodes[1]); /* the second one means it */
    sim_rounds(2);
    assert_true(sim.nodes[1].over);
    assert_int_equal(sim.nodes[1].w.n_jobs, 1);
    sim_close(); /* with what they hold: nothing leaks (sanitizers look) */
    assert_int_equal(req->legs[0].n_ended + req->legs[1].n_ended, 0);
}

/* With a transfer under way on both sides. */
static void worker_that_ends_at_once_leaks_nothing(void **state)
{
    sim_req_t *req;

    (void)state;
    sim_open(1, 32, 32, BT_KVT_PATH_NETWORK);
    req = sim_request_of(0, 0, 1, 40, 8);
    sim_rounds(5); /* of 40 / 8 iterations: blocks are sent */
    assert_int_equal(sim.nodes[0].w.prefill->n_xfers, 1);
    for (uint32_t i = 0; i < 2; i++) {
        sim_terminate(&sim.nodes[i]);
    }
    sim_rounds(1);
    for (uint32_t i = 0; i < 2; i++) {
        terminate_again(&sim.nodes[i]);
    }
    sim_rounds(2);
    assert_true(sim.nodes[0].over && sim.nodes[1].over);
    assert_int_equal(sim.nodes[0].w.n_jobs, 1);
    sim_close(); /* sanitizers look */
    assert_int_equal(req->legs[0].n_ended + req->legs[1].n_ended, 0);
}

/* The nth allocation in one turn of a worker fails, at each point of a
 * request's life. @return whether the request was answered all the same */
static bool one_allocation_fails(uint32_t node, uint32_t at, int nth)
{
    sim_req_t *req;
    bool answered;

    sim_open(1, 32, 32,
             (nth % 2 == 0) ? BT_KVT_PATH_AUTO : BT_KVT_PATH_NETWORK);
    sim.cut_losses = true;
    sim_rounds(2);
    req = sim_request_of(0, 0, 1, 21, 6);
    sim_rounds(at);
    sim.fail_node = &sim.nodes[node];
    sim.fail_nth = nth;
    sim_round();
    sim.fail_node = NULL;
    sim_rounds(60);
    answered = req->finished;
    if (!answered) {
        sim_cancel(req);
    }
    sim_settle();
    sim_check_empty();

    for (uint32_t i = 0; i < 2; i++) {
        sim_link_up(0, i);
    }
    sim_peer(0, 0, 1);
    req = sim_request_of(0, 0, 1, 21, 6);
    sim_settle();
    sim_check_answered(req);
    sim_check_empty();
    sim_close();
    return answered;
}

static void failed_allocation_ends_only_its_request(void **state)
{
    uint32_t n_lost = 0;

    (void)state;
    sim_expect_failures();
    bt_log_init("sim", BT_LOG_LEVEL_ERROR);
    for (uint32_t at = 0; at < 12; at++) {
        for (int nth = 1; nth <= 8; nth++) {
            n_lost += one_allocation_fails(0, at, nth) ? 0 : 1;
            n_lost += one_allocation_fails(1, at, nth) ? 0 : 1;
        }
    }
    assert_true(n_lost > 10);
    sim_expected();
}

static void routers_over_the_limit_are_refused(void **state)
{
    bt_worker_link_t filler[14];
    bt_worker_t *w;

    (void)state;
    sim_open(1, 8, 8, BT_KVT_PATH_AUTO);
    sim_rounds(2);
    w = &sim.nodes[1].w;
    assert_int_equal(w->n_links, 2);
    bt_link_close(sim.nodes[1].links[1], "gone");
    sim_rounds(2);
    for (uint32_t i = 0; i < 15; i++) { /* 16 places */
        w->links[w->n_links++] = &filler[i % 14];
    }
    memset(filler, 0, sizeof(filler));
    sim_link_up(1, 1);
    sim_turn(&sim.nodes[1]);
    assert_null(sim.nodes[1].links[1]);
    w->n_links = 1;
    sim_close();
}

static void router_of_another_protocol_is_refused_by_name(void **state)
{
    const bt_wire_range_t newer = {.oldest = 7, .newest = 9};
    const bt_wire_range_t overlapping = {.oldest = 2, .newest = 9};
    sim_node_t *node;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    node = &sim.nodes[1];
    snprintf(node->w.name, sizeof(node->w.name), "decode-1");
    sim_link_over(node->links[1], "a new version is installed");
    sim_rounds(2);
    sim_link_up_speaking(1, 1, newer);
    sim_rounds(2);
    assert_null(node->links[1]);
    assert_string_equal(node->closed_why,
                        "router router-1 speaks protocol 7 to 9, decode-1 "
                        "speaks 4");
    sim_link_up_speaking(1, 1, overlapping);
    sim_rounds(2);
    assert_non_null(node->links[1]);
    assert_int_equal(node->w.n_links, 2);
    sim_close();
    sim_expected();
}

/* By hand: array of 2, fixint 77, nil. */
static void unknown_message_type_keeps_the_link(void **state)
{
    static const uint8_t later[] = {0x92, 77, 0xc0};
    const uint64_t n_lines = bt_log_count(BT_LOG_LEVEL_WARN);
    sim_req_t *req;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    for (uint32_t i = 0; i < 9; i++) { /* said once; a tenth would be again */
        for (uint32_t k = 0; k < 2; k++) {
            sim_queue(sim.nodes[k].links[0], BT_LINK_MESSAGE, later,
                      sizeof(later));
        }
    }
    req = sim_request_of(0, 0, 1, 21, 6);
    sim_settle();
    sim_check_answered(req);
    assert_int_equal(bt_log_count(BT_LOG_LEVEL_WARN) - n_lines, 2);
    sim_check_empty();
    sim_close();
    sim_expected();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(request_over_the_limits_is_refused_at_once),
        BT_TEST(duplicate_request_ends_the_link),
        BT_TEST(malformed_message_ends_the_link),
        BT_TEST(messages_for_other_roles_are_only_logged),
        BT_TEST(sigterm_finishes_running_requests_and_refuses_new_ones),
        BT_TEST(sigterm_does_not_wait_for_a_lost_router),
        BT_TEST(sigterm_waits_at_most_the_drain_limit),
        BT_TEST(worker_that_ends_at_once_leaks_nothing),
        BT_TEST(failed_allocation_ends_only_its_request),
        BT_TEST(routers_over_the_limit_are_refused),
        BT_TEST(router_of_another_protocol_is_refused_by_name),
        BT_TEST(unknown_message_type_keeps_the_link),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
