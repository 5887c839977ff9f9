/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of a model whose layers see the last 10 tokens, all of them or those of
 * one of two groups. By hand, of spans of 4 tokens, a prompt of 60 and an
 * answer of 20:
 *
 *     chunks of 8     9 positions before and 16 ahead touch 8 spans at most
 *     generating      9 and 8: 6 spans
 *     sent            60 tokens leave a window from position 51 on: of spans
 * 12, 13 and 14 whole group     15 spans at the prefill worker, 20 (79
 * positions) where it generates
 *
 * sim_engine.c proves every byte that is seen, sim_router.c every token. */
#include "tests/unit/worker/sim.h"

#include <string.h>

#include "common/kv/kv_block_pool.h"

#define WINDOW   10u
#define N_PROMPT 60u
#define N_ANSWER 20u
#define CONTEXT  8u /* spans of a window, with those ahead */
#define GENERATE 6u
#define SENT     3u

/* Blocks of the group that keeps all, if there is one. */
static uint32_t whole(uint32_t n_groups, uint32_t n_spans)
{
    return (n_groups == 1) ? 0 : n_spans;
}

static void open_windows(uint32_t n_groups, uint32_t p_blocks,
                         uint32_t d_blocks, bt_kvt_path_t path)
{
    sim_set_window(WINDOW);
    sim_open_groups(n_groups, 1, p_blocks, d_blocks, path);
}

static void close_windows(void)
{
    sim_check_empty();
    sim_close();
    sim_set_window(0);
}

static uint32_t n_held(uint32_t node)
{
    return sim.nodes[node].w.n_blocks - sim_n_free(&sim.nodes[node]);
}

static uint64_t n_sent(void)
{
    bt_kvt_counters_t kvt;

    bt_kvt_counters(sim.nodes[0].w.kvt, &kvt);
    return kvt.bytes_sent / sim.nodes[0].w.block_bytes;
}

/* The same beginning as another one, and then something else. */
static sim_req_t *parts_after(const sim_req_t *other, uint32_t p, uint32_t d,
                              uint32_t n_same)
{
    sim_req_t *req = sim_req_new(0, p, d, N_PROMPT, N_ANSWER);

    memcpy(req->want, other->want, n_same * sizeof(*req->want));
    for (uint32_t i = n_same; i < N_PROMPT; i++) {
        req->want[i] = (other->want[i] + 1) % SIM_VOCAB;
    }
    do {
        req->seed++;
        sim_want(req);
    } while (req->n_want < N_PROMPT + N_ANSWER);
    return req;
}

static void send(sim_req_t *req)
{
    if (req->p == req->d) {
        sim_send_leg(req, 1, BT_REQUEST_LOCAL, 0, 0);
        return;
    }
    sim_send_leg(req, 0, BT_REQUEST_PREFILL, 0, 0);
    sim_send_leg(req, 1, BT_REQUEST_GENERATE, 0, 0);
}

/* In pools that have no block more than that. */
static void only_blocks_of_the_attention_window_are_held_and_sent(void **state)
{
    static const bt_kvt_path_t paths[] = {BT_KVT_PATH_AUTO,
                                          BT_KVT_PATH_NETWORK};

    (void)state;
    for (uint32_t n_groups = 1; n_groups <= 2; n_groups++) {
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t p_blocks = whole(n_groups, 15) + CONTEXT;
            const uint32_t d_blocks = whole(n_groups, 20) + GENERATE;
            uint32_t most[2] = {0};
            sim_req_t *req;

            open_windows(n_groups, p_blocks, d_blocks, paths[i]);
            req = sim_request_of(0, 0, 1, N_PROMPT, N_ANSWER);
            for (uint32_t round = 0; round < 60; round++) {
                sim_round();
                for (uint32_t n = 0; n < 2; n++) {
                    most[n] = (n_held(n) > most[n]) ? n_held(n) : most[n];
                }
            }
            sim_settle();
            sim_check_answered(req);
            assert_int_equal(most[0], p_blocks);
            assert_int_equal(most[1], d_blocks);
            assert_int_equal(n_sent(), whole(n_groups, 15) + SENT);
            /* All but the last 8 and the last 6 spans of a window. */
            assert_in_range(sim.nodes[0].w.stats.n_blocks_slid, 15 - CONTEXT,
                            15);
            assert_in_range(sim.nodes[1].w.stats.n_blocks_slid,
                            20 - 12 - GENERATE, 20 - 12);
            close_windows();
        }
    }
}

static void prompt_whose_window_does_not_fit_is_refused(void **state)
{
    (void)state;
    sim_expect_failures();
    for (uint32_t node = 0; node < 2; node++) {
        sim_req_t *req;

        open_windows(2, 15 + CONTEXT - (node == 0), 20 + GENERATE - (node == 1),
                     BT_KVT_PATH_AUTO);
        req = sim_request_of(0, 0, 1, N_PROMPT, N_ANSWER);
        sim_rounds(5);
        assert_int_equal(req->legs[node].n_failed, 1);
        assert_int_equal(req->legs[node].status, BT_ERR_NO_BLOCKS);
        sim_cancel(req);
        sim_settle();
        close_windows();
    }
    sim_expected();
}

/* Two prompts part after 40 tokens, far before the first one's last window: the
 * second finds the 10 spans wherever it is computed. Where it generates, what
 * was sent of the first one's window begins behind them, and that of the second
 * is sent, too: 10 spans of the whole group are not. */
static void shared_prefix_is_found_up_to_the_divergence(void **state)
{
    (void)state;
    for (uint32_t n_groups = 1; n_groups <= 2; n_groups++) {
        for (uint32_t p = 0; p < 2; p++) { /* node 1 does both phases */
            const uint64_t first = (p == 1) ? 0 : whole(n_groups, 15) + SENT;
            const uint64_t second = (p == 1) ? 0 : whole(n_groups, 5) + SENT;
            sim_req_t *a;
            sim_req_t *b;

            open_windows(n_groups, 120, 120, BT_KVT_PATH_AUTO);
            a = sim_request_of(0, p, 1, N_PROMPT, N_ANSWER);
            sim_settle();
            sim_check_answered(a);
            assert_int_equal(n_sent(), first);
            b = parts_after(a, p, 1, 40);
            send(b);
            sim_settle();
            sim_check_answered(b);
            assert_int_equal(sim.nodes[p].w.stats.tokens_reused, 40);
            assert_int_equal(sim.nodes[1].w.stats.tokens_reused, 40);
            assert_int_equal(n_sent(), first + second);
            close_windows();
        }
    }
}

/* Whenever the second one comes: it shares what the first one holds, both slide
 * away from it, in a pool that has what they need together and no more. */
static void sequences_share_a_window_and_slide_on(void **state)
{
    uint32_t most_aside = 0;
    uint64_t n_reused = 0;

    (void)state;
    for (uint32_t n_groups = 1; n_groups <= 2; n_groups++) {
        for (uint32_t at = 0; at < 40; at++) {
            const bt_worker_t *w;
            sim_req_t *a;
            sim_req_t *b;

            open_windows(n_groups, 8, 2 * (whole(n_groups, 20) + CONTEXT),
                         BT_KVT_PATH_AUTO);
            w = &sim.nodes[1].w;
            a = sim_request_of(0, 1, 1, N_PROMPT, N_ANSWER);
            sim_rounds(at);
            b = parts_after(a, 1, 1, 40);
            send(b);
            for (uint32_t round = 0; round < 80; round++) {
                const uint32_t n_aside = bt_kv_pool_n_set_aside(w->pool);

                most_aside = (n_aside > most_aside) ? n_aside : most_aside;
                sim_round();
            }
            sim_settle();
            sim_check_answered(a);
            sim_check_answered(b);
            n_reused += w->stats.tokens_reused;
            close_windows();
        }
    }
    assert_true(most_aside > 0);
    assert_true(n_reused > 0);
}

/* At each round of their lives, over both ways. */
static void cancels_and_deaths_leak_no_window_blocks(void **state)
{
    (void)state;
    sim_expect_failures();
    for (uint32_t n_groups = 1; n_groups <= 2; n_groups++) {
        for (uint32_t at = 0; at < 50; at++) {
            sim_req_t *a;
            sim_req_t *b;

            open_windows(n_groups, 60, 60,
                         (at % 2 == 0) ? BT_KVT_PATH_AUTO
                                       : BT_KVT_PATH_NETWORK);
            a = sim_request_of(0, 0, 1, N_PROMPT, N_ANSWER);
            b = parts_after(a, 0, 1, 40);
            send(b);
            sim_rounds(at);
            if (at % 3 == 0) {
                sim_kill(0);
            } else if (at % 3 == 1) {
                sim_kill(1);
            } else {
                sim_cancel(b);
            }
            sim_rounds(3);
            sim_cancel(a);
            sim_cancel(b);
            sim_settle();
            close_windows();
        }
    }
    sim_expected();
}

/* Sequences that grow: each needs 20 spans of the whole group in the end, and 8
 * of the window from the first. Two meet in 28 blocks, and one makes room. */
static void windowed_sequences_are_preempted_and_resumed(void **state)
{
    (void)state;
    for (uint32_t local = 0; local < 2; local++) {
        const uint32_t p = (local != 0) ? 1 : 0;
        const bt_worker_t *w;
        sim_req_t *a;
        sim_req_t *b;

        open_windows(2, 60, 28 + 2 * CONTEXT, BT_KVT_PATH_AUTO);
        sim_let_grow();
        w = &sim.nodes[1].w;
        a = sim_request_of(0, p, 1, 20, 60);
        b = sim_request_of(0, p, 1, 20, 60);
        sim_settle();
        sim_check_answered(a);
        sim_check_answered(b);
        assert_true(w->preemption.n_pauses > 0);
        assert_int_equal(w->preemption.n_resumes, w->preemption.n_pauses);
        close_windows();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(only_blocks_of_the_attention_window_are_held_and_sent),
        BT_TEST(prompt_whose_window_does_not_fit_is_refused),
        BT_TEST(shared_prefix_is_found_up_to_the_divergence),
        BT_TEST(sequences_share_a_window_and_slide_on),
        BT_TEST(cancels_and_deaths_leak_no_window_blocks),
        BT_TEST(windowed_sequences_are_preempted_and_resumed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
