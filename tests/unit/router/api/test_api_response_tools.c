/* SPDX-License-Identifier: Apache-2.0 */
/* Tools of responses, and calls in their input: OpenAI's API reference, "Create
 * a model response". */
#include "tests/unit/router/api/api_fixture.h"

#include "common/base/status.h"

#define R            BT_API_RESPONSES
#define RSP(options) "{'input': 'x', " options "}"
#define ITEMS(items) "{'input': [{'role': 'user', 'content': 'q'}, " items "]}"
#define F            "{'type': 'function', 'name': 'f'}"
#define G_           "{'type': 'function', 'name': 'g'}"
#define SPACE        "{'type': 'namespace', 'name': 'n', 'tools': [" F "]}"

static void tools_become_functions_for_template(void **state)
{
    bt_api_request_t r = parsed(
        R, RSP("'tools': [{'type': 'function', 'name': 'f', 'description': "
               "'d', 'parameters': {'type':'object'}, 'strict': false}, {'type'"
               ": 'web_search', 'x': 1}, {'type': 'namespace', 'name': 'n', "
               "'description': 'e', 'tools': [{'type': 'function', 'name': "
               "'f', 'strict': true, 'defer_loading': true}]}], "
               "'parallel_tool_calls': false"));
    bt_api_special_tool_t tool;

    (void)state;
    assert_string_equal(
        r.tools.json,
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"description\":\"d\",\"parameters\":{\"type\":\"object\"}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"n.f\","
        "\"strict\":true}}]");
    assert_int_equal(r.tools.names_bytes, 6);
    assert_memory_equal(r.tools.names, "f\0n.f", 6);
    assert_true(r.tools.strict);
    assert_false(r.tools.held);
    assert_true(r.tools.only_one);
    assert_string_equal(r.ignored, "tools[1], tools[2].tools[0].defer_loading");
    assert_non_null(strstr(r.tools_json, "{\"type\":\"web_search\",\"x\":1}"));
    assert_false(bt_api_find_special_tool(
        r.tools.special, r.tools.special_bytes, "f", 1, &tool));
    assert_true(bt_api_find_special_tool(r.tools.special, r.tools.special_bytes,
                                         "n.f", 3, &tool));
    assert_string_equal(tool.name, "n.f");
    assert_string_equal(tool.space, "n");
    assert_string_equal(tool.bare, "f");
    assert_string_equal(tool.type, "function");
    bt_api_request_fini(&r);
    r = parsed(R, RSP("'tools': [{'type': 'web_search'}], "
                      "'tool_choice': 'auto'"));
    assert_null(r.tools.json);
    assert_string_equal(r.choice_json, "\"auto\"");
    bt_api_request_fini(&r);
    /* Without `strict` a schema is held, but none is asked to be closed. */
    r = parsed(R, RSP("'tools': [{'type': 'function', 'name': 'f', "
                      "'parameters': {'type': 'object'}}]"));
    assert_true(r.tools.held);
    assert_false(r.tools.strict);
    bt_api_request_fini(&r);
}

#define INPUT                                                         \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"input\":{" \
    "\"type\":\"string\""
#define ONLY_INPUT \
    "}},\"required\":[\"input\"],\"additionalProperties\":false}}}"

static void custom_tools_become_functions_of_one_text(void **state)
{
    bt_api_request_t r = parsed(
        R, RSP("'tools': [{'type': 'custom', 'name': 'c', 'description': 'd'}, "
               "{'type': 'custom', 'name': 'p', 'format': {'type': 'grammar', "
               "'syntax': 'lark', 'definition': 'start: \\'a\\''}}, {'type': "
               "'custom', 'name': 'r', 'format': {'type': 'grammar', 'syntax': "
               "'regex', 'definition': 'a+'}}]"));
    bt_api_special_tool_t tool;

    (void)state;
    assert_string_equal(
        r.tools.json,
        "[{\"type\":\"function\",\"function\":{\"name\":\"c\",\"description\":"
        "\"d\"," INPUT ONLY_INPUT ",{\"type\":\"function\",\"function\":{"
        "\"name\":\"p\"," INPUT ",\"description\":\"A text that follows this "
        "grammar of Lark:\\nstart: \\\"a\\\"\"" ONLY_INPUT
        ",{\"type\":\"function\",\"function\":{\"name\":\"r\"," INPUT
        ",\"description\":\"A text that follows this regular expression:\\na+\"" ONLY_INPUT
        "]");
    assert_true(r.tools.held);
    assert_true(r.tools.needs_grammar);
    assert_false(r.tools.strict);
    assert_true(bt_api_find_special_tool(r.tools.special, r.tools.special_bytes,
                                         "c", 1, &tool));
    assert_string_equal(tool.type, "custom");
    assert_string_equal(tool.format, "");
    assert_true(bt_api_find_special_tool(r.tools.special, r.tools.special_bytes,
                                         "p", 1, &tool));
    assert_string_equal(
        tool.format,
        "{\"type\":\"sequence\",\"elements\":[{\"type\":\"const_string\","
        "\"value\":\"{\\\"input\\\": \"},{\"type\":\"json_string\",\"lark\":"
        "\"start: \\\"a\\\"\"},{\"type\":\"const_string\",\"value\":\"}\"}]}");
    bt_api_request_fini(&r);
}

static void tool_choice_of_response_is_parsed(void **state)
{
    bt_api_request_t r = parsed(
        R, RSP("'tool_choice': {'type': 'function', 'name': 'g'}, 'tools': [" F
               ", " G_ "]"));

    (void)state;
    assert_true(r.tools.required);
    assert_string_equal(r.tools.forced, "g");
    assert_string_equal(r.choice_json,
                        "{\"type\":\"function\",\"name\":\"g\"}");
    bt_api_request_fini(&r);
    r = parsed(R, RSP("'tool_choice': {'type': 'allowed_tools', 'mode': "
                      "'required', 'tools': [" G_ ", {'type': 'function', "
                      "'name': 'f', 'namespace': 'n'}]}, 'tools': [" F ", " G_
                      ", " SPACE "]"));
    assert_true(r.tools.required);
    assert_null(r.tools.forced);
    assert_true(r.tools.needs_grammar);
    assert_int_equal(r.tools.names_bytes, 6);
    assert_memory_equal(r.tools.names, "g\0n.f", 6);
    assert_non_null(strstr(r.tools.json, "\"name\":\"f\""));
    bt_api_request_fini(&r);
    r = parsed(R, RSP("'tool_choice': 'none', 'parallel_tool_calls': false, "
                      "'tools': [" F "]"));
    assert_null(r.tools.json);
    assert_true(r.tools.only_one);
    assert_non_null(r.tools_json);
    bt_api_request_fini(&r);
}

static void invalid_response_tools_are_refused(void **state)
{
    static const struct {
        const char *options, *param, *message;
    } cases[] = {
        {"'tools': {}", "tools", "tools must be a list, got an object"},
        {"'tools': [1]", "tools", "tools[0] must be an object, got 1"},
        {"'tools': [{'type': 'mcp'}]", "tools",
         "tools[0] is of type \"mcp\": only function and custom are "
         "supported, as this server runs no tools itself"},
        {"'tools': [{'name': 'f'}]", "tools",
         "tools[0] is of type nothing: only function and custom are "
         "supported, as this server runs no tools itself"},
        {"'tools': [{'type': 'custom', 'name': 'c', 'format': {'type': 'x'}}]",
         "tools", "tools[0].format.type must be text or grammar, got \"x\""},
        {"'tools': [{'type': 'custom', 'name': 'c', 'format': {'type': "
         "'grammar', 'syntax': 'ebnf'}}]",
         "tools", "tools[0].format.syntax must be lark or regex, got \"ebnf\""},
        {"'tools': [{'type': 'custom', 'name': 'c', 'format': {'type': "
         "'grammar', 'syntax': 'lark', 'definition': 1}}]",
         "tools", "tools[0].format.definition must be a string, got 1"},
        {"'tools': [" F ", " F "]", "tools",
         "tools[1].name: a tool before is called f, too"},
        {"'tools': [" SPACE ", " SPACE "]", "tools",
         "tools[1].tools[0].name: a tool before is called n.f, too"},
        {"'tools': [{'type': 'namespace', 'name': 'n', 'tools': [" SPACE "]}]",
         "tools", "tools[0].tools[0]: a namespace has no namespaces"},
        {"'tools': [{'type': 'namespace', 'name': 'n'}]", "tools",
         "tools[0].tools must be a list, got nothing"},
        {"'tools': [{'type': 'namespace', 'tools': []}]", "tools",
         "tools[0].name must be 1 to 128 letters, digits and any of _-.:/, got "
         "nothing"},
        {"'tools': [{'type': 'function', 'name': 'f', 'description': 1}]",
         "tools", "tools[0].description must be a string, got 1"},
        {"'tools': [{'type': 'function', 'name': 'f', 'strict': 1}]", "tools",
         "tools[0].strict must be true or false, got 1"},
        {"'tools': [" F "], 'tool_choice': {'type': 'function', 'name': 'g'}",
         "tool_choice", "tool_choice: no tool is called g"},
        {"'tools': [" F "], 'tool_choice': {'type': 'allowed_tools', 'mode': "
         "'auto', 'tools': [" G_ "]}",
         "tool_choice", "tool_choice.tools[0]: no tool is called g"},
        {"'tools': [" F "], 'tool_choice': {'type': 'allowed_tools', 'mode': "
         "'auto', 'tools': []}",
         "tool_choice",
         "tool_choice.tools must be a list of 1 to 128 tools, got an array"},
        {"'tools': [" F "], 'tool_choice': {'type': 'allowed_tools', 'tools': "
         "[" F "]}",
         "tool_choice",
         "tool_choice.mode must be auto or required, got nothing"},
        {"'tools': [" F "], 'tool_choice': {'type': 'allowed_tools', 'mode': "
         "'auto', 'tools': [{'type': 'mcp'}]}",
         "tool_choice",
         "tool_choice.tools[0] must be {\"type\": \"function\" or \"custom\", "
         "\"name\": …}, got an object"},
        {"'tool_choice': 'required'", "tool_choice",
         "tool_choice asks for a call, and there are no tools"},
        {"'include': 'a'", "include", "include must be a list, got \"a\""},
        {"'include': ['reasoning.encrypted_content', 'a']", "include",
         "include[1] is not supported, got \"a\""},
        {"'reasoning': {'effort': 'much'}", "reasoning",
         "reasoning.effort must be none, minimal, low, medium, high, xhigh or "
         "max, got \"much\""},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char body[1024];

        snprintf(body, sizeof(body), RSP("%s"), cases[i].options);
        refused(R, body, cases[i].param, cases[i].message);
    }
    refused(H, CHT("'reasoning_effort': 1"), "reasoning_effort",
            "reasoning_effort must be none, minimal, low, medium, high, xhigh "
            "or max, got 1");
}

#define CALL(id)                                              \
    "{'type': 'function_call', 'id': 'fc_1', 'call_id': '" id \
    "', 'name': 'f', 'arguments': '{}', 'status': 'completed'}"
#define OUTPUT(id, value) \
    "{'type': 'function_call_output', 'call_id': '" id "', 'output': " value "}"
#define THOUGHT                                                              \
    "{'type': 'reasoning', 'id': 'rs_1', 'summary': [], 'content': [{'type'" \
    ": 'reasoning_text', 'text': 't'}]}"
#define SAID                                                       \
    "{'type': 'message', 'role': 'assistant', 'content': [{'type'" \
    ": 'output_text', 'text': 's', 'annotations': []}]}"

#define IS_CALL(id)                                           \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{" \
    "\"name\":\"f\",\"arguments\":\"{}\"}}"
#define IS_OUTPUT(id)                                 \
    "{\"role\":\"tool\",\"tool_call_id\":\"" id "\"," \
    "\"content\":\"o\"}"
#define IS_USER "[{\"role\":\"user\",\"content\":\"q\"},"

static void calls_and_outputs_become_messages(void **state)
{
    static const struct {
        const char *items, *messages;
        size_t n;
    } cases[] = {
        /* One turn is one message, as chat templates know it. */
        {THOUGHT ", " SAID ", " CALL("a") ", " CALL("b") ", " OUTPUT(
             "a", "'o'") ", " OUTPUT("b", "'o'"),
         IS_USER
         "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\","
         "\"text\":\"s\"}],\"reasoning_content\":\"t\",\"tool_calls\":[" IS_CALL(
             "a") "," IS_CALL("b") "]}," IS_OUTPUT("a") "," IS_OUTPUT("b") "]",
         4},
        {THOUGHT ", " CALL("a") ", " OUTPUT("a", "'o'") ", " CALL("b"),
         IS_USER
         "{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"t\","
         "\"tool_calls\":[" IS_CALL("a") "]}," IS_OUTPUT(
             "a") ",{\"role\":"
                  "\"assistant\",\"content\":null,\"tool_calls\":[" IS_CALL(
                      "b") "]}]",
         4},
        {CALL("a") ", " THOUGHT ", " CALL("b") ", " SAID,
         IS_USER
         "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" IS_CALL(
             "a") "]},{\"role\":\"assistant\",\"content\":null,"
                  "\"reasoning_content\":\"t\",\"tool_calls\":[" IS_CALL(
                      "b") "]},"
                           "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":"
                           "\"s\"}]}]",
         4},
        {"{'type': 'custom_tool_call', 'call_id': 'a', 'name': 'f', "
         "'namespace': 'n', 'input': 'i\\n'}, {'type': "
         "'custom_tool_call_output', 'call_id': 'a', 'output': [{'type': "
         "'input_text', 'text': 'o'}]}",
         IS_USER
         "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":"
         "\"a\",\"type\":\"function\",\"function\":{\"name\":\"n.f\","
         "\"arguments\":{\"input\":\"i\\n\"}}}]},{\"role\":\"tool\","
         "\"tool_call_id\":\"a\",\"content\":[{\"type\":\"text\",\"text\":"
         "\"o\"}]}]",
         3},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char body[2048];
        bt_api_request_t r;

        snprintf(body, sizeof(body), ITEMS("%s"), cases[i].items);
        r = parsed(R, body);
        assert_string_equal(r.messages.json, cases[i].messages);
        assert_int_equal(r.messages.n, cases[i].n);
        assert_string_equal(r.ignored, "");
        bt_api_request_fini(&r);
    }
}

static void invalid_calls_and_outputs_are_refused(void **state)
{
    static const struct {
        const char *item, *message;
    } cases[] = {
        {"{'type': 'function_call', 'name': 'f', 'arguments': '{}'}",
         "input[1].call_id must be a string of at most 256 bytes, got nothing"},
        {"{'type': 'function_call', 'call_id': 'a', 'arguments': '{}'}",
         "input[1].name must be a string of at most 256 bytes, got nothing"},
        {"{'type': 'function_call', 'call_id': 'a', 'name': 'f', 'arguments': "
         "{}}",
         "input[1].arguments must be a string, got an object"},
        {"{'type': 'function_call', 'call_id': 'a', 'name': 'f', 'namespace': "
         "1, 'arguments': '{}'}",
         "input[1].namespace must be a string of at most 256 bytes, got 1"},
        {"{'type': 'custom_tool_call', 'call_id': 'a', 'name': 'f'}",
         "input[1].input must be a string, got nothing"},
        {"{'type': 'function_call_output', 'output': 'o'}",
         "input[1].call_id must be a string of at most 256 bytes, got nothing"},
        {"{'type': 'function_call_output', 'call_id': 'a'}",
         "input[1].output must be a string or a list of parts, got nothing"},
        {"{'type': 'function_call_output', 'call_id': 'a', 'output': [{'type': "
         "'input_image'}]}",
         "input[1].output: parts of type \"input_image\" are not supported "
         "yet"},
        {"{'type': 'item_reference', 'id': 'a'}",
         "input[1]: items of type \"item_reference\" are not supported, only "
         "messages, reasoning, calls of functions and custom tools, and their "
         "outputs"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char body[1024];

        snprintf(body, sizeof(body), ITEMS("%s"), cases[i].item);
        refused(R, body, "input", cases[i].message);
    }
}

/* Reasoning that another server has encrypted says nothing here. */
static void encrypted_reasoning_is_noted(void **state)
{
    bt_api_request_t r = parsed(
        R, ITEMS("{'type': 'reasoning', 'summary': [], 'encrypted_content': "
                 "'gAAA'}, " CALL("a")));

    (void)state;
    assert_string_equal(r.ignored, "input[1].encrypted_content");
    bt_api_request_fini(&r);
}

static void failed_allocation_of_response_is_reported(void **state)
{
    char *body = quoted(
        "{'tools': [" F ", " SPACE
        ", {'type': 'custom', 'name': 'c', 'format': {'type': "
        "'grammar', 'syntax': 'regex', 'definition': 'a'}}], 'tool_choice': {'type': 'allowed_tools', 'mode': "
        "'auto', 'tools': [" F "]}, 'reasoning': {'effort': "
        "'low'}, 'input': [" THOUGHT
        ", " CALL("a") ", " OUTPUT("a", "'o'") "]}");
    bt_api_request_t request;
    bt_api_error_t error;
    bt_status_t status;
    int nth = 0;

    (void)state;
    do {
        memset(&error, 0, sizeof(error));
        bt_alloc_fail_at(++nth);
        status = bt_api_parse(R, body, strlen(body), &request, &error);
        if (status != BT_OK) {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_int_equal(error.http_status, 503);
        }
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_true(nth > 10);
    assert_string_equal(request.effort, "low");
    bt_api_request_fini(&request);
    bt_free(body);
}

/* Their contents are nobody's, and not looked at. */
static void last_call_or_output_with_a_role_is_no_message(void **state)
{
    static const char *const inputs[] = {
        "{'type': 'function_call', 'role': 'assistant', 'call_id': 'a', "
        "'name': 'f', 'arguments': '{}', 'content': [{'type': 'x'}]}",
        "{'type': 'function_call_output', 'role': 'assistant', 'call_id': 'a', "
        "'output': 'o', 'content': [{'type': 'x'}]}"};
    char body[512];

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(inputs); i++) {
        bt_api_request_t r;

        snprintf(body, sizeof(body), "{'input': [%s]}", inputs[i]);
        r = parsed(BT_API_RESPONSES, body);
        assert_null(r.messages.final);
        bt_api_request_fini(&r);
    }
}

static void chosen_name_has_no_zero_character(void **state)
{
    (void)state;
    refused(BT_API_RESPONSES,
            "{'input': 'x', 'tools': [{'type': 'function', 'name': 'f', "
            "'parameters': {}}], 'tool_choice': {'type': 'function', 'name': "
            "'f\\u0000x'}}",
            "tool_choice",
            "tool_choice must be none, auto, required, {\"type\": \"function\" "
            "or \"custom\", \"name\": …} or {\"type\": \"allowed_tools\", …}, "
            "got an object");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(tools_become_functions_for_template),
        BT_TEST(custom_tools_become_functions_of_one_text),
        BT_TEST(tool_choice_of_response_is_parsed),
        BT_TEST(invalid_response_tools_are_refused),
        BT_TEST(calls_and_outputs_become_messages),
        BT_TEST(invalid_calls_and_outputs_are_refused),
        BT_TEST(encrypted_reasoning_is_noted),
        BT_TEST(failed_allocation_of_response_is_reported),
        BT_TEST(last_call_or_output_with_a_role_is_no_message),
        BT_TEST(chosen_name_has_no_zero_character),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
