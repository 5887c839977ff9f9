/* SPDX-License-Identifier: Apache-2.0 */
/* Roll-back: what was computed ahead and taken back changes nothing (I1). The
 * expected tokens are those of the same sequence without. */
#include "tests/support/draw.h"
#include "tests/unit/inference/engine/bench.h"

#define N_CASES 5u

/* A drafter that knows what comes, and is wrong now and then. */
typedef struct oracle {
    const uint32_t *tokens; /* of the run without drafts */
    uint32_t n_tokens;
    uint64_t rng;
    uint32_t wrong_of_8; /* 0: never, 8: always */
    uint32_t odd_id;     /* what a wrong one says */
    uint32_t n_asked;
    uint32_t most; /* that were asked for at once */
    bool other_history;
} oracle_t;

static bt_draft_t guess(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                        uint32_t max, uint32_t *drafts)
{
    oracle_t *o = ctx;
    const uint32_t n = (uint32_t)draw_below(&o->rng, max + 1);

    o->other_history =
        o->other_history ||
        (memcmp(tokens, o->tokens, n_tokens * sizeof(*tokens)) != 0);
    o->n_asked++;
    o->most = (max > o->most) ? max : o->most;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = n_tokens + i;

        drafts[i] = (at < o->n_tokens) ? o->tokens[at] : 3;
        if (draw_below(&o->rng, 8) < o->wrong_of_8) {
            drafts[i] = o->odd_id;
        }
    }
    return (bt_draft_t){.n = n};
}

/* All that it may guess. */
static bt_draft_t guess_all(void *ctx, const uint32_t *tokens,
                            uint32_t n_tokens, uint32_t max, uint32_t *drafts)
{
    const oracle_t *o = ctx;

    (void)tokens;
    for (uint32_t i = 0; i < max; i++) {
        drafts[i] = o->tokens[n_tokens + i];
    }
    return (bt_draft_t){.n = max};
}

static bt_seq_t *make_case(bench_t *b, uint32_t i)
{
    bt_seq_t *seq = make_seq(b, i, (i % 2 == 0) ? 0.0f : 0.9f);

    seq->sampling.repetition_penalty = (i == 2) ? 1.3f : 1.0f;
    seq->sampling.presence_penalty = (i == 3) ? 0.5f : 0.0f;
    return seq;
}

/* So many tokens that all that is computed fills whole blocks: the next block
 * of the table must stay as it is. */
static bt_seq_t *make_exact_case(bench_t *b, uint32_t i)
{
    bt_seq_t *seq = make_case(b, i);

    seq->max_new -= (seq->n_prompt + MAX_NEW - 1) % T;
    return seq;
}

static uint8_t *block_behind(bench_t *b, const bt_seq_t *seq)
{
    const uint32_t at = (seq->n_prompt + seq->max_new - 1) / T;

    assert_int_equal((seq->n_prompt + seq->max_new - 1) % T, 0);
    return (uint8_t *)b->pool + seq->blocks[at] * b->kv.block_bytes;
}

static void assert_untouched(const uint8_t *block, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        assert_int_equal(block[k], 0xff);
    }
}

static void with_drafts(bt_kv_type_t type, uint32_t wrong_of_8, uint32_t odd_id)
{
    bt_seq_t *alone[N_CASES];
    bt_seq_t *seqs[N_CASES];
    oracle_t oracles[N_CASES];
    uint32_t n_iterations = 0;
    uint32_t n_alone = 0;
    bench_t b;

    open_bench(&b, type, 32);
    for (uint32_t i = 0; i < N_CASES; i++) {
        b.next_block = 0;
        alone[i] = make_exact_case(&b, i);
        assert_int_equal(bt_engine_submit(b.engine, alone[i]), BT_OK);
        run_until_left(&b, 1);
    }
    /* Not numbers: nothing may be read that was not written. */
    memset(b.pool, 0xff, N_BLOCKS * b.kv.block_bytes);
    b.next_block = 0;
    for (uint32_t i = 0; i < N_CASES; i++) {
        seqs[i] = make_exact_case(&b, i);
        oracles[i] = (oracle_t){.tokens = alone[i]->tokens,
                                .n_tokens = alone[i]->sched.n_tokens,
                                .rng = i + 1,
                                .wrong_of_8 = wrong_of_8,
                                .odd_id = odd_id};
        seqs[i]->drafter = (bt_drafter_t){.propose = guess, .ctx = &oracles[i]};
        assert_int_equal(bt_engine_submit(b.engine, seqs[i]), BT_OK);
    }
    run_until_left(&b, N_CASES);
    for (uint32_t i = 0; i < N_CASES; i++) {
        assert_int_equal(seqs[i]->n_drawn, seqs[i]->max_new);
        assert_int_equal(seqs[i]->sched.n_tokens, alone[i]->sched.n_tokens);
        assert_int_equal(seqs[i]->sched.n_computed, alone[i]->sched.n_computed);
        assert_memory_equal(seqs[i]->tokens, alone[i]->tokens,
                            alone[i]->sched.n_tokens * sizeof(uint32_t));
        assert_true(oracles[i].n_asked > 0);
        assert_false(oracles[i].other_history);
        assert_true(oracles[i].most <= BT_ENGINE_CPU_DRAFTS);
        assert_untouched(block_behind(&b, seqs[i]), b.kv.block_bytes);
        n_iterations += seqs[i]->n_iterations;
        n_alone += alone[i]->n_iterations;
        free_seq(seqs[i]);
        free_seq(alone[i]);
    }
    if (wrong_of_8 == 0) {
        assert_true(n_iterations < n_alone);
    }
    close_bench(&b);
}

static void rejected_drafts_change_no_token(void **state)
{
    (void)state;
    with_drafts(BT_KV_F16, 0, 0);
    with_drafts(BT_KV_F16, 1, 5);
    with_drafts(BT_KV_BF16, 3, 7);
    with_drafts(BT_KV_INT8, 3, 9);
    with_drafts(BT_KV_FP8, 3, 9);
    with_drafts(BT_KV_F16, 8, 11);
}

static void invalid_draft_ids_are_ignored(void **state)
{
    (void)state;
    with_drafts(BT_KV_F16, 3, UINT32_MAX);
    with_drafts(BT_KV_F16, 8, 1u << 20);
}

/* --- logits processors beside drafts --- */

#define N_TOP 2u

static const bt_bad_word_t bad_words[] = {{.n = 1, .ids = {40}},
                                          {.n = 2, .ids = {41, 42}}};
static const bt_logit_bias_t biases[] = {{17, 4.0f}, {18, -3.0f}, {5, 2.0f}};
/* Without 5 and 7, which are drafts below. */
static const uint32_t some_ids[] = {9,  11, 20, 40, 41,  42,  60,  77,
                                    90, 91, 92, 99, 120, 150, 200, 250};
static const uint32_t breakers[] = {20, 77};

#define PLAIN(t) .temperature = (t), .repetition_penalty = 1.0f
#define ALLOWED                                        \
    .n_allowed_ids = (uint32_t)BT_ARRAY_LEN(some_ids), \
    .n_ids = (uint32_t)BT_ARRAY_LEN(some_ids), .ids = some_ids
#define DRY                                                            \
    .dry_multiplier = 3.0f, .dry_base = 1.5f, .dry_allowed_length = 1, \
    .dry_last_n = 64

/* Temperatures 0, 0.7 and 1.3. */
static const bt_sampling_t processed[] = {
    {PLAIN(0.0f), .top_p = 1.0f, .processors = {.no_repeat_ngram_size = 1}},
    {PLAIN(1.3f), .top_p = 1.0f, .processors = {.no_repeat_ngram_size = 2}},
    {PLAIN(0.0f), .top_p = 1.0f, .processors = {DRY}},
    {PLAIN(0.7f), .top_p = 1.0f,
     .processors = {DRY, .n_dry_breakers = 2, .n_ids = 2, .ids = breakers}},
    {PLAIN(0.7f), .top_p = 1.0f,
     .processors = {.xtc_probability = 0.5f, .xtc_threshold = 0.02f}},
    {PLAIN(1.3f), .top_p = 0.9f,
     .processors = {.xtc_probability = 1.0f, .xtc_threshold = 0.01f}},
    {PLAIN(1.3f), .top_p = 1.0f, .processors = {.top_n_sigma = 1.0f}},
    {PLAIN(0.7f), .top_p = 1.0f, .processors = {.typical_p = 0.5f}},
    {PLAIN(0.7f), .top_p = 0.9f,
     .processors = {.top_p_decay = 0.8f,
                    .top_p_min = 0.1f,
                    .top_p_reset_id = 9}},
    {PLAIN(1.3f), .top_p = 1.0f, .processors = {ALLOWED}},
    {PLAIN(0.0f), .top_p = 1.0f,
     .processors = {ALLOWED, .no_repeat_ngram_size = 1}},
    {.temperature = 0.0f,
     .top_p = 1.0f,
     .repetition_penalty = 1.3f,
     .presence_penalty = 0.4f,
     .frequency_penalty = 0.3f,
     .processors = {.n_penalized_prompt = 3}},
    {PLAIN(0.0f), .top_p = 1.0f, .n_bad_words = 2, .bad_words = bad_words},
    {PLAIN(0.7f), .top_p = 1.0f, .n_logit_biases = 3, .logit_biases = biases},
    {.temperature = 1.3f,
     .top_p = 0.95f,
     .top_k = 60,
     .min_p = 0.001f,
     .repetition_penalty = 1.1f,
     .frequency_penalty = 0.2f,
     .n_bad_words = 2,
     .bad_words = bad_words,
     .processors = {DRY, .no_repeat_ngram_size = 2, .top_n_sigma = 3.0f,
                    .typical_p = 0.9f, .xtc_probability = 0.3f,
                    .xtc_threshold = 0.05f}},
};
#define N_PROCESSED ((uint32_t)BT_ARRAY_LEN(processed))

typedef struct scored {
    bt_logits_processor_t bias;
    bt_seq_rows_t rows;
    double logprobs[MAX_NEW];
    uint32_t top_ids[MAX_NEW * N_TOP];
    double top_logprobs[MAX_NEW * N_TOP];
} scored_t;

/* n_early_ends: many tokens are end ids, which min_tokens bans for a while. */
static bt_seq_t *make_processed(bench_t *b, uint32_t i, uint32_t n_early_ends,
                                scored_t *scored)
{
    bt_seq_t *seq = make_seq(b, i % N_CASES, 0.0f);
    const uint64_t seed = seq->sampling.seed + i;

    memset(scored, 0, sizeof(*scored));
    seq->sampling = processed[i];
    seq->sampling.seed = seed;
    seq->sampling.min_tokens = (n_early_ends > 0) ? 11 : 0;
    seq->sampling.n_end_ids = n_early_ends;
    for (uint32_t k = 0; k < n_early_ends; k++) {
        seq->sampling.end_ids[k] = 5 + 3 * k;
    }
    if (seq->sampling.n_logit_biases > 0) {
        scored->bias = bt_logit_bias_processor(&seq->sampling);
        seq->processors = &scored->bias;
        seq->n_processors = 1;
    }
    scored->rows = (bt_seq_rows_t){.from = seq->n_prompt - 1,
                                   .n = MAX_NEW,
                                   .logprobs = scored->logprobs,
                                   .n_top = N_TOP,
                                   .top_ids = scored->top_ids,
                                   .top_logprobs = scored->top_logprobs};
    seq->rows = &scored->rows;
    return seq;
}

/* Each alone without drafts, then N_CASES together with them.
 * @return iterations saved */
static int64_t compare_processed(bench_t *b, uint32_t first,
                                 uint32_t n_early_ends, uint32_t wrong_of_8,
                                 uint32_t odd_id)
{
    bt_seq_t *alone[N_CASES];
    bt_seq_t *seqs[N_CASES];
    oracle_t oracles[N_CASES];
    scored_t want[N_CASES];
    scored_t got[N_CASES];
    int64_t n_saved = 0;

    for (uint32_t i = 0; i < N_CASES; i++) {
        b->next_block = 0;
        alone[i] = make_processed(b, first + i, n_early_ends, &want[i]);
        assert_int_equal(bt_engine_submit(b->engine, alone[i]), BT_OK);
        run_until_left(b, 1);
    }
    b->next_block = 0;
    for (uint32_t i = 0; i < N_CASES; i++) {
        seqs[i] = make_processed(b, first + i, n_early_ends, &got[i]);
        oracles[i] = (oracle_t){.tokens = alone[i]->tokens,
                                .n_tokens = alone[i]->sched.n_tokens,
                                .rng = first + i + 1,
                                .wrong_of_8 = wrong_of_8,
                                .odd_id = odd_id};
        seqs[i]->drafter = (bt_drafter_t){.propose = guess, .ctx = &oracles[i]};
        assert_int_equal(bt_engine_submit(b->engine, seqs[i]), BT_OK);
    }
    run_until_left(b, N_CASES);
    for (uint32_t i = 0; i < N_CASES; i++) {
        const size_t n = alone[i]->n_drawn;

        assert_int_equal(seqs[i]->n_drawn, n);
        assert_true((n == MAX_NEW) || (n_early_ends > 0));
        assert_memory_equal(seqs[i]->tokens, alone[i]->tokens,
                            alone[i]->sched.n_tokens * sizeof(uint32_t));
        assert_memory_equal(got[i].logprobs, want[i].logprobs,
                            n * sizeof(double));
        assert_memory_equal(got[i].top_ids, want[i].top_ids,
                            n * N_TOP * sizeof(uint32_t));
        assert_memory_equal(got[i].top_logprobs, want[i].top_logprobs,
                            n * N_TOP * sizeof(double));
        assert_true(oracles[i].n_asked > 0);
        assert_false(oracles[i].other_history);
        n_saved += (int64_t)alone[i]->n_iterations - seqs[i]->n_iterations;
        free_seq(seqs[i]);
        free_seq(alone[i]);
    }
    return n_saved;
}

/* Right, sometimes wrong and always wrong; wrong ones are end ids, not allowed
 * or no tokens at all. */
static void drafts_beside_processors_change_no_token_and_no_log_prob(void **s)
{
    static const uint32_t odd_ids[] = {5, 7, 40, UINT32_MAX};
    static const uint32_t wrong_of_8[] = {0, 2, 8};
    int64_t n_saved = 0;
    bench_t b;

    (void)s;
    _Static_assert(N_PROCESSED % N_CASES == 0, "N_CASES at a time");
    open_bench(&b, BT_KV_F16, 32);
    for (uint32_t first = 0; first < N_PROCESSED; first += N_CASES) {
        for (uint32_t i = 0; i < BT_ARRAY_LEN(odd_ids); i++) {
            for (uint32_t k = 0; k < BT_ARRAY_LEN(wrong_of_8); k++) {
                n_saved += compare_processed(&b, first, 40 * (i % 2),
                                             wrong_of_8[k], odd_ids[i]);
            }
        }
    }
    assert_true(n_saved > (int64_t)N_PROCESSED * MAX_NEW);
    close_bench(&b);
}

/* Token #1 comes with the prompt; then 19 more, of which the last needs no
 * draft: 16 drafts and the token behind them, then 1 draft and the token. */
static void accepted_drafts_save_iterations(void **state)
{
    bt_seq_t *alone;
    bt_seq_t *seq;
    oracle_t oracle;
    bench_t b;

    (void)state;
    _Static_assert((MAX_NEW == 20) && (BT_ENGINE_CPU_DRAFTS == 16),
                   "1 + (16 + 1) + (1 + 1)");
    open_bench(&b, BT_KV_F16, 32);
    alone = make_case(&b, 0);
    assert_int_equal(bt_engine_submit(b.engine, alone), BT_OK);
    run_until_left(&b, 1);
    seq = make_case(&b, 0);
    oracle = (oracle_t){.tokens = alone->tokens};
    seq->drafter = (bt_drafter_t){.propose = guess_all, .ctx = &oracle};
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    run_until_left(&b, 1);
    assert_int_equal(seq->n_iterations, 3);
    assert_int_equal(seq->n_chunks, 1); /* a step with drafts is no chunk */
    assert_int_equal(seq->n_drawn, MAX_NEW);
    assert_memory_equal(seq->tokens, alone->tokens,
                        alone->sched.n_tokens * sizeof(uint32_t));
    free_seq(seq);
    free_seq(alone);
    close_bench(&b);
}

/* An end id in the middle of right drafts: what is behind it was not drawn. */
static void end_id_among_drafts_ends_the_sequence(void **state)
{
    const uint64_t end = bt_now_ns() + DEADLINE_NS;
    bt_seq_t *alone;
    bt_seq_t *seq;
    oracle_t oracle;
    uint32_t n_tokens = 0;
    uint32_t first;
    bool left = false;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    alone = make_case(&b, 1);
    assert_int_equal(bt_engine_submit(b.engine, alone), BT_OK);
    run_until_left(&b, 1);
    seq = make_case(&b, 1);
    seq->sampling.n_end_ids = 1;
    seq->sampling.end_ids[0] = alone->tokens[alone->n_prompt + 7];
    for (first = 0;
         alone->tokens[alone->n_prompt + first] != seq->sampling.end_ids[0];) {
        first++; /* it may come earlier as well */
    }
    oracle = (oracle_t){.tokens = alone->tokens};
    seq->drafter = (bt_drafter_t){.propose = guess_all, .ctx = &oracle};
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    while (!left) {
        bt_report_t *report = bt_engine_next(b.engine);

        assert_true(bt_now_ns() < end);
        for (uint32_t i = 0; (report != NULL) && (i < report->n_items); i++) {
            const bt_report_item_t *item = &report->items[i];

            if (item->kind == BT_REPORT_TOKEN) {
                assert_int_equal(item->index, n_tokens++);
                assert_int_equal(item->token,
                                 alone->tokens[alone->n_prompt + item->index]);
                assert_int_equal(item->finish, (n_tokens == first + 1)
                                                   ? BT_FINISH_STOP
                                                   : BT_FINISH_NONE);
            }
            left = left || (item->kind == BT_REPORT_LEFT);
        }
        if (report != NULL) {
            bt_engine_recycle(b.engine, report);
        }
    }
    assert_int_equal(n_tokens, first + 1);
    assert_int_equal(seq->n_drawn, first + 1);
    assert_int_equal(seq->sched.n_tokens, seq->n_prompt + first + 1);
    assert_int_equal(seq->sched.n_computed, seq->n_prompt + first);
    free_seq(seq);
    free_seq(alone);
    close_bench(&b);
}

/* Rows of logits beside drafts: those of the tokens that came, not of what was
 * rolled back. */
static void logit_rows_beside_rejected_drafts_equal_single_steps(void **state)
{
    const uint32_t n_positions = 28 + MAX_NEW - 1;
    bt_seq_rows_t rows[2];
    bt_seq_t *alone;
    bt_seq_t *seq;
    oracle_t oracle;
    size_t row_floats;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    row_floats = bt_model_hparams(b.model)->n_vocab;
    for (uint32_t i = 0; i < 2; i++) {
        rows[i] = (bt_seq_rows_t){
            .n = n_positions,
            .logits = bt_calloc(n_positions * row_floats, sizeof(float)),
            .logprobs = bt_calloc(n_positions, sizeof(double))};
        assert_non_null(rows[i].logits);
        assert_non_null(rows[i].logprobs);
    }
    alone = make_case(&b, 1);
    alone->rows = &rows[0];
    assert_int_equal(bt_engine_submit(b.engine, alone), BT_OK);
    run_until_left(&b, 1);
    seq = make_case(&b, 1);
    seq->rows = &rows[1];
    oracle = (oracle_t){.tokens = alone->tokens,
                        .n_tokens = alone->sched.n_tokens,
                        .wrong_of_8 = 3,
                        .odd_id = 4};
    seq->drafter = (bt_drafter_t){.propose = guess, .ctx = &oracle};
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    run_until_left(&b, 1);
    assert_memory_equal(rows[1].logits, rows[0].logits,
                        n_positions * row_floats * sizeof(float));
    assert_memory_equal(rows[1].logprobs, rows[0].logprobs,
                        n_positions * sizeof(double));
    for (uint32_t i = 0; i < 2; i++) {
        bt_free(rows[i].logits);
        bt_free(rows[i].logprobs);
    }
    free_seq(seq);
    free_seq(alone);
    close_bench(&b);
}

/* The owner's: a sequence that has left takes n tokens back and draws them
 * again, and then others, had there been another seed. */
static void roll_back(bt_kv_type_t type, uint32_t n)
{
    bt_seq_t *seq;
    uint32_t drawn[MAX_NEW];
    bench_t b;

    open_bench(&b, type, 32);
    seq = make_case(&b, 3);
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    run_until_left(&b, 1);
    memcpy(drawn, &seq->tokens[seq->n_prompt], sizeof(drawn));

    bt_seq_roll_back(seq, n);
    assert_int_equal(seq->sched.n_tokens, seq->n_prompt + MAX_NEW - n);
    assert_int_equal(seq->sched.n_computed, seq->sched.n_tokens - 1);
    seq->sampling.seed ^= 1;
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    run_until_left(&b, 1);
    assert_int_equal(seq->n_drawn, MAX_NEW);
    assert_memory_equal(&seq->tokens[seq->n_prompt], drawn,
                        (MAX_NEW - n) * sizeof(drawn[0]));
    if (n > 4) { /* four draws may well be the same */
        assert_memory_not_equal(&seq->tokens[seq->n_prompt], drawn,
                                sizeof(drawn));
    }

    bt_seq_roll_back(seq, n);
    seq->sampling.seed ^= 1;
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    run_until_left(&b, 1);
    assert_memory_equal(&seq->tokens[seq->n_prompt], drawn, sizeof(drawn));
    free_seq(seq);
    close_bench(&b);
}

static void tokens_rolled_back_are_sampled_again(void **state)
{
    static const uint32_t lengths[] = {1, 2, 7, 16, 17, MAX_NEW};

    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        roll_back(BT_KV_F16, lengths[i]);
        roll_back(BT_KV_INT8, lengths[i]);
        roll_back(BT_KV_FP8, lengths[i]);
    }
    roll_back(BT_KV_BF16, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(rejected_drafts_change_no_token),
        BT_TEST(invalid_draft_ids_are_ignored),
        BT_TEST(drafts_beside_processors_change_no_token_and_no_log_prob),
        BT_TEST(accepted_drafts_save_iterations),
        BT_TEST(end_id_among_drafts_ends_the_sequence),
        BT_TEST(logit_rows_beside_rejected_drafts_equal_single_steps),
        BT_TEST(tokens_rolled_back_are_sampled_again),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
