/* SPDX-License-Identifier: Apache-2.0 */
/* Tools: their definitions in a request, and tool calls in an answer.
 * Source:  OpenAI's API reference, "Chat", and the arguments of transformers'
 *          chat templates. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "router/api/api_priv.h"

void bt_api_tools_fini(bt_api_tools_t *tools)
{
    bt_free(tools->json);
    bt_free(tools->names);
    bt_free(tools->forced);
    bt_free(tools->special);
    memset(tools, 0, sizeof(*tools));
}

/* ---- the tools of a request ---- */

bt_status_t bt_api_check_strict_tool(bt_api_parse_t *parse,
                                     const bt_json_node_t *name,
                                     const bt_json_node_t *parameters)
{
    char text[BT_TOOLS_MAX_NAME_BYTES + 1];

    if (bt_api_is_none(parameters)) {
        return BT_OK;
    }
    memcpy(text, name->text, name->len);
    text[name->len] = '\0';
    if (parameters->len > BT_GRAMMAR_TEXT_BYTES) { /* and nobody looks at it */
        return bt_api_refuse(parse, "tools",
                             "Invalid schema for function '%s': it has more "
                             "than %u bytes",
                             text, BT_GRAMMAR_TEXT_BYTES);
    }
    return bt_api_check_strict_schema(parse, "tools", "function", text,
                                      parameters);
}

bt_status_t bt_api_add_tool_name(bt_api_parse_t *parse, const char *name,
                                 size_t n)
{
    bt_api_tools_t *tools = &parse->request->tools;
    char *const names =
        bt_realloc_array(tools->names, tools->names_bytes + n + 1, 1);

    if (names == NULL) {
        return bt_api_error_no_memory(parse->error);
    }
    memcpy(names + tools->names_bytes, name, n);
    names[tools->names_bytes + n] = '\0';
    tools->names = names;
    tools->names_bytes += n + 1;
    return BT_OK;
}

bt_status_t bt_api_take_tool(bt_api_parse_t *parse, const bt_api_tool_t *tool,
                             const char *at, const char *schema)
{
    const bt_json_node_t *name = tool->name;

    if (!bt_json_is_kind(name, BT_JSON_STRING) ||
        !bt_tool_name_is_valid(name->text, name->len)) {
        return bt_api_refuse(parse, "tools",
                             "tools[%zu].%sname must be 1 to %d letters, "
                             "digits and any of _-.:/, got %s",
                             tool->index, at, BT_TOOLS_MAX_NAME_BYTES,
                             BT_API_SHOW(name));
    }
    if (!bt_api_is_none(tool->parameters) &&
        (tool->parameters->kind != BT_JSON_OBJECT)) {
        return bt_api_refuse(
            parse, "tools", "tools[%zu].%s%s must be an object, got %s",
            tool->index, at, schema, BT_API_SHOW(tool->parameters));
    }
    if (!bt_api_is_none(tool->strict) && !bt_json_is_bool(tool->strict)) {
        return bt_api_refuse(parse, "tools",
                             "tools[%zu].%sstrict must be true or false, got "
                             "%s",
                             tool->index, at, BT_API_SHOW(tool->strict));
    }
    if (bt_json_is_kind(tool->strict, BT_JSON_TRUE)) {
        const bt_status_t status =
            bt_api_check_strict_tool(parse, name, tool->parameters);

        if (status != BT_OK) {
            return status;
        }
        parse->request->tools.strict = true;
    }
    return bt_api_add_tool_name(parse, name->text, name->len);
}

static bt_status_t add_function(bt_api_parse_t *parse, size_t index,
                                const bt_json_node_t *tool)
{
    const bt_json_doc_t *doc = parse->doc;
    const bt_json_node_t *function = bt_json_get(doc, tool, "function");
    const bt_api_tool_t given = {
        .name = bt_json_get(doc, function, "name"),
        .parameters = bt_json_get(doc, function, "parameters"),
        .strict = bt_json_get(doc, function, "strict"),
        .index = index,
    };

    return bt_api_take_tool(parse, &given, "function.", "parameters");
}

static bt_status_t check_tool(bt_api_parse_t *parse, size_t index,
                              const bt_json_node_t *tool)
{
    const bt_json_node_t *type = bt_json_get(parse->doc, tool, "type");

    if (!bt_json_is_kind(tool, BT_JSON_OBJECT)) {
        return bt_api_refuse(parse, "tools",
                             "tools[%zu] must be an object, got %s", index,
                             BT_API_SHOW(tool));
    }
    if ((type != NULL) && !bt_json_is(type, "function")) {
        return bt_api_refuse(parse, "tools",
                             "tools[%zu] is of type %s: only function is "
                             "supported",
                             index, BT_API_SHOW(type));
    }
    return add_function(parse, index, tool);
}

bt_status_t bt_api_check_tool_list(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value)
{
    const uint32_t n = bt_json_size(value, BT_JSON_ARRAY);

    if (!bt_json_is_kind(value, BT_JSON_ARRAY)) {
        return bt_api_refuse_kind(parse, field->name, "a list", value);
    }
    if (n > BT_API_MAX_TOOLS) {
        return bt_api_refuse(parse, field->name,
                             "%s has %u entries, at most %d are allowed",
                             field->name, n, BT_API_MAX_TOOLS);
    }
    return BT_OK;
}

bt_status_t bt_api_read_tools(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value)
{
    const uint32_t n = bt_json_size(value, BT_JSON_ARRAY);
    const bt_json_node_t *tool = bt_json_first(value);
    bt_status_t status = bt_api_check_tool_list(parse, field, value);

    for (uint32_t i = 0; (i < n) && (status == BT_OK); i++) {
        status = check_tool(parse, i, tool);
        tool = bt_json_next(parse->doc, tool);
    }
    if ((status != BT_OK) || (n == 0)) {
        return status;
    }
    return bt_api_raw(parse, value, &parse->request->tools.json);
}

/* {"type": "function", "function": {"name": "f"}} */
static bt_status_t read_forced(bt_api_parse_t *parse,
                               const bt_json_node_t *value)
{
    bt_api_tools_t *tools = &parse->request->tools;
    static const char *const known[] = {"type", "function", NULL};
    static const char *const of_function[] = {"name", NULL};
    const bt_json_node_t *type = bt_json_get(parse->doc, value, "type");
    const bt_json_node_t *function = bt_json_get(parse->doc, value, "function");
    const bt_json_node_t *name = bt_json_get(parse->doc, function, "name");

    if (!bt_json_is(type, "function") ||
        !bt_json_is_kind(name, BT_JSON_STRING)) {
        return bt_api_refuse(parse, "tool_choice",
                             "tool_choice must be none, auto, required or "
                             "{\"type\": \"function\", \"function\": "
                             "{\"name\": …}}, got %s",
                             BT_API_SHOW(value));
    }
    bt_api_note_members(parse, "tool_choice", value, known);
    bt_api_note_members(parse, "tool_choice.function", function, of_function);
    tools->required = true;
    return bt_api_string(parse, "tool_choice", name, SIZE_MAX, &tools->forced);
}

bt_status_t bt_api_read_tool_choice(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const bt_json_node_t *value)
{
    (void)field;
    parse->says_no_tools = bt_json_is(value, "none");
    parse->request->tools.required = bt_json_is(value, "required");
    if (parse->says_no_tools || parse->request->tools.required ||
        bt_json_is(value, "auto")) {
        return BT_OK;
    }
    return read_forced(parse, value);
}

bt_status_t bt_api_check_tools(bt_api_parse_t *parse)
{
    bt_api_tools_t *tools = &parse->request->tools;

    if (parse->says_no_tools) {
        const bool only_one = tools->only_one;

        bt_api_tools_fini(tools);
        tools->only_one = only_one;
        return BT_OK;
    }
    if (tools->required && (tools->json == NULL)) {
        return bt_api_refuse(parse, "tool_choice",
                             "tool_choice asks for a call, and there are no "
                             "tools");
    }
    if ((tools->forced != NULL) &&
        !bt_tool_names_have(tools->names, tools->names_bytes, tools->forced,
                            strlen(tools->forced))) {
        return bt_api_refuse(parse, "tool_choice",
                             "tool_choice: no tool is called %.128s",
                             tools->forced);
    }
    if (tools->required && parse->request->continues_final) {
        return bt_api_refuse(parse, "tool_choice",
                             "tool_choice cannot ask for a call where the "
                             "answer goes on with a last message of the "
                             "assistant");
    }
    return BT_OK;
}

/* ---- calls that a message has ---- */

/* A tool call in a message. */
typedef struct call_writer {
    bt_api_parse_t *parse;
    const char *where; /* "messages[3]" */
    size_t index;
    bt_json_t *json;
} call_writer_t;

/* Writes the arguments as the client sent them: a string of JSON, or an object.
 */
static bt_status_t put_arguments(call_writer_t *t, const bt_json_node_t *given)
{
    if (bt_api_is_none(given)) {
        bt_json_raw(t->json, NULL, "{}");
        return BT_OK;
    }
    if ((given->kind != BT_JSON_STRING) && (given->kind != BT_JSON_OBJECT)) {
        return bt_api_refuse(t->parse, "messages",
                             "%s.tool_calls[%zu].function.arguments must be a "
                             "string of JSON or an object, got %s",
                             t->where, t->index, BT_API_SHOW(given));
    }
    bt_api_put_value(t->json, NULL, given);
    return BT_OK;
}

/* Writes the members of an object, without an id that is null, but that of this
 * name by put(). */
static bt_status_t
put_members(call_writer_t *t, const bt_json_node_t *object, const char *name,
            bt_status_t (*put)(call_writer_t *t, const bt_json_node_t *value))
{
    const bt_json_node_t *key = bt_json_first(object);
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (i < object->n) && (status == BT_OK); i++) {
        const bool is_none =
            bt_json_is(key, "id") && ((key + 1)->kind == BT_JSON_NULL);

        if (bt_json_counts(key) && !is_none) {
            bt_json_key(t->json, key->text, key->len);
            if (bt_json_is(key, name)) {
                status = put(t, key + 1);
            } else {
                bt_api_put_value(t->json, NULL, key + 1);
            }
        }
        key = bt_json_next(t->parse->doc, key + 1);
    }
    return status;
}

static bt_status_t put_function(call_writer_t *t,
                                const bt_json_node_t *function)
{
    bt_status_t status;

    bt_json_object(t->json, NULL);
    status = put_members(t, function, "arguments", put_arguments);
    if (bt_json_get(t->parse->doc, function, "arguments") == NULL) {
        bt_json_raw(t->json, "arguments", "{}");
    }
    bt_json_end_object(t->json);
    return status;
}

static bt_status_t put_call_of(call_writer_t *t, const bt_json_node_t *call)
{
    bt_status_t status;

    bt_json_object(t->json, NULL);
    status = put_members(t, call, "function", put_function);
    if (bt_json_get(t->parse->doc, call, "type") == NULL) {
        bt_json_str(t->json, "type", "function");
    }
    bt_json_end_object(t->json);
    return status;
}

static bt_status_t check_call(const call_writer_t *t,
                              const bt_json_node_t *call)
{
    const bt_json_doc_t *doc = t->parse->doc;
    const bt_json_node_t *name =
        bt_json_get(doc, bt_json_get(doc, call, "function"), "name");
    const bt_json_node_t *id = bt_json_get(doc, call, "id");

    if (!bt_json_is_kind(name, BT_JSON_STRING) || (name->len == 0)) {
        return bt_api_refuse(t->parse, "messages",
                             "%s.tool_calls[%zu] needs a function with a name, "
                             "got %s",
                             t->where, t->index, BT_API_SHOW(name));
    }
    if (!bt_api_is_none(id) && (id->kind != BT_JSON_STRING)) {
        return bt_api_refuse(t->parse, "messages",
                             "%s.tool_calls[%zu].id must be a string, got %s",
                             t->where, t->index, BT_API_SHOW(id));
    }
    return BT_OK;
}

bt_status_t bt_api_write_calls(bt_api_parse_t *parse, const char *where,
                               const bt_json_node_t *value, bt_json_t *json)
{
    const bt_json_node_t *call = bt_json_first(value);
    call_writer_t t = {.parse = parse, .where = where, .json = json};
    bt_status_t status = BT_OK;

    if (value->n > BT_API_MAX_TOOLS) {
        return bt_api_refuse(parse, "messages",
                             "%s.tool_calls has %u entries, at most %d are "
                             "allowed",
                             where, value->n, BT_API_MAX_TOOLS);
    }
    bt_json_array(json, NULL);
    for (; (t.index < value->n) && (status == BT_OK); t.index++) {
        status = check_call(&t, call);
        if (status == BT_OK) {
            status = put_call_of(&t, call);
        }
        call = bt_json_next(parse->doc, call);
    }
    bt_json_end_array(json);
    return status;
}

/* ---- calls of an answer ---- */

void bt_api_make_call_id(const bt_api_answer_t *answer, uint32_t choice,
                         uint32_t call, const char *prefix,
                         char id[BT_API_CALL_ID_BYTES])
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    const uint64_t seed = ((uint64_t)choice << 32) | call;
    const bt_hash128_t hash = bt_hash128(answer->id, strlen(answer->id), seed);
    const size_t from = (answer->call_id_bytes > 0) ? 0 : strlen(prefix);
    const size_t to =
        (answer->call_id_bytes > 0) ? answer->call_id_bytes : from + 24;
    uint64_t left = hash.lo;

    memcpy(id, prefix, from);
    for (size_t i = from; i < to; i++) {
        if (i == from + 12) {
            left = hash.hi;
        }
        id[i] = digits[left % 36];
        left /= 36;
    }
    id[to] = '\0';
}

void bt_api_put_call_id(const bt_api_answer_t *answer, uint32_t choice,
                        uint32_t call, const char *key, bt_json_t *json)
{
    char id[BT_API_CALL_ID_BYTES];

    bt_api_make_call_id(answer, choice, call, "call_", id);
    bt_json_str(json, key, id);
}

static void put_call(const bt_api_answer_t *answer,
                     const bt_api_choice_t *choice, uint32_t i, bool piece,
                     bt_json_t *json)
{
    const bt_strbuf_t *arguments = &choice->calls[i].arguments;
    const bool is_new = i >= choice->n_calls_sent;
    const size_t from = is_new ? 0 : choice->args_sent;

    bt_json_object(json, NULL);
    if (piece) {
        bt_json_u64(json, "index", i);
    }
    if (is_new) {
        bt_api_put_call_id(answer, choice->index, i, "id", json);
        bt_json_str(json, "type", "function");
    }
    bt_json_object(json, "function");
    if (is_new) {
        bt_json_str(json, "name", choice->calls[i].name);
    }
    bt_json_strn(json, "arguments",
                 (arguments->len > from) ? arguments->data + from : "",
                 arguments->len - from);
    bt_json_end_object(json);
    bt_json_end_object(json);
}

/* Returns the first call with parts that were not sent yet. */
static uint32_t first_new(const bt_api_choice_t *choice)
{
    const uint32_t n_returned = choice->n_calls_sent;

    return ((n_returned > 0) &&
            (choice->calls[n_returned - 1].arguments.len > choice->args_sent))
               ? n_returned - 1
               : n_returned;
}

bool bt_api_has_new_calls(const bt_api_choice_t *choice)
{
    return first_new(choice) < choice->n_calls;
}

void bt_api_put_calls(const bt_api_answer_t *answer,
                      const bt_api_choice_t *choice, bool piece,
                      bt_json_t *json)
{
    if (!bt_api_has_new_calls(choice)) {
        return;
    }
    bt_json_array(json, "tool_calls");
    for (uint32_t i = first_new(choice); i < choice->n_calls; i++) {
        put_call(answer, choice, i, piece, json);
    }
    bt_json_end_array(json);
}
