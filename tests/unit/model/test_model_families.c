/* SPDX-License-Identifier: Apache-2.0 */
/* Every family, on a small model of it: the logits of numpy in float64, which
 * tests/golden/make_family_golden.py holds against transformers; and the same
 * bits whatever the chunks, the batch, the operations and the threads. */
#include "tests/unit/model/rig.h"

#include <stdio.h>

#include "common/base/assert.h"

#define N_GOLDEN 40
#define N_KEPT   4
#define EVERY    9
#define N_KEYS   4

/* float32 sums; measured 0.000006 at most, on logits of spread 1.5. The seeds
 * are such that no number lies so near half way between two bf16 or 8-bit codes
 * that float32 rounds it the other way, which moves logits by up to 0.05. */
#define TOLERANCE 0.0001

/* One case of the script: how it differs from bt_tiny_model_default(). */
typedef struct family_case {
    const char *name;
    const char *architecture;
    uint32_t seed;
    uint32_t n_layers;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t rope_dims;
    uint32_t ffn_dim;
    uint32_t context_tokens;
    uint32_t window;
    float soft_cap;
    float attn_scale;
    bool tied;
    bool biases;
    bool long_factors;
    bool second_norm;
    bool mixed; /* 256 wide, 8 heads, Q4_K and Q6_K, embedding Q8_0 */
    bool bf16;
    bt_tiny_key_t keys[N_KEYS];
} family_case_t;

static const family_case_t cases[] = {
    {.name = "llama_bias", .architecture = "llama", .seed = 31, .biases = true},
    {.name = "llama_window", .architecture = "llama", .seed = 32, .window = 11},
    {.name = "llama_linear",
     .architecture = "llama",
     .seed = 33,
     .keys = {{"rope.scaling.type", 's', "linear"},
              {"rope.scaling.factor", 'f', "4"}}},
    {.name = "llama_yarn",
     .architecture = "llama",
     .seed = 34,
     .context_tokens = 256,
     .keys = {{"rope.scaling.type", 's', "yarn"},
              {"rope.scaling.factor", 'f', "4"},
              {"rope.scaling.original_context_length", 'u', "64"}}},
    {.name = "qwen2", .architecture = "qwen2", .seed = 41},
    {.name = "qwen3",
     .architecture = "qwen3",
     .seed = 142,
     .head_dim = 24,
     .tied = true},
    {.name = "gemma",
     .architecture = "gemma",
     .seed = 43,
     .head_dim = 24,
     .tied = true},
    {.name = "gemma2",
     .architecture = "gemma2",
     .seed = 44,
     .n_layers = 3,
     .head_dim = 24,
     .tied = true,
     .window = 11,
     .soft_cap = 1.5f,
     .keys = {{"final_logit_softcapping", 'f', "3"}}},
    {.name = "gemma3",
     .architecture = "gemma3",
     .seed = 245,
     .n_layers = 3,
     .head_dim = 24,
     .tied = true,
     .window = 11,
     .keys = {{"rope.freq_base_swa", 'f', "1000"},
              {"rope.scaling.type", 's', "linear"},
              {"rope.scaling.factor", 'f', "8"},
              {"attention.sliding_window_pattern", 'p', "101"}}},
    {.name = "phi3",
     .architecture = "phi3",
     .seed = 46,
     .rope_dims = 12,
     .window = 29},
    {.name = "phi3_short",
     .architecture = "phi3",
     .seed = 47,
     .long_factors = true,
     .keys = {{"rope.scaling.type", 's', "longrope"},
              {"rope.scaling.attn_factor", 'f', "1.25"},
              {"rope.scaling.original_context_length", 'u', "300"}}},
    {.name = "phi3_long", /* the rig's context is 256 */
     .architecture = "phi3",
     .seed = 47,
     .long_factors = true,
     .keys = {{"rope.scaling.type", 's', "longrope"},
              {"rope.scaling.attn_factor", 'f', "1.25"},
              {"rope.scaling.original_context_length", 'u', "32"}}},
    {.name = "granite",
     .architecture = "granite",
     .seed = 48,
     .attn_scale = 0.3f,
     .keys = {{"embedding_scale", 'f', "3"},
              {"residual_scale", 'f', "0.4"},
              {"logit_scale", 'f', "2.5"}}},
    {.name = "olmo2", .architecture = "olmo2", .seed = 49},
    {.name = "internlm2", .architecture = "internlm2", .seed = 50},
    {.name = "smollm3",
     .architecture = "smollm3",
     .seed = 351,
     .n_kv_heads = 1,
     .n_layers = 4,
     .tied = true},
    {.name = "gpt2",
     .architecture = "gpt2",
     .seed = 152,
     .n_kv_heads = 4,
     .ffn_dim = 256,
     .tied = true},
    {.name = "gptneox",
     .architecture = "gptneox",
     .seed = 53,
     .n_kv_heads = 4,
     .rope_dims = 4,
     .keys = {{"use_parallel_residual", 'b', "true"}}},
    {.name = "gptneox_serial",
     .architecture = "gptneox",
     .seed = 54,
     .n_kv_heads = 4,
     .rope_dims = 8,
     .keys = {{"use_parallel_residual", 'b', "false"}}},
    {.name = "falcon",
     .architecture = "falcon",
     .seed = 55,
     .n_kv_heads = 1,
     .ffn_dim = 256,
     .tied = true},
    {.name = "falcon_40b",
     .architecture = "falcon",
     .seed = 56,
     .ffn_dim = 256,
     .second_norm = true},
    {.name = "starcoder2",
     .architecture = "starcoder2",
     .seed = 57,
     .window = 11,
     .tied = true},
    {.name = "cohere2",
     .architecture = "cohere2",
     .seed = 358,
     .n_layers = 4,
     .window = 11,
     .tied = true,
     .keys = {{"logit_scale", 'f', "0.25"}}},
    {.name = "qwen2_q4_k",
     .architecture = "qwen2",
     .seed = 59,
     .ffn_dim = 256,
     .mixed = true},
    {.name = "gemma2_bf16",
     .architecture = "gemma2",
     .seed = 60,
     .tied = true,
     .window = 11,
     .bf16 = true,
     .soft_cap = 1.5f,
     .keys = {{"final_logit_softcapping", 'f', "3"}}},
};

#define N_CASES BT_ARRAY_LEN(cases)

static void set_if(uint32_t *value_p, uint32_t value)
{
    *value_p = (value != 0) ? value : *value_p;
}

static bt_tiny_model_t tiny_of(const family_case_t *c)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    tiny.architecture = c->architecture;
    tiny.seed = c->seed;
    tiny.head_dim = c->head_dim;
    tiny.rope_dims = c->rope_dims;
    tiny.sliding_window = c->window;
    tiny.attn_soft_cap = c->soft_cap;
    tiny.attn_scale = c->attn_scale;
    tiny.tied = c->tied;
    tiny.biases = c->biases;
    tiny.long_factors = c->long_factors;
    tiny.second_norm = c->second_norm;
    set_if(&tiny.n_layers, c->n_layers);
    set_if(&tiny.n_kv_heads, c->n_kv_heads);
    set_if(&tiny.ffn_dim, c->ffn_dim);
    set_if(&tiny.context_tokens, c->context_tokens);
    if (c->mixed) {
        tiny.dim = 256;
        tiny.n_heads = 8;
        tiny.type = 12;       /* Q4_K */
        tiny.mixed_type = 14; /* Q6_K */
        tiny.embd_type = 8;   /* Q8_0 */
    }
    if (c->bf16) {
        tiny.type = tiny.embd_type = 30; /* BF16 */
    }
    for (uint32_t i = 0; (i < N_KEYS) && (c->keys[i].name != NULL); i++) {
        tiny.keys[tiny.n_keys++] = c->keys[i];
    }
    return tiny;
}

static double next_number(FILE *file)
{
    double value = NAN;

    assert_int_equal(fscanf(file, "%lf", &value), 1);
    return value;
}

/* @return the largest difference */
static double compare(const family_case_t *c)
{
    const bt_tiny_model_t tiny = tiny_of(c);
    rig_t rig = make_rig(&tiny, 1);
    uint32_t tokens[N_GOLDEN];
    uint32_t rows[N_KEPT];
    uint32_t blocks[N_BLOCKS / 8];
    char name[64];
    double worst = 0.0;
    float *logits;
    FILE *file;
    int ch;

    snprintf(name, sizeof(name), "golden/family_%s.txt", c->name);
    file = fopen(bt_test_path(name), "re");
    assert_non_null(file);
    do { /* the first line is for the reader */
        ch = fgetc(file);
    } while ((ch != '\n') && (ch != EOF));
    for (uint32_t i = 0; i < N_GOLDEN; i++) {
        tokens[i] = (uint32_t)next_number(file);
    }
    for (uint32_t i = 0; i < N_KEPT; i++) {
        rows[i] = (uint32_t)next_number(file);
    }
    logits = bt_calloc((size_t)N_GOLDEN * rig.n_vocab, sizeof(*logits));
    assert_non_null(logits);
    fill_blocks(blocks, 0);
    forward_range(&rig, tokens, 0, N_GOLDEN, blocks, logits);
    for (uint32_t i = 0; i < N_KEPT; i++) {
        for (uint32_t v = 0; v < rig.n_vocab; v += EVERY) {
            const size_t at = (size_t)rows[i] * rig.n_vocab + v;
            const double diff = fabs((double)logits[at] - next_number(file));

            worst = (diff > worst) ? diff : worst;
        }
    }
    print_message("%s: largest difference %.7f\n", c->name, worst);
    fclose(file);
    bt_free(logits);
    free_rig(&rig);
    return worst;
}

static void every_family_gives_numpy_s_logits(void **state)
{
    bool all = true;

    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        all = (compare(&cases[i]) < TOLERANCE) && all;
    }
    assert_true(all);
}

/* ---- the same bits (I1); the prompt is longer than every window ---- */

static void chunks_give_the_bits_of_one_call(void **state)
{
    static const uint32_t chunks[] = {16, 1, 7, 33, 18};

    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        const bt_tiny_model_t tiny = tiny_of(&cases[i]);
        rig_t rig = make_rig(&tiny, 2);
        logits_of_prompt_t p = run_whole(&rig);
        uint32_t blocks[N_BLOCKS / 8];
        uint32_t at = 0;

        fill_blocks(blocks, 16);
        for (size_t k = 0; k < BT_ARRAY_LEN(chunks); k++) {
            forward_range(&rig, p.tokens, at, chunks[k], blocks,
                          p.other + (size_t)at * rig.n_vocab);
            at += chunks[k];
        }
        assert_int_equal(at, N_TOKENS);
        assert_memory_equal(p.other, p.whole, p.bytes);
        free_logits(&p);
        free_rig(&rig);
    }
}

/* Another sequence before it in the batch, and two rows of one that decodes
 * behind it; logits of its last row alone. */
static void company_in_the_batch_changes_no_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        const bt_tiny_model_t tiny = tiny_of(&cases[i]);
        rig_t rig = make_rig(&tiny, 1);
        logits_of_prompt_t p = run_whole(&rig);
        uint32_t blocks[2][N_BLOCKS / 8];
        const bt_ragged_seq_t seqs[] = {
            {.row = 0, .n_rows = 20, .pos = 0, .blocks = blocks[0]},
            {.row = 20, .n_rows = N_TOKENS, .pos = 0, .blocks = blocks[1]}};
        const uint32_t rows[] = {19, 20 + N_TOKENS - 1};
        uint32_t tokens[20 + N_TOKENS];
        bt_forward_t fwd = {.seqs = seqs,
                            .n_seqs = 2,
                            .tokens = tokens,
                            .n_rows = 20 + N_TOKENS,
                            .logit_rows = rows,
                            .n_logit_rows = 2,
                            .kv = rig.kv};
        float *logits = NULL;

        fill_blocks(blocks[0], 8);
        fill_blocks(blocks[1], 16);
        memcpy(tokens, p.tokens + 3, 20 * sizeof(*tokens));
        memcpy(tokens + 20, p.tokens, N_TOKENS * sizeof(*tokens));
        assert_int_equal(bt_model_forward(rig.model, &fwd, &logits), BT_OK);
        assert_memory_equal(logits + rig.n_vocab,
                            p.whole + (size_t)(N_TOKENS - 1) * rig.n_vocab,
                            rig.n_vocab * sizeof(float));
        free_logits(&p);
        free_rig(&rig);
    }
}

/* A sequence that comes in between two layers (bt_forward_t.take_late). */
typedef struct late {
    bt_ragged_seq_t seqs[2];
    uint32_t tokens[2];
    uint32_t logit_rows[2];
    uint32_t at; /* layers that are done then */
} late_t;

static uint32_t come_late(void *ctx, uint32_t n_layers)
{
    return (n_layers == ((late_t *)ctx)->at) ? 1 : 0;
}

static void rows_that_come_in_late_have_the_bits_of_others(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        const bt_tiny_model_t tiny = tiny_of(&cases[i]);
        rig_t rig = make_rig(&tiny, 1);
        logits_of_prompt_t p = run_whole(&rig);
        uint32_t blocks[2][N_BLOCKS / 8];
        late_t late = {.at = tiny.n_layers - 1};
        bt_forward_t fwd = {.seqs = late.seqs,
                            .n_seqs = 1,
                            .tokens = late.tokens,
                            .n_rows = 1,
                            .logit_rows = late.logit_rows,
                            .n_logit_rows = 1,
                            .kv = rig.kv,
                            .take_late = come_late,
                            .take_late_ctx = &late};
        float *logits = NULL;

        fill_blocks(blocks[0], 8);
        fill_blocks(blocks[1], 16);
        forward_range(&rig, p.tokens, 0, N_TOKENS - 1, blocks[1], p.other);
        late.seqs[0] = (bt_ragged_seq_t){.n_rows = 1, .blocks = blocks[0]};
        late.seqs[1] = (bt_ragged_seq_t){
            .row = 1, .n_rows = 1, .pos = N_TOKENS - 1, .blocks = blocks[1]};
        late.tokens[0] = p.tokens[5];
        late.tokens[1] = p.tokens[N_TOKENS - 1];
        late.logit_rows[1] = 1;
        assert_int_equal(bt_model_forward(rig.model, &fwd, &logits), BT_OK);
        assert_memory_equal(logits + rig.n_vocab,
                            p.whole + (size_t)(N_TOKENS - 1) * rig.n_vocab,
                            rig.n_vocab * sizeof(float));
        free_logits(&p);
        free_rig(&rig);
    }
}

/* ---- memory ---- */

static void load_survives_every_failed_allocation(void **state)
{
    static const char *const names[] = {"gemma3", "gpt2", "falcon_40b"};

    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        const bt_tiny_model_t tiny = tiny_of(&cases[i]);
        bool chosen = false;
        bt_gguf_t *gguf;
        bt_backend_t *be;
        bt_model_t *model = NULL;
        bt_status_t status = BT_ERR_NO_MEMORY;

        for (size_t k = 0; k < BT_ARRAY_LEN(names); k++) {
            chosen = chosen || (strcmp(names[k], cases[i].name) == 0);
        }
        if (!chosen) {
            continue;
        }
        gguf = open_tiny(&tiny);
        be = open_backend(1);
        for (int nth = 1; status != BT_OK; nth++) {
            bt_alloc_fail_at(nth);
            status = bt_model_load(gguf, be, &default_config, why, sizeof(why),
                                   &model);
            assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
            assert_true((status == BT_OK) == (model != NULL));
        }
        bt_alloc_fail_at(0);
        bt_model_destroy(model);
        bt_backend_close(be);
        bt_gguf_close(gguf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_family_gives_numpy_s_logits),
        BT_TEST(chunks_give_the_bits_of_one_call),
        BT_TEST(company_in_the_batch_changes_no_bit),
        BT_TEST(rows_that_come_in_late_have_the_bits_of_others),
        BT_TEST(load_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
