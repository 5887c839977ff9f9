/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of Anthropic's messages. Source: Anthropic's API reference,
 * "Messages", "Tool use" and "Count tokens". */
#include "tests/unit/router/api/api_fixture.h"

#define A BT_API_ANTHROPIC
#define N BT_API_ANTHROPIC_COUNT
#define MSG(options)                                                   \
    "{'max_tokens': 5, 'messages': [{'role': 'user', 'content': 'x'}]" \
    "" options "}"
#define TURNS(turns) "{'max_tokens': 5, 'messages': [" turns "]}"
#define TEXT(text)   "{'type': 'text', 'text': '" text "'}"

static void check_messages(const char *body, const char *expected)
{
    bt_api_request_t r = parsed(A, body);
    char *json = quoted(expected);

    assert_string_equal(r.messages.json, json);
    bt_free(json);
    bt_api_request_fini(&r);
}

static void system_and_texts_become_messages(void **state)
{
    (void)state;
    check_messages(MSG(), "[{'role':'user','content':'x'}]");
    check_messages(MSG(", 'system': 'be kind'"),
                   "[{'role':'system','content':'be kind'},"
                   "{'role':'user','content':'x'}]");
    check_messages(MSG(", 'system': [" TEXT(
                       "a") ", {'type': 'text', 'text': "
                            "'b', 'cache_control': {'type': 'ephemeral'}}]"),
                   "[{'role':'system','content':'a\\nb'},"
                   "{'role':'user','content':'x'}]");
    check_messages(MSG(", 'system': []"), "[{'role':'user','content':'x'}]");
    check_messages(
        TURNS("{'role': 'user', 'content': [" TEXT(
            "a") "]},"
                 "{'role': 'assistant', 'content': 'b'},"
                 "{'role': 'user', 'content': [" TEXT("c") "," TEXT("d") "]}"),
        "[{'role':'user','content':'a'},{'role':'assistant','content':'b'},"
        "{'role':'user','content':[{'type':'text','text':'c'},"
        "{'type':'text','text':'d'}]}]");
}

static void tool_calls_and_results_become_openai_messages(void **state)
{
    (void)state;
    check_messages(
        TURNS(
            "{'role': 'user', 'content': 'q'},"
            "{'role': 'assistant', 'content': ["
            "{'type': 'thinking', 'thinking': 'hm', 'signature': 's'},"
            "{'type': 'redacted_thinking', 'data': 'z'}," TEXT(
                "I look.") ","
                           "{'type': 'tool_use', 'id': 't1', 'name': 'f', 'input': {'a': 1}},"
                           "{'type': 'tool_use', 'id': 't2', 'name': 'g', 'input': {}}]},"
                           "{'role': 'user', 'content': ["
                           "{'type': 'tool_result', 'tool_use_id': 't1', 'content': '7'},"
                           "{'type': 'tool_result', 'tool_use_id': 't2', 'is_error': true,"
                           " 'content': [" TEXT(
                               "no") "]},"
                                     "{'type': 'tool_result', 'tool_use_id': 't3'}," TEXT(
                                         "go on") "]}"),
        "[{'role':'user','content':'q'},"
        "{'role':'assistant','content':'I look.','reasoning_content':'hm',"
        "'tool_calls':[{'id':'t1','type':'function','function':{'name':'f',"
        "'arguments':'{\\'a\\': 1}'}},{'id':'t2','type':'function',"
        "'function':{'name':'g','arguments':'{}'}}]},"
        "{'role':'tool','tool_call_id':'t1','content':'7'},"
        "{'role':'tool','tool_call_id':'t2','content':'no','is_error':true},"
        "{'role':'tool','tool_call_id':'t3','content':''},"
        "{'role':'user','content':'go on'}]");
    check_messages(
        TURNS("{'role': 'user', 'content': 'q'},"
              "{'role': 'assistant', 'content': [{'type': 'tool_use', 'id': "
              "'t', 'name': 'f', 'input': {}}]},"
              "{'role': 'user', 'content': [{'type': 'tool_result', "
              "'tool_use_id': 't', 'content': []}]}"),
        "[{'role':'user','content':'q'},{'role':'assistant','content':null,"
        "'tool_calls':[{'id':'t','type':'function','function':{'name':'f',"
        "'arguments':'{}'}}]},{'role':'tool','tool_call_id':'t','content':''}]");
}

static void last_message_of_the_assistant_is_continued(void **state)
{
    bt_api_request_t r =
        parsed(A, TURNS("{'role': 'user', 'content': 'q'},"
                        "{'role': 'assistant', 'content': [" TEXT("ab") "]}"));

    (void)state;
    assert_true(r.continues_final);
    assert_string_equal(r.messages.final, "ab");
    bt_api_request_fini(&r);
    refused(A,
            TURNS("{'role': 'user', 'content': 'q'},"
                  "{'role': 'assistant', 'content': ''}"),
            "messages",
            "messages[1]: the last message of the assistant is empty");
    refused(A,
            TURNS("{'role': 'user', 'content': 'q'},"
                  "{'role': 'assistant', 'content': [{'type': 'tool_use', "
                  "'id': 't', 'name': 'f', 'input': {}}]}"),
            "messages",
            "messages[1]: the last message can be the assistant's only if it "
            "has text alone");
}

static void options_are_read(void **state)
{
    bt_api_request_t r = parsed(
        A, MSG(", 'model': 'm', 'temperature': 0.5, 'top_k': 3, 'top_p': 0.9,"
               "'stop_sequences': ['a', 'b'], 'stream': true,"
               "'metadata': {'user_id': 'u'}, 'service_tier': 'auto',"
               "'cache_control': {'type': 'ephemeral'},"
               "'thinking': {'type': 'enabled', 'budget_tokens': 2048}"));

    (void)state;
    assert_int_equal(r.max_tokens, 5);
    assert_int_equal(r.n_stops, 2);
    assert_int_equal(r.thinking, BT_API_THINKING_ON);
    assert_int_equal(r.thinking_budget, 2048);
    assert_true(r.stream);
    assert_string_equal(r.ignored, "");
    bt_api_request_fini(&r);
    r = parsed(A, MSG());
    assert_int_equal(r.thinking, BT_API_THINKING_OFF);
    assert_int_equal(r.thinking_budget, -1);
    bt_api_request_fini(&r);
    r = parsed(A, MSG(", 'thinking': {'type': 'adaptive', 'display': 'x'},"
                      "'output_config': {'effort': 'low'}, 'betas': ['b']"));
    assert_int_equal(r.thinking, BT_API_THINKING_ON);
    assert_string_equal(r.ignored, "thinking.display, betas");
    assert_string_equal(r.effort, "low");
    bt_api_request_fini(&r);
    r = parsed(A, MSG(", 'output_config': {'format': {'type': 'json_schema', "
                      "'schema': {'type': 'integer'}}}"));
    assert_int_equal(r.grammar.kind, BT_GRAMMAR_JSON_SCHEMA);
    assert_string_equal(r.grammar.text, "{\"type\":\"integer\"}");
    bt_api_request_fini(&r);
    r = parsed(N, "{'messages': [{'role': 'user', 'content': 'x'}]}");
    assert_false(r.has_max_tokens);
    bt_api_request_fini(&r);
}

static void tools_become_openai_functions(void **state)
{
    bt_api_request_t r = parsed(
        A, MSG(", 'tools': [{'name': 'f', 'description': 'd', 'input_schema': "
               "{'type': 'object'}, 'cache_control': {'type': 'ephemeral'}}, "
               "{'type': 'custom', 'name': 'g', 'input_schema': {}}],"
               "'tool_choice': {'type': 'tool', 'name': 'g',"
               "'disable_parallel_tool_use': true}"));

    (void)state;
    assert_string_equal(
        r.tools.json,
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"description\":\"d\",\"parameters\":{\"type\": \"object\"}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"g\","
        "\"parameters\":{}}}]");
    assert_memory_equal(r.tools.names, "f\0g", 4);
    assert_true(r.tools.required);
    assert_true(r.tools.only_one);
    assert_string_equal(r.tools.forced, "g");
    assert_string_equal(r.ignored, "");
    bt_api_request_fini(&r);
    r = parsed(A, MSG(", 'tools': [{'name': 'f', 'input_schema': {}}],"
                      "'tool_choice': {'type': 'none'}"));
    assert_null(r.tools.json);
    bt_api_request_fini(&r);
    r = parsed(A, MSG(", 'tools': [{'name': 'f', 'input_schema': {}}],"
                      "'tool_choice': {'type': 'any'}"));
    assert_true(r.tools.required);
    assert_null(r.tools.forced);
    bt_api_request_fini(&r);
}

static void invalid_bodies_are_refused(void **state)
{
    (void)state;
    refused(A, "{'messages': [{'role': 'user', 'content': 'x'}]}", "max_tokens",
            "max_tokens is missing");
    refused(A, "{'max_tokens': 5}", "messages", "messages is missing");
    refused(A, TURNS(""), "messages",
            "messages must have from 1 to 1024 entries, got 0");
    refused(A, TURNS("5"), "messages", "messages[0] must be an object, got 5");
    refused(A, TURNS("{'role': 'tool', 'content': 'x'}"), "messages",
            "messages[0].role must be user, assistant or system, got \"tool\"");
    refused(A, TURNS("{'role': 'user', 'content': []}"), "messages",
            "messages[0].content must be a string or a list of blocks, got an "
            "array");
    refused(
        A, TURNS("{'role': 'user', 'content': [{'type': 'image'}]}"),
        "messages",
        "messages[0].content[0]: blocks of type \"image\" are not supported "
        "yet, only text, thinking, tool_use and tool_result");
    refused(A,
            TURNS("{'role': 'user', 'content': [" TEXT(
                "a") ",{'type': "
                     "'tool_use', 'id': 't', 'name': 'f', 'input': {}}]}"),
            "messages",
            "messages[0].content[1]: blocks of type \"tool_use\" are not "
            "supported yet, only text, thinking, tool_use and tool_result");
    refused(A, TURNS("{'role': 'user', 'content': [{'type': 'tool_result'}]}"),
            "messages",
            "messages[0].content[0].tool_use_id must be a string of 1 to 256 "
            "bytes, got nothing");
    refused(A,
            TURNS("{'role': 'assistant', 'content': [{'type': 'tool_use', "
                  "'id': 't', 'name': 'f', 'input': 'x'}]}"),
            "messages",
            "messages[0].content[0].input must be an object, got \"x\"");
    refused(A, MSG(", 'tools': [{'type': 'bash_20250124', 'name': 'bash'}]"),
            "tools",
            "tools[0] is of type \"bash_20250124\": only custom is supported");
    refused(A, MSG(", 'tools': [{'name': 'f'}]"), "tools",
            "tools[0].input_schema is missing");
    refused(A, MSG(", 'tools': [{'name': 'a b', 'input_schema': {}}]"), "tools",
            "tools[0].name must be 1 to 128 letters, digits and any of "
            "_-.:/, got \"a b\"");
    refused(A, MSG(", 'tool_choice': 'auto'"), "tool_choice",
            "tool_choice.type must be auto, any, tool or none, got \"auto\"");
    refused(A, MSG(", 'thinking': {'type': 'enabled'}"), "thinking",
            "thinking.budget_tokens is missing");
    refused(A, MSG(", 'thinking': {'type': 'enabled', 'budget_tokens': 5}"),
            "thinking.budget_tokens",
            "thinking.budget_tokens must be from 1024 to 2147483647, got 5");
    refused(A, MSG(", 'mcp_servers': [{'type': 'url'}]"), "mcp_servers",
            "mcp_servers is not supported yet, got an array");
    refused(A, MSG(", 'system': [{'type': 'image'}]"), "system",
            "system[0] must be a block of type text with a text without zero "
            "characters, got an object");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(system_and_texts_become_messages),
        BT_TEST(tool_calls_and_results_become_openai_messages),
        BT_TEST(last_message_of_the_assistant_is_continued),
        BT_TEST(options_are_read),
        BT_TEST(tools_become_openai_functions),
        BT_TEST(invalid_bodies_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
