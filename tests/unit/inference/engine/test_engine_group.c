/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences that begin alike: one of them computes the prompt, and each draws
 * what it draws alone (I1). The bytes of single runs are the expected ones. */
#include "common/kv/kv_block_pool.h"
#include "tests/unit/inference/engine/bench.h"

#define MOST       4u /* sequences of a group here */
#define MAX_PROMPT 320u

typedef struct choice {
    bt_seq_t seq;
    uint32_t tokens[MAX_PROMPT + MAX_NEW];
    uint32_t ids[(MAX_PROMPT + MAX_NEW) / T + 1];
    uint32_t n_blocks;
} choice_t;

/* What the reports said of each, by seq->user. */
typedef struct watch {
    uint32_t context_tokens;
    uint32_t context_seqs; /* sum over iterations */
    uint32_t n_left;
    uint32_t n_chunks[MOST];
    uint32_t n_computed[MOST];  /* by the last CHUNK */
    uint64_t first_token[MOST]; /* its iteration */
    uint64_t left[MOST];
    bt_finish_t finish[MOST];
} watch_t;

/* Everything but its blocks. */
static void describe(choice_t *c, uint32_t n_prompt, uint32_t i)
{
    memset(c, 0, sizeof(*c));
    for (uint32_t t = 0; t < n_prompt; t++) {
        c->tokens[t] = 3 + (t * 11 + 5) % 250;
    }
    c->n_blocks = bt_kv_blocks_for(n_prompt + MAX_NEW, T);
    c->seq.user = (void *)(uintptr_t)i;
    c->seq.tokens = c->tokens;
    c->seq.blocks = c->ids;
    c->seq.sched.n_tokens = n_prompt;
    c->seq.n_prompt = n_prompt;
    c->seq.max_new = MAX_NEW;
    c->seq.sampling = bt_sampling_default();
    c->seq.sampling.temperature = (i == 0) ? 0.0f : 1.5f;
    c->seq.sampling.repetition_penalty = (i == 2) ? 1.3f : 1.0f;
    c->seq.sampling.seed = 100 + i;
}

static void take_blocks(bt_kv_pool_t *pool, choice_t *c)
{
    assert_int_equal(bt_kv_pool_acquire(pool, c->n_blocks, c->ids), BT_OK);
}

static void give_blocks(bt_kv_pool_t *pool, const choice_t *c)
{
    for (uint32_t i = 0; i < c->n_blocks; i++) {
        bt_kv_pool_unref(pool, c->ids[i]);
    }
}

static bt_kv_pool_t *open_all(bench_t *b, bt_kv_type_t type, uint32_t budget)
{
    bt_kv_pool_t *pool = NULL;

    open_bench(b, type, budget);
    /* Not a number, in every type: what was not written or copied shows. */
    memset(b->pool, 0xff, N_BLOCKS * b->kv.block_bytes);
    assert_int_equal(bt_kv_pool_create(N_BLOCKS, &pool), BT_OK);
    return pool;
}

static void close_all(bench_t *b, bt_kv_pool_t *pool)
{
    assert_int_equal(bt_kv_pool_n_free(pool), N_BLOCKS);
    bt_kv_pool_destroy(pool);
    close_bench(b);
}

static void watch_report(watch_t *w, const bt_report_t *report)
{
    w->context_tokens += report->n_context_tokens;
    w->context_seqs += report->n_context_seqs;
    for (uint32_t k = 0; k < report->n_items; k++) {
        const bt_report_item_t *item = &report->items[k];
        const uintptr_t i = (uintptr_t)item->seq->user;

        switch (item->kind) {
        case BT_REPORT_CHUNK:
            assert_int_equal(w->first_token[i], 0);
            assert_true(item->n_computed > w->n_computed[i]);
            w->n_chunks[i]++;
            w->n_computed[i] = item->n_computed;
            break;
        case BT_REPORT_TOKEN:
            if (item->index == 0) {
                w->first_token[i] = report->iteration;
            }
            break;
        case BT_REPORT_LEFT:
            assert_int_equal(w->left[i], 0);
            w->left[i] = report->iteration;
            w->finish[i] = item->finish;
            w->n_left++;
            break;
        }
    }
}

static bt_report_t *next_report(bench_t *b)
{
    const uint64_t end = bt_now_ns() + DEADLINE_NS;
    bt_report_t *report = NULL;

    while (report == NULL) {
        assert_true(bt_now_ns() < end);
        report = bt_engine_next(b->engine);
    }
    return report;
}

static void watch_until_left(bench_t *b, watch_t *w, uint32_t n)
{
    while (w->n_left < n) {
        bt_report_t *report = next_report(b);

        watch_report(w, report);
        bt_engine_recycle(b->engine, report);
    }
}

/* Each by itself, in blocks of its own. */
static void run_alone(bench_t *b, bt_kv_pool_t *pool, choice_t *c, uint32_t n,
                      uint32_t n_prompt)
{
    for (uint32_t i = 0; i < n; i++) {
        describe(&c[i], n_prompt, i);
        take_blocks(pool, &c[i]);
        assert_int_equal(bt_engine_submit(b->engine, &c[i].seq), BT_OK);
        run_until_left(b, 1);
        assert_int_equal(c[i].seq.n_drawn, MAX_NEW);
        give_blocks(pool, &c[i]);
    }
    /* Different, or the comparisons with them would say little. */
    assert_memory_not_equal(c[0].tokens, c[1].tokens, sizeof(c[0].tokens));
    memset(b->pool, 0xff, N_BLOCKS * b->kv.block_bytes);
}

/* A leader with blocks, and forks of its table. */
static void make_group(bt_kv_pool_t *pool, choice_t *c, bt_seq_t **seqs,
                       uint32_t n, uint32_t n_prompt)
{
    for (uint32_t i = 0; i < n; i++) {
        bt_kv_copy_t copy;

        describe(&c[i], n_prompt, i);
        seqs[i] = &c[i].seq;
        if (i == 0) {
            take_blocks(pool, &c[0]);
        } else {
            assert_int_equal(bt_kv_fork(pool, c[0].ids, n_prompt, T,
                                        c[i].n_blocks, c[i].ids, &copy),
                             BT_OK);
        }
    }
}

static void assert_same_tokens(const choice_t *a, const choice_t *b)
{
    assert_int_equal(a->seq.sched.n_tokens, b->seq.sched.n_tokens);
    assert_memory_equal(a->tokens, b->tokens,
                        a->seq.sched.n_tokens * sizeof(a->tokens[0]));
}

static void one_group(bt_kv_type_t type, uint32_t n_prompt)
{
    choice_t alone[MOST];
    choice_t group[MOST];
    bt_seq_t *seqs[MOST];
    watch_t w = {0};
    bench_t b;
    bt_kv_pool_t *pool = open_all(&b, type, 32);

    run_alone(&b, pool, alone, MOST, n_prompt);
    make_group(pool, group, seqs, MOST, n_prompt);
    assert_int_equal(bt_engine_submit_fanout(b.engine, seqs, MOST), BT_OK);
    watch_until_left(&b, &w, MOST);
    assert_int_equal(w.context_tokens, (n_prompt == 1) ? 0 : n_prompt);
    assert_int_equal(w.context_seqs, w.n_chunks[0]);
    for (uint32_t i = 0; i < MOST; i++) {
        assert_same_tokens(&group[i], &alone[i]);
        assert_int_equal(w.first_token[i], w.first_token[0]);
        assert_int_equal(w.n_chunks[i], alone[i].seq.n_chunks);
        assert_int_equal(w.n_computed[i], n_prompt);
        assert_int_equal(w.finish[i], BT_FINISH_LENGTH);
        assert_int_equal(group[i].seq.n_iterations, alone[i].seq.n_iterations);
        assert_int_equal(group[i].seq.n_chunks, alone[i].seq.n_chunks);
        assert_true(group[i].seq.first_start_ns == group[0].seq.first_start_ns);
        give_blocks(pool, &group[i]);
    }
    close_all(&b, pool);
}

static void choices_share_one_prefill_and_sample_as_if_alone(void **state)
{
    (void)state;
    one_group(BT_KV_F16, 74); /* three chunks, 10 tokens in the last block */
    one_group(BT_KV_BF16, 74);
    one_group(BT_KV_INT8, 74);
    one_group(BT_KV_FP8, 74);
    one_group(BT_KV_F16, 64); /* whole blocks only */
    one_group(BT_KV_F16, 5);  /* nothing to share, all is copied */
    one_group(BT_KV_F16, 1);
}

/* What a prefill worker does: no blocks beyond the prompt, all in one table. */
static void prefill_only_choices_leave_together(void **state)
{
    choice_t alone[MOST];
    choice_t group[MOST];
    bt_seq_t *seqs[MOST];
    watch_t w = {0};
    bench_t b;
    bt_kv_pool_t *pool = open_all(&b, BT_KV_F16, 32);

    (void)state;
    run_alone(&b, pool, alone, MOST, 74);
    for (uint32_t i = 0; i < MOST; i++) {
        describe(&group[i], 74, i);
        group[i].n_blocks = bt_kv_blocks_for(74, T);
        group[i].seq.leave_after_first = true;
        group[i].seq.tell_layers = i % 2 == 0;
        group[i].seq.clear_tail = true; /* once for all, before the first */
        seqs[i] = &group[i].seq;
        if (i == 0) {
            take_blocks(pool, &group[0]);
            continue;
        }
        for (uint32_t k = 0; k < group[0].n_blocks; k++) {
            bt_kv_pool_ref(pool, group[0].ids[k]);
            group[i].ids[k] = group[0].ids[k];
        }
    }
    assert_int_equal(bt_engine_submit_fanout(b.engine, seqs, MOST), BT_OK);
    watch_until_left(&b, &w, MOST);
    for (uint32_t i = 0; i < MOST; i++) {
        assert_int_equal(w.left[i], w.first_token[0]);
        assert_int_equal(w.first_token[i], w.first_token[0]);
        assert_int_equal(w.n_computed[i], 74);
        assert_int_equal(group[i].seq.n_drawn, 1);
        assert_int_equal(group[i].tokens[74], alone[i].tokens[74]);
        assert_int_equal(bt_seq_layers(seqs[i]),
                         (i % 2 == 0) ? b.kv.n_layers : 0);
        give_blocks(pool, &group[i]);
    }
    close_all(&b, pool);
}

/* Of 33 tokens 32 are found in a cache: the prompt ends in the first iteration,
 * which computes one token. */
static void group_starts_with_cached_blocks(void **state)
{
    choice_t alone[MOST];
    choice_t first;
    choice_t group[MOST];
    bt_seq_t *seqs[MOST];
    watch_t w = {0};
    bench_t b;
    bt_kv_pool_t *pool = open_all(&b, BT_KV_F16, 32);

    (void)state;
    run_alone(&b, pool, alone, MOST, 33);
    describe(&first, 33, 0);
    first.seq.leave_after_first = true;
    take_blocks(pool, &first);
    assert_int_equal(bt_engine_submit(b.engine, &first.seq), BT_OK);
    run_until_left(&b, 1);

    for (uint32_t i = 0; i < MOST; i++) {
        bt_kv_copy_t copy;

        describe(&group[i], 33, i);
        group[i].seq.sched.n_computed = 32;
        seqs[i] = &group[i].seq;
        assert_int_equal(bt_kv_fork(pool, first.ids, 32, T, group[i].n_blocks,
                                    group[i].ids, &copy),
                         BT_OK);
        assert_false(bt_kv_copy_is_due(copy));
    }
    assert_int_equal(bt_engine_submit_fanout(b.engine, seqs, MOST), BT_OK);
    watch_until_left(&b, &w, MOST);
    assert_int_equal(w.context_seqs, 1);
    for (uint32_t i = 0; i < MOST; i++) {
        assert_same_tokens(&group[i], &alone[i]);
        give_blocks(pool, &group[i]);
    }
    give_blocks(pool, &first);
    close_all(&b, pool);
}

/* ---- cancels ---- */

/* Twenty chunks, and the engine stops after as many iterations as it has
 * reports (16) when none comes back: a cancel after the first report is always
 * one in the middle of the prompt.
 * @param at_once  before there is any chunk */
static void cancel_when(const bool *cancels, bool at_once)
{
    choice_t alone[MOST];
    choice_t group[MOST];
    bt_seq_t *seqs[MOST];
    watch_t w = {0};
    bench_t b;
    bt_kv_pool_t *pool = open_all(&b, BT_KV_F16, 16);
    bt_report_t *report = NULL;
    uint32_t n_others = 0;

    run_alone(&b, pool, alone, MOST, MAX_PROMPT - 3);
    make_group(pool, group, seqs, MOST, MAX_PROMPT - 3);
    for (uint32_t i = 0; i < MOST; i++) {
        n_others += cancels[i] ? 0 : 1;
        if (cancels[i] && at_once) {
            bt_engine_cancel(seqs[i]);
        }
    }
    assert_int_equal(bt_engine_submit_fanout(b.engine, seqs, MOST), BT_OK);
    if (!at_once) {
        report = next_report(&b);
        watch_report(&w, report);
        assert_int_equal(w.n_chunks[0], 1);
    }
    for (uint32_t i = 0; i < MOST; i++) {
        if (cancels[i]) {
            bt_engine_cancel(seqs[i]);
        }
    }
    if (report != NULL) {
        bt_engine_recycle(b.engine, report);
    }
    watch_until_left(&b, &w, MOST);
    for (uint32_t i = 0; i < MOST; i++) {
        if (cancels[i]) {
            assert_int_equal(w.finish[i], BT_FINISH_CANCELED);
            assert_int_equal(w.first_token[i], 0);
            assert_int_equal(group[i].seq.n_drawn, 0);
        } else {
            assert_same_tokens(&group[i], &alone[i]);
        }
        give_blocks(pool, &group[i]);
    }
    if (n_others > 0) {
        assert_int_equal(w.context_tokens, MAX_PROMPT - 3); /* nothing twice */
    }
    close_all(&b, pool);
}

static void cancel_some(const bool *cancels)
{
    cancel_when(cancels, true);
    cancel_when(cancels, false);
}

static void canceled_leader_leaves_and_its_choices_continue(void **state)
{
    static const bool leader[MOST] = {true};
    static const bool two[MOST] = {true, true};
    static const bool all_but_last[MOST] = {true, true, true};

    (void)state;
    cancel_some(leader);
    cancel_some(two);
    cancel_some(all_but_last);
}

static void canceled_choice_leaves_and_the_others_continue(void **state)
{
    static const bool one[MOST] = {false, true};
    static const bool last[MOST] = {false, false, false, true};
    static const bool followers[MOST] = {false, true, true, true};

    (void)state;
    cancel_some(one);
    cancel_some(last);
    cancel_some(followers);
}

static void canceled_group_of_choices_leaves(void **state)
{
    static const bool all[MOST] = {true, true, true, true};

    (void)state;
    cancel_some(all);
}

/* ---- seats and failure ---- */

static void choices_get_all_seats_or_none(void **state)
{
    choice_t a[MOST];
    choice_t c[MOST];
    choice_t d[MOST];
    bt_seq_t *seqs[MOST];
    bench_t b;
    bt_kv_pool_t *pool = open_all(&b, BT_KV_F16, 32);

    (void)state;
    _Static_assert(MAX_SEQS == 8, "4 and 3 leave one seat");
    make_group(pool, a, seqs, 4, 20);
    assert_int_equal(bt_engine_submit_fanout(b.engine, seqs, 4), BT_OK);
    make_group(pool, c, seqs, 3, 20);
    assert_int_equal(bt_engine_submit_fanout(b.engine, seqs, 3), BT_OK);
    make_group(pool, d, seqs, 2, 20);
    assert_int_equal(bt_engine_submit_fanout(b.engine, seqs, 2), BT_ERR_BUSY);
    /* One alone has room; and none of the two went in. */
    assert_int_equal(bt_engine_submit(b.engine, seqs[1]), BT_OK);
    run_until_left(&b, 8);
    assert_int_equal(d[0].seq.n_iterations, 0);
    assert_int_equal(d[1].seq.n_drawn, MAX_NEW);
    for (uint32_t i = 0; i < 4; i++) {
        give_blocks(pool, &a[i]);
    }
    for (uint32_t i = 0; i < 3; i++) {
        give_blocks(pool, &c[i]);
    }
    give_blocks(pool, &d[0]);
    give_blocks(pool, &d[1]);
    close_all(&b, pool);
}

static void device_failure_ends_the_whole_choice_group(void **state)
{
    choice_t group[MOST];
    bt_seq_t *seqs[MOST];
    bench_t b;
    bt_kv_pool_t *pool = open_all(&b, BT_KV_F16, 32);
    bt_report_t *report;

    (void)state;
    bt_test_expect_log_lines(1);
    make_group(pool, group, seqs, MOST, 20);
    group[0].tokens[7] = UINT32_MAX; /* refused by the forward pass */
    assert_int_equal(bt_engine_submit_fanout(b.engine, seqs, MOST), BT_OK);
    report = next_report(&b);
    assert_int_equal(report->status, BT_ERR_INVALID_PARAM);
    assert_int_equal(report->n_items, MOST);
    for (uint32_t i = 0; i < MOST; i++) {
        assert_int_equal(report->items[i].kind, BT_REPORT_LEFT);
        assert_int_equal(report->items[i].finish, BT_FINISH_ERROR);
        give_blocks(pool, &group[i]);
    }
    bt_engine_recycle(b.engine, report);
    close_all(&b, pool);
}

/* ---- a fork of what is there ---- */

/* The origin has gone on and written behind the prompt before it is forked;
 * the forks then go on from its prompt, each with a token #1 of its own. */
static void forks_of_a_sequence(bt_kv_type_t type, uint32_t n_prompt)
{
    choice_t alone[MOST];
    choice_t forks[MOST];
    choice_t origin;
    watch_t w = {0};
    bench_t b;
    bt_kv_pool_t *pool = open_all(&b, type, 32);

    run_alone(&b, pool, alone, MOST, n_prompt);
    describe(&origin, n_prompt, 0);
    take_blocks(pool, &origin);
    assert_int_equal(bt_engine_submit(b.engine, &origin.seq), BT_OK);
    run_until_left(&b, 1);
    for (uint32_t i = 0; i < MOST; i++) {
        describe(&forks[i], n_prompt, i);
        assert_int_equal(bt_kv_fork(pool, origin.ids, n_prompt, T,
                                    forks[i].n_blocks, forks[i].ids,
                                    forks[i].seq.copy),
                         BT_OK);
        forks[i].tokens[n_prompt] = alone[i].tokens[n_prompt];
        forks[i].seq.sched.n_tokens = n_prompt + 1;
        forks[i].seq.sched.n_computed = n_prompt;
        forks[i].seq.max_new = MAX_NEW - 1;
        forks[i].seq.first_index = 1;
        assert_int_equal(bt_engine_submit(b.engine, &forks[i].seq), BT_OK);
    }
    watch_until_left(&b, &w, MOST);
    give_blocks(pool, &origin);
    for (uint32_t i = 0; i < MOST; i++) {
        assert_same_tokens(&forks[i], &alone[i]);
        give_blocks(pool, &forks[i]);
    }
    close_all(&b, pool);
}

static void forks_continue_from_a_copy(void **state)
{
    (void)state;
    forks_of_a_sequence(BT_KV_F16, 74);
    forks_of_a_sequence(BT_KV_BF16, 74);
    forks_of_a_sequence(BT_KV_INT8, 74);
    forks_of_a_sequence(BT_KV_FP8, 74);
    forks_of_a_sequence(BT_KV_F16, 64);
    forks_of_a_sequence(BT_KV_F16, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(choices_share_one_prefill_and_sample_as_if_alone),
        BT_TEST(prefill_only_choices_leave_together),
        BT_TEST(group_starts_with_cached_blocks),
        BT_TEST(canceled_leader_leaves_and_its_choices_continue),
        BT_TEST(canceled_choice_leaves_and_the_others_continue),
        BT_TEST(canceled_group_of_choices_leaves),
        BT_TEST(choices_get_all_seats_or_none),
        BT_TEST(device_failure_ends_the_whole_choice_group),
        BT_TEST(forks_continue_from_a_copy),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
