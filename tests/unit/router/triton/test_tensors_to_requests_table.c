/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt tables of a batch's rows: types, shapes, sizes, and what does not go
 * together. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/triton/infer_json.h"
#include "router/triton/tensors_to_requests.h"

/* Inputs as JSON: {"name": …, "datatype": …, "shape": …, "data": …}, … */
static bt_status_t lower(const char *model, const char *inputs,
                         bt_tensor_requests_t *lowered, bt_api_error_t *error)
{
    const bt_infer_http_t http = {0};
    bt_infer_request_t request;
    bt_strbuf_t body;
    bt_status_t status;

    bt_strbuf_init(&body, 1u << 20);
    bt_strbuf_printf(&body, "{\"inputs\":[%s]}", inputs);
    status = bt_infer_parse_json(&http, &body, &request, error);
    bt_strbuf_fini(&body);
    if (status != BT_OK) {
        fail_msg("%s: %s", inputs, error->message);
    }
    memcpy(request.model, model, strlen(model) + 1);
    status =
        bt_tensors_to_requests(bt_model_spec(model), &request, lowered, error);
    bt_infer_request_fini(&request);
    return status;
}

#define T(name, type, shape, data)                                      \
    "{\"name\":\"" name "\",\"datatype\":\"" type "\",\"shape\":" shape \
    ",\"data\":" data "}"
#define TEXT                                      \
    T("text_input", "BYTES", "[1,1]", "[\"hi\"]") \
    "," T("max_tokens", "INT32", "[1,1]", "[5]")
#define IDS T("input_ids", "INT32", "[1,3]", "[5,6,7]")

static bt_tensor_requests_t accepted(const char *model, const char *inputs)
{
    bt_tensor_requests_t lowered;
    bt_api_error_t error = {0};

    if (lower(model, inputs, &lowered, &error) != BT_OK) {
        fail_msg("%s: %s", inputs, error.message);
    }
    return lowered;
}

static void refused(const char *model, const char *inputs, const char *part)
{
    bt_tensor_requests_t lowered;
    bt_api_error_t error = {0};

    if (lower(model, inputs, &lowered, &error) == BT_OK) {
        fail_msg("%s is accepted", inputs);
    }
    assert_int_equal(error.http_status, 400);
    if (strstr(error.message, part) == NULL) {
        fail_msg("%s: \"%s\" is not in \"%s\"", inputs, part, error.message);
    }
}

#define SIZE(n) T("prompt_vocab_size", "INT32", "[1,1]", "[" n "]")
#define TABLE(shape, data) \
    T("prompt_embedding_table", "FP32", shape, "[" data "]")
#define EXTRA(shape, data) \
    T("prompt_table_extra_ids", "UINT64", shape, "[" data "]")

static void rows_of_a_table_are_copied(void **state)
{
    static const char *const shapes[] = {
        IDS "," TABLE("[1,2,3]", "1,2,3,4,5,-0.5") "," SIZE("2"),
        IDS "," SIZE("2") "," TABLE("[2,3]", "1,2,3,4,5,-0.5"),
    };
    static const float want[] = {1, 2, 3, 4, 5, -0.5f};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(shapes); i++) {
        bt_tensor_requests_t l = accepted("tensorrt_llm", shapes[i]);
        const bt_table_rows_t *rows = &l.rows[0].table.rows->rows;

        assert_int_equal(rows->n, 2);
        assert_int_equal(rows->type, BT_TABLE_F32);
        assert_int_equal(bt_table_width(rows), 3);
        assert_memory_equal(rows->data, want, sizeof(want));
        bt_tensor_requests_fini(&l);
    }
}

static void each_row_of_a_batch_has_its_own_table(void **state)
{
    bt_tensor_requests_t l =
        accepted("tensorrt_llm",
                 T("input_ids", "INT32", "[2,1]", "[5,6]") "," TABLE(
                     "[2,1,2]", "1,2,3,4") "," T("prompt_vocab_size", "INT32",
                                                 "[2,1]", "[1,1]"));
    static const float want[2][2] = {{1, 2}, {3, 4}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_memory_equal(l.rows[i].table.rows->rows.data, want[i],
                            sizeof(want[i]));
    }
    bt_tensor_requests_fini(&l);
}

static void extra_ids_are_those_of_the_prompt(void **state)
{
    bt_tensor_requests_t l = accepted(
        "tensorrt_llm", IDS "," TABLE("[1,1,2]", "1,2") "," SIZE("1") "," EXTRA(
                            "[1,5]", "18446744073709551615,2,3,0,0"));
    const bt_api_table_t *table = &l.rows[0].table;

    (void)state;
    assert_int_equal(table->n_extra_ids, 3);
    assert_true(table->extra_ids[0] == UINT64_MAX);
    assert_true(table->extra_ids[2] == 3);
    bt_tensor_requests_fini(&l);
}

static void tables_that_ask_for_nothing_are_none(void **state)
{
    static const char *const off[] = {
        IDS "," SIZE("0"),
        IDS "," TABLE("[1,1,2]", "0,0"),
        IDS "," TABLE("[1,0,0]", ""),
        IDS "," EXTRA("[1,3]", "0,0,0"),
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(off); i++) {
        bt_tensor_requests_t l = accepted("tensorrt_llm", off[i]);

        assert_null(l.rows[0].table.rows);
        bt_tensor_requests_fini(&l);
    }
}

static void tables_that_do_not_fit_are_refused_by_name(void **state)
{
    static const struct {
        const char *inputs, *why;
    } bad[] = {
        {SIZE("1"), "input 'prompt_vocab_size' needs the input "
                    "'prompt_embedding_table'"},
        {TABLE("[1,1,2]", "1,2"), "input 'prompt_embedding_table' needs the "
                                  "input 'prompt_vocab_size'"},
        {TABLE("[1,1,2]", "1,2") "," SIZE("2"),
         "input 'prompt_vocab_size' is 2, but prompt_embedding_table has 1 "
         "rows"},
        {TABLE("[2]", "1,2") "," SIZE("2"),
         "input 'prompt_embedding_table' must have the shape [rows, width"},
        {TABLE("[2,1,2]", "1,2,3,4") "," SIZE("1"),
         "input 'prompt_embedding_table' must have the shape [rows, width"},
        {T("prompt_embedding_table", "INT32", "[1,1,2]", "[1,2]") "," SIZE("1"),
         "input 'prompt_embedding_table' must be FP16, BF16 or FP32, got "
         "INT32"},
        {SIZE("-1"), "input 'prompt_vocab_size' must be from 0 to"},
        {TABLE("[1,1,2]", "1,2") "," SIZE("1") "," EXTRA("[1,2]", "1,2"),
         "input 'prompt_table_extra_ids' has 2 ids a row, fewer than the 3"},
        {EXTRA("[1,3]", "0,1,0"), "input 'prompt_table_extra_ids' is of no "
                                  "use without prompt_embedding_table"},
    };
    char inputs[1024];

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        snprintf(inputs, sizeof(inputs), IDS ",%s", bad[i].inputs);
        refused("tensorrt_llm", inputs, bad[i].why);
    }
    refused("ensemble", TEXT "," TABLE("[1,1,2]", "1,2") "," SIZE("1"),
            "which only input_ids of model tensorrt_llm can have");
}

/* FP32 numbers that JSON has, and no float. */
static void numbers_that_are_not_finite_are_refused(void **state)
{
    float data[2] = {1.0f, 0.0f};
    const uint32_t nan = 0x7fc00000u;
    bt_infer_input_t inputs[3] = {0};
    bt_infer_request_t request = {
        .model = "tensorrt_llm", .inputs = inputs, .n_inputs = 3};
    bt_tensor_requests_t l;
    bt_api_error_t error = {0};

    (void)state;
    memcpy(&data[1], &nan, sizeof(nan));
    inputs[0].tensor = (bt_tensor_t){.name = "input_ids",
                                     .dtype = BT_DTYPE_INT32,
                                     .n_dims = 2,
                                     .dims = {1, 1},
                                     .data = &(int32_t){5},
                                     .bytes = 4};
    inputs[1].tensor = (bt_tensor_t){.name = "prompt_embedding_table",
                                     .dtype = BT_DTYPE_FP32,
                                     .n_dims = 3,
                                     .dims = {1, 1, 2},
                                     .data = data,
                                     .bytes = 8};
    inputs[2].tensor = (bt_tensor_t){.name = "prompt_vocab_size",
                                     .dtype = BT_DTYPE_INT32,
                                     .n_dims = 2,
                                     .dims = {1, 1},
                                     .data = &(int32_t){1},
                                     .bytes = 4};
    assert_int_equal(bt_tensors_to_requests(bt_model_spec("tensorrt_llm"),
                                            &request, &l, &error),
                     BT_ERR_INVALID_PARAM);
    assert_string_equal(
        error.message,
        "input 'prompt_embedding_table' has a number that is not finite");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(rows_of_a_table_are_copied),
        BT_TEST(each_row_of_a_batch_has_its_own_table),
        BT_TEST(extra_ids_are_those_of_the_prompt),
        BT_TEST(tables_that_ask_for_nothing_are_none),
        BT_TEST(tables_that_do_not_fit_are_refused_by_name),
        BT_TEST(numbers_that_are_not_finite_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
