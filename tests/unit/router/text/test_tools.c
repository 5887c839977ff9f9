/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of tools in what models say, in the forms of the families' own
 * documentation: Hermes' function calling, Llama 3.1's JSON based tool calling,
 * Mistral's tokenizers v3 to v13, Llama 3.2's pythonic calls. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/text/tools.h"

typedef struct parsing {
    const char *format, *text, *content, *calls; /* "name arguments;…" */
} parsing_t;

#define A  "{\"a\": 1}"
#define F  "{\"name\": \"f\", \"arguments\": " A "}"
#define P  "{\"name\": \"f\", \"parameters\": " A "}"
#define FS "f " A ";"

/* Expected values by hand. */
static const parsing_t parsings[] = {
    {"hermes", "<tool_call>\n" F "\n</tool_call>", "", FS},
    {"hermes",
     "I look.\n<tool_call>" F "</tool_call>\n<tool_call>{\"name\":\"g\"}"
     "</tool_call>\n",
     "I look.", FS "g {};"},
    {"hermes", "<tool_call>" F, "", FS},
    {"hermes", "<tool_call>" F "</tool_call", "", FS},
    {"hermes",
     "<tool_call>{\"name\":\"f\",\"arguments\":"
     "\"{\\\"a\\\":\\\"\\u00e9\\ud83d\\ude00\\n\\\"}\"}</tool_call>",
     "<tool_call>{\"name\":\"f\",\"arguments\":"
     "\"{\\\"a\\\":\\\"\\u00e9\\ud83d\\ude00\\n\\\"}\"}</tool_call>",
     ""}, /* a line's end in a string is no JSON */
    {"hermes",
     "<tool_call>{\"name\":\"f\",\"arguments\":"
     "\"{\\\"a\\\":\\\"\\u00e9\\ud83d\\ude00\\\"}\"}</tool_call>",
     "", "f {\"a\":\"\xc3\xa9\xf0\x9f\x98\x80\"};"},
    {"hermes", "<tool_call>{\"arguments\": " A ", \"name\": \"f\"}", "", FS},
    {"hermes",
     "<tool_call>{\"name\": \"f\", \"arguments\": " A ", \"id\": [1, {}]}"
     "</tool_call>",
     "", FS},
    {"hermes",
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"}\\\"{\", "
     "\"t\": [true, -0.5e+3, null, {\"u\": {}}]}}</tool_call>",
     "", "f {\"s\": \"}\\\"{\", \"t\": [true, -0.5e+3, null, {\"u\": {}}]};"},
    {"hermes", "plain text\n", "plain text\n", ""},
    {"hermes", "a <tool_cal", "a <tool_cal", ""},
    {"hermes", "a <b> <tool_call", "a <b> <tool_call", ""},
    {"hermes", "<tool_call>{\"name\": </tool_call>",
     "<tool_call>{\"name\": </tool_call>", ""},
    {"hermes", "<tool_call>oops</tool_call>\n<tool_call>" F "</tool_call>",
     "<tool_call>oops</tool_call>", FS},
    {"hermes", "<tool_call>" F "</tool_call>\n and more", "and more", FS},
    {"hermes", "a\n<tool_call>" F "</tool_call>\n\nb\n", "a\n\nb", FS},
    {"hermes", "<tool_call>{\"arguments\":{}}</tool_call>",
     "<tool_call>{\"arguments\":{}}</tool_call>", ""},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":[]}</tool_call>",
     "<tool_call>{\"name\":\"f\",\"arguments\":[]}</tool_call>", ""},
    {"hermes", "<tool_call>{\"name\":5}", "<tool_call>{\"name\":5}", ""},
    {"hermes", "<tool_call>{\"name\":\"a b\",\"arguments\":{}}</tool_call>",
     "<tool_call>{\"name\":\"a b\",\"arguments\":{}}</tool_call>", ""},
    {"hermes", "", "", ""},
    {"llama3", " " P, "", FS},
    {"llama3", P "; {\"name\":\"g\",\"arguments\":{}}", "", FS "g {};"},
    {"llama3", P "\n" P " done", "done", FS FS},
    {"llama3", "{\"type\":\"function\",\"function\":" P "}", "", FS},
    {"llama3", "{\"answer\": 42}", "{\"answer\": 42}", ""},
    {"llama3", "{\"name\": \"nobody\", \"parameters\": {}}",
     "{\"name\": \"nobody\", \"parameters\": {}}", ""},
    {"llama3", "{not json", "{not json", ""},
    {"llama3", "Say " P, "Say " P, ""},
    {"llama3", "  ", "  ", ""},
    {"mistral", "[TOOL_CALLS] [" F ", " F "]", "", FS FS},
    {"mistral", "Hm. [TOOL_CALLS][" F "]", "Hm.", FS},
    {"mistral", "[TOOL_CALLS][" F, "", FS},
    {"mistral", "[TOOL_CALLS][]", "[TOOL_CALLS][]", ""},
    {"mistral", "[TOOL_CALLS]" F, "[TOOL_CALLS]" F, ""},
    {"mistral", "[TOOL_CALLS]f[ARGS]" A "[TOOL_CALLS]g[ARGS]{}", "",
     FS "g {};"},
    {"mistral", "[TOOL_CALLS] f[CALL_ID]abc123xyz[ARGS]" A, "", FS},
    {"mistral", "[TOOL_CALLS]f[ARGS]null[TOOL_CALLS]g[ARGS] \"\"", "",
     "f {};g {};"},
    {"mistral", "[TOOL_CALLS]f[ARGS]\" \"[TOOL_CALLS]g[ARGS]\"null\" ", "",
     "f {};g {};"},
    {"mistral", "[TOOL_CALLS]f[ARGS]nul", "", "f ;"},
    {"mistral", "[TOOL_CALLS]f[ARGS]\"a\"", "[TOOL_CALLS]f[ARGS]\"a\"", ""},
    {"mistral", "[TOOL_CALLS]f of x", "[TOOL_CALLS]f of x", ""},
    {"pythonic", "[get_weather(city='San Francisco', days=3), g()]", "",
     "get_weather {\"city\":\"San Francisco\",\"days\":3};g {};"},
    {"pythonic",
     "[f(a=True, b=None, c=-1.5e3, d=[1, \"x\"], e={'k\\n': {\"v\": False}})]",
     "",
     "f {\"a\":true,\"b\":null,\"c\":-1.5e3,\"d\":[1,\"x\"],"
     "\"e\":{\"k\\n\":{\"v\":false}}};"},
    {"pythonic", "[f(a='it\\'s ] \\\\')]", "", "f {\"a\":\"it's ] \\\\\"};"},
    {"pythonic", "[f(a=1)] then", "then", "f {\"a\":1};"},
    {"pythonic", "[nobody(a=1)]", "[nobody(a=1)]", ""},
    {"pythonic", "[f(), nobody()]", "[f(), nobody()]", ""},
    {"pythonic", "[1, 2, 3]", "[1, 2, 3]", ""},
    {"pythonic", "[f(a=b)]", "[f(a=b)]", ""},
    {"pythonic", "[f(a=01)]", "[f(a=01)]", ""},
    {"pythonic", "[f(1)]", "[f(1)]", ""},
    {"pythonic", "[]", "[]", ""},
    {"pythonic", "]", "]", ""},
    /* Behind marks that need not be there. */
    {"llama3", "<|python_tag|>" P, "", FS},
    {"llama3", " Look: <|python_tag|> " P "; " P "; done", " Look: done",
     FS FS},
    {"llama3", "<|python_tag|>f.call(a=1)", "<|python_tag|>f.call(a=1)", ""},
    {"llama3", "<|python_tag|>{\"name\":\"h\",\"parameters\":{}}", "", "h {};"},
    {"pythonic", "<|python_start|>[f(a=1)]<|python_end|>", "", "f {\"a\":1};"},
    {"pythonic", "Look.\n<|python_start|>[f(), g()]<|python_end|> done",
     "Look. done", "f {};g {};"},
    {"pythonic", "<|python_start|>print(1)<|python_end|>",
     "<|python_start|>print(1)<|python_end|>", ""},
    /* The text ends within a call: its name, and what is there of its
     * arguments. */
    {"hermes", "<tool_call>", "", ""},
    {"hermes", "x <tool_call>\n{\"name\": \"f", "x", ""},
    {"hermes", "<tool_call>{\"name\": \"f\"", "", "f ;"},
    {"hermes", "x <tool_call>{\"name\": \"f\", \"argu", "x", "f ;"},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": ", "", "f ;"},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ", "",
     "f {\"a\": ;"},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": nu", "", "f ;"},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": [1",
     "<tool_call>{\"name\": \"f\", \"arguments\": [1", ""},
    {"hermes", "<tool_call>{\"arguments\": " A ", \"name\": \"f\"", "", FS},
    {"hermes", "<tool_call>{\"arguments\": " A ", \"na", "", ""},
    {"hermes",
     "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\ud83d", "",
     "f {\"a\": ;"},
    {"hermes", "<tool_call>" F "</tool_call>\n<tool_call>{\"name\": \"g\",", "",
     FS "g ;"},
    {"llama3", "{\"name\": \"f", "{\"name\": \"f", ""},
    {"llama3", "{\"name\": \"f\"", "", "f ;"},
    {"llama3", P "; {\"na", "", FS},
    {"llama3", "{\"name\": \"nobody\"", "{\"name\": \"nobody\"", ""},
    {"llama3", "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"par", "",
     "f ;"},
    {"llama3", "{\"answer\": 4", "{\"answer\": 4", ""},
    {"llama3", "<|python_tag|>{\"na", "", ""},
    {"mistral", "a [TOOL_CALLS]", "a", ""},
    {"mistral", "[TOOL_CALLS]f", "", ""},
    {"mistral", "[TOOL_CALLS]f[ARGS]", "", "f ;"},
    {"mistral", "[TOOL_CALLS]f[CALL_ID]abc", "", "f ;"},
    {"mistral", "[TOOL_CALLS][", "", ""},
    {"mistral", "[TOOL_CALLS][" F ", {\"na", "", FS},
    {"mistral", "[TOOL_CALLS][" F ", {\"name\": \"g\"", "", FS "g ;"},
    {"pythonic", "[get_wea", "[get_wea", ""},
    {"pythonic", "<|python_start|>[get_wea", "", ""},
    {"pythonic", "[get_weather(", "", "get_weather ;"},
    {"pythonic", "[f(a='x)]", "", "f {\"a\":\"x)];"},
    {"pythonic", "[f(a='x\\", "", "f {\"a\":\"x;"},
    {"pythonic", "[f(a=1, b=[True, {'k': 'v", "",
     "f {\"a\":1,\"b\":[true,{\"k\":\"v;"},
    {"pythonic", "[f(a=1, b=Tru", "", "f {\"a\":1;"},
    {"pythonic", "[f(a=1), g", "", "f {\"a\":1};"},
    {"pythonic", "[f(a=1), g(", "", "f {\"a\":1};g ;"},
    {"pythonic", "[f(a=1), nobody(", "[f(a=1), nobody(", ""},
    {"pythonic", "[f(a=1) ", "", "f {\"a\":1};"},
    /* Arguments that are no JSON. */
    {"hermes",
     "<tool_call>{\"name\": \"f\", \"arguments\": {a}}\n</tool_call>\n"
     "<tool_call>" F "</tool_call>",
     "", "f {a}};" FS},
    {"hermes",
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": </tool_call> b", "b",
     "f {\"a\": ;"},
    {"mistral", "[TOOL_CALLS]f[ARGS]{a} [TOOL_CALLS]g[ARGS]{}", "",
     "f {a};g {};"},
    {"llama3", "{\"name\": \"f\", \"parameters\": {a}} ", "", "f {a}} ;"},
};

static const char names[] = "f\0g\0get_weather";

static bt_tools_spec_t spec_of(const char *format)
{
    return (bt_tools_spec_t){
        .format = bt_tool_format_named(format),
        .names = names,
        .names_bytes = sizeof(names),
    };
}

static void print_calls(const bt_tools_t *tools, char *out, size_t bytes)
{
    size_t n = 0;

    out[0] = '\0';
    for (uint32_t i = 0; i < tools->n_calls; i++) {
        const bt_strbuf_t *arguments = &tools->calls[i].arguments;

        n += (size_t)snprintf(out + n, bytes - n, "%s %.*s;",
                              tools->calls[i].name, (int)arguments->len,
                              (arguments->len > 0) ? arguments->data : "");
    }
}

/* In three pieces, of which each may be empty. */
static void check(const parsing_t *p, size_t a, size_t b)
{
    const bt_tools_spec_t spec = spec_of(p->format);
    const size_t n = strlen(p->text);
    bt_strbuf_t content;
    bt_tools_t tools;
    char calls[1024];

    bt_strbuf_init(&content, 4096);
    bt_tools_init(&tools, &spec);
    bt_tools_push(&tools, p->text, a, false, &content);
    bt_tools_push(&tools, p->text + a, b - a, false, &content);
    bt_tools_push(&tools, p->text + b, n - b, true, &content);
    print_calls(&tools, calls, sizeof(calls));
    if ((bt_strbuf_status(&content) != BT_OK) ||
        (strcmp((content.len > 0) ? content.data : "", p->content) != 0) ||
        (strcmp(calls, p->calls) != 0)) {
        fail_msg("%s, cut at %zu and %zu: \"%s\" and \"%s\"", p->text, a, b,
                 (content.len > 0) ? content.data : "", calls);
    }
    bt_tools_fini(&tools);
    bt_strbuf_fini(&content);
}

static void every_format_is_parsed_at_any_split(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(parsings); i++) {
        const size_t n = strlen(parsings[i].text);

        for (size_t a = 0; a <= n; a++) {
            for (size_t b = a; b <= n; b++) {
                check(&parsings[i], a, b);
            }
        }
    }
}

/* ---- what a stream tells, and when ---- */

typedef struct told {
    const char *piece, *content, *calls; /* all so far */
} told_t;

static void check_told(const char *format, const told_t *told, size_t n)
{
    const bt_tools_spec_t spec = spec_of(format);
    bt_strbuf_t content;
    bt_tools_t tools;
    char calls[1024];

    bt_strbuf_init(&content, 4096);
    bt_tools_init(&tools, &spec);
    for (size_t i = 0; i < n; i++) {
        bt_tools_push(&tools, told[i].piece, strlen(told[i].piece), i == n - 1,
                      &content);
        print_calls(&tools, calls, sizeof(calls));
        assert_string_equal((content.len > 0) ? content.data : "",
                            told[i].content);
        assert_string_equal(calls, told[i].calls);
    }
    bt_tools_fini(&tools);
    bt_strbuf_fini(&content);
}

static void arguments_are_emitted_incrementally(void **state)
{
    static const told_t hermes[] = {
        {"Well", "Well", ""},
        {",\n<tool", "Well,", ""},
        {"_call>{\"name\": \"ge", "Well,", ""},
        {"t\", \"argu", "Well,", ""},
        {"ments\": ", "Well,", ""},
        {"{", "Well,", "get {;"},
        {"\"a\": [1,", "Well,", "get {\"a\": [1,;"},
        {" 2]}}</too", "Well,", "get {\"a\": [1, 2]};"},
        {"l_call>", "Well,", "get {\"a\": [1, 2]};"},
        {" x", "Well, x", "get {\"a\": [1, 2]};"},
    };
    static const told_t mistral[] = {
        {"[TOOL_CALLS]get[AR", "", ""},
        {"GS]{\"a\"", "", "get {\"a\";"},
        {":1}", "", "get {\"a\":1};"},
    };
    static const told_t llama3[] = {
        {"{\"name\": \"f\", \"parameters\": {\"a", "", "f {\"a;"},
        {"\": 1}}; ", "", "f {\"a\": 1};"},
        {"{\"name\": \"g\", \"parameters\": {}", "", "f {\"a\": 1};g {};"},
    };

    (void)state;
    check_told("hermes", hermes, BT_ARRAY_LEN(hermes));
    check_told("mistral", mistral, BT_ARRAY_LEN(mistral));
    check_told("llama3", llama3, BT_ARRAY_LEN(llama3));
}

static void malformed_call_keeps_emitted_arguments(void **state)
{
    static const told_t cut[] = {
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"", "", "f {\"a\";"},
        {": ", "", "f {\"a\": ;"},
    };
    static const told_t torn[] = {
        {"<tool_call>{\"name\": \"f\", \"arguments\": {", "", "f {;"},
        {"a", "", "f {a;"},
        {"}}</tool", "", "f {a}};"},
        {"_call> b", "b", "f {a}};"},
    };

    (void)state;
    check_told("hermes", cut, BT_ARRAY_LEN(cut));
    check_told("hermes", torn, BT_ARRAY_LEN(torn));
}

/* Why a choice ends is "tool_calls" only where the last one is complete. */
static void text_ending_within_call_is_marked_cut(void **state)
{
    static const struct {
        const char *format, *text;
        bool is_cut;
    } rows[] = {
        {"hermes", "a", false},
        {"hermes", "<tool_call>{\"name\": \"f\"", true},
        {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {", true},
        {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}", false},
        {"hermes", "<tool_call>" F "</tool_call><tool_call>{", false},
        {"hermes", "<tool_call>" F "</tool_call><tool_call>{\"name\": \"g\"",
         true},
        {"mistral", "[TOOL_CALLS]f[ARGS]{\"a\"", true},
        {"mistral", "[TOOL_CALLS]f[ARGS]{}", false},
        {"llama3", P "; {\"name\": \"g\"", true},
        {"pythonic", "[f(a=1), g", false},
        {"pythonic", "[f(a=1), g(", true},
        {"pythonic", "[f(a=1), nobody(", false},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        const bt_tools_spec_t spec = spec_of(rows[i].format);
        bt_strbuf_t content;
        bt_tools_t tools;

        bt_strbuf_init(&content, 4096);
        bt_tools_init(&tools, &spec);
        bt_tools_push(&tools, rows[i].text, strlen(rows[i].text), true,
                      &content);
        if (bt_tools_is_cut(&tools) != rows[i].is_cut) {
            fail_msg("%s", rows[i].text);
        }
        bt_tools_fini(&tools);
        bt_strbuf_fini(&content);
    }
}

/* ---- the rest ---- */

static void text_after_last_allowed_call_is_dropped(void **state)
{
    static const char *const texts[][3] = {
        {"hermes", "a <tool_call>" F "</tool_call><tool_call>" F, "a"},
        {"llama3", P ";" P, ""},
        {"mistral", "[TOOL_CALLS][" F "," F "]", ""},
        {"mistral", "[TOOL_CALLS]f[ARGS]" A "[TOOL_CALLS]f[ARGS]{}", ""},
        {"pythonic", "[f(), g()] x", ""},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        const char *const *row = texts[i];
        bt_tools_spec_t spec = spec_of(row[0]);
        bt_strbuf_t content;
        bt_tools_t tools;

        spec.max_calls = 1;
        bt_strbuf_init(&content, 4096);
        bt_tools_init(&tools, &spec);
        bt_tools_push(&tools, row[1], strlen(row[1]), true, &content);
        assert_int_equal(tools.n_calls, 1);
        assert_string_equal(tools.calls[0].name, "f");
        assert_string_equal((content.len > 0) ? content.data : "", row[2]);
        bt_tools_fini(&tools);
        bt_strbuf_fini(&content);
    }
}

static void push_all(const char *format, const char *text, size_t n,
                     uint32_t n_calls, size_t n_content)
{
    const bt_tools_spec_t spec = spec_of(format);
    bt_strbuf_t content;
    bt_tools_t tools;

    bt_strbuf_init(&content, SIZE_MAX / 4);
    bt_tools_init(&tools, &spec);
    for (size_t i = 0; i < n; i += 7) {
        bt_tools_push(&tools, text + i, (n - i < 7) ? n - i : 7, false,
                      &content);
    }
    bt_tools_push(&tools, "", 0, true, &content);
    assert_int_equal(bt_strbuf_status(&content), BT_OK);
    assert_int_equal(tools.n_calls, n_calls);
    assert_int_equal(content.len, n_content);
    bt_tools_fini(&tools);
    bt_strbuf_fini(&content);
}

static void hostile_texts_are_bounded(void **state)
{
    static char text[65536];
    size_t n = 0;

    (void)state;
    /* Deeper than is read. */
    memset(text, '[', sizeof(text) - 1);
    memcpy(text, "[f(a=", 5);
    push_all("pythonic", text, sizeof(text) - 1, 0, sizeof(text) - 1);
    memset(text, '[', sizeof(text) - 1);
    n = (size_t)snprintf(text, sizeof(text), "<tool_call>{\"name\": ");
    text[n] = '[';
    push_all("hermes", text, sizeof(text) - 1, 0, sizeof(text) - 1);
    /* A head that never ends. */
    memset(text, ' ', sizeof(text) - 1);
    memcpy(text, "<tool_call>{", 12);
    text[sizeof(text) - 2] = 'x';
    push_all("hermes", text, sizeof(text) - 1, 0, sizeof(text) - 1);
    /* One call too many. */
    n = 0;
    for (int i = 0; i < BT_TOOLS_MAX_CALLS + 1; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "<tool_call>" F);
    }
    push_all("hermes", text, n, BT_TOOLS_MAX_CALLS, strlen("<tool_call>" F));
}

static bt_status_t push_with_failure(const parsing_t *p, int nth)
{
    const bt_tools_spec_t spec = spec_of(p->format);
    bt_status_t status;
    bt_strbuf_t content;
    bt_tools_t tools;

    bt_strbuf_init(&content, 4096);
    bt_tools_init(&tools, &spec);
    bt_alloc_fail_at(nth);
    bt_tools_push(&tools, p->text, strlen(p->text), true, &content);
    bt_alloc_fail_at(0);
    status = bt_strbuf_status(&content);
    assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
    if (status == BT_OK) {
        char calls[1024];

        print_calls(&tools, calls, sizeof(calls));
        assert_string_equal(calls, p->calls);
    }
    bt_tools_fini(&tools);
    bt_strbuf_fini(&content);
    return status;
}

static void failed_allocation_is_reported(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(parsings); i++) {
        int nth = 0;
        int n_failed = 0;

        do {
            nth++;
            n_failed += push_with_failure(&parsings[i], nth) != BT_OK ? 1 : 0;
        } while (n_failed == nth);
        assert_true((parsings[i].calls[0] == '\0') || (n_failed > 1));
    }
}

static const bt_tool_format_t *format_of(const char *text)
{
    return bt_tool_format_of(text, strlen(text));
}

static void format_is_detected_from_template(void **state)
{
    const char *marks[BT_TOOLS_MAX_MARKS];
    static const char qwen[] = "{{- '\\n<tool_call>\\n{\"name\": \"' }}";

    (void)state;
    assert_ptr_equal(bt_tool_format_of(qwen, strlen(qwen)),
                     bt_tool_format_named("hermes"));
    assert_null(bt_tool_format_of("plain", 5));
    /* GLM 4.5 and Qwen 3 Coder: other forms between the same marks. */
    assert_null(format_of("<tool_call>f<arg_key>"));
    assert_null(format_of("<tool_call><function=f>"));
    assert_ptr_equal(format_of("{\"name\": function name, \"parameters\": d}"),
                     bt_tool_format_named("llama3"));
    assert_null(bt_tool_format_of(NULL, 0));
    assert_null(bt_tool_format_named("off"));
    assert_int_equal(
        bt_tool_format_marks(bt_tool_format_named("mistral"), marks), 3);
    assert_string_equal(marks[2], "[CALL_ID]");
    assert_int_equal(
        bt_tool_format_marks(bt_tool_format_named("llama3"), marks), 1);
    assert_int_equal(bt_tool_format_id_bytes(bt_tool_format_named("mistral")),
                     9);
}

/* The opening of an answer is the beginning of a call. */
static void answer_can_be_opened_with_call(void **state)
{
    static const char *const rests[][3] = {
        {"hermes", A "}\n</tool_call>", "get_weather\", \"arguments\": " A "}"},
        {"llama3", A "}", "get_weather\", \"parameters\": " A "}"},
        {"mistral", A "}]", "get_weather\", \"arguments\": " A "}]"},
        {"pythonic", "a=1)]", "get_weather(a=1)]"},
    };

    (void)state;
    for (size_t i = 0; i < 2 * BT_ARRAY_LEN(rests); i++) {
        const bool named = (i % 2) == 0;
        const char *format = rests[i / 2][0];
        const bt_tools_spec_t spec = spec_of(format);
        bt_strbuf_t opened;
        bt_strbuf_t content;
        bt_tools_t tools;

        bt_strbuf_init(&opened, 4096);
        bt_strbuf_init(&content, 4096);
        bt_tools_init(&tools, &spec);
        (void)bt_tool_format_open(spec.format, named ? "get_weather" : NULL,
                                  &opened);
        bt_tools_open(&tools, opened.data, opened.len, &content);
        bt_tools_push(&tools, rests[i / 2][named ? 1 : 2],
                      strlen(rests[i / 2][named ? 1 : 2]), true, &content);
        assert_int_equal(tools.n_calls, 1);
        assert_string_equal(tools.calls[0].name, "get_weather");
        assert_int_equal(content.len, 0);
        bt_tools_fini(&tools);
        bt_strbuf_fini(&opened);
        bt_strbuf_fini(&content);
    }
}

/* An answer that was opened as a call: what was opened is never content. */
static void opening_is_not_part_of_content(void **state)
{
    static const struct {
        const char *format, *name, *text, *content, *calls;
    } rows[] = {
        {"hermes", "f", "", "", "f ;"},
        {"hermes", NULL, "", "", ""},
        {"hermes", NULL, "get_w", "", ""},
        {"hermes", "f", " {\"a\"", "", "f {\"a\";"},
        {"hermes", "f", "No, thanks.", "No, thanks.", ""},
        {"hermes", NULL, "No, thanks.", "No, thanks.", ""},
        {"llama3", "f", "", "", "f ;"},
        {"llama3", NULL, "", "", ""},
        {"llama3", "f", "No.", "No.", ""},
        {"mistral", "f", "", "", "f ;"},
        {"mistral", NULL, "", "", ""},
        {"mistral", "f", "No.", "No.", ""},
        {"pythonic", "f", "", "", "f ;"},
        {"pythonic", NULL, "", "", ""},
        {"pythonic", "f", "No.)]", "No.)]", ""},
        {"pythonic", NULL, "No, thanks.]", "No, thanks.]", ""},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        const bt_tools_spec_t spec = spec_of(rows[i].format);
        bt_strbuf_t opened;
        bt_strbuf_t content;
        bt_tools_t tools;
        char calls[1024];

        bt_strbuf_init(&opened, 4096);
        bt_strbuf_init(&content, 4096);
        bt_tools_init(&tools, &spec);
        (void)bt_tool_format_open(spec.format, rows[i].name, &opened);
        bt_tools_open(&tools, opened.data, opened.len, &content);
        for (const char *at = rows[i].text; *at != '\0'; at++) {
            bt_tools_push(&tools, at, 1, false, &content);
        }
        bt_tools_push(&tools, "", 0, true, &content);
        print_calls(&tools, calls, sizeof(calls));
        if ((strcmp((content.len > 0) ? content.data : "", rows[i].content) !=
             0) ||
            (strcmp(calls, rows[i].calls) != 0)) {
            fail_msg("row %zu: \"%s\" and \"%s\"", i,
                     (content.len > 0) ? content.data : "", calls);
        }
        bt_tools_fini(&tools);
        bt_strbuf_fini(&opened);
        bt_strbuf_fini(&content);
    }
}

/* ---- where an object ends ---- */

static void json_scan_finds_end_of_object(void **state)
{
    /* Source: RFC 8259; '|' where it ends, '!' where it cannot go on. */
    static const char *const rows[] = {
        "{}|x",
        "[]|",
        " [1, -2.50e-3, 0, 0.1E5, true,false ,null, \"\\u00Af\\\"\\\\\"]|",
        "{\"a\" : {\"b\":[{}, [ ]]}\t}|",
        "[01!",
        "[1.!]",
        "[.!",
        "[-!]",
        "[1e!]",
        "[1e+!]",
        "[00!",
        "[1 2!",
        "[1,]!",
        "[,!",
        "{,!",
        "{\"a\"}!",
        "{\"a\":}!",
        "{\"a\":1,}!",
        "{a!",
        "{1!",
        "[tru !",
        "[trux!",
        "[\"\\x!",
        "[\"\\u00g!",
        "[\"\n!",
        "[}!",
        "{]!",
        "[1}!",
        "\"!",
        "1!",
        "t!",
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        bt_json_scan_result_t result = BT_JSON_SCAN_MORE;
        bt_json_scan_t scan;
        const char *at = rows[i];

        bt_json_scan_init(&scan);
        while ((*at != '\0') && (result == BT_JSON_SCAN_MORE) && (*at != '|')) {
            result = bt_json_scan_push(&scan, *at);
            at += 1;
        }
        if ((result == BT_JSON_SCAN_DONE) ? (*at != '|')
            : (result == BT_JSON_SCAN_BAD)
                ? (strchr(rows[i], '!') == NULL)
                : ((strchr(rows[i], '!') != NULL) || (*at == '|'))) {
            fail_msg("%s: %d at %td", rows[i], (int)result, at - rows[i]);
        }
    }
}

/* The name is also a word of the format's mark. */
static void name_in_the_opening_of_a_call_is_behind_its_mark(void **state)
{
    static const char opening[] = "<|channel|>commentary to=functions.";
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_strbuf_puts(&out, "x");
    assert_int_equal(
        bt_tool_format_open(bt_tool_format_named("harmony"), "channel", &out),
        1 + strlen(opening));
    assert_string_equal(out.data + 1 + strlen(opening),
                        "channel <|constrain|>json<|message|>");
    bt_strbuf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_format_is_parsed_at_any_split),
        BT_TEST(arguments_are_emitted_incrementally),
        BT_TEST(malformed_call_keeps_emitted_arguments),
        BT_TEST(text_ending_within_call_is_marked_cut),
        BT_TEST(text_after_last_allowed_call_is_dropped),
        BT_TEST(hostile_texts_are_bounded),
        BT_TEST(failed_allocation_is_reported),
        BT_TEST(format_is_detected_from_template),
        BT_TEST(answer_can_be_opened_with_call),
        BT_TEST(opening_is_not_part_of_content),
        BT_TEST(name_in_the_opening_of_a_call_is_behind_its_mark),
        BT_TEST(json_scan_finds_end_of_object),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
