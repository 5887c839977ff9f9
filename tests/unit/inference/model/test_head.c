/* SPDX-License-Identifier: Apache-2.0 */
/* Draft heads and the hidden states that they read: the numbers of numpy in
 * float64, which tests/golden/make_head_golden.py holds against PyTorch. */
#include "tests/unit/inference/model/heads.h"

#include <stdio.h>

#define N_GOLDEN  40
#define N_DRAFTED 3
#define N_KEPT    3
#define TOLERANCE 0.0001 /* as that of test_model_families.c */

static const uint32_t kept_rows[N_KEPT] = {0, 11, 38};

/* ---- golden files ---- */

static double next_number(FILE *file)
{
    double value = NAN;

    assert_int_equal(fscanf(file, "%lf", &value), 1);
    return value;
}

static void read_numbers(FILE *file, uint32_t n, uint32_t *out)
{
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (uint32_t)next_number(file);
    }
}

static void skip_line(FILE *file)
{
    int ch;

    do {
        ch = fgetc(file);
    } while ((ch != '\n') && (ch != EOF));
}

static double worst_of(FILE *file, const float *got, uint32_t n, uint32_t every)
{
    double worst = 0;

    for (uint32_t i = 0; i < n; i += every) {
        worst = fmax(worst, fabs((double)got[i] - next_number(file)));
    }
    return worst;
}

/* Positions 0 .. 38 with the tokens behind them, then three that are drafted
 * from the head's own output. */
static double compare(const head_case_t *c)
{
    pair_t p = make_pair(c);
    const uint32_t dim = bt_model_hparams(p.head)->dim;
    const uint32_t n = N_GOLDEN - 1;
    uint32_t tokens[N_GOLDEN];
    uint32_t drafted[N_DRAFTED];
    float *const fused = bt_calloc((size_t)N_GOLDEN * dim, sizeof(float));
    float *const next = bt_calloc((size_t)MAX_ROWS * dim, sizeof(float));
    const float *last;
    double worst = 0;
    float *logits;
    char name[64];
    FILE *file;

    snprintf(name, sizeof(name), "golden/head_%s.txt", c->name);
    file = fopen(bt_test_path(name), "re");
    assert_non_null(file);
    skip_line(file);
    skip_line(file);
    read_numbers(file, N_GOLDEN, tokens);
    read_numbers(file, N_DRAFTED, drafted);
    run_target(&p, tokens, 0, N_GOLDEN);
    bt_model_fuse_hidden(p.head, p.taps.hidden, n, fused);
    logits = run_head(&p, tokens + 1, 0, n, n, fused, next);
    for (uint32_t i = 0; i < N_KEPT; i++) {
        const size_t row = kept_rows[i];

        worst = fmax(worst,
                     worst_of(file, p.taps.hidden + row * p.width, p.width, 9));
        worst =
            fmax(worst, worst_of(file, logits + row * p.n_vocab, p.n_vocab, 5));
    }
    last = next + (size_t)(n - 1) * dim;
    for (uint32_t i = 0; i < N_DRAFTED; i++) {
        memcpy(fused, last, dim * sizeof(float));
        logits = run_head(&p, &drafted[i], n + i, 1, 1, fused, next);
        worst = fmax(worst, worst_of(file, logits, p.n_vocab, 5));
        last = next;
    }
    print_message("%s: largest difference %.7f\n", c->name, worst);
    fclose(file);
    bt_free(fused);
    bt_free(next);
    free_pair(&p);
    return worst;
}

static void heads_give_pytorchs_logits_and_drafts(void **state)
{
    const head_case_t cases[] = {eagle3_case(false), eagle3_case(true),
                                 nextn_case(false), nextn_case(true)};
    bool all = true;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        all = (compare(&cases[i]) < TOLERANCE) && all;
    }
    assert_true(all);
}

/* ---- taps ---- */

/* A second sequence that joins between two layers. */
typedef struct joining {
    const pair_t *pair;
    bt_ragged_seq_t seqs[2];
    uint32_t tokens[MAX_ROWS];
    uint32_t rows[MAX_ROWS];
    uint32_t n_rows;
    uint32_t at; /* layer */
    bool joined;
} joining_t;

static uint32_t join(void *ctx, uint32_t n_layers)
{
    joining_t *const j = ctx;

    if (j->joined || (n_layers != j->at)) {
        return 0;
    }
    j->joined = true;
    return 1;
}

/* Hidden states of a row are the same bits when its chunk is another, when only
 * some rows have logits, and when it joins a call of other rows. */
static void taps_are_the_same_bits_in_any_batch(void **state)
{
    const head_case_t cases[] = {eagle3_case(true), nextn_case(false)};

    (void)state;
    for (size_t k = 0; k < BT_ARRAY_LEN(cases); k++) {
        pair_t p = make_pair(&cases[k]);
        const size_t bytes = p.width * sizeof(float);
        const uint32_t last = N_TOKENS - 1;
        const uint32_t n_layers = bt_model_hparams(p.target.model)->n_layers;
        uint32_t tokens[N_TOKENS];
        float *const whole = bt_calloc(N_TOKENS, bytes);
        uint32_t blocks[2][N_BLOCKS / 8];

        assert_non_null(whole);
        fill_tokens(tokens, N_TOKENS, p.target.n_vocab);
        run_target(&p, tokens, 0, N_TOKENS);
        memcpy(whole, p.taps.hidden, N_TOKENS * bytes);
        run_target(&p, tokens, 0, 30);
        assert_memory_equal(p.taps.hidden, whole, 30 * bytes);
        run_target(&p, tokens, 30, N_TOKENS - 30);
        assert_memory_equal(p.taps.hidden, whole + (size_t)30 * p.width,
                            (N_TOKENS - 30) * bytes);
        /* The last row joins a call of the first 20, two of which have logits;
         * its earlier positions are in the cache. */
        fill_blocks(blocks[0], N_BLOCKS / 2);
        fill_blocks(blocks[1], 0);
        for (uint32_t at = 1; at < n_layers; at++) {
            joining_t j = {.pair = &p, .at = at};
            const bt_forward_t fwd = {.seqs = j.seqs,
                                      .n_seqs = 1,
                                      .tokens = j.tokens,
                                      .n_rows = 20,
                                      .logit_rows = j.rows,
                                      .n_logit_rows = 2,
                                      .taps = &p.taps,
                                      .kv = p.target.kv,
                                      .take_late = join,
                                      .take_late_ctx = &j};
            float *logits;

            j.seqs[0] = (bt_ragged_seq_t){.n_rows = 20, .blocks = blocks[0]};
            j.seqs[1] = (bt_ragged_seq_t){
                .row = 20, .n_rows = 1, .pos = last, .blocks = blocks[1]};
            memcpy(j.tokens, tokens, 20 * sizeof(*tokens));
            j.tokens[20] = tokens[last];
            j.rows[0] = 7;
            j.rows[1] = 19;
            j.rows[2] = 20;
            memset(p.taps.hidden, 0xff, MAX_ROWS * bytes);
            assert_int_equal(bt_model_forward(p.target.model, &fwd, &logits),
                             BT_OK);
            assert_true(j.joined);
            assert_memory_equal(p.taps.hidden, whole + (size_t)7 * p.width,
                                bytes);
            assert_memory_equal(p.taps.hidden + p.width,
                                whole + (size_t)19 * p.width, bytes);
            assert_memory_equal(p.taps.hidden + 2 * (size_t)p.width,
                                whole + (size_t)last * p.width, bytes);
        }
        bt_free(whole);
        free_pair(&p);
    }
}

static void taps_change_no_logits(void **state)
{
    const head_case_t c = eagle3_case(false);
    pair_t p = make_pair(&c);
    logits_of_prompt_t prompt = run_whole(&p.target);
    uint32_t blocks[N_BLOCKS / 8];

    (void)state;
    run_target(&p, prompt.tokens, 0, N_TOKENS);
    fill_blocks(blocks, 0);
    forward_range(&p.target, prompt.tokens, 0, N_TOKENS, blocks, prompt.other);
    assert_memory_equal(prompt.other, prompt.whole, prompt.bytes);
    free_logits(&prompt);
    free_pair(&p);
}

/* ---- what is refused ---- */

static void calls_that_do_not_fit_are_refused(void **state)
{
    const head_case_t c = eagle3_case(false);
    pair_t p = make_pair(&c);
    uint32_t blocks[N_BLOCKS / 8];
    uint32_t token = 287; /* beyond the head's own vocabulary of 96 */
    const uint32_t row = 0;
    const bt_ragged_seq_t seq = {.n_rows = 1, .blocks = blocks};
    bt_taps_t taps = p.taps;
    bt_forward_t fwd = {.seqs = &seq,
                        .n_seqs = 1,
                        .tokens = &token,
                        .n_rows = 1,
                        .logit_rows = &row,
                        .n_logit_rows = 1,
                        .hidden = p.taps.hidden,
                        .kv = p.kv};
    float *logits;

    (void)state;
    fill_blocks(blocks, 0);
    assert_int_equal(bt_model_forward(p.head, &fwd, &logits), BT_OK);
    fwd.hidden = NULL;
    assert_int_equal(bt_model_forward(p.head, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    fwd.kv = p.target.kv;
    assert_int_equal(bt_model_forward(p.target.model, &fwd, &logits), BT_OK);
    fwd.hidden = p.taps.hidden;
    assert_int_equal(bt_model_forward(p.target.model, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    fwd.hidden = NULL;
    taps.layers[2] = 5;
    fwd.taps = &taps;
    assert_int_equal(bt_model_forward(p.target.model, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    token = 288;
    fwd.taps = NULL;
    fwd.hidden = p.taps.hidden;
    fwd.kv = p.kv;
    assert_int_equal(bt_model_forward(p.head, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    free_pair(&p);
}

static void expect_refused(const head_case_t *c, bt_status_t status,
                           const char *reason)
{
    bt_tiny_model_t tiny = c->target;
    rig_t target = make_rig(&tiny, 1);
    bt_gguf_t *const gguf = open_head(c);
    bt_model_t *head = NULL;

    why[0] = '\0';
    assert_int_equal(load_head(c, &target, gguf, &head), status);
    if (strstr(why, reason) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", why, reason);
    }
    bt_gguf_close(gguf);
    free_rig(&target);
}

static void heads_of_other_targets_are_refused_by_what_differs(void **state)
{
    head_case_t c = eagle3_case(false);

    (void)state;
    c.target.n_layers = 2;
    expect_refused(&c, BT_ERR_MISMATCH,
                   "it reads layer 3 of its target, and the model has 2");
    c = eagle3_case(false);
    c.head.keys[1].value = "128";
    expect_refused(&c, BT_ERR_MISMATCH,
                   "its target's width is 128, that of the model 64");
    c = eagle3_case(false);
    c.target.n_vocab = 300;
    c.head.draft_vocab = 288;
    expect_refused(
        &c, BT_ERR_MISMATCH,
        "vocabulary, without tensor d2t, is 288, that of the model 300");
    c = eagle3_case(true);
    c.target.n_vocab = 300;
    expect_refused(&c, BT_ERR_MISMATCH,
                   "its vocabulary is 288, that of the model 300");
    c = eagle3_case(false);
    c.head.dim = 128;
    expect_refused(&c, BT_ERR_MISMATCH, "embedding or output is the model's");
    c = eagle3_case(false);
    c.target.n_vocab = 280; /* ids of d2t up to 285 */
    expect_refused(&c, BT_ERR_BAD_FILE, "no list of different ids below 280");
    c = eagle3_case(false);
    c.head.keys[0].value = "1,2";
    expect_refused(&c, BT_ERR_BAD_FILE,
                   "eagle3.target_layers does not name the three layers");
    c = eagle3_case(false);
    c.head.n_keys = 1;
    expect_refused(&c, BT_ERR_BAD_FILE, "eagle3.target_hidden_size is missing");
    c = nextn_case(false);
    c.target.nextn = false;
    expect_refused(&c, BT_ERR_UNSUPPORTED,
                   "no layers of multi-token prediction");
    c = nextn_case(true);
    c.target.architecture = "qwen3moe";
    c.target.n_experts = 8;
    c.target.n_experts_used = 2;
    expect_refused(&c, BT_ERR_UNSUPPORTED,
                   "multi-token prediction of a model with experts");
}

static void head_load_survives_every_failed_allocation(void **state)
{
    const head_case_t cases[] = {eagle3_case(false), nextn_case(true)};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        rig_t target = make_rig(&cases[i].target, 1);
        bt_gguf_t *const gguf = open_head(&cases[i]);
        bt_model_t *head = NULL;
        bt_status_t status = BT_ERR_NO_MEMORY;

        for (int nth = 1; status != BT_OK; nth++) {
            bt_alloc_fail_at(nth);
            status = load_head(&cases[i], &target, gguf, &head);
            assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
            assert_true((status == BT_OK) == (head != NULL));
        }
        bt_alloc_fail_at(0);
        bt_model_destroy(head);
        bt_gguf_close(gguf);
        free_rig(&target);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(heads_give_pytorchs_logits_and_drafts),
        BT_TEST(taps_are_the_same_bits_in_any_batch),
        BT_TEST(taps_change_no_logits),
        BT_TEST(calls_that_do_not_fit_are_refused),
        BT_TEST(heads_of_other_targets_are_refused_by_what_differs),
        BT_TEST(head_load_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
