/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts of a model that shares the KV of its target, and of one that has a KV
 * cache of its own. Expected tokens are those of the same sequence without
 * drafts. */
#include "inference/draft/model_drafter.h"

#include "common/sched/sched_catch_up.h"
#include "inference/engine/engine_priv.h"
#include "inference/quantize/quantize.h"
#include "tests/support/draw.h"
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
    uint32_t n_idle; /* calls that made no draft */
    /* A KV cache of its own, with this many more layers than the target has,
     * which add nothing: equal logits. 0: the target's */
    uint32_t n_silent;
    const char *architecture; /* of a model of another shape; NULL: none */
    uint32_t n_slots, n_blocks, context_tokens; /* 0: enough for all */
    uint32_t itl_us;                            /* target of all sequences */
    uint32_t n_catch_ups, n_catch_up_rows;
} draft;

static bt_batch_drafter_t own_hook;

static bt_status_t draft_counted(void *ctx, bt_next_draft_t *next, uint32_t n)
{
    bt_status_t status;
    uint32_t n_drafts = 0;

    draft.n_calls++;
    draft.n_most = (n > draft.n_most) ? n : draft.n_most;
    status = (draft.n_calls == draft.fails_at) ? BT_ERR_DEVICE
                                               : own_hook.draft(ctx, next, n);
    for (uint32_t i = 0; i < n; i++) {
        n_drafts += (next[i].id != UINT32_MAX) ? 1 : 0;
    }
    draft.n_idle += (n_drafts == 0) ? 1 : 0;
    return status;
}

static bt_status_t catch_up_counted(void *ctx, bt_seq_t *seq, uint32_t max_rows,
                                    uint32_t *n_rows_p)
{
    const bt_status_t status = own_hook.catch_up(ctx, seq, max_rows, n_rows_p);

    assert_true((status != BT_OK) || (*n_rows_p <= max_rows));
    assert_true(max_rows <= BT_SCHED_CATCH_UP_ROWS);
    draft.n_catch_ups++;
    draft.n_catch_up_rows += *n_rows_p;
    return status;
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
    tiny.n_layers += draft.n_silent;
    tiny.n_silent = draft.n_silent;
    if (draft.architecture != NULL) {
        tiny.architecture = draft.architecture;
        tiny.n_layers = 1;
        tiny.dim = 32;
        tiny.n_heads = 2;
        tiny.n_kv_heads = 1;
    }
    return open_tiny(&tiny);
}

static bool has_cache(void)
{
    return (draft.n_silent > 0) || (draft.architecture != NULL);
}

static bt_draft_cache_config_t cache_of(const bt_hparams_t *hp,
                                        bt_kv_type_t type)
{
    const bt_kv_type_info_t *const info = bt_kv_type_info(type);

    return (bt_draft_cache_config_t){
        .shape = {hp->n_layers, hp->n_kv_heads, T, hp->head_dim,
                  info->elem_bytes, info->scale_bytes},
        .type = type,
        .n_slots = (draft.n_slots > 0) ? draft.n_slots : MAX_SEQS,
        .n_blocks = (draft.n_blocks > 0) ? draft.n_blocks : N_BLOCKS,
        .context_tokens =
            (draft.context_tokens > 0) ? draft.context_tokens : 512};
}

static void add_drafter(bench_t *b, bt_engine_config_t *config)
{
    const bt_model_config_t model_config = {
        .max_rows = bt_model_drafter_max_rows(MAX_SEQS, has_cache()),
        .max_logit_rows = MAX_SEQS,
        .context_tokens =
            (draft.context_tokens > 0) ? draft.context_tokens : 512};
    bt_gguf_t *const gguf = open_file(draft.seed);
    bt_gguf_t *smaller = NULL;
    bt_model_drafter_config_t drafter = {.kv = config->kv,
                                         .max_seqs = MAX_SEQS};
    bt_draft_cache_config_t cache;
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
    if (has_cache()) {
        cache = cache_of(bt_model_hparams(draft.model), config->kv.type);
        drafter.cache = &cache;
    }
    assert_int_equal(bt_model_drafter_create(&drafter, &draft.drafter), BT_OK);
    own_hook = bt_model_drafter_hook(draft.drafter);
    assert_true((own_hook.count_rows != NULL) == has_cache());
    config->batch_drafter = own_hook;
    config->batch_drafter.draft = draft_counted;
    if (has_cache()) {
        config->batch_drafter.catch_up = catch_up_counted;
    }
    config->fixed_drafts = draft.fixed_drafts;
    draft.n_calls = draft.n_most = draft.n_idle = 0;
    draft.n_catch_ups = draft.n_catch_up_rows = 0;
}

static void open_drafting_bench(bench_t *b, bt_kv_type_t type)
{
    configure_bench = add_drafter;
    /* The back end has rows for the largest call of a model. */
    open_bench(b, type, has_cache() ? BT_SCHED_CATCH_UP_ROWS : 32);
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
        seqs[i]->itl_us = draft.itl_us;
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

/* By measured cost, whatever it is here: rounds are tried at least, also where
 * requests have an ITL target that leaves time for them, a minute. */
static void controller_tries_rounds_and_changes_no_token(void **state)
{
    totals_t totals;

    (void)state;
    draft.seed = 0;
    draft.type = "q4_1";
    draft.fixed_drafts = 0;
    for (uint32_t i = 0; i < 2; i++) {
        draft.itl_us = i * 60000000;
        totals = compare(BT_KV_F16);
        assert_true(draft.n_calls > 0);
        assert_true(draft.n_most <= N_CASES);
        assert_true(totals.n_accepted <= totals.n_drafted);
    }
    draft.type = NULL;
    draft.itl_us = 0;
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

/* Prompts of 5, 28, 51, 74 and 97 tokens: the first is short enough to begin
 * with a draft, the others catch up, 246 tokens without the last of each. */
static void
model_with_kv_of_its_own_and_equal_logits_is_always_right(void **state)
{
    static const bt_kv_type_t types[] = {BT_KV_F16, BT_KV_INT8};

    (void)state;
    draft.seed = 0;
    draft.n_silent = 1;
    for (uint32_t i = 0; i < BT_ARRAY_LEN(types); i++) {
        for (uint32_t n = 1; n < 6; n += 2) {
            totals_t totals;

            draft.fixed_drafts = n;
            totals = compare(types[i]);
            assert_true(totals.n_drafted > 40);
            assert_int_equal(totals.n_accepted, totals.n_drafted);
            assert_true(draft.n_catch_up_rows >= 28 + 51 + 74 + 97);
        }
    }
    draft.n_silent = 0;
}

/* A prompt of 97 tokens is computed for the first sequence, found by the second
 * of its namespace, and computed again for one of another. */
static void prompt_is_found_in_its_own_namespace_only(void **state)
{
    static const struct {
        bt_hash128_t space;
        bool finds;
    } cases[] = {{{7, 0}, false}, {{7, 0}, true}, {{7, 1}, false}};
    bench_t b;

    (void)state;
    draft.seed = 0;
    draft.n_silent = 1;
    draft.fixed_drafts = 2;
    open_drafting_bench(&b, BT_KV_F16);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_seq_t *const seq = make_case(&b, 4);

        seq->model_drafts = true;
        seq->space = cases[i].space;
        draft.n_catch_up_rows = 0;
        assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
        run_until_left(&b, 1);
        if (cases[i].finds) {
            assert_true(draft.n_catch_up_rows <= BT_ENGINE_ROUND_ROWS);
        } else {
            assert_in_range(draft.n_catch_up_rows, 96, 96 + MAX_NEW);
        }
        free_seq(seq);
    }
    close_drafting_bench(&b);
    draft.n_silent = 0;
}

/* Other weights and another shape, few slots, few blocks, a short context. */
static void drafts_of_any_model_with_kv_of_its_own_change_no_token(void **state)
{
    static const struct {
        uint32_t n_silent;
        const char *architecture;
        uint32_t n_slots, n_blocks, context_tokens;
    } cases[] = {{1, NULL, 0, 0, 0},      {0, "llama", 0, 0, 0},
                 {0, "gemma2", 2, 0, 0},  {0, "gpt2", 0, 9, 0},
                 {2, NULL, 3, 12, 0},     {1, NULL, 0, 0, 60},
                 {0, "qwen3", 1, 3, 100}, {1, NULL, 8, 1, 0}};

    (void)state;
    draft.fixed_drafts = 4;
    for (uint32_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        for (uint32_t seed = 0; seed <= 5; seed += 5) {
            draft.seed = seed;
            draft.n_silent = cases[i].n_silent;
            draft.architecture = cases[i].architecture;
            draft.n_slots = cases[i].n_slots;
            draft.n_blocks = cases[i].n_blocks;
            draft.context_tokens = cases[i].context_tokens;
            assert_true(compare(BT_KV_BF16).n_drafted > 0);
        }
    }
    draft.n_silent = draft.n_slots = draft.n_blocks = draft.context_tokens = 0;
    draft.architecture = NULL;
}

/* A prompt of 5 tokens and an answer of 20. With one block of 16 tokens rounds
 * find no room behind it, and their time is that of no row; of the others all
 * but the first two teach. In a context of 16 tokens none is begun there. */
static void round_that_computes_nothing_teaches_no_time(void **state)
{
    (void)state;
    draft.seed = 0;
    draft.n_silent = 1;
    draft.fixed_drafts = 4;
    for (uint32_t i = 0; i < 2; i++) {
        bt_seq_t *seq;
        bench_t b;

        draft.n_blocks = (i == 0) ? 1 : 0;
        draft.context_tokens = (i == 0) ? 0 : 16;
        open_drafting_bench(&b, BT_KV_F16);
        seq = make_case(&b, 0);
        seq->model_drafts = true;
        assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
        run_until_left(&b, 1);
        assert_true(draft.n_calls - draft.n_idle > 4);
        assert_true((draft.n_idle > 0) == (i == 0));
        assert_int_equal(b.engine->rounds.times.n_steps,
                         draft.n_calls - draft.n_idle - 2);
        free_seq(seq);
        close_drafting_bench(&b);
    }
    draft.n_silent = draft.n_blocks = draft.context_tokens = 0;
}

/* 8 blocks of 16 tokens and 2 slots: prompts of 28 and 51 tokens have 2 and 4.
 * While the second one is in use the 7 blocks of a prompt of 97 are not to be
 * had; the first one is still computed, all but its last token. */
static void catch_up_without_room_leaves_other_prompts(void **state)
{
    static const uint32_t cases[3] = {1, 2, 4};
    bt_next_draft_t next[3];
    bt_seq_t *seqs[3];
    uint32_t n = 0;
    bench_t b;

    (void)state;
    draft.seed = 0;
    draft.n_silent = 1;
    draft.n_slots = 2;
    draft.n_blocks = 8;
    open_drafting_bench(&b, BT_KV_F16);
    for (uint32_t i = 0; i < 3; i++) {
        seqs[i] = make_case(&b, cases[i]);
        next[i] = (bt_next_draft_t){.seq = seqs[i]};
    }
    own_hook.count_rows(own_hook.ctx, next, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(own_hook.catch_up(own_hook.ctx, seqs[i], 128, &n),
                         BT_OK);
        assert_int_equal(n, seqs[i]->sched.n_tokens - 1);
    }
    own_hook.count_rows(own_hook.ctx, &next[1], 2);
    assert_int_equal(own_hook.catch_up(own_hook.ctx, seqs[2], 128, &n), BT_OK);
    assert_int_equal(n, 0);
    assert_int_equal(own_hook.draft(own_hook.ctx, &next[2], 1), BT_OK);
    assert_int_equal(next[2].n_rows, 0);
    own_hook.count_rows(own_hook.ctx, next, 1);
    assert_int_equal(next[0].n_rows, 1);
    for (uint32_t i = 0; i < 3; i++) {
        free_seq(seqs[i]);
    }
    close_drafting_bench(&b);
    draft.n_silent = draft.n_slots = draft.n_blocks = 0;
}

/* By measured cost: whatever it is here, rounds are tried, after the sequence
 * has caught up, by 16 tokens or more in each iteration. */
static void controller_tries_a_model_that_must_catch_up(void **state)
{
    bt_seq_t *seq;
    bench_t b;

    (void)state;
    draft.seed = 0;
    draft.n_silent = 1;
    draft.fixed_drafts = 0;
    open_drafting_bench(&b, BT_KV_F16);
    seq = make_case(&b, 4); /* 97 tokens, and 19 iterations behind them */
    seq->model_drafts = true;
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    run_until_left(&b, 1);
    assert_true(draft.n_catch_ups > 0);
    assert_true(draft.n_catch_up_rows >=
                96); /* the prompt's but for its last */
    assert_true(draft.n_calls > 0);
    free_seq(seq);
    close_drafting_bench(&b);
    draft.n_silent = 0;
}

#define N_LIVES 40u

/* Sequences are taken out at any token, and run again without their KV, others
 * come to the same address. The engine is asked for nothing else meanwhile. */
static void preempted_sequences_have_the_same_tokens(void **state)
{
    bt_seq_t *alone[N_CASES];
    bt_seq_t *seqs[N_CASES];
    uint32_t n_drafted = 0;
    uint32_t n_preempted = 0;
    uint32_t n_running = N_CASES;
    uint64_t rng = 11;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    for (uint32_t i = 0; i < N_CASES; i++) {
        alone[i] = make_case(&b, i);
        assert_int_equal(bt_engine_submit(b.engine, alone[i]), BT_OK);
    }
    run_until_left(&b, N_CASES);
    close_bench(&b);
    draft.seed = 0;
    draft.n_silent = 1;
    draft.type = "q4_0"; /* most drafts are right, not all */
    draft.fixed_drafts = 3;
    draft.n_slots = 3;
    draft.n_blocks = 20;
    open_drafting_bench(&b, BT_KV_F16);
    for (uint32_t i = 0; i < N_CASES; i++) {
        seqs[i] = make_case(&b, i);
        seqs[i]->model_drafts = true;
        assert_int_equal(bt_engine_submit(b.engine, seqs[i]), BT_OK);
    }
    while (n_running > 0) {
        bt_report_t *report = bt_engine_next(b.engine);

        for (uint32_t k = 0; (report != NULL) && (k < report->n_items); k++) {
            const bt_report_item_t *item = &report->items[k];
            bt_seq_t *seq = item->seq;

            assert_int_equal(report->status, BT_OK);
            if ((item->kind == BT_REPORT_TOKEN) && (n_preempted < N_LIVES) &&
                ((n_preempted == 0) || (draw_below(&rng, 4) == 0))) {
                /* A sequence may end before it sees this; one does not. */
                bt_engine_cancel(seq);
            }
            if (item->kind != BT_REPORT_LEFT) {
                continue;
            }
            n_drafted += seq->n_drafted;
            if (item->finish != BT_FINISH_CANCELED) {
                n_running--;
                continue;
            }
            n_preempted++;
            atomic_store(&seq->cancel, false);
            seq->max_new -= seq->n_drawn;
            seq->first_index += seq->n_drawn;
            seq->n_drawn = seq->n_drafted = 0;
            seq->sched.n_computed = 0;
            assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
        }
        if (report != NULL) {
            bt_engine_recycle(b.engine, report);
        }
    }
    assert_true(n_preempted > 0);
    assert_true(n_drafted > 0);
    for (uint32_t i = 0; i < N_CASES; i++) {
        assert_int_equal(seqs[i]->sched.n_tokens, alone[i]->sched.n_tokens);
        assert_memory_equal(seqs[i]->tokens, alone[i]->tokens,
                            alone[i]->sched.n_tokens * sizeof(uint32_t));
        free_seq(seqs[i]);
        free_seq(alone[i]);
    }
    close_drafting_bench(&b);
    draft.type = NULL;
    draft.n_silent = draft.n_slots = draft.n_blocks = 0;
}

/* Equal tokens are all that is needed; the target's KV is used where the shape
 * is equal, too. */
static void model_of_another_shape_has_kv_of_its_own(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_gguf_t *const target = open_file(0);
    bt_gguf_t *const same = open_file(9);
    char why[256] = "";
    bool shares_kv = false;

    (void)state;
    assert_int_equal(
        bt_model_drafter_check(target, same, 512, &shares_kv, why, sizeof(why)),
        BT_OK);
    assert_true(shares_kv);
    for (uint32_t i = 0; i < 6; i++) {
        bt_tiny_model_t other = tiny;
        bt_gguf_t *gguf;

        other.n_layers += (i == 0) ? 1 : 0;
        other.rope_base *= (i == 1) ? 2 : 1;
        other.sliding_window = (i == 2) ? 64 : other.sliding_window;
        other.architecture = (i == 3) ? "qwen2" : other.architecture;
        other.n_unused = (i == 4) ? 8 : 0; /* rows that are no tokens */
        other.n_padding = (i == 5) ? 24 : 0;
        gguf = open_tiny(&other);
        shares_kv = i < 4;
        assert_int_equal(bt_model_drafter_check(target, gguf, 512, &shares_kv,
                                                why, sizeof(why)),
                         BT_OK);
        assert_true(shares_kv == (i >= 4));
        bt_gguf_close(gguf);
    }
    bt_gguf_close(same);
    bt_gguf_close(target);
}

static void model_with_other_tokens_is_refused(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_gguf_t *const target = open_file(0);
    bt_gguf_t *gguf;
    char why[256] = "";
    bool shares_kv = false;

    (void)state;
    tiny.n_vocab += 8;
    gguf = open_tiny(&tiny);
    assert_int_equal(
        bt_model_drafter_check(target, gguf, 512, &shares_kv, why, sizeof(why)),
        BT_ERR_MISMATCH);
    assert_string_equal(why,
                        "its vocabulary has 296 tokens, that of the model 288");
    bt_gguf_close(gguf);
    tiny = bt_tiny_model_default();
    tiny.thinks = true; /* the last two are other tokens */
    gguf = open_tiny(&tiny);
    assert_int_equal(
        bt_model_drafter_check(target, gguf, 512, &shares_kv, why, sizeof(why)),
        BT_ERR_MISMATCH);
    assert_string_equal(why, "its token 286 is not that of the model");
    bt_gguf_close(gguf);
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
    for (uint32_t i = 0; i < 2; i++) {
        const bt_draft_cache_config_t cache =
            cache_of(bt_model_hparams(b.model), BT_KV_F16);

        config = (bt_model_drafter_config_t){.model = b.model,
                                             .kv = b.kv,
                                             .max_seqs = MAX_SEQS,
                                             .cache = (i > 0) ? &cache : NULL};
        nth = 0;
        do {
            bt_alloc_fail_at(++nth);
            status = bt_model_drafter_create(&config, &drafter);
            assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
        } while (status != BT_OK);
        bt_alloc_fail_at(0);
        assert_true(nth > ((i > 0) ? 11 : 5));
        bt_model_drafter_destroy(drafter);
    }
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
        BT_TEST(model_with_kv_of_its_own_and_equal_logits_is_always_right),
        BT_TEST(prompt_is_found_in_its_own_namespace_only),
        BT_TEST(drafts_of_any_model_with_kv_of_its_own_change_no_token),
        BT_TEST(round_that_computes_nothing_teaches_no_time),
        BT_TEST(catch_up_without_room_leaves_other_prompts),
        BT_TEST(controller_tries_a_model_that_must_catch_up),
        BT_TEST(preempted_sequences_have_the_same_tokens),
        BT_TEST(model_of_another_shape_has_kv_of_its_own),
        BT_TEST(model_with_other_tokens_is_refused),
        BT_TEST(drafter_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
