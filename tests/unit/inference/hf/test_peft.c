/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of adapters, and the modules that they name. Scales are worked by
 * hand from PEFT's LoraLayer.update_layer(); rows from the weights' conversion
 * in transformers and llama.cpp. */
#include "inference/hf/peft.h"
#include "inference/hf/peft_modules.h"
#include "tests/support/hf_folder.h"
#include "tests/support/testsupport.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"

#define MODULE "base_model.model.model.layers.0.self_attn.q_proj"

static char why[400];

/* Opens a folder of one module: A (2, 3), B (4, 2). */
static bt_status_t open_with(const char *config, bt_peft_t **peft_p)
{
    static const float numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const char *const dir = bt_hf_folder_make();
    bt_st_file_t file;
    bt_status_t status;

    bt_hf_folder_text(dir, "adapter_config.json", config);
    bt_st_file_init(&file);
    bt_st_file_add(&file, MODULE ".lora_A.weight", "F32", "2,3", numbers,
                   6 * sizeof(float));
    bt_st_file_add(&file, MODULE ".lora_B.weight", "F32", "4,2", numbers,
                   8 * sizeof(float));
    bt_st_file_write(&file, dir, "adapter_model.safetensors");
    status = bt_peft_open(dir, why, sizeof(why), peft_p);
    bt_hf_folder_remove(dir);
    return status;
}

static void expect_scale(const char *config, float scale)
{
    bt_peft_t *peft = NULL;
    const bt_peft_module_t *modules;
    uint32_t n = 0;

    assert_int_equal(open_with(config, &peft), BT_OK);
    modules = bt_peft_modules(peft, &n);
    assert_int_equal(n, 1);
    assert_true(
        bt_gguf_str_is(modules[0].name, "model.layers.0.self_attn.q_proj"));
    assert_int_equal(modules[0].a->dims[1], 3);
    assert_int_equal(modules[0].b->dims[0], 4);
    assert_true(modules[0].scale == scale);
    bt_peft_close(peft);
}

static void scale_is_alpha_by_rank(void **state)
{
    (void)state;
    expect_scale("{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":16}", 8.0f);
    expect_scale("{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":16,"
                 "\"use_rslora\":true}",
                 (float)(16.0 / sqrt(2.0)));
    /* The pattern of the module, by its last names. */
    expect_scale("{\"peft_type\":\"LORA\",\"r\":8,\"lora_alpha\":16,"
                 "\"rank_pattern\":{\"q_proj\":2},"
                 "\"alpha_pattern\":{\"k_proj\":2,\"self_attn.q_proj\":6}}",
                 3.0f);
    expect_scale("{\"peft_type\":\"LORA\",\"lora_alpha\":16,"
                 "\"alpha_pattern\":{\"proj\":2,\"^q_proj\":6}}",
                 8.0f);
}

static void expect_refused(const char *more, const char *reason)
{
    bt_peft_t *peft = NULL;
    char config[256];

    snprintf(config, sizeof(config),
             "{\"peft_type\":\"LORA\",\"lora_alpha\":16%s}", more);
    assert_int_equal(open_with(config, &peft), BT_ERR_UNSUPPORTED);
    assert_null(peft);
    if (strstr(why, reason) == NULL) {
        fail_msg("%s: %s", more, why);
    }
}

static void what_is_not_computed_is_refused_by_name(void **state)
{
    (void)state;
    expect_refused(",\"use_dora\":true", "use_dora is not supported");
    expect_refused(",\"bias\":\"lora_only\"", "bias lora_only");
    expect_refused(",\"lora_bias\":true", "lora_bias is not supported");
    expect_refused(",\"modules_to_save\":[\"lm_head\"]", "modules_to_save");
    expect_refused(",\"target_parameters\":[\"experts\"]", "target_parameters");
    expect_refused(",\"trainable_token_indices\":[1]",
                   "trainable_token_indices");
    expect_refused(",\"alora_invocation_tokens\":[1]",
                   "alora_invocation_tokens");
    expect_refused(",\"layer_replication\":[[0,1]]", "layer_replication");
    expect_refused(",\"of_next_year\":7", "of_next_year is not supported");
    expect_refused(",\"init_lora_weights\":\"pissa_niter_4\"",
                   "init_lora_weights pissa_niter_4");
    expect_refused(",\"alpha_pattern\":{\"[qk]_proj\":2}",
                   "alpha_pattern [qk]_proj");
}

static void other_settings_change_nothing(void **state)
{
    (void)state;
    expect_scale("{\"peft_type\":\"LORA\",\"lora_alpha\":2,\"use_dora\":false,"
                 "\"bias\":\"none\",\"modules_to_save\":null,"
                 "\"layers_to_transform\":null,\"megatron_config\":null,"
                 "\"megatron_core\":\"megatron.core\",\"of_next_year\":[],"
                 "\"target_modules\":\"all-linear\",\"lora_dropout\":0.1,"
                 "\"init_lora_weights\":\"gaussian\",\"loftq_config\":{},"
                 "\"fan_in_fan_out\":true,\"inference_mode\":true}",
                 1.0f);
}

static void folder_of_something_else_is_refused(void **state)
{
    const char *dir = bt_hf_folder_make();
    bt_peft_t *peft = NULL;
    bt_st_file_t file;

    (void)state;
    assert_int_equal(bt_peft_open(dir, why, sizeof(why), &peft),
                     BT_ERR_NOT_FOUND);
    assert_string_equal(why, "the folder has no adapter_config.json, so it is "
                             "not an adapter's");
    bt_hf_folder_text(dir, "adapter_config.json",
                      "{\"peft_type\":\"IA3\",\"lora_alpha\":1}");
    assert_int_equal(bt_peft_open(dir, why, sizeof(why), &peft),
                     BT_ERR_UNSUPPORTED);
    bt_hf_folder_text(dir, "adapter_config.json",
                      "{\"peft_type\":\"LORA\",\"lora_alpha\":1}");
    assert_int_equal(bt_peft_open(dir, why, sizeof(why), &peft),
                     BT_ERR_NOT_FOUND);
    bt_st_file_init(&file);
    bt_st_file_add(&file, MODULE ".lora_magnitude_vector", "F32", "1",
                   &(float){1}, 4);
    bt_st_file_write(&file, dir, "adapter_model.safetensors");
    assert_int_equal(bt_peft_open(dir, why, sizeof(why), &peft),
                     BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "lora_magnitude_vector is no matrix of LoRA"));
    bt_st_file_init(&file);
    bt_st_file_add(&file, MODULE ".lora_A.weight", "F32", "1,1", &(float){1},
                   4);
    bt_st_file_write(&file, dir, "adapter_model.safetensors");
    assert_int_equal(bt_peft_open(dir, why, sizeof(why), &peft),
                     BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "has no lora_B"));
    assert_null(peft);
    bt_hf_folder_remove(dir);
}

/* ---- modules ---- */

/* Two KV heads of two query heads each, heads of 4. */
static bt_hf_modules_t sizes_of(const char *arch)
{
    bt_hf_modules_t m = {.n_layers = 2,
                         .dim = 16,
                         .n_heads = 4,
                         .n_kv_heads = 2,
                         .head_dim = 4,
                         .ffn_dim = 32};

    snprintf(m.arch, sizeof(m.arch), "%s", arch);
    return m;
}

/* @param rows  the stored rows of the first six rows; NULL: in order */
static void expect_part(const bt_hf_module_part_t *part, uint32_t layer,
                        const char *product, const uint32_t *rows)
{
    assert_int_equal(part->layer, layer);
    assert_string_equal(part->product, product);
    for (uint32_t r = 0; r < 6; r++) {
        assert_int_equal(bt_recipe_stored_row(&part->order, r),
                         (rows == NULL) ? r : rows[r]);
    }
}

static uint32_t find(const char *arch, const char *name,
                     bt_hf_module_part_t *parts)
{
    const bt_hf_modules_t m = sizes_of(arch);

    return bt_hf_module_find(&m, name, strlen(name), parts);
}

static void modules_are_products_with_an_order_of_rows(void **state)
{
    static const uint32_t halves[] = {0, 2, 1, 3, 4, 6};
    /* InternLM 2: q0 q1 k0 v0 q2 q3 k1 v1, heads of 4 rows. */
    static const uint32_t split_k[] = {8, 10, 9, 11, 24, 26};
    static const uint32_t split_v[] = {12, 13, 14, 15, 28, 29};
    /* GPT-NeoX does not interleave. */
    static const uint32_t fused_k[] = {8, 9, 10, 11, 24, 25};
    static const uint32_t packed_k[] = {16, 17, 18, 19, 20, 21};
    bt_hf_module_part_t parts[BT_HF_MODULE_PARTS];

    (void)state;
    assert_int_equal(find("llama", "model.layers.1.self_attn.q_proj", parts),
                     1);
    expect_part(&parts[0], 1, "attn_q", halves);
    assert_int_equal(find("llama", "model.layers.0.mlp.down_proj", parts), 1);
    expect_part(&parts[0], 0, "ffn_down", NULL);
    assert_int_equal(find("qwen2", "model.layers.0.self_attn.k_proj", parts),
                     1);
    expect_part(&parts[0], 0, "attn_k", NULL);
    assert_int_equal(find("internlm2", "model.layers.0.attention.wqkv", parts),
                     3);
    expect_part(&parts[1], 0, "attn_k", split_k);
    expect_part(&parts[2], 0, "attn_v", split_v);
    assert_int_equal(
        find("gptneox", "gpt_neox.layers.0.attention.query_key_value", parts),
        3);
    expect_part(&parts[1], 0, "attn_k", fused_k);
    assert_int_equal(find("gpt2", "transformer.h.1.attn.c_attn", parts), 3);
    expect_part(&parts[0], 1, "attn_q", NULL);
    expect_part(&parts[1], 1, "attn_k", packed_k);
    assert_int_equal(find("phi3", "model.layers.0.mlp.gate_up_proj", parts), 1);
    expect_part(&parts[0], 0, "ffn_up", NULL);
}

/* Of mixtures of experts the attention has places. Rows as llama.cpp's
 * convert_hf_to_gguf.py writes them: of these GraniteMoeModel alone interleaves
 * (by LlamaModel). */
static void attention_of_models_with_experts_has_places(void **state)
{
    static const uint32_t halves[] = {0, 2, 1, 3, 4, 6};
    static const char *const archs[] = {"qwen3moe", "qwen2moe", "olmoe",
                                        "glm4moe",  "gpt-oss",  "granitemoe"};
    bt_hf_module_part_t parts[BT_HF_MODULE_PARTS];

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(archs); i++) {
        const uint32_t *const rows = (i == 5) ? halves : NULL;

        assert_int_equal(
            find(archs[i], "model.layers.1.self_attn.q_proj", parts), 1);
        expect_part(&parts[0], 1, "attn_q", rows);
        assert_int_equal(
            find(archs[i], "model.layers.0.self_attn.k_proj", parts), 1);
        expect_part(&parts[0], 0, "attn_k", rows);
        assert_int_equal(
            find(archs[i], "model.layers.0.self_attn.v_proj", parts), 1);
        expect_part(&parts[0], 0, "attn_v", NULL);
        assert_int_equal(
            find(archs[i], "model.layers.0.self_attn.o_proj", parts), 1);
        expect_part(&parts[0], 0, "attn_output", NULL);
        assert_int_equal(
            find(archs[i], "model.layers.0.mlp.experts.3.up_proj", parts), 0);
        assert_int_equal(find(archs[i], "model.layers.0.mlp.gate", parts), 0);
        assert_int_equal(
            find(archs[i], "model.layers.0.mlp.shared_expert.up_proj", parts),
            0);
    }
}

static void module_without_a_place_is_not_found(void **state)
{
    bt_hf_module_part_t parts[BT_HF_MODULE_PARTS];

    (void)state;
    assert_int_equal(find("llama", "model.layers.2.self_attn.q_proj", parts),
                     0);
    assert_int_equal(find("llama", "model.layers.0.self_attn.qkv", parts), 0);
    assert_int_equal(find("llama", "lm_head", parts), 0);
    assert_int_equal(find("llama", "model.embed_tokens", parts), 0);
    assert_int_equal(find("nobody", "model.layers.0.self_attn.q_proj", parts),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(scale_is_alpha_by_rank),
        BT_TEST(what_is_not_computed_is_refused_by_name),
        BT_TEST(other_settings_change_nothing),
        BT_TEST(folder_of_something_else_is_refused),
        BT_TEST(modules_are_products_with_an_order_of_rows),
        BT_TEST(attention_of_models_with_experts_has_places),
        BT_TEST(module_without_a_place_is_not_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
