/* SPDX-License-Identifier: Apache-2.0 */
/* Tools: what a request says of them, and calls of them in an answer. Source:
 * OpenAI's API reference, "Chat", and what the templates of transformers are
 * given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "router/frontend/api_priv.h"

#define DUMP (JSON_COMPACT | JSON_REAL_PRECISION(17))

void bt_api_tools_fini(bt_api_tools_t *tools)
{
    bt_free(tools->json);
    bt_free(tools->names);
    bt_free(tools->forced);
    memset(tools, 0, sizeof(*tools));
}

/* jansson's memory as ours. */
static bt_status_t dump(bt_api_parse_t *parse, const json_t *value,
                        char **text_p)
{
    char *dumped = json_dumps(value, DUMP);
    char *text = bt_strdup(dumped);

    free(dumped);
    if (text == NULL) {
        return bt_api_no_memory(parse);
    }
    *text_p = text;
    return BT_OK;
}

/* ---- the tools of a request ---- */

static bt_status_t add_name(bt_api_parse_t *parse, size_t index,
                            const json_t *tool)
{
    bt_api_tools_t *tools = &parse->request->tools;
    const json_t *function = json_object_get(tool, "function");
    const json_t *name = json_object_get(function, "name");
    const json_t *parameters = json_object_get(function, "parameters");
    const size_t n = json_string_length(name);
    char *names;

    if (!json_is_string(name) ||
        !bt_tool_name_is_valid(json_string_value(name), n)) {
        return bt_api_refuse(
            parse, "tools",
            "tools[%zu].function.name must be 1 to %d letters, "
            "digits and any of _-.:/",
            index, BT_TOOLS_MAX_NAME_BYTES);
    }
    if ((parameters != NULL) && !json_is_null(parameters) &&
        !json_is_object(parameters)) {
        return bt_api_refuse(
            parse, "tools",
            "tools[%zu].function.parameters must be an object, "
            "got %s",
            index, bt_api_type_of(parameters));
    }
    if (json_is_true(json_object_get(function, "strict"))) {
        /* What it writes is not held to a schema. */
        bt_api_note_unknown(parse->request, "tools.function.strict");
    }
    names = bt_realloc_array(tools->names, tools->names_bytes + n + 1, 1);
    if (names == NULL) {
        return bt_api_no_memory(parse);
    }
    memcpy(names + tools->names_bytes, json_string_value(name), n + 1);
    tools->names = names;
    tools->names_bytes += n + 1;
    return BT_OK;
}

static bt_status_t check_tool(bt_api_parse_t *parse, size_t index,
                              const json_t *tool)
{
    const json_t *type = json_object_get(tool, "type");

    if (!json_is_object(tool)) {
        return bt_api_refuse(parse, "tools", "tools[%zu] must be an object",
                             index);
    }
    if ((type != NULL) &&
        (!json_is_string(type) ||
         (strcmp(json_string_value(type), "function") != 0))) {
        return bt_api_refuse(parse, "tools",
                             "tools[%zu] is of type %.40s: only function is "
                             "supported",
                             index,
                             json_is_string(type) ? json_string_value(type)
                                                  : bt_api_type_of(type));
    }
    return add_name(parse, index, tool);
}

bt_status_t bt_api_read_tools(bt_api_parse_t *parse,
                              const bt_api_field_t *field, const json_t *value)
{
    const size_t n = json_array_size(value);
    bt_status_t status = BT_OK;

    if (!json_is_array(value) || (n > BT_API_MAX_TOOLS)) {
        return bt_api_refuse(parse, field->name,
                             "%s must be a list of at most %d", field->name,
                             BT_API_MAX_TOOLS);
    }
    for (size_t i = 0; (i < n) && (status == BT_OK); i++) {
        status = check_tool(parse, i, json_array_get(value, i));
    }
    if ((status != BT_OK) || (n == 0)) {
        return status;
    }
    return dump(parse, value, &parse->request->tools.json);
}

/* {"type": "function", "function": {"name": "f"}} */
static bt_status_t read_forced(bt_api_parse_t *parse, const json_t *value)
{
    bt_api_tools_t *tools = &parse->request->tools;
    const json_t *type = json_object_get(value, "type");
    const json_t *name =
        json_object_get(json_object_get(value, "function"), "name");

    if (!json_is_string(type) ||
        (strcmp(json_string_value(type), "function") != 0) ||
        !json_is_string(name)) {
        return bt_api_refuse(parse, "tool_choice",
                             "tool_choice must be none, auto, required or "
                             "{\"type\": \"function\", \"function\": "
                             "{\"name\": …}}");
    }
    tools->required = true;
    tools->forced = bt_strdup(json_string_value(name));
    return (tools->forced == NULL) ? bt_api_no_memory(parse) : BT_OK;
}

bt_status_t bt_api_read_tool_choice(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const json_t *value)
{
    const char *word = json_string_value(value);

    (void)field;
    if (word == NULL) {
        return read_forced(parse, value);
    }
    parse->says_no_tools = strcmp(word, "none") == 0;
    parse->request->tools.required = strcmp(word, "required") == 0;
    if (!parse->says_no_tools && !parse->request->tools.required &&
        (strcmp(word, "auto") != 0)) {
        return read_forced(parse, value);
    }
    return BT_OK;
}

static bool has_name(const bt_api_tools_t *tools, const char *name)
{
    const char *at = tools->names;

    while (at < tools->names + tools->names_bytes) {
        if (strcmp(at, name) == 0) {
            return true;
        }
        at += strlen(at) + 1;
    }
    return false;
}

bt_status_t bt_api_check_tools(bt_api_parse_t *parse)
{
    bt_api_tools_t *tools = &parse->request->tools;

    if (parse->says_no_tools) {
        bt_api_tools_fini(tools);
        return BT_OK;
    }
    if (tools->required && (tools->json == NULL)) {
        return bt_api_refuse(parse, "tool_choice",
                             "tool_choice asks for a call, and there are no "
                             "tools");
    }
    if ((tools->forced != NULL) && !has_name(tools, tools->forced)) {
        return bt_api_refuse(parse, "tool_choice",
                             "tool_choice: no tool is called %.128s",
                             tools->forced);
    }
    if (tools->required && parse->request->continues_final) {
        return bt_api_refuse(parse, "tool_choice",
                             "tool_choice cannot ask for a call where "
                             "continue_final_message goes on with a text");
    }
    return BT_OK;
}

/* ---- calls that a message has ---- */

/* Templates are given an object. What is none stays the text that it is. */
static json_t *arguments_of(const json_t *function)
{
    json_t *given = json_object_get(function, "arguments");
    json_t *object;

    if (!json_is_string(given)) {
        return json_is_object(given) ? json_incref(given) : json_object();
    }
    object = json_loadb(json_string_value(given), json_string_length(given), 0,
                        NULL);
    if (json_is_object(object)) {
        return object;
    }
    json_decref(object);
    return json_incref(given);
}

static bt_status_t add_call(bt_api_parse_t *parse, const char *where,
                            size_t index, const json_t *call, json_t *list)
{
    const json_t *function = json_object_get(call, "function");
    json_t *name = json_object_get(function, "name");
    json_t *id = json_object_get(call, "id");
    json_t *made;

    id = json_is_null(id) ? NULL : id;
    if (!json_is_string(name) || (json_string_length(name) == 0)) {
        return bt_api_refuse(parse, "messages",
                             "%s.tool_calls[%zu] needs a function with a name",
                             where, index);
    }
    if ((id != NULL) && !json_is_string(id)) {
        return bt_api_refuse(parse, "messages",
                             "%s.tool_calls[%zu].id must be a string", where,
                             index);
    }
    /* s*: without the member where it is NULL; O keeps a reference, o none. */
    made = json_pack("{s:O*, s:s, s:{s:O, s:o}}", "id", id, "type", "function",
                     "function", "name", name, "arguments",
                     arguments_of(function));
    if ((made == NULL) || (json_array_append_new(list, made) < 0)) {
        return bt_api_no_memory(parse);
    }
    return BT_OK;
}

bt_status_t bt_api_read_calls(bt_api_parse_t *parse, const char *where,
                              const json_t *value, char **calls_json_p)
{
    const size_t n = json_array_size(value);
    json_t *list = json_array();
    bt_status_t status = (list != NULL) ? BT_OK : bt_api_no_memory(parse);

    if (n > BT_API_MAX_TOOLS) {
        status = bt_api_refuse(parse, "messages",
                               "%s.tool_calls has %zu entries, at most %d are "
                               "allowed",
                               where, n, BT_API_MAX_TOOLS);
    }
    for (size_t i = 0; (i < n) && (status == BT_OK); i++) {
        status = add_call(parse, where, i, json_array_get(value, i), list);
    }
    if (status == BT_OK) {
        status = dump(parse, list, calls_json_p);
    }
    json_decref(list);
    return status;
}

/* ---- calls of an answer ---- */

/* The same for all pieces, another for each call of each answer. */
static void put_id(const bt_api_answer_t *answer, uint32_t choice,
                   uint32_t call, bt_json_t *json)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    char text[24 + sizeof("call_")] = "call_";
    const uint64_t seed = ((uint64_t)choice << 32) | call;
    const bt_hash128_t hash = bt_hash128(answer->id, strlen(answer->id), seed);
    const size_t from = (answer->call_id_bytes > 0) ? 0 : strlen(text);
    const size_t to =
        (answer->call_id_bytes > 0) ? answer->call_id_bytes : sizeof(text) - 1;
    uint64_t left = hash.lo;

    for (size_t i = from; i < to; i++) {
        if (i == from + 12) {
            left = hash.hi;
        }
        text[i] = digits[left % 36];
        left /= 36;
    }
    text[to] = '\0';
    bt_json_str(json, "id", text);
}

static void put_call(const bt_api_answer_t *answer,
                     const bt_api_choice_t *choice, uint32_t i, bool piece,
                     bt_json_t *json)
{
    const bt_strbuf_t *arguments = &choice->calls[i].arguments;
    const bool is_new = i >= choice->n_calls_told;
    const size_t from = is_new ? 0 : choice->args_told;

    bt_json_object(json, NULL);
    if (piece) {
        bt_json_u64(json, "index", i);
    }
    if (is_new) {
        put_id(answer, choice->index, i, json);
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

/* The first of the calls of which something was not told yet. */
static uint32_t first_new(const bt_api_choice_t *choice)
{
    const uint32_t n_told = choice->n_calls_told;

    return ((n_told > 0) &&
            (choice->calls[n_told - 1].arguments.len > choice->args_told))
               ? n_told - 1
               : n_told;
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
