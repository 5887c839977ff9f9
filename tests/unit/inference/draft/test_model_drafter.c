/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts of a model that shares the KV of its target. Expected tokens are those
 * of the same sequence without drafts. */
#include "inference/draft/model_drafter.h"

#include "inference/quantize/quantize.h"
#include "tests/unit/inference/engine/bench.h"

#define N_CASES 5u

/* The draft model of the next bench. */
static struct {
    uint64_t seed; /* of its weights; 0: the target's own file */
    const char *type;
    uint32_t fixed_drafts;
    bt_model_t *model;
    bt_model_drafter_t *drafter;
    uint32_t fails_at; /* this call of its hook fails; 0: none */
    uint32_t n_calls;
    uint32_t n_most; /* sequences of a call */
} draft;

static bt_batch_drafter_t own_hook;

static bt_status_t draft_counted(void *ctx, bt_next_draft_t *next, uint32_t n)
{
    draft.n_calls++;
    draft.n_most = (n > draft.n_most) ? n : draft.n_most;
    return (draft.n_calls == draft.fails_at) ? BT_ERR_DEVICE
                                             : own_hook.draft(ctx, next, n);
}

static bt_gguf_t *open_tiny(const bt_tiny_model_t *tiny)
{
    bt_gguf_t *gguf = NULL;
    char path[] = "/tmp/baton-test-draft-XXXXXX";
    const int fd = mkstemp(path);
    char why[256];

    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(bt_tiny_model_write(tiny, path), BT_OK);
    assert_int_equal(bt_gguf_open(path, why, sizeof(why), &gguf), BT_OK);
    assert_int_equal(unlink(path), 0);
    return gguf;
}

static bt_gguf_t *open_file(uint64_t seed)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    tiny.seed = (seed != 0) ? seed : tiny.seed;
    return open_tiny(&tiny);
}

static void add_drafter(bench_t *b, bt_engine_config_t *config)
{
    const bt_model_config_t model_config = {.max_rows = MAX_SEQS,
                                            .max_logit_rows = MAX_SEQS,
                                            .context_tokens = 512};
    bt_gguf_t *const gguf = open_file(draft.seed);
    bt_gguf_t *smaller = NULL;
    bt_model_drafter_config_t drafter = {.kv = config->kv,
                                         .max_seqs = MAX_SEQS};
    char why[256];

    if (draft.type != NULL) {
        assert_int_equal(bt_requantize_open(gguf,
                                            bt_quantize_mix_find(draft.type), 2,
                                            NULL, why, sizeof(why), &smaller),
                         BT_OK);
    }
    assert_int_equal(bt_model_load((smaller != NULL) ? smaller : gguf, b->be,
                                   &model_config, why, sizeof(why),
                                   &draft.model),
                     BT_OK);
    bt_gguf_close(smaller);
    bt_gguf_close(gguf);
    drafter.model = draft.model;
    assert_int_equal(bt_model_drafter_create(&drafter, &draft.drafter), BT_OK);
    own_hook = bt_model_drafter_hook(draft.drafter);
    config->batch_drafter = own_hook;
    config->batch_drafter.draft = draft_counted;
    config->fixed_drafts = draft.fixed_drafts;
    draft.n_calls = draft.n_most = 0;
}

static void open_drafting_bench(bench_t *b, bt_kv_type_t type)
{
    configure_bench = add_drafter;
    open_bench(b, type, 32);
    configure_bench = NULL;
}

static void close_drafting_bench(bench_t *b)
{
    bt_engine_destroy(b->engine);
    b->engine = NULL;
    bt_model_drafter_destroy(draft.drafter);
    bt_model_destroy(draft.model);
    close_bench(b);
}

static bt_seq_t *make_case(bench_t *b, uint32_t i)
{
    static const float temperatures[N_CASES] = {0, 0.7f, 1.3f, 0, 0.9f};
    bt_seq_t *seq = make_seq(b, i, temperatures[i]);

    seq->sampling.repetition_penalty = (i == 2) ? 1.3f : 1.0f;
    seq->sampling.presence_penalty = (i == 3) ? 0.5f : 0.0f;
    seq->sampling.top_k = (i == 4) ? 20 : 0;
    return seq;
}

typedef struct totals {
    uint32_t n_drafted, n_accepted;
} totals_t;

/* Runs all cases without and with drafts. */
static totals_t compare(bt_kv_type_t type)
{
    bt_seq_t *alone[N_CASES];
    bt_seq_t *seqs[N_CASES];
    totals_t totals = {0};
    bench_t b;

    open_bench(&b, type, 32);
    for (uint32_t i = 0; i < N_CASES; i++) {
        alone[i] = make_case(&b, i);
        assert_int_equal(bt_engine_submit(b.engine, alone[i]), BT_OK);
    }
    run_until_left(&b, N_CASES);
    close_bench(&b);
    open_drafting_bench(&b, type);
    /* Not numbers: nothing may be read that was not written. */
    memset(b.pool, 0xff, N_BLOCKS * b.kv.block_bytes);
    for (uint32_t i = 0; i < N_CASES; i++) {
        seqs[i] = make_case(&b, i);
        seqs[i]->model_drafts = true;
        assert_int_equal(bt_engine_submit(b.engine, seqs[i]), BT_OK);
    }
    run_until_left(&b, N_CASES);
    for (uint32_t i = 0; i < N_CASES; i++) {
        assert_int_equal(seqs[i]->n_drawn, MAX_NEW);
        assert_int_equal(seqs[i]->sched.n_computed, alone[i]->sched.n_computed);
        assert_memory_equal(seqs[i]->tokens, alone[i]->tokens,
                            alone[i]->sched.n_tokens * sizeof(uint32_t));
        totals.n_drafted += seqs[i]->n_drafted;
        totals.n_accepted += seqs[i]->n_accepted;
        /* Token #1 comes with the prompt, others with each iteration. */
        assert_int_equal(seqs[i]->n_iterations - seqs[i]->n_chunks +
                             seqs[i]->n_accepted,
                         MAX_NEW - 1);
        free_seq(seqs[i]);
        free_seq(alone[i]);
    }
    close_drafting_bench(&b);
    return totals;
}

static void drafts_of_any_model_change_no_token(void **state)
{
    static const bt_kv_type_t types[] = {BT_KV_F16, BT_KV_BF16, BT_KV_INT8,
                                         BT_KV_FP8};

    (void)state;
    draft.fixed_drafts = 4;
    for (size_t i = 0; i < BT_ARRAY_LEN(types); i++) {
        draft.seed = 5; /* other weights: most drafts are wrong */
        draft.type = NULL;
        assert_true(compare(types[i]).n_drafted > 50);
        draft.seed = 0;
        draft.type = "q4_0";
        assert_true(compare(types[i]).n_drafted > 50);
    }
    draft.type = NULL;
}

/* The draft model is the target: its draws are the target's, with every
 * sampling parameter and the random number of the position. */
static void drafts_of_the_target_itself_are_all_right(void **state)
{
    totals_t totals;

    (void)state;
    draft.seed = 0;
    draft.fixed_drafts = 3;
    totals = compare(BT_KV_F16);
    assert_true(totals.n_drafted > 50);
    assert_int_equal(totals.n_accepted, totals.n_drafted);
}

/* One sequence of 20 tokens: token #1 comes with the prompt, then 1 + 4 of an
 * iteration: 1 + 3 x 5 = 16 tokens, and the last iteration may draft 3. */
static void fixed_number_of_rounds_is_made_within_bounds(void **state)
{
    bt_seq_t *seq;
    bench_t b;

    (void)state;
    draft.seed = 0;
    draft.fixed_drafts = 4;
    open_drafting_bench(&b, BT_KV_F16);
    seq = make_case(&b, 1);
    seq->model_drafts = true;
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    run_until_left(&b, 1);
    assert_int_equal(seq->n_drafted, 3 * 4 + 3);
    assert_int_equal(draft.n_calls, 3 * 4 + 3);
    free_seq(seq);

    draft.n_calls = 0;
    seq = make_case(&b, 1);
    seq->model_drafts = true;
    seq->max_drafts = 2; /* 1 + 6 x 3 = 19 tokens, and one */
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    run_until_left(&b, 1);
    assert_int_equal(seq->n_drafted, 12);
    free_seq(seq);

    draft.n_calls = 0;
    seq = make_case(&b, 1); /* not model_drafts */
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    run_until_left(&b, 1);
    assert_int_equal(seq->n_drafted, 0);
    assert_int_equal(draft.n_calls, 0);
    free_seq(seq);
    close_drafting_bench(&b);
}

/* By measured cost, whatever it is here: rounds are tried at least. */
static void controller_tries_rounds_and_changes_no_token(void **state)
{
    totals_t totals;

    (void)state;
    draft.seed = 0;
    draft.type = "q4_1";
    draft.fixed_drafts = 0;
    totals = compare(BT_KV_F16);
    draft.type = NULL;
    assert_true(draft.n_calls > 0);
    assert_true(draft.n_most <= N_CASES);
    assert_true(totals.n_accepted <= totals.n_drafted);
}

static void failed_draft_model_drafts_no_more(void **state)
{
    (void)state;
    draft.seed = 0;
    draft.fixed_drafts = 2;
    draft.fails_at = 4;
    bt_test_expect_log_lines(1);
    (void)compare(BT_KV_F16);
    draft.fails_at = 0;
    assert_int_equal(draft.n_calls, 4);
}

/* Proposals of a drafter and the model's: both are compared with what is drawn,
 * and those of the model are verified where they are fixed. */
static bt_draft_t propose_zeros(void *ctx, const uint32_t *tokens,
                                uint32_t n_tokens, uint32_t max,
                                uint32_t *drafts)
{
    (void)ctx;
    (void)tokens;
    (void)n_tokens;
    memset(drafts, 0, max * sizeof(*drafts));
    return (bt_draft_t){.n = max, .n_matched = 2};
}

static void model_replaces_proposals_of_a_drafter(void **state)
{
    bt_seq_t *seq;
    bench_t b;

    (void)state;
    draft.seed = 0;
    draft.fixed_drafts = 4;
    open_drafting_bench(&b, BT_KV_F16);
    seq = make_case(&b, 1);
    seq->model_drafts = true;
    seq->drafter = (bt_drafter_t){.propose = propose_zeros};
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    run_until_left(&b, 1);
    assert_int_equal(seq->n_accepted, 3 * 4 + 3);
    assert_true(seq->acceptance.n_expected > 1); /* learned from zeros, too */
    assert_true(seq->acceptance.n_right < 1);
    assert_true(seq->model_acceptance.n_right > 10);
    free_seq(seq);
    close_drafting_bench(&b);
}

static void model_of_another_shape_is_refused_by_what_differs(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_gguf_t *const target = open_file(0);
    bt_gguf_t *const same = open_file(9);
    static const char *const parts[] = {"number of layers", "RoPE base",
                                        "attention window", "vocabulary"};
    char why[256] = "";

    (void)state;
    assert_int_equal(bt_model_drafter_check(target, same, why, sizeof(why)),
                     BT_OK);
    for (uint32_t i = 0; i < BT_ARRAY_LEN(parts); i++) {
        bt_tiny_model_t other = tiny;
        bt_gguf_t *gguf;

        other.n_layers += (i == 0) ? 1 : 0;
        other.rope_base *= (i == 1) ? 2 : 1;
        other.sliding_window = (i == 2) ? 64 : other.sliding_window;
        other.n_vocab += (i == 3) ? 8 : 0;
        gguf = open_tiny(&other);
        assert_int_equal(bt_model_drafter_check(target, gguf, why, sizeof(why)),
                         BT_ERR_MISMATCH);
        assert_non_null(strstr(why, parts[i]));
        bt_gguf_close(gguf);
    }
    bt_gguf_close(same);
    bt_gguf_close(target);
}

static void drafter_survives_every_failed_allocation(void **state)
{
    bench_t b;
    bt_model_drafter_t *drafter = NULL;
    bt_model_drafter_config_t config;
    bt_status_t status;
    int nth = 0;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    config = (bt_model_drafter_config_t){
        .model = b.model, .kv = b.kv, .max_seqs = MAX_SEQS};
    do {
        bt_alloc_fail_at(++nth);
        status = bt_model_drafter_create(&config, &drafter);
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_true(nth > 5);
    bt_model_drafter_destroy(drafter);
    bt_model_drafter_destroy(NULL);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(drafts_of_any_model_change_no_token),
        BT_TEST(drafts_of_the_target_itself_are_all_right),
        BT_TEST(fixed_number_of_rounds_is_made_within_bounds),
        BT_TEST(controller_tries_rounds_and_changes_no_token),
        BT_TEST(failed_draft_model_drafts_no_more),
        BT_TEST(model_replaces_proposals_of_a_drafter),
        BT_TEST(model_of_another_shape_is_refused_by_what_differs),
        BT_TEST(drafter_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
