/* SPDX-License-Identifier: Apache-2.0 */
/* Answers with tool calls: texts by hand, in the forms of the families' own
 * documentation (test_tools.c), which the parser of calls must find again. */
#include "router/text/tools_grammar.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/containers.h"
#include "common/grammar/compile.h"
#include "router/text/harmony_parser.h"
#include "tests/support/grammar_text.h"
#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

#define INTEGER                                                           \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}," \
    "\"required\":[\"a\"],\"additionalProperties\":false}"

static const bt_tool_def_t tools[] = {
    {"f", 1, INTEGER, sizeof(INTEGER) - 1, true, NULL},
    {"g", 1, NULL, 0, false, NULL},
};

static const char names[] = "f\0g";

/* Answer, by its members but format and tools. */
typedef struct answer_case {
    bt_tools_answer_t answer;
    const char *format;
    const char *opening; /* at the prompt's end */
    /* Texts, with ' for ", each behind it what the parser finds: content and
     * calls, or NULL where the grammar does not have it; ended by NULL. */
    const char *texts[32];
} answer_case_t;

#define F1 "<tool_call>\n{'name': 'f', 'arguments': {'a':1}}\n</tool_call>"
#define G  "<tool_call>\n{'name': 'g', 'arguments': {}}\n</tool_call>"
#define L  "{'name': 'f', 'parameters': {'a':1}}"

/* Of harmony. */
#define H "<|channel|>"
#define J " <|constrain|>json<|message|>"
#define S "<|start|>assistant"

static const answer_case_t cases[] = {
    {{.is_opened = true, .is_named = true},
     "hermes",
     "<tool_call>\n{'name': 'f', 'arguments': ",
     {"{'a':1}}\n</tool_call>", "f {'a':1};", "{'a':-12}}\n</tool_call>",
      "f {'a':-12};", "{}}\n</tool_call>", NULL, "{'a':1}", NULL,
      "{'a':1}}\n</tool_call>\n" F1, NULL, "", NULL}},
    {{.is_opened = true},
     "hermes",
     "<tool_call>\n{'name': '",
     {"f', 'arguments': {'a':1}}\n</tool_call>", "f {'a':1};",
      "g', 'arguments': {'x':[]}}\n</tool_call>", "g {'x':[]};",
      "f', 'arguments': {'a':1}}\n</tool_call>\n" G, "f {'a':1};g {};",
      "h', 'arguments': {}}\n</tool_call>", NULL,
      "f', 'arguments': {'b':1}}\n</tool_call>", NULL,
      "f', 'arguments': {'a':1}}\n</tool_call>text", NULL,
      "f', 'arguments': {'a':1}}", NULL}},
    {{.is_opened = true, .only_one = true},
     "hermes",
     "<tool_call>\n{'name': '",
     {"f', 'arguments': {'a':1}}\n</tool_call>", "f {'a':1};",
      "f', 'arguments': {'a':1}}\n</tool_call>\n" G, NULL}},
    {{0},
     "hermes",
     "",
     {"", "", "a < b", "a < b", F1, "f {'a':1};", "I call.\n" F1,
      "I call.|f {'a':1};", F1 "\n" G, "f {'a':1};g {};", F1 "\nDone.",
      "Done.|f {'a':1};", "<tool_call>", NULL, "<tool_call>\n{'name': 'h'",
      NULL, "a <tool_call>b", NULL}},
    {{.only_one = true},
     "hermes",
     "",
     {"text", "text", "I call.\n" F1, "I call.|f {'a':1};", F1 "\n" G, NULL}},
    {{.text = "{\"type\":\"json_schema\",\"json_schema\":{\"const\":[7]}}"},
     "hermes",
     "",
     {"[7]", "[7]", F1, "f {'a':1};", F1 "\n" G, "f {'a':1};g {};", "", NULL,
      "text", NULL, "[7]" F1, NULL, F1 "[7]", NULL}},
    {{0},
     "mistral",
     "",
     {"", "", "text", "text",
      "[TOOL_CALLS][{'name': 'f', 'arguments': {'a':1}}]", "f {'a':1};",
      "x[TOOL_CALLS][{'name': 'f', 'arguments': {'a':1}}, {'name': 'g', "
      "'arguments': {}}]",
      "x|f {'a':1};g {};", "[TOOL_CALLS]", NULL, "[TOOL_CALLS][]", NULL,
      "[TOOL_CALLS] [{'name': 'f', 'arguments': {'a':1}}]", "f {'a':1};",
      "[TOOL_CALLS] [{'name': 'f', 'arguments': {'a':1}}]", "f {'a':1};",
      "[TOOL_CALLS][{'name': 'f', 'arguments': {}}]", NULL}},
    {{.is_opened = true},
     "mistral",
     "[TOOL_CALLS][{'name': '",
     {"f', 'arguments': {'a':1}}]", "f {'a':1};",
      "g', 'arguments': {}}, {'name': 'f', 'arguments': {'a':2}}]",
      "g {};f {'a':2};", "g', 'arguments': {}}", NULL}},
    {{.is_opened = true, .is_named = true},
     "mistral",
     "[TOOL_CALLS][{'name': 'f', 'arguments': ",
     {"{'a':1}}]", "f {'a':1};", "{'a':1}}", NULL}},
    {{0},
     "llama3",
     "",
     {"",
      "",
      "text {}",
      "text {}",
      "<b>",
      "<b>",
      L,
      "f {'a':1};",
      L "; {'name': 'g', 'parameters': {}}",
      "f {'a':1};g {};",
      "<|python_tag|>" L,
      "f {'a':1};",
      "I call <|python_tag|>" L,
      "I call|f {'a':1};",
      "{'name': 'h', 'parameters': {}}",
      NULL,
      "{}",
      NULL,
      "x<|python_tag|>",
      NULL,
      "<|python_tag|>x",
      NULL}},
    {{.is_opened = true},
     "llama3",
     "{'name': '",
     {"f', 'parameters': {'a':1}}", "f {'a':1};", "f', 'parameters': {}}",
      NULL}},
    {{.is_opened = true, .is_named = true},
     "harmony",
     "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
     {"{'a':1}", "f {'a':1};", "{}", NULL, "{'a':1}<|call|>", NULL}},
    {{.is_opened = true},
     "harmony",
     "<|channel|>commentary to=functions.",
     {"f" J "{'a':1}", "f {'a':1};", "g" J "{'x':[]}", "g {'x':[]};",
      "h" J "{}", NULL, "f{'a':1}", NULL}},
    {{0},
     "harmony",
     "",
     {H "final<|message|>a < b", "a < b",
      H "commentary to=functions.f" J "{'a':1}", "f {'a':1};",
      H "commentary<|message|>I call.<|end|>" S H "commentary to=functions.g" J
        "{}",
      "I call.|g {};",
      H "commentary<|message|>I call.<|end|>" S H "final<|message|>b",
      "I call.\nb", "text", NULL, H "commentary to=functions.f" J "{}", NULL,
      H "commentary to=functions.h" J "{}", NULL, "", NULL}},
    {{.text = "{\"type\":\"json_schema\",\"json_schema\":{\"const\":[7]}}"},
     "harmony",
     "",
     {H "final<|message|>[7]", "[7]", H "commentary to=functions.f" J "{'a':1}",
      "f {'a':1};", H "final<|message|>7", NULL, "[7]", NULL}},
};

static bt_grammar_t *grammar_of(const bt_tools_answer_t *answer)
{
    bt_grammar_source_t source = {.kind = BT_GRAMMAR_STRUCTURAL_TAG,
                                  .compact = true};
    char why[BT_GRAMMAR_WHY_BYTES] = "";
    bt_strbuf_t text;
    bt_json_t json;
    bt_grammar_t *g = NULL;
    uint8_t *program;
    size_t bytes;
    const char *fault;

    bt_strbuf_init(&text, 1 << 20);
    bt_json_init(&json, &text);
    bt_json_object(&json, NULL);
    bt_json_key(&json, "format", 6);
    bt_tools_grammar_write(answer, &json);
    bt_json_end_object(&json);
    assert_int_equal(bt_strbuf_status(&text), BT_OK);
    source.text = text.data;
    source.bytes = text.len;
    if (bt_grammar_compile(&source, &program, &bytes, why, sizeof(why)) !=
        BT_OK) {
        fail_msg("%s: %s", why, text.data);
    }
    assert_int_equal(bt_grammar_load(program, bytes, &fault, &g), BT_OK);
    bt_free(program);
    bt_strbuf_fini(&text);
    return g;
}

static void push(const char *text, bool last, bt_harmony_t *harmony,
                 bt_tools_t *parser, bt_strbuf_t *out)
{
    bt_strbuf_t thought;

    bt_strbuf_init(&thought, 4096);
    bt_harmony_push(harmony, text, strlen(text), last, &thought, out, parser);
    bt_strbuf_fini(&thought);
}

/* Parses an answer as the router does: "content|name arguments;…". */
static void parse(const answer_case_t *c, const char *text, bt_strbuf_t *out)
{
    const bt_tools_spec_t spec = {.format = bt_tool_format_named(c->format),
                                  .names = names,
                                  .names_bytes = sizeof(names),
                                  .max_calls = c->answer.only_one ? 1 : 0};
    char *const opening = schema_quoted_text(c->opening);
    bt_tools_t parser;
    bt_harmony_t harmony;

    bt_tools_init(&parser, &spec);
    bt_harmony_init(&harmony, &(const bt_harmony_spec_t){0});
    if (bt_tool_format_is_harmony(spec.format)) {
        push(opening, false, &harmony, &parser, out);
        push(text, true, &harmony, &parser, out);
    } else {
        if (opening[0] != '\0') {
            bt_tools_open(&parser, opening, strlen(opening), out);
        }
        bt_tools_push(&parser, text, strlen(text), true, out);
    }
    bt_harmony_fini(&harmony);
    if ((out->len > 0) && (parser.n_calls > 0)) {
        bt_strbuf_puts(out, "|");
    }
    for (uint32_t i = 0; i < parser.n_calls; i++) {
        bt_strbuf_printf(out, "%s %.*s;", parser.calls[i].name,
                         (int)parser.calls[i].arguments.len,
                         parser.calls[i].arguments.data);
    }
    bt_tools_fini(&parser);
    bt_free(opening);
}

static void check_text(const answer_case_t *c, const bt_grammar_t *g,
                       const char *quoted, const char *quoted_want)
{
    char *const text = schema_quoted_text(quoted);
    char *want;
    bt_strbuf_t got;

    if (grammar_has_text(g, text, strlen(text)) != (quoted_want != NULL)) {
        fail_msg("%s: %s", c->format, text);
    }
    if (quoted_want != NULL) {
        want = schema_quoted_text(quoted_want);
        bt_strbuf_init(&got, 4096);
        bt_strbuf_puts(&got, "");
        parse(c, text, &got);
        assert_string_equal((got.len > 0) ? got.data : "", want);
        bt_strbuf_fini(&got);
        bt_free(want);
    }
    bt_free(text);
}

static void calls_that_are_written_are_found_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_tools_answer_t answer = cases[i].answer;
        bt_grammar_t *g;

        answer.format = bt_tool_format_named(cases[i].format);
        answer.tools = tools;
        answer.n_tools = BT_ARRAY_LEN(tools);
        answer.mark = BT_TOOLS_NO_TOKEN;
        g = grammar_of(&answer);
        for (size_t k = 0; cases[i].texts[k] != NULL; k += 2) {
            check_text(&cases[i], g, cases[i].texts[k], cases[i].texts[k + 1]);
        }
        bt_grammar_free(g);
    }
}

/* A mark that is a special token is no text: its grammar takes the token. */
static void special_marks_are_taken_as_tokens(void **state)
{
    static const char *const formats[] = {"hermes", "mistral", "llama3"};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(formats); i++) {
        const bt_tools_answer_t answer = {.format =
                                              bt_tool_format_named(formats[i]),
                                          .tools = tools,
                                          .n_tools = 1,
                                          .mark = 1234};
        bt_grammar_t *g = grammar_of(&answer);
        uint32_t n_takes = 0;

        for (uint32_t e = 0; e < g->n_edges; e++) {
            n_takes += (g->edges[e].kind == BT_GRAMMAR_TAKES) &&
                               (g->edges[e].arg == 1234) &&
                               (g->edges[e].last == 1234)
                           ? 1
                           : 0;
        }
        assert_true(n_takes > 0);
        bt_grammar_free(g);
    }
}

/* Each mark of the Harmony format that is a special token is that token. */
static void marks_of_messages_are_taken_as_tokens(void **state)
{
    static const bt_mark_token_t marks[] = {
        {"<|channel|>", 1001}, {"<|message|>", 1002}, {"<|constrain|>", 1003}};
    const bt_tools_answer_t answer = {.format = bt_tool_format_named("harmony"),
                                      .tools = tools,
                                      .n_tools = BT_ARRAY_LEN(tools),
                                      .mark = 1001,
                                      .marks = marks,
                                      .n_marks = BT_ARRAY_LEN(marks)};
    bt_grammar_t *g = grammar_of(&answer);

    (void)state;
    for (uint32_t token = 1001; token <= 1003; token++) {
        uint32_t n_takes = 0;

        for (uint32_t e = 0; e < g->n_edges; e++) {
            n_takes += (g->edges[e].kind == BT_GRAMMAR_TAKES) &&
                               (g->edges[e].arg == token) &&
                               (g->edges[e].last == token)
                           ? 1
                           : 0;
        }
        assert_true(n_takes > 0);
    }
    assert_false(grammar_has_text(g, H "final<|message|>a",
                                  strlen(H "final<|message|>a")));
    bt_grammar_free(g);
}

static void calls_in_python_have_no_grammar(void **state)
{
    (void)state;
    assert_false(bt_tool_format_has_grammar(bt_tool_format_named("pythonic")));
    assert_false(bt_tool_format_has_grammar(NULL));
    assert_true(bt_tool_format_has_grammar(bt_tool_format_named("hermes")));
    assert_string_equal(bt_tool_format_mark(bt_tool_format_named("mistral")),
                        "[TOOL_CALLS]");
}

int main(void)
{
    const struct CMUnitTest tests_of_all[] = {
        BT_TEST(calls_that_are_written_are_found_again),
        BT_TEST(special_marks_are_taken_as_tokens),
        BT_TEST(marks_of_messages_are_taken_as_tokens),
        BT_TEST(calls_in_python_have_no_grammar),
    };

    return cmocka_run_group_tests(tests_of_all, NULL, NULL);
}
