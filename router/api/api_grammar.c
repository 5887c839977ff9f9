/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/api/api_priv.h"

/* Fields of structured output, in the forms of OpenAI, vLLM, SGLang, llama.cpp
 * and TensorRT-LLM. Each gives a description, which a later step compiles
 * (grammar_cache.h); a request has one of them at most. */

static const struct {
    const char *name;
    bt_grammar_kind_t kind;
} kinds[] = {
    [BT_GRAMMAR_JSON_OBJECT] = {"json_object", BT_GRAMMAR_JSON_OBJECT},
    [BT_GRAMMAR_JSON_SCHEMA] = {"json_schema", BT_GRAMMAR_JSON_SCHEMA},
    [BT_GRAMMAR_REGEX] = {"regex", BT_GRAMMAR_REGEX},
    [BT_GRAMMAR_CHOICE] = {"choice", BT_GRAMMAR_CHOICE},
    [BT_GRAMMAR_EBNF] = {"ebnf", BT_GRAMMAR_EBNF},
    [BT_GRAMMAR_LARK] = {"lark", BT_GRAMMAR_LARK},
    [BT_GRAMMAR_STRUCTURAL_TAG] = {"structural_tag", BT_GRAMMAR_STRUCTURAL_TAG},
};

const char *bt_api_grammar_kind_name(bt_grammar_kind_t kind)
{
    return kinds[kind].name;
}

void bt_api_grammar_fini(bt_api_grammar_t *grammar)
{
    bt_free(grammar->text);
    bt_free(grammar->schema_name);
    bt_free(grammar->format_json);
    bt_free(grammar->guide_type);
    bt_free(grammar->guide);
}

/* Sets the description, which is taken over, also on failure; of a field that
 * is given twice the last one counts. */
static bt_status_t give(bt_api_request_t *request, const char *field,
                        bt_grammar_kind_t kind, char *text, size_t bytes,
                        bt_api_error_t *error)
{
    bt_api_grammar_t *const g = &request->grammar;

    if ((g->field != NULL) && (strcmp(g->field, field) != 0)) {
        bt_free(text);
        return bt_api_error_invalid(
            error, field,
            "%s and %s both describe the answer: give one of them", g->field,
            field);
    }
    if (bytes > BT_GRAMMAR_TEXT_BYTES) { /* and nobody looks at it */
        bt_free(text);
        return bt_api_error_invalid(error, field,
                                    "%s is longer than %u bytes: it has %zu",
                                    field, BT_GRAMMAR_TEXT_BYTES, bytes);
    }
    bt_free(g->text);
    g->field = field;
    g->kind = kind;
    g->text = text;
    g->bytes = bytes;
    g->lenient = true;
    return BT_OK;
}

static bool has_text(const bt_json_node_t *value, const char *text)
{
    return bt_json_is_kind(value, BT_JSON_STRING) &&
           (memmem(value->text, value->len, text, strlen(text)) != NULL);
}

/* Copies a text that describes answers. U+FFFD may stand for half of a
 * surrogate pair, which is no text. */
static bt_status_t text_of(bt_api_parse_t *parse, const char *field,
                           const bt_json_node_t *value, char **text_p)
{
    if ((bt_json_doc_half(parse->doc) != SIZE_MAX) &&
        has_text(value, "\xEF\xBF\xBD")) {
        return bt_api_refuse(parse, field,
                             "%s is not Unicode text: half of a surrogate pair "
                             "at byte %zu of the body",
                             field, bt_json_doc_half(parse->doc));
    }
    return bt_api_string(parse, field, value, BT_GRAMMAR_TEXT_BYTES, text_p);
}

static bt_status_t give_string(bt_api_parse_t *parse, const char *field,
                               bt_grammar_kind_t kind,
                               const bt_json_node_t *value)
{
    char *text = NULL;
    const bt_status_t status = text_of(parse, field, value, &text);

    return (status == BT_OK) ? give(parse->request, field, kind, text,
                                    value->len, parse->error)
                             : status;
}

/* An array, an object, true or false, as JSON. */
static bt_status_t give_json(bt_api_parse_t *parse, const char *field,
                             bt_grammar_kind_t kind,
                             const bt_json_node_t *value)
{
    char *text = NULL;
    bt_status_t status = BT_OK;

    if (bt_json_is_bool(value)) {
        text = bt_strdup((value->kind == BT_JSON_TRUE) ? "true" : "false");
        if (text == NULL) {
            return bt_api_error_no_memory(parse->error);
        }
    } else {
        status = bt_api_raw(parse, value, &text);
    }
    return (status == BT_OK) ? give(parse->request, field, kind, text,
                                    strlen(text), parse->error)
                             : status;
}

/* A schema as JSON, or as a text that is JSON. */
static bt_status_t give_schema(bt_api_parse_t *parse, const char *field,
                               const bt_json_node_t *value)
{
    if (bt_json_is_kind(value, BT_JSON_OBJECT) || bt_json_is_bool(value)) {
        return give_json(parse, field, BT_GRAMMAR_JSON_SCHEMA, value);
    }
    if (bt_json_is_kind(value, BT_JSON_STRING)) {
        return give_string(parse, field, BT_GRAMMAR_JSON_SCHEMA, value);
    }
    return bt_api_refuse_kind(parse, field, "an object or a string", value);
}

static bt_status_t give_choice(bt_api_parse_t *parse, const char *field,
                               const bt_json_node_t *value)
{
    return bt_json_is_kind(value, BT_JSON_ARRAY)
               ? give_json(parse, field, BT_GRAMMAR_CHOICE, value)
               : bt_api_refuse_kind(parse, field, "a list of strings", value);
}

/* vLLM and llama.cpp: EBNF, whose rules have "::=", or Lark. */
static bt_status_t give_grammar(bt_api_parse_t *parse, const char *field,
                                const bt_json_node_t *value)
{
    return give_string(
        parse, field,
        has_text(value, "::=") ? BT_GRAMMAR_EBNF : BT_GRAMMAR_LARK, value);
}

static bt_status_t give_object(bt_api_parse_t *parse, const char *field)
{
    return give(parse->request, field, BT_GRAMMAR_JSON_OBJECT, NULL, 0,
                parse->error);
}

/* ---- fields with one value ---- */

bt_status_t bt_api_read_schema(bt_api_parse_t *parse,
                               const bt_api_field_t *field,
                               const bt_json_node_t *value)
{
    return give_schema(parse, field->name, value);
}

bt_status_t bt_api_read_regex(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value)
{
    return give_string(parse, field->name, BT_GRAMMAR_REGEX, value);
}

bt_status_t bt_api_read_choice(bt_api_parse_t *parse,
                               const bt_api_field_t *field,
                               const bt_json_node_t *value)
{
    return give_choice(parse, field->name, value);
}

bt_status_t bt_api_read_grammar(bt_api_parse_t *parse,
                                const bt_api_field_t *field,
                                const bt_json_node_t *value)
{
    return give_grammar(parse, field->name, value);
}

bt_status_t bt_api_read_ebnf(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const bt_json_node_t *value)
{
    return give_string(parse, field->name, BT_GRAMMAR_EBNF, value);
}

static bt_status_t give_tag(bt_api_parse_t *parse, const char *field,
                            const bt_json_node_t *value)
{
    if (bt_json_is_kind(value, BT_JSON_STRING)) {
        return give_string(parse, field, BT_GRAMMAR_STRUCTURAL_TAG, value);
    }
    return bt_json_is_kind(value, BT_JSON_OBJECT)
               ? give_json(parse, field, BT_GRAMMAR_STRUCTURAL_TAG, value)
               : bt_api_refuse_kind(parse, field, "an object or a string",
                                    value);
}

bt_status_t bt_api_read_structural_tag(bt_api_parse_t *parse,
                                       const bt_api_field_t *field,
                                       const bt_json_node_t *value)
{
    return give_tag(parse, field->name, value);
}

/* ---- options of vLLM ---- */

/* White space between tokens of JSON is what json_schema.h has, or none. */
static bt_status_t refuse_pattern(bt_api_parse_t *parse, const char *field,
                                  const bt_json_node_t *value)
{
    return bt_api_refuse(parse, field,
                         "%s is not supported, got %s: white space of JSON is "
                         "bounded; structured_outputs.disable_any_whitespace "
                         "leaves it out",
                         field, BT_API_SHOW(value));
}

static bt_status_t refuse_no_additional(bt_api_parse_t *parse,
                                        const char *field, const char *option)
{
    return bt_api_refuse(parse, field,
                         "%s: %s is not supported: the schema says what it "
                         "allows (additionalProperties)",
                         field, option);
}

bt_status_t bt_api_read_whitespace_pattern(bt_api_parse_t *parse,
                                           const bt_api_field_t *field,
                                           const bt_json_node_t *value)
{
    return bt_json_is(value, "") ? BT_OK
                                 : refuse_pattern(parse, field->name, value);
}

/* Which of vLLM's engines compiles: there is one here. Its options, as
 * "xgrammar:disable-any-whitespace", change the answer. */
bt_status_t bt_api_read_guided_backend(bt_api_parse_t *parse,
                                       const bt_api_field_t *field,
                                       const bt_json_node_t *value)
{
    if (!bt_json_is_kind(value, BT_JSON_STRING)) {
        return bt_api_refuse_kind(parse, field->name, "a string", value);
    }
    if (has_text(value, "no-additional-properties")) {
        return refuse_no_additional(parse, field->name,
                                    "no-additional-properties");
    }
    parse->request->grammar.compact |=
        has_text(value, "disable-any-whitespace");
    return BT_OK;
}

/* Reads a bool; false where it is absent. */
static bt_status_t flag_of(bt_api_parse_t *parse, const char *name,
                           const bt_json_node_t *value, bool *flag_p)
{
    *flag_p = bt_json_is_kind(value, BT_JSON_TRUE);
    return (bt_api_is_none(value) || bt_json_is_bool(value))
               ? BT_OK
               : bt_api_refuse_kind(parse, name, "true or false", value);
}

typedef bt_status_t give_t(bt_api_parse_t *parse, const char *field,
                           const bt_json_node_t *value);

static bt_status_t give_regex(bt_api_parse_t *parse, const char *field,
                              const bt_json_node_t *value)
{
    return give_string(parse, field, BT_GRAMMAR_REGEX, value);
}

static bt_status_t give_object_if(bt_api_parse_t *parse, const char *field,
                                  const bt_json_node_t *value)
{
    bool is_on = false;
    const bt_status_t status = flag_of(parse, field, value, &is_on);

    return ((status == BT_OK) && is_on) ? give_object(parse, field) : status;
}

/* Options of structured_outputs beside the description. */
static bt_status_t read_options(bt_api_parse_t *parse,
                                const bt_json_node_t *value)
{
    static const char compact[] = "structured_outputs.disable_any_whitespace";
    static const char closed[] =
        "structured_outputs.disable_additional_properties";
    static const char pattern[] = "structured_outputs.whitespace_pattern";
    const bt_json_node_t *given =
        bt_json_get(parse->doc, value, "whitespace_pattern");
    bool flag = false;
    bt_status_t status;

    if (!bt_api_is_none(given)) {
        return refuse_pattern(parse, pattern, given);
    }
    status = flag_of(
        parse, closed,
        bt_json_get(parse->doc, value, "disable_additional_properties"), &flag);
    if (status != BT_OK) {
        return status;
    }
    if (flag) {
        return refuse_no_additional(parse, closed, "true");
    }
    status = flag_of(parse, compact,
                     bt_json_get(parse->doc, value, "disable_any_whitespace"),
                     &flag);
    parse->request->grammar.compact |= flag;
    return status;
}

bt_status_t bt_api_read_structured_outputs(bt_api_parse_t *parse,
                                           const bt_api_field_t *field,
                                           const bt_json_node_t *value)
{
    static const struct {
        const char *name;
        give_t *give;
    } forms[] = {
        {"structured_outputs.json", give_schema},
        {"structured_outputs.regex", give_regex},
        {"structured_outputs.choice", give_choice},
        {"structured_outputs.grammar", give_grammar},
        {"structured_outputs.json_object", give_object_if},
        {"structured_outputs.structural_tag", give_tag},
    };
    static const char *const known[] = {"json",
                                        "regex",
                                        "choice",
                                        "grammar",
                                        "json_object",
                                        "structural_tag",
                                        "whitespace_pattern",
                                        "disable_any_whitespace",
                                        "disable_additional_properties",
                                        "disable_fallback",
                                        NULL};
    bt_status_t status;

    if (!bt_json_is_kind(value, BT_JSON_OBJECT)) {
        return bt_api_refuse_kind(parse, field->name, "an object", value);
    }
    bt_api_note_members(parse, field->name, value, known);
    status = read_options(parse, value);
    for (size_t i = 0; (i < BT_ARRAY_LEN(forms)) && (status == BT_OK); i++) {
        const char *name = strchr(forms[i].name, '.') + 1;
        const bt_json_node_t *form = bt_json_get(parse->doc, value, name);

        if (!bt_api_is_none(form)) {
            status = forms[i].give(parse, forms[i].name, form);
        }
    }
    if ((status == BT_OK) && (parse->request->grammar.field == NULL) &&
        (value->n > 0)) {
        return bt_api_refuse(parse, field->name,
                             "%s must have one of json, regex, choice, "
                             "grammar, json_object and structural_tag",
                             field->name);
    }
    return status;
}

/* ---- OpenAI's formats ---- */

/* Names of the parts of a format, in errors. */
typedef struct format_names {
    const char *field, *type, *holder, *name, *schema, *strict;
} format_names_t;

static const format_names_t chat_format = {
    "response_format",
    "response_format.type",
    "response_format.json_schema",
    "response_format.json_schema.name",
    "response_format.json_schema.schema",
    "response_format.json_schema.strict",
};
static const format_names_t responses_format = {
    "text.format",      "text.format.type",   "text.format",
    "text.format.name", "text.format.schema", "text.format.strict",
};

#define MAX_NAME 64

static bt_status_t missing(bt_api_parse_t *parse, const char *what)
{
    const bt_status_t status =
        bt_api_refuse(parse, what, "Missing required parameter: '%s'.", what);

    parse->error->code = "missing_required_parameter";
    return status;
}

static bool is_name(const bt_json_node_t *name)
{
    for (uint32_t i = 0; i < name->len; i++) {
        const char c = name->text[i];

        if (!(((c >= 'a') && (c <= 'z')) || ((c >= 'A') && (c <= 'Z')) ||
              ((c >= '0') && (c <= '9')) || (c == '_') || (c == '-'))) {
            return false;
        }
    }
    return name->len > 0;
}

static bt_status_t read_schema_name(bt_api_parse_t *parse,
                                    const format_names_t *names,
                                    const bt_json_node_t *name)
{
    bt_api_grammar_t *const g = &parse->request->grammar;

    if (bt_api_is_none(name)) {
        return missing(parse, names->name);
    }
    if (!bt_json_is_kind(name, BT_JSON_STRING)) {
        return bt_api_refuse_kind(parse, names->name, "a string", name);
    }
    if (!is_name(name)) {
        return bt_api_refuse(parse, names->name,
                             "Invalid '%s': string does not match pattern. "
                             "Expected a string that matches the pattern "
                             "'^[a-zA-Z0-9_-]+$'.",
                             names->name);
    }
    if (name->len > MAX_NAME) {
        return bt_api_refuse(parse, names->name,
                             "Invalid '%s': string too long. Expected a string "
                             "with maximum length %d, but got a string with "
                             "length %u instead.",
                             names->name, MAX_NAME, name->len);
    }
    bt_free(g->schema_name);
    g->schema_name = bt_memdup(name->text, name->len);
    return (g->schema_name != NULL) ? BT_OK
                                    : bt_api_error_no_memory(parse->error);
}

/* {name, schema, strict, description}, OpenAI's form. */
static bt_status_t read_named_schema(bt_api_parse_t *parse,
                                     const format_names_t *names,
                                     const bt_json_node_t *holder)
{
    const bt_json_node_t *schema = bt_json_get(parse->doc, holder, "schema");
    bool is_strict = false;
    bt_status_t status =
        read_schema_name(parse, names, bt_json_get(parse->doc, holder, "name"));

    if (status == BT_OK) {
        status = flag_of(parse, names->strict,
                         bt_json_get(parse->doc, holder, "strict"), &is_strict);
    }
    if (status != BT_OK) {
        return status;
    }
    if (bt_api_is_none(schema)) {
        return missing(parse, names->schema);
    }
    if (!bt_json_is_kind(schema, BT_JSON_OBJECT) && !bt_json_is_bool(schema)) {
        return bt_api_refuse_kind(parse, names->schema, "an object", schema);
    }
    status = give_json(parse, names->field, BT_GRAMMAR_JSON_SCHEMA, schema);
    if ((status == BT_OK) && is_strict) {
        status = bt_api_check_strict_schema(parse, names->field, names->field,
                                            parse->request->grammar.schema_name,
                                            schema);
    }
    parse->request->grammar.lenient = !is_strict;
    return status;
}

/* @param holder  of the schema; for chat in "json_schema" */
static bt_status_t read_format(bt_api_parse_t *parse,
                               const format_names_t *names,
                               const bt_json_node_t *format,
                               const bt_json_node_t *holder)
{
    const bt_json_node_t *type = bt_json_get(parse->doc, format, "type");
    const bt_json_node_t *schema = bt_json_get(parse->doc, format, "schema");

    if (!bt_json_is_kind(type, BT_JSON_STRING)) {
        return bt_api_refuse(
            parse, names->field, "%s must be an object with a type, got %s",
            names->field, BT_API_SHOW((type != NULL) ? type : format));
    }
    if (bt_json_is(type, "text")) {
        return BT_OK;
    }
    if (bt_json_is(type, "json_object")) { /* llama.cpp's may have a schema */
        return bt_api_is_none(schema)
                   ? give_object(parse, names->field)
                   : give_schema(parse, names->field, schema);
    }
    if (bt_json_is(type, "json_schema")) {
        if (bt_json_is_kind(holder, BT_JSON_OBJECT)) {
            return read_named_schema(parse, names, holder);
        }
        return bt_api_is_none(schema) /* also llama.cpp's */
                   ? missing(parse, names->holder)
                   : give_schema(parse, names->field, schema);
    }
    if (bt_json_is(type, "structural_tag")) {
        return give_json(parse, names->field, BT_GRAMMAR_STRUCTURAL_TAG,
                         format);
    }
    return bt_api_refuse(parse, names->type,
                         "Invalid value of %s: %s. Supported values are: "
                         "'json_object', 'json_schema', and 'text'.",
                         names->type, BT_API_SHOW(type));
}

bt_status_t bt_api_read_response_format(bt_api_parse_t *parse,
                                        const bt_api_field_t *field,
                                        const bt_json_node_t *value)
{
    static const char *const known[] = {"type",   "json_schema", "schema",
                                        "format", "structures",  "triggers",
                                        NULL};
    static const char *const in_schema[] = {"name", "description", "schema",
                                            "strict", NULL};
    const bt_json_node_t *holder =
        bt_json_get(parse->doc, value, "json_schema");

    bt_api_note_members(parse, field->name, value, known);
    bt_api_note_members(parse, chat_format.holder, holder, in_schema);
    return read_format(parse, &chat_format, value, holder);
}

bt_status_t bt_api_read_text_format(bt_api_parse_t *parse,
                                    const bt_json_node_t *format)
{
    static const char *const known[] = {"type",   "name",        "schema",
                                        "strict", "description", NULL};
    bt_api_grammar_t *const g = &parse->request->grammar;
    bt_status_t status;

    bt_api_note_members(parse, responses_format.field, format, known);
    status = read_format(parse, &responses_format, format, format);
    if ((status == BT_OK) && (g->field != NULL)) { /* for the response */
        bt_free(g->format_json);
        g->format_json = NULL;
        status = bt_api_raw(parse, format, &g->format_json);
    }
    return status;
}

bt_status_t bt_api_read_output_format(bt_api_parse_t *parse,
                                      const bt_api_field_t *field,
                                      const bt_json_node_t *format)
{
    static const char *const known[] = {"type", "schema", NULL};
    const bt_json_node_t *type = bt_json_get(parse->doc, format, "type");
    const bt_json_node_t *schema = bt_json_get(parse->doc, format, "schema");

    if (!bt_json_is(type, "json_schema") ||
        !bt_json_is_kind(schema, BT_JSON_OBJECT)) {
        return bt_api_refuse(parse, field->name,
                             "%s: a format is {\"type\": \"json_schema\", "
                             "\"schema\": {…}}, got %s",
                             field->name,
                             BT_API_SHOW(bt_json_is(type, "json_schema")
                                             ? schema
                                         : (type != NULL) ? type
                                                          : format));
    }
    bt_api_note_members(parse, field->name, format, known);
    return give_json(parse, field->name, BT_GRAMMAR_JSON_SCHEMA, schema);
}

bt_status_t bt_api_read_ollama_format(bt_api_parse_t *parse,
                                      const bt_api_field_t *field,
                                      const bt_json_node_t *value)
{
    if (bt_json_is(value, "")) {
        return BT_OK;
    }
    if (bt_json_is(value, "json")) {
        return give_object(parse, field->name);
    }
    return bt_json_is_kind(value, BT_JSON_OBJECT)
               ? give_json(parse, field->name, BT_GRAMMAR_JSON_SCHEMA, value)
               : bt_api_refuse_kind(parse, field->name,
                                    "\"json\" or a JSON schema", value);
}

/* ---- TensorRT-LLM's guide ---- */

bt_status_t bt_api_settle_guide(bt_api_request_t *request,
                                bt_api_error_t *error_p)
{
    static const struct {
        const char *type;
        bt_grammar_kind_t kind;
    } types[] = {
        {"json", BT_GRAMMAR_JSON_OBJECT},
        {"json_schema", BT_GRAMMAR_JSON_SCHEMA},
        {"regex", BT_GRAMMAR_REGEX},
        {"ebnf_grammar", BT_GRAMMAR_EBNF},
        {"structural_tag", BT_GRAMMAR_STRUCTURAL_TAG},
    };
    static const char type_field[] = "guided_decoding_guide_type";
    static const char guide_field[] = "guided_decoding_guide";
    bt_api_grammar_t *const g = &request->grammar;
    const bool has_type = (g->guide_type != NULL) && (*g->guide_type != '\0');
    const bool has_guide = (g->guide != NULL) && (*g->guide != '\0');
    size_t i = 0;
    char *text;

    if (!has_type) {
        return has_guide
                   ? bt_api_error_invalid(error_p, type_field, "%s needs a %s",
                                          guide_field, type_field)
                   : BT_OK;
    }
    while ((i < BT_ARRAY_LEN(types)) &&
           (strcmp(types[i].type, g->guide_type) != 0)) {
        i++;
    }
    if (i == BT_ARRAY_LEN(types)) {
        return bt_api_error_invalid(
            error_p, type_field,
            "%s must be json, json_schema, regex, ebnf_grammar or "
            "structural_tag, got \"%.64s\"",
            type_field, g->guide_type);
    }
    if (types[i].kind == BT_GRAMMAR_JSON_OBJECT) {
        return give(request, type_field, BT_GRAMMAR_JSON_OBJECT, NULL, 0,
                    error_p);
    }
    if (!has_guide) {
        return bt_api_error_invalid(error_p, guide_field,
                                    "%s \"%s\" needs a %s", type_field,
                                    g->guide_type, guide_field);
    }
    text = g->guide;
    g->guide = NULL;
    return give(request, guide_field, types[i].kind, text, strlen(text),
                error_p);
}

bt_status_t bt_api_read_guide(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value)
{
    char **const text_p =
        (char **)(void *)((char *)parse->request + field->offset);
    char *text = NULL;
    const bt_status_t status = text_of(parse, field->name, value, &text);

    if (status == BT_OK) {
        bt_free(*text_p); /* "parameters" may have set it */
        *text_p = text;
    }
    return status;
}
