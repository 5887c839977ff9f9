/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include <string.h>

#include "common/base/alloc.h"
#include "common/grammar/compile.h"
#include "common/grammar/json_schema.h"
#include "tests/support/grammar_text.h"
#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

#define STEPS 400u /* at which a failure is tried */

static bt_grammar_t *compiled(const char *schema, bool compact, bool lenient,
                              bt_grammar_kind_t kind)
{
    const bt_grammar_source_t source = {.kind = kind,
                                        .compact = compact,
                                        .lenient = lenient,
                                        .text = schema,
                                        .bytes = strlen(schema)};
    bt_grammar_t *g = NULL;
    uint8_t *program;
    size_t bytes;
    char why[BT_GRAMMAR_WHY_BYTES] = "";
    const char *fault;

    if (bt_grammar_compile(&source, &program, &bytes, why, sizeof(why)) !=
        BT_OK) {
        fail_msg("%s: %s", schema, why);
    }
    assert_int_equal(bt_grammar_load(program, bytes, &fault, &g), BT_OK);
    bt_free(program);
    return g;
}

static bool has(const bt_grammar_t *g, const char *text)
{
    return grammar_has_text(g, text, strlen(text));
}

static void white_space_is_bounded(void **state)
{
    bt_grammar_t *g = compiled(
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\","
        "\"items\":{\"type\":\"null\"}}},\"additionalProperties\":false}",
        false, false, BT_GRAMMAR_JSON_SCHEMA);

    (void)state;
    assert_true(has(g, "{\"a\":[null,null]}"));
    assert_true(has(g, "{ \"a\": [ null, null ] }"));
    assert_true(has(g, "{\n  \"a\": [\n    null,\n    null\n  ]\n}"));
    assert_true(has(g, "{\n\n                    \"a\": []}"));
    assert_true(has(g, "{ }"));
    assert_false(has(g, "{  \"a\": []}"));
    assert_false(has(g, "{\n\n\n\"a\": []}"));
    assert_false(has(g, "{\t\"a\": []}"));
    assert_false(has(g, "{\n                     \"a\": []}"));
    assert_false(has(g, " {}"));
    assert_false(has(g, "{} "));
    bt_grammar_free(g);
}

static void lenient_takes_what_is_not_known_for_annotations(void **state)
{
    bt_grammar_t *g =
        compiled("{\"type\":\"string\",\"format\":\"x\",\"nullable\":true}",
                 true, true, BT_GRAMMAR_JSON_SCHEMA);

    (void)state;
    assert_true(has(g, "\"a\""));
    assert_false(has(g, "null"));
    bt_grammar_free(g);
}

static void any_object_is_an_object(void **state)
{
    bt_grammar_t *g = compiled("", false, false, BT_GRAMMAR_JSON_OBJECT);

    (void)state;
    assert_true(has(g, "{}"));
    assert_true(has(g, "{\"a\": [1.5e3, {\"\\u0062\": null}], \"a\": \"\"}"));
    assert_false(has(g, "[]"));
    assert_false(has(g, "1"));
    assert_false(has(g, "{\"a\"}"));
    bt_grammar_free(g);
}

/* Compiles with so many steps. */
static bt_status_t compile_with(const bt_json_doc_t *doc, uint64_t fuel,
                                uint64_t *left_p)
{
    static const bt_json_schema_options_t options = {.lenient = true};
    bt_grammar_compiler_t c;
    bt_grammar_builder_t *b;

    bt_grammar_compiler_init(&c);
    c.fuel = fuel;
    b = bt_builder_create(&c);
    (void)bt_json_schema_expr(b, &c, doc, bt_json_doc_root(doc), &options);
    *left_p = c.fuel;
    bt_grammar_compiler_fini(&c);
    return c.status;
}

/* Wherever the steps end, the compilation does, too. */
static void a_failure_at_any_step_is_a_status(void **state)
{
    static const char *const schemas[] = {
        "{'oneOf':[{'type':'object','properties':{'a':{'$ref':'#'},'b':{'type':"
        "'array','contains':{'minimum':3}}},'required':['b'],'minProperties':1"
        "},{'enum':[1,'x',[2]]},{'type':'string','pattern':'y','maxLength':3}]"
        "}",
        "{'if':{'properties':{'a':{'const':1}}},'then':{'required':['b'],"
        "'patternProperties':{'^a':{'type':'integer'},'b$':true},"
        "'additionalProperties':{'multipleOf':3}},'else':{'not':{"
        "'additionalProperties':{'const':{'a':1}}}},'dependentRequired':{'a':["
        "'c']},'propertyNames':{'maxLength':3},'unevaluatedProperties':false}",
        "{'type':'array','prefixItems':[{'$ref':'#/$defs/x'}],'items':{'enum':["
        "1,'a',null]},'maxItems':4,'anyOf':[{'minItems':2},{'not':{'contains':"
        "{'const':1}}}],'unevaluatedItems':false,'$defs':{'x':{'format':'date'"
        "}}}",
        "{'type':'array','items':{'enum':[1,'a',null]},'uniqueItems':true}",
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(schemas); i++) {
        char *const text = schema_quoted_text(schemas[i]);
        bt_json_fault_t fault;
        bt_json_doc_t *doc;
        uint64_t left;
        uint64_t needed;

        assert_int_equal(bt_json_doc_parse_client(text, strlen(text),
                                                  UINT32_MAX, &fault, &doc),
                         BT_OK);
        (void)compile_with(doc, BT_GRAMMAR_FUEL, &left);
        needed = BT_GRAMMAR_FUEL - left;
        assert_true(left > 0);
        for (uint64_t fuel = 0; fuel < needed; fuel += 1 + needed / STEPS) {
            assert_int_equal(compile_with(doc, fuel, &left), BT_ERR_TOO_LARGE);
        }
        bt_json_doc_free(doc);
        bt_free(text);
    }
}

static void schemas_become_texts(void **state)
{
    (void)state;
    HAS("{'type':'object','properties':{'a':{'type':'integer'}},'required':['a'],'additionalProperties':false}",
        "{'a':1}", NULL, "{}", "{'a': 1}");
}

static void pointers_name_the_keyword(void **state)
{
    (void)state;
    WRONG("{'properties':{'x':{'items':{'allOf':[true,{'type':'y'}]}}}}",
          "/properties/x/items/allOf/1/type: is no type of JSON");
    WRONG("{'properties':{'a\\u0001':{'type':1}}}",
          "/properties/a?/type: is no type");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(schemas_become_texts),
        BT_TEST(pointers_name_the_keyword),
        BT_TEST(white_space_is_bounded),
        BT_TEST(lenient_takes_what_is_not_known_for_annotations),
        BT_TEST(any_object_is_an_object),
        BT_TEST(a_failure_at_any_step_is_a_status),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
