/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of Anthropic's messages, whole and as events. Source: Anthropic's API
 * reference, "Messages", "Streaming messages" and "Errors". */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/api/api.h"
#include "tests/support/testsupport.h"

static const bt_api_answer_t answer = {.dialect = BT_API_ANTHROPIC,
                                       .id = "msg_1",
                                       .model = "m",
                                       .prompt_tokens = 5};
static const bt_api_usage_t usage = {
    .prompt_tokens = 5, .completion_tokens = 7, .cached_tokens = 3};

#define HEAD                                                        \
    "\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\"," \
    "\"model\":\"m\","
#define USAGE                                                        \
    "\"usage\":{\"input_tokens\":2,\"cache_creation_input_tokens\":" \
    "0,\"cache_read_input_tokens\":3,\"output_tokens\":7,\"output_tokens_details\":{\"thinking_tokens\":0}}"

/* The buffer holds exactly this; empty it. */
static void expect(bt_strbuf_t *out, const char *text)
{
    assert_int_equal(bt_strbuf_status(out), BT_OK);
    assert_string_equal((out->data == NULL) ? "" : out->data, text);
    bt_strbuf_reset(out);
}

static bt_api_choice_t said(const char *text, bt_finish_t finish)
{
    return (bt_api_choice_t){
        .text = text, .text_bytes = strlen(text), .finish = finish};
}

static bt_tool_call_t call_of(char *name, const char *arguments)
{
    bt_tool_call_t call = {.name = name};

    bt_strbuf_init(&call.arguments, 1000);
    bt_strbuf_puts(&call.arguments, arguments);
    return call;
}

static void stop_reasons_are_named(void **state)
{
    static const struct {
        bt_finish_t finish;
        const char *word, *expected;
    } cases[] = {
        {BT_FINISH_STOP, NULL, "\"end_turn\",\"stop_sequence\":null"},
        {BT_FINISH_STOP, "x", "\"stop_sequence\",\"stop_sequence\":\"x\""},
        {BT_FINISH_LENGTH, NULL, "\"max_tokens\",\"stop_sequence\":null"},
        {BT_FINISH_CANCELED, NULL, "\"end_turn\",\"stop_sequence\":null"},
    };
    char expected[512];
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_api_choice_t c = said("yes", cases[i].finish);

        c.stop_word = cases[i].word;
        bt_api_write_answer(&answer, &c, 1, &usage, &out);
        snprintf(expected, sizeof(expected),
                 "{" HEAD "\"content\":[{\"type\":\"text\",\"text\":\"yes\"}],"
                 "\"stop_reason\":%s," USAGE "}",
                 cases[i].expected);
        expect(&out, expected);
    }
    bt_strbuf_fini(&out);
}

static void thinking_text_and_calls_are_blocks(void **state)
{
    char f[] = "f", g[] = "g";
    bt_tool_call_t calls[] = {call_of(f, "{\"a\": 1}"), call_of(g, "{\"b\":")};
    bt_api_answer_t a = answer;
    bt_api_choice_t c = said("so", BT_FINISH_STOP);
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    calls[0].text_before = calls[1].text_before = 2;
    a.call_id_bytes = 3; /* so that ids are short; their text is a hash */
    c.thought = "hm";
    c.thought_bytes = 2;
    c.calls = calls;
    c.n_calls = 1;
    bt_api_write_answer(&a, &c, 1, &usage, &out);
    assert_non_null(strstr(out.data, "[{\"type\":\"thinking\",\"thinking\":"
                                     "\"hm\",\"signature\":\"\"},{\"type\":"
                                     "\"text\",\"text\":\"so\"},{\"type\":"
                                     "\"tool_use\",\"id\":\""));
    assert_non_null(strstr(out.data, "\"name\":\"f\",\"input\":{\"a\": 1}}],"
                                     "\"stop_reason\":\"tool_use\""));
    bt_strbuf_reset(&out);
    c.n_calls = 2; /* cut by max_tokens: no object */
    c.is_cut_call = true;
    c.finish = BT_FINISH_LENGTH;
    bt_api_write_answer(&a, &c, 1, &usage, &out);
    assert_non_null(strstr(out.data, "\"name\":\"g\",\"input\":{"
                                     "\"INVALID_JSON\":\"{\\\"b\\\":\"}}],"
                                     "\"stop_reason\":\"max_tokens\""));
    bt_strbuf_fini(&out);
    bt_strbuf_fini(&calls[0].arguments);
    bt_strbuf_fini(&calls[1].arguments);
}

#define EVENT(type, rest) \
    "event: " type "\ndata: {\"type\":\"" type "\"" rest "}\n\n"
#define START                                                            \
    EVENT(                                                               \
        "message_start",                                                 \
        ",\"message\":{" HEAD "\"content\":[],\"stop_reason\":null,"     \
        "\"stop_sequence\":null,\"usage\":{\"input_tokens\":5,"          \
        "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":" \
        "0,\"output_tokens\":0,\"output_tokens_details\":{\"thinking_tokens\":0}}}")
#define END(reason)                                                \
    EVENT("message_delta", ",\"delta\":{\"stop_reason\":\"" reason \
                           "\",\"stop_sequence\":null}," USAGE)    \
    EVENT("message_stop", "")

static void pieces_become_events_of_blocks(void **state)
{
    bt_api_blocks_t blocks = {0};
    bt_api_choice_t c = said("", BT_FINISH_NONE);
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_api_write_anthropic_start(&answer, &blocks, &out);
    expect(&out, START);
    c.thought = "hm";
    c.thought_bytes = 2;
    bt_api_write_anthropic_events(&answer, &c, &usage, &blocks, &out);
    expect(&out,
           EVENT("content_block_start",
                 ",\"index\":0,\"content_block\":{\"type\":\"thinking\","
                 "\"thinking\":\"\",\"signature\":\"\"}")
               EVENT("content_block_delta",
                     ",\"index\":0,\"delta\":{\"type\":\"thinking_delta\","
                     "\"thinking\":\"hm\"}"));
    c = said("so", BT_FINISH_NONE);
    bt_api_write_anthropic_events(&answer, &c, &usage, &blocks, &out);
    expect(&out,
           EVENT("content_block_stop", ",\"index\":0")
               EVENT("content_block_start",
                     ",\"index\":1,\"content_block\":{\"type\":\"text\","
                     "\"text\":\"\"}")
                   EVENT("content_block_delta",
                         ",\"index\":1,\"delta\":{\"type\":\"text_delta\","
                         "\"text\":\"so\"}"));
    c = said("", BT_FINISH_LENGTH);
    bt_api_write_anthropic_events(&answer, &c, &usage, &blocks, &out);
    expect(&out, EVENT("content_block_stop", ",\"index\":1") END("max_tokens"));
    /* Without any text there is no block. */
    blocks = (bt_api_blocks_t){0};
    c = said("", BT_FINISH_STOP);
    bt_api_write_anthropic_events(&answer, &c, &usage, &blocks, &out);
    expect(&out, START END("end_turn"));
    bt_strbuf_fini(&out);
}

static void calls_of_a_stream_are_blocks_of_their_own(void **state)
{
    char f[] = "f", g[] = "g";
    bt_tool_call_t calls[] = {call_of(f, "{\"a\""), call_of(g, "{}")};
    bt_api_blocks_t blocks = {.has_begun = true};
    bt_api_choice_t c = said("", BT_FINISH_NONE);
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    c.calls = calls;
    c.n_calls = 1;
    bt_api_write_anthropic_events(&answer, &c, &usage, &blocks, &out);
    assert_non_null(strstr(out.data, "\"id\":\"toolu_"));
    assert_non_null(strstr(out.data, "\"name\":\"f\",\"input\":{}}}\n\n" EVENT(
                                         "content_block_delta",
                                         ",\"index\":0,\"delta\":{\"type\":"
                                         "\"input_json_delta\","
                                         "\"partial_json\":\"{\\\"a\\\"\"}")));
    bt_strbuf_reset(&out);
    c.n_calls_sent = 1;
    c.args_sent = calls[0].arguments.len;
    bt_strbuf_puts(&calls[0].arguments, ":1}");
    c.n_calls = 2;
    c.finish = BT_FINISH_STOP;
    bt_api_write_anthropic_events(&answer, &c, &usage, &blocks, &out);
    assert_int_equal(
        strncmp(
            out.data,
            EVENT("content_block_delta",
                  ",\"index\":0,\"delta\":{\"type\":\"input_json_delta\","
                  "\"partial_json\":\":1}\"}")
                EVENT(
                    "content_block_stop",
                    ",\"index\":0") "event: content_block_start\ndata: {\"type\":"
                                    "\"content_block_start\",\"index\":1,",
            250),
        0);
    assert_non_null(strstr(out.data, EVENT("content_block_stop", ",\"index\":1")
                                         END("tool_use")));
    bt_strbuf_fini(&out);
    bt_strbuf_fini(&calls[0].arguments);
    bt_strbuf_fini(&calls[1].arguments);
}

/* A piece has the end of a call, text behind it, and the next call. */
static void blocks_are_in_the_order_of_the_answer(void **state)
{
    char f[] = "f", g[] = "g";
    bt_tool_call_t calls[] = {call_of(f, "{\"a\""), call_of(g, "{}")};
    bt_api_blocks_t blocks = {.has_begun = true};
    bt_api_choice_t c = said("so", BT_FINISH_NONE);
    bt_strbuf_t out;
    const char *at;

    (void)state;
    bt_strbuf_init(&out, 4096);
    c.calls = calls;
    c.n_calls = 1;
    calls[0].text_before = 2;
    bt_api_write_anthropic_events(&answer, &c, &usage, &blocks, &out);
    bt_strbuf_reset(&out);
    c = said("then", BT_FINISH_STOP);
    c.calls = calls;
    c.n_calls = 2;
    c.n_calls_sent = 1;
    c.args_sent = calls[0].arguments.len;
    calls[1].text_before = 6;
    bt_strbuf_puts(&calls[0].arguments, ":1}");
    bt_api_write_anthropic_events(&answer, &c, &usage, &blocks, &out);
    at =
        strstr(out.data, EVENT("content_block_delta",
                               ",\"index\":1,\"delta\":{\"type\":"
                               "\"input_json_delta\",\"partial_json\":\":1}\"}")
                             EVENT("content_block_stop", ",\"index\":1"));
    assert_ptr_equal(at, out.data);
    at = strstr(at, "\"text\":\"then\"");
    assert_non_null(at);
    assert_non_null(strstr(at, "\"name\":\"g\""));
    bt_strbuf_reset(&out);
    /* The same, whole. */
    c = said("sothen", BT_FINISH_STOP);
    c.calls = calls;
    c.n_calls = 2;
    bt_api_write_answer(&answer, &c, 1, &usage, &out);
    at = strstr(out.data, "\"content\":[{\"type\":\"text\",\"text\":\"so\"},"
                          "{\"type\":\"tool_use\"");
    assert_non_null(at);
    at = strstr(at, "\"input\":{\"a\":1}},{\"type\":\"text\",\"text\":"
                    "\"then\"},{\"type\":\"tool_use\"");
    assert_non_null(at);
    bt_strbuf_fini(&out);
    bt_strbuf_fini(&calls[0].arguments);
    bt_strbuf_fini(&calls[1].arguments);
}

static void errors_have_their_types(void **state)
{
    static const struct {
        int status;
        const char *type;
    } cases[] = {{400, "invalid_request_error"},
                 {401, "authentication_error"},
                 {403, "permission_error"},
                 {404, "not_found_error"},
                 {413, "request_too_large"},
                 {429, "rate_limit_error"},
                 {500, "api_error"},
                 {503, "overloaded_error"},
                 {504, "timeout_error"}};
    bt_api_error_t error = {0};
    char expected[256];
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_api_error_set(&error, cases[i].status, "x", "why");
        bt_api_write_error(BT_API_ANTHROPIC, &error, &out);
        snprintf(expected, sizeof(expected),
                 "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":"
                 "\"why\"}}",
                 cases[i].type);
        expect(&out, expected);
    }
    bt_api_write_anthropic_error_event(&error, &out);
    expect(&out, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":"
                 "\"timeout_error\",\"message\":\"why\"}}\n\n");
    bt_strbuf_fini(&out);
}

static void count_of_tokens_is_written(void **state)
{
    const bt_api_answer_t count = {.dialect = BT_API_ANTHROPIC_COUNT};
    const bt_api_choice_t c = {.n_token_ids = 12};
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_api_write_answer(&count, &c, 1, &usage, &out);
    expect(&out, "{\"input_tokens\":12}");
    bt_strbuf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(stop_reasons_are_named),
        BT_TEST(thinking_text_and_calls_are_blocks),
        BT_TEST(pieces_become_events_of_blocks),
        BT_TEST(calls_of_a_stream_are_blocks_of_their_own),
        BT_TEST(blocks_are_in_the_order_of_the_answer),
        BT_TEST(errors_have_their_types),
        BT_TEST(count_of_tokens_is_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
