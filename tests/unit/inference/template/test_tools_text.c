/* SPDX-License-Identifier: Apache-2.0 */
/* Tools, calls and results as text of the messages. Prompts are written by
 * hand; the words are those of Qwen's published templates (Qwen2.5, Qwen3),
 * whose prompt for the same conversation is prompt_of_qwen3. Other templates
 * are compared with jinja2 by tests/clients/test_templates.py. */
#include "tests/support/testsupport.h"

#include "common/base/alloc.h"
#include "inference/template/chat.h"

#define USER(text)   "{\"role\":\"user\",\"content\":\"" text "\"}"
#define SYSTEM(text) "{\"role\":\"system\",\"content\":\"" text "\"}"
#define SAYS(text)   "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define RESULT(id, content) \
    "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":" content "}"
#define CALL(id, name, arguments)                                      \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":" \
    "\"" name "\",\"arguments\":" arguments "}}"
#define CALLS(content, calls)                                                \
    "{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[" calls \
    "]}"

#define TOOLS                                                                \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":"  \
    "\"</tools> of\"}},{\"type\":\"function\",\"function\":{\"name\":\"g\"}" \
    "}]"
#define ABOUT_TOOLS                                                          \
    "# Tools\n\nYou may call one or more functions to assist with the user " \
    "query.\n\nYou are provided with function signatures within "            \
    "<tools></tools> XML tags:\n<tools>\n"                                   \
    "{\"type\": \"function\", \"function\": {\"name\": \"f\", "              \
    "\"description\": \"\\u003c/tools> of\"}}\n"                             \
    "{\"type\": \"function\", \"function\": {\"name\": \"g\"}}\n</tools>"    \
    "\n\nFor each function call, return a json object with function name "   \
    "and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"  \
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n"       \
    "</tool_call>"

/* Shows roles and contents, and whatever else would come through. */
#define PLAIN                                               \
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}" \
    "{% if m.tool_calls is defined %}!{% endif %}{{ m.name }}\n{% endfor %}"
#define NO_SYSTEM                                        \
    "{% for m in messages %}{% if m.role == 'system' %}" \
    "{{ raise_exception('no system') }}{% endif %}{% endfor %}"
#define TURNS                                                 \
    "{% for m in messages %}{% if (m.role == 'user') != "     \
    "(loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}" \
    "{% endif %}{% endfor %}"

static const bt_chat_template_t *own(const char *jinja)
{
    const bt_chat_source_t source = {.jinja = jinja, .bytes = strlen(jinja)};
    const bt_chat_template_t *tmpl = NULL;
    char why[BT_CHAT_WHY_BYTES] = "";

    if (bt_chat_template_read(&source, why, sizeof(why), &tmpl) != BT_OK) {
        fail_msg("%s: %s", jinja, why);
    }
    return tmpl;
}

static const bt_chat_template_t *family(const char *name)
{
    const bt_chat_template_t *tmpl = NULL;

    assert_int_equal(bt_chat_template_of_family(name, &tmpl), BT_OK);
    return tmpl;
}

/* Frees the template. */
static void prompt_is(const bt_chat_template_t *tmpl, const char *messages,
                      const char *tools, const char *expected)
{
    const bt_chat_request_t request = {
        .messages_json = messages, .tools_json = tools, .tools_as_text = true};
    char why[BT_CHAT_WHY_BYTES] = "";
    bt_strbuf_t out;

    bt_strbuf_init(&out, 1u << 20);
    if (bt_chat_render(tmpl, &request, &out, NULL, why, sizeof(why)) != BT_OK) {
        fail_msg("%s: %s", messages, why);
    }
    assert_string_equal(out.data, expected);
    bt_strbuf_fini(&out);
    bt_chat_template_free(tmpl);
}

static void is_refused(const char *messages, const char *tools,
                       const char *expected)
{
    const bt_chat_template_t *const tmpl = own(PLAIN);
    const bt_chat_request_t request = {
        .messages_json = messages, .tools_json = tools, .tools_as_text = true};
    char why[BT_CHAT_WHY_BYTES] = "";
    bt_strbuf_t out;

    bt_strbuf_init(&out, 1u << 20);
    assert_int_equal(
        bt_chat_render(tmpl, &request, &out, NULL, why, sizeof(why)),
        BT_ERR_INVALID_PARAM);
    assert_non_null(strstr(why, expected));
    bt_strbuf_fini(&out);
    bt_chat_template_free(tmpl);
}

/* ---- the tools ---- */

static void tools_follow_text_of_system_message(void **state)
{
    (void)state;
    prompt_is(own(PLAIN), "[" SYSTEM("s") "," USER("u") "]", TOOLS,
              "[system] s\n\n" ABOUT_TOOLS "\n[user] u\n");
    prompt_is(own(PLAIN), "[" SYSTEM("") "," USER("u") "]", TOOLS,
              "[system] " ABOUT_TOOLS "\n[user] u\n");
    prompt_is(
        own(PLAIN),
        "[{\"role\":\"developer\",\"content\":[{\"type\":\"text\","
        "\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}," USER("u") "]",
        TOOLS, "[system] a\nb\n\n" ABOUT_TOOLS "\n[user] u\n");
}

static void tools_become_system_message_where_there_is_none(void **state)
{
    (void)state;
    prompt_is(own(PLAIN), "[" USER("u") "]", TOOLS,
              "[system] " ABOUT_TOOLS "\n[user] u\n");
    prompt_is(own(PLAIN), "[" USER("u") "," SYSTEM("s") "]", TOOLS,
              "[system] " ABOUT_TOOLS "\n[user] u\n[system] s\n");
    prompt_is(own(PLAIN), "[]", TOOLS, "[system] " ABOUT_TOOLS "\n");
}

static void tools_precede_first_user_message_without_system_role(void **state)
{
    (void)state;
    prompt_is(own(NO_SYSTEM PLAIN),
              "[" SAYS("a") "," USER("u") "," USER("v") "]", TOOLS,
              "[assistant] a\n[user] " ABOUT_TOOLS "\n\nu\n[user] v\n");
    prompt_is(own(NO_SYSTEM PLAIN), "[" SAYS("a") "]", TOOLS,
              "[user] " ABOUT_TOOLS "\n[assistant] a\n");
    /* A family that refuses the role, with its published text. */
    prompt_is(family("gemma"), "[" USER("u") "]", TOOLS,
              "<bos><start_of_turn>user\n" ABOUT_TOOLS
              "\n\nu<end_of_turn>\n<start_of_turn>model\n");
}

static void contents_are_lists_where_template_takes_lists_alone(void **state)
{
    (void)state;
    prompt_is(
        own("{% for m in messages %}[{{ m.role }}] "
            "{% for p in m.content if m.content is not string %}"
            "{{ p.text }}{% endfor %};{% endfor %}"),
        "[" USER("u") "," CALLS("null", CALL("1", "f", "\"{}\"")) "," RESULT(
            "1", "\"r\"") "]",
        TOOLS,
        "[system] " ABOUT_TOOLS ";[user] u;[assistant] <tool_call>\n"
        "{\"name\": \"f\", \"arguments\": {}}\n</tool_call>;[user] "
        "<tool_response>\nr\n</tool_response>;");
}

/* ---- calls and results ---- */

#define HISTORY                                                    \
    "[" SYSTEM("s") "," USER("u") "," CALLS(                       \
        "\"look\"",                                                \
        CALL("1", "f", "\"{\\\"a\\\":[1.50]}\"") "," CALL(         \
            "2", "g",                                              \
            "{\"b\":1}")) "," RESULT("2",                          \
                                     "\"second\"") "," RESULT("1", \
                                                              "\"{\\\"x\\\": 1}\"") "," SAYS("done") "]"
#define SHOWN_CALLS                                                         \
    "look\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1.5]}}\n" \
    "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": "          \
    "{\"b\": 1}}\n</tool_call>"
#define SHOWN_RESULTS                                                  \
    "<tool_response>\n{\"x\": 1}\n</tool_response>\n<tool_response>\n" \
    "second\n</tool_response>"

static void calls_and_results_are_text_in_order_of_calls(void **state)
{
    (void)state;
    prompt_is(own(PLAIN), HISTORY, TOOLS,
              "[system] s\n\n" ABOUT_TOOLS
              "\n[user] u\n[assistant] " SHOWN_CALLS "\n[user] " SHOWN_RESULTS
              "\n[assistant] done\n");
    prompt_is(own(PLAIN), HISTORY, NULL,
              "[system] s\n[user] u\n[assistant] " SHOWN_CALLS
              "\n[user] " SHOWN_RESULTS "\n[assistant] done\n");
}

/* What Qwen3's own template makes of this conversation. */
static void prompt_of_qwen3_is_that_of_its_template(void **state)
{
    (void)state;
    prompt_is(family("chatml"), HISTORY, TOOLS,
              "<|im_start|>system\ns\n\n" ABOUT_TOOLS
              "<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
              "<|im_start|>assistant\n" SHOWN_CALLS
              "<|im_end|>\n<|im_start|>user\n" SHOWN_RESULTS
              "<|im_end|>\n<|im_start|>assistant\ndone<|im_end|>\n"
              "<|im_start|>assistant\n");
}

static void history_stays_where_template_shows_it(void **state)
{
    static const char shows[] =
        "{% for m in messages %}{{ m.role }}:{{ m.content }}"
        "{% for c in m.tool_calls %}({{ c.function.name }}){% endfor %} "
        "{% endfor %}";

    (void)state;
    prompt_is(own(shows), HISTORY, NULL,
              "system:s user:u assistant:look(f)(g) tool:second "
              "tool:{\"x\": 1} assistant:done ");
    prompt_is(own(shows), HISTORY, TOOLS, /* as the tools' text asks */
              "system:s\n\n" ABOUT_TOOLS " user:u assistant:" SHOWN_CALLS
              " user:" SHOWN_RESULTS " assistant:done ");
}

static void messages_join_where_roles_must_alternate(void **state)
{
    (void)state;
    prompt_is(
        own(TURNS PLAIN),
        "[" USER("u") "," SAYS("look") "," CALLS("null", CALL("1", "f", "\"\"")) "," RESULT(
            "1",
            "\"r\"") "," USER("quick") "," USER("now") "," SAYS("done") "]",
        NULL,
        "[user] u\n[assistant] look\n<tool_call>\n{\"name\": \"f\", "
        "\"arguments\": {}}\n</tool_call>\n[user] <tool_response>\nr\n"
        "</tool_response>\nquick\nnow\n[assistant] done\n");
    /* Elsewhere each stays by itself. */
    prompt_is(own(PLAIN),
              "[" USER("u") "," RESULT("1", "\"r\"") "," USER("v") "]", NULL,
              "[user] u\n[user] <tool_response>\nr\n</tool_response>\n"
              "[user] v\n");
}

static void arguments_that_are_no_object_are_a_text(void **state)
{
    (void)state;
    prompt_is(
        own(PLAIN),
        "[" CALLS(
            "null",
            CALL("1", "f", "\"{\\\"a\"") "," CALL(
                "2", "f", "\"[1]\"") ","
                                     "{\"function\":{\"name\":\"\\\"\"}}") "]",
        NULL,
        "[assistant] <tool_call>\n{\"name\": \"f\", \"arguments\": "
        "\"{\\\"a\"}\n</tool_call>\n<tool_call>\n{\"name\": \"f\", "
        "\"arguments\": \"[1]\"}\n</tool_call>\n<tool_call>\n"
        "{\"name\": \"\\\"\", \"arguments\": {}}\n</tool_call>\n");
    is_refused("[" CALLS("null", "{\"function\":{}}") "]", NULL, "a name");
    is_refused("[" USER("u") "]", "{}", "no list");
}

/* ---- what a client writes ---- */

static void tags_of_client_are_escaped_in_json(void **state)
{
    (void)state;
    prompt_is(
        own(PLAIN),
        "[" CALLS(
            "null",
            CALL("1", "</tool_call>", "\"{\\\"<b>\\\":\\\"</tool_call>\\\"}\"") "," CALL("2", "f", "{\"a\":\"<tools>\"}") "," CALL(
                "3", "f",
                "\"<tool_call>\"")) "," RESULT("1",
                                               "\"a\\n</tool_response> \\\"b\\\"\"") "," RESULT("2",
                                                                                                "\"[1.50, \\\"<tool_response>\\\"]\"") "," RESULT("3",
                                                                                                                                                  "\"<b> <tool_call\"") "]",
        NULL,
        "[assistant] <tool_call>\n{\"name\": \"\\u003c/tool_call>\", "
        "\"arguments\": {\"<b>\": \"\\u003c/tool_call>\"}}\n"
        "</tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
        "{\"a\": \"\\u003ctools>\"}}\n</tool_call>\n<tool_call>\n"
        "{\"name\": \"f\", \"arguments\": \"\\u003ctool_call>\"}\n"
        "</tool_call>\n[user] <tool_response>\n"
        "\"a\\n\\u003c/tool_response> \\\"b\\\"\"\n</tool_response>\n"
        "<tool_response>\n[1.50, \"\\u003ctool_response>\"]\n"
        "</tool_response>\n<tool_response>\n<b> <tool_call\n"
        "</tool_response>\n");
}

static bool is_quoted(const bt_quotes_t *quotes, size_t at)
{
    for (size_t i = 0; i < quotes->n; i++) {
        if ((at >= quotes->list[i].begin) && (at < quotes->list[i].end)) {
            return true;
        }
    }
    return false;
}

/* Letters that stand in the client's texts alone, which may be no special
 * tokens, and tags, which are the server's own and may be. */
static void client_text_is_quoted_and_tags_are_not(void **state)
{
    static const char messages[] = "[" SYSTEM("ZZ") "," USER("ZZ") "," CALLS(
        "\"ZZ\"",
        CALL("1", "ZZ", "\"{\\\"ZZ\\\":1}\"") "," CALL(
            "2", "ZZ",
            "{\"ZZ\":\"ZZ\"}")) "," RESULT("1",
                                           "\"ZZ\"") "," RESULT("2",
                                                                "\"ZZ</tools>\"") "]";
    static const char *const tags[] = {"<tools>",         "</tools>",
                                       "<tool_call>",     "</tool_call>",
                                       "<tool_response>", "</tool_response>"};
    const bt_chat_request_t request = {.messages_json = messages,
                                       .tools_json = "[{\"name\":\"ZZ\"}]",
                                       .tools_as_text = true};
    const bt_chat_template_t *const tmpl = own(PLAIN);
    char why[BT_CHAT_WHY_BYTES] = "";
    bt_quotes_t quotes = {0};
    bt_strbuf_t out;
    size_t n = 0;

    (void)state;
    bt_strbuf_init(&out, 1u << 20);
    assert_int_equal(
        bt_chat_render(tmpl, &request, &out, &quotes, why, sizeof(why)), BT_OK);
    for (const char *at = out.data; (at = strchr(at, 'Z')) != NULL; at++) {
        assert_true(is_quoted(&quotes, (size_t)(at - out.data)));
        n++;
    }
    assert_int_equal(n, 2 * 11);
    for (size_t i = 0; i < BT_ARRAY_LEN(tags); i++) {
        for (const char *at = out.data; (at = strstr(at, tags[i])) != NULL;
             at++) {
            assert_false(is_quoted(&quotes, (size_t)(at - out.data)));
        }
    }
    bt_quotes_fini(&quotes);
    bt_strbuf_fini(&out);
    bt_chat_template_free(tmpl);
}

static void members_are_unused_where_template_drops_the_message(void **state)
{
    static const struct {
        const char *jinja, *unused;
    } rows[] = {
        {PLAIN, "messages[2].extra\nmessages[3].extra\n"},
        {"{% for m in messages if m.role == 'system' %}{{ m.content }}"
         "{% endfor %}",
         "messages[1].content\nmessages[2].content\nmessages[2].extra\n"
         "messages[2].tool_calls\nmessages[3].content\nmessages[3].extra\n"},
    };
    static const char messages[] = "[" SYSTEM("s") "," USER(
        "u") ",{\"role\":\"assistant\",\"content\":"
             "\"c\",\"extra\":1,\"tool_calls\":[" CALL(
                 "1", "f",
                 "\"{}\"") "]},"
                           "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"r\","
                           "\"extra\":1}]";

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        const bt_chat_template_t *const tmpl = own(rows[i].jinja);
        char why[BT_CHAT_WHY_BYTES] = "";
        bt_strbuf_t out, unused;
        bt_chat_request_t request = {.messages_json = messages,
                                     .tools_json = TOOLS,
                                     .tools_as_text = true,
                                     .unused = &unused};

        bt_strbuf_init(&out, 1u << 20);
        bt_strbuf_init(&unused, 4096);
        assert_int_equal(
            bt_chat_render(tmpl, &request, &out, NULL, why, sizeof(why)),
            BT_OK);
        assert_string_equal(unused.data, rows[i].unused);
        bt_strbuf_fini(&out);
        bt_strbuf_fini(&unused);
        bt_chat_template_free(tmpl);
    }
}

/* ---- bounds ---- */

/* As many messages as the API takes: an answer of 128 calls, results in the
 * opposite order, one of 4 MiB, and messages that all join that one. */
static void largest_conversation_is_rendered(void **state)
{
    const bt_chat_template_t *const tmpl = own(TURNS PLAIN);
    bt_chat_request_t request = {.tools_json = TOOLS, .tools_as_text = true};
    char why[BT_CHAT_WHY_BYTES] = "";
    bt_strbuf_t json, out;
    size_t n = 0;

    (void)state;
    bt_strbuf_init(&json, 1u << 24);
    bt_strbuf_init(&out, 1u << 24);
    bt_strbuf_puts(&json, "[" USER("u") ",{\"role\":\"assistant\",\"content\":"
                                        "\"\",\"tool_calls\":[");
    for (int i = 0; i < 128; i++) {
        bt_strbuf_printf(&json,
                         "%s{\"id\":\"%d\",\"function\":{\"name\":\"f\"}}",
                         (i > 0) ? "," : "", i);
    }
    bt_strbuf_puts(&json, "]}");
    for (int i = 511; i >= 0; i--) {
        bt_strbuf_printf(&json, "," RESULT("%d", "\"result %d\""), i, i);
    }
    bt_strbuf_puts(&json, ",{\"role\":\"tool\",\"content\":\"");
    for (int i = 0; i < 1 << 16; i++) {
        bt_strbuf_printf(&json, "%064d", i);
    }
    bt_strbuf_puts(&json, "\"}");
    for (int i = 0; i < 509; i++) {
        bt_strbuf_puts(&json, "," USER("v"));
    }
    bt_strbuf_puts(&json, "]");
    assert_int_equal(bt_strbuf_status(&json), BT_OK);
    request.messages_json = json.data;
    if (bt_chat_render(tmpl, &request, &out, NULL, why, sizeof(why)) != BT_OK) {
        fail_msg("%s", why);
    }
    assert_non_null(strstr(out.data, "[user] <tool_response>\nresult 0\n"));
    assert_non_null(strstr(out.data, "result 127\n</tool_response>\n"
                                     "<tool_response>\nresult 511\n"));
    for (const char *at = out.data; (at = strstr(at, "\nv")) != NULL; at++) {
        n++;
    }
    assert_int_equal(n, 509);
    bt_strbuf_fini(&json);
    bt_strbuf_fini(&out);
    bt_chat_template_free(tmpl);
}

static void memory_that_is_short_is_an_error(void **state)
{
    const bt_chat_template_t *const tmpl = own(PLAIN);
    const bt_chat_request_t request = {
        .messages_json = HISTORY, .tools_json = TOOLS, .tools_as_text = true};
    bt_status_t status = BT_ERR_NO_MEMORY;
    int n = 0;

    (void)state;
    while (status == BT_ERR_NO_MEMORY) {
        char why[BT_CHAT_WHY_BYTES] = "";
        bt_quotes_t quotes = {0};
        bt_strbuf_t out;

        bt_strbuf_init(&out, 1u << 20);
        bt_alloc_fail_at(++n);
        status =
            bt_chat_render(tmpl, &request, &out, &quotes, why, sizeof(why));
        bt_alloc_fail_at(0);
        assert_int_equal(out.len > 0, status == BT_OK);
        bt_quotes_fini(&quotes);
        bt_strbuf_fini(&out);
    }
    assert_int_equal(status, BT_OK);
    assert_true(n > 5);
    bt_chat_template_free(tmpl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tools_follow_text_of_system_message),
        cmocka_unit_test(tools_become_system_message_where_there_is_none),
        cmocka_unit_test(tools_precede_first_user_message_without_system_role),
        cmocka_unit_test(contents_are_lists_where_template_takes_lists_alone),
        cmocka_unit_test(calls_and_results_are_text_in_order_of_calls),
        cmocka_unit_test(prompt_of_qwen3_is_that_of_its_template),
        cmocka_unit_test(history_stays_where_template_shows_it),
        cmocka_unit_test(messages_join_where_roles_must_alternate),
        cmocka_unit_test(arguments_that_are_no_object_are_a_text),
        cmocka_unit_test(tags_of_client_are_escaped_in_json),
        cmocka_unit_test(client_text_is_quoted_and_tags_are_not),
        cmocka_unit_test(members_are_unused_where_template_drops_the_message),
        cmocka_unit_test(largest_conversation_is_rendered),
        cmocka_unit_test(memory_that_is_short_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
