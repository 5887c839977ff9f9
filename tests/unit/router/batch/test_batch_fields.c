/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/status.h"
#include "router/batch/batch.h"

#define GOOD                                                         \
    "\"input_file_id\":\"file-1\",\"endpoint\":\"/v1/completions\"," \
    "\"completion_window\":\"24h\""

static bt_batch_fields_t fields;
static bt_api_error_t error;

static bt_status_t read_fields(const char *text)
{
    error = (bt_api_error_t){0};
    return bt_batch_fields_read(text, strlen(text), &fields, &error);
}

static void fields_are_read(void **state)
{
    (void)state;
    assert_int_equal(read_fields("{" GOOD "}"), BT_OK);
    assert_string_equal(fields.input_id, "file-1");
    assert_string_equal(fields.endpoint, "/v1/completions");
    assert_int_equal(fields.metadata.len, 0);
    assert_int_equal(fields.life_s, 0);
    bt_batch_fields_fini(&fields);
    /* Of equal keys the last counts. */
    assert_int_equal(
        read_fields("{" GOOD ",\"metadata\":{\"a\":\"1\",\"b\":\"\\\"\","
                    "\"a\":\"2\"},\"output_expires_after\":{\"anchor\":"
                    "\"created_at\",\"seconds\":3600}}"),
        BT_OK);
    assert_string_equal(fields.metadata.data, "{\"b\":\"\\\"\",\"a\":\"2\"}");
    assert_int_equal(fields.life_s, 3600);
    bt_batch_fields_fini(&fields);
    assert_int_equal(read_fields("{" GOOD ",\"metadata\":null,"
                                 "\"output_expires_after\":null}"),
                     BT_OK);
    bt_batch_fields_fini(&fields);
}

static void fields_are_refused_by_name(void **state)
{
    static const struct {
        const char *text, *param, *part;
    } cases[] = {
        {"", NULL, "the body is not JSON"},
        {"[]", NULL, "no JSON object"},
        {"{}", "input_file_id", "missing"},
        {"{\"input_file_id\":\"f\"}", "completion_window", "missing"},
        {"{\"input_file_id\":\"f\",\"completion_window\":\"24h\"}", "endpoint",
         "must be /v1/chat/completions"},
        {"{" GOOD ",\"endpoint\":\"/v1/embeddings\"}", "endpoint",
         "must be /v1/chat/completions"},
        {"{" GOOD ",\"completion_window\":\"1h\"}", "completion_window",
         "must be 24h"},
        {"{" GOOD ",\"input_file_id\":1}", "input_file_id", "must be a text"},
        {"{" GOOD ",\"metadata\":[]}", "metadata", "at most 16 texts"},
        {"{" GOOD ",\"metadata\":{\"a\":null}}", "metadata",
         "texts of at most 512"},
        {"{" GOOD ",\"output_expires_after\":{\"anchor\":\"created_at\","
         "\"seconds\":3599}}",
         "output_expires_after", "3600 to 2592000"},
        {"{" GOOD ",\"output_expires_after\":{\"seconds\":3600}}",
         "output_expires_after", "anchor"},
        {"{" GOOD ",\"priority\":1}", NULL, "priority is no field"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(read_fields(cases[i].text), BT_ERR_INVALID_PARAM);
        assert_int_equal(error.http_status, 400);
        assert_non_null(strstr(error.message, cases[i].part));
        assert_true((error.param == NULL) == (cases[i].param == NULL));
        if (error.param != NULL) {
            assert_string_equal(error.param, cases[i].param);
        }
        bt_batch_fields_fini(&fields);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(fields_are_read),
        BT_TEST(fields_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
