/* SPDX-License-Identifier: Apache-2.0 */
/* Tools in requests: OpenAI's API reference, "Create chat completion".
 */
#include "tests/unit/router/api/api_fixture.h"

#include "common/base/status.h"

#define TOOL(name)                                                            \
    "{'type': 'function', 'function': {'name': '" name                        \
    "', 'description': 'd', 'parameters': {'type': 'object', 'properties': {" \
    "'x': {'type': 'number', 'maximum': 0.1}}}}}"
#define FG "'tools': [" TOOL("f") ", " TOOL("g.h-1") "]"

static void tools_are_kept_as_json_for_template(void **state)
{
    bt_api_request_t r = parsed(H, CHT(FG));

    (void)state;
    assert_string_equal(
        r.tools.json,
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"description\":\"d\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"x\":{\"type\":\"number\",\"maximum\":0.1}}}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"g.h-1\","
        "\"description\":\"d\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"x\":{\"type\":\"number\",\"maximum\":0.1}}}}}]");
    assert_int_equal(r.tools.names_bytes, 8);
    assert_memory_equal(r.tools.names, "f\0g.h-1", 8);
    assert_false(r.tools.required);
    assert_false(r.tools.only_one);
    bt_api_request_fini(&r);
    r = parsed(H, CHT("'tools': [], 'tool_choice': 'auto', "
                      "'parallel_tool_calls': true"));
    assert_null(r.tools.json);
    bt_api_request_fini(&r);
    assert_false(r.tools.strict);
    r = parsed(H,
               CHT("'tools': [{'function': {'name': 'f', 'strict': true}}]"));
    assert_string_equal(r.ignored, "");
    assert_true(r.tools.strict);
    bt_api_request_fini(&r);
    refused(H, CHT("'tools': [{'function': {'name': 'f', 'strict': 1}}]"),
            "tools", "tools[0].function.strict must be true or false, got 1");
    /* OpenAI's words */
    refused(H,
            CHT("'tools': [{'function': {'name': 'f', 'strict': true, "
                "'parameters': {'type': 'object', 'properties': {}}}}]"),
            "tools",
            "Invalid schema for function 'f': In context=(), "
            "'additionalProperties' is required to be supplied and to be "
            "false.");
}

/* Its properties are sorted and looked up: not those of megabytes. */
static void a_long_strict_schema_is_refused_before_it_is_looked_at(void **state)
{
    const size_t n = BT_GRAMMAR_TEXT_BYTES + 100;
    char *body = bt_calloc(n + 512, 1);
    bt_api_request_t r;
    bt_api_error_t error = {0};
    size_t at;

    (void)state;
    assert_non_null(body);
    at = (size_t)snprintf(
        body, 512,
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
        "\"tools\":[{\"function\":{\"name\":\"f\",\"strict\":true,"
        "\"parameters\":{\"x\":\"");
    memset(body + at, 'a', n);
    (void)snprintf(body + at + n, 512 - at, "\"}}}]}");
    assert_int_equal(bt_api_parse(H, body, strlen(body), &r, &error),
                     BT_ERR_INVALID_PARAM);
    assert_string_equal(error.message, "Invalid schema for function 'f': it "
                                       "has more than 65536 bytes");
    bt_free(body);
}

static void tool_choice_is_parsed(void **state)
{
    bt_api_request_t r = parsed(H, CHT(FG ", 'tool_choice': 'none'"));

    (void)state;
    assert_null(r.tools.json);
    bt_api_request_fini(&r);
    r = parsed(H, CHT(FG ", 'tool_choice': 'required',"
                         "'parallel_tool_calls': false"));
    assert_true(r.tools.required);
    assert_null(r.tools.forced);
    assert_true(r.tools.only_one);
    bt_api_request_fini(&r);
    r = parsed(H, CHT("'tool_choice': {'type': 'function', 'function': "
                      "{'name': 'g.h-1'}}, " FG));
    assert_true(r.tools.required);
    assert_string_equal(r.tools.forced, "g.h-1");
    bt_api_request_fini(&r);
}

static void invalid_tools_are_refused(void **state)
{
#define CHOICES                                    \
    "tool_choice must be none, auto, required or " \
    "{\"type\": \"function\", \"function\": {\"name\": …}}, got "
#define NAME                                                              \
    "tools[0].function.name must be 1 to 128 letters, digits and any of " \
    "_-.:/, got "

    (void)state;
    refused(H, CHT("'tools': {}"), "tools",
            "tools must be a list, got an object");
    refused(H, CHT("'tools': [1]"), "tools",
            "tools[0] must be an object, got 1");
    refused(H, CHT("'tools': [{}]"), "tools", NAME "nothing");
    refused(H, CHT("'tools': [{'function': {'name': ''}}]"), "tools",
            NAME "\"\"");
    refused(H, CHT("'tools': [{'function': {'name': 'a b'}}]"), "tools",
            NAME "\"a b\"");
    refused(H, CHT("'tools': [{'function': {'name': 'é'}}]"), "tools",
            NAME "\"é\"");
    refused(H, CHT("'tools': [{'type': 'web_search'}]"), "tools",
            "tools[0] is of type \"web_search\": only function is supported");
    refused(H, CHT("'tools': [{'type': 5}]"), "tools",
            "tools[0] is of type 5: only function is supported");
    refused(H, CHT("'tools': [{'function': {'name': 'f', 'parameters': []}}]"),
            "tools",
            "tools[0].function.parameters must be an object, got an array");
    refused(H, CHT(FG ", 'tool_choice': 'any'"), "tool_choice",
            CHOICES "\"any\"");
    refused(H, CHT(FG ", 'tool_choice': 5"), "tool_choice", CHOICES "5");
    refused(H, CHT(FG ", 'tool_choice': {'type': 'allowed_tools'}"),
            "tool_choice", CHOICES "an object");
    refused(H,
            CHT(FG ", 'tool_choice': {'type': 'function', 'function': {"
                   "'name': 'h'}}"),
            "tool_choice", "tool_choice: no tool is called h");
    refused(H, CHT("'tool_choice': 'required'"), "tool_choice",
            "tool_choice asks for a call, and there are no tools");
    refused(H,
            "{'messages': [{'role': 'assistant', 'content': 'b'}], " FG
            ", 'tool_choice': 'required', 'continue_final_message': true}",
            "tool_choice",
            "tool_choice cannot ask for a call where the answer goes on with a "
            "last message of the assistant");
}

static void tool_calls_and_results_in_messages_are_kept(void **state)
{
    bt_api_request_t r = parsed(
        H,
        "{'messages': [{'role': 'assistant', 'content': null, 'tool_calls': ["
        "{'id': 'c1', 'type': 'function', 'function': {'name': 'f',"
        "'arguments': '{\\u0022b\\u0022: [1.5], \\u0022a\\u0022: 2}'}},"
        "{'function': {'name': 'g', 'arguments': {'c': 3}}},"
        "{'function': {'name': 'h'}},"
        "{'function': {'name': 'i', 'arguments': 'no json'}}]},"
        "{'role': 'tool', 'tool_call_id': 'c1', 'name': 'f',"
        "'content': [{'type': 'text', 'text': '4'}]}]}");

    (void)state;
    assert_int_equal(r.messages.n, 2);
    assert_string_equal(
        r.messages.json,
        "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":\"{\\\"b\\\": [1.5], \\\"a\\\": "
        "2}\"}},{\"function\":{\"name\":\"g\",\"arguments\":{\"c\": 3}},"
        "\"type\":\"function\"},"
        "{\"function\":{\"name\":\"h\",\"arguments\":{}},\"type\":\"function\"},"
        "{\"function\":{\"name\":\"i\",\"arguments\":\"no json\"},"
        "\"type\":\"function\"}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"name\":\"f\",\"content\":["
        "{\"type\": \"text\", \"text\": \"4\"}]}]");
    bt_api_request_fini(&r);
    refused(H,
            "{'messages': [{'role': 'user', 'content': 'x', 'tool_calls': "
            "[{}]}]}",
            "messages",
            "messages[0].tool_calls is for messages of the assistant");
    refused(
        H,
        "{'messages': [{'role': 'tool', 'content': 'x', 'tool_call_id': "
        "5}]}",
        "messages",
        "messages[0].tool_call_id must be a string of at most 256 bytes, got 5");
    refused(H,
            "{'messages': [{'role': 'assistant', 'tool_calls': [{'id': 5,"
            "'function': {'name': 'f'}}]}]}",
            "messages", "messages[0].tool_calls[0].id must be a string, got 5");
}

static void failed_allocation_is_reported(void **state)
{
    char *body = quoted(
        "{'messages': [{'role': 'assistant', 'tool_calls': [{'id': 'c',"
        "'function': {'name': 'f', 'arguments': '{}'}}]}, {'role': 'tool',"
        "'tool_call_id': 'c', 'name': 'n', 'content': 'x'}], " FG
        ", 'tool_choice': {'type': 'function', 'function': {'name': 'f'}}}");
    bt_api_request_t request;
    bt_api_error_t error;
    bt_status_t status;
    int nth = 0;

    (void)state;
    do {
        memset(&error, 0, sizeof(error));
        bt_alloc_fail_at(++nth);
        status = bt_api_parse(H, body, strlen(body), &request, &error);
        if (status != BT_OK) {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_int_equal(error.http_status, 503);
        }
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_true(nth > 5);
    bt_api_request_fini(&request);
    bt_free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(tools_are_kept_as_json_for_template),
        BT_TEST(a_long_strict_schema_is_refused_before_it_is_looked_at),
        BT_TEST(tool_choice_is_parsed),
        BT_TEST(invalid_tools_are_refused),
        BT_TEST(tool_calls_and_results_in_messages_are_kept),
        BT_TEST(failed_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
