/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a request through both workers, one order of events at a time. */
#include "tests/unit/worker/sim.h"

#include <string.h>

#include "common/base/log.h"
#include "common/kv/kv_block_pool.h"
#include "prefill_worker/prefill.h"

#define HELD_ROUNDS 30u

static void a_request_is_answered_over(bt_kvt_path_t path)
{
    sim_req_t *req;

    sim_open(1, 32, 32, path);
    req = sim_request_of(0, 0, 1, 21, 6);
    sim_settle();
    sim_check_answered(req);
    assert_int_equal(req->n_prefilled, 1);
    assert_int_equal(req->n_joined, 1);
    sim_check_empty();
    sim_close();
}

static void request_is_answered_over_shared_memory(void **state)
{
    (void)state;
    a_request_is_answered_over(BT_KVT_PATH_AUTO);
}

static void request_is_answered_over_the_network(void **state)
{
    (void)state;
    a_request_is_answered_over(BT_KVT_PATH_NETWORK);
}

/* The simulator's prompts: of request n the first n % 5 blocks are those of
 * every request with the same n % 3; 1 and 2 are so throughout. Blocks in
 * common with earlier ones: 4 with 1: three (all but the one with the last
 * token), 6 with 3: one, 7 with 4: two. */
static void
a_beginning_that_is_known_is_not_computed_or_sent_again(void **state)
{
    bt_kvt_counters_t kvt;

    (void)state;
    for (uint32_t p = 0; p < 2; p++) { /* node 1 does both phases */
        sim_open(1, 64, 64, BT_KVT_PATH_AUTO);
        for (uint32_t i = 0; i < 7; i++) {
            sim_req_t *req = sim_request_of(0, p, 1, 16, 6);

            sim_settle();
            sim_check_answered(req);
        }
        assert_int_equal(sim.nodes[p].w.stats.n_blocks_reused, 6);
        assert_int_equal(sim.nodes[1].w.stats.n_blocks_reused, 6);
        bt_kvt_counters(sim.nodes[0].w.kvt, &kvt);
        assert_int_equal(kvt.bytes_sent,
                         (p == 0) ? (7 * 4 - 6) * sim.nodes[0].w.block_bytes
                                  : 0);
        sim_check_empty();
        sim_close();
    }
}

/* The same of models whose layers are in groups: as many bytes, each span in a
 * block of every group, and the engine here finds the right values in all. */
static void sequence_of_several_layer_groups_is_handed_over_whole(void **state)
{
    (void)state;
    for (uint32_t n_groups = 2; n_groups <= SIM_LAYERS; n_groups *= 2) {
        for (uint32_t network = 0; network < 2; network++) {
            bt_kvt_counters_t kvt;

            sim_open_groups(n_groups, 1, 64 * n_groups, 64 * n_groups,
                            (network != 0) ? BT_KVT_PATH_NETWORK
                                           : BT_KVT_PATH_AUTO);
            assert_int_equal(sim.nodes[0].w.block_bytes * n_groups,
                             SIM_T * SIM_SLOT_BYTES);
            for (uint32_t i = 0; i < 7; i++) {
                sim_req_t *req = sim_request_of(0, 0, 1, 16, 6);

                sim_settle();
                sim_check_answered(req);
            }
            assert_int_equal(sim.nodes[0].w.stats.n_blocks_reused,
                             6 * n_groups);
            assert_int_equal(sim.nodes[1].w.stats.n_blocks_reused,
                             6 * n_groups);
            bt_kvt_counters(sim.nodes[0].w.kvt, &kvt);
            assert_int_equal(kvt.bytes_sent,
                             (7 * 4 - 6) * SIM_T * SIM_SLOT_BYTES);
            sim_check_empty();
            sim_close();
        }
    }
}

/* Groups share one pool: a sequence gets a block in all of them or in none. */
static void sequence_of_several_layer_groups_waits_for_all_blocks(void **state)
{
    sim_req_t *first;
    sim_req_t *second;

    (void)state;
    /* 17 tokens and 10 more: 7 spans at the decode worker, 14 blocks of 20. */
    sim_open_groups(2, 1, 64, 20, BT_KVT_PATH_AUTO);
    first = sim_request_of(0, 0, 1, 17, 10);
    sim_rounds(3);
    second = sim_request_of(0, 0, 1, 17, 10);
    sim_rounds(3);
    assert_null(second->grant);
    assert_int_equal(sim_n_free(&sim.nodes[1]), 20 - 14);
    sim_settle();
    sim_check_answered(first);
    sim_check_answered(second);
    sim_check_empty();
    sim_close();
}

/* The same prompts: of 7 times 16 tokens 6 blocks of 4 are found again. */
static void worker_counts_computed_sampled_and_cached_tokens(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < 2; p++) { /* node 1 does both phases */
        const bt_msg_stats_t *context;
        const bt_msg_stats_t *generation;

        sim_open(1, 64, 64, BT_KVT_PATH_AUTO);
        for (uint32_t i = 0; i < 7; i++) {
            const sim_req_t *req = sim_request_of(0, p, 1, 16, 6);

            sim_settle();
            sim_check_answered(req);
        }
        for (uint32_t i = 0; i < 2; i++) {
            sim.nodes[i].w.stats.next_ms = 0;
        }
        sim_round();
        context = &sim.nodes[p].stats;
        generation = &sim.nodes[1].stats;
        assert_int_equal(context->prompt_tokens, 7 * 16 - 6 * 4);
        assert_int_equal(context->tokens_reused, 6 * 4);
        assert_int_equal(generation->tokens_reused, 6 * 4);
        /* token #1 is drawn where the context phase is */
        assert_int_equal(sim.nodes[0].stats.tokens_generated, (p == 0) ? 7 : 0);
        assert_int_equal(generation->tokens_generated,
                         (p == 0) ? 7 * 5 : 7 * 6);
        assert_true(generation->resident_bytes > 0);
        assert_true(generation->blocks_cached > 0);
        assert_true(generation->blocks_cached <= generation->blocks_free);
        sim_close();
    }
}

/* Of the last block of a prompt of 14 tokens two places are free, and what an
 * earlier tenant left there is not for the decode worker. */
static void previous_block_contents_are_not_transferred(void **state)
{
    static const uint8_t left[SIM_LAYER_SLOT] = {
        0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee,
        0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee};
    const bt_worker_t *p;
    const bt_worker_t *d;

    (void)state;
    sim_open(1, 64, 64, BT_KVT_PATH_AUTO);
    p = &sim.nodes[0].w;
    d = &sim.nodes[1].w;
    memset(p->kv_base, left[0], p->n_blocks * p->block_bytes);
    for (uint32_t i = 0; i < 3; i++) {
        const sim_req_t *req = sim_request_of(0, 0, 1, 14, 1 + i);

        sim_settle();
        sim_check_answered(req);
    }
    assert_non_null(
        memmem(p->kv_base, p->n_blocks * p->block_bytes, left, sizeof(left)));
    assert_null(
        memmem(d->kv_base, d->n_blocks * d->block_bytes, left, sizeof(left)));
    sim_close();
}

/* The next turn of a talk: prompt, answer and more; all but the last token of
 * the answer have their K and V. */
static void generated_tokens_enter_the_prefix_cache(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < 2; p++) {
        sim_req_t *first;
        sim_req_t *next;

        sim_open(1, 64, 64, BT_KVT_PATH_AUTO);
        first = sim_request_of(0, p, 1, 9, 20);
        sim_settle();
        sim_check_answered(first);
        next = sim_req_new(0, p, 1, first->n_want, 6);
        for (uint32_t i = 0; i < first->n_want; i++) {
            next->want[i] = first->want[i];
        }
        sim_want(next);
        if (p == 0) {
            sim_send_leg(next, 0, BT_REQUEST_PREFILL, 0, 0);
        }
        sim_send_leg(next, 1, p == 0 ? BT_REQUEST_GENERATE : BT_REQUEST_LOCAL,
                     0, 0);
        sim_settle();
        sim_check_answered(next);
        assert_int_equal(sim.nodes[1].w.stats.n_blocks_reused,
                         (first->n_want - 1) / SIM_T);
        sim_check_empty();
        sim_close();
    }
}

/* What has left when the prefill worker has not yet told of token #1: 21 tokens
 * in chunks of 8, 8 and 5. */
static uint64_t bytes_before_the_end(bt_prefill_overlap_t overlap)
{
    bt_kvt_counters_t kvt;
    uint64_t before = 0;
    sim_req_t *req;

    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    sim.nodes[0].w.prefill->overlap = overlap;
    req = sim_request_of(0, 0, 1, 21, 6);
    while (req->n_prefilled == 0) {
        bt_kvt_counters(sim.nodes[0].w.kvt, &kvt);
        before = kvt.bytes_sent;
        sim_round();
    }
    sim_settle();
    sim_check_answered(req);
    bt_kvt_counters(sim.nodes[0].w.kvt, &kvt);
    assert_int_equal(kvt.bytes_sent, 6 * sim.nodes[0].w.block_bytes);
    sim_check_empty();
    sim_close();
    return before;
}

static void chunks_and_layers_are_sent_as_soon_as_computed(void **state)
{
    const uint64_t layer = SIM_T * SIM_LAYER_SLOT;
    uint64_t with_layers;

    (void)state;
    assert_int_equal(bytes_before_the_end(BT_OVERLAP_NONE), 0);
    /* Two chunks are four blocks. */
    assert_int_equal(bytes_before_the_end(BT_OVERLAP_CHUNKS),
                     4 * SIM_LAYERS * layer);
    /* Of the other two blocks one group of layers or more: max_groups 3 of 4
     * layers is two layers at a time. */
    with_layers =
        bytes_before_the_end(BT_OVERLAP_LAYERS) - 4 * SIM_LAYERS * layer;
    assert_true((with_layers == 2 * 2 * layer) ||
                (with_layers == 2 * 4 * layer));
}

/* By hand: 12 KiB a layer (the default model) needs three for 32 KiB, but 30
 * layers in 8 groups are four; 64 KiB (8B class) 32 / 8; 2 MiB are 171 layers
 * of 12 KiB, 5.7 blocks of 30. */
static void layers_are_sent_in_groups_of_worthwhile_size(void **state)
{
    const bt_prefill_split_t *split = &bt_prefill_split_default;

    (void)state;
    assert_int_equal(bt_prefill_layer_group(split, 32, 30, 12288), 4);
    assert_int_equal(bt_prefill_layer_group(split, 32, 32, 65536), 4);
    assert_int_equal(bt_prefill_layer_group(split, 5, 30, 12288), 30);
    assert_int_equal(bt_prefill_layer_group(split, 6, 30, 12288), 4);
    assert_int_equal(bt_prefill_layer_group(split, 64, 30, 4096), 8);
    assert_int_equal(bt_prefill_layer_group(split, 512, 8, 4096), 8);
    assert_int_equal(bt_prefill_layer_group(split, 32, 1, 1u << 20), 1);
}

static void layer_polls_back_off_while_nothing_is_ready(void **state)
{
    static const uint32_t want[5] = {1, 2, 4, 8, 8};
    uint32_t ms = 0;

    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        ms = bt_prefill_look_ms(ms, false);
        assert_int_equal(ms, want[i]);
    }
    assert_int_equal(bt_prefill_look_ms(ms, true), 1);
}

static void local_request_is_answered_without_transfer(void **state)
{
    sim_req_t *req;

    (void)state;
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    req = sim_request_of(0, 1, 1, 21, 6);
    sim_settle();
    sim_check_answered(req);
    assert_int_equal(req->n_joined, 0);
    sim_check_empty();
    sim_close();
}

/* max_new 1: the prefill worker's token is all; the decode worker's grant is
 * withdrawn. */
static void request_ending_at_the_first_token_needs_no_transfer(void **state)
{
    sim_req_t *req;

    (void)state;
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    req = sim_request(0, 0, 1, 9, 1);
    sim_settle();
    sim_check_answered(req);
    assert_int_equal(req->n_joined, 0);
    sim_check_empty();
    sim_close();
}

/* 4294968 ms are 704 us modulo 2^32. */
static void deadline_of_hours_is_kept(void **state)
{
    sim_req_t *req;

    (void)state;
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    req = sim_req_new(0, 0, 1, 9, 4);
    req->hold_grant = true;
    sim_send_leg(req, 0, BT_REQUEST_PREFILL, 4294968, 0);
    sim_send_leg(req, 1, BT_REQUEST_GENERATE, 4294968, 0);
    sim_rounds(HELD_ROUNDS);
    sim_pass_grant(req);
    sim_settle();
    sim_check_answered(req);
    sim_close();
}

static void deadline_ends_prefill_and_decode(void **state)
{
    sim_req_t *req;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    req = sim_req_new(0, 0, 1, 9, 4);
    req->hold_grant = true;
    sim_send_leg(req, 0, BT_REQUEST_PREFILL, 20, 0);
    sim_send_leg(req, 1, BT_REQUEST_GENERATE, 20, 0);
    sim_settle();
    assert_int_equal(req->legs[0].status, BT_ERR_TIMED_OUT);
    assert_int_equal(req->legs[1].status, BT_ERR_TIMED_OUT);
    sim_check_empty();
    sim_close();
    sim_expected();
}

/* KV that a broken device left behind must not reach anybody. */
static void kv_of_a_failed_device_is_never_handed_over(void **state)
{
    sim_req_t *req;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    req = sim_request_of(0, 0, 1, 40, 6);
    sim_rounds(3); /* of 40 / 8 iterations */
    sim.nodes[0].engine.broken = true;
    sim_rounds(HELD_ROUNDS);
    assert_int_equal(req->legs[0].n_failed, 1);
    assert_int_equal(req->legs[0].status, BT_ERR_DEVICE);
    assert_int_equal(req->n_got, 0);
    assert_int_equal(req->n_joined, 0);
    assert_true(sim.nodes[0].over);
    assert_int_equal(sim.nodes[0].code, 70);
    sim_close();
    sim_expected();
}

static void device_failure_ends_the_decode_worker(void **state)
{
    sim_req_t *req;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    req = sim_request_of(0, 1, 1, 40, 6);
    sim_rounds(3);
    sim.nodes[1].engine.broken = true;
    sim_rounds(5);
    assert_int_equal(req->legs[1].status, BT_ERR_DEVICE);
    assert_int_equal(req->legs[1].n_ended, 1);
    assert_int_equal(sim.nodes[1].code, 70);
    sim_close();
    sim_expected();
}

/* In every state: at each round of a request's life, one leg first or both. A
 * router always cancels both; the second may come late. */
static void cancel_at_any_time_releases_everything(void **state)
{
    (void)state;
    sim_expect_failures();
    for (uint32_t leg = 0; leg < 3; leg++) {
        for (uint32_t at = 0; at < 24; at++) {
            sim_req_t *req;

            sim_open(1, 32, 32,
                     (at % 2 == 0) ? BT_KVT_PATH_AUTO : BT_KVT_PATH_NETWORK);
            bt_log_init("sim", BT_LOG_LEVEL_ERROR);
            req = sim_request_of(0, 0, 1, 30, 8);
            sim.cut_losses = true;
            sim_rounds(at);
            if (leg == 2) {
                sim_cancel(req);
            } else {
                sim_cancel_leg(req, leg);
                sim_rounds(HELD_ROUNDS);
                sim_cancel(req);
            }
            sim_settle();
            sim_check_empty();
            sim_close();
        }
    }
    /* A transfer that ends under the hands of the other leg is logged. */
    sim_expected();
}

static void lost_router_at_any_time_releases_everything(void **state)
{
    (void)state;
    for (uint32_t at = 0; at < 24; at++) {
        sim_req_t *other;

        sim_open(1, 64, 64, BT_KVT_PATH_AUTO);
        bt_log_init("sim", BT_LOG_LEVEL_ERROR);
        (void)sim_request_of(0, 0, 1, 30, 8);
        other = sim_request_of(1, 0, 1, 30, 8);
        sim_rounds(at);
        for (uint32_t i = 0; i < 2; i++) {
            bt_link_close(sim.nodes[i].links[0], "gone");
        }
        sim_settle();
        sim_check_answered(other);
        sim_check_empty();
        sim_close();
    }
}

/* Prefill pool of 8 blocks: A's complete KV (4 blocks) waits for its grant, B
 * has its grant and needs all 8. */
static void dropped_ungranted_kv_is_recomputed(void **state)
{
    const bt_prefill_t *role;
    sim_req_t *a;
    sim_req_t *b;

    (void)state;
    sim_open(1, 8, 64, BT_KVT_PATH_AUTO);
    role = sim.nodes[0].w.prefill;
    a = sim_request_of(0, 0, 1, 16, 6);
    a->hold_grant = true;
    sim_rounds(10);
    assert_int_equal(role->n_paused, 0);
    assert_int_equal(sim_n_free(&sim.nodes[0]), 4);
    b = sim_request_of(0, 0, 1, 32, 6);
    sim_rounds(HELD_ROUNDS);
    sim_check_answered(b);
    assert_false(a->finished);
    assert_int_equal(sim_n_free(&sim.nodes[0]), 8);
    assert_int_equal(role->n_paused, 1);
    sim_pass_grant(a);
    sim_settle();
    assert_int_equal(role->n_paused, 0);
    sim_check_answered(a);
    assert_int_equal(a->n_prefilled, 1);
    sim_check_empty();
    sim_close();
}

/* Share for waiting KV: half of 16 blocks. 4 + 4 fit, the third does not. */
static void ungranted_kv_stays_within_its_share_of_the_pool(void **state)
{
    const bt_sched_admit_t *admit = &sim.nodes[0].w.admit;
    sim_req_t *reqs[3];

    (void)state;
    sim_open(1, 16, 64, BT_KVT_PATH_AUTO);
    for (uint32_t i = 0; i < 3; i++) {
        reqs[i] = sim_request_of(0, 0, 1, 16, 6);
        reqs[i]->hold_grant = true;
    }
    sim_rounds(HELD_ROUNDS);
    assert_int_equal(admit->waiting_blocks, 8);
    assert_int_equal(reqs[1]->n_got, 1);
    assert_int_equal(reqs[2]->n_got, 0);
    for (uint32_t i = 0; i < 3; i++) {
        sim_pass_grant(reqs[i]);
    }
    sim_settle();
    for (uint32_t i = 0; i < 3; i++) {
        sim_check_answered(reqs[i]);
    }
    sim_check_empty();
    sim_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(request_is_answered_over_shared_memory),
        BT_TEST(request_is_answered_over_the_network),
        BT_TEST(a_beginning_that_is_known_is_not_computed_or_sent_again),
        BT_TEST(sequence_of_several_layer_groups_is_handed_over_whole),
        BT_TEST(sequence_of_several_layer_groups_waits_for_all_blocks),
        BT_TEST(worker_counts_computed_sampled_and_cached_tokens),
        BT_TEST(previous_block_contents_are_not_transferred),
        BT_TEST(generated_tokens_enter_the_prefix_cache),
        BT_TEST(chunks_and_layers_are_sent_as_soon_as_computed),
        BT_TEST(layers_are_sent_in_groups_of_worthwhile_size),
        BT_TEST(layer_polls_back_off_while_nothing_is_ready),
        BT_TEST(local_request_is_answered_without_transfer),
        BT_TEST(request_ending_at_the_first_token_needs_no_transfer),
        BT_TEST(deadline_of_hours_is_kept),
        BT_TEST(deadline_ends_prefill_and_decode),
        BT_TEST(kv_of_a_failed_device_is_never_handed_over),
        BT_TEST(device_failure_ends_the_decode_worker),
        BT_TEST(cancel_at_any_time_releases_everything),
        BT_TEST(lost_router_at_any_time_releases_everything),
        BT_TEST(dropped_ungranted_kv_is_recomputed),
        BT_TEST(ungranted_kv_stays_within_its_share_of_the_pool),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
