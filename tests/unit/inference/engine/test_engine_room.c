/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences with blocks for a part of what they may compute: they sit out
 * until they have more, and may leave and come back. The bytes of single runs
 * with all blocks are the expected ones; what lies behind a sequence's room in
 * its table is a block that nobody may write to. */
#include "inference/engine/engine_priv.h"
#include "tests/unit/inference/engine/bench.h"

#define GUARD (N_BLOCKS - 1u)

/* What the one of make_seq(i) draws with all blocks. */
static void draw_alone(bench_t *b, uint32_t i, float temperature,
                       uint32_t tokens[MAX_NEW])
{
    bt_seq_t *seq = make_seq(b, i, temperature);

    assert_int_equal(bt_engine_submit(b->engine, seq), BT_OK);
    assert_int_equal(run_until_left(b, 1), 0);
    memcpy(tokens, seq->tokens + seq->n_prompt, MAX_NEW * sizeof(*tokens));
    free_seq(seq);
}

/* Its table as far as its owner gives it room. */
typedef struct roomy {
    bt_seq_t *seq;
    uint32_t n_all, n_held;
    uint32_t all[64];
} roomy_t;

static uint32_t *table_of(const roomy_t *r)
{
    return (uint32_t *)(uintptr_t)r->seq->blocks;
}

static roomy_t with_room(bench_t *b, uint32_t i, float temperature,
                         uint32_t n_behind)
{
    roomy_t r = {.seq = make_seq(b, i, temperature)};

    r.n_all = bt_kv_blocks_for(r.seq->n_prompt + MAX_NEW, T);
    r.n_held = bt_kv_blocks_for(r.seq->n_prompt + n_behind, T);
    memcpy(r.all, r.seq->blocks, r.n_all * sizeof(*r.all));
    for (uint32_t k = r.n_held; k < r.n_all; k++) {
        table_of(&r)[k] = GUARD;
    }
    bt_seq_set_kv_limit(r.seq, r.n_held * T);
    return r;
}

static void grow(bench_t *b, roomy_t *r)
{
    assert_true(r->n_held < r->n_all);
    table_of(r)[r->n_held] = r->all[r->n_held];
    r->n_held++;
    bt_seq_set_kv_limit(r->seq, r->n_held * T);
    bt_engine_wake(b->engine);
}

/* Take reports until the sequence has drawn all that its room allows and the
 * compute thread has nothing to do. @return tokens drawn in this time */
static uint32_t run_until_it_sits_out(bench_t *b, const roomy_t *r,
                                      uint32_t n_known)
{
    const uint64_t end = bt_now_ns() + DEADLINE_NS;
    const uint32_t before = n_known;
    uint64_t marks = 0;

    while ((n_known <= r->n_held * T) ||
           bt_engine_progress(b->engine, &marks)) {
        bt_report_t *report = bt_engine_next(b->engine);

        assert_true(bt_now_ns() < end);
        if (report == NULL) {
            continue;
        }
        for (uint32_t i = 0; i < report->n_items; i++) {
            assert_int_not_equal(report->items[i].kind, BT_REPORT_LEFT);
            if (report->items[i].kind == BT_REPORT_TOKEN) {
                assert_int_equal(report->items[i].index,
                                 n_known - r->seq->n_prompt);
                n_known++;
            }
        }
        bt_engine_recycle(b->engine, report);
    }
    assert_null(bt_engine_next(b->engine));
    return n_known - before;
}

static void set_guard(bench_t *b)
{
    memset((uint8_t *)b->pool + (size_t)GUARD * b->kv.block_bytes, 0x5a,
           b->kv.block_bytes);
}

static void check_guard(const bench_t *b)
{
    const uint8_t *block =
        (const uint8_t *)b->pool + (size_t)GUARD * b->kv.block_bytes;

    for (size_t i = 0; i < b->kv.block_bytes; i++) {
        assert_int_equal(block[i], 0x5a);
    }
}

static void check_answer(const bt_seq_t *seq, const uint32_t want[MAX_NEW])
{
    assert_int_equal(seq->n_drawn, MAX_NEW);
    assert_memory_equal(seq->tokens + seq->n_prompt, want,
                        MAX_NEW * sizeof(*want));
}

/* 28 tokens of prompt in two blocks of 16: with 5 drawn there are 33, one more
 * than have room. The compute thread then sleeps, until a block is there. */
static void sequence_without_blocks_pauses_until_it_has_some(void **state)
{
    uint32_t want[MAX_NEW];
    roomy_t r;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    draw_alone(&b, 1, 0.9f, want);
    set_guard(&b);
    r = with_room(&b, 1, 0.9f, 2);
    assert_int_equal(r.n_held, 2);
    assert_int_equal(bt_engine_submit(b.engine, r.seq), BT_OK);
    assert_int_equal(run_until_it_sits_out(&b, &r, 28), 5);
    assert_int_equal(r.seq->sched.n_computed, 32);
    grow(&b, &r);
    assert_int_equal(run_until_left(&b, 1), 0); /* 47 are computed: 3 blocks */
    check_answer(r.seq, want);
    check_guard(&b);
    free_seq(r.seq);
    close_bench(&b);
}

static void other_sequences_continue_while_one_waits_for_blocks(void **state)
{
    uint32_t want[2][MAX_NEW];
    bt_seq_t *other;
    roomy_t r;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    draw_alone(&b, 1, 0.0f, want[0]);
    draw_alone(&b, 2, 0.7f, want[1]);
    r = with_room(&b, 1, 0.0f, 2);
    other = make_seq(&b, 2, 0.7f);
    assert_int_equal(bt_engine_submit(b.engine, r.seq), BT_OK);
    assert_int_equal(bt_engine_submit(b.engine, other), BT_OK);
    assert_int_equal(run_until_left(&b, 1), 0);
    check_answer(other, want[1]);
    assert_int_equal(r.seq->n_drawn, 5);
    grow(&b, &r);
    assert_int_equal(run_until_left(&b, 1), 0);
    check_answer(r.seq, want[0]);
    free_seq(other);
    free_seq(r.seq);
    close_bench(&b);
}

/* It gives its blocks back in the middle of its answer and goes on in others,
 * with what is left of its K and V: nothing, a block, all whole ones. */
static void preempted_sequence_resumes_with_the_same_tokens(void **state)
{
    uint32_t want[MAX_NEW];
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    draw_alone(&b, 1, 0.9f, want);
    for (uint32_t n_left = 0; n_left <= 2; n_left++) {
        roomy_t r = with_room(&b, 1, 0.9f, 2);

        assert_int_equal(bt_engine_submit(b.engine, r.seq), BT_OK);
        assert_int_equal(run_until_it_sits_out(&b, &r, 28), 5);
        bt_engine_cancel(r.seq); /* it sleeps */
        bt_engine_wake(b.engine);
        assert_int_equal(run_until_left(&b, 1), 1);
        assert_int_equal(r.seq->sched.n_tokens, 33);
        for (uint32_t k = n_left; k < r.n_all; k++) {
            r.all[k] = 200 + k;
            table_of(&r)[k] = r.all[k];
        }
        r.n_held = r.n_all;
        bt_seq_set_kv_limit(r.seq, 0);
        r.seq->sched.n_computed = n_left * T;
        atomic_store(&r.seq->cancel, false);
        assert_int_equal(bt_engine_submit(b.engine, r.seq), BT_OK);
        assert_int_equal(run_until_left(&b, 1), 0);
        check_answer(r.seq, want);
        free_seq(r.seq);
    }
    close_bench(&b);
}

static bt_draft_t guess_well(void *ctx, const uint32_t *tokens,
                             uint32_t n_tokens, uint32_t max, uint32_t *drafts)
{
    const uint32_t *want = ctx; /* the answer to a prompt of 28 */

    (void)tokens;
    for (uint32_t i = 0; i < max; i++) {
        drafts[i] = want[n_tokens - 28 + i];
    }
    return (bt_draft_t){.n = max};
}

static void drafts_are_cut_to_the_kv_limit(void **state)
{
    uint32_t want[MAX_NEW];
    roomy_t r;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 64);
    draw_alone(&b, 1, 0.9f, want);
    set_guard(&b);
    r = with_room(&b, 1, 0.9f, 2);
    r.seq->drafter = (bt_drafter_t){.propose = guess_well, .ctx = want};
    assert_int_equal(bt_engine_submit(b.engine, r.seq), BT_OK);
    /* All guesses are right: 32 computed, 33 known, as without. */
    assert_int_equal(run_until_it_sits_out(&b, &r, 28), 5);
    assert_true(r.seq->n_iterations < 4);
    check_guard(&b);
    grow(&b, &r);
    assert_int_equal(run_until_left(&b, 1), 0);
    check_answer(r.seq, want);
    check_guard(&b);
    free_seq(r.seq);
    close_bench(&b);
}

/* A wake for each of many growths, whether it sleeps or not. */
static void repeated_wakes_count_once(void **state)
{
    bt_seq_t *seq;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    for (uint32_t i = 0; i < 10000; i++) {
        bt_engine_wake(b.engine);
    }
    seq = make_seq(&b, 0, 0.0f);
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    assert_int_equal(run_until_left(&b, 1), 0);
    free_seq(seq);
    close_bench(&b);
}

/* The owner wakes again when the first one is out of the ring, and before the
 * compute thread has looked behind it. */
static void wake_after_a_wake_is_not_taken_for_a_sequence(void **state)
{
    bt_engine_t *engine = bt_calloc(1, sizeof(*engine));
    bt_seq_t seq = {.n_prompt = 1};

    (void)state;
    assert_int_equal(bt_ring_create(4, &engine->inbox), BT_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(bt_ring_push(engine->inbox, engine), BT_OK);
    }
    assert_null(bt_engine_pop(engine));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(bt_ring_push(engine->inbox, engine), BT_OK);
    }
    assert_int_equal(bt_ring_push(engine->inbox, &seq), BT_OK);
    assert_ptr_equal(bt_engine_pop(engine), &seq);
    assert_null(bt_engine_pop(engine));
    bt_ring_destroy(engine->inbox);
    bt_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(sequence_without_blocks_pauses_until_it_has_some),
        BT_TEST(other_sequences_continue_while_one_waits_for_blocks),
        BT_TEST(preempted_sequence_resumes_with_the_same_tokens),
        BT_TEST(drafts_are_cut_to_the_kv_limit),
        BT_TEST(repeated_wakes_count_once),
        BT_TEST(wake_after_a_wake_is_not_taken_for_a_sequence),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
