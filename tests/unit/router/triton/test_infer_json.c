/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and responses of infer as HTTP has them. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/triton/infer_json.h"

static bt_status_t parse(const char *json, const void *raw, size_t raw_bytes,
                         bt_infer_request_t *request, bt_api_error_t *error)
{
    const bt_infer_http_t http = {.has_json_bytes = raw_bytes > 0,
                                  .json_bytes = strlen(json)};
    bt_strbuf_t body;
    bt_status_t status;

    bt_strbuf_init(&body, 1u << 20);
    bt_strbuf_append(&body, json, strlen(json));
    bt_strbuf_append(&body, raw, raw_bytes);
    status = bt_infer_parse_json(&http, &body, request, error);
    bt_strbuf_fini(&body);
    return status;
}

static void refused(const char *json, const char *part)
{
    bt_infer_request_t request;
    bt_api_error_t error = {0};

    assert_int_equal(parse(json, NULL, 0, &request, &error),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(error.http_status, 400);
    if (strstr(error.message, part) == NULL) {
        fail_msg("%s: \"%s\" is not in \"%s\"", json, part, error.message);
    }
}

static void accepted(const char *json, bt_infer_request_t *request)
{
    bt_api_error_t error = {0};

    if (parse(json, NULL, 0, request, &error) != BT_OK) {
        fail_msg("%s: %s", json, error.message);
    }
}

static void whole_request_is_parsed(void **state)
{
    bt_infer_request_t r;
    const char *text;
    size_t bytes;
    size_t at = 0;
    int64_t value = 0;

    (void)state;
    accepted("{\"id\":\"42\",\"parameters\":{\"priority\":3,\"x\":\"y\","
             "\"on\":true,\"half\":0.5,\"binary_data_output\":true,"
             "\"list\":[1]},\"more\":{\"a\":[{}]},"
             "\"inputs\":[{\"name\":\"a\",\"shape\":[1,2],\"datatype\":"
             "\"BYTES\",\"data\":[[\"x\\u00e9\\ud83d\\ude00\",\"\"]]},"
             "{\"data\":[1,-2,3],\"name\":\"b\",\"datatype\":\"INT32\","
             "\"shape\":[3]}],"
             "\"outputs\":[{\"name\":\"o\",\"parameters\":"
             "{\"binary_data\":false}}]}",
             &r);
    assert_string_equal(r.id, "42");
    assert_int_equal(r.params.n, 5);
    assert_int_equal(bt_infer_param(&r.params, "priority")->integer, 3);
    assert_string_equal(bt_infer_param(&r.params, "x")->text, "y");
    assert_true(bt_infer_param(&r.params, "on")->boolean);
    assert_true(bt_infer_param(&r.params, "half")->real == 0.5);
    assert_true(r.binary);
    assert_int_equal(r.n_inputs, 2);
    assert_true(bt_tensor_next_bytes(&r.inputs[0].tensor, &at, &text, &bytes));
    assert_int_equal(bytes, 7);
    assert_memory_equal(text, "x\xC3\xA9\xF0\x9F\x98\x80", 7);
    assert_int_equal(bt_tensor_i64(&r.inputs[1].tensor, 1, &value), BT_OK);
    assert_int_equal(value, -2);
    assert_int_equal(r.n_wanted, 1);
    assert_false(r.wanted[0].binary);
    bt_infer_request_fini(&r);
}

static void raw_inputs_follow_json_in_order(void **state)
{
    static const char json[] =
        "{\"inputs\":[{\"name\":\"a\",\"shape\":[1],\"datatype\":\"INT32\","
        "\"parameters\":{\"binary_data_size\":4}},"
        "{\"name\":\"j\",\"shape\":[1],\"datatype\":\"BOOL\",\"data\":[true]},"
        "{\"name\":\"b\",\"shape\":[1],\"datatype\":\"BYTES\","
        "\"parameters\":{\"binary_data_size\":6}}]}";
    static const char raw[] = "\x07\0\0\0\x02\0\0\0ok";
    bt_infer_request_t r;
    bt_api_error_t error = {0};
    int64_t value = 0;
    size_t at = 0;
    size_t bytes;
    const char *text;

    (void)state;
    assert_int_equal(parse(json, raw, 10, &r, &error), BT_OK);
    assert_int_equal(bt_tensor_i64(&r.inputs[0].tensor, 0, &value), BT_OK);
    assert_int_equal(value, 7);
    assert_true(bt_tensor_next_bytes(&r.inputs[2].tensor, &at, &text, &bytes));
    assert_int_equal(bytes, 2);
    assert_memory_equal(text, "ok", 2);
    bt_infer_request_fini(&r);

    assert_int_equal(parse(json, raw, 9, &r, &error), BT_ERR_INVALID_PARAM);
    assert_non_null(strstr(error.message, "5 bytes are left"));
    assert_int_equal(parse(json, raw, 11, &r, &error), BT_ERR_INVALID_PARAM);
    assert_non_null(strstr(error.message, "belong to no input"));
}

static void member_that_is_null_is_absent_beside_another(void **state)
{
    bt_infer_request_t r;

    (void)state;
    accepted("{\"inputs\":null,\"inputs\":[{\"name\":\"a\",\"shape\":[1],"
             "\"datatype\":\"INT32\",\"data\":[1]}],\"outputs\":null}",
             &r);
    assert_int_equal(r.n_inputs, 1);
    bt_infer_request_fini(&r);
}

static void json_length_beyond_body_is_refused(void **state)
{
    const bt_infer_http_t http = {.has_json_bytes = true, .json_bytes = 3};
    bt_infer_request_t r;
    bt_api_error_t error = {0};
    bt_strbuf_t body;

    (void)state;
    bt_strbuf_init(&body, 16);
    bt_strbuf_puts(&body, "{}");
    assert_int_equal(bt_infer_parse_json(&http, &body, &r, &error),
                     BT_ERR_INVALID_PARAM);
    assert_non_null(strstr(error.message, "Inference-Header-Content-Length"));
    bt_strbuf_fini(&body);
}

#define INPUT(rest) "{\"inputs\":[{\"name\":\"a\"," rest "}]}"
#define ONE(type, data) \
    INPUT("\"shape\":[1],\"datatype\":\"" type "\",\"data\":" data)

static void malformed_request_is_refused_with_position(void **state)
{
    (void)state;
    refused("", "the end where a value is due");
    refused("[[[[[[[[", "the end where a value is due");
    refused("[]", "an object is expected");
    refused("{\"inputs\":[]} x", "more behind");
    refused("{}", "unable to find 'inputs'");
    refused("{\"inputs\":[}", "at byte 11");
    refused("{\"inputs\":[],\"id\":\"\xff\"}", "UTF-8");
    refused("{\"inputs\":[],\"id\":5}", "a string is expected");
    refused("{\"inputs\":[],\"x\":01}", "neither a comma nor an end");
    refused("{\"inputs\":[],\"x\":1.}", "without digits");
    refused("{\"inputs\":[],\"x\":tru}", "no value");
    refused("{\"inputs\":[],\"inputs\":[]}", "twice");
    refused("{\"inputs\":[{\"shape\":[1],\"datatype\":\"INT32\"}]}", "'name'");
    refused(INPUT("\"shape\":[1]"), "'datatype'");
    refused(INPUT("\"datatype\":\"INT32\""), "'shape'");
    refused(INPUT("\"shape\":[1],\"datatype\":\"INT33\""), "INT33");
    refused(INPUT("\"shape\":[-1],\"datatype\":\"INT32\""), "'shape'");
    refused(INPUT("\"shape\":[1],\"datatype\":\"INT32\""), "'data'");
    refused(INPUT("\"shape\":[1,1,1,1,1,1,1,1,1],\"datatype\":\"INT32\""),
            "more than 8");
    refused(INPUT("\"shape\":[4294967296,4294967296],\"datatype\":\"INT8\","
                  "\"data\":[]"),
            "too large");
    refused(INPUT("\"shape\":[1000000],\"datatype\":\"INT8\",\"data\":[1]"),
            "fewer");
    refused(INPUT("\"shape\":[2],\"datatype\":\"INT8\",\"data\":[1]"),
            "has 1 elements");
    refused(ONE("INT8", "[1,2]"), "more than the 1");
    refused("{\"inputs\":[],\"outputs\":[{}]}", "'name' of an output");
    refused("{\"inputs\":[],\"outputs\":[{\"name\":\"a\",\"parameters\":"
            "{\"classification\":2}}]}",
            "classification");
}

static void values_outside_datatype_are_refused(void **state)
{
    bt_infer_request_t r;
    uint64_t bits = 0;

    (void)state;
    refused(ONE("INT8", "[128]"), "INT8");
    refused(ONE("INT8", "[-129]"), "INT8");
    refused(ONE("UINT8", "[-1]"), "UINT8");
    refused(ONE("UINT8", "[256]"), "UINT8");
    refused(ONE("INT32", "[1.5]"), "INT32");
    refused(ONE("INT32", "[null]"), "number is expected");
    refused(ONE("INT32", "[\"1\"]"), "number is expected");
    refused(ONE("BOOL", "[\"x\"]"), "true or false");
    refused(ONE("BYTES", "[1]"), "a string is expected");
    refused(ONE("FP16", "[1]"), "FP16");
    refused(ONE("UINT64", "[18446744073709551616]"), "UINT64");
    accepted(ONE("UINT64", "[18446744073709551615]"), &r);
    assert_int_equal(bt_tensor_u64(&r.inputs[0].tensor, 0, &bits), BT_OK);
    assert_true(bits == UINT64_MAX);
    bt_infer_request_fini(&r);
    accepted(ONE("INT64", "[-9223372036854775808]"), &r);
    bt_infer_request_fini(&r);
    accepted(ONE("INT8", "[-128]"), &r);
    bt_infer_request_fini(&r);
    accepted(ONE("INT32", "3.0"), &r); /* no array: one element */
    bt_infer_request_fini(&r);
}

static void inputs_over_limit_are_refused(void **state)
{
    bt_strbuf_t text;

    (void)state;
    bt_strbuf_init(&text, 1u << 20);
    bt_strbuf_puts(&text, "{\"inputs\":[");
    for (int i = 0; i <= BT_INFER_MAX_INPUTS; i++) {
        bt_strbuf_printf(&text,
                         "%s{\"name\":\"%d\",\"shape\":[1],\"datatype\":"
                         "\"INT8\",\"data\":[1]}",
                         (i > 0) ? "," : "", i);
    }
    bt_strbuf_puts(&text, "]}");
    refused(text.data, "more than 96 inputs");
    bt_strbuf_fini(&text);
}

/* Writes a whole response. @return size of the JSON if raw data follows, else 0
 */
static size_t write_json(const bt_infer_response_t *response, bt_strbuf_t *out)
{
    const size_t from = out->len;
    size_t json_bytes;
    bt_json_t json;

    bt_json_init(&json, out);
    json_bytes = bt_infer_put_json(response, &json) ? out->len - from : 0;
    bt_infer_append_raw(response, out);
    return json_bytes;
}

static void outputs_are_json_or_raw_as_requested(void **state)
{
    static const uint8_t text[] = {2, 0, 0, 0, 'h', 'i'};
    static const int32_t ids[] = {5, -7};
    static const float real[] = {0.5f};
    bt_infer_wanted_t wanted[] = {
        {.name = "text", .binary = true}, {.name = "ids"}, {.name = "real"}};
    const bt_infer_request_t request = {.wanted = wanted, .n_wanted = 3};
    bt_tensor_t outputs[] = {
        {.name = "text",
         .dtype = BT_DTYPE_BYTES,
         .n_dims = 1,
         .dims = {1},
         .data = text,
         .bytes = sizeof(text)},
        {.name = "ids",
         .dtype = BT_DTYPE_INT32,
         .n_dims = 2,
         .dims = {1, 2},
         .data = ids,
         .bytes = sizeof(ids)},
        {.name = "real",
         .dtype = BT_DTYPE_FP32,
         .n_dims = 1,
         .dims = {1},
         .data = real,
         .bytes = sizeof(real)},
    };
    const bt_infer_response_t response = {.model = "m",
                                          .version = "1",
                                          .id = "7",
                                          .request = &request,
                                          .outputs = outputs,
                                          .n_outputs = 3};
    static const char expected[] =
        "{\"id\":\"7\",\"model_name\":\"m\",\"model_version\":\"1\","
        "\"outputs\":[{\"name\":\"text\",\"datatype\":\"BYTES\",\"shape\":[1],"
        "\"parameters\":{\"binary_data_size\":6}},"
        "{\"name\":\"ids\",\"datatype\":\"INT32\",\"shape\":[1,2],"
        "\"data\":[5,-7]},{\"name\":\"real\",\"datatype\":\"FP32\","
        "\"shape\":[1],\"data\":[0.5]}]}";
    bt_strbuf_t out;
    size_t json_bytes;

    (void)state;
    bt_strbuf_init(&out, 4096);
    json_bytes = write_json(&response, &out);
    assert_int_equal(json_bytes, strlen(expected));
    assert_memory_equal(out.data, expected, json_bytes);
    assert_int_equal(out.len, json_bytes + sizeof(text));
    assert_memory_equal(out.data + json_bytes, text, sizeof(text));
    bt_strbuf_reset(&out);
    wanted[0].binary = false;
    json_bytes = write_json(&response, &out);
    assert_int_equal(json_bytes, 0);
    assert_non_null(strstr(out.data, "\"data\":[\"hi\"]"));
    /* In shared memory: where, and how much of it is used. */
    bt_strbuf_reset(&out);
    wanted[0] = (bt_infer_wanted_t){
        .name = "text",
        .binary = true,
        .region = {.name = "re\"g", .offset = 9, .bytes = 100}};
    wanted[1].region = (bt_infer_region_t){.name = "r", .bytes = 8};
    outputs[0].data = NULL;
    outputs[1].data = NULL;
    json_bytes = write_json(&response, &out);
    assert_int_equal(json_bytes, 0);
    assert_string_equal(
        out.data,
        "{\"id\":\"7\",\"model_name\":\"m\",\"model_version\":\"1\","
        "\"outputs\":[{\"name\":\"text\",\"datatype\":\"BYTES\",\"shape\":[1],"
        "\"parameters\":{\"shared_memory_region\":\"re\\\"g\","
        "\"shared_memory_offset\":9,\"shared_memory_byte_size\":6}},"
        "{\"name\":\"ids\",\"datatype\":\"INT32\",\"shape\":[1,2],"
        "\"parameters\":{\"shared_memory_region\":\"r\","
        "\"shared_memory_byte_size\":8}},{\"name\":\"real\",\"datatype\":"
        "\"FP32\",\"shape\":[1],\"data\":[0.5]}]}");
    bt_strbuf_fini(&out);
}

static void failed_allocation_gives_error(void **state)
{
    static const char json[] =
        "{\"id\":\"a\",\"parameters\":{\"p\":\"q\"},\"inputs\":[{\"name\":"
        "\"a\",\"shape\":[1],\"datatype\":\"BYTES\",\"data\":[\"x\"]},"
        "{\"name\":\"b\",\"shape\":[1],\"datatype\":\"INT8\",\"data\":[1]}],"
        "\"outputs\":[{\"name\":\"o\"}]}";
    const bt_infer_http_t http = {0};
    bt_status_t status = BT_ERR_NO_MEMORY;
    int n = 0;

    (void)state;
    while (status != BT_OK) {
        bt_infer_request_t r;
        bt_api_error_t error = {0};
        bt_strbuf_t body;

        bt_strbuf_init(&body, 4096);
        bt_strbuf_puts(&body, json);
        bt_alloc_fail_at(++n);
        status = bt_infer_parse_json(&http, &body, &r, &error);
        bt_alloc_fail_at(0);
        if (status == BT_OK) {
            bt_infer_request_fini(&r);
        } else {
            assert_true(error.http_status >= 400);
        }
        bt_strbuf_fini(&body);
    }
    assert_true(n > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_request_is_parsed),
        cmocka_unit_test(member_that_is_null_is_absent_beside_another),
        cmocka_unit_test(raw_inputs_follow_json_in_order),
        cmocka_unit_test(json_length_beyond_body_is_refused),
        cmocka_unit_test(malformed_request_is_refused_with_position),
        cmocka_unit_test(values_outside_datatype_are_refused),
        cmocka_unit_test(inputs_over_limit_are_refused),
        cmocka_unit_test(outputs_are_json_or_raw_as_requested),
        cmocka_unit_test(failed_allocation_gives_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
