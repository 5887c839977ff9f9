/* SPDX-License-Identifier: Apache-2.0 */
/* Lines as text; the form is that of OpenAI's guide to the Batch API. */
#include "tests/support/testsupport.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/batch/batch_priv.h"

#define GOOD                                                              \
    "{\"custom_id\":\"request-1\",\"method\":\"POST\",\"url\":\"/v1/chat" \
    "/completions\",\"body\":{\"model\":\"m\",\"n\":1.0}}"

static char custom_id[BT_BATCH_ID_CHARS + 1];
static bt_batch_fault_t fault;

#define MOST 4000000 /* bytes of a body */

static bt_status_t parse_text(const bt_batch_text_t *line, bt_strbuf_t *body)
{
    fault = (bt_batch_fault_t){.code = ""};
    custom_id[0] = '\0';
    return bt_batch_line_parse(line, bt_batch_endpoint("/v1/chat/completions"),
                               MOST, custom_id, body, &fault);
}

static bt_status_t parse(const char *text, bt_strbuf_t *body)
{
    const bt_batch_text_t line = {.text = text, .bytes = strlen(text)};

    return parse_text(&line, body);
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

/* A part that cannot be read is the client's own loss, if the line has a name.
 */
static void line_that_is_cut_is_answered_by_its_id(void **state)
{
    static const struct {
        const char *text, *id;
    } cases[] = {
        {"{\"custom_id\":\"a\",\"body\":{\"x", "a"},
        {" {\"body\" : {\"custom_id\":\"no\",\"b\":[{}]} , \"custom_id\" : "
         "\"\\u0061\\\"\" ,\"url\":\"",
         "a\""},
        {"{\"x\":\"}\\\",\",\"y\":[\"]\"],\"custom_id\":\"a\",1", "a"},
        {"{\"custom_id\":\"a\",\"custom_id\":\"b\",\"method\":", "b"},
        {"{\"custom_id\":\"a", NULL},
        {"{\"custom_id\":\"a\"", NULL},
        {"{\"custom_id\":\"\",\"body\":{", NULL},
        {"{\"custom_id\":1,\"body\":{", NULL},
        {"{\"body\":{\"custom_id\":\"a\",", NULL},
        {"{\"body\":\"\\", NULL},
        {"[\"custom_id\":\"a\",", NULL},
        {"\"custom_id\":\"a\",", NULL},
        {"{", NULL},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const bt_batch_text_t line = {cases[i].text, strlen(cases[i].text),
                                      true};
        const bt_status_t status = parse_text(&line, NULL);

        if (cases[i].id == NULL) {
            assert_int_equal(status, BT_ERR_INVALID_PARAM);
            assert_string_equal(fault.code, "invalid_custom_id");
        } else {
            assert_int_equal(status, BT_ERR_TOO_LARGE);
            assert_string_equal(custom_id, cases[i].id);
            assert_non_null(strstr(fault.refusal, "--max-body-bytes"));
        }
    }
}

/* Those of a request, to the last one. */
static void body_has_a_limit_of_values_and_bytes(void **state)
{
    static const char head[] =
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/"
        "completions\",\"body\":{\"x\":[";
    static char text[MOST + 1000];
    bt_status_t status;

    (void)state;
    for (uint32_t more = 0; more < 2; more++) {
        /* The body and its list are values, too. */
        const uint32_t n = BT_API_MAX_VALUES - 2 + more;
        char *at = text + snprintf(text, sizeof(text), "%s", head);

        for (uint32_t i = 0; i < n; i++) {
            *at++ = '1';
            *at++ = ',';
        }
        snprintf(at - 1, 8, "]}}");
        status = parse(text, NULL);
        assert_int_equal(status, (more == 0) ? BT_OK : BT_ERR_TOO_LARGE);
    }
    assert_string_equal(custom_id, "a");
    assert_non_null(strstr(fault.refusal, "1048576 values"));
    for (size_t more = 0; more < 2; more++) {
        char *at = text + snprintf(text, sizeof(text), "%s\"", head);
        const size_t n = MOST - strlen("{'x':['']}") + more;

        memset(at, 'x', n);
        snprintf(at + n, 8, "\"]}}");
        status = parse(text, NULL);
        assert_int_equal(status, (more == 0) ? BT_OK : BT_ERR_TOO_LARGE);
    }
    assert_string_equal(custom_id, "a");
    assert_non_null(strstr(fault.refusal, "--max-body-bytes"));
}

static void answer_has_a_limit(void **state)
{
    bt_batch_line_t line = {.custom_id = (char[]){"a"}};
    bt_batch_result_t *result = NULL;
    const size_t n = BT_ANSWER_LIMIT + 65536;
    char *answer = malloc(n);

    (void)state;
    assert_non_null(answer);
    memset(answer, '1', n);
    assert_int_equal(
        bt_batch_result_answer(&line, "req", 200, answer, n, &result),
        BT_ERR_TOO_LARGE);
    assert_null(result);
    bt_alloc_fail_at(1);
    assert_int_equal(
        bt_batch_result_answer(&line, "req", 200, "{}", 2, &result),
        BT_ERR_NO_MEMORY);
    bt_alloc_fail_at(0);
    free(answer);
}

static void results_are_lines_of_json(void **state)
{
    bt_batch_line_t line = {.index = 0x01020304, .custom_id = (char[]){"a\"b"}};
    bt_batch_result_t *result = NULL;
    bt_strbuf_t out;
    const char *text;

    (void)state;
    assert_int_equal(
        bt_batch_result_answer(&line, "req", 200, "{\"x\":1}", 7, &result),
        BT_OK);
    assert_true(result->ok);
    assert_memory_equal(result->record.data, "R\x04\x03\x02\x01\x01", 6);
    text = result->record.data + BT_BATCH_RESULT_HEAD;
    assert_int_equal(strncmp(text, "{\"id\":\"batch_req_", 17), 0);
    assert_string_equal(text + 17 + 32,
                        "\",\"custom_id\":\"a\\\"b\",\"response\":{"
                        "\"status_code\":200,\"request_id\":\"req\",\"body\":"
                        "{\"x\":1}},\"error\":null}\n");
    bt_batch_result_free(result);
    assert_int_equal(
        bt_batch_result_answer(&line, "req", 404, "{}", 2, &result), BT_OK);
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
        BT_TEST(line_that_is_cut_is_answered_by_its_id),
        BT_TEST(body_has_a_limit_of_values_and_bytes),
        BT_TEST(answer_has_a_limit),
        BT_TEST(results_are_lines_of_json),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
