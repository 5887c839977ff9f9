/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of models with experts: what becomes of their tensors, and which are
 * refused. What llama.cpp's converter makes of them: test_hf_golden.c. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/hf/hf.h"
#include "inference/hf/quant_rows.h"
#include "tests/fuzz/hf_files.h"

#define MAX_TENSORS 24
#define CONFIG(more)                                                         \
    "{\"model_type\":\"qwen3_moe\",\"hidden_size\":4,\"intermediate_size\":" \
    "4,\"num_hidden_layers\":1,\"num_attention_heads\":2,"                   \
    "\"max_position_embeddings\":8,\"rms_norm_eps\":1e-5,\"vocab_size\":4,"  \
    "\"tie_word_embeddings\":true,\"moe_intermediate_size\":2,"              \
    "\"num_experts_per_tok\":1" more "}"
#define TWO ",\"num_experts\":2"

static char why[512];

static const hf_tensor_t apart[] = {
    {"model.layers.0.mlp.experts.0.gate_proj.weight", "2,4", false},
    {"model.layers.0.mlp.experts.0.up_proj.weight", "2,4", false},
    {"model.layers.0.mlp.experts.0.down_proj.weight", "4,2", false},
    {"model.layers.0.mlp.experts.1.gate_proj.weight", "2,4", false},
    {"model.layers.0.mlp.experts.1.up_proj.weight", "2,4", false},
    {"model.layers.0.mlp.experts.1.down_proj.weight", "4,2", false},
};

static const hf_tensor_t fused[] = {
    {"model.layers.0.mlp.experts.gate_up_proj", "2,4,4", false},
    {"model.layers.0.mlp.experts.down_proj", "2,4,2", false},
};

/* Opens a folder of these tensors, whose numbers are 0, 1, 2 … through the
 * file. @param [in] changed  in place of the tensor at this place, or behind
 * all of them */
static bt_status_t open_folder(const char *config, const hf_tensor_t *list,
                               size_t n, size_t at, const hf_tensor_t *changed,
                               bt_gguf_t **gguf_p)
{
    static uint8_t weights[16384];
    hf_tensor_t tensors[MAX_TENSORS] = {
        HF_ATTENTION, {"model.layers.0.mlp.gate.weight", "2,4", false}};
    size_t n_tensors = 9;
    size_t bytes;
    size_t first;
    uint64_t n_header;

    for (size_t i = 0; i < n; i++) {
        if ((i != at) || (changed == NULL)) {
            tensors[n_tensors++] = list[i];
        } else if (changed->name != NULL) {
            tensors[n_tensors++] = *changed;
        }
    }
    if ((at >= n) && (changed != NULL)) {
        tensors[n_tensors++] = *changed;
    }
    bytes = hf_file(tensors, n_tensors, weights, sizeof(weights));
    memcpy(&n_header, weights, sizeof(n_header));
    first = 8 + (size_t)n_header;
    for (size_t i = 0; first + 4 * i < bytes; i++) {
        const float value = (float)i;

        memcpy(weights + first + 4 * i, &value, sizeof(value));
    }
    {
        const bt_folder_entry_t entries[] = {
            {"config.json", config, strlen(config)},
            {"tokenizer.json", HF_TOKENIZER, strlen(HF_TOKENIZER)},
            {"model.safetensors", weights, bytes},
        };

        return bt_hf_open_memory(entries, BT_ARRAY_LEN(entries), why,
                                 sizeof(why), gguf_p);
    }
}

/* Numbers before the experts in a file: 80 of attention and embedding, 12 of
 * norms, 8 of the router. */
#define BEFORE 100.0f

static void expect(const bt_gguf_t *gguf, const char *name, uint64_t n_in,
                   uint64_t n_out, const float *numbers)
{
    const bt_gguf_tensor_t *const t = bt_gguf_tensor(gguf, name);
    float made[16];

    assert_non_null(t);
    assert_int_equal(t->n_dims, 3);
    assert_int_equal(t->dims[0], n_in);
    assert_int_equal(t->dims[1], n_out);
    assert_int_equal(t->dims[2], 2);
    assert_int_equal(t->bytes, 2 * n_in * n_out * sizeof(float));
    assert_int_equal(bt_gguf_tensor_copy(t, made), BT_OK);
    for (size_t i = 0; i < 2 * n_in * n_out; i++) {
        if (made[i] != numbers[i] + BEFORE) {
            fail_msg("%s: number %zu is %g, not %g", name, i, (double)made[i],
                     (double)(numbers[i] + BEFORE));
        }
    }
}

/* Numbers count on through the file: 8 of gate, 8 of up and 8 of down of expert
 * 0, then those of expert 1. */
static void experts_in_tensors_of_their_own_are_stacked(void **state)
{
    static const float gate[] = {0,  1,  2,  3,  4,  5,  6,  7,
                                 24, 25, 26, 27, 28, 29, 30, 31};
    float numbers[16];
    bt_gguf_t *gguf = NULL;

    (void)state;
    assert_int_equal(open_folder(CONFIG(TWO), apart, 6, SIZE_MAX, NULL, &gguf),
                     BT_OK);
    expect(gguf, "blk.0.ffn_gate_exps.weight", 4, 2, gate);
    for (size_t i = 0; i < 16; i++) {
        numbers[i] = gate[i] + 8;
    }
    expect(gguf, "blk.0.ffn_up_exps.weight", 4, 2, numbers);
    for (size_t i = 0; i < 16; i++) {
        numbers[i] = gate[i] + 16;
    }
    expect(gguf, "blk.0.ffn_down_exps.weight", 2, 4, numbers);
    bt_gguf_close(gguf);
}

/* (2, 4, 4): rows 0 and 1 of an expert are the gate's, 2 and 3 up's. */
static void fused_experts_are_split(void **state)
{
    static const float gate[] = {0,  1,  2,  3,  4,  5,  6,  7,
                                 16, 17, 18, 19, 20, 21, 22, 23};
    float numbers[16];
    bt_gguf_t *gguf = NULL;

    (void)state;
    assert_int_equal(open_folder(CONFIG(TWO), fused, 2, SIZE_MAX, NULL, &gguf),
                     BT_OK);
    expect(gguf, "blk.0.ffn_gate_exps.weight", 4, 2, gate);
    for (size_t i = 0; i < 16; i++) {
        numbers[i] = gate[i] + 8;
    }
    expect(gguf, "blk.0.ffn_up_exps.weight", 4, 2, numbers);
    for (size_t i = 0; i < 16; i++) {
        numbers[i] = (float)(32 + i);
    }
    expect(gguf, "blk.0.ffn_down_exps.weight", 2, 4, numbers);
    bt_gguf_close(gguf);
}

static void refuse(const char *config, const hf_tensor_t *list, size_t n,
                   size_t at, const hf_tensor_t *changed, const char *says)
{
    bt_gguf_t *gguf = NULL;
    const bt_status_t status = open_folder(config, list, n, at, changed, &gguf);

    if ((status == BT_OK) || (strstr(why, says) == NULL)) {
        bt_gguf_close(gguf);
        fail_msg("%s \"%s\", not \"%s\"", bt_status_str(status), why, says);
    }
}

static void wrong_tensors_of_experts_are_refused_by_name(void **state)
{
    static const struct {
        size_t at;
        hf_tensor_t changed;
        const char *says;
    } cases[] = {
        {4,
         {NULL, NULL, false},
         "expert 1 of the 2 that config.json calls for is missing beside "
         "tensor model.layers.0.mlp.experts.0.up_proj.weight"},
        {4,
         {"model.layers.0.mlp.experts.2.up_proj.weight", "2,4", false},
         "tensor model.layers.0.mlp.experts.2.up_proj.weight is of an expert "
         "beyond the 2 of config.json"},
        {4,
         {"model.layers.0.mlp.experts.01.up_proj.weight", "2,4", false},
         "experts.01.up_proj.weight has no place"},
        {4,
         {"model.layers.0.mlp.experts.4294967297.up_proj.weight", "2,4", false},
         "experts.4294967297.up_proj.weight has no place"},
        {4,
         {"model.layers.0.mlp.experts..up_proj.weight", "2,4", false},
         "experts..up_proj.weight has no place"},
        {4,
         {"model.layers.0.mlp.experts.1.up_proj.weight", "4,2", false},
         "tensor model.layers.0.mlp.experts.1.up_proj.weight has another "
         "shape than those of other experts"},
        {4,
         {"model.layers.0.mlp.experts.1.up_proj.weight", "8", false},
         "experts.1.up_proj.weight is not a matrix"},
        {4,
         {"model.layers.0.mlp.experts.1.up_proj.weight", "1,2,4", false},
         "experts.1.up_proj.weight is neither a vector nor a matrix"},
        {4,
         {"model.layers.0.mlp.experts.1.up_proj.weight", "0,4", false},
         "experts.1.up_proj.weight is neither a vector nor a matrix"},
        {6,
         {"layers.0.mlp.experts.1.up_proj.weight", "2,4", false},
         "up_proj.weight is there under a second name"},
        {6,
         {"model.layers.0.mlp.experts.gate_up_proj", "2,4,4", false},
         "blk.0.ffn_gate_exps.weight"}, /* two forms */
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        refuse(CONFIG(TWO), apart, 6, cases[i].at, &cases[i].changed,
               cases[i].says);
    }
}

static void wrong_fused_tensors_are_refused_by_name(void **state)
{
    static const hf_tensor_t cases[] = {
        {"model.layers.0.mlp.experts.gate_up_proj", "3,4,4", false},
        {"model.layers.0.mlp.experts.gate_up_proj", "8,4", false},
        {"model.layers.0.mlp.experts.gate_up_proj", "2,4,2,2", false},
        {"model.layers.0.mlp.experts.gate_up_proj", "2,0,4", false},
    };
    static const hf_tensor_t odd = {"model.layers.0.mlp.experts.gate_up_proj",
                                    "2,3,4", false};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        refuse(CONFIG(TWO), fused, 2, 0, &cases[i],
               "tensor model.layers.0.mlp.experts.gate_up_proj has not the "
               "shape that the experts of config.json call for");
    }
    refuse(CONFIG(TWO), fused, 2, 0, &odd,
           "gate_up_proj is not two matrices of equal size");
}

/* GLM 4.5 has layers that draft behind those of the model. */
static void drafting_layers_are_left_out(void **state)
{
    static const hf_tensor_t behind = {"model.layers.1.eh_proj.weight", "4,8",
                                       false};
    bt_gguf_t *gguf = NULL;

    (void)state;
    refuse(CONFIG(TWO), apart, 6, 6, &behind,
           "tensor model.layers.1.eh_proj.weight has no place");
    refuse(CONFIG(TWO ",\"num_nextn_predict_layers\":-1"), apart, 6, 6, &behind,
           "num_nextn_predict_layers is -1");
    assert_int_equal(open_folder(CONFIG(TWO ",\"num_nextn_predict_layers\":1"),
                                 apart, 6, 6, &behind, &gguf),
                     BT_OK);
    assert_int_equal(bt_gguf_n_tensors(gguf), 12);
    bt_gguf_close(gguf);
}

static void wrong_settings_of_experts_are_refused(void **state)
{
    (void)state;
    refuse(CONFIG(""), apart, 6, SIZE_MAX, NULL, "num_experts is missing");
    refuse(CONFIG(",\"num_experts\":0"), apart, 6, SIZE_MAX, NULL,
           "num_experts is 0, which is absurd");
    refuse(CONFIG(",\"num_experts\":4294967296"), apart, 6, SIZE_MAX, NULL,
           "num_experts is 4294967296, which is absurd");
    refuse(CONFIG(",\"num_experts\":4096"), apart, 6, SIZE_MAX, NULL,
           "config.json calls for 4096 such experts, and the folder has not "
           "as many tensors");
    refuse(CONFIG(TWO ",\"decoder_sparse_step\":2"), apart, 6, SIZE_MAX, NULL,
           "decoder_sparse_step is not 1");
    refuse(CONFIG(TWO ",\"mlp_only_layers\":[1]"), apart, 6, SIZE_MAX, NULL,
           "mlp_only_layers are not the first ones");
    refuse(CONFIG(TWO ",\"mlp_only_layers\":[0,1]"), apart, 6, SIZE_MAX, NULL,
           "mlp_only_layers is not a list of layers");
}

/* ---- MXFP4 ---- */

#define GPT_OSS                                                              \
    "{\"model_type\":\"gpt_oss\",\"hidden_size\":4,\"intermediate_size\":2," \
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,"                     \
    "\"max_position_embeddings\":8,\"rms_norm_eps\":1e-5,\"vocab_size\":4,"  \
    "\"tie_word_embeddings\":true,\"num_local_experts\":2,"                  \
    "\"num_experts_per_tok\":1,"                                             \
    "\"quantization_config\":{\"quant_method\":\"mxfp4\"}}"
#define BLOCKS "model.layers.0.mlp.experts.gate_up_proj_blocks"
#define SCALES "model.layers.0.mlp.experts.gate_up_proj_scales"

/* What converters make of right ones: hf_mxfp4.txt. */
static void wrong_mxfp4_blocks_are_refused_by_name(void **state)
{
    static const struct {
        hf_tensor_t blocks;
        hf_tensor_t scales;
        const char *says;
    } cases[] = {
        {{BLOCKS, "2,4,1,16", true},
         {SCALES, "2,4,2", true},
         "gate_up_proj has not a scale of U8 for each block"},
        {{BLOCKS, "2,4,1,16", true},
         {SCALES, "2,4,1", false},
         "gate_up_proj has not a scale of U8 for each block"},
        {{BLOCKS, "2,4,1,16", true},
         {"model.layers.0.mlp.experts.up_scales", "2,4,1", true},
         "gate_up_proj has not a scale of U8 for each block"},
        {{BLOCKS, "2,4,1,8", true},
         {SCALES, "2,4,1", true},
         "gate_up_proj is not of blocks of 16 bytes of U8"},
        {{BLOCKS, "2,4,16", true},
         {SCALES, "2,4,1", true},
         "gate_up_proj is not of blocks of 16 bytes of U8"},
        {{BLOCKS, "2,0,1,16", true},
         {SCALES, "2,0,1", true},
         "gate_up_proj is not of blocks of 16 bytes of U8"},
        {{BLOCKS, "3,4,1,16", true},
         {SCALES, "3,4,1", true},
         BLOCKS " has not the shape that the experts of config.json call for"},
        {{BLOCKS, "2,3,1,16", true},
         {SCALES, "2,3,1", true},
         BLOCKS " is not two matrices of equal size"},
        {{"model.layers.0.mlp.experts.gate_up_proj", "2,4,4", false},
         {SCALES, "2,4,1", true},
         "tensor " SCALES " has no place"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const hf_tensor_t both[] = {cases[i].blocks, cases[i].scales};

        refuse(GPT_OSS, both, 2, SIZE_MAX, NULL, cases[i].says);
    }
}

/* ---- parts of several types ---- */

/* 3 and 0.5 as BF16 are 0x4040 and 0x3f00. */
static void parts_of_several_types_become_f32(void **state)
{
    static const uint16_t halves[] = {0x4040, 0x3f00};
    static const uint8_t codes[] = {0x38, 0xc4}; /* 1 and -3 as E4M3 */
    static const float scale = 0.5f;
    const bt_st_tensor_t plain = {.dtype = BT_ST_BF16,
                                  .data = (const uint8_t *)halves};
    const bt_st_tensor_t fp8 = {.dtype = BT_ST_F8_E4M3, .data = codes};
    const bt_st_tensor_t scales = {.dtype = BT_ST_F32,
                                   .data = (const uint8_t *)&scale};
    bt_recipe_t parts[] = {
        {.row = bt_recipe_row_plain,
         .n_in = 2,
         .n_out = 1,
         .row_bytes = 4,
         .data = &plain},
        {.row = bt_quant_row_fp8_bf16,
         .n_in = 2,
         .n_out = 1,
         .row_bytes = 4,
         .data = &fp8,
         .scale = &scales,
         .block = {1, 2}},
    };
    const bt_recipe_stack_t stack = {.parts = parts, .n = 2};
    float made[4];

    (void)state;
    bt_recipe_to_f32(&parts[0]);
    bt_recipe_to_f32(&parts[1]);
    assert_int_equal(bt_recipe_stack_make(&stack, made), BT_OK);
    assert_true(made[0] == 3.0f);
    assert_true(made[1] == 0.5f);
    assert_true(made[2] == 0.5f);
    assert_true(made[3] == -1.5f);
}

static void every_failing_allocation_is_reported(void **state)
{
    bt_status_t status = BT_ERR_NO_MEMORY;
    int nth = 0;

    (void)state;
    while (status == BT_ERR_NO_MEMORY) {
        bt_gguf_t *gguf = NULL;

        bt_alloc_fail_at(++nth);
        status = open_folder(CONFIG(TWO), apart, 6, SIZE_MAX, NULL, &gguf);
        bt_alloc_fail_at(0);
        bt_gguf_close(gguf);
    }
    assert_int_equal(status, BT_OK);
    assert_true(nth > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(experts_in_tensors_of_their_own_are_stacked),
        BT_TEST(fused_experts_are_split),
        BT_TEST(wrong_tensors_of_experts_are_refused_by_name),
        BT_TEST(wrong_fused_tensors_are_refused_by_name),
        BT_TEST(drafting_layers_are_left_out),
        BT_TEST(wrong_settings_of_experts_are_refused),
        BT_TEST(wrong_mxfp4_blocks_are_refused_by_name),
        BT_TEST(parts_of_several_types_become_f32),
        BT_TEST(every_failing_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
