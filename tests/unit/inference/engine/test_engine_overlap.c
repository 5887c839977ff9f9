/* SPDX-License-Identifier: Apache-2.0 */
/* Passes on a device that begin while the one before is under way: the tokens
 * of one pass after the other, who ends, comes and goes meanwhile, and a device
 * that fails. */
#include "tests/unit/inference/engine/device.h"

#include <sched.h>
#include <stdatomic.h>

#include "common/base/status.h"

#define BUDGET 64u
#define N_SEQS 7u /* as many as have blocks of their own (bench.h) */

/* What sequences are like. */
typedef enum kind {
    BEST,    /* all take the best */
    MIXED,   /* some draw from all, some from a few */
    ENDING,  /* all take the best, and end at different ones */
    GUESSED, /* some have a drafter */
    READING, /* draws ask which tokens there were */
    N_KINDS,
} kind_t;

static void open_overlapping(bench_t *b, bt_sched_overlap_mode_t mode)
{
    bt_engine_config_t config = open_device(b, BUDGET);

    config.overlap = mode;
    assert_int_equal(bt_engine_create(&config, &b->engine), BT_OK);
}

/* Never right: an id that is not sampled twice in a row. */
static bt_draft_t guess_badly(void *ctx, const uint32_t *tokens,
                              uint32_t n_tokens, uint32_t max, uint32_t *drafts)
{
    const bt_seq_t *known = ctx;

    (void)tokens;
    if (max == 0) {
        return (bt_draft_t){.n = 0};
    }
    drafts[0] = (known->tokens[n_tokens] + 1) % 256;
    return (bt_draft_t){.n = 1, .n_matched = 2};
}

/* Always right: what the same sequence came to before. */
static bt_draft_t guess_well(void *ctx, const uint32_t *tokens,
                             uint32_t n_tokens, uint32_t max, uint32_t *drafts)
{
    const bt_seq_t *known = ctx;

    (void)tokens;
    memcpy(drafts, &known->tokens[n_tokens], max * sizeof(*drafts));
    return (bt_draft_t){.n = max, .n_matched = 20};
}

/* Right now and then. */
static bt_draft_t guess(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                        uint32_t max, uint32_t *drafts)
{
    (void)ctx;
    drafts[0] = tokens[n_tokens - 1];
    return (bt_draft_t){.n = (max > 0) ? 1 : 0};
}

/* One token twice; which, known after a run without. */
static bt_bad_word_t pair = {.n = 2};

static bt_seq_t *make_one(bench_t *b, uint32_t i, kind_t kind)
{
    bt_seq_t *seq =
        make_seq(b, i, ((kind == MIXED) && (i % 3 != 0)) ? 0.9f : 0.0f);

    seq->sampling.top_k = ((kind == MIXED) && (i % 3 == 1)) ? 5 : 0;
    if ((kind == GUESSED) && (i % 2 == 0)) {
        seq->drafter = (bt_drafter_t){.propose = guess};
    }
    if (kind == READING) {
        seq->sampling.frequency_penalty = (i % 2 == 0) ? 1.5f : 0.0f;
        seq->sampling.bad_words = &pair;
        seq->sampling.n_bad_words = (i % 2 == 1) ? 1 : 0;
    }
    if (kind == ENDING) {
        seq->max_new = 3 + 2 * i;
        seq->leave_after_first = (i == 2);
    }
    return seq;
}

static void make_seqs(bench_t *b, kind_t kind, bt_seq_t **seqs)
{
    b->next_block = 0;
    for (uint32_t i = 0; i < N_SEQS; i++) {
        seqs[i] = make_one(b, i, kind);
    }
}

static atomic_bool all_are_there;

static void wait_for_all(void *ctx)
{
    (void)ctx;
    while (!atomic_load(&all_are_there)) {
        sched_yield();
    }
}

/* The first pass is under way until all are submitted, so that they meet. */
static void submit_all(bench_t *b, bt_seq_t **seqs)
{
    atomic_store(&all_are_there, false);
    bt_trap_before_matmul(b->be, wait_for_all, NULL);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        assert_int_equal(bt_engine_submit(b->engine, seqs[i]), BT_OK);
    }
    atomic_store(&all_are_there, true);
}

static void free_seqs(bt_seq_t **seqs)
{
    for (uint32_t i = 0; i < N_SEQS; i++) {
        free_seq(seqs[i]);
    }
}

/* What reports came to. */
typedef struct told {
    uint32_t n_left, n_canceled, n_failed;
    uint32_t n_overlapped; /* iterations */
    uint32_t n_late_left;  /* LEFT in a later report than the last token */
    uint32_t n_behind;     /* items of a sequence behind its LEFT */
} told_t;

/* By the owner's number of a sequence, user. */
static void hear(const bt_report_t *report, told_t *told, uint8_t *ended,
                 uint8_t *left)
{
    told->n_overlapped += report->overlapped ? 1 : 0;
    for (uint32_t k = 0; k < N_SEQS; k++) {
        ended[k] = (ended[k] == 1) ? 2 : ended[k];
    }
    for (uint32_t i = 0; i < report->n_items; i++) {
        const bt_report_item_t *item = &report->items[i];
        const size_t k = (size_t)(uintptr_t)item->seq->user;

        told->n_behind += left[k];
        if ((item->kind == BT_REPORT_TOKEN) &&
            (item->finish != BT_FINISH_NONE)) {
            ended[k] = 1;
        }
        if (item->kind == BT_REPORT_LEFT) {
            told->n_left++;
            told->n_canceled += (item->finish == BT_FINISH_CANCELED) ? 1 : 0;
            told->n_failed += (item->finish == BT_FINISH_ERROR) ? 1 : 0;
            told->n_late_left += (ended[k] == 2) ? 1 : 0;
            left[k] = 1;
        }
    }
}

/* Until all have left. @param [in] at_token  called at the first token of
 * sequence 0; NULL: nothing */
static told_t run_all(bench_t *b, bt_seq_t **seqs,
                      void (*at_token)(bt_seq_t **seqs))
{
    const uint64_t end = bt_now_ns() + DEADLINE_NS;
    uint8_t ended[N_SEQS] = {0};
    uint8_t left[N_SEQS] = {0};
    told_t told = {0};

    for (uint32_t i = 0; i < N_SEQS; i++) {
        seqs[i]->user = (void *)(uintptr_t)i;
    }
    submit_all(b, seqs);
    while (told.n_left < N_SEQS) {
        bt_report_t *report = bt_engine_next(b->engine);

        assert_true(bt_now_ns() < end);
        if (report == NULL) {
            continue;
        }
        hear(report, &told, ended, left);
        for (uint32_t i = 0; i < report->n_items; i++) {
            const bt_report_item_t *item = &report->items[i];

            if ((at_token != NULL) && (item->kind == BT_REPORT_TOKEN) &&
                (item->seq == seqs[0])) {
                at_token(seqs);
                at_token = NULL;
            }
        }
        bt_engine_recycle(b->engine, report);
    }
    assert_int_equal(told.n_behind, 0);
    return told;
}

static void expect_same(bt_seq_t *const *want, bt_seq_t *const *got)
{
    for (uint32_t i = 0; i < N_SEQS; i++) {
        assert_int_equal(got[i]->n_drawn, want[i]->n_drawn);
        assert_int_equal(got[i]->sched.n_tokens, want[i]->sched.n_tokens);
        assert_int_equal(got[i]->sched.n_computed, want[i]->sched.n_computed);
        assert_memory_equal(got[i]->tokens, want[i]->tokens,
                            got[i]->sched.n_tokens * sizeof(uint32_t));
    }
}

/* Sequences 1, 3 and 5 end with a token that they are known to come to. */
static void end_at(bt_seq_t **seqs, bt_seq_t *const *known)
{
    for (uint32_t i = 1; i < N_SEQS; i += 2) {
        seqs[i]->sampling.n_end_ids = 1;
        seqs[i]->sampling.end_ids[0] =
            known[i]->tokens[known[i]->n_prompt + known[i]->n_drawn / 2];
    }
}

static void overlapped_passes_give_the_tokens_of_serial_passes(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < N_KINDS; kind++) {
        bt_seq_t *want[N_SEQS], *got[N_SEQS], *known[N_SEQS];
        bench_t one, two;
        told_t told;

        open_overlapping(&one, BT_SCHED_OVERLAP_OFF);
        open_overlapping(&two, BT_SCHED_OVERLAP_ON);
        make_seqs(&one, kind, known);
        told = run_all(&one, known, NULL);
        assert_int_equal(told.n_overlapped, 0);
        assert_int_equal(told.n_late_left, 0);
        pair.ids[0] = pair.ids[1] = known[1]->tokens[known[1]->n_prompt];
        make_seqs(&one, kind, want);
        end_at(want, known);
        (void)run_all(&one, want, NULL);
        assert_int_equal(bt_trap_most_under_way(one.be), 1);
        make_seqs(&two, kind, got);
        end_at(got, known);
        told = run_all(&two, got, NULL);
        expect_same(want, got);
        if (kind == READING) {
            assert_true(told.n_overlapped <
                        MAX_NEW / 2); /* chunks of prompts */
        } else if (kind != GUESSED) {
            assert_int_equal(bt_trap_most_under_way(two.be), 2);
            assert_true(told.n_overlapped >= MAX_NEW / 2);
            assert_true(told.n_late_left >= 1); /* known only afterwards */
        }
        free_seqs(known);
        free_seqs(want);
        free_seqs(got);
        close_device(&one);
        close_device(&two);
    }
}

/* Drafts that are expected to be wrong are asked for, learned from, and not
 * waited for: nearly all passes overlap, as without a drafter. */
static void passes_overlap_beside_an_idle_drafter(void **state)
{
    bt_seq_t *known[N_SEQS], *without[N_SEQS], *with[N_SEQS];
    bt_engine_config_t config;
    told_t told_without;
    told_t told_with;
    bench_t b;

    (void)state;
    config = open_device(&b, BUDGET);
    config.overlap = BT_SCHED_OVERLAP_ON;
    config.fixed_drafts = 0; /* by cost */
    assert_int_equal(bt_engine_create(&config, &b.engine), BT_OK);
    make_seqs(&b, BEST, known);
    (void)run_all(&b, known, NULL);
    make_seqs(&b, BEST, without);
    told_without = run_all(&b, without, NULL);
    make_seqs(&b, BEST, with);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        with[i]->drafter =
            (bt_drafter_t){.propose = guess_badly, .ctx = known[i]};
    }
    told_with = run_all(&b, with, NULL);
    expect_same(without, with);
    assert_true(told_without.n_overlapped >= MAX_NEW / 2);
    assert_true(told_with.n_overlapped + 4 >= told_without.n_overlapped);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        assert_int_equal(with[i]->n_accepted, 0);
    }
    free_seqs(known);
    free_seqs(without);
    free_seqs(with);
    close_device(&b);
}

/* Once a draft has turned out right, the next token is waited for, and drafts
 * behind it are verified. */
static void drafts_that_pay_end_the_overlap(void **state)
{
    bt_seq_t *known[N_SEQS], *with[N_SEQS];
    bench_t b;

    (void)state;
    open_overlapping(&b, BT_SCHED_OVERLAP_ON);
    make_seqs(&b, BEST, known);
    (void)run_all(&b, known, NULL);
    make_seqs(&b, BEST, with);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        with[i]->drafter =
            (bt_drafter_t){.propose = guess_well, .ctx = known[i]};
    }
    (void)run_all(&b, with, NULL);
    expect_same(known, with);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        assert_int_equal(with[i]->n_accepted, with[i]->n_drafted);
    }
    assert_true(with[0]->n_accepted >= MAX_NEW / 2);
    assert_true(with[0]->n_iterations < known[0]->n_iterations);
    free_seqs(known);
    free_seqs(with);
    close_device(&b);
}

/* Drafts of a model that costs nothing. */
typedef struct oracle {
    bt_seq_t *const *known;
    bool is_right;
    uint32_t n_asked;
    uint32_t n_unknown; /* last tokens that a pass in flight computes */
} oracle_t;

static bt_status_t draft_known(void *ctx, bt_next_draft_t *next, uint32_t n)
{
    oracle_t *o = ctx;

    for (uint32_t i = 0; i < n; i++) {
        const bt_seq_t *known = o->known[(size_t)(uintptr_t)next[i].seq->user];
        const uint32_t at = next[i].seq->sched.n_tokens;
        const uint32_t right = known->tokens[at + next[i].n_drafts];

        o->n_asked++;
        o->n_unknown +=
            (next[i].seq->tokens[at - 1] != known->tokens[at - 1]) ? 1 : 0;
        next[i].id = o->is_right ? right : (right + 1) % 256;
        next[i].probability = o->is_right ? 0.99f : 0.01f;
    }
    return BT_OK;
}

/* Runs sequences with a draft model eight times.
 * @param [in] fixed  drafts of each sequence; 0: as many as pay by the times
 *         that the machine measures
 * @return overlapped passes */
static uint32_t run_with_draft_model(bt_seq_t **known, bool is_right,
                                     uint32_t fixed)
{
    bt_engine_config_t config;
    bt_seq_t *got[N_SEQS];
    oracle_t oracle = {.known = known, .is_right = is_right};
    uint32_t n_overlapped = 0;
    bench_t b;

    config = open_device(&b, BUDGET);
    config.overlap = BT_SCHED_OVERLAP_ON;
    config.fixed_drafts = fixed;
    config.batch_drafter = (bt_batch_drafter_t){
        .draft = draft_known, .ctx = &oracle, .max_seqs = MAX_SEQS};
    assert_int_equal(bt_engine_create(&config, &b.engine), BT_OK);
    for (int run = 0; run < 8; run++) { /* at first it is tried */
        make_seqs(&b, BEST, got);
        for (uint32_t i = 0; i < N_SEQS; i++) {
            got[i]->model_drafts = true;
        }
        n_overlapped += run_all(&b, got, NULL).n_overlapped;
        expect_same(known, got);
        for (uint32_t i = 0; is_right && (i < N_SEQS); i++) {
            assert_int_equal(got[i]->n_accepted, got[i]->n_drafted);
        }
        free_seqs(got);
    }
    assert_true(oracle.n_asked > 0);
    assert_int_equal(oracle.n_unknown, 0);
    close_device(&b);
    return n_overlapped;
}

/* A round would have to know the token that the pass in flight draws. */
static void draft_model_waits_for_the_pass_in_flight(void **state)
{
    bt_seq_t *known[N_SEQS];
    uint32_t n_idle;
    bench_t b;

    (void)state;
    open_overlapping(&b, BT_SCHED_OVERLAP_ON);
    make_seqs(&b, BEST, known);
    (void)run_all(&b, known, NULL);
    n_idle = run_with_draft_model(known, false, 0);
    assert_true(n_idle >= 4 * (MAX_NEW / 2));
    (void)run_with_draft_model(known, true, 0); /* on trial, at least */
    assert_true(run_with_draft_model(known, true, 2) < n_idle / 2);
    free_seqs(known);
    close_device(&b);
}

static void cancel_two(bt_seq_t **seqs)
{
    bt_engine_cancel(seqs[0]);
    bt_engine_cancel(seqs[4]);
}

/* Who is in every pass leaves all the same, and nobody else sees it. */
static void canceled_sequence_leaves_overlapped_passes(void **state)
{
    bt_seq_t *want[N_SEQS], *got[N_SEQS];
    bench_t one, two;
    told_t told;

    (void)state;
    open_overlapping(&one, BT_SCHED_OVERLAP_OFF);
    open_overlapping(&two, BT_SCHED_OVERLAP_ON);
    make_seqs(&one, BEST, want);
    (void)run_all(&one, want, NULL);
    make_seqs(&two, BEST, got);
    told = run_all(&two, got, cancel_two);
    assert_in_range(told.n_canceled, 1, 2); /* 4 may have been through */
    assert_true(told.n_overlapped > 0);
    assert_true(got[0]->n_drawn < MAX_NEW);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        /* None is told of that was not known. */
        assert_int_equal(got[i]->sched.n_tokens,
                         got[i]->n_prompt + got[i]->n_drawn);
        assert_memory_equal(got[i]->tokens, want[i]->tokens,
                            got[i]->sched.n_tokens * sizeof(uint32_t));
    }
    free_seqs(want);
    free_seqs(got);
    close_device(&one);
    close_device(&two);
}

/* Three choices of one prompt, whose first tokens come from one row, in a pass
 * with first tokens of others behind it. */
static void choices_sample_unchanged_under_overlap(void **state)
{
    static const uint32_t prompts[] = {6, 0, 0, 0, 1, 2};
    bt_seq_t *seqs[2][6];
    bench_t b;

    (void)state;
    for (uint32_t mode = 0; mode < 2; mode++) {
        open_overlapping(&b, (mode == 0) ? BT_SCHED_OVERLAP_OFF
                                         : BT_SCHED_OVERLAP_ON);
        for (uint32_t i = 0; i < 6; i++) {
            seqs[mode][i] =
                make_seq(&b, prompts[i], (i % 2 == 0) ? 0.9f : 0.0f);
            seqs[mode][i]->sampling.seed = i;
        }
        atomic_store(&all_are_there, false);
        bt_trap_before_matmul(b.be, wait_for_all, NULL);
        assert_int_equal(bt_engine_submit(b.engine, seqs[mode][0]), BT_OK);
        assert_int_equal(bt_engine_submit_fanout(b.engine, &seqs[mode][1], 3),
                         BT_OK);
        assert_int_equal(bt_engine_submit(b.engine, seqs[mode][4]), BT_OK);
        assert_int_equal(bt_engine_submit(b.engine, seqs[mode][5]), BT_OK);
        atomic_store(&all_are_there, true);
        assert_int_equal(run_until_left(&b, 6), 0);
        close_device(&b);
    }
    for (uint32_t i = 0; i < 6; i++) {
        assert_memory_equal(seqs[0][i]->tokens, seqs[1][i]->tokens,
                            (seqs[0][i]->n_prompt + MAX_NEW) *
                                sizeof(uint32_t));
        free_seq(seqs[0][i]);
        free_seq(seqs[1][i]);
    }
}

/* Each wait in turn: all leave once, those that had ended as they did, and none
 * with a token that is not known. */
static void failed_device_ends_all_sequences(void **state)
{
    (void)state;
    bt_test_expect_log_lines(12);
    for (uint32_t number = 1; number <= 12; number++) {
        bt_seq_t *known[N_SEQS], *seqs[N_SEQS];
        bench_t b;
        told_t told;

        open_overlapping(&b, BT_SCHED_OVERLAP_ON);
        make_seqs(&b, ENDING, known);
        (void)run_all(&b, known, NULL);
        make_seqs(&b, ENDING, seqs);
        end_at(seqs, known);
        bt_trap_fail_wait(b.be, number);
        told = run_all(&b, seqs, NULL);
        assert_int_equal(told.n_left, N_SEQS);
        for (uint32_t i = 0; i < N_SEQS; i++) {
            assert_int_equal(seqs[i]->sched.n_tokens,
                             seqs[i]->n_prompt + seqs[i]->n_drawn);
            assert_memory_equal(seqs[i]->tokens, known[i]->tokens,
                                seqs[i]->sched.n_tokens * sizeof(uint32_t));
        }
        assert_in_range(told.n_failed, 1, N_SEQS);
        if (number == 1) {
            assert_int_equal(told.n_failed, N_SEQS);
        }
        free_seqs(known);
        free_seqs(seqs);
        close_device(&b);
    }
}

/* With passes under way: they are over before anything is freed. */
static void destroyed_engine_waits_for_passes_and_frees_all(void **state)
{
    bt_seq_t *seqs[N_SEQS];
    bt_report_t *report = NULL;
    bench_t b;

    (void)state;
    open_overlapping(&b, BT_SCHED_OVERLAP_ON);
    make_seqs(&b, BEST, seqs);
    submit_all(&b, seqs);
    while (report == NULL) {
        report = bt_engine_next(b.engine);
    }
    bt_engine_recycle(b.engine, report);
    close_device(&b);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        assert_int_equal(seqs[i]->sched.n_tokens,
                         seqs[i]->n_prompt + seqs[i]->n_drawn);
    }
    free_seqs(seqs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(overlapped_passes_give_the_tokens_of_serial_passes),
        BT_TEST(passes_overlap_beside_an_idle_drafter),
        BT_TEST(drafts_that_pay_end_the_overlap),
        BT_TEST(draft_model_waits_for_the_pass_in_flight),
        BT_TEST(canceled_sequence_leaves_overlapped_passes),
        BT_TEST(choices_sample_unchanged_under_overlap),
        BT_TEST(failed_device_ends_all_sequences),
        BT_TEST(destroyed_engine_waits_for_passes_and_frees_all),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
