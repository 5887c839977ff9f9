/* SPDX-License-Identifier: Apache-2.0 */
/* Models with experts: what their files may say and how they are stored. Their
 * logits are in test_model_families.c. */
#include "inference/model/arch/experts.h"
#include "tests/unit/inference/model/rig.h"

#include "common/base/status.h"

static bt_tiny_model_t with_experts(const char *architecture)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    tiny.architecture = architecture;
    tiny.n_experts = 8;
    tiny.n_experts_used = 2;
    return tiny;
}

static bt_hparams_t hparams_of(const bt_tiny_model_t *tiny)
{
    bt_gguf_t *const gguf = open_tiny(tiny);
    bt_hparams_t hp;

    assert_int_equal(bt_hparams_read(gguf, why, sizeof(why), &hp), BT_OK);
    bt_gguf_close(gguf);
    return hp;
}

static void expect_hparams_refused(const bt_tiny_model_t *tiny,
                                   bt_status_t status, const char *reason)
{
    bt_gguf_t *const gguf = open_tiny(tiny);
    bt_hparams_t hp;

    assert_int_equal(bt_hparams_read(gguf, why, sizeof(why), &hp), status);
    if (strstr(why, reason) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", why, reason);
    }
    bt_gguf_close(gguf);
}

/* Mixtral and Qwen 3 divide the weights by their sum, OLMoE does not:
 * transformers' modeling_mixtral.py and the defaults of norm_topk_prob. */
static void routing_is_the_familys_unless_the_file_says_more(void **state)
{
    bt_tiny_model_t tiny = with_experts("llama");
    bt_hparams_t hp = hparams_of(&tiny);

    (void)state;
    assert_int_equal(hp.experts.n, 8);
    assert_int_equal(hp.experts.n_used, 2);
    assert_int_equal(hp.experts.dim, 128);
    assert_int_equal(hp.experts.gating, BT_GATING_SOFTMAX);
    assert_true(hp.experts.normed);
    assert_true(hp.experts.scale == 1.0f);
    assert_true(bt_layer_in(&hp.sparse, 0) && bt_layer_in(&hp.sparse, 1));
    assert_false(bt_layer_in(&hp.sparse, 2));
    assert_int_equal(bt_experts_dense_dim(&hp, &hp), 0);
    tiny.architecture = "olmoe";
    assert_false(hparams_of(&tiny).experts.normed);
    tiny.architecture = "qwen3moe";
    tiny.expert_dim = 64;
    tiny.n_dense = 1;
    tiny.keys[tiny.n_keys++] = (bt_tiny_key_t){"expert_gating_func", 'u', "2"};
    tiny.keys[tiny.n_keys++] =
        (bt_tiny_key_t){"expert_weights_norm", 'b', "false"};
    tiny.keys[tiny.n_keys++] =
        (bt_tiny_key_t){"expert_weights_scale", 'f', "2.5"};
    hp = hparams_of(&tiny);
    assert_int_equal(hp.experts.dim, 64);
    assert_int_equal(hp.experts.gating, BT_GATING_SIGMOID);
    assert_false(hp.experts.normed);
    assert_true(hp.experts.scale == 2.5f);
    assert_false(bt_layer_in(&hp.sparse, 0));
    assert_true(bt_layer_in(&hp.sparse, 1));
    assert_int_equal(bt_experts_dense_dim(&hp, &hp), 128);
    assert_int_equal(hp.experts.shared_dim, 0);
    tiny.architecture =
        "glm4moe"; /* two shared experts are one, twice as wide */
    tiny.keys[tiny.n_keys++] = (bt_tiny_key_t){"expert_shared_count", 'u', "2"};
    hp = hparams_of(&tiny);
    assert_int_equal(hp.experts.shared_dim, 128);
    tiny.shared_dim = 160;
    tiny.n_dense = 0;
    hp = hparams_of(&tiny);
    assert_int_equal(hp.experts.shared_dim, 160);
    assert_int_equal(bt_experts_dense_dim(&hp, &hp), 160);
    tiny = bt_tiny_model_default(); /* llama without experts */
    hp = hparams_of(&tiny);
    assert_int_equal(hp.experts.n, 0);
    assert_int_equal(bt_experts_dense_dim(&hp, &hp), 128);
}

static void impossible_numbers_of_experts_are_refused_by_name(void **state)
{
    bt_tiny_model_t tiny = with_experts("llama");

    (void)state;
    tiny.n_experts_used = 9;
    expect_hparams_refused(&tiny, BT_ERR_BAD_FILE,
                           "key llama.expert_used_count is 9; 1 to 8");
    tiny.n_experts_used = 0;
    expect_hparams_refused(&tiny, BT_ERR_BAD_FILE,
                           "key llama.expert_used_count is missing");
    tiny = with_experts("llama");
    tiny.ffn_dim = 80;
    expect_hparams_refused(&tiny, BT_ERR_UNSUPPORTED,
                           "experts of width 80 in a model of width 64");
    tiny = bt_tiny_model_default();
    tiny.architecture = "qwen3moe";
    expect_hparams_refused(&tiny, BT_ERR_BAD_FILE,
                           "key qwen3moe.expert_count is missing");
}

/* ---- tensors ---- */

static void expect_load_refused(const bt_tiny_model_t *tiny, bt_status_t status,
                                const char *reason)
{
    bt_gguf_t *const gguf = open_tiny(tiny);
    bt_backend_t *const be = open_backend(1);
    bt_model_t *model = NULL;

    assert_int_equal(
        bt_model_load(gguf, be, &default_config, why, sizeof(why), &model),
        status);
    assert_null(model);
    if (strstr(why, reason) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", why, reason);
    }
    bt_backend_close(be);
    bt_gguf_close(gguf);
}

static void experts_of_old_converters_are_refused_by_name(void **state)
{
    bt_tiny_model_t tiny = with_experts("llama");

    (void)state;
    tiny.experts_apart = true;
    expect_load_refused(&tiny, BT_ERR_UNSUPPORTED,
                        "each expert in tensors of its own "
                        "(blk.0.ffn_gate.0.weight)");
}

/* Biases of gate and up are added to each by itself. */
static void one_tensor_of_biased_gate_and_up_is_refused_by_name(void **state)
{
    bt_tiny_model_t tiny = with_experts("gpt-oss");

    (void)state;
    tiny.gate_up = true;
    expect_load_refused(&tiny, BT_ERR_UNSUPPORTED,
                        "gate and up of biased experts in one tensor "
                        "(blk.0.ffn_gate_up_exps.weight)");
}

/* A key, a router and stacked tensors that say different numbers, fewer and
 * more: none of them is believed. */
static void other_number_of_experts_than_the_files_is_refused(void **state)
{
    static const struct {
        uint32_t said, stacked;
        const char *reason;
    } cases[] = {
        {4, 0,
         "ffn_gate_inp.weight has the shape 64 x 8 x 1 x 1, but the "
         "model's numbers call for 64 x 4"},
        {16, 0,
         "ffn_gate_inp.weight has the shape 64 x 8 x 1 x 1, but the "
         "model's numbers call for 64 x 16"},
        {8, 4,
         "ffn_gate_exps.weight has the shape 64 x 128 x 4 x 1, but the "
         "model's numbers call for 64 x 128 x 8"},
        {8, 16,
         "ffn_gate_exps.weight has the shape 64 x 128 x 16 x 1, but "
         "the model's numbers call for 64 x 128 x 8"},
    };
    bt_tiny_model_t tiny = with_experts("llama");

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        tiny.experts_said = cases[i].said;
        tiny.n_stacked = cases[i].stacked;
        expect_load_refused(&tiny, BT_ERR_BAD_FILE, cases[i].reason);
    }
}

static void other_width_of_experts_than_the_files_is_refused(void **state)
{
    bt_tiny_model_t tiny = with_experts("llama");

    (void)state;
    tiny.keys[tiny.n_keys++] =
        (bt_tiny_key_t){"expert_feed_forward_length", 'u', "64"};
    expect_load_refused(&tiny, BT_ERR_BAD_FILE,
                        "tensor blk.0.ffn_gate_exps.weight has the shape 64 x "
                        "128 x 8 x 1, but the model's numbers call for 64 x 64 "
                        "x 8");
}

/* ---- rows ---- */

/* Whatever a router makes of a row, no other row of the batch sees it: here one
 * whose cached keys and values are not numbers, and so its input of the router
 * is none. */
static void row_that_is_not_finite_changes_no_other(void **state)
{
    const bt_tiny_model_t tiny = with_experts("llama");
    uint32_t blocks[] = {0, 1};
    uint32_t others[] = {2, 3};
    uint32_t tokens[] = {7, 8, 9, 7, 8, 9};
    uint32_t rows[] = {2, 5};
    bt_ragged_seq_t seqs[] = {{.row = 0, .n_rows = 3, .blocks = blocks},
                              {.row = 3, .n_rows = 3, .blocks = others}};
    bt_forward_t fwd = {.seqs = seqs,
                        .n_seqs = 2,
                        .tokens = tokens,
                        .n_rows = 6,
                        .logit_rows = rows,
                        .n_logit_rows = 2};
    rig_t rig = make_rig(&tiny, 2);
    bt_decoder_t *const d = rig.model->state;
    const size_t bytes = rig.n_vocab * sizeof(float);
    float *want = bt_calloc(rig.n_vocab, sizeof(float));
    float *logits = NULL;

    (void)state;
    assert_non_null(want);
    fwd.kv = rig.kv;
    assert_int_equal(bt_model_forward(rig.model, &fwd, &logits), BT_OK);
    memcpy(want, logits, bytes);
    assert_memory_equal(logits + rig.n_vocab, want, bytes);
    /* The first block of the second sequence, by bytes that are NaNs of F16. */
    for (size_t i = 0; i < rig.kv.block_bytes; i++) {
        ((uint8_t *)rig.kv.base)[2 * rig.kv.block_bytes + i] = 0x7e;
    }
    assert_true(d->experts->rows.n_experts == 8);
    seqs[1] =
        (bt_ragged_seq_t){.row = 3, .n_rows = 3, .pos = 3, .blocks = others};
    assert_int_equal(bt_model_forward(rig.model, &fwd, &logits), BT_OK);
    assert_memory_equal(logits, want, bytes);
    assert_true(isnan(logits[rig.n_vocab]));
    bt_free(want);
    free_rig(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(routing_is_the_familys_unless_the_file_says_more),
        BT_TEST(impossible_numbers_of_experts_are_refused_by_name),
        BT_TEST(experts_of_old_converters_are_refused_by_name),
        BT_TEST(one_tensor_of_biased_gate_and_up_is_refused_by_name),
        BT_TEST(other_number_of_experts_than_the_files_is_refused),
        BT_TEST(other_width_of_experts_than_the_files_is_refused),
        BT_TEST(row_that_is_not_finite_changes_no_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
