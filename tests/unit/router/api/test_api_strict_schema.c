/* SPDX-License-Identifier: Apache-2.0 */
/* Schemas with strict: true. The messages are OpenAI's, as its API gives them
 * (https://platform.openai.com/docs/guides/structured-outputs). */
#include "tests/unit/router/api/api_fixture.h"

#define FORMAT(schema)                                               \
    CHT("'response_format': {'type': 'json_schema', 'json_schema': " \
        "{'name': 'math', 'strict': true, 'schema': " schema "}}")
#define CLOSED  "'additionalProperties': false"
#define INVALID "Invalid schema for response_format 'math': "
#define OPEN(context)                                            \
    INVALID "In context=" context ", 'additionalProperties' is " \
            "required to be supplied and to be false."
#define NOT_ALL(context, name)                                             \
    INVALID                                                                \
    "In context=" context ", 'required' is required to be supplied "       \
    "and to be an array including every key in properties. Missing '" name \
    "'."

static void object_that_is_open_is_refused(void **state)
{
    (void)state;
    refused(H, FORMAT("{'type': 'object', 'properties': {}}"),
            "response_format", OPEN("()"));
    refused(H,
            FORMAT("{'type': 'object', 'properties': {}, "
                   "'additionalProperties': true}"),
            "response_format", OPEN("()"));
    refused(H,
            FORMAT("{'type': 'object', " CLOSED ", 'required': ['a'], "
                   "'properties': {'a': {'type': 'array', 'items': "
                   "{'type': ['object', 'null']}}}}"),
            "response_format", OPEN("('properties', 'a', 'items')"));
    refused(H,
            FORMAT("{'type': 'object', " CLOSED ", 'required': ['a'], "
                   "'properties': {'a': {'anyOf': [{'type': 'null'}, "
                   "{'type': 'object'}]}}}"),
            "response_format", OPEN("('properties', 'a', 'anyOf', '1')"));
    refused(H,
            FORMAT("{'type': 'object', " CLOSED ", '$defs': {'n': "
                   "{'properties': {}}}}"),
            "response_format", OPEN("('$defs', 'n')"));
}

static void property_that_is_not_required_is_refused(void **state)
{
    (void)state;
    refused(H,
            FORMAT("{'type': 'object', " CLOSED ", 'properties': "
                   "{'x': {'type': 'string'}}}"),
            "response_format", NOT_ALL("()", "x"));
    refused(H,
            FORMAT("{'type': 'object', " CLOSED ", 'required': ['x'], "
                   "'properties': {'x': {}, 'y': {}}}"),
            "response_format", NOT_ALL("()", "y"));
    refused(H,
            FORMAT("{'type': 'object', " CLOSED ", 'required': 'x', "
                   "'properties': {'x': {}}}"),
            "response_format", NOT_ALL("()", "x"));
}

static void schema_of_no_object_is_refused(void **state)
{
    (void)state;
    refused(H, FORMAT("{'type': 'array'}"), "response_format",
            INVALID "schema must be a JSON Schema of 'type: \"object\"', got "
                    "'type: \"array\"'.");
    refused(H, FORMAT("{'anyOf': []}"), "response_format",
            INVALID "schema must be a JSON Schema of 'type: \"object\"', got "
                    "'type: \"None\"'.");
}

/* Of n properties, each required, with the last ones first; one that is not
 * where a name is given. */
static char *schema_of(unsigned n, const char *also)
{
    bt_strbuf_t s;

    bt_strbuf_init(&s, 4u << 20);
    bt_strbuf_puts(&s,
                   "{'messages': [{'role': 'user', 'content': 'x'}], "
                   "'response_format': {'type': 'json_schema', "
                   "'json_schema': {'name': 'math', 'strict': true, "
                   "'schema': {'type': 'object', " CLOSED ", 'required': [");
    for (unsigned i = n; i > 0; i--) {
        bt_strbuf_printf(&s, "'%x'%s", i, (i > 1) ? "," : "");
    }
    bt_strbuf_puts(&s, "], 'properties': {");
    for (unsigned i = 1; i <= n; i++) {
        bt_strbuf_printf(&s, "'%x': {}%s", i, (i < n) ? "," : "");
    }
    bt_strbuf_printf(&s, "%s}}}}}", also);
    assert_int_equal(bt_strbuf_status(&s), BT_OK);
    return s.data;
}

static void many_properties_are_looked_up(void **state)
{
    char *text = schema_of(3000, "");
    bt_api_request_t r = parsed(H, text);

    (void)state;
    bt_api_request_fini(&r);
    bt_free(text);
    text = schema_of(3000, ", 'bb9': {}");
    refused(H, text, "response_format", NOT_ALL("()", "bb9"));
    bt_free(text);
}

/* Nobody looks at its properties before. */
static void schema_that_is_too_long_is_refused(void **state)
{
    char *text = schema_of(20000, ", 'x': {}");

    (void)state;
    refused(H, text, "response_format",
            "response_format is longer than 65536 bytes: it has 331351");
    bt_free(text);
}

/* As pydantic writes it, with openai's to_strict_json_schema(). */
static void strict_schema_is_taken(void **state)
{
    bt_api_request_t r = parsed(
        H,
        FORMAT(
            "{'$defs': {'Step': {'properties': {'text': {'title': "
            "'Text', 'type': 'string'}}, 'required': ['text'], "
            "'title': 'Step', 'type': 'object', " CLOSED "}}, "
            "'properties': {'steps': {'items': {'$ref': "
            "'#/$defs/Step'}, 'title': 'Steps', 'type': 'array'}}, "
            "'required': ['steps'], 'title': 'Math', 'type': 'object', " CLOSED
            "}"));

    (void)state;
    assert_false(r.grammar.lenient);
    assert_string_equal(r.grammar.schema_name, "math");
    bt_api_request_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(object_that_is_open_is_refused),
        BT_TEST(property_that_is_not_required_is_refused),
        BT_TEST(schema_of_no_object_is_refused),
        BT_TEST(many_properties_are_looked_up),
        BT_TEST(schema_that_is_too_long_is_refused),
        BT_TEST(strict_schema_is_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
