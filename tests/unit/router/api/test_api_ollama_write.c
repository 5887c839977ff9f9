/* SPDX-License-Identifier: Apache-2.0 */
/* Ollama's answers, whole and as lines. Source: Ollama's API reference and the
 * types of its Python package, 0.6.3; times by `date -u -d @N`. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/api/api.h"
#include "tests/support/testsupport.h"

static const bt_api_answer_t answer = {.dialect = BT_API_OLLAMA_CHAT,
                                       .id = "1",
                                       .model = "m",
                                       .created = 1700000000,
                                       .call_id_bytes = 3};
static const bt_api_usage_t usage = {
    .prompt_tokens = 5, .completion_tokens = 7, .cached_tokens = 3};
/* In ns: 2 ms in all, of which 1 ms waiting, 600 us of prompt, 400 us of
 * answer. */
static const bt_gen_perf_t perf = {.arrival_us = 1000,
                                   .first_scheduled_us = 2000,
                                   .first_token_us = 2600,
                                   .last_token_us = 3000};

#define HEAD                                                    \
    "{\"model\":\"m\",\"created_at\":\"2023-11-14T22:13:20Z\"," \
    ""
#define SAID(members) HEAD "\"message\":{\"role\":\"assistant\"," members "},"
#define MORE(members) SAID(members) "\"done\":false}\n"
#define END(reason)                                                       \
    "\"done\":true,\"done_reason\":\"" reason "\",\"total_duration\":"    \
    "2000000,\"load_duration\":1000000,\"prompt_eval_count\":5,"          \
    "\"prompt_eval_duration\":600000,\"eval_count\":7,\"eval_duration\":" \
    "400000}"

/* The buffer holds exactly this; empty it. */
static void expect(bt_strbuf_t *out, const char *text)
{
    assert_int_equal(bt_strbuf_status(out), BT_OK);
    assert_string_equal((out->data == NULL) ? "" : out->data, text);
    bt_strbuf_reset(out);
}

static bt_api_choice_t said(const char *text, bt_finish_t finish)
{
    return (bt_api_choice_t){.text = text,
                             .text_bytes = strlen(text),
                             .finish = finish,
                             .perf = perf};
}

static bt_tool_call_t call_of(char *name, const char *arguments)
{
    bt_tool_call_t call = {.name = name};

    bt_strbuf_init(&call.arguments, 1000);
    bt_strbuf_puts(&call.arguments, arguments);
    return call;
}

static void whole_answers_have_reasons_and_durations(void **state)
{
    bt_api_choice_t c = said("yes", BT_FINISH_STOP);
    bt_api_answer_t generated = answer;
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    c.stop_word = "x";
    bt_api_write_answer(&answer, &c, 1, &usage, &out);
    expect(&out, SAID("\"content\":\"yes\"") END("stop"));
    c.finish = BT_FINISH_LENGTH;
    c.thought = "hm";
    c.thought_bytes = 2;
    bt_api_write_answer(&answer, &c, 1, &usage, &out);
    expect(&out, SAID("\"content\":\"yes\",\"thinking\":\"hm\"") END("length"));
    generated.dialect = BT_API_OLLAMA_GENERATE;
    bt_api_write_answer(&generated, &c, 1, &usage, &out);
    expect(&out,
           HEAD "\"response\":\"yes\",\"thinking\":\"hm\"," END("length"));
    bt_strbuf_fini(&out);
}

static void model_that_is_loaded_says_so(void **state)
{
    const bt_api_choice_t c = said(" ", BT_FINISH_NONE);
    bt_api_answer_t loaded = answer;
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    loaded.counts_only = true;
    bt_api_write_answer(&loaded, &c, 1, &usage, &out);
    expect(&out, SAID("\"content\":\"\"") "\"done\":true,\"done_reason\":"
                                          "\"load\"}");
    loaded.dialect = BT_API_OLLAMA_GENERATE;
    bt_api_write_answer(&loaded, &c, 1, &usage, &out);
    expect(&out, HEAD "\"response\":\"\",\"done\":true,\"done_reason\":"
                      "\"load\"}");
    bt_strbuf_fini(&out);
}

static void unknown_times_are_no_durations(void **state)
{
    bt_api_choice_t c = said("", BT_FINISH_STOP);
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    c.perf = (bt_gen_perf_t){.arrival_us = 1000, .first_scheduled_us = 900};
    bt_api_write_answer(&answer, &c, 1, &usage, &out);
    assert_non_null(strstr(out.data, "\"total_duration\":0,\"load_duration\":0,"
                                     "\"prompt_eval_count\":5,\"prompt_eval_"
                                     "duration\":0,\"eval_count\":7,\"eval_"
                                     "duration\":0}"));
    bt_strbuf_fini(&out);
}

static void calls_are_objects_on_one_line(void **state)
{
    char f[] = "f", g[] = "g";
    bt_tool_call_t calls[] = {call_of(f, "{\"a\":\r\n\"\\n\"}"),
                              call_of(g, "{\"b\":")};
    bt_api_choice_t c = said("so", BT_FINISH_STOP);
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    c.calls = calls;
    c.n_calls = 1;
    bt_api_write_answer(&answer, &c, 1, &usage, &out);
    assert_non_null(strstr(out.data, "\"content\":\"so\",\"tool_calls\":[{"
                                     "\"id\":\""));
    assert_non_null(strstr(out.data, "\"function\":{\"index\":0,\"name\":\"f\","
                                     "\"arguments\":{\"a\":  \"\\n\"}}}]}"));
    bt_strbuf_reset(&out);
    c.n_calls = 2; /* its end was cut off: it is left out */
    c.is_cut_call = true;
    c.finish = BT_FINISH_LENGTH;
    bt_api_write_answer(&answer, &c, 1, &usage, &out);
    assert_null(strstr(out.data, "\"g\""));
    assert_non_null(strstr(out.data, "\"length\""));
    bt_strbuf_reset(&out);
    c.is_cut_call = false; /* whole, and no object */
    bt_api_write_answer(&answer, &c, 1, &usage, &out);
    assert_non_null(strstr(out.data, "\"name\":\"g\",\"arguments\":{"
                                     "\"INVALID_JSON\":\"{\\\"b\\\":\"}"));
    bt_strbuf_fini(&out);
    bt_strbuf_fini(&calls[0].arguments);
    bt_strbuf_fini(&calls[1].arguments);
}

static void pieces_become_lines(void **state)
{
    bt_api_choice_t piece = said("", BT_FINISH_NONE);
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_api_write_ollama_lines(&answer, &piece, &usage, &out);
    expect(&out, ""); /* it says nothing */
    piece.thought = "h\nm";
    piece.thought_bytes = 3;
    bt_api_write_ollama_lines(&answer, &piece, &usage, &out);
    expect(&out, MORE("\"content\":\"\",\"thinking\":\"h\\nm\""));
    piece = said("ab", BT_FINISH_LENGTH);
    bt_api_write_ollama_lines(&answer, &piece, &usage, &out);
    expect(&out, MORE("\"content\":\"ab\"") SAID("\"content\":\"\"")
                     END("length") "\n");
    piece = said("", BT_FINISH_STOP);
    bt_api_write_ollama_lines(&answer, &piece, &usage, &out);
    expect(&out, SAID("\"content\":\"\"") END("stop") "\n");
    bt_strbuf_fini(&out);
}

static bool names(const bt_strbuf_t *out, const char *name)
{
    char text[32];

    snprintf(text, sizeof(text), "\"name\":\"%s\"", name);
    return (out->len > 0) && (strstr(out->data, text) != NULL);
}

static void calls_of_a_stream_come_when_they_are_whole(void **state)
{
    char f[] = "f", g[] = "g";
    bt_tool_call_t calls[] = {call_of(f, "{\"a\":"), call_of(g, "{}")};
    bt_api_choice_t piece = said("", BT_FINISH_NONE);
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    piece.calls = calls;
    piece.n_calls = 1;
    bt_api_write_ollama_lines(&answer, &piece, &usage, &out);
    expect(&out, "");
    piece.n_calls_sent = 1; /* more of its arguments */
    bt_strbuf_puts(&calls[0].arguments, "1}");
    bt_api_write_ollama_lines(&answer, &piece, &usage, &out);
    expect(&out, "");
    piece.n_calls = 2; /* the next one begins */
    bt_api_write_ollama_lines(&answer, &piece, &usage, &out);
    assert_true(names(&out, "f") && !names(&out, "g"));
    assert_non_null(strstr(out.data, "\"arguments\":{\"a\":1}"));
    bt_strbuf_reset(&out);
    piece.n_calls_sent = 2;
    piece.finish = BT_FINISH_STOP;
    bt_api_write_ollama_lines(&answer, &piece, &usage, &out);
    assert_true(names(&out, "g") && !names(&out, "f"));
    assert_non_null(strstr(out.data, "\"done\":false}\n{"));
    bt_strbuf_reset(&out);
    piece.finish = BT_FINISH_LENGTH; /* or its end is cut off */
    piece.is_cut_call = true;
    bt_api_write_ollama_lines(&answer, &piece, &usage, &out);
    expect(&out, SAID("\"content\":\"\"") END("length") "\n");
    bt_strbuf_fini(&out);
    bt_strbuf_fini(&calls[0].arguments);
    bt_strbuf_fini(&calls[1].arguments);
}

static void errors_are_texts(void **state)
{
    const bt_api_error_t error = {.http_status = 404, .message = "no \"x\""};
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_api_write_error(BT_API_OLLAMA_GENERATE, &error, &out);
    expect(&out, "{\"error\":\"no \\\"x\\\"\"}");
    bt_api_write_ollama_error_line(&error, &out);
    expect(&out, "{\"error\":\"no \\\"x\\\"\"}\n");
    bt_strbuf_fini(&out);
}

static void times_are_those_of_rfc_3339(void **state)
{
    char text[BT_API_TIME_BYTES];

    (void)state;
    assert_string_equal(bt_api_format_time(0, text), "1970-01-01T00:00:00Z");
    assert_string_equal(bt_api_format_time(951782400, text),
                        "2000-02-29T00:00:00Z");
    assert_string_equal(bt_api_format_time(-1, text), "1969-12-31T23:59:59Z");
    assert_string_equal(bt_api_format_time(253402300800, text),
                        "1970-01-01T00:00:00Z"); /* the year 10000 */
    assert_string_equal(bt_api_format_time(INT64_MAX, text),
                        "1970-01-01T00:00:00Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(whole_answers_have_reasons_and_durations),
        BT_TEST(model_that_is_loaded_says_so),
        BT_TEST(unknown_times_are_no_durations),
        BT_TEST(calls_are_objects_on_one_line),
        BT_TEST(pieces_become_lines),
        BT_TEST(calls_of_a_stream_come_when_they_are_whole),
        BT_TEST(errors_are_texts),
        BT_TEST(times_are_those_of_rfc_3339),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
