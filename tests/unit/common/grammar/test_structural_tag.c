/* SPDX-License-Identifier: Apache-2.0 */
/* Structural tags have the texts that XGrammar's page "Structural Tag"
 * describes; expected texts are worked out by hand from it. */
#include "common/grammar/structural_tag.h"

#include <stdio.h>

#include "common/base/alloc.h"
#include "common/grammar/compile.h"
#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

#define TAG(format, ...)              \
    HAS_OF(BT_GRAMMAR_STRUCTURAL_TAG, \
           "{'type':'structural_tag','format':" format "}", __VA_ARGS__)
#define TAG_REFUSED(format, part)                                         \
    schema_check_refused(BT_GRAMMAR_STRUCTURAL_TAG,                       \
                         "{'type':'structural_tag','format':" format "}", \
                         BT_ERR_UNSUPPORTED, part)
#define TAG_WRONG(format, part)                                           \
    schema_check_refused(BT_GRAMMAR_STRUCTURAL_TAG,                       \
                         "{'type':'structural_tag','format':" format "}", \
                         BT_ERR_INVALID_PARAM, part)

static void formats_of_one_part_have_its_texts(void **state)
{
    (void)state;
    TAG("{'type':'const_string','value':'ab'}", "ab", NULL, "a", "abc", "");
    TAG("{'type':'json_schema','json_schema':{'enum':[1,'x']}}", "1", "'x'",
        NULL, "x", "2");
    TAG("{'type':'regex','pattern':'[ab]{2}'}", "ab", "bb", NULL, "a", "abc");
    TAG("{'type':'grammar','grammar':'root ::= \\u0022x\\u0022 | "
        "\\u0022(\\u0022 root \\u0022)\\u0022'}",
        "x", "((x))", NULL, "(x");
    TAG("{'type':'any_text'}", "", "abc\n\u00e9", NULL, "\xff");
    TAG("{'type':'any_text','excludes':['ab','c']}", "", "ba", "aad", NULL,
        "ab", "xabx", "c", "aab");
}

/* Texts are those of Python's json.dumps(text, ensure_ascii=False). */
static void json_strings_have_the_texts_of_their_grammar(void **state)
{
    (void)state;
    TAG("{'type':'json_string','lark':'start: line+\\nline: /[^\\\\n]+/ LF\\n"
        "%import common.LF'}",
        "'a\\n'", "'a\\nb c\\n'", "'\\\\\\'\\n'", "'\u00e9\\t\\n'",
        "'\\u0001\\u001f\\n'", NULL, "'a'", "''", "'\\n'", "a\\n", "'a\\n",
        "'a\n'", "'\\u000a'", "'\\u001F\\n'");
    TAG("{'type':'json_string','lark':'start: ((\\'a\\' | \\'B\\'i) "
        "\\'\\\\n\\')~2 [\\'!\\'..\\'#\\']'}",
        "'a\\nb\\n'", "'B\\na\\n#'", "'a\\na\\n\\''", NULL, "'a\\n'",
        "'a\\na\\n$'", "'a\\na\\n\\n'");
    TAG("{'type':'json_string','pattern':'(.|\\\\n){2,3}\\\\t'}", "'\\'\\'\\t'",
        "'a\\nb\\t'", NULL, "'a\\t'", "'abcd\\t'", "'ab\t'");
    /* A long repetition counts characters, and not their spellings. */
    TAG("{'type':'json_string','pattern':'[\\\\n]{2,30000}'}", "'\\n\\n'",
        "'\\n\\n\\n'", NULL, "'\\n'");
    /* Other strings are not spelled so. */
    TAG("{'type':'sequence','elements':[{'type':'json_string','pattern':'\\\\n'"
        "},{'type':'const_string','value':'\\n'}]}",
        "'\\n'\n", NULL, "'\\n'\\n");
    TAG_REFUSED("{'type':'json_string','lark':'start: %json {}'}",
                "/format/lark: line 1: %json within a JSON string is");
    TAG_REFUSED("{'type':'json_string','lark':'start: a\\na: b \\'x\\' | "
                "\\'y\\'\\nb: a'}",
                "recurs");
    TAG_WRONG("{'type':'json_string','lark':'start: x'}", "/format/lark");
    TAG_WRONG("{'type':'json_string','pattern':'('}", "/format/pattern");
    TAG_WRONG("{'type':'json_string'}", "/format: lark is missing");
    TAG_WRONG("{'type':'json_string','lark':'','pattern':''}",
              "/format: a json_string has a lark or a pattern, not both");
}

static void parts_are_combined(void **state)
{
    (void)state;
    TAG("{'type':'sequence','elements':[{'type':'const_string','value':'a'},"
        "{'type':'regex','pattern':'[0-9]'}]}",
        "a1", NULL, "a", "1", "a12");
    TAG("{'type':'or','elements':[{'type':'const_string','value':'a'},"
        "{'type':'const_string','value':'bc'}]}",
        "a", "bc", NULL, "", "b", "abc");
    TAG("{'type':'optional','content':{'type':'const_string','value':'ab'}}",
        "", "ab", NULL, "abab");
    TAG("{'type':'star','content':{'type':'const_string','value':'ab'}}", "",
        "ab", "abab", NULL, "aba");
    TAG("{'type':'plus','content':{'type':'const_string','value':'ab'}}", "ab",
        "abab", NULL, "");
    TAG("{'type':'repeat','content':{'type':'const_string','value':'a'},"
        "'min':2,'max':3}",
        "aa", "aaa", NULL, "a", "aaaa");
    TAG("{'type':'repeat','content':{'type':'const_string','value':'a'},"
        "'min':2,'max':-1}",
        "aa", "aaaaaa", NULL, "a");
}

static void free_text_in_a_tag_has_no_end_of_it(void **state)
{
    (void)state;
    TAG("{'type':'tag','begin':'<a>','content':{'type':'any_text'},"
        "'end':'</a>'}",
        "<a></a>", "<a>x<a></a>", "<a></</a>", NULL, "<a>", "<a></a></a>",
        "<a></a>x");
    TAG("{'type':'tag','begin':'<','content':{'type':'any_text'},"
        "'end':['>','!']}",
        "<>", "<x!", NULL, "<x", "<!>");
    TAG("{'type':'tag','begin':'<','content':{'type':'json_schema',"
        "'json_schema':{'type':'integer'}},'end':'>'}",
        "<12>", NULL, "<>", "<1");
    TAG("{'type':'tag','begin':'','content':{'type':'const_string',"
        "'value':'a'},'end':''}",
        "a", NULL, "");
}

#define TWO_TAGS                                                           \
    "'tags':[{'begin':'<f>','content':{'type':'regex','pattern':'[0-9]'}," \
    "'end':'</f>'},{'type':'tag','begin':'<g>','content':{'type':"         \
    "'const_string','value':'x'},'end':'</g>'}]"

static void triggered_tags_are_in_free_text(void **state)
{
    (void)state;
    TAG("{'type':'triggered_tags','triggers':['<'],"
        "'excludes':['q']," TWO_TAGS "}",
        "", "text > /", "<f>1</f>", "a<f>1</f>b<g>x</g>c", NULL, "<", "a<f>",
        "a<f>x</f>", "a<h>1</h>", "aq", "<f>1</f>q");
    TAG("{'type':'triggered_tags','triggers':['<f>','<g>']," TWO_TAGS "}",
        "a < b", "<f>1</f><", "<f<g>x</g>", NULL, "<f>", "a<g>");
    TAG("{'type':'triggered_tags','triggers':['<'],'at_least_one':true,"
        "" TWO_TAGS "}",
        "<f>1</f>", "<g>x</g>text<f>2</f>", NULL, "", "text", "a<f>1</f>");
    TAG("{'type':'triggered_tags','triggers':['<'],'stop_after_first':true,"
        "" TWO_TAGS "}",
        "", "text", "text<f>1</f>", NULL, "<f>1</f>text", "<f>1</f><f>1</f>");
    TAG("{'type':'triggered_tags','triggers':['<'],'at_least_one':true,"
        "'stop_after_first':true," TWO_TAGS "}",
        "<f>1</f>", NULL, "", "<f>1</f>a", "a<f>1</f>");
}

static void tags_with_separator_are_a_list(void **state)
{
    (void)state;
    TAG("{'type':'tags_with_separator','separator':', '," TWO_TAGS "}", "",
        "<f>1</f>", "<f>1</f>, <g>x</g>", NULL, "<f>1</f><g>x</g>",
        "<f>1</f>, ");
    TAG("{'type':'tags_with_separator','separator':','," TWO_TAGS
        ",'at_least_one':true}",
        "<f>1</f>,<f>1</f>", NULL, "");
    TAG("{'type':'tags_with_separator','separator':','," TWO_TAGS
        ",'stop_after_first':true}",
        "", "<f>1</f>", NULL, "<f>1</f>,<f>1</f>");
}

/* A token is no byte: its grammar has an edge for it. */
static void tokens_are_taken_by_their_id(void **state)
{
    static const char text[] =
        "{\"format\":{\"type\":\"tag\",\"begin\":{\"type\":\"token\","
        "\"token\":7},\"content\":{\"type\":\"const_string\",\"value\":"
        "\"a\"},\"end\":{\"type\":\"token\",\"token\":9}}}";
    const bt_grammar_source_t source = {.kind = BT_GRAMMAR_STRUCTURAL_TAG,
                                        .text = text,
                                        .bytes = sizeof(text) - 1};
    char why[BT_GRAMMAR_WHY_BYTES];
    uint8_t *program;
    size_t bytes;
    const char *fault;
    bt_grammar_t *g;
    uint32_t n_takes = 0;

    (void)state;
    assert_int_equal(
        bt_grammar_compile(&source, &program, &bytes, why, sizeof(why)), BT_OK);
    assert_int_equal(bt_grammar_load(program, bytes, &fault, &g), BT_OK);
    for (uint32_t e = 0; e < g->n_edges; e++) {
        if (g->edges[e].kind == BT_GRAMMAR_TAKES) {
            assert_int_equal(g->edges[e].arg, (n_takes == 0) ? 7 : 9);
            assert_int_equal(g->edges[e].last, g->edges[e].arg);
            n_takes++;
        }
    }
    assert_int_equal(n_takes, 2);
    bt_grammar_free(g);
    bt_free(program);
}

/* The form of SGLang and of vLLM before 0.11. */
static void older_form_is_triggered_tags_with_schemas(void **state)
{
    (void)state;
    HAS_OF(BT_GRAMMAR_STRUCTURAL_TAG,
           "{'type':'structural_tag','triggers':['<f'],'structures':[{'begin':"
           "'<f=a>','schema':{'type':'integer'},'end':'</f>'}]}",
           "", "x<y", "x<f=a>-1</f>y", NULL, "<f", "<f=b>", "<f=a>x</f>");
}

static void strict_is_said_for_each_schema(void **state)
{
    (void)state;
    TAG("{'type':'json_schema','strict':false,"
        "'json_schema':{'const':1,'x-note':2}}",
        "1", NULL, "2");
    TAG_REFUSED("{'type':'json_schema','strict':true,"
                "'json_schema':{'const':1,'x-note':2}}",
                "/format/json_schema/x-note: ");
}

/* References and identifiers stay within the schema that has them, and equal
 * texts mean what they mean where they stand. */
static void schemas_of_one_tag_are_apart(void **state)
{
    (void)state;
    TAG("{'type':'sequence','elements':["
        "{'type':'json_schema','json_schema':{'$defs':{'x':{'const':1}},"
        "'type':'array','items':{'$ref':'#/$defs/x'}}},"
        "{'type':'json_schema','json_schema':{'$defs':{'x':{'const':2}},"
        "'type':'array','items':{'$ref':'#/$defs/x'}}}]}",
        "[1][2]", "[1,1][]", NULL, "[1][1]", "[2][2]", "[2][1]");
    TAG("{'type':'sequence','elements':["
        "{'type':'json_schema','json_schema':{'$id':'http://a/b','$defs':{'x':"
        "{'$id':'c','const':1}},'allOf':[{'$ref':'c'}]}},"
        "{'type':'json_schema','json_schema':{'$id':'http://a/b','$defs':{'x':"
        "{'$id':'c','const':2}},'allOf':[{'$ref':'http://a/c'}]}}]}",
        "12", NULL, "11", "22", "21");
    /* Drafts differ in what stands beside $ref, and in what items is. */
    TAG("{'type':'sequence','elements':[{'type':'json_schema','json_schema':{"
        "'$schema':'http://json-schema.org/draft-07/schema#','anyOf':[{'type':"
        "'array','items':[{'const':1}],'additionalItems':false}]}},{'type':"
        "'json_schema','json_schema':{'anyOf':[{'type':'array','prefixItems':[{"
        "'const':1}],'items':false}]}}]}",
        "[1][1]", NULL, "[2][1]", "[1][2]");
    /* A beginning that is behind its content is made before it. */
    TAG("{'type':'tag','content':{'type':'json_schema','json_schema':{'$defs':"
        "{'x':{'const':1}},'allOf':[{'$ref':'#/$defs/x'}]}},'begin':{'type':"
        "'json_schema','json_schema':{'$defs':{'x':{'const':2}},'allOf':[{'$ref'"
        ":'#/$defs/x'}]}},'end':''}",
        "21", NULL, "11", "12", "22");
    TAG_WRONG("{'type':'sequence','elements':[{'type':'json_schema',"
              "'json_schema':{'$defs':{'x':true}}},{'type':'json_schema',"
              "'json_schema':{'$ref':'#/$defs/x'}}]}",
              "/format/elements/1/json_schema/$ref: there is no such schema");
}

static void errors_name_the_place(void **state)
{
    (void)state;
    TAG_REFUSED("{'type':'xml'}", "/format/type: this format is not supported");
    TAG_REFUSED("{'type':'any_text','min':1}",
                "/format/min: this member is not supported");
    TAG_REFUSED("{'type':'token','token':'<think>'}",
                "/format/token: tokens by their text");
    TAG_REFUSED("{'type':'json_schema','json_schema':true,'style':'qwen_xml'}",
                "/format/style: styles but json");
    TAG_WRONG("{'type':'token','token':-1}",
              "/format/token: token must be an id");
    TAG_WRONG("{'type':'sequence','elements':[{'type':'or','elements':[]}]}",
              "/format/elements/0/elements: must have at least one format");
    TAG_WRONG("{'type':'tag','begin':'a','content':{'type':'any_text'}}",
              "/format: end is missing");
    TAG_WRONG("{'type':'tag','begin':1,'content':{'type':'any_text'},'end':''}",
              "/format/begin: must be a text, a token or a list");
    TAG_WRONG("{'type':'triggered_tags','triggers':['<x']," TWO_TAGS "}",
              "/format/tags/0: begin must be a text that begins with");
    TAG_WRONG("{'type':'triggered_tags','triggers':[]," TWO_TAGS "}",
              "/format: triggers are missing");
    TAG_WRONG("{'type':'any_text','excludes':['']}",
              "/format/excludes/0: must be a text");
    TAG_WRONG("{'type':'repeat','content':{'type':'any_text'},'min':3,'max':2}",
              "/format: min is above max");
    TAG_WRONG("{'type':'json_schema','json_schema':{'type':'x'}}",
              "/format/json_schema/type: ");
    TAG_WRONG("{'type':'regex','pattern':'('}", "/format/pattern: ");
    TAG_WRONG("{'type':'grammar','grammar':'root ::= x'}",
              "/format/grammar: line 1");
    TAG_WRONG("1", "/format: must be a format");
    schema_check_refused(BT_GRAMMAR_STRUCTURAL_TAG, "{'type':'x'}",
                         BT_ERR_INVALID_PARAM, "/type: must be structural_tag");
    schema_check_refused(BT_GRAMMAR_STRUCTURAL_TAG, "[]", BT_ERR_INVALID_PARAM,
                         "the structural tag: must be an object");
    schema_check_refused(BT_GRAMMAR_STRUCTURAL_TAG, "{", BT_ERR_INVALID_PARAM,
                         "the structural tag is not JSON");
    schema_check_refused(BT_GRAMMAR_STRUCTURAL_TAG, "{}", BT_ERR_INVALID_PARAM,
                         "the structural tag: format is missing");
}

/* 32 formats within one another are taken, 33 are not. */
static void formats_have_a_depth(void **state)
{
    char text[4096];

    (void)state;
    for (int depth = 32; depth <= 33; depth++) {
        size_t n = (size_t)snprintf(text, sizeof(text), "{'format':");

        for (int i = 1; i < depth; i++) {
            n += (size_t)snprintf(text + n, sizeof(text) - n,
                                  "{'type':'optional','content':");
        }
        n += (size_t)snprintf(text + n, sizeof(text) - n,
                              "{'type':'const_string','value':'a'}");
        for (int i = 0; i < depth; i++) {
            text[n++] = '}';
        }
        text[n] = '\0';
        if (depth == 32) {
            HAS_OF(BT_GRAMMAR_STRUCTURAL_TAG, text, "", "a", NULL, "aa");
        } else {
            schema_check_refused(BT_GRAMMAR_STRUCTURAL_TAG, text,
                                 BT_ERR_TOO_LARGE, "nested deeper than 32");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(formats_of_one_part_have_its_texts),
        BT_TEST(json_strings_have_the_texts_of_their_grammar),
        BT_TEST(parts_are_combined),
        BT_TEST(free_text_in_a_tag_has_no_end_of_it),
        BT_TEST(triggered_tags_are_in_free_text),
        BT_TEST(tags_with_separator_are_a_list),
        BT_TEST(tokens_are_taken_by_their_id),
        BT_TEST(older_form_is_triggered_tags_with_schemas),
        BT_TEST(strict_is_said_for_each_schema),
        BT_TEST(schemas_of_one_tag_are_apart),
        BT_TEST(errors_name_the_place),
        BT_TEST(formats_have_a_depth),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
