/* SPDX-License-Identifier: Apache-2.0 */
/* What a device draws for an engine is what the engine draws on the CPU:
 * tokens, log-probs and the best ids, of all that requests may ask for at a
 * time, of groups and with drafts; and how much of it comes to the host. */
#include "tests/unit/inference/engine/device.h"

#include <math.h>

#include "common/base/status.h"
#include "inference/model/sampler.h"

#define N_KINDS 7u
#define N_TOP   4u

/* What a sequence asks for besides its seed. */
typedef enum kind {
    KIND_GREEDY,
    KIND_SCORED, /* log-probs from the middle of the prompt on */
    KIND_PENALIZED,
    KIND_BIASED,
    KIND_NARROW, /* with n-grams and a decay of top_p, as edits */
    KIND_DRAFTS,
    KIND_MASKED, /* by a processor that nobody can tell */
} kind_t;

typedef struct told {
    bt_seq_t *seqs[N_KINDS];
    bt_seq_rows_t rows[N_KINDS];
    bt_logits_processor_t processors[N_KINDS];
    const uint32_t *guesses[N_KINDS]; /* tokens that a drafter knows; or NULL */
} told_t;

static const bt_bad_word_t bad_words[] = {{.n = 1, .ids = {40}},
                                          {.n = 2, .ids = {41, 42}}};
static const bt_logit_bias_t biases[] = {
    {17, 4.0f}, {18, -3.0f}, {200, 100.0f}, {UINT32_MAX, 5.0f}};

static void mask_odd(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                     float *logits, uint32_t n_vocab)
{
    (void)ctx;
    (void)tokens;
    (void)n_tokens;
    for (uint32_t i = 1; i < n_vocab; i += 2) {
        logits[i] = -1e30f;
    }
}

/* Every third one is wrong. */
static bt_draft_t guess(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                        uint32_t max, uint32_t *drafts)
{
    const uint32_t *known = ctx;

    (void)tokens;
    for (uint32_t i = 0; i < max; i++) {
        drafts[i] = ((n_tokens + i) % 3 == 0) ? 5 : known[n_tokens + i];
    }
    return (bt_draft_t){.n = max};
}

static void want_scores(bt_seq_t *seq, bt_seq_rows_t *rows)
{
    const uint32_t from = seq->n_prompt / 2;
    const uint32_t n = seq->n_prompt + MAX_NEW - 1 - from;

    *rows = (bt_seq_rows_t){
        .from = from,
        .n = n,
        .logprobs = bt_calloc(n, sizeof(double)),
        .n_top = N_TOP,
        .top_ids = bt_calloc((size_t)n * N_TOP, sizeof(uint32_t)),
        .top_logprobs = bt_calloc((size_t)n * N_TOP, sizeof(double)),
    };
    assert_non_null(rows->logprobs);
    assert_non_null(rows->top_ids);
    assert_non_null(rows->top_logprobs);
    seq->rows = rows;
}

static void make_told(bench_t *b, told_t *t, uint32_t i)
{
    bt_seq_t *seq = make_seq(b, i, (i == KIND_GREEDY) ? 0.0f : 1.2f);

    t->seqs[i] = seq;
    switch (i) {
    case KIND_PENALIZED:
        seq->sampling.repetition_penalty = 1.3f;
        seq->sampling.presence_penalty = -0.4f;
        seq->sampling.frequency_penalty = 0.2f;
        break;
    case KIND_BIASED:
        seq->sampling.logit_biases = biases;
        seq->sampling.n_logit_biases = (uint32_t)BT_ARRAY_LEN(biases);
        t->processors[i] = bt_logit_bias_processor(&seq->sampling);
        seq->processors = &t->processors[i];
        seq->n_processors = 1;
        seq->sampling.presence_penalty = 30.0f;
        break;
    case KIND_NARROW:
        seq->sampling.top_k = 40;
        seq->sampling.top_p = 0.9f;
        seq->sampling.min_p = 0.01f;
        seq->sampling.bad_words = bad_words;
        seq->sampling.n_bad_words = 2;
        seq->sampling.presence_penalty = 0.5f;
        seq->sampling.processors = (bt_processor_options_t){
            .no_repeat_ngram_size = 2,
            .n_penalized_prompt = 3,
            .top_p_decay = 0.8f,
            .top_p_min = 0.1f,
            .top_p_reset_id = BT_NO_TOKEN,
        };
        break;
    case KIND_DRAFTS:
        if (t->guesses[i] != NULL) {
            seq->drafter = (bt_drafter_t){
                .propose = guess, .ctx = (void *)(uintptr_t)t->guesses[i]};
        }
        break;
    case KIND_MASKED:
        t->processors[i] = (bt_logits_processor_t){.apply = mask_odd};
        seq->processors = &t->processors[i];
        seq->n_processors = 1;
        seq->sampling.processors = (bt_processor_options_t){
            .top_n_sigma = 2.0f,
            .typical_p = 0.9f,
            .xtc_probability = 0.5f,
            .xtc_threshold = 0.01f,
            .dry_multiplier = 1.0f,
            .dry_base = 1.5f,
            .dry_last_n = 64,
        };
        break;
    default:
        break;
    }
    if ((i == KIND_SCORED) || (i == KIND_PENALIZED)) {
        want_scores(seq, &t->rows[i]);
    }
}

static void free_told(told_t *t)
{
    for (uint32_t i = 0; i < N_KINDS; i++) {
        bt_free(t->rows[i].logprobs);
        bt_free(t->rows[i].top_ids);
        bt_free(t->rows[i].top_logprobs);
        free_seq(t->seqs[i]);
    }
}

static void run(bench_t *b, told_t *t)
{
    for (uint32_t i = 0; i < N_KINDS; i++) {
        make_told(b, t, i);
    }
    for (uint32_t i = 0; i < N_KINDS; i++) {
        assert_int_equal(bt_engine_submit(b->engine, t->seqs[i]), BT_OK);
    }
    run_until_left(b, N_KINDS);
}

static void assert_same(const told_t *got, const told_t *want)
{
    for (uint32_t i = 0; i < N_KINDS; i++) {
        const bt_seq_rows_t *a = &got->rows[i];
        const bt_seq_rows_t *w = &want->rows[i];

        assert_memory_equal(got->seqs[i]->tokens, want->seqs[i]->tokens,
                            (want->seqs[i]->n_prompt + MAX_NEW) *
                                sizeof(uint32_t));
        if (w->n > 0) {
            assert_memory_equal(a->logprobs, w->logprobs,
                                w->n * sizeof(double));
            assert_memory_equal(a->top_ids, w->top_ids,
                                (size_t)w->n * N_TOP * sizeof(uint32_t));
            assert_memory_equal(a->top_logprobs, w->top_logprobs,
                                (size_t)w->n * N_TOP * sizeof(double));
        }
    }
}

static void open_told_device(bench_t *b)
{
    const bt_engine_config_t config = open_device(b, 64);

    assert_int_equal(bt_engine_create(&config, &b->engine), BT_OK);
}

static void device_sampling_matches_cpu_sampling(void **state)
{
    const uint64_t row_bytes = 288 * sizeof(float);
    told_t want = {0};
    told_t got = {0};
    uint64_t bytes;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 64);
    assert_int_equal(bt_model_hparams(b.model)->n_vocab, 288);
    run(&b, &want);
    close_bench(&b);
    open_told_device(&b);
    bytes = bt_trap_bytes_out(b.be);
    got.guesses[KIND_DRAFTS] = want.seqs[KIND_DRAFTS]->tokens;
    run(&b, &got);
    assert_same(&got, &want);
    /* One row of each step is the host's: the masked one's. Scores are an id
     * and a logit for each of 4, of each row that stands between two of them.
     */
    bytes = bt_trap_bytes_out(b.be) - bytes;
    assert_true(bytes < (MAX_NEW + 1) * row_bytes + 400 * (16 + 4 * 8 + 8));
    close_device(&b);
    free_told(&got);
    free_told(&want);
}

static const bt_kernels_ops_t *real_ops;

/* As of rows in which a value is none. */
static void score_nothing(bt_backend_t *be, const float *logits,
                          const bt_batch_t *batch, uint32_t dim,
                          const uint32_t *ids, bt_scored_t *out)
{
    const double nothing = NAN;

    real_ops->score(be, logits, batch, dim, ids, out);
    for (uint32_t i = 0; i < batch->n_scorings; i++) {
        assert_int_equal(
            real_ops->copy_in(be, &out[i].sum, &nothing, sizeof(nothing)),
            BT_OK);
    }
}

/* Which rows are looked at by the host then, and say the same. */
static void nan_sum_falls_back_to_host_sampling(void **state)
{
    const uint64_t row_bytes = 288 * sizeof(float);
    bt_kernels_ops_t ops;
    told_t want = {0};
    told_t got = {0};
    uint64_t bytes;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 64);
    run(&b, &want);
    close_bench(&b);
    open_told_device(&b);
    real_ops = b.be->ops;
    ops = *real_ops;
    ops.score = score_nothing;
    b.be->ops = &ops;
    bytes = bt_trap_bytes_out(b.be);
    run(&b, &got);
    assert_same(&got, &want);
    assert_true(
        bt_trap_bytes_out(b.be) - bytes >
        (uint64_t)(want.rows[KIND_SCORED].n + want.rows[KIND_PENALIZED].n) *
            row_bytes);
    b.be->ops = real_ops;
    close_device(&b);
    free_told(&got);
    free_told(&want);
}

/* Three of one prompt, of which the second has a bias and the third wants to
 * know: all told, or (a mask) none. */
static void draw_group(bench_t *b, bool masked, bt_seq_t **seqs,
                       bt_seq_rows_t *rows, bt_logits_processor_t *processors)
{
    for (uint32_t i = 0; i < 3; i++) {
        bt_seq_t *seq = make_seq(b, 2, 1.2f);

        seq->sampling.seed = 5 + i;
        seqs[i] = seq;
    }
    seqs[1]->sampling.logit_biases = biases;
    seqs[1]->sampling.n_logit_biases = (uint32_t)BT_ARRAY_LEN(biases);
    processors[0] = masked ? (bt_logits_processor_t){.apply = mask_odd}
                           : bt_logit_bias_processor(&seqs[1]->sampling);
    seqs[1]->processors = processors;
    seqs[1]->n_processors = 1;
    want_scores(seqs[2], rows);
    rows->from = seqs[2]->n_prompt - 1;
    rows->n = MAX_NEW;
    assert_int_equal(bt_engine_submit_fanout(b->engine, seqs, 3), BT_OK);
    run_until_left(b, 3);
}

static void check_group(bool masked)
{
    bt_seq_t *want[3], *got[3];
    bt_seq_rows_t want_rows, got_rows;
    bt_logits_processor_t processors[2];
    bench_t b;

    open_bench(&b, BT_KV_F16, 64);
    draw_group(&b, masked, want, &want_rows, &processors[0]);
    close_bench(&b);
    open_told_device(&b);
    draw_group(&b, masked, got, &got_rows, &processors[1]);
    close_device(&b);
    assert_memory_equal(got_rows.logprobs, want_rows.logprobs,
                        MAX_NEW * sizeof(double));
    assert_memory_equal(got_rows.top_ids, want_rows.top_ids,
                        (size_t)MAX_NEW * N_TOP * sizeof(uint32_t));
    for (uint32_t i = 0; i < 3; i++) {
        assert_memory_equal(got[i]->tokens, want[i]->tokens,
                            (want[i]->n_prompt + MAX_NEW) * sizeof(uint32_t));
        free_seq(got[i]);
        free_seq(want[i]);
    }
    bt_free(want_rows.logprobs);
    bt_free(want_rows.top_ids);
    bt_free(want_rows.top_logprobs);
    bt_free(got_rows.logprobs);
    bt_free(got_rows.top_ids);
    bt_free(got_rows.top_logprobs);
}

static void device_samples_all_choices_from_one_row(void **state)
{
    (void)state;
    check_group(false);
    check_group(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(device_sampling_matches_cpu_sampling),
        BT_TEST(nan_sum_falls_back_to_host_sampling),
        BT_TEST(device_samples_all_choices_from_one_row),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
