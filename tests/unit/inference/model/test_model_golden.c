/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "inference/model/model.h"
#include "tests/support/tiny_model.h"

/* The expected logits are those of numpy in float64 over the same file, see
 * tests/golden/make_tiny_golden.py; its cases are repeated here. */

#define N_TOKENS 40
#define N_KEPT   4
#define N_VOCAB  288

/* float32 sums: measured 0.000003 at most, on logits of spread 2. The seeds are
 * such that no number lies so near half way between two bf16 or 8-bit codes
 * that float32 rounds it the other way, which moves logits by up to 0.05. */
#define TOLERANCE 0.0001

static double next_number(FILE *file)
{
    double value = NAN;

    assert_int_equal(fscanf(file, "%lf", &value), 1);
    return value;
}

static bt_gguf_t *open_tiny(const bt_tiny_model_t *tiny)
{
    char path[] = "/tmp/baton-test-golden-XXXXXX";
    char why[256];
    bt_gguf_t *gguf = NULL;
    const int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(bt_tiny_model_write(tiny, path), BT_OK);
    assert_int_equal(bt_gguf_open(path, why, sizeof(why), &gguf), BT_OK);
    unlink(path);
    return gguf;
}

/* Logits (n_rows, N_VOCAB) of the rows, owned by the model. */
static float *forward(bt_model_t *model, const bt_hparams_t *hp, void **cache_p,
                      const uint32_t *tokens, const uint32_t *rows)
{
    const uint32_t blocks[] = {2, 0, 1};
    const bt_ragged_seq_t seq = {.n_rows = N_TOKENS, .blocks = blocks};
    bt_forward_t fwd = {
        .seqs = &seq,
        .n_seqs = 1,
        .tokens = tokens,
        .n_rows = N_TOKENS,
        .logit_rows = rows,
        .n_logit_rows = N_KEPT,
        .kv = {.type = BT_KV_F16,
               .n_layers = hp->n_layers,
               .n_kv_heads = hp->n_kv_heads,
               .head_dim = hp->head_dim,
               .tokens_per_block = 16,
               .block_bytes = (size_t)hp->n_layers * 2 * hp->n_kv_heads * 16 *
                              hp->head_dim * 2}};
    float *logits = NULL;

    *cache_p = bt_calloc_aligned(3, fwd.kv.block_bytes);
    fwd.kv.base = *cache_p;
    assert_int_equal(bt_model_forward(model, &fwd, &logits), BT_OK);
    return logits;
}

static void compare(const char *name, const bt_tiny_model_t *tiny)
{
    const bt_backend_config_t be_config = {.n_threads = 1,
                                           .max_rows = N_TOKENS};
    const bt_model_config_t config = {
        .max_rows = N_TOKENS, .max_logit_rows = N_KEPT, .context_tokens = 64};
    bt_gguf_t *const gguf = open_tiny(tiny);
    FILE *const file = fopen(bt_test_path(name), "re");
    uint32_t tokens[N_TOKENS];
    uint32_t rows[N_KEPT];
    bt_backend_t *be = NULL;
    bt_model_t *model = NULL;
    void *cache = NULL;
    double worst = 0.0;
    char why[256];
    float *logits;
    int c;

    assert_non_null(file);
    do { /* the first line is for the reader */
        c = fgetc(file);
    } while ((c != '\n') && (c != EOF));
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        tokens[i] = (uint32_t)next_number(file);
    }
    for (uint32_t i = 0; i < N_KEPT; i++) {
        rows[i] = (uint32_t)next_number(file);
    }
    assert_int_equal(bt_backend_open("cpu", &be_config, &be), BT_OK);
    assert_int_equal(bt_model_load(gguf, be, &config, why, sizeof(why), &model),
                     BT_OK);
    assert_int_equal(bt_model_hparams(model)->n_vocab, N_VOCAB);
    logits = forward(model, bt_model_hparams(model), &cache, tokens, rows);
    for (uint32_t i = 0; i < N_KEPT * N_VOCAB; i++) {
        const double diff = fabs((double)logits[i] - next_number(file));

        worst = (diff > worst) ? diff : worst;
    }
    print_message("%s: largest difference %.6f\n", name, worst);
    assert_true(worst < TOLERANCE);
    fclose(file);
    bt_free(cache);
    bt_model_destroy(model);
    bt_backend_close(be);
    bt_gguf_close(gguf);
}

static void float_weights_give_numpys_logits(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    (void)state;
    tiny.seed = 11;
    tiny.n_layers = 3;
    compare("golden/tiny_f32.txt", &tiny);
}

static void
mixed_k_quants_tied_and_with_rope_factors_give_numpy_s_logits(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    (void)state;
    tiny.seed = 23;
    tiny.dim = 256;
    tiny.n_heads = 8;
    tiny.ffn_dim = 512;
    tiny.type = 12;       /* Q4_K */
    tiny.mixed_type = 14; /* Q6_K */
    tiny.embd_type = 8;   /* Q8_0 */
    tiny.tied = true;
    tiny.rope_factors = true;
    compare("golden/tiny_mixed.txt", &tiny);
}

static void q4_1_with_three_query_heads_gives_numpys_logits(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    (void)state;
    tiny.seed = 24;
    tiny.dim = 96;
    tiny.n_heads = 3;
    tiny.n_kv_heads = 1;
    tiny.ffn_dim = 160;
    tiny.type = 3;       /* Q4_1 */
    tiny.mixed_type = 6; /* Q5_0 */
    tiny.embd_type = 1;  /* F16 */
    compare("golden/tiny_q4_1.txt", &tiny);
}

static void codebook_weights_give_numpys_logits(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    (void)state;
    tiny.seed = 26;
    tiny.dim = 256;
    tiny.n_heads = 8;
    tiny.ffn_dim = 512;
    tiny.type = 23;       /* IQ4_XS */
    tiny.mixed_type = 20; /* IQ4_NL */
    tiny.embd_type = 39;  /* MXFP4 */
    tiny.tied = true;
    compare("golden/tiny_iq4.txt", &tiny);
}

static void low_bit_weights_give_numpys_logits(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    (void)state;
    tiny.seed = 25;
    tiny.dim = 256;
    tiny.n_heads = 8;
    tiny.ffn_dim = 512;
    tiny.type = 22;       /* IQ2_S */
    tiny.mixed_type = 10; /* Q2_K */
    tiny.embd_type = 35;  /* TQ2_0 */
    compare("golden/tiny_few_bits.txt", &tiny);
}

static void bf16_weights_give_numpys_logits(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    (void)state;
    tiny.seed = 15;
    tiny.type = 30;      /* BF16 */
    tiny.embd_type = 30; /* BF16 */
    tiny.tied = true;
    compare("golden/tiny_bf16.txt", &tiny);
}

/* Of 40 positions each sees 11, so that windows begin in both steps of 32. */
static void window_cap_and_scale_give_numpys_logits(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    (void)state;
    tiny.seed = 11;
    tiny.n_layers = 3;
    tiny.sliding_window = 11;
    tiny.attn_soft_cap = 1.5f;
    tiny.attn_scale = 0.7f;
    compare("golden/tiny_window.txt", &tiny);
}

static void attention_sinks_give_numpys_logits(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    (void)state;
    tiny.seed = 11;
    tiny.n_layers = 3;
    tiny.attn_sinks = true;
    compare("golden/tiny_sinks.txt", &tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(float_weights_give_numpys_logits),
        BT_TEST(mixed_k_quants_tied_and_with_rope_factors_give_numpy_s_logits),
        BT_TEST(q4_1_with_three_query_heads_gives_numpys_logits),
        BT_TEST(codebook_weights_give_numpys_logits),
        BT_TEST(low_bit_weights_give_numpys_logits),
        BT_TEST(bf16_weights_give_numpys_logits),
        BT_TEST(window_cap_and_scale_give_numpys_logits),
        BT_TEST(attention_sinks_give_numpys_logits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
