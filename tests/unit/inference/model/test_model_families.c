/* SPDX-License-Identifier: Apache-2.0 */
/* Every family, on a small model of it: the logits of numpy in float64, which
 * tests/golden/make_family_golden.py holds against transformers; and the same
 * bits whatever the chunks, the batch, the operations and the threads. */
#include "inference/model/arch/decoder.h"
#include "tests/unit/inference/model/families.h"
#include "tests/unit/inference/model/same_bits.h"

#include <stdio.h>

#include "common/base/status.h"

#define N_GOLDEN 40
#define N_KEPT   4
#define EVERY    9

/* float32 sums; measured 0.000006 at most, on logits of spread 1.5. The seeds
 * are such that no number lies so near half way between two bf16 or 8-bit codes
 * that float32 rounds it the other way, which moves logits by up to 0.05. */
#define TOLERANCE 0.0001

static double next_number(FILE *file)
{
    double value = NAN;

    assert_int_equal(fscanf(file, "%lf", &value), 1);
    return value;
}

/* @return the largest difference */
static double compare(const family_case_t *c)
{
    const bt_tiny_model_t tiny = family_tiny(c);
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

static void every_family_gives_numpys_logits(void **state)
{
    bool all = true;

    (void)state;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        all = (compare(&family_cases[i]) < TOLERANCE) && all;
    }
    assert_true(all);
}

/* ---- the same bits (I1); the prompt is longer than every window ---- */

static void chunks_batch_and_late_joins_change_no_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const bt_tiny_model_t tiny = family_tiny(&family_cases[i]);
        rig_t rig = make_rig(&tiny, 2);
        logits_of_prompt_t p = run_whole(&rig);

        check_same_bits(&rig, &p);
        free_logits(&p);
        free_rig(&rig);
    }
}

/* Biases, scales and soft caps of the output are in it, and norms of both
 * kinds; also as a back end computes that has no fused steps. */
static void logits_of_ids_have_the_bits_of_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const bt_tiny_model_t tiny = family_tiny(&family_cases[i]);
        rig_t rig = make_rig(&tiny, 2);
        logits_of_prompt_t p = run_whole(&rig);
        const bt_kernels_ops_t *const whole = rig.be->ops;
        bt_kernels_ops_t single = *whole;

        single.norm_matmul = NULL;
        single.matmul_add = NULL;
        single.silu_matmul_add = NULL;
        for (uint32_t mixed = 0; mixed < 2; mixed++) {
            check_ids(&rig, &p, mixed == 1);
            rig.be->ops = &single;
            check_ids(&rig, &p, mixed == 1);
            rig.be->ops = whole;
        }
        free_logits(&p);
        free_rig(&rig);
    }
}

/* ---- what the file says ---- */

static const family_case_t *find_case(const char *name)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        if (strcmp(family_cases[i].name, name) == 0) {
            return &family_cases[i];
        }
    }
    fail_msg("no case %s", name);
    return NULL;
}

static bt_hparams_t hparams_of(const bt_tiny_model_t *tiny)
{
    bt_gguf_t *const gguf = open_tiny(tiny);
    bt_hparams_t hp;

    assert_int_equal(bt_hparams_read(gguf, why, sizeof(why), &hp), BT_OK);
    bt_gguf_close(gguf);
    return hp;
}

/* As letters: w a window, t turned by position; W and T without. */
static void expect_layers(const bt_tiny_model_t *tiny, const char *want)
{
    const bt_hparams_t hp = hparams_of(tiny);
    char got[64] = "";

    for (uint32_t i = 0; i < hp.n_layers; i++) {
        got[2 * i] = (bt_hparams_attention(&hp, i).window != 0) ? 'w' : 'W';
        got[2 * i + 1] = bt_layer_in(&hp.turned, i) ? 't' : 'T';
    }
    assert_string_equal(got, want);
}

/* Which layers have what, where the file says nothing: transformers'
 * configurations of these families, layer_types and no_rope_layers. */
static void attention_windows_alternate_as_in_each_family(void **state)
{
    bt_tiny_model_t tiny = family_tiny(find_case("gemma2"));

    (void)state;
    expect_layers(&tiny, "wtWtwt");
    tiny = family_tiny(find_case("gemma3"));
    tiny.n_layers = 7;
    tiny.n_keys = 1; /* without the pattern of the file */
    expect_layers(&tiny, "wtwtwtwtwtWtwt");
    tiny = family_tiny(find_case("cohere2"));
    tiny.n_layers = 5;
    expect_layers(&tiny, "wtwtwtWTwt");
    tiny = family_tiny(find_case("smollm3"));
    tiny.n_layers = 5;
    expect_layers(&tiny, "WtWtWtWTWt");
    tiny = family_tiny(find_case("olmo2"));
    expect_layers(&tiny, "WtWt");
    tiny.n_layers = 5;
    tiny.sliding_window = 11;
    expect_layers(&tiny, "wtwtwtWtwt");
    tiny.keys[tiny.n_keys++] =
        (bt_tiny_key_t){"attention.sliding_window_pattern", 'u', "2"};
    expect_layers(&tiny, "wtWtwtWtwt");
    tiny = family_tiny(find_case("gpt2"));
    expect_layers(&tiny, "WTWT");
    tiny = family_tiny(find_case("baichuan"));
    expect_layers(&tiny, "WtWt");
    tiny.n_layers = 40; /* 13B */
    assert_float_equal(hparams_of(&tiny).alibi, 8.0f, 0.0f);
    tiny = family_tiny(find_case("bloom"));
    expect_layers(&tiny, "WTWT");
}

/* Gemma 2 and 3 of 27B scale scores by their width for each head: its authors'
 * gemma_pytorch/gemma/config.py, query_pre_attn_scalar 144 and 168. */
static void largest_gemma_models_scale_scores_by_width(void **state)
{
    bt_tiny_model_t tiny = family_tiny(find_case("gemma2"));
    bt_hparams_t hp = hparams_of(&tiny);

    (void)state;
    assert_true(hp.attn_scale == 1.0f / sqrtf(24.0f));
    assert_true(hp.embedding_scale == 8.0f); /* sqrt(64) */
    tiny.n_layers = 46;
    hp = hparams_of(&tiny);
    assert_true(hp.attn_scale == 1.0f / sqrtf(16.0f));
    tiny.attn_scale = 0.125f; /* the file's own word */
    hp = hparams_of(&tiny);
    assert_true(hp.attn_scale == 0.125f);
}

/* The paper's section 3 for 8 heads: 1/2, 1/4 .. 1/256; for 12, as its
 * authors' code has it, these and then 2^-0.5, 2^-1.5 .. */
static void alibi_slopes_equal_the_papers(void **state)
{
    float slopes[12];

    (void)state;
    bt_positions_slopes(8, 8.0f, 1.0f, slopes);
    for (int h = 0; h < 8; h++) {
        assert_float_equal(slopes[h], ldexpf(1.0f, -1 - h), 0.0f);
    }
    bt_positions_slopes(12, 8.0f, 0.25f, slopes);
    for (int h = 0; h < 8; h++) {
        assert_float_equal(slopes[h], ldexpf(0.25f, -1 - h), 0.0f);
    }
    for (int h = 8; h < 12; h++) {
        assert_float_equal(slopes[h], ldexpf(0.25f * 0.70710678f, -(h - 8)),
                           1e-9f);
    }
    bt_positions_slopes(1, 8.0f, 1.0f, slopes);
    assert_float_equal(slopes[0], 1.0f / 256, 0.0f);
}

static void expect_refused(const char *name, bt_tiny_key_t key,
                           bt_status_t status, const char *reason)
{
    bt_tiny_model_t tiny = family_tiny(find_case(name));
    bt_gguf_t *gguf;
    bt_hparams_t hp;

    tiny.keys[tiny.n_keys++] = key;
    gguf = open_tiny(&tiny);
    assert_int_equal(bt_hparams_read(gguf, why, sizeof(why), &hp), status);
    if (strstr(why, reason) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", why, reason);
    }
    bt_gguf_close(gguf);
}

static void keys_of_other_families_are_refused_by_name(void **state)
{
    static const struct {
        const char *name;
        bt_tiny_key_t key;
        bt_status_t status;
        const char *reason;
    } list[] = {
        {"internlm2",
         {"attention.sliding_window", 'u', "64"},
         BT_ERR_UNSUPPORTED,
         "key internlm2.attention.sliding_window is 64; such internlm2 models"},
        {"qwen3",
         {"final_logit_softcapping", 'f', "30"},
         BT_ERR_UNSUPPORTED,
         "key qwen3.final_logit_softcapping is 30"},
        {"gemma3",
         {"logit_scale", 'f', "0.5"},
         BT_ERR_UNSUPPORTED,
         "key gemma3.logit_scale is 0.5"},
        {"starcoder2",
         {"attention.max_alibi_bias", 'f', "8"},
         BT_ERR_UNSUPPORTED,
         "key starcoder2.attention.max_alibi_bias is 8"},
        {"mpt_learned",
         {"attention.temperature_scale", 'f', "0.1"},
         BT_ERR_UNSUPPORTED,
         "key mpt.attention.temperature_scale is 0.1"},
        {"mpt_learned",
         {"attention.max_alibi_bias", 'f', "-8"},
         BT_ERR_BAD_FILE,
         "key mpt.attention.max_alibi_bias is not a positive number"},
        {"olmo2",
         {"attention.clamp_kqv", 'f', "8"},
         BT_ERR_UNSUPPORTED,
         "key olmo2.attention.clamp_kqv is 8"},
        {"granite",
         {"expert_count", 'u', "32"},
         BT_ERR_UNSUPPORTED,
         "key granite.expert_count is 32"},
        {"mixtral",
         {"expert_gating_func", 'u', "4"},
         BT_ERR_UNSUPPORTED,
         "key llama.expert_gating_func is 4; 1 to 3 are supported"},
        {"mixtral",
         {"expert_shared_count", 'u', "1"},
         BT_ERR_UNSUPPORTED,
         "key llama.expert_shared_count is 1"},
        {"qwen3moe",
         {"expert_group_count", 'u', "8"},
         BT_ERR_UNSUPPORTED,
         "key qwen3moe.expert_group_count is 8"},
        {"qwen3moe",
         {"expert_weights_norm", 'u', "1"},
         BT_ERR_BAD_FILE,
         "key qwen3moe.expert_weights_norm is not a truth value"},
        {"llama_bias",
         {"attention.temperature_scale", 'f', "0.1"},
         BT_ERR_UNSUPPORTED,
         "key llama.attention.temperature_scale is 0.1"},
        {"llama_bias",
         {"rope.dimension_sections", 'p', "1111"},
         BT_ERR_UNSUPPORTED,
         "llama.rope.dimension_sections"},
        {"gemma2",
         {"attention.key_length_swa", 'u', "16"},
         BT_ERR_UNSUPPORTED,
         "key gemma2.attention.key_length_swa"},
        {"qwen2",
         {"rope.dimension_count_swa", 'u', "6"},
         BT_ERR_UNSUPPORTED,
         "rotates 16 of 16 dimensions of a head, 6 where"},
        {"gemma2",
         {"attention.sliding_window_pattern", 'p', "10"},
         BT_ERR_BAD_FILE,
         "attention.sliding_window_pattern has 2 values for 3 layers"},
        {"gemma2",
         {"attention.sliding_window_pattern", 's', "no"},
         BT_ERR_BAD_FILE,
         "attention.sliding_window_pattern is not one whole number"},
        {"granite",
         {"final_logit_softcapping", 's', "x"},
         BT_ERR_UNSUPPORTED,
         "final_logit_softcapping is no single number"},
        {"gpt2",
         {"attention.causal", 'b', "false"},
         BT_ERR_UNSUPPORTED,
         "not causal"},
        {"cohere2",
         {"rope.scaling.type", 's', "dynamic"},
         BT_ERR_UNSUPPORTED,
         "in the way dynamic"},
        {"cohere2",
         {"rope.scaling.type", 'u', "1"},
         BT_ERR_BAD_FILE,
         "key cohere2.rope.scaling.type is not a text"},
        {"qwen2",
         {"rope.scaling.factor", 'f', "-2"},
         BT_ERR_BAD_FILE,
         "rope.scaling.factor is not a positive number"},
        {"starcoder2",
         {"use_parallel_residual", 'u', "1"},
         BT_OK,
         ""}, /* means nothing there */
        {"gptneox",
         {"attention.scale", 'f', "nan"},
         BT_ERR_BAD_FILE,
         "attention.scale is not a positive number"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(list); i++) {
        why[0] = '\0';
        expect_refused(list[i].name, list[i].key, list[i].status,
                       list[i].reason);
    }
}

/* Weights of the small models depend on their names alone: three layers of
 * which one predicts further tokens are those of two. */
static void layers_that_predict_further_tokens_are_left_out(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    logits_of_prompt_t want;
    logits_of_prompt_t got;
    rig_t rig;

    (void)state;
    rig = make_rig(&tiny, 1);
    want = run_whole(&rig);
    free_rig(&rig);
    tiny.n_layers = 3;
    tiny.keys[tiny.n_keys++] =
        (bt_tiny_key_t){"nextn_predict_layers", 'u', "1"};
    rig = make_rig(&tiny, 1);
    assert_int_equal(bt_model_hparams(rig.model)->n_layers, 2);
    got = run_whole(&rig);
    assert_int_equal(got.bytes, want.bytes);
    assert_memory_equal(got.whole, want.whole, got.bytes);
    free_logits(&want);
    free_logits(&got);
    free_rig(&rig);
    expect_refused("qwen2", (bt_tiny_key_t){"nextn_predict_layers", 'u', "99"},
                   BT_ERR_BAD_FILE, "nextn_predict_layers");
}

/* A tensor that a family does not have, or one that is missing. */
static void other_tensors_are_refused_by_name(void **state)
{
    static const struct {
        const char *name;
        const char *architecture; /* that the file says it is */
        const char *reason;
    } list[] = {
        {"gemma2", "gemma", "tensor blk.0.post_attention_norm.weight has no"},
        {"qwen3", "internlm2", "tensor blk.0.attn_q_norm.weight has no place"},
        {"gpt2", "falcon", "tensor position_embd.weight has no place"},
        {"qwen3", "qwen2", "tensor blk.0.attn_q.bias is missing"},
        {"gemma", "gemma2", "tensor blk.0.post_attention_norm.weight is"},
        {"qwen2", "qwen3", "tensor blk.0.attn_q_norm.weight is missing"},
        {"falcon", "gpt2", "tensor blk.0.ffn_norm.weight is missing"},
        {"falcon_rw", "mpt", "tensor position_embd.weight is missing"},
        {"bloom", "gpt2", "tensor position_embd.weight is missing"},
        {"mpt", "bloom", "tensor blk.0.attn_norm.bias is missing"},
        {"cohere2", "olmo", "tensor blk.0.attn_norm.weight has no place"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(list); i++) {
        const bt_tiny_model_t tiny = family_tiny(find_case(list[i].name));
        bt_model_t *model = NULL;
        bt_tiny_model_t other = tiny;
        bt_gguf_t *gguf;
        bt_backend_t *const be = open_backend(1);

        other.tensors_of =
            (tiny.tensors_of != NULL) ? tiny.tensors_of : tiny.architecture;
        other.architecture = list[i].architecture;
        other.sliding_window = 0; /* keys that it does not have either */
        other.n_keys = 0;
        gguf = open_tiny(&other);
        assert_int_not_equal(
            bt_model_load(gguf, be, &default_config, why, sizeof(why), &model),
            BT_OK);
        if (strstr(why, list[i].reason) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", why, list[i].reason);
        }
        bt_backend_close(be);
        bt_gguf_close(gguf);
    }
}

/* A back end without an operation says so, and names it. */
static void back_end_without_an_operation_is_refused_by_name(void **state)
{
    static const char *const names[] = {"gpt2",    "qwen3",  "gemma",
                                        "granite", "qwen2",  "mistral3",
                                        "olmo",    "mixtral"};
    static const char *const reasons[] = {
        "layer norms, which this gpt2 model has",
        "norms of queries and keys, which this qwen3",
        "a feed-forward of this kind, which this gemma",
        "a feed-forward of this kind, which this granite",
        "biases, which this qwen2",
        "a temperature that grows with the position, which this mistral3",
        "limits of queries, keys and values, which this olmo",
        "mixtures of experts, which this llama"};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        const bt_tiny_model_t tiny = family_tiny(find_case(names[i]));
        bt_gguf_t *const gguf = open_tiny(&tiny);
        bt_backend_t *const be = open_backend(1);
        const bt_kernels_ops_t *const ops = be->ops;
        bt_kernels_ops_t few = *ops;
        bt_model_t *model = NULL;

        few.layer_norm =
            (strcmp(names[i], "olmo") == 0) ? few.layer_norm : NULL;
        few.clamp = NULL;
        few.route = NULL;
        few.scale_positions = NULL;
        few.head_norm = NULL;
        few.activate = NULL;
        few.add_bias = NULL;
        be->ops = &few;
        assert_int_equal(
            bt_model_load(gguf, be, &default_config, why, sizeof(why), &model),
            BT_ERR_UNSUPPORTED);
        if (strstr(why, reasons[i]) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", why, reasons[i]);
        }
        be->ops = ops;
        bt_backend_close(be);
        bt_gguf_close(gguf);
    }
}

/* ---- memory ---- */

static void family_load_survives_every_failed_allocation(void **state)
{
    static const char *const names[] = {
        "gemma3",   "gpt2",    "falcon_40b", "bloom",   "olmo",
        "mistral3", "mixtral", "olmoe",      "glm4moe", "gpt_oss"};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        const bt_tiny_model_t tiny = family_tiny(find_case(names[i]));
        bt_gguf_t *const gguf = open_tiny(&tiny);
        bt_backend_t *const be = open_backend(1);
        bt_model_t *model = NULL;
        bt_status_t status = BT_ERR_NO_MEMORY;

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
        BT_TEST(every_family_gives_numpys_logits),
        BT_TEST(chunks_batch_and_late_joins_change_no_bit),
        BT_TEST(logits_of_ids_have_the_bits_of_all),
        BT_TEST(attention_windows_alternate_as_in_each_family),
        BT_TEST(largest_gemma_models_scale_scores_by_width),
        BT_TEST(alibi_slopes_equal_the_papers),
        BT_TEST(keys_of_other_families_are_refused_by_name),
        BT_TEST(layers_that_predict_further_tokens_are_left_out),
        BT_TEST(other_tensors_are_refused_by_name),
        BT_TEST(back_end_without_an_operation_is_refused_by_name),
        BT_TEST(family_load_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
