/* SPDX-License-Identifier: Apache-2.0 */
/* LoRA adapters by tensors: types, shapes, and what does not go together. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/adapter/adapter_tensors.h"
#include "router/triton/infer_json.h"
#include "router/triton/tensors_to_requests.h"

static bt_status_t lower(const char *inputs, bt_tensor_requests_t *lowered,
                         bt_api_error_t *error)
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
    snprintf(request.model, sizeof(request.model), "ensemble");
    status = bt_tensors_to_requests(bt_model_spec("ensemble"), &request,
                                    lowered, error);
    bt_infer_request_fini(&request);
    return status;
}

#define T(name, type, shape, data)                                      \
    "{\"name\":\"" name "\",\"datatype\":\"" type "\",\"shape\":" shape \
    ",\"data\":" data "}"
#define TEXT                 T("text_input", "BYTES", "[1,1]", "[\"hi\"]")
#define TASK                 "," T("lora_task_id", "UINT64", "[1,1]", "[7]")
#define WEIGHTS(shape, data) "," T("lora_weights", "FP32", shape, data)
#define CONFIG(shape, data)  "," T("lora_config", "INT32", shape, data)

static bt_tensor_requests_t accepted(const char *inputs)
{
    bt_tensor_requests_t lowered;
    bt_api_error_t error = {0};

    if (lower(inputs, &lowered, &error) != BT_OK) {
        fail_msg("%s: %s", inputs, error.message);
    }
    return lowered;
}

static void refused(const char *inputs, const char *part)
{
    bt_tensor_requests_t lowered;
    bt_api_error_t error = {0};

    if (lower(inputs, &lowered, &error) == BT_OK) {
        fail_msg("%s is accepted", inputs);
    }
    assert_int_equal(error.http_status, 400);
    if (strstr(error.message, part) == NULL) {
        fail_msg("%s: \"%s\" is not in \"%s\"", inputs, part, error.message);
    }
}

static void tensors_are_copied(void **state)
{
    bt_tensor_requests_t l = accepted(TEXT TASK WEIGHTS(
        "[1,2,3]", "[1,2,3,4,5,6]") CONFIG("[1,2,3]", "[1,0,1,2,0,1]"));
    const bt_adapter_tensors_t *t = l.rows[0].lora.tensors;
    const float weights[] = {1, 2, 3, 4, 5, 6};
    const int32_t config[] = {1, 0, 1, 2, 0, 1};
    bt_hash128_t hash;

    (void)state;
    assert_true(l.rows[0].lora.has_task);
    assert_int_equal(l.rows[0].lora.task_id, 7);
    assert_false(l.rows[0].lora.is_blank);
    assert_int_equal(t->type, BT_ADAPTER_F32);
    assert_int_equal(t->n_rows, 2);
    assert_int_equal(t->n_columns, 3);
    assert_int_equal(t->width, 3);
    assert_memory_equal(t->weights, weights, sizeof(weights));
    assert_memory_equal(t->config, config, sizeof(config));
    hash = t->hash;
    bt_tensor_requests_fini(&l);
    /* Other numbers, another hash. */
    l = accepted(TEXT TASK WEIGHTS("[2,3]", "[1,2,3,4,5,7]")
                     CONFIG("[2,3]", "[1,0,1,2,0,1]"));
    assert_false(bt_hash128_equal(hash, l.rows[0].lora.tensors->hash));
    bt_tensor_requests_fini(&l);
}

static void id_alone_names_a_task(void **state)
{
    bt_tensor_requests_t l = accepted(
        TEXT "," T("lora_task_id", "UINT64", "[1]", "[18446744073709551615]"));

    (void)state;
    assert_true(l.rows[0].lora.has_task);
    assert_true(l.rows[0].lora.task_id == UINT64_MAX);
    assert_null(l.rows[0].lora.tensors);
    bt_tensor_requests_fini(&l);
    refused(TEXT "," T("lora_task_id", "UINT64", "[1,2]", "[1,2]"),
            "must have one value");
    refused(TEXT "," T("lora_task_id", "FP32", "[1,1]", "[0.5]"),
            "must be an integer");
}

static void zeros_say_nothing(void **state)
{
    static const char *const all[] = {
        TEXT "," T("lora_task_id", "UINT64", "[1,1]", "[0]"),
        TEXT WEIGHTS("[1,1,1]", "[0]"),
        TEXT CONFIG("[1,1,3]", "[0,0,0]"),
        TEXT WEIGHTS("[1,0,5]", "[]"),
        TEXT "," T("lora_task_id", "UINT64", "[1,1]", "[0]")
            WEIGHTS("[1,1,1]", "[0]") CONFIG("[1,1,3]", "[0,0,0]"),
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(all); i++) {
        bt_tensor_requests_t l = accepted(all[i]);

        assert_true(l.rows[0].lora.is_blank);
        bt_tensor_requests_fini(&l);
    }
}

static void tensors_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    refused(TEXT WEIGHTS("[1,1,1]", "[1]"),
            "input 'lora_weights' is of no use");
    refused(TEXT CONFIG("[1,1,3]", "[1,0,1]"),
            "lora_task_id must be set for LoRA inference");
    refused(TEXT TASK WEIGHTS("[1,1,1]", "[1]"),
            "'lora_weights' needs the input 'lora_config'");
    refused(TEXT TASK CONFIG("[1,1,3]", "[1,0,1]"),
            "'lora_config' needs the input 'lora_weights'");
    refused(TEXT TASK WEIGHTS("[3]", "[1,2,3]") CONFIG("[1,3]", "[1,0,1]"),
            "'lora_weights' must have the shape");
    refused(TEXT TASK WEIGHTS("[2,1,3]", "[1,2,3,4,5,6]")
                CONFIG("[1,3]", "[1,0,1]"),
            "'lora_weights' must have the shape");
    refused(TEXT TASK WEIGHTS("[1,3]", "[1,2,3]") CONFIG("[1,2]", "[1,0]"),
            "Expected dim2 of lora_keys to have a size in [3, 4]");
    refused(TEXT TASK WEIGHTS("[1,3]", "[1,2,3]")
                CONFIG("[2,3]", "[1,0,1,2,0,1]"),
            "Expected dim1 lora_weights and lora_keys to have the same size");
    refused(TEXT TASK "," T("lora_weights", "INT32", "[1,3]", "[1,2,3]")
                CONFIG("[1,3]", "[1,0,1]"),
            "must be FP16, BF16 or FP32, got INT32");
    refused(TEXT TASK WEIGHTS("[1,3]", "[1,2,3]") "," T("lora_config", "INT64",
                                                        "[1,3]", "[1,0,1]"),
            "must be INT32, got INT64");
    refused(T("text_input", "BYTES", "[2,1]", "[\"a\",\"b\"]")
                TASK WEIGHTS("[1,1,3]", "[1,2,3]") CONFIG("[1,1,3]", "[1,0,1]"),
            "must come in a batch of one row");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(tensors_are_copied),
        BT_TEST(id_alone_names_a_task),
        BT_TEST(zeros_say_nothing),
        BT_TEST(tensors_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
