/* SPDX-License-Identifier: Apache-2.0 */
/* FP8 folders whose scales differ in type and granularity: numbers worked out
 * by hand. Those that a converter exists for are in test_hf_golden.c. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "inference/hf/hf.h"
#include "kernels/kernels.h"
#include "tests/support/hf_folder.h"

#define DIM 32u

static char why[512];

/* Codes of every matrix, over and over, and what they are. Source: the table of
 * E4M3 in "FP8 Formats for Deep Learning". */
static const uint8_t codes[] = {0x38, 0x7E, 0x01, 0xB8, 0x08, 0x00, 0xFE, 0x0F};
static const float numbers[] = {1.0f,    448.0f, 0x1p-9f, -1.0f,
                                0x1p-6f, 0.0f,   -448.0f, 0x1.Ep-6f};

typedef struct fp8_case {
    const char *config;
    const char *scale; /* ending, dtype, shape and bytes of scales */
    const char *dtype;
    const char *shape;
    const void *bytes;
    size_t n_bytes;
    const char *more; /* ending of a number beside each matrix */
    uint32_t type;
    float scales[2];   /* of the upper half of rows and of the lower one */
    const char *cache; /* a tensor of layer 0; NULL: none */
    const char *cache_shape;
} fp8_case_t;

static void add_matrix(bt_st_file_t *file, const char *base,
                       const fp8_case_t *c)
{
    static const float input = 7.0f;
    uint8_t data[DIM * DIM];
    char name[128];

    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = codes[i % sizeof(codes)];
    }
    snprintf(name, sizeof(name), "model.layers.0.%s.weight", base);
    bt_st_file_add(file, name, "F8_E4M3", "32,32", data, sizeof(data));
    snprintf(name, sizeof(name), "model.layers.0.%s%s", base, c->scale);
    bt_st_file_add(file, name, c->dtype, c->shape, c->bytes, c->n_bytes);
    if (c->more != NULL) {
        snprintf(name, sizeof(name), "model.layers.0.%s%s", base, c->more);
        bt_st_file_add(file, name, "F32", "", &input, sizeof(input));
    }
}

static void write_folder(const char *dir, const fp8_case_t *c)
{
    static const char *const matrices[] = {
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
        "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
        "mlp.down_proj"};
    static const char *const norms[] = {
        "model.norm.weight", "model.layers.0.input_layernorm.weight",
        "model.layers.0.post_attention_layernorm.weight"};
    static const float zeros[DIM * 24];
    char config[1024];
    bt_st_file_t file;

    snprintf(config, sizeof(config),
             "{\"model_type\":\"llama\",\"hidden_size\":32,"
             "\"architectures\":[\"LlamaForCausalLM\"],"
             "\"intermediate_size\":32,\"num_hidden_layers\":1,"
             "\"num_attention_heads\":2,\"num_key_value_heads\":2,"
             "\"vocab_size\":24,\"max_position_embeddings\":64,"
             "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,"
             "\"quantization_config\":{%s}}",
             c->config);
    bt_hf_folder_text(dir, "config.json", config);
    bt_st_file_init(&file);
    bt_st_file_add(&file, "model.embed_tokens.weight", "F32", "24,32", zeros,
                   sizeof(zeros));
    for (size_t i = 0; i < sizeof(norms) / sizeof(norms[0]); i++) {
        bt_st_file_add(&file, norms[i], "F32", "32", zeros,
                       DIM * sizeof(zeros[0]));
    }
    for (size_t i = 0; i < sizeof(matrices) / sizeof(matrices[0]); i++) {
        add_matrix(&file, matrices[i], c);
    }
    if (c->cache != NULL) {
        char name[128];

        snprintf(name, sizeof(name), "model.layers.0.%s", c->cache);
        bt_st_file_add(&file, name, "F32", c->cache_shape, zeros,
                       (strcmp(c->cache_shape, "2") == 0) ? 8 : 4);
    }
    bt_st_file_write(&file, dir, "model.safetensors");
    bt_hf_folder_tokenizer(dir, 24);
}

static void check_numbers(const fp8_case_t *c)
{
    const char *const dir = bt_hf_folder_make();
    const bt_gguf_tensor_t *t;
    uint8_t bytes[DIM * DIM * sizeof(float)];
    float values[DIM * DIM];
    bt_gguf_t *gguf = NULL;

    write_folder(dir, c);
    if (bt_hf_open(dir, why, sizeof(why), &gguf) != BT_OK) {
        bt_hf_folder_remove(dir);
        fail_msg("%s: %s", c->config, why);
    }
    t = bt_gguf_tensor(gguf, "blk.0.ffn_down.weight");
    assert_non_null(t);
    assert_int_equal(t->type, c->type);
    assert_true(t->bytes <= sizeof(bytes));
    assert_int_equal(bt_gguf_tensor_copy(t, bytes), BT_OK);
    assert_int_equal(
        bt_dequantize((bt_ktype_t)t->type, bytes, (size_t)DIM * DIM, values),
        BT_OK);
    for (size_t i = 0; i < (size_t)DIM * DIM; i++) {
        const float want =
            numbers[i % sizeof(codes)] * c->scales[i / (DIM * DIM / 2)];

        assert_true(values[i] == want);
    }
    bt_gguf_close(gguf);
    bt_hf_folder_remove(dir);
}

static void scales_of_powers_of_two_make_bf16(void **state)
{
    static const uint8_t powers[] = {128, 100}; /* 2 and 2^-27 */
    const fp8_case_t c = {
        "\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"scale_fmt\":\"ue8m0\","
        "\"weight_block_size\":[16,32]",
        ".weight_scale_inv",
        "F8_E8M0",
        "2,1",
        powers,
        sizeof(powers),
        NULL,
        BT_KTYPE_BF16,
        {2.0f, 0x1p-27f},
        NULL,
        NULL};

    (void)state;
    check_numbers(&c);
}

static void fbgemm_has_a_scale_for_each_row(void **state)
{
    float rows[DIM];
    const fp8_case_t c = {"\"quant_method\":\"fbgemm_fp8\","
                          "\"activation_scale_ub\":1200.0",
                          ".weight_scale",
                          "F32",
                          "32,1",
                          rows,
                          sizeof(rows),
                          ".input_scale_ub",
                          BT_KTYPE_F32,
                          {0.1f, 0.3f},
                          NULL,
                          NULL};

    (void)state;
    for (size_t i = 0; i < DIM; i++) {
        rows[i] = (i < DIM / 2) ? 0.1f : 0.3f;
    }
    check_numbers(&c);
}

static void modelopt_has_a_scale_for_the_matrix(void **state)
{
    static const float all = 0.25f;
    const fp8_case_t c = {"\"quant_method\":\"modelopt\","
                          "\"quant_algo\":\"FP8\",\"ignore\":[\"lm_head\"]",
                          ".weight_scale",
                          "F32",
                          "",
                          &all,
                          sizeof(all),
                          ".input_scale",
                          BT_KTYPE_BF16,
                          {0.25f, 0.25f},
                          NULL,
                          NULL};

    (void)state;
    check_numbers(&c);
}

#define OF_CACHE(name, shape)                                             \
    {                                                                     \
        "\"quant_method\":\"fp8\"", ".weight_scale", "F32", "1", &all,    \
            sizeof(all), NULL, BT_KTYPE_BF16, {0.25f, 0.25f}, name, shape \
    }

static void scales_of_a_kv_cache_are_not_used(void **state)
{
    static const float all = 0.25f;
    const fp8_case_t cases[] = {
        OF_CACHE("self_attn.k_scale", ""),
        OF_CACHE("self_attn.v_scale", "1"),
        OF_CACHE("self_attn.kv_scale", "1"),
        OF_CACHE("self_attn.k_proj.k_scale", ""),
        OF_CACHE("self_attn.v_proj.v_scale", ""),
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_numbers(&cases[i]);
    }
}

static void check_refused(const fp8_case_t *c, bt_status_t want,
                          const char *text)
{
    const char *const dir = bt_hf_folder_make();
    bt_gguf_t *gguf = NULL;
    bt_status_t status;

    write_folder(dir, c);
    status = bt_hf_open(dir, why, sizeof(why), &gguf);
    bt_hf_folder_remove(dir);
    assert_int_equal(status, want);
    if (strstr(why, text) == NULL) {
        fail_msg("%s", why);
    }
}

static void several_scales_of_a_kv_cache_are_refused(void **state)
{
    static const float all = 0.25f;
    const fp8_case_t c = OF_CACHE("self_attn.k_scale", "2");

    (void)state;
    check_refused(&c, BT_ERR_UNSUPPORTED, "self_attn.k_scale");
}

static void scales_without_finite_products_are_refused(void **state)
{
    static const uint8_t no_number[] = {127, 255}; /* 1 and NaN */
    static const float large = 0x1p121f;           /* times 448 above 2^128 */
    fp8_case_t c = {"\"quant_method\":\"fp8\",\"weight_block_size\":[16,32]",
                    ".weight_scale_inv",
                    "F8_E8M0",
                    "2,1",
                    no_number,
                    sizeof(no_number),
                    NULL,
                    0,
                    {0},
                    NULL,
                    NULL};

    (void)state;
    check_refused(&c, BT_ERR_BAD_FILE, "_proj has a scale whose products");
    c.dtype = "F32";
    c.shape = "1";
    c.bytes = &large;
    c.n_bytes = sizeof(large);
    check_refused(&c, BT_ERR_BAD_FILE, "_proj has a scale whose products");
}

static void other_algorithms_of_modelopt_are_refused(void **state)
{
    static const float all = 0.25f;
    const fp8_case_t c = {"\"quant_method\":\"modelopt\","
                          "\"quant_algo\":\"NVFP4\"",
                          ".weight_scale",
                          "F32",
                          "1",
                          &all,
                          sizeof(all),
                          NULL,
                          0,
                          {0},
                          NULL,
                          NULL};

    (void)state;
    check_refused(&c, BT_ERR_UNSUPPORTED, "quant_algo NVFP4 is not supported");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(scales_of_powers_of_two_make_bf16),
        BT_TEST(fbgemm_has_a_scale_for_each_row),
        BT_TEST(modelopt_has_a_scale_for_the_matrix),
        BT_TEST(scales_of_a_kv_cache_are_not_used),
        BT_TEST(several_scales_of_a_kv_cache_are_refused),
        BT_TEST(scales_without_finite_products_are_refused),
        BT_TEST(other_algorithms_of_modelopt_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
