/* SPDX-License-Identifier: Apache-2.0 */
/* Hidden states that a drafter is told of: bit for bit those of the same tokens
 * in one call of the model. */
#include "tests/unit/inference/engine/bench.h"

#define N_CASES   4u
#define MAX_TOLD  (N_CASES * MAX_NEW)
#define N_LAYERS  2u
#define MAX_WIDTH 256u

typedef struct told {
    const bt_seq_t *seq;
    uint32_t pos;
    float hidden[MAX_WIDTH];
} told_t;

static struct {
    told_t told[MAX_TOLD];
    uint32_t n_told;
    uint32_t most; /* positions at once */
    uint32_t width;
    bt_taps_t taps;
} drafter;

static bt_status_t draft_none(void *ctx, bt_next_draft_t *next, uint32_t n)
{
    (void)ctx;
    for (uint32_t i = 0; i < n; i++) {
        next[i].id = UINT32_MAX;
    }
    return BT_OK;
}

static void computed(void *ctx, bt_seq_t *seq, uint32_t pos, uint32_t n,
                     const float *hidden)
{
    (void)ctx;
    assert_int_equal(pos + n + 1, seq->sched.n_tokens);
    drafter.most = (n > drafter.most) ? n : drafter.most;
    for (uint32_t i = 0; i < n; i++) {
        told_t *told = &drafter.told[drafter.n_told++];

        assert_true(drafter.n_told <= MAX_TOLD);
        *told = (told_t){.seq = seq, .pos = pos + i};
        memcpy(told->hidden, hidden + (size_t)i * drafter.width,
               drafter.width * sizeof(float));
    }
}

static void add_drafter(bench_t *b, bt_engine_config_t *config)
{
    (void)b;
    config->batch_drafter = (bt_batch_drafter_t){.draft = draft_none,
                                                 .max_seqs = MAX_SEQS,
                                                 .read_share = 1,
                                                 .computed = computed,
                                                 .taps = drafter.taps};
}

/* Drafts what the sequence drew without drafts, the fourth one wrong. */
static bt_draft_t guess(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                        uint32_t max, uint32_t *drafts)
{
    const uint32_t *const known = ctx;

    (void)tokens;
    for (uint32_t i = 0; i < max; i++) {
        drafts[i] = known[n_tokens + i] + ((i == 3) ? 1 : 0);
    }
    return (bt_draft_t){.n = max};
}

/* @return (n, width) of the first n tokens in one call */
static float *reference(const bt_seq_t *seq, uint32_t n)
{
    bt_taps_t taps = drafter.taps;
    float *const all = bt_calloc((size_t)n * drafter.width, sizeof(float));
    uint32_t *const rows = bt_calloc(n, sizeof(*rows));
    const bt_model_config_t config = {
        .max_rows = n, .max_logit_rows = n, .context_tokens = 512};
    const bt_backend_config_t be_config = {.n_threads = 1, .max_rows = n};
    bt_ragged_seq_t ragged = {.n_rows = n, .blocks = seq->blocks};
    bt_gguf_t *gguf = NULL;
    bt_forward_t fwd;
    float *logits;
    char why[256];
    bench_t b = {0};

    assert_true((all != NULL) && (rows != NULL));
    assert_int_equal(bt_gguf_open(model_path, why, sizeof(why), &gguf), BT_OK);
    assert_int_equal(bt_backend_open("cpu", &be_config, &b.be), BT_OK);
    assert_int_equal(
        bt_model_load(gguf, b.be, &config, why, sizeof(why), &b.model), BT_OK);
    bt_gguf_close(gguf);
    b.kv.block_bytes = (size_t)N_LAYERS * 2 * 2 * T * 16 * sizeof(uint16_t);
    b.pool = bt_calloc_aligned(N_BLOCKS, b.kv.block_bytes);
    assert_non_null(b.pool);
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = i;
    }
    taps.hidden = all;
    fwd = (bt_forward_t){.seqs = &ragged,
                         .n_seqs = 1,
                         .tokens = seq->tokens,
                         .n_rows = n,
                         .logit_rows = rows,
                         .n_logit_rows = n,
                         .taps = &taps,
                         .kv = view_of(&b, BT_KV_F16)};
    assert_int_equal(bt_model_forward(b.model, &fwd, &logits), BT_OK);
    close_bench(&b);
    bt_free(rows);
    return all;
}

static void expect_told(const bt_seq_t *seq)
{
    const uint32_t n = seq->sched.n_tokens;
    float *const all = reference(seq, n);
    uint32_t n_told = 0;

    for (uint32_t i = 0; i < drafter.n_told; i++) {
        const told_t *told = &drafter.told[i];

        if (told->seq != seq) {
            continue;
        }
        /* Each position behind the prompt's last one, in order. */
        assert_int_equal(told->pos, seq->n_prompt - 1 + n_told++);
        assert_memory_equal(told->hidden,
                            all + (size_t)told->pos * drafter.width,
                            drafter.width * sizeof(float));
    }
    /* The last iteration is of a sequence that has ended. */
    assert_in_range(n_told, MAX_NEW - 5, MAX_NEW - 1);
    bt_free(all);
}

static void run_with(bt_taps_t taps)
{
    bt_seq_t *alone[N_CASES];
    bt_seq_t *seqs[N_CASES];
    float *logits;
    bt_seq_rows_t rows;
    bench_t b;

    memset(&drafter, 0, sizeof(drafter));
    drafter.taps = taps;
    drafter.width = (taps.n + (taps.normed ? 1 : 0)) * 64;
    configure_bench = add_drafter;
    open_bench(&b, BT_KV_F16, 32);
    configure_bench = NULL;
    logits = bt_calloc(6, bt_model_hparams(b.model)->n_vocab * sizeof(float));
    assert_non_null(logits);
    rows = (bt_seq_rows_t){.from = 3, .n = 6, .logits = logits};
    for (uint32_t i = 0; i < N_CASES; i++) {
        alone[i] = make_seq(&b, i, 0.9f);
        assert_int_equal(bt_engine_submit(b.engine, alone[i]), BT_OK);
    }
    run_until_left(&b, N_CASES);
    assert_int_equal(drafter.n_told, 0); /* no model_drafts */
    for (uint32_t i = 0; i < N_CASES; i++) {
        seqs[i] = make_seq(&b, i, 0.9f);
        seqs[i]->model_drafts = true;
        seqs[i]->drafter = (bt_drafter_t){.propose = (i == 3) ? NULL : guess,
                                          .ctx = alone[i]->tokens};
        seqs[i]->rows = (i == 1) ? &rows : NULL; /* rows before its draws */
        assert_int_equal(bt_engine_submit(b.engine, seqs[i]), BT_OK);
    }
    run_until_left(&b, N_CASES);
    bt_engine_destroy(b.engine); /* its thread wrote what it told */
    b.engine = NULL;
    assert_true(drafter.most >= 4);
    for (uint32_t i = 0; i < N_CASES; i++) {
        assert_memory_equal(seqs[i]->tokens, alone[i]->tokens,
                            alone[i]->sched.n_tokens * sizeof(uint32_t));
        expect_told(seqs[i]);
        free_seq(seqs[i]);
        free_seq(alone[i]);
    }
    bt_free(logits);
    close_bench(&b);
}

static void drafter_is_told_of_layers_of_all_drawn_positions(void **state)
{
    (void)state;
    run_with((bt_taps_t){.n = 3, .layers = {0, 1, N_LAYERS}});
}

static void drafter_is_told_of_the_normed_last_hidden_state(void **state)
{
    (void)state;
    run_with((bt_taps_t){.normed = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(drafter_is_told_of_layers_of_all_drawn_positions),
        BT_TEST(drafter_is_told_of_the_normed_last_hidden_state),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
