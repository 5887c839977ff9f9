/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probs and logits: right values, once, in order, from whichever worker
 * computes them. sim_router.c compares each with what the model says. */
#include <string.h>

#include "tests/unit/worker/sim.h"

#define ALL                                                        \
    (BT_WANT_LOGPROBS | BT_WANT_PROMPT_LOGPROBS | BT_WANT_LOGITS | \
     BT_WANT_PROMPT_LOGITS)
#define N_PROMPT 30u
#define MAX_NEW  6u

static void open_wanting(uint32_t what, uint32_t n_top)
{
    sim_open(1, 32, 64, BT_KVT_PATH_AUTO);
    sim.wants = (bt_wants_t){.what = what, .n_top = n_top};
}

static void close_all(void)
{
    sim_check_empty();
    for (uint32_t i = 0; i < sim.n_nodes; i++) {
        assert_true(bt_list_empty(&sim.nodes[i].w.row_output.rows));
    }
    sim_close();
}

/* All that was asked for is with the router. */
static void check_told(const sim_req_t *req)
{
    const uint32_t what = req->wants.what;
    const uint32_t n_out = req->n_want - req->n_tokens;

    assert_int_equal(req->n_scores,
                     ((what & BT_WANT_LOGPROBS) != 0) ? n_out : 0);
    assert_int_equal(req->n_told, ((what & BT_WANT_PROMPT_LOGPROBS) != 0)
                                      ? req->n_tokens - 1
                                      : 0);
    for (uint32_t i = 0; i < SIM_CONTEXT; i++) {
        assert_int_equal(
            req->context_floats[i],
            (((what & BT_WANT_PROMPT_LOGITS) != 0) && (i < req->n_tokens))
                ? SIM_VOCAB
                : 0);
        assert_int_equal(
            req->output_floats[i],
            (((what & BT_WANT_LOGITS) != 0) && (i < n_out)) ? SIM_VOCAB : 0);
    }
}

static void log_probs_and_logits_come_alone_and_combined(void **state)
{
    (void)state;
    for (uint32_t what = 0; what <= ALL; what++) {
        sim_req_t *reqs[3];

        open_wanting(what, what % 3);
        reqs[0] = sim_request_of(0, 0, 1, N_PROMPT, MAX_NEW);
        reqs[1] = sim_request_of(1, 0, 1, N_PROMPT + 3, MAX_NEW);
        reqs[2] = sim_request_of(0, 1, 1, N_PROMPT, MAX_NEW); /* local */
        sim_settle();
        for (uint32_t i = 0; i < 3; i++) {
            sim_check_answered(reqs[i]);
            check_told(reqs[i]);
        }
        close_all();
    }
}

static void one_token_prompt_has_no_log_prob(void **state)
{
    sim_req_t *req;

    (void)state;
    open_wanting(ALL, 1);
    req = sim_request_of(0, 0, 1, 1, MAX_NEW);
    sim_settle();
    sim_check_answered(req);
    check_told(req);
    close_all();
}

/* The second one finds the prompt of the first in the index, and must not use
 * it where its rows are asked for; where they are not, it does. */
static void prompt_logits_bypass_the_prefix_cache(void **state)
{
    (void)state;
    for (uint32_t what = BT_WANT_LOGPROBS; what <= ALL; what++) {
        const bool of_prompt = (what & BT_WANT_ANY_OF_PROMPT) != 0;
        sim_req_t *first;
        sim_req_t *again;
        uint64_t before;

        open_wanting(what, 2);
        first = sim_request_of(0, 0, 1, N_PROMPT, MAX_NEW);
        sim_settle();
        before = sim.nodes[0].w.stats.tokens_reused;
        again = sim_req_new(0, 0, 1, N_PROMPT, MAX_NEW);
        memcpy(again->want, first->want, sizeof(again->want));
        again->n_want = first->n_want;
        sim_send_leg(again, 0, BT_REQUEST_PREFILL, 0, 0);
        sim_send_leg(again, 1, BT_REQUEST_GENERATE, 0, 0);
        sim_settle();
        sim_check_answered(again);
        check_told(again);
        assert_int_equal(sim.nodes[0].w.stats.tokens_reused > before,
                         !of_prompt);
        close_all();
    }
}

static void each_choice_has_its_own_log_probs(void **state)
{
    (void)state;
    for (uint32_t what = 0; what <= ALL; what++) {
        sim_req_t *first;

        if ((what & BT_WANT_ANY_OF_PROMPT) != 0) {
            continue;
        }
        open_wanting(what, 2);
        first = sim_group_of(0, 0, 1, 3, N_PROMPT, MAX_NEW);
        sim_settle();
        for (uint32_t i = 0; i < 3; i++) {
            sim_check_answered(&first[i]);
            check_told(&first[i]);
        }
        close_all();
    }
}

static void prompt_logits_are_refused_for_groups(void **state)
{
    sim_req_t *first;

    (void)state;
    open_wanting(BT_WANT_PROMPT_LOGPROBS, 0);
    sim_expect_failures();
    first = sim_group_of(0, 0, 1, 2, N_PROMPT, MAX_NEW);
    sim_settle();
    sim_expected();
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(first[i].legs[0].status, BT_ERR_MISMATCH);
    }
    close_all();
}

/* As a router asks again, after a loss, for what it has no answer to yet. */
static void retry_sends_only_the_remaining_rows(void **state)
{
    (void)state;
    for (uint32_t n_known = 1; n_known < MAX_NEW - 1; n_known++) {
        sim_req_t *req;
        bt_msg_t msg;

        open_wanting(BT_WANT_LOGPROBS | BT_WANT_LOGITS, 1);
        req = sim_req_new(0, 0, 1, N_PROMPT, MAX_NEW);
        while (req->n_want < N_PROMPT + MAX_NEW) {
            req = sim_req_new(0, 0, 1, N_PROMPT, MAX_NEW);
        }
        for (uint32_t k = 0; k < 2; k++) {
            const uint32_t kind =
                (k == 0) ? BT_REQUEST_PREFILL : BT_REQUEST_GENERATE;

            sim_make_leg(req, k, kind, 0, 0, &msg);
            msg.u.request.n_tokens = N_PROMPT + n_known;
            msg.u.request.max_new = MAX_NEW - n_known;
            req->legs[k].link = sim.nodes[k].links[0];
            sim_router_send(0, k, &msg);
        }
        sim_settle();
        assert_int_equal(req->n_got, MAX_NEW - n_known);
        assert_int_equal(req->n_scores, MAX_NEW - n_known);
        for (uint32_t i = 0; i < MAX_NEW; i++) {
            assert_int_equal(req->output_floats[i],
                             (i < n_known) ? 0 : SIM_VOCAB);
        }
        close_all();
    }
}

/* Tokens and log-probs do not wait for room on the link; logits do, and so does
 * the end of their request, which holds nothing else meanwhile. */
static void logits_wait_for_link_capacity_without_delaying_others(void **state)
{
    sim_req_t *req;
    bt_link_t *links[2];

    (void)state;
    open_wanting(ALL, 2);
    for (uint32_t i = 0; i < 2; i++) {
        links[i] = sim.nodes[i].links[0];
        links[i]->full = true;
    }
    req = sim_request_of(0, 0, 1, N_PROMPT, MAX_NEW);
    sim_rounds(200);
    assert_int_equal(req->n_got, MAX_NEW);
    assert_int_equal(req->n_scores, MAX_NEW);
    assert_int_equal(req->n_told, N_PROMPT - 1);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(req->legs[i].n_ended, 0);
        assert_int_equal(links[i]->n_pieces, 0);
        assert_true(links[i]->asked_for_room);
        assert_int_equal(sim_n_free(&sim.nodes[i]), (i == 0) ? 32 : 64);
        links[i]->full = false;
    }
    sim_settle();
    sim_check_answered(req);
    check_told(req);
    assert_int_equal(req->legs[0].n_ended, 1);
    assert_int_equal(req->legs[1].n_ended, 1);
    close_all();
}

static void cancel_ends_a_request_waiting_for_link_capacity(void **state)
{
    sim_req_t *req;

    (void)state;
    open_wanting(ALL, 0);
    for (uint32_t i = 0; i < 2; i++) {
        sim.nodes[i].links[0]->full = true;
    }
    req = sim_request_of(0, 0, 1, N_PROMPT, MAX_NEW);
    sim_rounds(200);
    assert_int_equal(req->legs[0].n_ended + req->legs[1].n_ended, 0);
    sim_cancel(req);
    sim_settle();
    assert_int_equal(req->legs[0].n_ended, 1);
    assert_int_equal(req->legs[1].n_ended, 1);
    assert_int_equal(sim.nodes[0].links[0]->n_pieces, 0);
    close_all();
}

static void lost_router_ends_requests_waiting_for_link_capacity(void **state)
{
    sim_req_t *req;

    (void)state;
    open_wanting(ALL, 0);
    for (uint32_t i = 0; i < 2; i++) {
        sim.nodes[i].links[0]->full = true;
    }
    req = sim_request_of(0, 0, 1, N_PROMPT, MAX_NEW);
    sim_rounds(200);
    assert_int_equal(req->n_got, MAX_NEW);
    for (uint32_t i = 0; i < 2; i++) {
        sim_link_over(sim.nodes[i].links[0], "gone");
    }
    sim_settle();
    close_all();
}

static void request_with_log_probs_can_be_canceled_at_any_time(void **state)
{
    (void)state;
    for (uint32_t at = 0; at < 40; at++) {
        sim_req_t *req;
        sim_req_t *other;

        open_wanting(ALL, 2);
        req = sim_request_of(0, 0, 1, N_PROMPT, MAX_NEW);
        other = sim_request_of(0, 0, 1, N_PROMPT, MAX_NEW);
        sim_rounds(at);
        sim_cancel(req);
        sim_settle();
        sim_check_answered(other);
        check_told(other);
        close_all();
    }
}

static void logits_over_the_limit_are_refused_by_name(void **state)
{
    sim_req_t *req;

    (void)state;
    open_wanting(BT_WANT_PROMPT_LOGITS, 0);
    sim.cut_losses = true;
    sim.nodes[0].config.max_logits_bytes =
        N_PROMPT * SIM_VOCAB * sizeof(float) - 1;
    sim_expect_failures();
    req = sim_request_of(0, 0, 1, N_PROMPT, 1);
    sim_settle();
    sim_expected();
    assert_int_equal(req->legs[0].status, BT_ERR_TOO_LARGE);
    sim.nodes[0].config.max_logits_bytes++;
    req = sim_request_of(0, 0, 1, N_PROMPT, 1);
    sim_settle();
    sim_check_answered(req);
    check_told(req);
    close_all();
}

static void top_logprobs_over_the_limit_are_refused(void **state)
{
    sim_req_t *req;

    (void)state;
    open_wanting(BT_WANT_LOGPROBS, BT_MAX_TOP_LOGPROBS + 1);
    sim_expect_failures();
    req = sim_request_of(0, 0, 1, N_PROMPT, MAX_NEW);
    sim_settle();
    sim_expected();
    assert_int_equal(req->legs[0].status, BT_ERR_UNSUPPORTED);
    close_all();
}

/* KV that was given up is computed again when its grant comes, and nothing is
 * told twice. */
static void recomputed_prompt_sends_no_row_twice(void **state)
{
    sim_req_t *held[3];

    (void)state;
    open_wanting(
        BT_WANT_LOGPROBS | BT_WANT_PROMPT_LOGPROBS | BT_WANT_PROMPT_LOGITS, 1);
    sim_close();
    sim_open(1, 16, 64, BT_KVT_PATH_AUTO);
    sim.wants = (bt_wants_t){.what = ALL, .n_top = 1};
    for (uint32_t i = 0; i < 2; i++) { /* 8 blocks of 16, the share */
        held[i] = sim_request_of(0, 0, 1, 16, MAX_NEW);
        held[i]->hold_grant = true;
    }
    sim_rounds(100);
    held[2] = sim_request_of(0, 0, 1, 40, MAX_NEW); /* 10 blocks, granted */
    sim_rounds(100);
    for (uint32_t i = 0; i < 2; i++) {
        sim_pass_grant(held[i]);
    }
    sim_settle();
    for (uint32_t i = 0; i < 3; i++) {
        sim_check_answered(held[i]);
        check_told(held[i]);
    }
    assert_true(sim.nodes[0].w.stats.prompt_tokens > 16 + 16 + 40);
    close_all();
}

/* The nth allocation of the turn in which the REQUEST comes fails.
 * @return whether it was answered all the same */
static bool one_allocation_fails(int nth)
{
    sim_req_t *req;
    bool answered;

    open_wanting(ALL, 2);
    sim.cut_losses = true;
    sim_rounds(2);
    req = sim_request_of(0, 0, 1, N_PROMPT, MAX_NEW);
    sim.fail_node = &sim.nodes[0];
    sim.fail_nth = nth;
    sim_round();
    sim.fail_node = NULL;
    sim_rounds(100);
    answered = req->finished;
    if (answered) {
        check_told(req);
    } else {
        sim_cancel(req);
    }
    sim_settle();
    close_all();
    return answered;
}

static void failed_row_allocation_ends_only_its_request(void **state)
{
    int nth = 1;

    (void)state;
    sim_expect_failures();
    while (!one_allocation_fails(nth)) {
        nth++;
        assert_true(nth < 64);
    }
    sim_expected();
    /* A job, its tokens, its table; scratch, rows and four arrays of them. */
    assert_true(nth > 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(log_probs_and_logits_come_alone_and_combined),
        BT_TEST(one_token_prompt_has_no_log_prob),
        BT_TEST(prompt_logits_bypass_the_prefix_cache),
        BT_TEST(each_choice_has_its_own_log_probs),
        BT_TEST(prompt_logits_are_refused_for_groups),
        BT_TEST(retry_sends_only_the_remaining_rows),
        BT_TEST(logits_wait_for_link_capacity_without_delaying_others),
        BT_TEST(cancel_ends_a_request_waiting_for_link_capacity),
        BT_TEST(lost_router_ends_requests_waiting_for_link_capacity),
        BT_TEST(request_with_log_probs_can_be_canceled_at_any_time),
        BT_TEST(logits_over_the_limit_are_refused_by_name),
        BT_TEST(top_logprobs_over_the_limit_are_refused),
        BT_TEST(recomputed_prompt_sends_no_row_twice),
        BT_TEST(failed_row_allocation_ends_only_its_request),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
