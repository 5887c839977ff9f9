/* SPDX-License-Identifier: Apache-2.0 */
/* Anthropic's messages: the request, turned into the conversation and the tools
 * that chat templates get.
 *
 *     system                         a message of the system, in front
 *     text blocks of a turn          content
 *     thinking of the assistant      reasoning_content
 *     tool_use of the assistant      tool_calls
 *     tool_result of the user        a message of the tool
 *
 * Source:  Anthropic's API reference, "Messages" and "Count tokens". */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/api/api_priv.h"

#define JSON_LIMIT ((size_t)1 << 31)

/* Least budget of a thinking part in Anthropic's API. */
#define MIN_THINKING_TOKENS 1024

/* A conversation being built. */
typedef struct writer {
    bt_api_parse_t *parse;
    bt_strbuf_t text;
    bt_json_t json;
    uint32_t at; /* index of the client's message */
} writer_t;

/* Refuses what a message has; printf style. */
#define REFUSE_AT(w, fmt, ...)                                         \
    bt_api_refuse((w)->parse, "messages", "messages[%u]" fmt, (w)->at, \
                  ##__VA_ARGS__)

/* ---- blocks ---- */

static bool is_type(const writer_t *w, const bt_json_node_t *block,
                    const char *type)
{
    return bt_json_is(bt_json_get(w->parse->doc, block, "type"), type);
}

/* Refuses a block that this role cannot have. */
static bt_status_t refuse_block(writer_t *w, uint32_t index,
                                const bt_json_node_t *block)
{
    const bt_json_node_t *type = bt_json_get(w->parse->doc, block, "type");

    if (!bt_json_is_kind(block, BT_JSON_OBJECT) ||
        !bt_json_is_kind(type, BT_JSON_STRING)) {
        return REFUSE_AT(w,
                         ".content[%u] must be an object with a type, got %s",
                         index, BT_API_SHOW((type != NULL) ? type : block));
    }
    return REFUSE_AT(w,
                     ".content[%u]: blocks of type %s are not supported "
                     "yet, only text, thinking, tool_use and tool_result",
                     index, BT_API_SHOW(type));
}

/* Returns the text of a text block, after a check; NULL: refused. */
static const bt_json_node_t *text_of(writer_t *w, uint32_t index,
                                     const bt_json_node_t *block,
                                     bt_status_t *status_p)
{
    static const char *const known[] = {"type", "text", "cache_control",
                                        "citations", NULL};
    const bt_json_node_t *text = bt_json_get(w->parse->doc, block, "text");
    char path[64];

    if (!bt_json_is_kind(text, BT_JSON_STRING)) {
        *status_p = REFUSE_AT(w, ".content[%u].text must be a string, got %s",
                              index, BT_API_SHOW(text));
        return NULL;
    }
    snprintf(path, sizeof(path), "messages[%u].content[%u]", w->at, index);
    bt_api_note_members(w->parse, path, block, known);
    return text;
}

/* Writes the texts among n blocks as a content: a string, or the parts of
 * several.
 * @param [in] n_texts  above 0 */
static bt_status_t put_texts(writer_t *w, uint32_t index,
                             const bt_json_node_t *block, uint32_t n,
                             uint32_t n_texts)
{
    bt_status_t status = BT_OK;

    if (n_texts > 1) {
        bt_json_array(&w->json, NULL);
    }
    for (uint32_t i = 0; (i < n) && (status == BT_OK); i++) {
        const bt_json_node_t *text = is_type(w, block, "text")
                                         ? text_of(w, index + i, block, &status)
                                         : NULL;

        if ((text != NULL) && (n_texts == 1)) {
            bt_api_put_value(&w->json, NULL, text);
        } else if (text != NULL) {
            bt_json_object(&w->json, NULL);
            bt_json_str(&w->json, "type", "text");
            bt_api_put_value(&w->json, "text", text);
            bt_json_end_object(&w->json);
        }
        block = bt_json_next(w->parse->doc, block);
    }
    if (n_texts > 1) {
        bt_json_end_array(&w->json);
    }
    return status;
}

/* Counts the blocks of this type from one on.
 * @param [in] left  blocks from this one on */
static uint32_t run_of(const writer_t *w, const char *type,
                       const bt_json_node_t *block, uint32_t left)
{
    uint32_t n = 0;

    while ((n < left) && is_type(w, block, type)) {
        block = bt_json_next(w->parse->doc, block);
        n++;
    }
    return n;
}

/* ---- messages ---- */

/* Opens a message of the conversation. */
static bt_status_t open_message(writer_t *w, const char *role)
{
    bt_api_messages_t *messages = &w->parse->request->messages;

    if (messages->n == BT_API_MAX_MESSAGES) {
        return bt_api_refuse(w->parse, "messages",
                             "messages: texts and tool results are more than "
                             "%d messages",
                             BT_API_MAX_MESSAGES);
    }
    messages->items[messages->n++] = (uint16_t)w->at;
    bt_json_object(&w->json, NULL);
    bt_json_str(&w->json, "role", role);
    return BT_OK;
}

/* Writes the content of a tool's result: a string or text blocks. */
static bt_status_t put_result(writer_t *w, uint32_t index,
                              const bt_json_node_t *content)
{
    const uint32_t n = bt_json_size(content, BT_JSON_ARRAY);

    bt_json_key(&w->json, "content", strlen("content"));
    if (bt_api_is_none(content) ||
        (bt_json_is_kind(content, BT_JSON_ARRAY) && (n == 0))) {
        bt_json_str(&w->json, NULL, "");
        return BT_OK;
    }
    if (bt_json_is_kind(content, BT_JSON_STRING)) {
        bt_api_put_value(&w->json, NULL, content);
        return BT_OK;
    }
    if (n == 0) {
        return REFUSE_AT(w,
                         ".content[%u].content must be a string or a list of "
                         "blocks, got %s",
                         index, BT_API_SHOW(content));
    }
    if (run_of(w, "text", bt_json_first(content), n) < n) {
        return REFUSE_AT(w,
                         ".content[%u].content: only blocks of type text "
                         "are supported yet",
                         index);
    }
    return put_texts(w, index, bt_json_first(content), n, n);
}

static bt_status_t check_id(writer_t *w, uint32_t index, const char *key,
                            const bt_json_node_t *id)
{
    if (bt_json_is_kind(id, BT_JSON_STRING) && (id->len > 0) &&
        (id->len <= BT_API_MAX_NAME_BYTES)) {
        return BT_OK;
    }
    return REFUSE_AT(
        w, ".content[%u].%s must be a string of 1 to %d bytes, got %s", index,
        key, BT_API_MAX_NAME_BYTES, BT_API_SHOW(id));
}

/* Writes a message of the tool. */
static bt_status_t put_tool_result(writer_t *w, uint32_t index,
                                   const bt_json_node_t *block)
{
    static const char *const known[] = {"type",     "tool_use_id",   "content",
                                        "is_error", "cache_control", NULL};
    const bt_json_doc_t *doc = w->parse->doc;
    const bt_json_node_t *id = bt_json_get(doc, block, "tool_use_id");
    const bt_json_node_t *failed = bt_json_get(doc, block, "is_error");
    bt_status_t status = check_id(w, index, "tool_use_id", id);
    char path[64];

    if ((status == BT_OK) && !bt_api_is_none(failed) &&
        !bt_json_is_bool(failed)) {
        status = REFUSE_AT(w,
                           ".content[%u].is_error must be true or false, got "
                           "%s",
                           index, BT_API_SHOW(failed));
    }
    if (status == BT_OK) {
        status = open_message(w, "tool");
    }
    if (status != BT_OK) {
        return status;
    }
    snprintf(path, sizeof(path), "messages[%u].content[%u]", w->at, index);
    bt_api_note_members(w->parse, path, block, known);
    bt_api_put_value(&w->json, "tool_call_id", id);
    status = put_result(w, index, bt_json_get(doc, block, "content"));
    if (bt_json_is_kind(failed, BT_JSON_TRUE)) {
        bt_json_bool(&w->json, "is_error", true);
    }
    bt_json_end_object(&w->json);
    return status;
}

/* Writes the blocks of the user, or of the system: a message for each run of
 * texts, and for each result of a tool. */
static bt_status_t put_user(writer_t *w, const char *role,
                            const bt_json_node_t *blocks)
{
    const bt_json_node_t *block = bt_json_first(blocks);
    const bool is_user = strcmp(role, "user") == 0;
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (i < blocks->n) && (status == BT_OK);) {
        const uint32_t n = run_of(w, "text", block, blocks->n - i);

        if (n > 0) {
            status = open_message(w, role);
            if (status == BT_OK) {
                bt_json_key(&w->json, "content", strlen("content"));
                status = put_texts(w, i, block, n, n);
                bt_json_end_object(&w->json);
            }
        } else if (is_user && is_type(w, block, "tool_result")) {
            status = put_tool_result(w, i, block);
        } else {
            status = refuse_block(w, i, block);
        }
        for (uint32_t k = 0; k < ((n > 0) ? n : 1); k++) {
            block = bt_json_next(w->parse->doc, block);
            i++;
        }
    }
    return status;
}

static bt_status_t put_tool_use(writer_t *w, uint32_t index,
                                const bt_json_node_t *block)
{
    static const char *const known[] = {
        "type", "id", "name", "input", "cache_control", "caller", NULL};
    const bt_json_doc_t *doc = w->parse->doc;
    const bt_json_node_t *id = bt_json_get(doc, block, "id");
    const bt_json_node_t *name = bt_json_get(doc, block, "name");
    const bt_json_node_t *input = bt_json_get(doc, block, "input");
    bt_status_t status = check_id(w, index, "id", id);
    char path[64];

    if (status == BT_OK) {
        status = check_id(w, index, "name", name);
    }
    if (status != BT_OK) {
        return status;
    }
    if (!bt_json_is_kind(input, BT_JSON_OBJECT)) {
        return REFUSE_AT(w, ".content[%u].input must be an object, got %s",
                         index, BT_API_SHOW(input));
    }
    snprintf(path, sizeof(path), "messages[%u].content[%u]", w->at, index);
    bt_api_note_members(w->parse, path, block, known);
    bt_json_object(&w->json, NULL);
    bt_api_put_value(&w->json, "id", id);
    bt_json_str(&w->json, "type", "function");
    bt_json_object(&w->json, "function");
    bt_api_put_value(&w->json, "name", name);
    /* As text, as in OpenAI's API: equal histories become equal prompts. */
    bt_json_strn(&w->json, "arguments", input->text, input->len);
    bt_json_end_object(&w->json);
    bt_json_end_object(&w->json);
    return BT_OK;
}

/* Numbers of the assistant's blocks by type. */
typedef struct turn {
    uint32_t n_texts, n_thoughts, n_calls;
} turn_t;

static bt_status_t count_blocks(writer_t *w, const bt_json_node_t *blocks,
                                turn_t *turn)
{
    const bt_json_node_t *block = bt_json_first(blocks);

    for (uint32_t i = 0; i < blocks->n; i++) {
        if (is_type(w, block, "text")) {
            turn->n_texts++;
        } else if (is_type(w, block, "thinking")) {
            turn->n_thoughts++;
        } else if (is_type(w, block, "tool_use")) {
            turn->n_calls++;
        } else if (!is_type(w, block, "redacted_thinking")) {
            /* That is another server's secret, and empty here. */
            return refuse_block(w, i, block);
        }
        block = bt_json_next(w->parse->doc, block);
    }
    if (turn->n_calls > BT_API_MAX_TOOLS) {
        return REFUSE_AT(w, " has %u tool calls, at most %d are allowed",
                         turn->n_calls, BT_API_MAX_TOOLS);
    }
    return BT_OK;
}

/* Writes what the assistant thought, joined by line ends. */
static bt_status_t put_thoughts(writer_t *w, const bt_json_node_t *blocks)
{
    const bt_json_node_t *block = bt_json_first(blocks);
    bt_status_t status = BT_OK;
    bt_strbuf_t joined;

    bt_strbuf_init(&joined, JSON_LIMIT);
    for (uint32_t i = 0; (i < blocks->n) && (status == BT_OK); i++) {
        if (is_type(w, block, "thinking")) {
            const bt_json_node_t *text =
                bt_json_get(w->parse->doc, block, "thinking");

            if (bt_json_is_kind(text, BT_JSON_STRING)) {
                bt_strbuf_append(&joined, "\n", (joined.len > 0) ? 1 : 0);
                bt_strbuf_append(&joined, text->text, text->len);
            } else {
                status = REFUSE_AT(w,
                                   ".content[%u].thinking must be a string, "
                                   "got %s",
                                   i, BT_API_SHOW(text));
            }
        }
        block = bt_json_next(w->parse->doc, block);
    }
    if (bt_strbuf_status(&joined) != BT_OK) {
        w->text.status = bt_strbuf_status(&joined);
    } else if (joined.len > 0) {
        bt_json_strn(&w->json, "reasoning_content", joined.data, joined.len);
    }
    bt_strbuf_fini(&joined);
    return status;
}

static bt_status_t put_assistant(writer_t *w, const bt_json_node_t *blocks)
{
    const bt_json_node_t *block = bt_json_first(blocks);
    turn_t turn = {0};
    bt_status_t status = count_blocks(w, blocks, &turn);

    if (status == BT_OK) {
        status = open_message(w, "assistant");
    }
    if (status != BT_OK) {
        return status;
    }
    bt_json_key(&w->json, "content", strlen("content"));
    if (turn.n_texts > 0) {
        status = put_texts(w, 0, block, blocks->n, turn.n_texts);
    } else {
        bt_json_null(&w->json, NULL);
    }
    if ((status == BT_OK) && (turn.n_thoughts > 0)) {
        status = put_thoughts(w, blocks);
    }
    if (turn.n_calls > 0) {
        bt_json_array(&w->json, "tool_calls");
        for (uint32_t i = 0; (i < blocks->n) && (status == BT_OK); i++) {
            if (is_type(w, block, "tool_use")) {
                status = put_tool_use(w, i, block);
            }
            block = bt_json_next(w->parse->doc, block);
        }
        bt_json_end_array(&w->json);
    }
    bt_json_end_object(&w->json);
    return status;
}

/* ---- the conversation ---- */

static bt_status_t put_message(writer_t *w, const bt_json_node_t *message)
{
    static const char *const known[] = {"role", "content", NULL};
    static const char *const roles[] = {"user", "assistant", "system"};
    const bt_json_node_t *role = bt_json_get(w->parse->doc, message, "role");
    const bt_json_node_t *content =
        bt_json_get(w->parse->doc, message, "content");
    const char *name = NULL;
    bt_status_t status;
    char path[32];

    if (!bt_json_is_kind(message, BT_JSON_OBJECT)) {
        return REFUSE_AT(w, " must be an object, got %s", BT_API_SHOW(message));
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(roles); i++) {
        name = bt_json_is(role, roles[i]) ? roles[i] : name;
    }
    if (name == NULL) {
        return REFUSE_AT(w, ".role must be user, assistant or system, got %s",
                         BT_API_SHOW(role));
    }
    snprintf(path, sizeof(path), "messages[%u]", w->at);
    bt_api_note_members(w->parse, path, message, known);
    if (bt_json_is_kind(content, BT_JSON_STRING)) {
        status = open_message(w, name);
        if (status == BT_OK) {
            bt_api_put_value(&w->json, "content", content);
            bt_json_end_object(&w->json);
        }
        return status;
    }
    if (bt_json_size(content, BT_JSON_ARRAY) == 0) {
        return REFUSE_AT(w,
                         ".content must be a string or a list of blocks, "
                         "got %s",
                         BT_API_SHOW(content));
    }
    return (strcmp(name, "assistant") == 0) ? put_assistant(w, content)
                                            : put_user(w, name, content);
}

/* A last message of the assistant is the beginning of the answer. */
static bt_status_t keep_final(writer_t *w, const bt_json_node_t *message)
{
    const bt_json_doc_t *doc = w->parse->doc;
    const bt_json_node_t *content = bt_json_get(doc, message, "content");
    const uint32_t n = bt_json_size(content, BT_JSON_ARRAY);
    const bt_json_node_t *block = (n > 0) ? bt_json_first(content) : NULL;
    bt_status_t status;
    bt_strbuf_t text;

    if (!bt_json_is(bt_json_get(doc, message, "role"), "assistant")) {
        return BT_OK;
    }
    bt_strbuf_init(&text, JSON_LIMIT);
    if (bt_json_is_kind(content, BT_JSON_STRING)) {
        bt_api_add_final(w->parse, content, &text);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!is_type(w, block, "text")) {
            bt_strbuf_fini(&text);
            return REFUSE_AT(w, ": the last message can be the assistant's "
                                "only if it has text alone");
        }
        bt_api_add_final(w->parse, bt_json_get(doc, block, "text"), &text);
        block = bt_json_next(doc, block);
    }
    status = bt_api_keep_final(w->parse, &text);
    if ((status == BT_OK) && (w->parse->request->messages.final == NULL)) {
        return REFUSE_AT(w, ": the last message of the assistant is empty");
    }
    w->parse->request->continues_final = status == BT_OK;
    return status;
}

static bt_status_t put_all(writer_t *w, const bt_json_node_t *list)
{
    const bt_json_node_t *message = bt_json_first(list);
    bt_status_t status = BT_OK;

    bt_json_array(&w->json, NULL);
    for (uint32_t i = 0; (i < list->n) && (status == BT_OK); i++) {
        w->at = i;
        status = put_message(w, message);
        if ((status == BT_OK) && (i + 1 == list->n)) {
            status = keep_final(w, message);
        }
        message = bt_json_next(w->parse->doc, message);
    }
    bt_json_end_array(&w->json);
    return status;
}

bt_status_t bt_api_read_anthropic_messages(bt_api_parse_t *parse,
                                           const bt_api_field_t *field,
                                           const bt_json_node_t *value)
{
    bt_api_messages_t *messages = &parse->request->messages;
    const uint32_t n = bt_json_size(value, BT_JSON_ARRAY);
    writer_t w = {.parse = parse};
    bt_status_t status;

    if (!bt_json_is_kind(value, BT_JSON_ARRAY)) {
        return bt_api_refuse_kind(parse, field->name, "a list", value);
    }
    if ((n == 0) || (n > BT_API_MAX_MESSAGES)) {
        return bt_api_refuse(parse, field->name,
                             "%s must have from 1 to %d entries, got %u",
                             field->name, BT_API_MAX_MESSAGES, n);
    }
    bt_api_messages_fini(parse->request);
    messages->items =
        bt_calloc(BT_API_MAX_MESSAGES + 1, sizeof(*messages->items));
    if (messages->items == NULL) {
        return bt_api_error_no_memory(parse->error);
    }
    bt_strbuf_init(&w.text, JSON_LIMIT);
    bt_json_init(&w.json, &w.text);
    status = put_all(&w, value);
    if (status == BT_OK) {
        status = bt_api_keep_messages(parse, &w.text);
    }
    bt_strbuf_fini(&w.text);
    return status;
}

bt_status_t bt_api_read_system(bt_api_parse_t *parse,
                               const bt_api_field_t *field,
                               const bt_json_node_t *value)
{
    const uint32_t n = bt_json_size(value, BT_JSON_ARRAY);
    const bt_json_node_t *block = (n > 0) ? bt_json_first(value) : NULL;
    bt_status_t status = BT_OK;
    bt_strbuf_t text;

    if (bt_json_is_kind(value, BT_JSON_STRING)) {
        return bt_api_read_instructions(parse, field, value);
    }
    if (!bt_json_is_kind(value, BT_JSON_ARRAY)) {
        return bt_api_refuse_kind(parse, field->name,
                                  "a string or a list of blocks", value);
    }
    bt_strbuf_init(&text, JSON_LIMIT);
    for (uint32_t i = 0; (i < n) && (status == BT_OK); i++) {
        const bt_json_node_t *words = bt_json_get(parse->doc, block, "text");

        if (!bt_json_is(bt_json_get(parse->doc, block, "type"), "text") ||
            !bt_json_is_kind(words, BT_JSON_STRING) ||
            (memchr(words->text, '\0', words->len) != NULL)) {
            status =
                bt_api_refuse(parse, field->name,
                              "system[%u] must be a block of type text "
                              "with a text without zero characters, got %s",
                              i, BT_API_SHOW((words != NULL) ? words : block));
            break;
        }
        bt_strbuf_append(&text, "\n", (text.len > 0) ? 1 : 0);
        bt_strbuf_append(&text, words->text, words->len);
        block = bt_json_next(parse->doc, block);
    }
    if ((status == BT_OK) && (bt_strbuf_status(&text) != BT_OK)) {
        status = bt_api_error_no_memory(parse->error);
    }
    if ((status != BT_OK) || (text.len == 0)) {
        bt_strbuf_fini(&text);
        return status;
    }
    bt_free(parse->request->instructions);
    parse->request->instructions = text.data;
    return BT_OK;
}

bt_status_t bt_api_check_anthropic(bt_api_parse_t *parse)
{
    bt_api_request_t *request = parse->request;
    bt_status_t status = BT_OK;

    if (request->messages.n == 0) {
        return bt_api_refuse(parse, "messages", "messages is missing");
    }
    if (!request->has_max_tokens && (request->dialect == BT_API_ANTHROPIC)) {
        return bt_api_refuse(parse, "max_tokens", "max_tokens is missing");
    }
    if (request->instructions != NULL) {
        status = bt_api_prepend_system(parse, request->instructions);
        bt_free(request->instructions);
        request->instructions = NULL;
    }
    return status;
}

/* ---- tools ---- */

static bt_status_t put_tool(bt_api_parse_t *parse, uint32_t index,
                            const bt_json_node_t *tool, bt_json_t *json)
{
    static const char *const known[] = {
        "type",   "name",          "description", "input_schema",
        "strict", "cache_control", NULL};
    const bt_json_node_t *type = bt_json_get(parse->doc, tool, "type");
    const bt_json_node_t *name = bt_json_get(parse->doc, tool, "name");
    const bt_json_node_t *words = bt_json_get(parse->doc, tool, "description");
    const bt_json_node_t *schema =
        bt_json_get(parse->doc, tool, "input_schema");
    const bt_json_node_t *strict = bt_json_get(parse->doc, tool, "strict");
    const bt_api_tool_t given = {
        .name = name, .parameters = schema, .strict = strict, .index = index};
    char path[32];

    if (!bt_json_is_kind(tool, BT_JSON_OBJECT)) {
        return bt_api_refuse(parse, "tools",
                             "tools[%u] must be an object, got %s", index,
                             BT_API_SHOW(tool));
    }
    if (!bt_api_is_none(type) && !bt_json_is(type, "custom")) {
        return bt_api_refuse(parse, "tools",
                             "tools[%u] is of type %s: only custom is "
                             "supported",
                             index, BT_API_SHOW(type));
    }
    if (!bt_api_is_none(words) && (words->kind != BT_JSON_STRING)) {
        return bt_api_refuse(parse, "tools",
                             "tools[%u].description must be a string, got %s",
                             index, BT_API_SHOW(words));
    }
    if (bt_api_is_none(schema)) {
        return bt_api_refuse(parse, "tools",
                             "tools[%u].input_schema is missing", index);
    }
    snprintf(path, sizeof(path), "tools[%u]", index);
    bt_api_note_members(parse, path, tool, known);
    bt_json_object(json, NULL);
    bt_json_str(json, "type", "function");
    bt_json_object(json, "function");
    if (bt_json_is_kind(name, BT_JSON_STRING)) {
        bt_api_put_value(json, "name", name);
    }
    if (!bt_api_is_none(words)) {
        bt_api_put_value(json, "description", words);
    }
    bt_api_put_value(json, "parameters", schema);
    if (!bt_api_is_none(strict)) {
        bt_api_put_value(json, "strict", strict);
    }
    bt_json_end_object(json);
    bt_json_end_object(json);
    return bt_api_take_tool(parse, &given, "", "input_schema");
}

bt_status_t bt_api_read_anthropic_tools(bt_api_parse_t *parse,
                                        const bt_api_field_t *field,
                                        const bt_json_node_t *value)
{
    const uint32_t n = bt_json_size(value, BT_JSON_ARRAY);
    const bt_json_node_t *tool = bt_json_first(value);
    bt_status_t status = bt_api_check_tool_list(parse, field, value);
    bt_strbuf_t text;
    bt_json_t json;

    if (status != BT_OK) {
        return status;
    }
    bt_strbuf_init(&text, JSON_LIMIT);
    bt_json_init(&json, &text);
    bt_json_array(&json, NULL);
    for (uint32_t i = 0; (i < n) && (status == BT_OK); i++) {
        status = put_tool(parse, i, tool, &json);
        tool = bt_json_next(parse->doc, tool);
    }
    bt_json_end_array(&json);
    if ((status == BT_OK) && (bt_strbuf_status(&text) != BT_OK)) {
        status = bt_api_error_no_memory(parse->error);
    }
    if ((status == BT_OK) && (n > 0)) {
        parse->request->tools.json = text.data; /* owned from here on */
        return BT_OK;
    }
    bt_strbuf_fini(&text);
    return status;
}

bt_status_t bt_api_read_anthropic_tool_choice(bt_api_parse_t *parse,
                                              const bt_api_field_t *field,
                                              const bt_json_node_t *value)
{
    static const char *const known[] = {"type", "name",
                                        "disable_parallel_tool_use", NULL};
    bt_api_tools_t *tools = &parse->request->tools;
    const bt_json_node_t *type = bt_json_get(parse->doc, value, "type");
    const bt_json_node_t *name = bt_json_get(parse->doc, value, "name");
    const bt_json_node_t *one =
        bt_json_get(parse->doc, value, "disable_parallel_tool_use");
    const bool is_tool = bt_json_is(type, "tool");

    if (!is_tool && !bt_json_is(type, "auto") && !bt_json_is(type, "any") &&
        !bt_json_is(type, "none")) {
        return bt_api_refuse(parse, field->name,
                             "tool_choice.type must be auto, any, tool or "
                             "none, got %s",
                             BT_API_SHOW((type != NULL) ? type : value));
    }
    if (!bt_api_is_none(one) && !bt_json_is_bool(one)) {
        return bt_api_refuse(parse, field->name,
                             "tool_choice.disable_parallel_tool_use must be "
                             "true or false, got %s",
                             BT_API_SHOW(one));
    }
    if (is_tool && !bt_json_is_kind(name, BT_JSON_STRING)) {
        return bt_api_refuse(parse, field->name,
                             "tool_choice.name must be a string, got %s",
                             BT_API_SHOW(name));
    }
    bt_api_note_members(parse, field->name, value, known);
    parse->says_no_tools = bt_json_is(type, "none");
    tools->required = is_tool || bt_json_is(type, "any");
    tools->only_one = bt_json_is_kind(one, BT_JSON_TRUE);
    return is_tool ? bt_api_string(parse, field->name, name, SIZE_MAX,
                                   &tools->forced)
                   : BT_OK;
}

/* ---- thinking, and the form of the answer ---- */

/* Types of thinking are those of Anthropic's SDK (2.14). */

bt_status_t bt_api_read_thinking(bt_api_parse_t *parse,
                                 const bt_api_field_t *field,
                                 const bt_json_node_t *value)
{
    static const char *const known[] = {"type", "budget_tokens", NULL};
    bt_api_request_t *request = parse->request;
    const bt_json_node_t *type = bt_json_get(parse->doc, value, "type");
    const bt_json_node_t *budget =
        bt_json_get(parse->doc, value, "budget_tokens");
    const bool is_enabled = bt_json_is(type, "enabled");

    if (!is_enabled && !bt_json_is(type, "disabled") &&
        !bt_json_is(type, "adaptive") && !bt_json_is(type, "between_tools")) {
        return bt_api_refuse(parse, field->name,
                             "thinking.type must be enabled, disabled, "
                             "adaptive or between_tools, got %s",
                             BT_API_SHOW((type != NULL) ? type : value));
    }
    if (is_enabled && bt_api_is_none(budget)) {
        return bt_api_refuse(parse, field->name,
                             "thinking.budget_tokens is missing");
    }
    bt_api_note_members(parse, field->name, value, known);
    request->thinking =
        bt_json_is(type, "disabled") ? BT_API_THINKING_OFF : BT_API_THINKING_ON;
    return is_enabled ? bt_api_integer(parse, "thinking.budget_tokens", budget,
                                       MIN_THINKING_TOKENS, INT32_MAX,
                                       &request->thinking_budget)
                      : BT_OK;
}

bt_status_t bt_api_read_output_config(bt_api_parse_t *parse,
                                      const bt_api_field_t *field,
                                      const bt_json_node_t *value)
{
    static const bt_api_field_t effort_field = {.name = "output_config.effort"};
    static const char *const known[] = {"format", "effort", NULL};
    const bt_json_node_t *format = bt_json_get(parse->doc, value, "format");
    const bt_json_node_t *effort = bt_json_get(parse->doc, value, "effort");
    bt_status_t status = BT_OK;

    if (!bt_json_is_kind(value, BT_JSON_OBJECT)) {
        return bt_api_refuse_kind(parse, field->name, "an object", value);
    }
    bt_api_note_members(parse, field->name, value, known);
    if (!bt_api_is_none(effort)) {
        status = bt_api_read_effort(parse, &effort_field, effort);
    }
    return ((status != BT_OK) || bt_api_is_none(format))
               ? status
               : bt_api_read_output_format(parse, field, format);
}
