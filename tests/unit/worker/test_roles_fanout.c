/* SPDX-License-Identifier: Apache-2.0 */
/* Choices of one prompt at both workers: computed, sent and held once, and each
 * answered as if it were alone, whatever becomes of the others. */
#include "tests/unit/worker/sim.h"

#include <string.h>

#include "common/base/log.h"
#include "decode_worker/decode.h"
#include "prefill_worker/prefill.h"

#define HELD_ROUNDS 30u
#define N           3u

static void check_all_answered(const sim_req_t *first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        sim_check_answered(&first[i]);
    }
}

static uint64_t bytes_sent(uint32_t node)
{
    bt_kvt_counters_t kvt;

    bt_kvt_counters(sim.nodes[node].w.kvt, &kvt);
    return kvt.bytes_sent;
}

static void send_legs(sim_req_t *first, uint32_t n, uint32_t deadline_ms)
{
    for (uint32_t i = 0; i < n; i++) {
        sim_send_leg(&first[i], 0, BT_REQUEST_PREFILL, deadline_ms, 0);
        sim_send_leg(&first[i], 1, BT_REQUEST_GENERATE, deadline_ms, 0);
    }
}

/* Prompts of less than a block, of whole blocks and of both: 3, 16 and 21
 * tokens in blocks of 4 are 1, 4 and 6 of them. */
static void a_prompt_is_computed_and_sent_once_over(bt_kvt_path_t path)
{
    static const uint32_t lengths[] = {3, 16, 21};
    static const uint32_t blocks[] = {1, 4, 6};

    for (uint32_t n = 2; n <= SIM_MAX_SEQS; n++) {
        for (uint32_t k = 0; k < BT_ARRAY_LEN(lengths); k++) {
            const sim_req_t *first;

            sim_open(1, 32, 64, path);
            first = sim_group_of(0, 0, 1, n, lengths[k], 6);
            sim_settle();
            check_all_answered(first, n);
            for (uint32_t i = 0; i < n; i++) {
                assert_int_equal(first[i].n_prefilled, 1);
                assert_int_equal(first[i].n_joined, 1);
                assert_int_equal(first[i].grant != NULL, i == 0);
            }
            assert_int_equal(sim.nodes[0].w.stats.prompt_tokens, lengths[k]);
            assert_int_equal(sim.nodes[0].w.stats.tokens_generated, n);
            assert_int_equal(sim.nodes[1].w.stats.tokens_generated, n * 5);
            assert_int_equal(bytes_sent(0),
                             blocks[k] * sim.nodes[0].w.block_bytes);
            sim_check_empty();
            sim_close();
        }
    }
}

static void group_prompt_is_computed_and_sent_once(void **state)
{
    (void)state;
    a_prompt_is_computed_and_sent_once_over(BT_KVT_PATH_AUTO);
}

static void
group_prompt_is_computed_and_sent_once_over_the_network(void **state)
{
    (void)state;
    a_prompt_is_computed_and_sent_once_over(BT_KVT_PATH_NETWORK);
}

/* 21 tokens and 6 of each answer are 26 positions in 7 blocks: 5 that all have,
 * 2 of each one's own. */
static void decode_worker_holds_a_group_prompt_once(void **state)
{
    (void)state;
    sim_open(1, 32, 64, BT_KVT_PATH_AUTO);
    (void)sim_group_of(0, 0, 1, N, 21, 6);
    sim_rounds(2);
    assert_int_equal(sim_n_free(&sim.nodes[1]), 64 - 5 - N * 2);
    assert_int_equal(sim.nodes[1].w.admit.leased_seats, N);
    assert_int_equal(sim.nodes[1].w.admit.leased_blocks, 5 + N * 2);
    sim_settle();
    sim_check_empty();
    sim_close();
}

static void local_group_prompt_is_computed_once(void **state)
{
    (void)state;
    for (uint32_t n_tokens = 16; n_tokens <= 21; n_tokens += 5) {
        const sim_req_t *first;

        sim_open(1, 32, 64, BT_KVT_PATH_AUTO);
        first = sim_group_of(0, 1, 1, N, n_tokens, 6);
        sim_settle();
        check_all_answered(first, N);
        assert_int_equal(sim.nodes[1].w.stats.prompt_tokens, n_tokens);
        sim_check_empty();
        sim_close();
    }
}

static void one_token_group_needs_no_decode_worker(void **state)
{
    sim_req_t *first;

    (void)state;
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    first = sim_group_new(0, 0, 1, N, 21, 1);
    for (uint32_t i = 0; i < N; i++) {
        sim_send_leg(&first[i], 0, BT_REQUEST_PREFILL, 0, 0);
    }
    sim_settle();
    check_all_answered(first, N);
    assert_int_equal(sim.nodes[0].w.stats.prompt_tokens, 21);
    assert_int_equal(bytes_sent(0), 0);
    sim_check_empty();
    sim_close();
}

/* The second one finds the prompt's whole blocks that leave a token to
 * compute: 20 of 22 tokens; 6 blocks are sent and then one. */
static void cached_prefix_is_used_by_the_whole_group(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < 2; p++) {
        sim_req_t *again;
        sim_req_t *first;

        sim_open(1, 64, 64, BT_KVT_PATH_AUTO);
        first = sim_group_of(0, p, 1, N, 22, 6);
        sim_settle();
        again = sim_group_new(0, p, 1, N, 22, 6);
        for (uint32_t i = 0; i < N; i++) {
            memcpy(again[i].want, first[0].want, 22 * sizeof(uint32_t));
            again[i].seed = first[i].seed;
            sim_want(&again[i]);
            if (p == 0) {
                sim_send_leg(&again[i], 0, BT_REQUEST_PREFILL, 0, 0);
            }
            sim_send_leg(&again[i], 1,
                         (p == 0) ? BT_REQUEST_GENERATE : BT_REQUEST_LOCAL, 0,
                         0);
        }
        sim_settle();
        check_all_answered(again, N);
        for (uint32_t i = 0; i < N; i++) {
            assert_memory_equal(again[i].want, first[i].want,
                                28 * sizeof(uint32_t));
        }
        assert_int_equal(sim.nodes[p].w.stats.prompt_tokens, 22 + 2);
        assert_int_equal(bytes_sent(0),
                         (p == 0) ? 7 * sim.nodes[0].w.block_bytes : 0);
        sim_check_empty();
        sim_close();
    }
}

/* Their first token is the last: of one of them, of all but one, of all. */
static void choice_ending_at_the_first_token_leaves_others_running(void **state)
{
    (void)state;
    for (uint32_t over = 1; over < (1u << N); over++) {
        sim_req_t *first;

        sim_open(1, 32, 64,
                 (over % 2 == 0) ? BT_KVT_PATH_AUTO : BT_KVT_PATH_NETWORK);
        bt_log_init("sim", BT_LOG_LEVEL_ERROR);
        first = sim_group_new(0, 0, 1, N, 21, 6);
        for (uint32_t i = 0; i < N; i++) {
            const bool ends = ((over >> i) & 1) != 0;

            while (ends ? (first[i].want[21] != SIM_END_ID)
                        : (first[i].n_want < 21 + 6)) {
                first[i].seed += 100;
                sim_want(&first[i]);
            }
        }
        send_legs(first, N, 0);
        sim_settle();
        for (uint32_t i = 0; i < N; i++) {
            assert_true(first[i].finished);
            assert_int_equal(first[i].n_got, first[i].n_want - 21);
            assert_int_equal(first[i].legs[0].n_failed, 0);
            assert_int_equal(first[i].n_joined, 1 - ((over >> i) & 1));
        }
        sim_check_empty();
        sim_close();
    }
}

/* Any of them, at any round: the prefill worker's leg first, the decode
 * worker's, or both. */
static void cancel_some(uint32_t who, uint32_t at, uint32_t leg, uint32_t p)
{
    const sim_req_t *first;

    sim_open(1, 32, 64, (at % 2 == 0) ? BT_KVT_PATH_AUTO : BT_KVT_PATH_NETWORK);
    bt_log_init("sim", BT_LOG_LEVEL_ERROR);
    first = sim_group_of(0, p, 1, N, 30, 8);
    sim_rounds(at);
    for (uint32_t i = 0; i < N; i++) {
        if (((who >> i) & 1) == 0) {
            continue;
        }
        if (leg < 2) {
            sim_cancel_leg(&first[i], leg);
            sim_rounds(2);
        }
        sim_cancel(&first[i]);
    }
    sim_settle();
    for (uint32_t i = 0; i < N; i++) {
        if (((who >> i) & 1) == 0) {
            sim_check_answered(&first[i]);
        }
    }
    sim_check_empty();
    sim_close();
}

static void cancel_of_some_choices_leaves_others_running(void **state)
{
    (void)state;
    sim_expect_failures(); /* of a leg whose other one was canceled first */
    for (uint32_t who = 1; who < (1u << N); who++) {
        for (uint32_t at = 0; at < 24; at++) {
            for (uint32_t leg = 0; leg < 3; leg++) {
                cancel_some(who, at, leg, 0);
            }
            cancel_some(who, at, 2, 1);
        }
    }
    sim_expected();
}

static void lost_router_releases_the_whole_group(void **state)
{
    (void)state;
    for (uint32_t at = 0; at < 24; at++) {
        const sim_req_t *other;

        sim_open(1, 64, 64, BT_KVT_PATH_AUTO);
        bt_log_init("sim", BT_LOG_LEVEL_ERROR);
        (void)sim_group_of(0, 0, 1, 2, 30, 8);
        other = sim_group_of(1, 0, 1, 2, 30, 8);
        sim_rounds(at);
        for (uint32_t i = 0; i < 2; i++) {
            bt_link_close(sim.nodes[i].links[0], "gone");
        }
        sim_settle();
        check_all_answered(other, 2);
        sim_check_empty();
        sim_close();
    }
}

/* The survivor gives everything back, with or without the router's word. */
static void dead_peer_ends_the_group(void **state)
{
    (void)state;
    sim_expect_failures();
    for (uint32_t at = 1; at < 24; at++) {
        for (uint32_t node = 0; node < 2; node++) {
            const sim_req_t *first;

            sim_open(1, 32, 64, BT_KVT_PATH_AUTO);
            bt_log_init("sim", BT_LOG_LEVEL_ERROR);
            sim.cut_losses = true;
            first = sim_group_of(0, 0, 1, N, 30, 8);
            sim_rounds(at);
            sim_kill(node);
            if (node == 0) {
                for (uint32_t r = 0; r < SIM_ROUTERS; r++) {
                    bt_msg_t gone = {.type = BT_MSG_PEER_GONE};

                    gone.u.peer_gone.instance = sim.nodes[0].w.instance;
                    sim_router_send(r, 1, &gone);
                }
            }
            sim_settle();
            for (uint32_t i = 0; i < N; i++) {
                assert_true(first[i].finished ||
                            (first[i].legs[1 - node].n_ended == 1));
            }
            sim_close();
        }
    }
    sim_expected();
}

static void device_failure_fails_the_whole_group(void **state)
{
    (void)state;
    sim_expect_failures();
    for (uint32_t p = 0; p < 2; p++) { /* node 1 does both phases */
        const sim_req_t *first;

        sim_open(1, 32, 64, BT_KVT_PATH_AUTO);
        first = sim_group_of(0, p, 1, N, 40, 6);
        sim_rounds(3);
        sim.nodes[p].engine.broken = true;
        sim_rounds(5);
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(first[i].legs[p].status, BT_ERR_DEVICE);
            assert_int_equal(first[i].legs[p].n_ended, 1);
        }
        assert_int_equal(sim.nodes[p].code, 70);
        sim_close();
    }
    sim_expected();
}

static void deadline_ends_the_whole_group(void **state)
{
    sim_req_t *first;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 64, BT_KVT_PATH_AUTO);
    first = sim_group_new(0, 0, 1, N, 9, 4);
    first->hold_grant = true;
    send_legs(first, N, 20);
    sim_settle();
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(first[i].legs[0].status, BT_ERR_TIMED_OUT);
        assert_int_equal(first[i].legs[1].status, BT_ERR_TIMED_OUT);
    }
    sim_check_empty();
    sim_close();
    sim_expected();
}

/* 8 blocks: 4 of the group's KV wait for the grant, another request has one and
 * needs all 8. */
static void dropped_ungranted_group_kv_is_recomputed(void **state)
{
    sim_req_t *first;
    sim_req_t *other;

    (void)state;
    sim_open(1, 8, 64, BT_KVT_PATH_AUTO);
    other = sim_req_new(0, 0, 1, 32, 6); /* begins with none of its blocks */
    first = sim_group_new(0, 0, 1, N, 16, 6);
    for (uint32_t i = 0; i < N; i++) {
        while (first[i].n_want < 22) {
            first[i].seed += 100;
            sim_want(&first[i]);
        }
    }
    first->hold_grant = true;
    send_legs(first, N, 0);
    sim_rounds(10);
    assert_int_equal(sim_n_free(&sim.nodes[0]), 4);
    send_legs(other, 1, 0);
    sim_rounds(HELD_ROUNDS);
    sim_check_answered(other);
    assert_int_equal(sim_n_free(&sim.nodes[0]), 8);
    sim_cancel(&first[1]);
    sim_pass_grant(first);
    sim_settle();
    sim_check_answered(&first[0]);
    sim_check_answered(&first[2]);
    assert_int_equal(first[2].n_prefilled, 1);
    sim_check_empty();
    sim_close();
}

/* 14 blocks: another has 7. Of 21 tokens and 6 of each answer a group of three
 * needs 5 + 3 x 2; it waits for them, and nobody overtakes it. */
static void group_waits_until_all_choices_fit(void **state)
{
    const sim_req_t *before;
    const sim_req_t *first;
    const sim_req_t *after;

    (void)state;
    sim_open(1, 64, 14, BT_KVT_PATH_AUTO);
    before = sim_request_of(0, 0, 1, 21, 6);
    sim_rounds(2);
    first = sim_group_of(0, 0, 1, N, 21, 6);
    after = sim_request_of(0, 0, 1, 9, 4);
    sim_rounds(2);
    assert_int_equal(sim.nodes[1].w.admit.leased_seats, 1);
    sim_settle();
    sim_check_answered(before);
    check_all_answered(first, N);
    sim_check_answered(after);
    sim_check_empty();
    sim_close();
}

/* Five for four seats, and three of 11 blocks for 10: each by itself would fit,
 * so that no client need hear of it. */
static void group_over_the_limits_is_refused(void **state)
{
    (void)state;
    sim_expect_failures();
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t n = (k == 0) ? SIM_MAX_SEQS + 1 : N;
        sim_req_t *first;

        sim_open(1, 64, (k == 0) ? 64 : 10, BT_KVT_PATH_AUTO);
        first = sim_group_new(0, 0, 1, n, 21, 6);
        for (uint32_t i = 0; i < n; i++) {
            sim_send_leg(&first[i], 1, BT_REQUEST_GENERATE, 0, 0);
        }
        sim_settle();
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(first[i].legs[1].status, BT_ERR_BUSY);
            assert_int_equal(first[i].legs[1].n_ended, 1);
        }
        sim_check_empty();
        sim_close();
    }
    sim_expected();
}

/* The last of three comes when the others do not wait any more (dead-ms). */
static void missing_group_member_is_not_waited_for(void **state)
{
    sim_req_t *first;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 64, BT_KVT_PATH_AUTO);
    first = sim_group_new(0, 0, 1, N, 21, 6);
    for (uint32_t i = 0; i < N; i++) {
        while (first[i].n_want < 27) {
            first[i].seed += 100;
            sim_want(&first[i]);
        }
    }
    send_legs(first, N - 1, 0);
    sim_rounds(90); /* of 100 */
    assert_int_equal(first[0].n_got, 0);
    assert_int_equal(sim.nodes[1].w.n_in_engine, 0);
    sim_rounds(30);
    send_legs(&first[N - 1], 1, 0);
    sim_settle();
    check_all_answered(first, N - 1);
    assert_int_equal(first[N - 1].legs[0].status, BT_ERR_STALE);
    assert_int_equal(first[N - 1].legs[1].status, BT_ERR_STALE);
    sim_check_empty();
    sim_close();
    sim_expected();
}

/* Without its leader, or with another prompt; the others go on. */
static void request_of_another_group_is_refused(void **state)
{
    sim_req_t *first;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 64, BT_KVT_PATH_AUTO);
    first = sim_group_new(0, 0, 1, N, 21, 6);
    first[1].want[7] ^= 1;
    sim_send_leg(&first[2], 0, BT_REQUEST_PREFILL, 0, 0);
    sim_rounds(2);
    assert_int_equal(first[2].legs[0].status, BT_ERR_STALE);
    sim_send_leg(&first[0], 0, BT_REQUEST_PREFILL, 0, 0);
    sim_send_leg(&first[0], 1, BT_REQUEST_GENERATE, 0, 0);
    sim_send_leg(&first[1], 0, BT_REQUEST_PREFILL, 0, 0);
    sim_send_leg(&first[1], 1, BT_REQUEST_GENERATE, 0, 0);
    sim_send_leg(&first[2], 1, BT_REQUEST_GENERATE, 0, 0);
    sim_rounds(2);
    assert_int_equal(first[1].legs[0].status, BT_ERR_MISMATCH);
    assert_int_equal(first[1].legs[1].status, BT_ERR_MISMATCH);
    sim_settle();
    assert_true(first[0].finished);
    assert_int_equal(first[0].legs[0].n_failed, 0);
    assert_int_equal(first[2].legs[1].status, BT_ERR_CANCELED);
    sim_check_empty();
    sim_close();
    sim_expected();
}

/* A prompt comes once, whatever the worker does for it; nobody has one without
 * its leader, nor of one that has begun. */
static void followers_share_the_prompt_of_their_leader(void **state)
{
    sim_req_t *first;

    (void)state;
    sim_expect_failures();
    for (uint32_t d = 0; d < 2; d++) { /* at one worker, at two */
        sim_open(1, 32, 64, BT_KVT_PATH_AUTO);
        sim.lend_prompts = true;
        first = sim_group_of(0, 1 - d, 1, N, 21, 6);
        sim_settle();
        check_all_answered(first, N);
        first = sim_group_new(0, 0, 1, N, 21, 6);
        sim_send_leg(&first[1], 0, BT_REQUEST_PREFILL, 0, 0);
        sim_rounds(2);
        assert_int_equal(first[1].legs[0].status, BT_ERR_STALE);
        send_legs(first, 1, 0);
        send_legs(&first[2], 1, 0);
        sim_rounds(120); /* the second is not waited for */
        sim_send_leg(&first[1], 1, BT_REQUEST_GENERATE, 0, 0);
        sim_settle();
        assert_int_equal(first[1].legs[1].status, BT_ERR_STALE);
        assert_true(first[0].finished && first[2].finished);
        sim_check_empty();
        sim_close();
    }
    sim_expected();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(group_prompt_is_computed_and_sent_once),
        BT_TEST(group_prompt_is_computed_and_sent_once_over_the_network),
        BT_TEST(decode_worker_holds_a_group_prompt_once),
        BT_TEST(local_group_prompt_is_computed_once),
        BT_TEST(one_token_group_needs_no_decode_worker),
        BT_TEST(cached_prefix_is_used_by_the_whole_group),
        BT_TEST(choice_ending_at_the_first_token_leaves_others_running),
        BT_TEST(cancel_of_some_choices_leaves_others_running),
        BT_TEST(lost_router_releases_the_whole_group),
        BT_TEST(dead_peer_ends_the_group),
        BT_TEST(device_failure_fails_the_whole_group),
        BT_TEST(deadline_ends_the_whole_group),
        BT_TEST(dropped_ungranted_group_kv_is_recomputed),
        BT_TEST(group_waits_until_all_choices_fit),
        BT_TEST(group_over_the_limits_is_refused),
        BT_TEST(missing_group_member_is_not_waited_for),
        BT_TEST(request_of_another_group_is_refused),
        BT_TEST(followers_share_the_prompt_of_their_leader),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
