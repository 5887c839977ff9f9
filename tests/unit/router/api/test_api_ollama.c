/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of Ollama's chat and generate. Source: Ollama's API reference and the
 * types of its Python package, 0.6.3. */
#include "tests/unit/router/api/api_fixture.h"

#define L BT_API_OLLAMA_CHAT
#define P BT_API_OLLAMA_GENERATE
#define MSG(options) \
    "{'messages': [{'role': 'user', 'content': 'x'}]" options "}"
#define TURNS(turns)     "{'messages': [" turns "]}"
#define PROMPT(options)  "{'prompt': 'x'" options "}"
#define OPTIONS(options) MSG(", 'options': {" options "}")

static void check_messages(bt_api_dialect_t dialect, const char *body,
                           const char *expected)
{
    bt_api_request_t r = parsed(dialect, body);
    char *json = quoted(expected);

    assert_string_equal(r.messages.json, json);
    assert_int_equal(r.n_prompts, 0);
    bt_free(json);
    bt_api_request_fini(&r);
}

static void messages_become_those_of_chats(void **state)
{
    (void)state;
    check_messages(L,
                   TURNS("{'role': 'system', 'content': 'be kind'},"
                         "{'role': 'user', 'content': 'a', 'images': []},"
                         "{'role': 'assistant', 'content': 'b', 'thinking': "
                         "'hm'}, {'role': 'user'}"),
                   "[{'role':'system','content':'be kind'},"
                   "{'role':'user','content':'a'},"
                   "{'role':'assistant','content':'b','reasoning_content':"
                   "'hm'},{'role':'user','content':''}]");
}

static void calls_get_ids_and_results_find_them(void **state)
{
    (void)state;
    check_messages(
        L,
        TURNS("{'role': 'user', 'content': 'q'},"
              "{'role': 'assistant', 'content': '', 'tool_calls': ["
              "{'function': {'name': 'f', 'arguments': {'a': 1}}},"
              "{'function': {'name': 'g', 'arguments': {}, 'index': 1}},"
              "{'id': 'own', 'function': {'name': 'f'}}]},"
              "{'role': 'tool', 'content': '1', 'tool_name': 'g'},"
              "{'role': 'tool', 'content': '2'},"
              "{'role': 'tool', 'content': '3', 'tool_call_id': 'own'},"
              "{'role': 'tool', 'content': '4', 'tool_name': 'h'}"),
        "[{'role':'user','content':'q'},"
        "{'role':'assistant','content':null,'tool_calls':["
        "{'id':'000000001','type':'function','function':{'name':'f',"
        "'arguments':'{\\'a\\': 1}'}},"
        "{'id':'000000002','type':'function','function':{'name':'g',"
        "'arguments':'{}'}},"
        "{'id':'own','type':'function','function':{'name':'f',"
        "'arguments':'{}'}}]},"
        "{'role':'tool','tool_call_id':'000000002','name':'g','content':'1'},"
        "{'role':'tool','tool_call_id':'000000001','content':'2'},"
        "{'role':'tool','tool_call_id':'own','content':'3'},"
        "{'role':'tool','name':'h','content':'4'}]");
}

static void last_text_of_the_assistant_is_continued(void **state)
{
    bt_api_request_t r = parsed(L, TURNS("{'role': 'user', 'content': 'q'},"
                                         "{'role': 'assistant', 'content': "
                                         "'ab'}"));

    (void)state;
    assert_true(r.continues_final);
    assert_string_equal(r.messages.final, "ab");
    assert_int_equal(r.messages.final_part_bytes, 2);
    bt_api_request_fini(&r);
    r = parsed(L, TURNS("{'role': 'user', 'content': 'q'},"
                        "{'role': 'assistant', 'content': 'ab', 'tool_calls': "
                        "[{'function': {'name': 'f'}}]}"));
    assert_false(r.continues_final);
    bt_api_request_fini(&r);
    r = parsed(L, TURNS("{'role': 'user', 'content': 'q'},"
                        "{'role': 'assistant', 'content': ''}"));
    assert_false(r.continues_final);
    bt_api_request_fini(&r);
}

static void prompts_become_messages_unless_they_are_raw(void **state)
{
    bt_api_request_t r;

    (void)state;
    check_messages(P, PROMPT(), "[{'role':'user','content':'x'}]");
    check_messages(P, PROMPT(", 'system': ''"),
                   "[{'role':'user','content':'x'}]");
    check_messages(P,
                   PROMPT(", 'system': 'be kind', 'suffix': '', 'template': "
                          "'', 'context': [], 'images': []"),
                   "[{'role':'system','content':'be kind'},"
                   "{'role':'user','content':'x'}]");
    r = parsed(P, PROMPT(", 'raw': true, 'think': 'low'"));
    assert_int_equal(r.n_prompts, 1);
    assert_int_equal(r.messages.n, 0);
    assert_string_equal(r.prompts[0].text, "x");
    assert_string_equal(r.ignored, "think");
    assert_null(r.effort);
    assert_int_equal(r.thinking, BT_API_THINKING_DEFAULT);
    bt_api_request_fini(&r);
    refused(P, PROMPT(", 'raw': true, 'system': 's'"), "system",
            "system needs the chat template, which raw leaves out");
}

static void requests_without_a_prompt_load_a_model(void **state)
{
    static const struct {
        bt_api_dialect_t dialect;
        const char *body;
    } cases[] = {
        {L, "{}"},
        {L, "{'messages': [], 'keep_alive': 0}"},
        {L, "{'messages': null, 'tools': []}"},
        {P, "{}"},
        {P, "{'prompt': '', 'system': 's', 'raw': true}"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_api_request_t r = parsed(cases[i].dialect, cases[i].body);

        assert_true(r.counts_only);
        assert_int_equal(r.messages.n, 0);
        assert_int_equal(r.n_prompts, 1);
        assert_null(r.instructions);
        bt_api_request_fini(&r);
    }
}

static void streams_and_lengths_have_ollama_defaults(void **state)
{
    bt_api_request_t r = parsed(L, MSG());

    (void)state;
    assert_true(r.stream);
    assert_true(r.fills_context);
    assert_false(r.has_max_tokens);
    assert_int_equal(r.thinking, BT_API_THINKING_DEFAULT);
    bt_api_request_fini(&r);
    r = parsed(L, MSG(", 'stream': false, 'options': {'num_predict': 7}"));
    assert_false(r.stream);
    assert_true(r.has_max_tokens);
    assert_int_equal(r.max_tokens, 7);
    bt_api_request_fini(&r);
    for (int n = -2; n <= 0; n++) {
        char body[128];

        snprintf(body, sizeof(body), OPTIONS("'num_predict': %d"), n);
        r = parsed(L, body);
        assert_false(r.has_max_tokens);
        bt_api_request_fini(&r);
    }
}

static void options_are_read(void **state)
{
    bt_api_request_t r = parsed(
        L,
        OPTIONS("'temperature': 0.5, 'top_k': 3, 'top_p': 0.9, 'min_p': 0.25,"
                "'seed': 9, 'stop': ['a', 'b'], 'repeat_penalty': 1.5,"
                "'presence_penalty': 1, 'frequency_penalty': -1,"
                "'typical_p': 0.75, 'num_ctx': 4096, 'num_gpu': 1,"
                "'num_thread': 8, 'mirostat': 0, 'repeat_last_n': -1,"
                "'tfs_z': 0.5, 'penalize_newline': null"));

    (void)state;
    assert_float_equal(r.sampling.temperature, 0.5f, 0);
    assert_int_equal(r.sampling.top_k, 3);
    assert_float_equal(r.sampling.top_p, 0.9f, 0);
    assert_float_equal(r.sampling.min_p, 0.25f, 0);
    assert_int_equal(r.sampling.seed, 9);
    assert_true(r.has_seed);
    assert_int_equal(r.n_stops, 2);
    assert_float_equal(r.sampling.repetition_penalty, 1.5f, 0);
    assert_float_equal(r.sampling.presence_penalty, 1.0f, 0);
    assert_float_equal(r.sampling.frequency_penalty, -1.0f, 0);
    assert_float_equal(r.sampling.processors.typical_p, 0.75f, 0);
    assert_string_equal(r.ignored, "options.tfs_z");
    bt_api_request_fini(&r);
    r = parsed(L, OPTIONS("'seed': -1, 'repeat_last_n': 64"));
    assert_false(r.has_seed);
    assert_string_equal(r.ignored, "options.repeat_last_n");
    bt_api_request_fini(&r);
}

static void think_and_format_are_read(void **state)
{
    static const struct {
        const char *value, *effort;
        bt_api_thinking_t thinking;
    } cases[] = {
        {MSG(", 'think': true"), NULL, BT_API_THINKING_ON},
        {MSG(", 'think': false"), NULL, BT_API_THINKING_OFF},
        {MSG(", 'think': 'high'"), "high", BT_API_THINKING_ON},
        {MSG(", 'think': 'none'"), "none", BT_API_THINKING_OFF},
    };
    bt_api_request_t r;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        r = parsed(L, cases[i].value);
        assert_int_equal(r.thinking, cases[i].thinking);
        if (cases[i].effort == NULL) {
            assert_null(r.effort);
        } else {
            assert_string_equal(r.effort, cases[i].effort);
        }
        bt_api_request_fini(&r);
    }
    r = parsed(L, MSG(", 'format': 'json', 'keep_alive': '5m', 'logprobs': "
                      "true, 'top_logprobs': 2"));
    assert_int_equal(r.grammar.kind, BT_GRAMMAR_JSON_OBJECT);
    assert_string_equal(r.grammar.field, "format");
    assert_string_equal(r.ignored, "");
    assert_int_equal(r.wants.n_top, 2);
    bt_api_request_fini(&r);
    r = parsed(L, MSG(", 'format': {'type': 'integer'}"));
    assert_int_equal(r.grammar.kind, BT_GRAMMAR_JSON_SCHEMA);
    assert_string_equal(r.grammar.text, "{\"type\":\"integer\"}");
    bt_api_request_fini(&r);
    r = parsed(L, MSG(", 'format': ''"));
    assert_null(r.grammar.field);
    bt_api_request_fini(&r);
}

static void invalid_bodies_are_refused(void **state)
{
    (void)state;
    refused(P, "{'prompt': ['a']}", "prompt",
            "prompt must be a string, got an array");
    refused(L, TURNS("{'role': 'developer', 'content': 'x'}"), "messages",
            "messages[0].role must be system, user, assistant or tool, got "
            "\"developer\"");
    refused(L, TURNS("{'role': 'user', 'content': ['x']}"), "messages",
            "messages[0].content must be a string, got an array");
    refused(L, TURNS("{'role': 'user', 'content': 'x', 'images': ['AA==']}"),
            "messages",
            "messages[0].images is not supported yet, got an array");
    refused(L, TURNS("{'role': 'user', 'tool_calls': [{}]}"), "messages",
            "messages[0].tool_calls is for messages of the assistant");
    refused(L, TURNS("{'role': 'assistant', 'tool_calls': [{}]}"), "messages",
            "messages[0].tool_calls[0] needs a function with a name of 1 to "
            "256 bytes, got nothing");
    refused(L,
            TURNS("{'role': 'assistant', 'tool_calls': [{'function': {'name': "
                  "'f', 'arguments': '{}'}}]}"),
            "messages",
            "messages[0].tool_calls[0].function.arguments must be an object, "
            "got \"{}\"");
    refused(P, PROMPT(", 'images': ['AA==']"), "images",
            "images is not supported yet, got an array");
    refused(P, PROMPT(", 'suffix': 'y'"), "suffix",
            "suffix is not supported yet, got \"y\"");
    refused(P, PROMPT(", 'context': [1]"), "context",
            "context is not supported yet, got an array");
    refused(P, PROMPT(", 'template': '{{ .Prompt }}'"), "template",
            "template is not supported yet, got \"{{ .Prompt }}\"");
    refused(L, MSG(", 'options': 5"), "options",
            "options must be an object, got 5");
    refused(L, OPTIONS("'temperature': -1"), "options.temperature",
            "options.temperature must be from 0 to 100, got -1");
    refused(L, OPTIONS("'num_predict': -3"), "options.num_predict",
            "options.num_predict must be from -2 to 2147483647, got -3");
    refused(L, MSG(", 'think': 5"), "think",
            "think must be true, false or an effort, as \"low\", got 5");
    refused(L, MSG(", 'format': 'yaml'"), "format",
            "format must be \"json\" or a JSON schema, got \"yaml\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(messages_become_those_of_chats),
        BT_TEST(calls_get_ids_and_results_find_them),
        BT_TEST(last_text_of_the_assistant_is_continued),
        BT_TEST(prompts_become_messages_unless_they_are_raw),
        BT_TEST(requests_without_a_prompt_load_a_model),
        BT_TEST(streams_and_lengths_have_ollama_defaults),
        BT_TEST(options_are_read),
        BT_TEST(think_and_format_are_read),
        BT_TEST(invalid_bodies_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
