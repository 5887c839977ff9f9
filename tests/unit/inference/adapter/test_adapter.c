/* SPDX-License-Identifier: Apache-2.0 */
/* One form of what PEFT's folders and GGUF's files hold; rows are worked by
 * hand. */
#include "inference/adapter/adapter.h"
#include "tests/support/hf_folder.h"
#include "tests/support/testsupport.h"
#include "tests/support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

#define DIM 64u /* of the tiny llama, as are 4 heads, 2 KV heads, 128 */
#define KV  32u

static char why[400];

static bt_gguf_t *open_base(const char *architecture)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    char path[] = "/tmp/baton-test-adapter-XXXXXX";
    const int fd = mkstemp(path);
    bt_gguf_t *gguf = NULL;

    assert_true(fd >= 0);
    close(fd);
    tiny.architecture = architecture;
    assert_int_equal(bt_tiny_model_write(&tiny, path), BT_OK);
    assert_int_equal(bt_gguf_open(path, why, sizeof(why), &gguf), BT_OK);
    unlink(path);
    return gguf;
}

/* Number i of a matrix is i, so that rows are known by their first one. */
static const float *numbers(void)
{
    static float values[3 * 128 * 4];

    for (uint32_t i = 0; i < BT_ARRAY_LEN(values); i++) {
        values[i] = (float)i;
    }
    return values;
}

static void add_matrix(bt_st_file_t *file, const char *module, const char *side,
                       uint32_t n_rows, uint32_t n_columns)
{
    char name[128];
    char shape[32];

    snprintf(name, sizeof(name), "base_model.model.%s.lora_%s.weight", module,
             side);
    snprintf(shape, sizeof(shape), "%u,%u", n_rows, n_columns);
    bt_st_file_add(file, name, "F32", shape, numbers(),
                   (size_t)n_rows * n_columns * sizeof(float));
}

/* Opens a folder, and checks that its sizes alone are equal. */
static bt_status_t open_twice(const char *path, const bt_gguf_t *base,
                              bt_adapter_t **adapter_p)
{
    bt_hf_modules_t model;
    bt_adapter_t *sizes = NULL;
    const bt_adapter_t *whole;
    bt_status_t status;

    assert_int_equal(bt_hf_modules_read(base, why, sizeof(why), &model), BT_OK);
    status = bt_adapter_open_sizes(path, &model, why, sizeof(why), &sizes);
    assert_int_equal(bt_adapter_open(path, base, why, sizeof(why), adapter_p),
                     status);
    if (status != BT_OK) {
        return status;
    }
    whole = *adapter_p;
    assert_int_equal(sizes->n_parts, whole->n_parts);
    assert_int_equal(sizes->bytes, whole->bytes);
    assert_int_equal(sizes->max_rank, whole->max_rank);
    for (uint32_t i = 0; i < whole->n_parts; i++) {
        const bt_adapter_part_t *const p = &sizes->parts[i];
        bt_adapter_part_t want = whole->parts[i];

        assert_null(p->a);
        assert_null(p->b);
        want.a = NULL;
        want.b = NULL;
        assert_memory_equal(p, &want, sizeof(want));
    }
    bt_adapter_free(sizes);
    return BT_OK;
}

/* Opens a folder with rank 2 adapters of modules, "name:in:out|…". */
static bt_status_t open_folder(const bt_gguf_t *base, const char *modules,
                               uint32_t alpha, bt_adapter_t **adapter_p)
{
    const char *const dir = bt_hf_folder_make();
    char config[64];
    bt_st_file_t file;
    bt_status_t status;

    snprintf(config, sizeof(config),
             "{\"peft_type\":\"LORA\",\"lora_alpha\":%u}", alpha);
    bt_hf_folder_text(dir, "adapter_config.json", config);
    bt_st_file_init(&file);
    while (*modules != '\0') {
        char name[96];
        uint32_t n_in, n_out;
        int n = 0;

        assert_int_equal(
            sscanf(modules, "%95[^:]:%u:%u%n", name, &n_in, &n_out, &n), 3);
        add_matrix(&file, name, "A", 2, n_in);
        add_matrix(&file, name, "B", n_out, 2);
        modules += n + ((modules[n] == '|') ? 1 : 0);
    }
    bt_st_file_write(&file, dir, "adapter_model.safetensors");
    status = open_twice(dir, base, adapter_p);
    bt_hf_folder_remove(dir);
    return status;
}

static const float *row_of(const bt_adapter_part_t *part, uint32_t r)
{
    return (const float *)part->b + (size_t)r * part->rank;
}

static void folder_becomes_parts_in_order_of_layers_and_products(void **state)
{
    bt_gguf_t *const base = open_base("llama");
    bt_adapter_t *adapter = NULL;

    (void)state;
    assert_int_equal(open_folder(base,
                                 "model.layers.1.mlp.down_proj:128:64|"
                                 "model.layers.0.self_attn.q_proj:64:64|"
                                 "model.layers.0.self_attn.o_proj:64:64",
                                 3, &adapter),
                     BT_OK);
    assert_int_equal(adapter->n_parts, 3);
    assert_int_equal(adapter->max_rank, 2);
    assert_int_equal(adapter->parts[0].product, BT_ADAPTER_Q);
    assert_int_equal(adapter->parts[1].product, BT_ADAPTER_OUTPUT);
    assert_int_equal(adapter->parts[2].product, BT_ADAPTER_DOWN);
    assert_int_equal(adapter->parts[2].layer, 1);
    assert_int_equal(adapter->parts[2].n_in, 128);
    assert_true(adapter->parts[0].scale == 1.5f);
    assert_memory_equal(adapter->parts[2].a, numbers(),
                        2 * 128 * sizeof(float));
    /* Heads of 16: row 1 is the first of the second half. */
    assert_true(row_of(&adapter->parts[0], 1)[0] == 8 * 2);
    assert_true(row_of(&adapter->parts[0], 2)[0] == 1 * 2);
    assert_true(row_of(&adapter->parts[0], 17)[0] == 24 * 2);
    assert_true(row_of(&adapter->parts[1], 1)[0] == 1 * 2);
    bt_adapter_free(adapter);
    bt_gguf_close(base);
}

static void fused_module_is_split(void **state)
{
    bt_gguf_t *const base = open_base("phi3");
    bt_adapter_t *adapter = NULL;

    (void)state;
    assert_int_equal(open_folder(base,
                                 "model.layers.0.self_attn.qkv_proj:64:128|"
                                 "model.layers.0.mlp.gate_up_proj:64:256",
                                 2, &adapter),
                     BT_OK);
    assert_int_equal(adapter->n_parts, 5);
    for (uint32_t i = 0; i < 5; i++) {
        static const struct {
            bt_adapter_product_t product;
            uint32_t n_out, first;
        } want[] = {{BT_ADAPTER_Q, DIM, 0},
                    {BT_ADAPTER_K, KV, DIM},
                    {BT_ADAPTER_V, KV, DIM + KV},
                    {BT_ADAPTER_GATE, 128, 0},
                    {BT_ADAPTER_UP, 128, 128}};

        assert_int_equal(adapter->parts[i].product, want[i].product);
        assert_int_equal(adapter->parts[i].n_out, want[i].n_out);
        assert_true(row_of(&adapter->parts[i], 0)[0] ==
                    (float)(2 * want[i].first));
    }
    bt_adapter_free(adapter);
    bt_gguf_close(base);
}

static bt_hash128_t digest_of(const bt_gguf_t *base, const char *modules,
                              uint32_t alpha)
{
    bt_adapter_t *adapter = NULL;
    bt_hash128_t digest;

    assert_int_equal(open_folder(base, modules, alpha, &adapter), BT_OK);
    digest = adapter->digest;
    bt_adapter_free(adapter);
    return digest;
}

static void digest_is_of_the_content(void **state)
{
    static const char q[] = "model.layers.0.self_attn.q_proj:64:64";
    bt_gguf_t *const base = open_base("llama");
    const bt_hash128_t digest = digest_of(base, q, 2);

    (void)state;
    assert_true(bt_hash128_equal(digest, digest_of(base, q, 2)));
    assert_false(bt_hash128_equal(digest, digest_of(base, q, 4)));
    assert_false(bt_hash128_equal(
        digest, digest_of(base, "model.layers.1.self_attn.q_proj:64:64", 2)));
    assert_false(bt_hash128_equal(
        digest, digest_of(base, "model.layers.0.self_attn.o_proj:64:64", 2)));
    bt_gguf_close(base);
}

static void expect_refused(const bt_gguf_t *base, const char *modules,
                           bt_status_t status, const char *reason)
{
    bt_adapter_t *adapter = NULL;

    assert_int_equal(open_folder(base, modules, 2, &adapter), status);
    assert_null(adapter);
    assert_string_equal(why, reason);
}

static void adapter_of_another_model_is_refused(void **state)
{
    bt_gguf_t *const base = open_base("llama");

    (void)state;
    expect_refused(base, "model.layers.7.self_attn.q_proj:64:64",
                   BT_ERR_UNSUPPORTED,
                   "module model.layers.7.self_attn.q_proj has no place in a "
                   "llama model of 2 layers");
    expect_refused(base, "model.layers.0.self_attn.q_proj:64:32",
                   BT_ERR_MISMATCH,
                   "model.layers.0.self_attn.q_proj has 32 outputs, the "
                   "model's has 64");
    expect_refused(base, "model.layers.0.input_layernorm:1:64",
                   BT_ERR_UNSUPPORTED,
                   "model.layers.0.input_layernorm: adapters of attn_norm are "
                   "not computed");
    bt_gguf_close(base);
}

/* ---- files ---- */

typedef struct gguf_file {
    const char *type, *arch;
    const char *tensors[4]; /* of F32 (2, 64), or (64, 2) for lora_b */
    float alpha;
} gguf_file_t;

static void put(FILE *file, const void *data, size_t bytes)
{
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
}

static void put_text(FILE *file, const char *text)
{
    const uint64_t n = strlen(text);

    put(file, &n, sizeof(n));
    put(file, text, n);
}

static void put_pair(FILE *file, const char *key, const char *value)
{
    put_text(file, key);
    put(file, &(uint32_t){8}, 4);
    put_text(file, value);
}

static bt_status_t open_file(const bt_gguf_t *base, const gguf_file_t *spec,
                             bt_adapter_t **adapter_p)
{
    static const uint8_t zeros[32] = {0};
    char path[] = "/tmp/baton-test-adapter-XXXXXX";
    const int fd = mkstemp(path);
    FILE *const file = fdopen(fd, "we");
    const size_t bytes = 2 * 64 * sizeof(float);
    uint64_t n = 0;
    bt_status_t status;

    assert_non_null(file);
    while ((n < 4) && (spec->tensors[n] != NULL)) {
        n++;
    }
    put(file, "GGUF\3\0\0\0", 8);
    put(file, &n, 8);
    put(file, &(uint64_t){4}, 8);
    put_pair(file, "general.type", spec->type);
    put_pair(file, "adapter.type", "lora");
    put_pair(file, "general.architecture", spec->arch);
    put_text(file, "adapter.lora.alpha");
    put(file, &(uint32_t){6}, 4);
    put(file, &spec->alpha, 4);
    for (uint64_t i = 0; i < n; i++) {
        const bool is_b = strstr(spec->tensors[i], "lora_b") != NULL;

        put_text(file, spec->tensors[i]);
        put(file, &(uint32_t){2}, 4);
        put(file, &(uint64_t){is_b ? 2 : 64}, 8);
        put(file, &(uint64_t){is_b ? 64 : 2}, 8);
        put(file, &(uint32_t){0}, 4);
        put(file, &(uint64_t){i * bytes}, 8);
    }
    put(file, zeros, (32 - (size_t)ftell(file) % 32) % 32);
    for (uint64_t i = 0; i < n; i++) {
        put(file, numbers(), bytes);
    }
    fclose(file);
    status = open_twice(path, base, adapter_p);
    unlink(path);
    return status;
}

static void gguf_file_has_the_order_of_the_model(void **state)
{
    const gguf_file_t spec = {
        .type = "adapter",
        .arch = "llama",
        .tensors = {"blk.1.attn_q.weight.lora_a", "blk.1.attn_q.weight.lora_b"},
        .alpha = 8};
    bt_gguf_t *const base = open_base("llama");
    bt_adapter_t *adapter = NULL;

    (void)state;
    assert_int_equal(open_file(base, &spec, &adapter), BT_OK);
    assert_int_equal(adapter->n_parts, 1);
    assert_int_equal(adapter->parts[0].layer, 1);
    assert_true(adapter->parts[0].scale == 4.0f);
    assert_true(row_of(&adapter->parts[0], 1)[0] == 2);
    bt_adapter_free(adapter);
    bt_gguf_close(base);
}

static void gguf_file_of_something_else_is_refused(void **state)
{
    static const struct {
        gguf_file_t spec;
        bt_status_t status;
        const char *reason;
    } cases[] = {
        {{.type = "model", .arch = "llama"},
         BT_ERR_UNSUPPORTED,
         "is not a LoRA adapter"},
        {{.type = "adapter", .arch = "qwen2"},
         BT_ERR_MISMATCH,
         "another architecture than the model's, llama"},
        {{.type = "adapter", .arch = "llama"},
         BT_ERR_BAD_FILE,
         "it has no matrices"},
        {{.type = "adapter",
          .arch = "llama",
          .tensors = {"blk.1.attn_q.weight.lora_a"}},
         BT_ERR_BAD_FILE,
         "and its lora_b are not two matrices"},
        {{.type = "adapter",
          .arch = "llama",
          .tensors = {"blk.1.attn_q.weight.lora_b"}},
         BT_ERR_BAD_FILE,
         "has no lora_a"},
        {{.type = "adapter",
          .arch = "llama",
          .tensors = {"token_embd.weight.lora_a", "token_embd.weight.lora_b"}},
         BT_ERR_UNSUPPORTED,
         "adapters of it are not computed"},
        {{.type = "adapter", .arch = "llama", .tensors = {"rope_freqs.weight"}},
         BT_ERR_UNSUPPORTED,
         "is no matrix of LoRA"},
        {{.type = "adapter",
          .arch = "llama",
          .tensors = {"blk.2.attn_q.weight.lora_a",
                      "blk.2.attn_q.weight.lora_b"}},
         BT_ERR_MISMATCH,
         "it has layer 2, the model has 2"},
        {{.type = "adapter",
          .arch = "llama",
          .tensors = {"blk.1.attn_q.weight.lora_a",
                      "blk.1.attn_q.weight.lora_b"},
          .alpha = NAN},
         BT_ERR_BAD_FILE,
         "blk.1.attn_q.weight.lora_a has a scale that is not finite"},
        {{.type = "adapter",
          .arch = "llama",
          .tensors = {"blk.1.attn_q.weight.lora_a",
                      "blk.1.attn_q.weight.lora_b"},
          .alpha = -INFINITY},
         BT_ERR_BAD_FILE,
         "has a scale that is not finite"},
    };
    bt_gguf_t *const base = open_base("llama");
    bt_adapter_t *adapter = NULL;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(open_file(base, &cases[i].spec, &adapter),
                         cases[i].status);
        if (strstr(why, cases[i].reason) == NULL) {
            fail_msg("%s: %s", cases[i].reason, why);
        }
    }
    assert_null(adapter);
    bt_gguf_close(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(folder_becomes_parts_in_order_of_layers_and_products),
        BT_TEST(fused_module_is_split),
        BT_TEST(digest_is_of_the_content),
        BT_TEST(adapter_of_another_model_is_refused),
        BT_TEST(gguf_file_has_the_order_of_the_model),
        BT_TEST(gguf_file_of_something_else_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
