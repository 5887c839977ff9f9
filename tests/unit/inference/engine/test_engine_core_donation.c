/* SPDX-License-Identifier: Apache-2.0 */
/* Cores of others are wanted while a prompt has waited for long, and who
 * generates sleeps while others want its own. */
#include "tests/unit/inference/engine/bench.h"

#define N_TOKENS 20u
/* How long cores are wanted, from when the board is asked. */
#define WANTED_NS UINT64_C(200000000)

/* What a worker's board would say. */
typedef struct fake_board {
    _Atomic uint64_t wanted_for_ns; /* from when it is asked; 0: not */
    _Atomic uint64_t last_want;
    _Atomic uint32_t n_wants, n_done, n_asked;
} fake_board_t;

static void want(void *ctx, uint64_t until_ns)
{
    fake_board_t *board = ctx;

    board->last_want = until_ns;
    if (until_ns > 0) {
        board->n_wants++;
    } else {
        board->n_done++;
    }
}

static uint64_t wanted(void *ctx)
{
    fake_board_t *board = ctx;

    board->n_asked++;
    return (board->wanted_for_ns > 0) ? bt_now_ns() + board->wanted_for_ns : 0;
}

/* The engine of a bench, opened again with the board. */
static void open_with(bench_t *b, fake_board_t *board, uint32_t max_seqs)
{
    const bt_engine_config_t config = {.model = b->model,
                                       .kv = b->kv,
                                       .max_seqs = max_seqs,
                                       .token_budget = 32,
                                       .itl_us = 10000000,
                                       .want_cores = want,
                                       .cores_wanted = wanted,
                                       .cores_ctx = board};

    bt_engine_destroy(b->engine);
    assert_int_equal(bt_engine_create(&config, &b->engine), BT_OK);
}

static void fill_seq(bt_seq_t *seq, uint32_t *tokens, const uint32_t *blocks,
                     uint32_t max_new)
{
    *seq = (bt_seq_t){.tokens = tokens,
                      .blocks = blocks,
                      .sched.n_tokens = N_TOKENS,
                      .n_prompt = N_TOKENS,
                      .max_new = max_new,
                      .sampling = bt_sampling_default()};
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        tokens[i] = 10 + i;
    }
}

static uint64_t said_ns; /* slept, as reports of the last run say */

/* Runs the sequence. @return the shortest time from the end of an iteration to
 * the start of one that slept before, less what the one before took. The board
 * may be asked too long before the engine looks at its answer, and then no
 * sleep is right. */
static int64_t run(bench_t *b, bt_seq_t *seq)
{
    const uint64_t deadline = bt_now_ns() + DEADLINE_NS;
    uint64_t start = 0;
    uint64_t end = 0;
    int64_t shortest = INT64_MAX;
    bool left = false;

    said_ns = 0;
    assert_int_equal(bt_engine_submit(b->engine, seq), BT_OK);
    while (!left) {
        bt_report_t *report = bt_engine_next(b->engine);

        assert_true(bt_now_ns() < deadline);
        if (report == NULL) {
            continue;
        }
        if (report->yielded_ns > 0) {
            const int64_t gap = (int64_t)(report->start_ns - end) -
                                (int64_t)((end - start) / 1000 * 1000);

            shortest = (gap < shortest) ? gap : shortest;
        }
        start = report->start_ns;
        end = report->end_ns;
        said_ns += report->yielded_ns;
        for (uint32_t i = 0; i < report->n_items; i++) {
            left = left || (report->items[i].kind == BT_REPORT_LEFT);
        }
        bt_engine_recycle(b->engine, report);
    }
    return shortest;
}

static void generating_worker_donates_one_step_per_step(void **state)
{
    const uint32_t blocks[] = {3, 1, 2};
    uint32_t plain[N_TOKENS + MAX_NEW];
    uint32_t tokens[N_TOKENS + MAX_NEW];
    const uint64_t deadline = bt_now_ns() + DEADLINE_NS;
    fake_board_t board = {0};
    bt_seq_t seq;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    open_with(&b, &board, MAX_SEQS);
    fill_seq(&seq, plain, blocks, MAX_NEW);
    (void)run(&b, &seq);
    assert_true(board.n_asked > 0);
    assert_int_equal(said_ns, 0);

    board.wanted_for_ns = WANTED_NS;
    do {
        assert_true(bt_now_ns() < deadline);
        fill_seq(&seq, tokens, blocks, MAX_NEW);
        assert_true(run(&b, &seq) >= 0);
        assert_memory_equal(tokens, plain, sizeof(tokens)); /* I1 */
    } while (said_ns == 0);
    close_bench(&b);
}

/* A target of its own that leaves time, and one that no step keeps: of all that
 * run the one with the least to spare decides, though the engine's leaves ten
 * seconds. */
static void sequence_without_slack_prevents_donation(void **state)
{
    const uint32_t blocks[] = {3, 1, 2};
    const uint64_t itl_us[] = {10000000, 1};
    const uint64_t deadline = bt_now_ns() + DEADLINE_NS;
    uint32_t tokens[N_TOKENS + MAX_NEW];
    fake_board_t board = {.wanted_for_ns = WANTED_NS};
    bt_seq_t seq;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    open_with(&b, &board, MAX_SEQS);
    for (uint32_t i = 0; i < 2; i++) {
        do {
            assert_true(bt_now_ns() < deadline);
            fill_seq(&seq, tokens, blocks, MAX_NEW);
            seq.itl_us = itl_us[i];
            (void)run(&b, &seq);
            assert_true(seq.paced_us > 0);
        } while ((i == 0) && (said_ns == 0));
        assert_int_equal(said_ns > 0, i == 0);
    }
    /* Its first token came elsewhere, when the machine started. */
    fill_seq(&seq, tokens, blocks, MAX_NEW);
    seq.itl_us = 1000;
    seq.paced_us = 1;
    (void)run(&b, &seq);
    assert_int_equal(said_ns, 0);
    close_bench(&b);
}

/* The only seat is taken: others wait for this one to end, so it does not
 * sleep. A word that reaches further than any that is meant is none. */
static void waiting_requests_prevent_donation(void **state)
{
    const uint32_t blocks[] = {3, 1, 2};
    const uint64_t words[] = {WANTED_NS, UINT64_C(3600000000000)};
    uint32_t tokens[N_TOKENS + MAX_NEW];
    fake_board_t board = {0};
    bt_seq_t seq;
    bench_t b;

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        open_bench(&b, BT_KV_F16, 32);
        open_with(&b, &board, (i == 0) ? 1 : MAX_SEQS);
        board.wanted_for_ns = words[i];
        fill_seq(&seq, tokens, blocks, MAX_NEW);
        (void)run(&b, &seq);
        assert_true(board.n_asked > 0);
        assert_int_equal(said_ns, 0);
        close_bench(&b);
    }
}

static void wait_until_done(const fake_board_t *board)
{
    const uint64_t deadline = bt_now_ns() + DEADLINE_NS;

    while (board->last_want != 0) {
        assert_true(bt_now_ns() < deadline);
    }
}

/* An engine computes a prompt that came then, and has nothing to do. */
static void compute_one(fake_board_t *board, uint64_t since_us)
{
    const uint32_t blocks[] = {3, 1, 2};
    uint32_t tokens[N_TOKENS + MAX_NEW];
    bt_seq_t seq;
    bench_t b;

    open_bench(&b, BT_KV_F16, 32);
    open_with(&b, board, MAX_SEQS);
    fill_seq(&seq, tokens, blocks, 1);
    seq.sched.turn.since_us = since_us;
    (void)run(&b, &seq);
    wait_until_done(board);
    close_bench(&b);
}

/* One that came a minute ago has waited longer than four times its own, and
 * when nobody waits any more nothing is wanted: at the latest when the engine
 * has nothing to do. */
static void waiting_prompt_requests_cores_until_computed(void **state)
{
    fake_board_t board = {0};

    (void)state;
    compute_one(&board, bt_now_ns() / 1000 - 60000000);
    assert_true(board.n_wants > 0);
}

static void new_prompt_requests_no_cores(void **state)
{
    fake_board_t board = {0};

    (void)state;
    compute_one(&board, UINT64_MAX); /* whatever the machine does */
    assert_int_equal(board.n_wants, 0);
    assert_true(board.n_done > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(generating_worker_donates_one_step_per_step),
        BT_TEST(sequence_without_slack_prevents_donation),
        BT_TEST(waiting_requests_prevent_donation),
        BT_TEST(waiting_prompt_requests_cores_until_computed),
        BT_TEST(new_prompt_requests_no_cores),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
