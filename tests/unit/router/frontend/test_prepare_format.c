/* SPDX-License-Identifier: Apache-2.0 */
/* What a whole answer may be; texts by hand, of models' own chat templates. */
#include "router/frontend/prepare_priv.h"

#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/gguf/gguf.h"
#include "tests/support/grammar_text.h"
#include "tests/support/schema_texts.h"
#include "tests/support/tiny_model.h"

static bt_gguf_t *gguf;
static bt_tokenizer_t *tok;
static uint32_t n_vocab;

/* A vocabulary of which the last two tokens are <think> and </think>. */
static int load(void **state)
{
    char path[] = "/tmp/baton-test-XXXXXX";
    bt_tiny_model_t model = bt_tiny_model_default();
    char why[256];
    const int fd = mkstemp(path);

    (void)state;
    model.thinks = true;
    model.n_vocab = bt_tiny_model_min_vocab() + 2;
    n_vocab = model.n_vocab;
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(bt_tiny_model_write(&model, path), BT_OK);
    assert_int_equal(bt_gguf_open(path, why, sizeof(why), &gguf), BT_OK);
    assert_int_equal(bt_tokenizer_load(gguf, why, sizeof(why), &tok), BT_OK);
    (void)unlink(path);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
    return 0;
}

typedef struct rig {
    bt_served_t served;
    bt_api_request_t request;
    bt_prepare_format_t format;
} rig_t;

static void rig_init(rig_t *rig, bt_grammar_kind_t kind, const char *text)
{
    memset(rig, 0, sizeof(*rig));
    bt_api_request_init(BT_API_CHAT, &rig->request);
    rig->served.tok = tok;
    rig->served.reason = bt_reason_marks_named("think");
    rig->served.tools = bt_tool_format_named("hermes");
    rig->format.served = &rig->served;
    rig->format.request = &rig->request;
    if (text != NULL) {
        rig->request.grammar.field = "x";
        rig->request.grammar.kind = kind;
        rig->request.grammar.text = schema_quoted_text(text);
        rig->request.grammar.bytes = strlen(text);
        rig->request.grammar.lenient = true;
    }
}

static void rig_tools(rig_t *rig, const char *tools)
{
    rig->request.tools.json = schema_quoted_text(tools);
}

static void rig_fini(rig_t *rig)
{
    bt_api_request_fini(&rig->request);
}

/* Compiles what is written. @return NULL: refused */
static bt_grammar_t *grammar_of(const rig_t *rig,
                                char why[BT_GRAMMAR_WHY_BYTES])
{
    bt_grammar_source_t source = {.kind = BT_GRAMMAR_STRUCTURAL_TAG,
                                  .compact = true,
                                  .lenient = rig->request.grammar.lenient};
    bt_strbuf_t text;
    uint8_t *program = NULL;
    size_t bytes;
    const char *fault;
    bt_grammar_t *g = NULL;

    bt_strbuf_init(&text, BT_GRAMMAR_TAG_BYTES);
    assert_int_equal(bt_prepare_format(&rig->format, &text), BT_OK);
    source.text = text.data;
    source.bytes = text.len;
    if (bt_grammar_compile(&source, &program, &bytes, why,
                           BT_GRAMMAR_WHY_BYTES) == BT_OK) {
        assert_int_equal(bt_grammar_load(program, bytes, &fault, &g), BT_OK);
    }
    bt_free(program);
    bt_strbuf_fini(&text);
    return g;
}

static void check(rig_t *rig, const char *const *texts)
{
    char why[BT_GRAMMAR_WHY_BYTES] = "";
    bt_grammar_t *g = grammar_of(rig, why);
    bool is_member = true;

    assert_string_equal(why, "");
    for (; (*texts != NULL) || is_member; texts++) {
        char *text;

        if (*texts == NULL) {
            is_member = false;
            continue;
        }
        text = schema_quoted_text(*texts);
        if (grammar_has_text(g, text, strlen(text)) != is_member) {
            fail_msg("%s", text);
        }
        bt_free(text);
    }
    bt_grammar_free(g);
    rig_fini(rig);
}

/* Texts of it, then NULL, then others. */
#define CHECK(rig, ...) check(rig, (const char *const[]){__VA_ARGS__, NULL})

#define F                                                                     \
    "{'type':'function','function':{'name':'f','strict':true,'parameters':{"  \
    "'type':'object','properties':{'a':{'type':'integer'}},'required':['a']," \
    "'additionalProperties':false}}}"
#define G      "{'type':'function','function':{'name':'g'}}"
#define CALL_F "<tool_call>\n{'name': 'f', 'arguments': {'a':1}}\n</tool_call>"
#define CALL_G "<tool_call>\n{'name': 'g', 'arguments': {'b':2}}\n</tool_call>"

static void each_description_comes_behind_the_thinking_part(void **state)
{
    static const struct {
        bt_grammar_kind_t kind;
        const char *text, *has, *has_not;
    } cases[] = {
        {BT_GRAMMAR_JSON_OBJECT, "", "{'a':[]}", "[]"},
        {BT_GRAMMAR_JSON_SCHEMA, "{'enum':[1,'b']}", "'b'", "2"},
        {BT_GRAMMAR_REGEX, "[ab]{2}", "ab", "abc"},
        {BT_GRAMMAR_CHOICE, "['yes','n\\no']", "yes", "y"},
        {BT_GRAMMAR_EBNF, "root ::= 'x' root | 'y'", "xxy", "x"},
        {BT_GRAMMAR_STRUCTURAL_TAG,
         "{'format':{'type':'const_string','value':'c'}}", "c", ""},
        {BT_GRAMMAR_STRUCTURAL_TAG,
         "{'triggers':['<'],'structures':[{'begin':'<','schema':{'const':1},"
         "'end':'>'}]}",
         "a<1>", "<"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char has[96], has_not[96], early[96];
        rig_t rig;

        rig_init(&rig, cases[i].kind, cases[i].text);
        rig.format.opens_reasoning = true;
        (void)snprintf(has, sizeof(has), "so < I say</think>\n\n%s",
                       cases[i].has);
        (void)snprintf(has_not, sizeof(has_not), "so</think>%s",
                       cases[i].has_not);
        (void)snprintf(early, sizeof(early), "%s", cases[i].has);
        CHECK(&rig, has, NULL, has_not, early, "so");
    }
}

static void the_answer_may_open_the_thinking_part_itself(void **state)
{
    rig_t rig;

    (void)state;
    rig_init(&rig, BT_GRAMMAR_CHOICE, "['yes']");
    rig.format.may_reason = true;
    CHECK(&rig, "yes", "<think>so</think>yes", "<think></think>\nyes", NULL,
          "<think>yes", "so</think>yes", "<think></think>", "");
    rig_init(&rig, BT_GRAMMAR_CHOICE, "['yes']");
    CHECK(&rig, "yes", NULL, "<think>so</think>yes");
}

/* Messages of "OpenAI harmony response format". */
static void answers_of_harmony_have_their_headers(void **state)
{
    static const char analysis[] = "<|channel|>analysis<|message|>";
    static const char *const tools[] = {NULL, "[" F "," G "]"};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(tools); i++) {
        rig_t rig;

        rig_init(&rig, BT_GRAMMAR_CHOICE, "['yes']");
        rig.served.reason = bt_reason_marks_named("harmony");
        rig.served.tools = bt_tool_format_named("harmony");
        rig.served.is_harmony = true;
        rig.request.messages.n = 1; /* a chat */
        rig.format.may_reason = true;
        if (tools[i] != NULL) {
            rig_tools(&rig, tools[i]);
        }
        CHECK(&rig, "<|channel|>final<|message|>yes",
              "<|channel|>analysis<|message|>so<|end|><|start|>assistant"
              "<|channel|>final<|message|>yes",
              NULL, "yes", "<|channel|>analysis<|message|>so<|end|>yes",
              "<|channel|>commentary<|message|>yes", analysis, "");
    }
    for (int continues = 0; continues < 2; continues++) {
        rig_t rig;

        rig_init(&rig, BT_GRAMMAR_CHOICE, "['yes']");
        rig.served.reason = bt_reason_marks_named("harmony");
        rig.served.is_harmony = true;
        rig.request.messages.n = 1; /* a chat */
        rig.request.continues_final = continues != 0;
        rig.format.opens_reasoning = continues == 0;
        CHECK(&rig,
              (continues != 0) ? "yes"
                               : "so<|end|><|start|>assistant"
                                 "<|channel|>final<|message|>yes",
              NULL, "so<|end|>yes", "");
    }
}

static void marks_are_taken_as_tokens_where_they_are_special(void **state)
{
    char why[BT_GRAMMAR_WHY_BYTES] = "";
    bool opens = false, closes = false;
    bt_grammar_t *g;
    rig_t rig;

    (void)state;
    rig_init(&rig, BT_GRAMMAR_CHOICE, "['yes']");
    rig.format.may_reason = true;
    g = grammar_of(&rig, why);
    assert_non_null(g);
    for (uint32_t e = 0; e < g->n_edges; e++) {
        const bt_grammar_edge_t *const edge = &g->edges[e];

        if (edge->kind == BT_GRAMMAR_TAKES) {
            assert_int_equal(edge->arg, edge->last);
            opens = opens || (edge->arg == n_vocab - 2);
            closes = closes || (edge->arg == n_vocab - 1);
        }
    }
    assert_true(opens && closes);
    bt_grammar_free(g);
    rig_fini(&rig);
}

static void calls_follow_their_tools(void **state)
{
    rig_t rig;

    (void)state;
    rig_init(&rig, 0, NULL);
    rig_tools(&rig, "[" F "," G "]");
    rig.request.tools.strict = true;
    CHECK(&rig, "", "text", "text " CALL_F, CALL_G, NULL,
          "<tool_call>\n{'name': 'f', 'arguments': {}}\n</tool_call>");
    rig_init(&rig, 0, NULL); /* behind <tool_call>\n{"name": " */
    rig_tools(&rig, "[" F "," G "]");
    rig.request.tools.required = true;
    CHECK(&rig, "g', 'arguments': {}}\n</tool_call>", NULL, "text",
          "f', 'arguments': {}}\n</tool_call>");
    rig_init(&rig, 0, NULL); /* behind … "f", "arguments":  */
    rig_tools(&rig, "[" G "," F "]");
    rig.request.tools.required = true;
    rig.request.tools.forced = bt_strdup("f");
    CHECK(&rig, "{'a':7}}\n</tool_call>", NULL, "{}}\n</tool_call>");
}

static void calls_stand_beside_a_description(void **state)
{
    rig_t rig;

    (void)state;
    rig_init(&rig, BT_GRAMMAR_JSON_SCHEMA, "{'const':[7]}");
    rig_tools(&rig, "[" F "]");
    rig.format.opens_reasoning = true;
    CHECK(&rig, "hm</think>[7]", "hm</think>\n\n" CALL_F, NULL,
          "hm</think>text", "[7]", CALL_F);
    rig_init(&rig, BT_GRAMMAR_JSON_SCHEMA, "{'const':[7]}");
    rig_tools(&rig, "[" G "]");
    rig.request.tools.required = true; /* a call takes its place */
    CHECK(&rig, "g', 'arguments': {}}\n</tool_call>", NULL, "[7]");
}

/* A schema that is no object's, or cannot be held, stands for any object. */
static void arguments_without_a_schema_are_any_object(void **state)
{
    static const char tools[] =
        "[{'function':{'name':'g','parameters':{'type':'object','properties':"
        "{'a':{'$ref':'http://a/b'}}}}}]";
    char why[BT_GRAMMAR_WHY_BYTES] = "";
    rig_t rig;

    (void)state;
    rig_init(&rig, 0, NULL);
    rig_tools(&rig, tools);
    rig.request.tools.required = true;
    assert_null(grammar_of(&rig, why));
    assert_non_null(strstr(why, "/properties/a/$ref: references to other"));
    rig.format.no_schemas = true;
    CHECK(&rig, "g', 'arguments': {'a':5}}\n</tool_call>", NULL,
          "g', 'arguments': 5}\n</tool_call>");
    rig_init(&rig, 0, NULL);
    rig_tools(&rig, "[{'function':{'name':'g','parameters':{'x':1}}}]");
    rig.request.tools.required = true;
    CHECK(&rig, "g', 'arguments': {'a':5}}\n</tool_call>", NULL,
          "g', 'arguments': 5}\n</tool_call>");
}

static void answers_without_need_have_no_grammar(void **state)
{
    rig_t rig;

    (void)state;
    rig_init(&rig, 0, NULL);
    assert_false(bt_prepare_has_grammar(&rig.served, &rig.request));
    rig_tools(&rig, "[" G "]");
    assert_false(bt_prepare_has_grammar(&rig.served, &rig.request));
    rig.request.tools.strict = true;
    assert_true(bt_prepare_has_grammar(&rig.served, &rig.request));
    rig.served.tools = bt_tool_format_named("pythonic");
    assert_false(bt_prepare_has_grammar(&rig.served, &rig.request));
    rig.request.grammar.field = "x";
    assert_true(bt_prepare_has_grammar(&rig.served, &rig.request));
    assert_false(bt_prepare_follows_tools(&rig.served, &rig.request));
    rig_fini(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(each_description_comes_behind_the_thinking_part),
        BT_TEST(the_answer_may_open_the_thinking_part_itself),
        BT_TEST(answers_of_harmony_have_their_headers),
        BT_TEST(marks_are_taken_as_tokens_where_they_are_special),
        BT_TEST(calls_follow_their_tools),
        BT_TEST(calls_stand_beside_a_description),
        BT_TEST(arguments_without_a_schema_are_any_object),
        BT_TEST(answers_without_need_have_no_grammar),
    };

    return cmocka_run_group_tests(tests, load, unload);
}
