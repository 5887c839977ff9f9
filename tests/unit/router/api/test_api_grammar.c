/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of structured output. */
#include "tests/unit/router/api/api_fixture.h"

#define R            BT_API_RESPONSES
#define RSP(options) "{'input': 'x', " options "}"

typedef struct given {
    bt_api_dialect_t dialect;
    const char *body, *field;
    bt_grammar_kind_t kind;
    const char *text; /* NULL: none */
    bool compact, strict;
} given_t;

#define SCHEMA "{'type': 'object'}"
#define RAW    "{\"type\":\"object\"}"
#define STRICT                                              \
    "{'type': 'object', 'properties': {}, 'required': [], " \
    "'additionalProperties': false}"
#define RAW_STRICT                                            \
    "{\"type\":\"object\",\"properties\":{},\"required\":[]," \
    "\"additionalProperties\":false}"

static void check_given(const given_t *c)
{
    bt_api_request_t r = parsed(c->dialect, c->body);

    if (c->field == NULL) {
        assert_null(r.grammar.field);
    } else {
        assert_non_null(r.grammar.field);
        assert_string_equal(r.grammar.field, c->field);
        assert_int_equal(r.grammar.kind, c->kind);
        assert_int_equal(r.grammar.lenient, !c->strict);
    }
    if (c->text == NULL) {
        assert_null(r.grammar.text);
    } else {
        assert_int_equal(r.grammar.bytes, strlen(c->text));
        assert_memory_equal(r.grammar.text, c->text, r.grammar.bytes);
    }
    assert_int_equal(r.grammar.compact, c->compact);
    bt_api_request_fini(&r);
}

static void openai_formats_describe_the_answer(void **state)
{
    static const given_t cases[] = {
        {H, CHT("'response_format': {'type': 'text'}"), NULL, 0, NULL, 0, 0},
        {H, CHT("'response_format': null"), NULL, 0, NULL, 0, 0},
        {H, CHT("'response_format': {'type': 'json_object'}"),
         "response_format", BT_GRAMMAR_JSON_OBJECT, NULL, 0, 0},
        {C, CMP("'response_format': {'type': 'json_object'}"),
         "response_format", BT_GRAMMAR_JSON_OBJECT, NULL, 0, 0},
        {H,
         CHT("'response_format': {'type': 'json_schema', 'json_schema': "
             "{'name': 'a', 'schema': " SCHEMA "}}"),
         "response_format", BT_GRAMMAR_JSON_SCHEMA, RAW, 0, 0},
        {H,
         CHT("'response_format': {'type': 'json_schema', 'json_schema': "
             "{'name': 'a-_9', 'strict': true, 'schema': " STRICT "}}"),
         "response_format", BT_GRAMMAR_JSON_SCHEMA, RAW_STRICT, 0, 1},
        {H, /* llama.cpp's forms */
         CHT("'response_format': {'type': 'json_object', 'schema': " SCHEMA
             "}"),
         "response_format", BT_GRAMMAR_JSON_SCHEMA, RAW, 0, 0},
        {H,
         CHT("'response_format': {'type': 'json_schema', 'schema': " SCHEMA
             "}"),
         "response_format", BT_GRAMMAR_JSON_SCHEMA, RAW, 0, 0},
        {R, RSP("'text': {'format': {'type': 'text'}}"), NULL, 0, NULL, 0, 0},
        {R, RSP("'text': {'format': {'type': 'json_object'}}"), "text.format",
         BT_GRAMMAR_JSON_OBJECT, NULL, 0, 0},
        {R,
         RSP("'text': {'format': {'type': 'json_schema', 'name': 'a', "
             "'strict': true, 'schema': " STRICT "}}"),
         "text.format", BT_GRAMMAR_JSON_SCHEMA, RAW_STRICT, 0, 1},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        check_given(&cases[i]);
    }
}

static void fields_of_other_servers_describe_the_answer(void **state)
{
    static const given_t cases[] = {
        {H, CHT("'structured_outputs': {'json': " SCHEMA "}"),
         "structured_outputs.json", BT_GRAMMAR_JSON_SCHEMA, RAW, 0, 0},
        {C, CMP("'structured_outputs': {'json': '{}'}"),
         "structured_outputs.json", BT_GRAMMAR_JSON_SCHEMA, "{}", 0, 0},
        {H, CHT("'structured_outputs': {'choice': ['a', 'b c']}"),
         "structured_outputs.choice", BT_GRAMMAR_CHOICE, "[\"a\",\"b c\"]", 0,
         0},
        {H, CHT("'structured_outputs': {'grammar': 'root ::= [a-z]'}"),
         "structured_outputs.grammar", BT_GRAMMAR_EBNF, "root ::= [a-z]", 0, 0},
        {H,
         CHT("'structured_outputs': {'json_object': true, 'json': null, "
             "'disable_any_whitespace': true, "
             "'disable_additional_properties': false}"),
         "structured_outputs.json_object", BT_GRAMMAR_JSON_OBJECT, NULL, 1, 0},
        {H, CHT("'structured_outputs': {}"), NULL, 0, NULL, 0, 0},
        {H, CHT("'structured_outputs': {'structural_tag': '{}'}"),
         "structured_outputs.structural_tag", BT_GRAMMAR_STRUCTURAL_TAG, "{}",
         0, 0},
        {H, CHT("'structural_tag': {'format': 1}"), "structural_tag",
         BT_GRAMMAR_STRUCTURAL_TAG, "{\"format\":1}", 0, 0},
        {H, CHT("'response_format': {'type': 'structural_tag', 'format': 1}"),
         "response_format", BT_GRAMMAR_STRUCTURAL_TAG,
         "{\"type\":\"structural_tag\",\"format\":1}", 0, 0},
        {G,
         GEN("'guided_decoding_guide_type': 'structural_tag', "
             "'guided_decoding_guide': '{}'"),
         "guided_decoding_guide", BT_GRAMMAR_STRUCTURAL_TAG, "{}", 0, 0},
        {H, CHT("'guided_json': " SCHEMA), "guided_json",
         BT_GRAMMAR_JSON_SCHEMA, RAW, 0, 0},
        {H, CHT("'guided_choice': ['a']"), "guided_choice", BT_GRAMMAR_CHOICE,
         "[\"a\"]", 0, 0},
        {C, CMP("'guided_grammar': 'root ::= [a]'"), "guided_grammar",
         BT_GRAMMAR_EBNF, "root ::= [a]", 0, 0},
        {H,
         CHT("'guided_json': {}, 'guided_decoding_backend': "
             "'xgrammar:no-fallback,disable-any-whitespace'"),
         "guided_json", BT_GRAMMAR_JSON_SCHEMA, "{}", 1, 0},
        {H, CHT("'guided_json': {}, 'guided_whitespace_pattern': ''"),
         "guided_json", BT_GRAMMAR_JSON_SCHEMA, "{}", 0, 0},
        {H, CHT("'json_schema': '{}'"), "json_schema", BT_GRAMMAR_JSON_SCHEMA,
         "{}", 0, 0},
        {H, CHT("'json_schema': " SCHEMA), "json_schema",
         BT_GRAMMAR_JSON_SCHEMA, RAW, 0, 0},
        {H, CHT("'grammar': 'start: A'"), "grammar", BT_GRAMMAR_LARK,
         "start: A", 0, 0},
        {C, CMP("'ebnf': 'root ::= [a]'"), "ebnf", BT_GRAMMAR_EBNF,
         "root ::= [a]", 0, 0},
        {C, CMP("'grammar': 'root ::= [a]'"), "grammar", BT_GRAMMAR_EBNF,
         "root ::= [a]", 0, 0},
        {G, GEN("'guided_decoding_guide_type': 'json'"),
         "guided_decoding_guide_type", BT_GRAMMAR_JSON_OBJECT, NULL, 0, 0},
        {G,
         GEN("'guided_decoding_guide': '{}', 'parameters': "
             "{'guided_decoding_guide_type': 'json_schema'}"),
         "guided_decoding_guide", BT_GRAMMAR_JSON_SCHEMA, "{}", 0, 0},
        {G,
         GEN("'guided_decoding_guide_type': ['ebnf_grammar'], "
             "'guided_decoding_guide': ['root ::= [a]']"),
         "guided_decoding_guide", BT_GRAMMAR_EBNF, "root ::= [a]", 0, 0},
        {G,
         GEN("'guided_decoding_guide_type': '', "
             "'guided_decoding_guide': ''"),
         NULL, 0, NULL, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        check_given(&cases[i]);
    }
}

/* One in a prompt becomes U+FFFD there, as in any body. */
static void half_of_a_surrogate_pair_elsewhere_is_no_fault(void **state)
{
    bt_api_request_t r =
        parsed(C, "{'prompt': '\\ud800', 'guided_regex': '[a\\ud83d\\ude00]'}");

    (void)state;
    assert_string_equal(r.grammar.text, "[a\xF0\x9F\x98\x80]");
    bt_api_request_fini(&r);
}

static void second_description_is_refused(void **state)
{
    (void)state;
    refused(H, CHT("'response_format': {'type': 'json_object'}, 'ebnf': 'a'"),
            "ebnf",
            "response_format and ebnf both describe the answer: give one of "
            "them");
    refused(H, CHT("'structured_outputs': {'json': {}, 'choice': ['a']}"),
            "structured_outputs.choice",
            "structured_outputs.json and structured_outputs.choice both "
            "describe the answer: give one of them");
    refused(H, CHT("'guided_json': {}, 'guided_choice': ['a']"),
            "guided_choice",
            "guided_json and guided_choice both describe the answer: give one "
            "of them");
}

static void malformed_descriptions_are_refused(void **state)
{
    (void)state;
    refused(H, CHT("'response_format': 'json'"), "response_format",
            "response_format must be an object with a type, got \"json\"");
    refused(H, CHT("'response_format': {'type': 'xml'}"),
            "response_format.type",
            "Invalid value of response_format.type: \"xml\". Supported values "
            "are: 'json_object', "
            "'json_schema', and 'text'.");
    refused(H, CHT("'response_format': {'type': 'json_schema'}"),
            "response_format.json_schema",
            "Missing required parameter: 'response_format.json_schema'.");
    refused(H,
            CHT("'response_format': {'type': 'json_schema', 'json_schema': "
                "{'name': 'a'}}"),
            "response_format.json_schema.schema",
            "Missing required parameter: "
            "'response_format.json_schema.schema'.");
    refused(H,
            CHT("'response_format': {'type': 'json_schema', 'json_schema': "
                "{'schema': {}}}"),
            "response_format.json_schema.name",
            "Missing required parameter: 'response_format.json_schema.name'.");
    refused(H,
            CHT("'response_format': {'type': 'json_schema', 'json_schema': "
                "{'name': 'a b', 'schema': {}}}"),
            "response_format.json_schema.name",
            "Invalid 'response_format.json_schema.name': string does not match "
            "pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.");
    refused(R, RSP("'text': {'format': {'type': 'json_schema', 'name': 'a'}}"),
            "text.format.schema",
            "Missing required parameter: 'text.format.schema'.");
    refused(H, CHT("'guided_json': 5"), "guided_json",
            "guided_json must be an object or a string, got 5");
    refused(H, CHT("'guided_regex': 'ab\\ud800'"), "guided_regex",
            "guided_regex is not Unicode text: half of a surrogate pair at "
            "byte 68 of the body");
    refused(G,
            GEN("'guided_decoding_guide_type': 'regex', "
                "'guided_decoding_guide': '\\udc00'"),
            "guided_decoding_guide",
            "guided_decoding_guide is not Unicode text: half of a surrogate "
            "pair at byte 85 of the body");
    refused(H, CHT("'guided_choice': 'a'"), "guided_choice",
            "guided_choice must be a list of strings, got \"a\"");
    refused(H, CHT("'structured_outputs': []"), "structured_outputs",
            "structured_outputs must be an object, got an array");
    refused(H, CHT("'structured_outputs': {'json_object': false}"),
            "structured_outputs",
            "structured_outputs must have one of json, regex, choice, grammar, "
            "json_object and structural_tag");
    refused(G, GEN("'guided_decoding_guide': 'a'"),
            "guided_decoding_guide_type",
            "guided_decoding_guide needs a guided_decoding_guide_type");
    refused(G, GEN("'guided_decoding_guide_type': 'json_schema'"),
            "guided_decoding_guide",
            "guided_decoding_guide_type \"json_schema\" needs a "
            "guided_decoding_guide");
    refused(G, GEN("'guided_decoding_guide_type': 'xml'"),
            "guided_decoding_guide_type",
            "guided_decoding_guide_type must be json, json_schema, regex, "
            "ebnf_grammar or structural_tag, got \"xml\"");
}

static void what_cannot_be_held_is_refused_by_name(void **state)
{
    (void)state;
    refused(H, CHT("'structural_tag': 5"), "structural_tag",
            "structural_tag must be an object or a string, got 5");
    refused(
        H,
        CHT("'structured_outputs': {'json': {}, 'whitespace_pattern': "
            "' '}"),
        "structured_outputs.whitespace_pattern",
        "structured_outputs.whitespace_pattern is not supported, got \" \": white "
        "space of JSON is bounded; "
        "structured_outputs.disable_any_whitespace leaves it out");
    refused(H,
            CHT("'structured_outputs': {'json': {}, "
                "'disable_additional_properties': true}"),
            "structured_outputs.disable_additional_properties",
            "structured_outputs.disable_additional_properties: true is not "
            "supported: the schema says what it allows "
            "(additionalProperties)");
    refused(H,
            CHT("'guided_json': {}, 'guided_decoding_backend': "
                "'xgrammar:no-additional-properties'"),
            "guided_decoding_backend",
            "guided_decoding_backend: no-additional-properties is not "
            "supported: the schema says what it allows "
            "(additionalProperties)");
    refused(H,
            CHT("'response_format': {'type': 'json_object'}, "
                "'use_beam_search': true, 'n': 2"),
            "response_format",
            "response_format does not go with a beam search (use_beam_search): "
            "beams need as many tokens to choose from as there are beams");
}

/* With tool_choice "none" no tool can be called. */
static void tools_that_are_not_called_do_not_matter(void **state)
{
    bt_api_request_t r =
        parsed(H, CHT("'response_format': {'type': 'json_object'}, 'tools': "
                      "[{'type': 'function', 'function': {'name': 'f'}}], "
                      "'tool_choice': 'none'"));

    (void)state;
    assert_string_equal(r.grammar.field, "response_format");
    bt_api_request_fini(&r);
}

static void format_of_responses_comes_back(void **state)
{
    bt_api_request_t r =
        parsed(R, RSP("'text': {'format': {'type': 'json_schema', 'name': 'a', "
                      "'schema': " SCHEMA "}}"));

    (void)state;
    assert_string_equal(r.grammar.format_json,
                        "{\"type\":\"json_schema\",\"name\":\"a\","
                        "\"schema\":" RAW "}");
    bt_api_request_fini(&r);
}

static void every_kind_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(bt_api_grammar_kind_name(BT_GRAMMAR_JSON_OBJECT),
                        "json_object");
    assert_string_equal(bt_api_grammar_kind_name(BT_GRAMMAR_STRUCTURAL_TAG),
                        "structural_tag");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(openai_formats_describe_the_answer),
        BT_TEST(fields_of_other_servers_describe_the_answer),
        BT_TEST(half_of_a_surrogate_pair_elsewhere_is_no_fault),
        BT_TEST(second_description_is_refused),
        BT_TEST(malformed_descriptions_are_refused),
        BT_TEST(what_cannot_be_held_is_refused_by_name),
        BT_TEST(tools_that_are_not_called_do_not_matter),
        BT_TEST(format_of_responses_comes_back),
        BT_TEST(every_kind_has_a_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
