/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of logits for their owner, and processors that change them before a
 * draw. Expected rows are those of single steps by the model itself, one token
 * in each forward call. */
#include <math.h>

#include "common/base/status.h"
#include "inference/model/logits.h"
#include "inference/model/sampler.h"
#include "tests/unit/inference/engine/bench.h"

#define N_TOP     3u
#define N_REPORTS 16u /* that an engine has */

/* A sequence of make_seq(), and its rows. */
typedef struct rows_case {
    bt_seq_t *seq;
    bt_seq_rows_t rows;
    uint32_t n_vocab;
} rows_case_t;

/* One token at a time, in blocks that no sequence here has; (n, n_vocab). The
 * engine does nothing meanwhile. */
static float *single_steps(bench_t *b, const uint32_t *tokens, uint32_t n)
{
    const uint32_t n_vocab = bt_model_hparams(b->model)->n_vocab;
    float *expected = bt_calloc((size_t)n * n_vocab, sizeof(*expected));
    uint32_t blocks[N_BLOCKS / 8];

    assert_non_null(expected);
    for (uint32_t i = 0; i < N_BLOCKS / 8; i++) {
        blocks[i] = N_BLOCKS - 1 - i;
    }
    for (uint32_t at = 0; at < n; at++) {
        const uint32_t row = 0;
        const bt_ragged_seq_t seq = {.n_rows = 1, .pos = at, .blocks = blocks};
        const bt_forward_t fwd = {.seqs = &seq,
                                  .n_seqs = 1,
                                  .tokens = tokens + at,
                                  .n_rows = 1,
                                  .logit_rows = &row,
                                  .n_logit_rows = 1,
                                  .kv = b->kv};
        float *logits = NULL;

        assert_int_equal(bt_model_forward(b->model, &fwd, &logits), BT_OK);
        memcpy(expected + (size_t)at * n_vocab, logits,
               n_vocab * sizeof(*logits));
    }
    return expected;
}

static void want_rows(bench_t *b, rows_case_t *c, uint32_t from, uint32_t n)
{
    c->n_vocab = bt_model_hparams(b->model)->n_vocab;
    c->rows = (bt_seq_rows_t){
        .from = from,
        .n = n,
        .logits = bt_calloc((size_t)n * c->n_vocab, sizeof(float)),
        .logprobs = bt_calloc(n, sizeof(double)),
        .n_top = N_TOP,
        .top_ids = bt_calloc((size_t)n * N_TOP, sizeof(uint32_t)),
        .top_logprobs = bt_calloc((size_t)n * N_TOP, sizeof(double)),
    };
    assert_non_null(c->rows.logits);
    assert_non_null(c->rows.logprobs);
    assert_non_null(c->rows.top_ids);
    assert_non_null(c->rows.top_logprobs);
    c->seq->rows = &c->rows;
}

static void free_case(rows_case_t *c)
{
    bt_free(c->rows.logits);
    bt_free(c->rows.logprobs);
    bt_free(c->rows.top_ids);
    bt_free(c->rows.top_logprobs);
    free_seq(c->seq);
}

static void check_rows(bench_t *b, const rows_case_t *c)
{
    const bt_seq_rows_t *rows = &c->rows;
    float *expected = single_steps(b, c->seq->tokens, c->seq->sched.n_tokens);

    for (uint32_t i = 0; i < rows->n; i++) {
        const float *row = expected + (size_t)(rows->from + i) * c->n_vocab;
        const uint32_t next = c->seq->tokens[rows->from + i + 1];
        const double sum = bt_logprob_sum(row, c->n_vocab);
        uint32_t ids[N_TOP];

        assert_memory_equal(rows->logits + (size_t)i * c->n_vocab, row,
                            c->n_vocab * sizeof(*row));
        assert_true(rows->logprobs[i] == (double)row[next] - sum);
        bt_logprob_top(row, c->n_vocab, N_TOP, ids);
        assert_memory_equal(rows->top_ids + i * N_TOP, ids, sizeof(ids));
        for (uint32_t k = 0; k < N_TOP; k++) {
            assert_true(rows->top_logprobs[i * N_TOP + k] ==
                        (double)row[ids[k]] - sum);
        }
    }
    bt_free(expected);
}

/* Prompts of 120, 97 and 28 tokens, of the first all rows are wanted (139 with
 * those of generation), of the second some in the middle, of the third those
 * that are drawn from. There is room for 16 in an iteration. */
static void rows_of(bt_kv_type_t type, uint32_t budget)
{
    rows_case_t cases[3] = {0};
    bt_seq_t *other;
    bt_seq_t *alone;
    bench_t b;

    open_bench(&b, type, budget);
    alone = make_seq(&b, 5, 0.9f);
    assert_int_equal(bt_engine_submit(b.engine, alone), BT_OK);
    run_until_left(&b, 1);

    b.next_block = 0;
    cases[0].seq = make_seq(&b, 5, 0.9f);
    want_rows(&b, &cases[0], 0, 120 + MAX_NEW - 1);
    cases[1].seq = make_seq(&b, 4, 0.0f);
    want_rows(&b, &cases[1], 40, 37);
    cases[2].seq = make_seq(&b, 1, 0.0f);
    cases[2].seq->sampling.repetition_penalty = 1.2f; /* after the row */
    want_rows(&b, &cases[2], 27, MAX_NEW);
    other = make_seq(&b, 2, 0.0f);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(bt_engine_submit(b.engine, cases[i].seq), BT_OK);
    }
    assert_int_equal(bt_engine_submit(b.engine, other), BT_OK);
    run_until_left(&b, 4);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(cases[i].seq->n_drawn, MAX_NEW);
        check_rows(&b, &cases[i]);
    }
    /* Who looks at its rows draws what it draws without. */
    assert_memory_equal(cases[0].seq->tokens, alone->tokens,
                        alone->sched.n_tokens * sizeof(uint32_t));
    for (uint32_t i = 0; i < 3; i++) {
        free_case(&cases[i]);
    }
    free_seq(other);
    free_seq(alone);
    close_bench(&b);
}

static void logit_rows_equal_those_of_single_steps(void **state)
{
    (void)state;
    rows_of(BT_KV_F16, 16);
    rows_of(BT_KV_F16, 512);
    rows_of(BT_KV_BF16, 64);
    rows_of(BT_KV_INT8, 64);
    rows_of(BT_KV_FP8, 64);
}

/* A CHUNK item says how far the rows are: the reports are read one by one, and
 * every row below n_computed is there, though the engine goes on. */
static void logit_rows_exist_when_their_chunk_is_reported(void **state)
{
    const uint64_t end = bt_now_ns() + DEADLINE_NS;
    rows_case_t c = {0};
    uint32_t n_checked = 0;
    bool left = false;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 64);
    c.seq = make_seq(&b, 5, 0.0f);
    want_rows(&b, &c, 0, 119);
    assert_int_equal(bt_engine_submit(b.engine, c.seq), BT_OK);
    while (!left) {
        bt_report_t *report = bt_engine_next(b.engine);

        assert_true(bt_now_ns() < end);
        for (uint32_t i = 0; (report != NULL) && (i < report->n_items); i++) {
            const bt_report_item_t *item = &report->items[i];

            left = left || (item->kind == BT_REPORT_LEFT);
            for (; (item->kind == BT_REPORT_CHUNK) &&
                   (n_checked < item->n_computed) && (n_checked < 119);
                 n_checked++) {
                /* No log-prob of a token is 0: none is certain. */
                assert_true(c.rows.logprobs[n_checked] < 0.0);
            }
        }
        if (report != NULL) {
            bt_engine_recycle(b.engine, report);
        }
    }
    assert_int_equal(n_checked, 119);
    check_rows(&b, &c);
    free_case(&c);
    close_bench(&b);
}

/* A re-run, so most of its tokens are no prompt; beside another that takes 31
 * of the 32 rows there is room for, it is cut to one token, and that is told of
 * as well: its row is there. */
static void chunk_of_one_token_is_reported(void **state)
{
    /* One row, then 32 at a time, and what is left. */
    static const uint32_t expected[] = {17, 49, 81, 113, 120};
    const uint64_t end = bt_now_ns() + DEADLINE_NS;
    bt_report_t *held[N_REPORTS];
    rows_case_t first = {0};
    rows_case_t second = {0};
    uint32_t n_chunks = 0;
    uint32_t n_left = 0;
    bt_seq_t *decoy;
    bench_t b;

    (void)state;
    _Static_assert(BT_ENGINE_EXTRA_ROWS + BT_ENGINE_CPU_DRAFTS == 32,
                   "31 and one");
    open_bench(&b, BT_KV_F16, 512);
    second.seq = make_seq(&b, 5, 0.0f);
    second.seq->leave_after_first = true;
    assert_int_equal(bt_engine_submit(b.engine, second.seq), BT_OK);
    run_until_left(&b, 1);
    second.seq->sched.n_tokens = 120;
    second.seq->sched.n_computed = 16;
    second.seq->n_drawn = 0;
    second.seq->n_prompt = 5;
    want_rows(&b, &second, 16, 103);
    first.seq = make_seq(&b, 2, 0.0f);
    want_rows(&b, &first, 0, 31);

    decoy = make_seq(&b, 0, 0.0f);
    assert_int_equal(bt_engine_submit(b.engine, decoy), BT_OK);
    for (uint32_t i = 0; i < N_REPORTS;) { /* so that it sees both at once */
        held[i] = bt_engine_next(b.engine);
        i += (held[i] != NULL) ? 1 : 0;
        assert_true(bt_now_ns() < end);
    }
    assert_int_equal(bt_engine_submit(b.engine, first.seq), BT_OK);
    assert_int_equal(bt_engine_submit(b.engine, second.seq), BT_OK);
    for (uint32_t i = 0; i < N_REPORTS; i++) {
        bt_engine_recycle(b.engine, held[i]);
    }
    while (n_left < 3) {
        bt_report_t *report = bt_engine_next(b.engine);

        assert_true(bt_now_ns() < end);
        for (uint32_t i = 0; (report != NULL) && (i < report->n_items); i++) {
            const bt_report_item_t *item = &report->items[i];

            if ((item->kind == BT_REPORT_CHUNK) && (item->seq == second.seq)) {
                assert_true(n_chunks < BT_ARRAY_LEN(expected));
                assert_int_equal(item->n_computed, expected[n_chunks++]);
            }
            n_left += (item->kind == BT_REPORT_LEFT) ? 1 : 0;
        }
        if (report != NULL) {
            bt_engine_recycle(b.engine, report);
        }
    }
    assert_int_equal(n_chunks, BT_ARRAY_LEN(expected));
    check_rows(&b, &first);
    check_rows(&b, &second);
    free_seq(decoy);
    free_case(&first);
    free_case(&second);
    close_bench(&b);
}

/* ---- processors ---- */

/* Only ids that are a multiple of ctx can be drawn. */
static void only_multiples(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                           float *logits, uint32_t n_vocab)
{
    const uint32_t *of = ctx;

    (void)tokens;
    (void)n_tokens;
    for (uint32_t id = 0; id < n_vocab; id++) {
        if (id % *of != 0) {
            logits[id] = -INFINITY;
        }
    }
}

/* The id after the last token is drawn, whatever the model says. */
static void push_next(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                      float *logits, uint32_t n_vocab)
{
    (void)ctx;
    logits[(tokens[n_tokens - 1] + 1) % n_vocab] += 1000.0f;
}

static void change_nothing(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                           float *logits, uint32_t n_vocab)
{
    (void)tokens;
    (void)n_tokens;
    (void)logits;
    (void)n_vocab;
    (*(uint32_t *)ctx)++;
}

/* Of greedy sequences the back end finds the ids. One whose row somebody looks
 * at is drawn from its logits: the same tokens, also where an end id is banned
 * from the first of them. */
static void backend_ids_equal_ids_sampled_from_logits(void **state)
{
    static uint32_t n_looked[3];
    bt_logits_processor_t look[3];
    bt_seq_t *seqs[2][3];
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 64);
    for (uint32_t kind = 0; kind < 2; kind++) {
        for (uint32_t i = 0; i < 3; i++) {
            bt_seq_t *seq = make_seq(&b, i, 0.0f);

            seqs[kind][i] = seq;
            seq->sampling.min_tokens = (i == 1) ? 3 : 0;
            seq->sampling.n_end_ids = (i == 1) ? 1 : 0;
            seq->sampling.end_ids[0] = 287;
            look[i] = (bt_logits_processor_t){.apply = change_nothing,
                                              .ctx = &n_looked[i]};
            seq->processors = &look[i];
            seq->n_processors = kind;
            assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
        }
        run_until_left(&b, 3);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(seqs[0][i]->n_drawn > 0);
        assert_int_equal(seqs[0][i]->n_drawn, seqs[1][i]->n_drawn);
        assert_int_equal(n_looked[i], seqs[1][i]->n_drawn);
        assert_memory_equal(seqs[0][i]->tokens, seqs[1][i]->tokens,
                            (seqs[0][i]->n_prompt + seqs[0][i]->n_drawn) *
                                sizeof(uint32_t));
        free_seq(seqs[0][i]);
        free_seq(seqs[1][i]);
    }
    close_bench(&b);
}

static void processors_run_in_order_before_the_sampler(void **state)
{
    static uint32_t two = 2;
    static const bt_logits_processor_t mask[] = {{only_multiples, &two}};
    static const bt_logits_processor_t mask_last[] = {{push_next, NULL},
                                                      {only_multiples, &two}};
    static const bt_logits_processor_t push[] = {{push_next, NULL}};
    static const bt_bad_word_t bad = {.n = 1, .ids = {20}};
    bt_seq_t *masked;
    bt_seq_t *pushed;
    bt_seq_t *both;
    bt_seq_t *plain;
    bt_seq_t *alone;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 64);
    alone = make_seq(&b, 3, 0.8f);
    assert_int_equal(bt_engine_submit(b.engine, alone), BT_OK);
    run_until_left(&b, 1);
    masked = make_seq(&b, 3, 1.5f);
    masked->processors = mask;
    masked->n_processors = 1;
    pushed = make_seq(&b, 3, 0.8f);
    pushed->processors = push;
    pushed->n_processors = 1;
    pushed->tokens[pushed->n_prompt - 1] = 17;
    pushed->sampling.n_bad_words = 1; /* stays banned: comes after */
    pushed->sampling.bad_words = &bad;
    both = make_seq(&b, 3, 0.8f);
    both->processors = mask_last;
    both->n_processors = 2;
    plain = make_seq(&b, 3, 0.8f);
    assert_int_equal(bt_engine_submit(b.engine, masked), BT_OK);
    assert_int_equal(bt_engine_submit(b.engine, pushed), BT_OK);
    assert_int_equal(bt_engine_submit(b.engine, both), BT_OK);
    assert_int_equal(bt_engine_submit(b.engine, plain), BT_OK);
    run_until_left(&b, 4);
    for (uint32_t i = 0; i < MAX_NEW; i++) {
        assert_int_equal(masked->tokens[masked->n_prompt + i] % 2, 0);
        assert_int_equal(both->tokens[both->n_prompt + i] % 2, 0);
        assert_int_not_equal(pushed->tokens[pushed->n_prompt + i], 20);
    }
    assert_int_equal(pushed->tokens[pushed->n_prompt], 18);
    assert_int_equal(pushed->tokens[pushed->n_prompt + 1], 19);
    /* 20 is banned, so something else came; from there on the next again. */
    assert_int_equal(pushed->tokens[pushed->n_prompt + 3],
                     pushed->tokens[pushed->n_prompt + 2] + 1);
    /* Who has none draws as ever. */
    assert_memory_equal(plain->tokens, alone->tokens,
                        alone->sched.n_tokens * sizeof(uint32_t));
    free_seq(masked);
    free_seq(pushed);
    free_seq(both);
    free_seq(plain);
    free_seq(alone);
    close_bench(&b);
}

/* The bytes of single steps: the same logits, changed by hand, to a sampler. */
static void processed_logits_sample_as_the_sampler_does(void **state)
{
    static const bt_logits_processor_t push[] = {{push_next, NULL}};
    bt_sampler_t *sampler = NULL;
    rows_case_t c = {0};
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 64);
    c.seq = make_seq(&b, 3, 0.9f);
    c.seq->sampling.repetition_penalty = 2.0f;
    c.seq->processors = push;
    c.seq->n_processors = 1;
    want_rows(&b, &c, c.seq->n_prompt - 1, MAX_NEW);
    assert_int_equal(bt_engine_submit(b.engine, c.seq), BT_OK);
    run_until_left(&b, 1);
    check_rows(&b, &c); /* rows are from before the processors */
    assert_int_equal(bt_sampler_create(c.n_vocab, &sampler), BT_OK);
    for (uint32_t i = 0; i < MAX_NEW; i++) {
        const uint32_t n = c.seq->n_prompt + i;
        float *logits = c.rows.logits + (size_t)i * c.n_vocab;

        push_next(NULL, c.seq->tokens, n, logits, c.n_vocab);
        assert_int_equal(bt_sampler_draw(sampler, &c.seq->sampling, logits,
                                         c.seq->tokens, n, c.seq->n_prompt, n),
                         c.seq->tokens[n]);
    }
    bt_sampler_destroy(sampler);
    free_case(&c);
    close_bench(&b);
}

/* Of a request: the same row, changed by hand, to a sampler with penalties and
 * a banned word. An id that the model does not have does nothing. */
static void logit_biases_come_before_penalties_and_bans(void **state)
{
    static const bt_bad_word_t bad = {.n = 1, .ids = {40}};
    static const bt_logit_bias_t biases[] = {
        {40, 100.0f}, {41, 3.0f}, {42, -100.0f}, {UINT32_MAX, 5.0f}};
    bt_logits_processor_t processor;
    bt_sampler_t *sampler = NULL;
    rows_case_t c = {0};
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 64);
    c.seq = make_seq(&b, 3, 0.9f);
    c.seq->sampling.repetition_penalty = 1.5f;
    c.seq->sampling.presence_penalty = 1.0f;
    c.seq->sampling.n_bad_words = 1;
    c.seq->sampling.bad_words = &bad;
    c.seq->sampling.n_logit_biases = 4;
    c.seq->sampling.logit_biases = biases;
    processor = bt_logit_bias_processor(&c.seq->sampling);
    c.seq->processors = &processor;
    c.seq->n_processors = 1;
    want_rows(&b, &c, c.seq->n_prompt - 1, MAX_NEW);
    assert_int_equal(bt_engine_submit(b.engine, c.seq), BT_OK);
    run_until_left(&b, 1);
    check_rows(&b, &c);
    assert_int_equal(bt_sampler_create(c.n_vocab, &sampler), BT_OK);
    for (uint32_t i = 0; i < MAX_NEW; i++) {
        const uint32_t n = c.seq->n_prompt + i;
        float *logits = c.rows.logits + (size_t)i * c.n_vocab;

        logits[40] += 100.0f;
        logits[41] += 3.0f;
        logits[42] -= 100.0f;
        assert_int_equal(bt_sampler_draw(sampler, &c.seq->sampling, logits,
                                         c.seq->tokens, n, c.seq->n_prompt, n),
                         c.seq->tokens[n]);
        assert_int_not_equal(c.seq->tokens[n], 40);
        assert_int_not_equal(c.seq->tokens[n], 42);
    }
    bt_sampler_destroy(sampler);
    free_case(&c);
    close_bench(&b);
}

/* Two tokens of the prompt are rows of a table; a third row has a value so
 * large that the table cannot be mistaken for another part of memory. No token
 * has a log-prob where a row follows. */
static void rows_of_a_table_have_no_log_probs(void **state)
{
    const uint32_t n_table = 3;
    rows_case_t c = {0};
    uint32_t dim;
    float *table;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 16);
    dim = bt_model_hparams(b.model)->dim;
    table = bt_calloc((size_t)n_table * dim, sizeof(*table));
    assert_non_null(table);
    for (uint32_t i = 0; i < n_table * dim; i++) {
        table[i] = (i < 2 * dim) ? 0.01f * (float)(i % 17) : 1e30f;
    }
    c.seq = make_seq(&b, 1, 0.0f); /* 28 tokens */
    c.seq->tokens[9] = BT_TABLE_TOKEN;
    c.seq->tokens[20] = BT_TABLE_TOKEN + 1;
    c.seq->table = table;
    c.seq->n_table_rows = n_table;
    want_rows(&b, &c, 0, 28);
    assert_int_equal(bt_engine_submit(b.engine, c.seq), BT_OK);
    run_until_left(&b, 1);
    assert_int_equal(c.seq->n_drawn, MAX_NEW);
    for (uint32_t i = 0; i < 28; i++) {
        const bool before_row = (i == 8) || (i == 19);

        assert_int_equal(isnan(c.rows.logprobs[i]) != 0, before_row);
        assert_true(isfinite(c.rows.logits[(size_t)i * c.n_vocab]));
    }
    free_case(&c);
    bt_free(table);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(rows_of_a_table_have_no_log_probs),
        BT_TEST(logit_rows_equal_those_of_single_steps),
        BT_TEST(logit_rows_exist_when_their_chunk_is_reported),
        BT_TEST(chunk_of_one_token_is_reported),
        BT_TEST(backend_ids_equal_ids_sampled_from_logits),
        BT_TEST(processors_run_in_order_before_the_sampler),
        BT_TEST(processed_logits_sample_as_the_sampler_does),
        BT_TEST(logit_biases_come_before_penalties_and_bans),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
