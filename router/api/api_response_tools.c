/* SPDX-License-Identifier: Apache-2.0 */
/* Tools of a response. Its flat form becomes the one that chat templates get;
 * a tool within a namespace, and a custom tool, become functions:
 *
 *     {"type": "function", "name": "f", …}        function f
 *     {"type": "namespace", "name": "n", "tools": [f, …]}   function n.f
 *     {"type": "custom", "name": "c", …}          function c of one text, input
 *
 * Source:  OpenAI's API reference, "Responses"; its guide "Function calling".
 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "router/api/api_priv.h"

#define JSON_LIMIT ((size_t)1 << 31)
#define PATH_BYTES 64

/* The list being built. */
typedef struct tools_writer {
    bt_api_parse_t *parse;
    bt_strbuf_t text;
    bt_json_t json;
    bt_strbuf_t special; /* bt_api_tools_t.special */
    uint32_t n;          /* tools in the list */
} tools_writer_t;

/* One tool as the client wrote it. */
typedef struct tool {
    const bt_json_node_t *node;
    const char *path;            /* "tools[3].tools[1]" */
    const bt_json_node_t *space; /* name of its namespace; NULL: none */
    char name[BT_TOOLS_MAX_NAME_BYTES + 1];
} tool_t;

#define REFUSE(w, t, fmt, ...) \
    bt_api_refuse((w)->parse, "tools", "%s" fmt, (t)->path, ##__VA_ARGS__)

static const bt_json_node_t *member(const tools_writer_t *w, const tool_t *tool,
                                    const char *name)
{
    return bt_json_get(w->parse->doc, tool->node, name);
}

/* ---- special tools ---- */

bool bt_api_find_special_tool(const char *special, size_t bytes,
                              const char *name, size_t name_bytes,
                              bt_api_special_tool_t *tool_p)
{
    const char *const end = (special != NULL) ? special + bytes : special;

    for (const char *at = special; at < end;) {
        const char *parts[5];

        for (int i = 0; i < 5; i++) {
            parts[i] = at;
            at += strlen(at) + 1;
        }
        if ((strlen(parts[0]) == name_bytes) &&
            (memcmp(parts[0], name, name_bytes) == 0)) {
            *tool_p = (bt_api_special_tool_t){.name = parts[0],
                                              .space = parts[1],
                                              .bare = parts[2],
                                              .type = parts[3],
                                              .format = parts[4]};
            return true;
        }
    }
    return false;
}

static void add_special(tools_writer_t *w, const tool_t *tool,
                        const bt_json_node_t *name, const char *type,
                        const char *format)
{
    bt_strbuf_append(&w->special, tool->name, strlen(tool->name) + 1);
    if (tool->space != NULL) {
        bt_strbuf_append(&w->special, tool->space->text, tool->space->len);
    }
    bt_strbuf_append(&w->special, "", 1);
    bt_strbuf_append(&w->special, name->text, name->len);
    bt_strbuf_append(&w->special, "", 1);
    bt_strbuf_append(&w->special, type, strlen(type) + 1);
    bt_strbuf_append(&w->special, format, strlen(format) + 1);
}

/* ---- a tool ---- */

/* Reads a name, and adds it to those of the request. */
static bt_status_t read_name(tools_writer_t *w, tool_t *tool)
{
    const bt_api_tools_t *const tools = &w->parse->request->tools;
    const bt_json_node_t *const name = member(w, tool, "name");
    const bool in_space = tool->space != NULL;
    size_t n;

    if (!bt_json_is_kind(name, BT_JSON_STRING) ||
        !bt_tool_name_is_valid(name->text, name->len)) {
        return REFUSE(w, tool,
                      ".name must be 1 to %d letters, digits and any of "
                      "_-.:/, got %s",
                      BT_TOOLS_MAX_NAME_BYTES, BT_API_SHOW(name));
    }
    n = (size_t)snprintf(tool->name, sizeof(tool->name), "%.*s%s%.*s",
                         in_space ? (int)tool->space->len : 0,
                         in_space ? tool->space->text : "", in_space ? "." : "",
                         (int)name->len, name->text);
    if (n >= sizeof(tool->name)) {
        return REFUSE(w, tool,
                      ".name has with its namespace more than %d bytes",
                      BT_TOOLS_MAX_NAME_BYTES);
    }
    if (bt_tool_names_have(tools->names, tools->names_bytes, tool->name, n)) {
        return REFUSE(w, tool, ".name: a tool before is called %s, too",
                      tool->name);
    }
    if (w->n == BT_API_MAX_TOOLS) {
        return bt_api_refuse(w->parse, "tools", "tools has more than %d tools",
                             BT_API_MAX_TOOLS);
    }
    w->n++;
    return bt_api_add_tool_name(w->parse, tool->name, n);
}

static bt_status_t check_text(tools_writer_t *w, const tool_t *tool,
                              const char *name)
{
    const bt_json_node_t *const value = member(w, tool, name);

    return (bt_api_is_none(value) || bt_json_is_kind(value, BT_JSON_STRING))
               ? BT_OK
               : REFUSE(w, tool, ".%s must be a string, got %s", name,
                        BT_API_SHOW(value));
}

/* Opens a function of the list, up to its description. */
static void begin_function(tools_writer_t *w, const tool_t *tool)
{
    const bt_json_node_t *const description = member(w, tool, "description");

    bt_json_object(&w->json, NULL);
    bt_json_str(&w->json, "type", "function");
    bt_json_object(&w->json, "function");
    bt_json_str(&w->json, "name", tool->name);
    if (!bt_api_is_none(description)) {
        bt_api_put_value(&w->json, "description", description);
    }
}

static void end_function(tools_writer_t *w)
{
    bt_json_end_object(&w->json);
    bt_json_end_object(&w->json);
}

/* Without `strict` a schema is held as it is written, where it can be. */
static bt_status_t put_function(tools_writer_t *w, tool_t *tool)
{
    static const char *const known[] = {"type",       "name",   "description",
                                        "parameters", "strict", NULL};
    bt_api_tools_t *const tools = &w->parse->request->tools;
    const bt_json_node_t *const name = member(w, tool, "name");
    const bt_json_node_t *const parameters = member(w, tool, "parameters");
    const bt_json_node_t *const strict = member(w, tool, "strict");
    bt_status_t status = read_name(w, tool);

    if (status == BT_OK) {
        status = check_text(w, tool, "description");
    }
    if (status != BT_OK) {
        return status;
    }
    if (!bt_api_is_none(parameters) && (parameters->kind != BT_JSON_OBJECT)) {
        return REFUSE(w, tool, ".parameters must be an object, got %s",
                      BT_API_SHOW(parameters));
    }
    if (!bt_api_is_none(strict) && !bt_json_is_bool(strict)) {
        return REFUSE(w, tool, ".strict must be true or false, got %s",
                      BT_API_SHOW(strict));
    }
    if (bt_json_is_kind(strict, BT_JSON_TRUE)) {
        status = bt_api_check_strict_tool(w->parse, name, parameters);
        if (status != BT_OK) {
            return status;
        }
    }
    tools->strict |= bt_json_is_kind(strict, BT_JSON_TRUE);
    tools->held |= bt_api_is_none(strict);
    bt_api_note_members(w->parse, tool->path, tool->node, known);
    begin_function(w, tool);
    if (!bt_api_is_none(parameters)) {
        bt_api_put_value(&w->json, "parameters", parameters);
    }
    if (bt_json_is_kind(strict, BT_JSON_TRUE)) {
        bt_json_bool(&w->json, "strict", true);
    }
    end_function(w);
    if (tool->space != NULL) {
        add_special(w, tool, name, "function", "");
    }
    return BT_OK;
}

/* Writes what the arguments of a custom tool follow: {"input": "…"}.
 * @param how "lark" or "pattern" */
static void write_format(const char *how, const bt_json_node_t *definition,
                         bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "type", "sequence");
    bt_json_array(&json, "elements");
    bt_json_raw(&json, NULL,
                "{\"type\":\"const_string\",\"value\":"
                "\"{\\\"" BT_CUSTOM_INPUT_NAME "\\\": \"}");
    bt_json_object(&json, NULL);
    bt_json_str(&json, "type", "json_string");
    bt_json_strn(&json, how, definition->text, definition->len);
    bt_json_end_object(&json);
    bt_json_raw(&json, NULL, "{\"type\":\"const_string\",\"value\":\"}\"}");
    bt_json_end_array(&json);
    bt_json_end_object(&json);
}

/* Reads the grammar of a custom tool.
 * @param [out] definition_p  NULL: its input is any text */
static bt_status_t read_format(tools_writer_t *w, const tool_t *tool,
                               const char **how_p,
                               const bt_json_node_t **definition_p)
{
    static const char *const known[] = {"type", "syntax", "definition", NULL};
    const bt_json_doc_t *const doc = w->parse->doc;
    const bt_json_node_t *const format = member(w, tool, "format");
    const bt_json_node_t *const type = bt_json_get(doc, format, "type");
    const bt_json_node_t *const syntax = bt_json_get(doc, format, "syntax");
    const bt_json_node_t *const definition =
        bt_json_get(doc, format, "definition");
    char path[PATH_BYTES];

    if (bt_api_is_none(format) || bt_json_is(type, "text")) {
        return BT_OK;
    }
    if (!bt_json_is(type, "grammar")) {
        return REFUSE(w, tool, ".format.type must be text or grammar, got %s",
                      BT_API_SHOW(type));
    }
    if (!bt_json_is(syntax, "lark") && !bt_json_is(syntax, "regex")) {
        return REFUSE(w, tool, ".format.syntax must be lark or regex, got %s",
                      BT_API_SHOW(syntax));
    }
    if (!bt_json_is_kind(definition, BT_JSON_STRING)) {
        return REFUSE(w, tool, ".format.definition must be a string, got %s",
                      BT_API_SHOW(definition));
    }
    snprintf(path, sizeof(path), "%s.format", tool->path);
    bt_api_note_members(w->parse, path, format, known);
    *how_p = bt_json_is(syntax, "lark") ? "lark" : "pattern";
    *definition_p = definition;
    return BT_OK;
}

/* Writes the only parameter of a custom tool; the model is shown its grammar.
 */
static void put_parameters(tools_writer_t *w, const char *how,
                           const bt_json_node_t *definition)
{
    bt_strbuf_t text;

    bt_json_object(&w->json, "parameters");
    bt_json_str(&w->json, "type", "object");
    bt_json_object(&w->json, "properties");
    bt_json_object(&w->json, BT_CUSTOM_INPUT_NAME);
    bt_json_str(&w->json, "type", "string");
    if (definition != NULL) {
        bt_strbuf_init(&text, JSON_LIMIT);
        bt_strbuf_printf(&text, "A text that follows this %s:\n",
                         (how[0] == 'l') ? "grammar of Lark"
                                         : "regular expression");
        bt_strbuf_append(&text, definition->text, definition->len);
        if (bt_strbuf_status(&text) == BT_OK) {
            bt_json_strn(&w->json, "description", text.data, text.len);
        } else {
            w->text.status = bt_strbuf_status(&text);
        }
        bt_strbuf_fini(&text);
    }
    bt_json_end_object(&w->json);
    bt_json_end_object(&w->json);
    bt_json_raw(&w->json, "required", "[\"" BT_CUSTOM_INPUT_NAME "\"]");
    bt_json_bool(&w->json, "additionalProperties", false);
    bt_json_end_object(&w->json);
}

static bt_status_t put_custom(tools_writer_t *w, tool_t *tool)
{
    static const char *const known[] = {"type", "name", "description", "format",
                                        NULL};
    bt_api_tools_t *const tools = &w->parse->request->tools;
    const bt_json_node_t *definition = NULL;
    const char *how = "";
    bt_status_t status = read_name(w, tool);
    bt_strbuf_t format;

    if (status == BT_OK) {
        status = check_text(w, tool, "description");
    }
    if (status == BT_OK) {
        status = read_format(w, tool, &how, &definition);
    }
    if (status != BT_OK) {
        return status;
    }
    bt_api_note_members(w->parse, tool->path, tool->node, known);
    tools->held = true;
    tools->needs_grammar |= definition != NULL;
    begin_function(w, tool);
    put_parameters(w, how, definition);
    end_function(w);
    bt_strbuf_init(&format, JSON_LIMIT);
    if (definition != NULL) {
        write_format(how, definition, &format);
    }
    if (bt_strbuf_status(&format) == BT_OK) {
        add_special(w, tool, member(w, tool, "name"), "custom",
                    (format.len > 0) ? format.data : "");
    } else {
        w->special.status = bt_strbuf_status(&format);
    }
    bt_strbuf_fini(&format);
    return BT_OK;
}

static bt_status_t put_tool(tools_writer_t *w, tool_t *tool);

static bt_status_t put_namespace(tools_writer_t *w, tool_t *tool)
{
    static const char *const known[] = {"type", "name", "description", "tools",
                                        NULL};
    const bt_json_node_t *const name = member(w, tool, "name");
    const bt_json_node_t *const list = member(w, tool, "tools");
    const bt_json_node_t *node;
    bt_status_t status = check_text(w, tool, "description");
    char path[PATH_BYTES];

    if (status != BT_OK) {
        return status;
    }
    if (tool->space != NULL) {
        return REFUSE(w, tool, ": a namespace has no namespaces");
    }
    if (!bt_json_is_kind(name, BT_JSON_STRING) ||
        !bt_tool_name_is_valid(name->text, name->len)) {
        return REFUSE(w, tool,
                      ".name must be 1 to %d letters, digits and any of "
                      "_-.:/, got %s",
                      BT_TOOLS_MAX_NAME_BYTES, BT_API_SHOW(name));
    }
    if (!bt_json_is_kind(list, BT_JSON_ARRAY)) {
        return REFUSE(w, tool, ".tools must be a list, got %s",
                      BT_API_SHOW(list));
    }
    bt_api_note_members(w->parse, tool->path, tool->node, known);
    node = (list->n > 0) ? bt_json_first(list) : NULL;
    for (uint32_t i = 0; (i < list->n) && (status == BT_OK); i++) {
        tool_t inner = {.node = node, .path = path, .space = name};

        snprintf(path, sizeof(path), "%s.tools[%u]", tool->path, i);
        status = put_tool(w, &inner);
        node = bt_json_next(w->parse->doc, node);
    }
    return status;
}

/* Codex offers OpenAI's searches unasked, so that they are taken, and named as
 * ignored: the model is not told of them. */
static bt_status_t skip_tool(tools_writer_t *w, tool_t *tool)
{
    bt_api_note_unknown(w->parse->request, tool->path, strlen(tool->path));
    return BT_OK;
}

static bt_status_t put_tool(tools_writer_t *w, tool_t *tool)
{
    static const struct {
        const char *type;
        bt_status_t (*put)(tools_writer_t *w, tool_t *tool);
    } types[] = {
        {"function", put_function},   {"custom", put_custom},
        {"namespace", put_namespace}, {"web_search", skip_tool},
        {"tool_search", skip_tool},
    };
    const bt_json_node_t *const type = member(w, tool, "type");

    if (!bt_json_is_kind(tool->node, BT_JSON_OBJECT)) {
        return REFUSE(w, tool, " must be an object, got %s",
                      BT_API_SHOW(tool->node));
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(types); i++) {
        if (bt_json_is(type, types[i].type)) {
            return types[i].put(w, tool);
        }
    }
    return REFUSE(w, tool,
                  " is of type %s: only function and custom are supported, as "
                  "this server runs no tools itself",
                  BT_API_SHOW(type));
}

/* ---- all of them ---- */

static bt_status_t put_tools(tools_writer_t *w, const bt_json_node_t *list)
{
    const bt_json_node_t *node = (list->n > 0) ? bt_json_first(list) : NULL;
    bt_status_t status = BT_OK;
    char path[PATH_BYTES];

    bt_json_array(&w->json, NULL);
    for (uint32_t i = 0; (i < list->n) && (status == BT_OK); i++) {
        tool_t tool = {.node = node, .path = path};

        snprintf(path, sizeof(path), "tools[%u]", i);
        status = put_tool(w, &tool);
        node = bt_json_next(w->parse->doc, node);
    }
    bt_json_end_array(&w->json);
    return status;
}

/* Moves what was written to the request. */
static bt_status_t keep(tools_writer_t *w)
{
    bt_api_tools_t *const tools = &w->parse->request->tools;

    if ((bt_strbuf_status(&w->text) != BT_OK) ||
        (bt_strbuf_status(&w->special) != BT_OK)) {
        return bt_api_error_no_memory(w->parse->error);
    }
    if (w->n > 0) {
        tools->json = w->text.data;
        bt_strbuf_init(&w->text, JSON_LIMIT);
    }
    if (w->special.len > 0) {
        tools->special = w->special.data;
        tools->special_bytes = w->special.len;
        bt_strbuf_init(&w->special, JSON_LIMIT);
    }
    return BT_OK;
}

bt_status_t bt_api_read_response_tools(bt_api_parse_t *parse,
                                       const bt_api_field_t *field,
                                       const bt_json_node_t *value)
{
    tools_writer_t w = {.parse = parse};
    bt_status_t status;

    if (!bt_json_is_kind(value, BT_JSON_ARRAY)) {
        return bt_api_refuse_kind(parse, field->name, "a list", value);
    }
    bt_strbuf_init(&w.text, JSON_LIMIT);
    bt_strbuf_init(&w.special, JSON_LIMIT);
    bt_json_init(&w.json, &w.text);
    status = put_tools(&w, value);
    if (status == BT_OK) {
        status = keep(&w);
    }
    if (status == BT_OK) {
        status = bt_api_raw(parse, value, &parse->request->tools_json);
    }
    bt_strbuf_fini(&w.text);
    bt_strbuf_fini(&w.special);
    return status;
}

/* ---- which of them may be called ---- */

/* Returns the name that templates have for a tool that is chosen: {"type":
 * "function", "name": "f"}, perhaps with its namespace.
 * @param [out] name  holds it
 * @return false: it is none */
static bool name_of(const bt_api_parse_t *parse, const bt_json_node_t *choice,
                    char name[BT_TOOLS_MAX_NAME_BYTES + 1])
{
    const bt_json_node_t *const type = bt_json_get(parse->doc, choice, "type");
    const bt_json_node_t *const bare = bt_json_get(parse->doc, choice, "name");
    const bt_json_node_t *const space =
        bt_json_get(parse->doc, choice, "namespace");
    const bool in_space =
        bt_json_is_kind(space, BT_JSON_STRING) && (space->len > 0);

    if ((!bt_json_is(type, "function") && !bt_json_is(type, "custom")) ||
        !bt_json_is_kind(bare, BT_JSON_STRING) ||
        !bt_tool_name_is_valid(bare->text, bare->len) ||
        (in_space && !bt_tool_name_is_valid(space->text, space->len))) {
        return false;
    }
    return snprintf(name, BT_TOOLS_MAX_NAME_BYTES + 1, "%.*s%s%.*s",
                    in_space ? (int)space->len : 0, in_space ? space->text : "",
                    in_space ? "." : "", (int)bare->len,
                    bare->text) <= BT_TOOLS_MAX_NAME_BYTES;
}

static bt_status_t read_allowed(bt_api_parse_t *parse,
                                const bt_json_node_t *value)
{
    static const char *const known[] = {"type", "mode", "tools", NULL};
    const bt_json_node_t *const mode = bt_json_get(parse->doc, value, "mode");
    const bt_json_node_t *const list = bt_json_get(parse->doc, value, "tools");

    if (!bt_json_is(mode, "auto") && !bt_json_is(mode, "required")) {
        return bt_api_refuse(parse, "tool_choice",
                             "tool_choice.mode must be auto or required, got "
                             "%s",
                             BT_API_SHOW(mode));
    }
    if ((bt_json_size(list, BT_JSON_ARRAY) == 0) ||
        (list->n > BT_API_MAX_TOOLS)) {
        return bt_api_refuse(parse, "tool_choice",
                             "tool_choice.tools must be a list of 1 to %d "
                             "tools, got %s",
                             BT_API_MAX_TOOLS, BT_API_SHOW(list));
    }
    bt_api_note_members(parse, "tool_choice", value, known);
    parse->request->tools.required = bt_json_is(mode, "required");
    parse->allowed_tools = list;
    return BT_OK;
}

static bt_status_t read_one(bt_api_parse_t *parse, const bt_json_node_t *value)
{
    static const char *const known[] = {"type", "name", "namespace", NULL};
    char name[BT_TOOLS_MAX_NAME_BYTES + 1];

    if (!name_of(parse, value, name)) {
        return bt_api_refuse(parse, "tool_choice",
                             "tool_choice must be none, auto, required, "
                             "{\"type\": \"function\" or \"custom\", \"name\": "
                             "…} or {\"type\": \"allowed_tools\", …}, got %s",
                             BT_API_SHOW(value));
    }
    bt_api_note_members(parse, "tool_choice", value, known);
    parse->request->tools.required = true;
    parse->request->tools.forced = bt_strdup(name);
    return (parse->request->tools.forced != NULL)
               ? BT_OK
               : bt_api_error_no_memory(parse->error);
}

bt_status_t bt_api_read_response_tool_choice(bt_api_parse_t *parse,
                                             const bt_api_field_t *field,
                                             const bt_json_node_t *value)
{
    bt_api_tools_t *const tools = &parse->request->tools;
    const bt_json_node_t *const type = bt_json_get(parse->doc, value, "type");
    bt_status_t status = BT_OK;

    (void)field;
    parse->says_no_tools = bt_json_is(value, "none");
    tools->required = bt_json_is(value, "required");
    if (parse->says_no_tools || tools->required || bt_json_is(value, "auto")) {
        bt_strbuf_t text;

        bt_strbuf_init(&text, PATH_BYTES);
        bt_strbuf_printf(&text, "\"%.*s\"", (int)value->len, value->text);
        if (bt_strbuf_status(&text) != BT_OK) {
            bt_strbuf_fini(&text);
            return bt_api_error_no_memory(parse->error);
        }
        parse->request->choice_json = text.data;
        return BT_OK;
    }
    status = bt_json_is(type, "allowed_tools") ? read_allowed(parse, value)
                                               : read_one(parse, value);
    return (status == BT_OK)
               ? bt_api_raw(parse, value, &parse->request->choice_json)
               : status;
}

/* True when a tool is in the list that tool_choice has. */
static bool is_allowed(const bt_api_parse_t *parse, const char *name)
{
    const bt_json_node_t *const list = parse->allowed_tools;
    const bt_json_node_t *node = bt_json_first(list);
    char allowed[BT_TOOLS_MAX_NAME_BYTES + 1];

    for (uint32_t i = 0; i < list->n; i++) {
        if (name_of(parse, node, allowed) && (strcmp(allowed, name) == 0)) {
            return true;
        }
        node = bt_json_next(parse->doc, node);
    }
    return false;
}

/* Checks that each tool of the list is one of the request's. */
static bt_status_t check_allowed(bt_api_parse_t *parse)
{
    const bt_api_tools_t *const tools = &parse->request->tools;
    const bt_json_node_t *const list = parse->allowed_tools;
    const bt_json_node_t *node = bt_json_first(list);
    char name[BT_TOOLS_MAX_NAME_BYTES + 1];

    for (uint32_t i = 0; i < list->n; i++) {
        if (!name_of(parse, node, name)) {
            return bt_api_refuse(parse, "tool_choice",
                                 "tool_choice.tools[%u] must be {\"type\": "
                                 "\"function\" or \"custom\", \"name\": …}, "
                                 "got %s",
                                 i, BT_API_SHOW(node));
        }
        if (!bt_tool_names_have(tools->names, tools->names_bytes, name,
                                strlen(name))) {
            return bt_api_refuse(parse, "tool_choice",
                                 "tool_choice.tools[%u]: no tool is called %s",
                                 i, name);
        }
        node = bt_json_next(parse->doc, node);
    }
    return BT_OK;
}

bt_status_t bt_api_check_response_tools(bt_api_parse_t *parse)
{
    bt_api_tools_t *const tools = &parse->request->tools;
    size_t n = 0;
    bt_status_t status;

    if (parse->allowed_tools == NULL) {
        return BT_OK;
    }
    status = check_allowed(parse);
    if (status != BT_OK) {
        return status;
    }
    for (size_t at = 0; at < tools->names_bytes;) {
        const size_t bytes = strlen(tools->names + at) + 1;

        if (is_allowed(parse, tools->names + at)) {
            memmove(tools->names + n, tools->names + at, bytes);
            n += bytes;
        }
        at += bytes;
    }
    tools->names_bytes = n;
    tools->held = true;
    tools->needs_grammar = true;
    return BT_OK;
}
