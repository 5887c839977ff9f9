/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of each family against what llama.cpp's converter makes of them:
 * golden/hf_CASE.txt, which golden/make_hf_golden.py wrote. */
#include "tests/support/testsupport.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/hf/floats.h"
#include "inference/hf/hf.h"
#include "inference/hf/quant_rows.h"
#include "kernels/kernels.h"
#include "tests/support/hf_folder.h"

#define LINE_BYTES 8192
#define TYPE_F32   0u
#define TYPE_Q4_0  2u
#define TYPE_Q5_0  6u
#define TYPE_BF16  30u
#define TYPE_Q8_0  8u

static char why[512];

/* ---- the folder that a file's lines describe ---- */

static void add_stored(bt_st_file_t *file, char *line)
{
    char *save = NULL;
    const char *const name = strtok_r(line, " \n", &save);
    const char *const dtype = strtok_r(NULL, " \n", &save);
    const char *const fill = strtok_r(NULL, " \n", &save);
    char shape[128] = "";
    size_t at = 0;
    uint64_t n = 1;
    uint8_t *bytes;

    for (const char *dim = strtok_r(NULL, " \n", &save); dim != NULL;
         dim = strtok_r(NULL, " \n", &save)) {
        at += (size_t)snprintf(shape + at, sizeof(shape) - at, "%s%s",
                               (at > 0) ? "," : "", dim);
        n *= strtoul(dim, NULL, 10);
    }
    bytes = bt_calloc(n, 8);
    assert_non_null(bytes);
    bt_st_file_add(file, name, dtype, shape, bytes,
                   bt_hf_folder_numbers(name, dtype, fill, n, bytes));
    bt_free(bytes);
}

static void write_folder(const char *dir, const char *golden)
{
    char path[64];
    FILE *in;
    char *const line = bt_calloc(LINE_BYTES, 1);
    bt_st_file_t file;

    snprintf(path, sizeof(path), "golden/%s", golden);
    in = fopen(bt_test_path(path), "re");
    assert_non_null(in);
    assert_non_null(line);
    bt_st_file_init(&file);
    while (fgets(line, LINE_BYTES, in) != NULL) {
        if (strncmp(line, "config ", 7) == 0) {
            bt_hf_folder_text(dir, "config.json", line + 7);
        } else if (strncmp(line, "stored ", 7) == 0) {
            add_stored(&file, line + 7);
        }
    }
    fclose(in);
    bt_free(line);
    bt_st_file_write(&file, dir, "model.safetensors");
    bt_hf_folder_tokenizer(dir, 24);
}

/* ---- what must be read ---- */

static uint64_t fnv64(const uint8_t *data, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;

    for (size_t i = 0; i < n; i++) {
        h = (h ^ data[i]) * 0x100000001B3u;
    }
    return h;
}

static void check_array(const bt_gguf_t *gguf, const char *key, char *items)
{
    char *save = NULL;
    uint64_t n = 0;
    uint64_t i = 0;

    assert_int_equal(bt_gguf_array_len(gguf, key, &n), BT_OK);
    for (const char *item = strtok_r(items, ",\n", &save); item != NULL;
         item = strtok_r(NULL, ",\n", &save)) {
        /* The only arrays are of truths, which have no other reading yet than
         * that there are as many. */
        assert_true((strcmp(item, "0") == 0) || (strcmp(item, "1") == 0));
        i++;
    }
    assert_int_equal(i, n);
}

static void check_key(const bt_gguf_t *gguf, char *line)
{
    char *save = NULL;
    const char *const key = strtok_r(line, " \n", &save);
    const char *const type = strtok_r(NULL, " \n", &save);
    char *const value = strtok_r(NULL, "\n", &save);
    bt_gguf_str_t str;
    uint32_t u32 = 0;
    float f32 = 0.0f;
    bool truth = false;

    if (!bt_gguf_has(gguf, key)) {
        fail_msg("%s is missing", key);
    }
    if (strcmp(type, "UINT32") == 0) {
        assert_int_equal(bt_gguf_get_u32(gguf, key, &u32), BT_OK);
        if (u32 != strtoul(value, NULL, 10)) {
            fail_msg("%s is %u, not %s", key, u32, value);
        }
    } else if (strcmp(type, "FLOAT32") == 0) {
        assert_int_equal(bt_gguf_get_f32(gguf, key, &f32), BT_OK);
        if (f32 != strtof(value, NULL)) {
            fail_msg("%s is %.9g, not %s", key, (double)f32, value);
        }
    } else if (strcmp(type, "BOOL") == 0) {
        assert_int_equal(bt_gguf_get_bool(gguf, key, &truth), BT_OK);
        assert_int_equal(truth, strcmp(value, "1") == 0);
    } else if (strcmp(type, "STRING") == 0) {
        assert_int_equal(bt_gguf_get_str(gguf, key, &str), BT_OK);
        assert_int_equal(str.len, strlen(value));
        assert_memory_equal(str.data, value, str.len);
    } else {
        assert_string_equal(type, "ARRAY");
        check_array(gguf, key, strchr(value, ' ') + 1);
    }
}

/* FNV of the tensor as numbers of the type that the converter writes, F32, or
 * of its bytes. */
static uint64_t hash_of(const bt_gguf_tensor_t *t)
{
    const uint64_t n = t->dims[0] * t->dims[1] * t->dims[2];
    uint8_t *const bytes = bt_calloc(t->bytes, 1);
    float *const values = bt_calloc(n, sizeof(*values));
    uint64_t hash;

    assert_non_null(bytes);
    assert_non_null(values);
    assert_int_equal(bt_gguf_tensor_copy(t, bytes), BT_OK);
    assert_int_equal(bt_dequantize((bt_ktype_t)t->type, bytes, n, values),
                     BT_OK);
    hash = (t->type == BT_KTYPE_MXFP4)
               ? fnv64(bytes, t->bytes)
               : fnv64((const uint8_t *)values, n * sizeof(*values));
    bt_free(values);
    bt_free(bytes);
    return hash;
}

static void check_tensor(const bt_gguf_t *gguf, char *line)
{
    char *save = NULL;
    const char *const name = strtok_r(line, " \n", &save);
    const char *const type = strtok_r(NULL, " \n", &save);
    const bt_gguf_tensor_t *const t = bt_gguf_tensor(gguf, name);
    const char *word = strtok_r(NULL, " \n", &save);
    const char *next = strtok_r(NULL, " \n", &save);
    uint32_t n_dims = 0;

    if (t == NULL) {
        fail_msg("%s is missing", name);
        return;
    }
    assert_string_equal(type, (t->type == BT_KTYPE_MXFP4) ? "MXFP4" : "F32");
    while (next != NULL) {
        assert_int_equal(t->dims[n_dims], strtoul(word, NULL, 10));
        n_dims++;
        word = next;
        next = strtok_r(NULL, " \n", &save);
    }
    assert_int_equal(t->n_dims, n_dims);
    if (hash_of(t) != strtoull(word, NULL, 16)) {
        fail_msg("the numbers of %s differ", name);
    }
    if ((t->codes != NULL) && (hash_of(t->codes) != strtoull(word, NULL, 16))) {
        fail_msg("the codes of %s are of other numbers", name);
    }
}

static void check_all(const bt_gguf_t *gguf, const char *golden)
{
    char path[64];
    FILE *in;
    char *const line = bt_calloc(LINE_BYTES, 1);
    uint64_t n_tensors = 0;

    snprintf(path, sizeof(path), "golden/%s", golden);
    in = fopen(bt_test_path(path), "re");
    assert_non_null(in);
    assert_non_null(line);
    while (fgets(line, LINE_BYTES, in) != NULL) {
        if (strncmp(line, "key ", 4) == 0) {
            check_key(gguf, line + 4);
        } else if (strncmp(line, "tensor ", 7) == 0) {
            check_tensor(gguf, line + 7);
            n_tensors++;
        }
    }
    fclose(in);
    bt_free(line);
    assert_int_equal(bt_gguf_n_tensors(gguf), n_tensors);
}

/* @param [in] type   Of blk.0.attn_q.weight and the other projections.
 *  @param [in] codes  Of the first's codes; 0: it has none */
static void check_case(const char *golden, uint32_t type, uint32_t codes)
{
    const bt_gguf_tensor_t *query;
    const char *const dir = bt_hf_folder_make();
    bt_gguf_t *gguf = NULL;

    write_folder(dir, golden);
    if (bt_hf_open(dir, why, sizeof(why), &gguf) != BT_OK) {
        bt_hf_folder_remove(dir);
        fail_msg("%s: %s", golden, why);
    }
    print_message("%s\n", golden);
    check_all(gguf, golden);
    query = bt_gguf_tensor(gguf, "blk.0.attn_q.weight");
    assert_true((codes != 0) == ((query != NULL) && (query->codes != NULL)));
    assert_true((codes == 0) || (query->codes->type == codes));
    if (type != TYPE_F32) {
        assert_int_equal(bt_gguf_tensor(gguf, "blk.0.attn_q.weight")->type,
                         type);
        assert_int_equal(bt_gguf_tensor(gguf, "blk.0.ffn_down.weight")->type,
                         type);
    }
    bt_gguf_close(gguf);
    bt_hf_folder_remove(dir);
}

static void every_family_is_read_as_the_converter_writes_it(void **state)
{
    static const char *const cases[] = {
        "hf_llama.txt",
        "hf_llama_rope.txt",
        "hf_mistral.txt",
        "hf_smollm3.txt",
        "hf_granite.txt",
        "hf_olmo2.txt",
        "hf_qwen2.txt",
        "hf_qwen2_window.txt",
        "hf_qwen3.txt",
        "hf_gemma.txt",
        "hf_gemma2.txt",
        "hf_gemma3.txt",
        "hf_phi3.txt",
        "hf_phi3_long.txt",
        "hf_gpt2.txt",
        "hf_gpt_neox.txt",
        "hf_falcon.txt",
        "hf_falcon_new.txt",
        "hf_starcoder2.txt",
        "hf_internlm2.txt",
        "hf_cohere2.txt",
        "hf_bloom.txt",
        "hf_mpt.txt",
        "hf_olmo.txt",
        "hf_olmo3.txt",
        "hf_ministral3.txt",
        "hf_mistral3.txt",
        "hf_baichuan.txt",
        "hf_gemma3_images.txt",
        "hf_mixtral.txt",
        "hf_qwen2_moe.txt",
        "hf_qwen3_moe.txt",
        "hf_olmoe.txt",
        "hf_granitemoe.txt",
        "hf_granitemoeshared.txt",
        "hf_glm4_moe.txt",
        "hf_gpt_oss.txt",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_case(cases[i], TYPE_F32, 0);
    }
}

static void quantized_matrices_have_the_converters_numbers(void **state)
{
    static const struct {
        const char *golden;
        uint32_t type;  /* what has these numbers exactly */
        uint32_t codes; /* blocks of 64 have one scale */
    } cases[] = {
        {"hf_gptq_q4.txt", TYPE_Q4_0, 0},
        {"hf_gptq_q8.txt", TYPE_Q8_0, 0},
        {"hf_gptq_act.txt", TYPE_F32, 0},
        {"hf_awq.txt", TYPE_Q5_0, 0},
        {"hf_fp8_block.txt", TYPE_F32, 0},
        {"hf_ct_fp8.txt", TYPE_F32, BT_KTYPE_E4M3},
        {"hf_fp8_short.txt", TYPE_BF16, 0},
        {"hf_ct_int8.txt", TYPE_Q8_0, 0},
        {"hf_ct_w4.txt", TYPE_Q4_0, 0},
        {"hf_ct_w4_zero.txt", TYPE_Q5_0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_case(cases[i].golden, cases[i].type, cases[i].codes);
    }
}

static void quantized_experts_have_the_converters_numbers(void **state)
{
    static const struct {
        const char *golden;
        uint32_t type; /* of all experts' gates */
        uint32_t codes;
    } cases[] = {
        {"hf_fp8_experts.txt", TYPE_F32, 0},
        {"hf_fp8_mixed_experts.txt", TYPE_F32, BT_KTYPE_E4M3},
        {"hf_awq_experts.txt", TYPE_Q5_0, 0},
        {"hf_mxfp4.txt", BT_KTYPE_MXFP4, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const bt_gguf_tensor_t *gate;
        const char *const dir = bt_hf_folder_make();
        bt_gguf_t *gguf = NULL;

        write_folder(dir, cases[i].golden);
        if (bt_hf_open(dir, why, sizeof(why), &gguf) != BT_OK) {
            bt_hf_folder_remove(dir);
            fail_msg("%s: %s", cases[i].golden, why);
        }
        print_message("%s\n", cases[i].golden);
        check_all(gguf, cases[i].golden);
        gate = bt_gguf_tensor(gguf, "blk.0.ffn_gate_exps.weight");
        assert_int_equal(gate->type, cases[i].type);
        assert_int_equal((gate->codes != NULL) ? gate->codes->type : 0,
                         cases[i].codes);
        bt_gguf_close(gguf);
        bt_hf_folder_remove(dir);
    }
}

/* A matrix of 2 x 128 and its scales, one to each row and 64 columns. */
typedef struct codes_case {
    uint8_t bytes[2 * 128];
    float scales[4];
    bt_st_tensor_t data;
    bt_st_tensor_t scale;
    bt_recipe_t recipe;
} codes_case_t;

static void make_codes(codes_case_t *c, bt_recipe_row_fn row)
{
    for (size_t i = 0; i < sizeof(c->bytes); i++) {
        c->bytes[i] = (uint8_t)(i * 7 % 0x7f) | (uint8_t)(i % 2 << 7);
    }
    c->data = (bt_st_tensor_t){.dtype = BT_ST_F8_E4M3, .data = c->bytes};
    c->scale = (bt_st_tensor_t){.dtype = BT_ST_F32,
                                .data = (const uint8_t *)c->scales};
    c->recipe = (bt_recipe_t){.row = row,
                              .n_in = 128,
                              .n_out = 2,
                              .data = &c->data,
                              .scale = &c->scale,
                              .block = {1, 64}};
}

static void read_codes(const codes_case_t *c, uint32_t want, float *values)
{
    uint8_t made[2 * 2 * 68];
    bt_recipe_t codes;
    uint32_t type = 0;

    assert_true(bt_quant_codes(&c->recipe, &type, &codes));
    assert_int_equal(type, want);
    assert_int_equal(codes.row_bytes, 2 * 68);
    assert_int_equal(bt_recipe_make(&codes, made), BT_OK);
    assert_int_equal(bt_dequantize((bt_ktype_t)type, made, 2 * 128, values),
                     BT_OK);
}

static void codes_dequantize_to_the_numbers_of_their_matrix(void **state)
{
    codes_case_t c = {.scales = {0.5f, -1.5f, 0x1p-20f, 3.0f}};
    float values[2 * 128];
    uint16_t want[2 * 128];

    (void)state;
    make_codes(&c, bt_quant_row_fp8_bf16);
    read_codes(&c, BT_KTYPE_E4M3_BF16, values);
    for (uint64_t i = 0; i < 2; i++) {
        bt_quant_row_fp8_bf16(&c.recipe, i, (uint8_t *)(want + 128 * i));
    }
    for (size_t i = 0; i < 2 * 128; i++) {
        assert_true(values[i] == bt_read_bf16((const uint8_t *)(want + i)));
    }
}

static void nan_code_makes_its_whole_block_nan(void **state)
{
    codes_case_t c = {.scales = {0.3f, 0.3f, 0.3f, 0.3f}};
    float values[2 * 128];

    (void)state;
    make_codes(&c, bt_quant_row_fp8);
    c.bytes[70] = 0xff;
    c.bytes[130] = 0x7f;
    read_codes(&c, BT_KTYPE_E4M3, values);
    for (size_t i = 0; i < 2 * 128; i++) {
        assert_int_equal(values[i] != values[i], (i >= 64) && (i < 192));
    }
}

static void blocks_with_several_scales_are_not_stored_as_codes(void **state)
{
    codes_case_t c = {0};
    bt_recipe_t codes;
    uint32_t type = 0;

    (void)state;
    make_codes(&c, bt_quant_row_fp8);
    c.recipe.block[1] = 96;
    assert_false(bt_quant_codes(&c.recipe, &type, &codes));
    c.recipe.block[1] = 64;
    c.recipe.n_in = 96;
    assert_false(bt_quant_codes(&c.recipe, &type, &codes));
    c.recipe.n_in = 128;
    c.recipe.row = bt_quant_row_int8;
    assert_false(bt_quant_codes(&c.recipe, &type, &codes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_family_is_read_as_the_converter_writes_it),
        BT_TEST(quantized_matrices_have_the_converters_numbers),
        BT_TEST(quantized_experts_have_the_converters_numbers),
        BT_TEST(codes_dequantize_to_the_numbers_of_their_matrix),
        BT_TEST(nan_code_makes_its_whole_block_nan),
        BT_TEST(blocks_with_several_scales_are_not_stored_as_codes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
