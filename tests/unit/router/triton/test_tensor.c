/* SPDX-License-Identifier: Apache-2.0 */
/* Raw tensors: counts, checks, elements of each type; the models' table. */
#include "tests/support/testsupport.h"

#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/triton/models.h"
#include "router/triton/tensor.h"

static bt_tensor_t tensor(bt_dtype_t dtype, uint64_t n, const void *data,
                          size_t bytes)
{
    return (bt_tensor_t){
        .dtype = dtype, .n_dims = 1, .dims = {n}, .data = data, .bytes = bytes};
}

static void element_count_overflow_is_refused(void **state)
{
    const uint64_t huge[] = {UINT64_MAX, 2};
    const uint64_t square[] = {UINT64_C(1) << 32, UINT64_C(1) << 32};
    const uint64_t empty[] = {0, UINT64_MAX, UINT64_MAX};
    const uint64_t three[] = {3, 1, 4};
    uint64_t n = 77;

    (void)state;
    assert_int_equal(bt_tensor_count(huge, 2, &n), BT_ERR_OVERFLOW);
    assert_int_equal(bt_tensor_count(square, 2, &n), BT_ERR_OVERFLOW);
    assert_int_equal(bt_tensor_count(empty, 3, &n), BT_ERR_OVERFLOW);
    assert_int_equal(n, 77);
    assert_int_equal(bt_tensor_count(empty, 1, &n), BT_OK);
    assert_int_equal(n, 0);
    assert_int_equal(bt_tensor_count(three, 3, &n), BT_OK);
    assert_int_equal(n, 12);
    assert_int_equal(bt_tensor_count(NULL, 0, &n), BT_OK);
    assert_int_equal(n, 1);
}

static void data_must_match_shape_and_datatype(void **state)
{
    static const uint8_t bytes[16] = {3, 0, 0, 0, 'a', 'b', 'c', 0, 0, 0, 0};
    static const bt_dtype_t four[] = {BT_DTYPE_INT32, BT_DTYPE_UINT32,
                                      BT_DTYPE_FP32};
    char why[BT_TENSOR_WHY_BYTES];
    bt_tensor_t t;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(four); i++) {
        t = tensor(four[i], 3, bytes, 12);
        assert_int_equal(bt_tensor_check(&t, why), BT_OK);
        t.bytes = 13;
        assert_int_equal(bt_tensor_check(&t, why), BT_ERR_INVALID_PARAM);
        assert_non_null(strstr(why, "13"));
        assert_non_null(strstr(why, "12"));
    }
    t = tensor(BT_DTYPE_BYTES, 2, bytes, 11);
    assert_int_equal(bt_tensor_check(&t, why), BT_OK);
    t.dims[0] = 1;
    assert_int_equal(bt_tensor_check(&t, why), BT_ERR_INVALID_PARAM);
    t.dims[0] = 3;
    assert_int_equal(bt_tensor_check(&t, why), BT_ERR_INVALID_PARAM);
    for (size_t n = 1; n < 11; n++) {
        t = tensor(BT_DTYPE_BYTES, 2, bytes, n);
        assert_int_equal(bt_tensor_check(&t, why), BT_ERR_INVALID_PARAM);
    }
    t = tensor(BT_DTYPE_BYTES, 0, NULL, 0);
    assert_int_equal(bt_tensor_check(&t, why), BT_OK);
}

static void bytes_elements_are_iterated_in_order(void **state)
{
    static const uint8_t bytes[] = {3, 0, 0, 0, 'a', 'b', 'c', 0, 0, 0, 0};
    const bt_tensor_t t = tensor(BT_DTYPE_BYTES, 2, bytes, sizeof(bytes));
    const char *text;
    size_t n;
    size_t at = 0;

    (void)state;
    assert_true(bt_tensor_next_bytes(&t, &at, &text, &n));
    assert_int_equal(n, 3);
    assert_memory_equal(text, "abc", 3);
    assert_true(bt_tensor_next_bytes(&t, &at, &text, &n));
    assert_int_equal(n, 0);
    assert_false(bt_tensor_next_bytes(&t, &at, &text, &n));
}

static int64_t integer(bt_dtype_t dtype, const void *data)
{
    const bt_tensor_t t = tensor(dtype, 1, data, bt_dtype_bytes(dtype));
    int64_t value = 12345;

    assert_int_equal(bt_tensor_i64(&t, 0, &value), BT_OK);
    return value;
}

static double real(bt_dtype_t dtype, const void *data)
{
    const bt_tensor_t t = tensor(dtype, 1, data, bt_dtype_bytes(dtype));
    double value = 12345;

    assert_int_equal(bt_tensor_f64(&t, 0, &value), BT_OK);
    return value;
}

static void integers_are_read_from_each_datatype(void **state)
{
    static const uint8_t ones[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    static const uint8_t top[8] = {0, 0, 0, 0, 0, 0, 0, 128};
    bt_tensor_t t;
    int64_t value = 1;
    uint64_t bits = 0;
    bool on = false;

    (void)state;
    assert_int_equal(integer(BT_DTYPE_INT8, ones), -1);
    assert_int_equal(integer(BT_DTYPE_INT16, ones), -1);
    assert_int_equal(integer(BT_DTYPE_INT32, ones), -1);
    assert_int_equal(integer(BT_DTYPE_INT64, ones), -1);
    assert_int_equal(integer(BT_DTYPE_UINT8, ones), 255);
    assert_int_equal(integer(BT_DTYPE_UINT16, ones), 65535);
    assert_int_equal(integer(BT_DTYPE_UINT32, ones), 4294967295);
    assert_int_equal(integer(BT_DTYPE_BOOL, ones), 1);
    assert_true(integer(BT_DTYPE_INT64, top) == INT64_MIN);
    t = tensor(BT_DTYPE_UINT64, 1, ones, 8);
    assert_int_equal(bt_tensor_i64(&t, 0, &value), BT_ERR_OVERFLOW);
    assert_int_equal(bt_tensor_u64(&t, 0, &bits), BT_OK);
    assert_true(bits == UINT64_MAX);
    assert_true(real(BT_DTYPE_UINT64, ones) == 18446744073709551615.0);
    assert_int_equal(bt_tensor_bool(&t, 0, &on), BT_OK);
    assert_true(on);
    t = tensor(BT_DTYPE_BYTES, 1, ones, 8);
    assert_int_equal(bt_tensor_i64(&t, 0, &value), BT_ERR_INVALID_PARAM);
    t = tensor(BT_DTYPE_FP32, 1, ones, 4);
    assert_int_equal(bt_tensor_bool(&t, 0, &on), BT_ERR_INVALID_PARAM);
    assert_int_equal(value, 1);
}

/* IEEE 754: 1.5 is 0x3FC00000, in half 0x3E00, in bfloat16 0x3FC0; the least
 * half is 2^-24, its infinity 0x7C00. */
static void floats_are_read_from_each_datatype(void **state)
{
    const float single = 1.5f;
    const double wide = 1.5;
    const double whole = -7.0;
    const double beyond = 0x1p63;
    const uint16_t half = 0x3E00;
    const uint16_t brain = 0x3FC0;
    const uint16_t least = 1;
    const uint16_t least_normal = 0x0400;
    const uint16_t infinite = 0xFC00;
    const uint16_t nan_half = 0x7E00;
    int64_t value = 0;
    bt_tensor_t t;

    (void)state;
    assert_true(real(BT_DTYPE_FP32, &single) == 1.5);
    assert_true(real(BT_DTYPE_FP64, &wide) == 1.5);
    assert_true(real(BT_DTYPE_FP16, &half) == 1.5);
    assert_true(real(BT_DTYPE_BF16, &brain) == 1.5);
    assert_true(real(BT_DTYPE_FP16, &least) == 0x1p-24);
    assert_true(real(BT_DTYPE_FP16, &least_normal) == 0x1p-14);
    assert_true(real(BT_DTYPE_FP16, &infinite) == -INFINITY);
    assert_true(isnan(real(BT_DTYPE_FP16, &nan_half)));
    assert_int_equal(integer(BT_DTYPE_FP64, &whole), -7);
    t = tensor(BT_DTYPE_FP64, 1, &beyond, 8);
    assert_int_equal(bt_tensor_i64(&t, 0, &value), BT_ERR_OVERFLOW);
    t = tensor(BT_DTYPE_FP32, 1, &single, 4);
    assert_int_equal(bt_tensor_i64(&t, 0, &value), BT_ERR_INVALID_PARAM);
    t = tensor(BT_DTYPE_FP16, 1, &nan_half, 2);
    assert_int_equal(bt_tensor_i64(&t, 0, &value), BT_ERR_INVALID_PARAM);
}

static void datatype_names_are_found(void **state)
{
    (void)state;
    for (int i = 0; i < BT_N_DTYPES; i++) {
        const char *name = bt_dtype_name((bt_dtype_t)i);
        bt_dtype_t found = BT_N_DTYPES;

        assert_true(bt_dtype_find(name, strlen(name), &found));
        assert_int_equal(found, i);
        assert_false(bt_dtype_find(name, strlen(name) - 1, &found));
    }
    assert_string_equal(bt_dtype_config_name(BT_DTYPE_BYTES), "TYPE_STRING");
}

static void check_names(const bt_model_tensor_t *tensors, size_t n, size_t max)
{
    assert_true(n <= max);
    for (size_t i = 0; i < n; i++) {
        assert_true(strlen(tensors[i].name) < BT_TENSOR_NAME_BYTES);
        assert_true((tensors[i].n_dims > 0) &&
                    (tensors[i].n_dims <= BT_MODEL_MAX_DIMS));
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(tensors[i].name, tensors[k].name);
        }
    }
}

static void tensor_names_are_unique_per_model(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_N_MODEL_SPECS; i++) {
        const bt_model_spec_t *spec = &bt_model_specs[i];

        check_names(spec->inputs, spec->n_inputs, 96);
        check_names(spec->outputs, spec->n_outputs, 32);
        assert_ptr_equal(bt_model_spec(spec->name), spec);
    }
    assert_int_equal(bt_model_spec("tiny")->role, BT_ROLE_TEXT);
}

/* As the documented tables have them. */
static void documented_tensors_exist(void **state)
{
    static const char *const text[] = {"text_input",
                                       "max_tokens",
                                       "bad_words",
                                       "stop_words",
                                       "end_id",
                                       "pad_id",
                                       "temperature",
                                       "top_k",
                                       "top_p",
                                       "len_penalty",
                                       "repetition_penalty",
                                       "min_length",
                                       "presence_penalty",
                                       "frequency_penalty",
                                       "random_seed",
                                       "return_log_probs",
                                       "return_context_logits",
                                       "return_generation_logits",
                                       "beam_width",
                                       "stream",
                                       "prompt_embedding_table",
                                       "prompt_vocab_size",
                                       "lora_task_id",
                                       "lora_weights",
                                       "lora_config",
                                       "embedding_bias_words",
                                       "embedding_bias_weights",
                                       "num_draft_tokens",
                                       "use_draft_logits"};
    static const char *const ids[] = {"input_ids",
                                      "input_lengths",
                                      "request_output_len",
                                      "draft_input_ids",
                                      "end_id",
                                      "pad_id",
                                      "stop_words_list",
                                      "bad_words_list",
                                      "embedding_bias",
                                      "beam_width",
                                      "temperature",
                                      "runtime_top_k",
                                      "runtime_top_p",
                                      "len_penalty",
                                      "repetition_penalty",
                                      "min_length",
                                      "presence_penalty",
                                      "frequency_penalty",
                                      "random_seed",
                                      "return_log_probs",
                                      "return_context_logits",
                                      "return_generation_logits",
                                      "stop",
                                      "streaming",
                                      "prompt_embedding_table",
                                      "prompt_vocab_size",
                                      "lora_task_id",
                                      "lora_weights",
                                      "lora_config"};
    static const char *const probs[] = {
        "cum_log_probs",     "output_log_probs",  "context_logits",
        "generation_logits", "generation_logtis", "batch_index"};
    const bt_model_spec_t *bls = bt_model_spec("tensorrt_llm_bls");
    const bt_model_spec_t *llm = bt_model_spec("tensorrt_llm");

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(text); i++) {
        assert_non_null(bt_model_input(bls, text[i]));
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(ids); i++) {
        assert_non_null(bt_model_input(llm, ids[i]));
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(probs); i++) {
        assert_non_null(bt_model_output(bls, probs[i]));
        assert_non_null(bt_model_output(llm, probs[i]));
    }
    assert_non_null(bt_model_output(bls, "text_output"));
    assert_non_null(bt_model_output(llm, "output_ids"));
    assert_non_null(bt_model_output(llm, "sequence_length"));
    assert_null(bt_model_input(bls, "input_ids"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(element_count_overflow_is_refused),
        cmocka_unit_test(data_must_match_shape_and_datatype),
        cmocka_unit_test(bytes_elements_are_iterated_in_order),
        cmocka_unit_test(integers_are_read_from_each_datatype),
        cmocka_unit_test(floats_are_read_from_each_datatype),
        cmocka_unit_test(datatype_names_are_found),
        cmocka_unit_test(tensor_names_are_unique_per_model),
        cmocka_unit_test(documented_tensors_exist),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
