/* SPDX-License-Identifier: Apache-2.0 */
/* Lines as text; the form is that of OpenAI's guide to the Batch API. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "router/batch/batch_priv.h"

#define GOOD                                                              \
    "{\"custom_id\":\"request-1\",\"method\":\"POST\",\"url\":\"/v1/chat" \
    "/completions\",\"body\":{\"model\":\"m\",\"n\":1.0}}"

static char custom_id[BT_BATCH_ID_CHARS + 1];
static bt_batch_fault_t fault;

static bt_status_t parse(const char *text, bt_strbuf_t *body)
{
    fault = (bt_batch_fault_t){.code = ""};
    return bt_batch_line_parse(text, strlen(text),
                               bt_batch_endpoint("/v1/chat/completions"),
                               custom_id, body, &fault);
}

static void line_has_id_and_body(void **state)
{
    bt_strbuf_t body;

    (void)state;
    bt_strbuf_init(&body, 1000);
    assert_int_equal(parse(GOOD "\r\n", &body), BT_OK);
    assert_string_equal(custom_id, "request-1");
    /* The body is the client's, byte for byte. */
    assert_string_equal(body.data, "{\"model\":\"m\",\"n\":1.0}");
    bt_strbuf_fini(&body);
}

static void line_is_refused_with_its_cause(void **state)
{
    static const struct {
        const char *text, *code, *param;
    } cases[] = {
        {"", "invalid_json_line", NULL},
        {"{", "invalid_json_line", NULL},
        {"[]", "invalid_json_line", NULL},
        {GOOD "x", "invalid_json_line", NULL},
        {"{}", "invalid_custom_id", "custom_id"},
        {"{\"custom_id\":1}", "invalid_custom_id", "custom_id"},
        {"{\"custom_id\":\"\"}", "invalid_custom_id", "custom_id"},
        {"{\"custom_id\":\"a\\u0000\"}", "invalid_custom_id", "custom_id"},
        {"{\"custom_id\":\"a\"}", "invalid_method", "method"},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/x\"}",
         "mismatched_endpoint", "url"},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/"
         "completions\",\"body\":[]}",
         "invalid_body", "body"},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/"
         "completions\",\"body\":{\"stream\":true}}",
         "invalid_body", "body.stream"},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/"
         "completions\",\"body\":{\"stream\":null},\"seed\":1}",
         "unknown_parameter", NULL},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(parse(cases[i].text, NULL), BT_ERR_INVALID_PARAM);
        assert_string_equal(fault.code, cases[i].code);
        assert_true((fault.param == NULL) == (cases[i].param == NULL));
        if (fault.param != NULL) {
            assert_string_equal(fault.param, cases[i].param);
        }
        assert_string_not_equal(fault.why, "");
    }
    assert_non_null(strstr(fault.why, "seed is no member of a line"));
}

static void custom_id_has_a_limit(void **state)
{
    char text[BT_BATCH_ID_CHARS + 200];

    (void)state;
    for (int more = 0; more < 2; more++) {
        snprintf(text, sizeof(text),
                 "{\"method\":\"POST\",\"url\":\"/v1/chat/completions\","
                 "\"body\":{},\"custom_id\":\"%0*d\"}",
                 BT_BATCH_ID_CHARS + more, 7);
        assert_int_equal(parse(text, NULL),
                         (more == 0) ? BT_OK : BT_ERR_INVALID_PARAM);
    }
}

static void results_are_lines_of_json(void **state)
{
    bt_batch_line_t line = {.index = 0x01020304, .custom_id = (char[]){"a\"b"}};
    bt_batch_result_t *result =
        bt_batch_result_answer(&line, "req", 200, "{\"x\":1}", 7);
    bt_strbuf_t out;
    const char *text;

    (void)state;
    assert_non_null(result);
    assert_true(result->ok);
    assert_memory_equal(result->record.data, "R\x04\x03\x02\x01\x01", 6);
    text = result->record.data + BT_BATCH_RESULT_HEAD;
    assert_int_equal(strncmp(text, "{\"id\":\"batch_req_", 17), 0);
    assert_string_equal(text + 17 + 32,
                        "\",\"custom_id\":\"a\\\"b\",\"response\":{"
                        "\"status_code\":200,\"request_id\":\"req\",\"body\":"
                        "{\"x\":1}},\"error\":null}\n");
    bt_batch_result_free(result);
    result = bt_batch_result_answer(&line, "req", 404, "{}", 2);
    assert_false(result->ok);
    bt_batch_result_free(result);

    bt_strbuf_init(&out, 1000);
    bt_batch_write_unanswered("c", "batch_expired", "Late.", &out);
    assert_string_equal(out.data + 17 + 32,
                        "\",\"custom_id\":\"c\",\"response\":null,\"error\":{"
                        "\"code\":\"batch_expired\",\"message\":\"Late.\"}}\n");
    bt_strbuf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(line_has_id_and_body),
        BT_TEST(line_is_refused_with_its_cause),
        BT_TEST(custom_id_has_a_limit),
        BT_TEST(results_are_lines_of_json),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
