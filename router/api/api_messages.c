/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of a chat, and items of a response's input, in the form that chat
 * templates get: checked, and otherwise unchanged. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/api/api_priv.h"

#define JSON_LIMIT ((size_t)1 << 31)

/* A list being built. */
typedef struct writer {
    bt_api_parse_t *parse;
    const char *field;  /* messages, or input */
    bool is_input;      /* of a response */
    const char *member; /* whose parts are written: content, or output */
    bt_strbuf_t text;
    bt_json_t json;
    /* Reasoning of the next message, with its document. */
    const bt_json_node_t *thought;
    const bt_json_doc_t *thought_doc;
    uint32_t thought_at;
    bt_json_doc_t *history; /* owned: items of earlier responses; or NULL */
    /* Of a response: the assistant's last message is open, for calls. */
    bool is_open, has_calls;
} writer_t;

void bt_api_messages_fini(bt_api_request_t *request)
{
    bt_free(request->messages.json);
    bt_free(request->messages.items);
    bt_free(request->messages.final);
    memset(&request->messages, 0, sizeof(request->messages));
}

/* Refuses what an entry of the list has; printf style. */
#define REFUSE_AT(w, index, fmt, ...)                                      \
    bt_api_refuse((w)->parse, (w)->field, "%s[%u]" fmt, (w)->field, index, \
                  ##__VA_ARGS__)

/* ---- contents ---- */

/* Returns the member that has the text of a part of this type; NULL: there is
 * none. */
static const char *text_key(const writer_t *w, const bt_json_node_t *type)
{
    const bool is_text = w->is_input ? bt_json_is(type, "input_text") ||
                                           bt_json_is(type, "output_text")
                                     : bt_json_is(type, "text");

    return bt_json_is(type, "refusal") ? "refusal" : is_text ? "text" : NULL;
}

/* Returns the text of a part; NULL: it has none. */
static const bt_json_node_t *text_of_part(const writer_t *w,
                                          const bt_json_node_t *part)
{
    const bt_json_doc_t *doc = w->parse->doc;
    const char *key = text_key(w, bt_json_get(doc, part, "type"));
    const bt_json_node_t *text =
        (key != NULL) ? bt_json_get(doc, part, key) : NULL;

    return bt_json_is_kind(text, BT_JSON_STRING) ? text : NULL;
}

/* Refuses a part without text. */
static bt_status_t refuse_part(writer_t *w, uint32_t index,
                               const bt_json_node_t *part)
{
    const bt_json_node_t *type = bt_json_get(w->parse->doc, part, "type");
    const char *key = text_key(w, type);
    const bt_json_node_t *text;

    if (!bt_json_is_kind(part, BT_JSON_OBJECT) ||
        !bt_json_is_kind(type, BT_JSON_STRING)) {
        return REFUSE_AT(w, index,
                         ".%s: a part must be an object "
                         "with a type, got %s",
                         w->member, BT_API_SHOW((type != NULL) ? type : part));
    }
    if (key == NULL) {
        return REFUSE_AT(w, index,
                         ".%s: parts of type %s are not "
                         "supported yet",
                         w->member, BT_API_SHOW(type));
    }
    text = bt_json_get(w->parse->doc, part, key);
    return REFUSE_AT(w, index, ".%s: a text part needs text, got %s", w->member,
                     BT_API_SHOW(text));
}

/* Writes a part of OpenAI's chat unchanged; others converted to that form. */
static void put_part(writer_t *w, uint32_t index, uint32_t at,
                     const bt_json_node_t *part, const bt_json_node_t *text)
{
    static const char *const known[] = {"type",        "text",     "refusal",
                                        "annotations", "logprobs", NULL};
    const bt_json_node_t *type = bt_json_get(w->parse->doc, part, "type");
    char path[64];

    if (bt_json_is(type, "text")) {
        bt_api_put_value(&w->json, NULL, part);
        return;
    }
    snprintf(path, sizeof(path), "%s[%u].%s[%u]", w->field, index, w->member,
             at);
    bt_api_note_members(w->parse, path, part, known);
    bt_json_object(&w->json, NULL);
    bt_json_str(&w->json, "type", "text");
    bt_api_put_value(&w->json, "text", text);
    bt_json_end_object(&w->json);
}

static bt_status_t put_parts(writer_t *w, uint32_t index,
                             const bt_json_node_t *parts)
{
    const bt_json_node_t *part = bt_json_first(parts);

    bt_json_array(&w->json, NULL);
    for (uint32_t i = 0; i < parts->n; i++) {
        const bt_json_node_t *text = text_of_part(w, part);

        if (text == NULL) {
            return refuse_part(w, index, part);
        }
        put_part(w, index, i, part, text);
        part = bt_json_next(w->parse->doc, part);
    }
    bt_json_end_array(&w->json);
    return BT_OK;
}

/* Messages of some OpenAI roles may be empty; those are dropped. */
static bool may_be_none(const bt_json_node_t *role)
{
    return !bt_json_is(role, "system") && !bt_json_is(role, "developer") &&
           !bt_json_is(role, "user") && !bt_json_is(role, "tool");
}

static bt_status_t put_content(writer_t *w, uint32_t index,
                               const bt_json_node_t *role,
                               const bt_json_node_t *content)
{
    if (bt_json_is_kind(content, BT_JSON_ARRAY)) {
        return put_parts(w, index, content);
    }
    if (bt_json_is_kind(content, BT_JSON_STRING)) {
        bt_api_put_value(&w->json, NULL, content);
        return BT_OK;
    }
    if (bt_api_is_none(content) && may_be_none(role)) {
        bt_json_null(&w->json, NULL);
        return BT_OK;
    }
    return REFUSE_AT(w, index,
                     ".%s must be a string or a list of parts, "
                     "got %s",
                     w->member, BT_API_SHOW(content));
}

/* ---- a message ---- */

static bt_status_t check_role(writer_t *w, uint32_t index,
                              const bt_json_node_t *role)
{
    const bool is_known = bt_json_is(role, "assistant") || !may_be_none(role);

    if (!bt_json_is_kind(role, BT_JSON_STRING) || (role->len == 0) ||
        (role->len > BT_API_MAX_NAME_BYTES)) {
        return REFUSE_AT(w, index,
                         ".role must be a string of 1 to %d bytes, "
                         "got %s",
                         BT_API_MAX_NAME_BYTES, BT_API_SHOW(role));
    }
    if (w->is_input && (!is_known || bt_json_is(role, "tool"))) {
        return REFUSE_AT(w, index,
                         ".role must be system, developer, user or "
                         "assistant, got %s",
                         BT_API_SHOW(role));
    }
    return BT_OK;
}

/* Checks a member that must be a short text; absent and null are allowed. */
static bt_status_t check_short(writer_t *w, uint32_t index,
                               const bt_json_node_t *message, const char *key)
{
    const bt_json_node_t *value = bt_json_get(w->parse->doc, message, key);

    if (bt_api_is_none(value) || (bt_json_is_kind(value, BT_JSON_STRING) &&
                                  (value->len <= BT_API_MAX_NAME_BYTES))) {
        return BT_OK;
    }
    return REFUSE_AT(w, index,
                     ".%s must be a string of at most %d bytes, got "
                     "%s",
                     key, BT_API_MAX_NAME_BYTES, BT_API_SHOW(value));
}

/* Writes the assistant's calls. An empty list counts as absent. */
static bt_status_t put_calls(writer_t *w, uint32_t index,
                             const bt_json_node_t *role,
                             const bt_json_node_t *calls)
{
    char where[64];

    if (bt_api_is_none(calls)) {
        return BT_OK;
    }
    snprintf(where, sizeof(where), "%s[%u]", w->field, index);
    if (!bt_json_is_kind(calls, BT_JSON_ARRAY)) {
        return bt_api_refuse(w->parse, w->field,
                             "%s.tool_calls must be a list, got %s", where,
                             BT_API_SHOW(calls));
    }
    if (calls->n == 0) {
        return BT_OK;
    }
    if (!bt_json_is(role, "assistant")) {
        return bt_api_refuse(w->parse, w->field,
                             "%s.tool_calls is for messages of the assistant",
                             where);
    }
    bt_json_key(&w->json, "tool_calls", strlen("tool_calls"));
    return bt_api_write_calls(w->parse, where, calls, &w->json);
}

static bt_status_t put_member(writer_t *w, uint32_t index,
                              const bt_json_node_t *role,
                              const bt_json_node_t *key)
{
    if (bt_json_is(key, "tool_calls")) {
        return put_calls(w, index, role, key + 1);
    }
    bt_json_key(&w->json, key->text, key->len);
    if (bt_json_is(key, "content")) {
        return put_content(w, index, role, key + 1);
    }
    bt_api_put_value(&w->json, NULL, key + 1);
    return BT_OK;
}

/* Writes all members in their order. */
static bt_status_t put_chat(writer_t *w, uint32_t index,
                            const bt_json_node_t *message,
                            const bt_json_node_t *role)
{
    const bt_json_node_t *key = bt_json_first(message);
    bt_status_t status = check_short(w, index, message, "tool_call_id");

    if (status == BT_OK) {
        status = check_short(w, index, message, "name");
    }
    for (uint32_t i = 0; (i < message->n) && (status == BT_OK); i++) {
        if (bt_json_counts(key)) {
            status = put_member(w, index, role, key);
        }
        key = bt_json_next(w->parse->doc, key + 1);
    }
    if ((status == BT_OK) &&
        (bt_json_get(w->parse->doc, message, "content") == NULL)) {
        bt_json_key(&w->json, "content", strlen("content"));
        status = put_content(w, index, role, NULL);
    }
    return status;
}

/* ---- an item of a response's input ---- */

/* Writes reasoning: its content, or its summary. What is encrypted is another
 * server's, and cannot be read. */
static void put_thought(writer_t *w, const bt_json_node_t *item)
{
    const bt_json_doc_t *doc = w->thought_doc;
    const bt_json_node_t *parts = bt_json_get(doc, item, "content");
    const bt_json_node_t *part;
    bt_strbuf_t text;

    if (bt_json_size(parts, BT_JSON_ARRAY) == 0) {
        parts = bt_json_get(doc, item, "summary");
    }
    bt_strbuf_init(&text, JSON_LIMIT);
    part =
        (bt_json_size(parts, BT_JSON_ARRAY) > 0) ? bt_json_first(parts) : NULL;
    for (uint32_t i = 0; (part != NULL) && (i < parts->n); i++) {
        const bt_json_node_t *words = bt_json_get(doc, part, "text");

        if (bt_json_is_kind(words, BT_JSON_STRING)) {
            bt_strbuf_append(&text, "\n", (text.len > 0) ? 1 : 0);
            bt_strbuf_append(&text, words->text, words->len);
        }
        part = bt_json_next(doc, part);
    }
    if (bt_strbuf_status(&text) != BT_OK) {
        w->text.status = bt_strbuf_status(&text);
    } else if (text.len > 0) {
        bt_json_strn(&w->json, "reasoning_content", text.data, text.len);
    } else if ((doc != w->history) &&
               !bt_api_is_none(bt_json_get(doc, item, "encrypted_content"))) {
        char path[64];

        snprintf(path, sizeof(path), "%s[%u].encrypted_content", w->field,
                 w->thought_at);
        bt_api_note_unknown(w->parse->request, path, strlen(path));
    }
    bt_strbuf_fini(&text);
}

static void note_thought(writer_t *w)
{
    char path[32];

    if ((w->thought != NULL) && (w->thought_doc != w->history)) {
        snprintf(path, sizeof(path), "%s[%u]", w->field, w->thought_at);
        bt_api_note_unknown(w->parse->request, path, strlen(path));
    }
    w->thought = NULL;
}

static bt_status_t put_item(writer_t *w, uint32_t index,
                            const bt_json_node_t *item,
                            const bt_json_node_t *role)
{
    static const char *const known[] = {"type",    "id",    "role", "status",
                                        "content", "phase", NULL};
    const bt_json_node_t *calls =
        bt_json_get(w->parse->doc, item, "tool_calls");
    char path[32];
    bt_status_t status;

    if (!bt_api_is_none(calls) &&
        (!bt_json_is_kind(calls, BT_JSON_ARRAY) || (calls->n > 0))) {
        return REFUSE_AT(w, index, ".tool_calls is for messages of a chat");
    }
    snprintf(path, sizeof(path), "%s[%u]", w->field, index);
    bt_api_note_members(w->parse, path, item, known);
    bt_api_put_value(&w->json, "role", role);
    bt_json_key(&w->json, "content", strlen("content"));
    status = put_content(w, index, role,
                         bt_json_get(w->parse->doc, item, "content"));
    if ((status == BT_OK) && (w->thought != NULL) &&
        bt_json_is(role, "assistant")) {
        put_thought(w, w->thought);
        w->thought = NULL;
    }
    note_thought(w);
    return status;
}

/* ---- all of them ---- */

static bt_status_t put_message(writer_t *w, uint32_t index,
                               const bt_json_node_t *message)
{
    const bt_json_node_t *role = bt_json_get(w->parse->doc, message, "role");
    bt_status_t status;

    if (!bt_json_is_kind(message, BT_JSON_OBJECT)) {
        return REFUSE_AT(w, index, " must be an object, got %s",
                         BT_API_SHOW(message));
    }
    status = check_role(w, index, role);
    if (status != BT_OK) {
        return status;
    }
    bt_json_object(&w->json, NULL);
    status = w->is_input ? put_item(w, index, message, role)
                         : put_chat(w, index, message, role);
    w->is_open = w->is_input && bt_json_is(role, "assistant");
    if (!w->is_open) {
        bt_json_end_object(&w->json);
    }
    return status;
}

/* Ends the assistant's message. */
static void close_open(writer_t *w)
{
    if (w->has_calls) {
        bt_json_end_array(&w->json);
    }
    if (w->is_open) {
        bt_json_end_object(&w->json);
    }
    w->is_open = w->has_calls = false;
}

/* ---- calls of tools in a response's input, and what they gave ---- */

/* Checks a member that must be a text. @param max bytes */
static bt_status_t check_text(writer_t *w, uint32_t index,
                              const bt_json_node_t *item, const char *key,
                              size_t max)
{
    const bt_json_node_t *value = bt_json_get(w->parse->doc, item, key);

    if (bt_json_is_kind(value, BT_JSON_STRING) && (value->len <= max)) {
        return BT_OK;
    }
    return (max == SIZE_MAX)
               ? REFUSE_AT(w, index, ".%s must be a string, got %s", key,
                           BT_API_SHOW(value))
               : REFUSE_AT(w, index,
                           ".%s must be a string of at most %zu bytes, got %s",
                           key, max, BT_API_SHOW(value));
}

/* Writes the name of a call, behind that of its namespace. */
static void put_name(writer_t *w, const bt_json_node_t *item)
{
    const bt_json_doc_t *doc = w->parse->doc;
    const bt_json_node_t *space = bt_json_get(doc, item, "namespace");
    const bt_json_node_t *name = bt_json_get(doc, item, "name");
    char text[2 * BT_API_MAX_NAME_BYTES + 2];
    size_t n;

    if (!bt_json_is_kind(space, BT_JSON_STRING) || (space->len == 0)) {
        bt_api_put_value(&w->json, "name", name);
        return;
    }
    n = space->len;
    memcpy(text, space->text, n);
    text[n++] = '.';
    memcpy(text + n, name->text, name->len);
    bt_json_strn(&w->json, "name", text, n + name->len);
}

/* Writes a call into the assistant's message, or a message for it. */
static bt_status_t put_call(writer_t *w, uint32_t index,
                            const bt_json_node_t *item)
{
    static const char *const known[] = {"type",      "id",    "status",
                                        "call_id",   "name",  "namespace",
                                        "arguments", "input", NULL};
    const bt_json_doc_t *doc = w->parse->doc;
    const bool is_custom =
        bt_json_is(bt_json_get(doc, item, "type"), "custom_tool_call");
    const char *const given = is_custom ? "input" : "arguments";
    bt_status_t status =
        check_text(w, index, item, "call_id", BT_API_MAX_NAME_BYTES);
    char path[32];

    if (status == BT_OK) {
        status = check_text(w, index, item, "name", BT_API_MAX_NAME_BYTES);
    }
    if (status == BT_OK) {
        status = check_short(w, index, item, "namespace");
    }
    if (status == BT_OK) {
        status = check_text(w, index, item, given, SIZE_MAX);
    }
    if (status != BT_OK) {
        return status;
    }
    snprintf(path, sizeof(path), "%s[%u]", w->field, index);
    bt_api_note_members(w->parse, path, item, known);
    if (!w->has_calls) {
        bt_json_array(&w->json, "tool_calls");
        w->has_calls = true;
    }
    bt_json_object(&w->json, NULL);
    bt_api_put_value(&w->json, "id", bt_json_get(doc, item, "call_id"));
    bt_json_str(&w->json, "type", "function");
    bt_json_object(&w->json, "function");
    put_name(w, item);
    if (is_custom) {
        bt_json_object(&w->json, "arguments");
        bt_api_put_value(&w->json, BT_CUSTOM_INPUT_NAME,
                         bt_json_get(doc, item, given));
        bt_json_end_object(&w->json);
    } else {
        bt_api_put_value(&w->json, "arguments", bt_json_get(doc, item, given));
    }
    bt_json_end_object(&w->json);
    bt_json_end_object(&w->json);
    return BT_OK;
}

/* Begins the assistant's message of calls that follow no text. */
static void open_for_calls(writer_t *w)
{
    bt_json_object(&w->json, NULL);
    bt_json_str(&w->json, "role", "assistant");
    bt_json_null(&w->json, "content");
    if (w->thought != NULL) {
        put_thought(w, w->thought);
        w->thought = NULL;
    }
    w->is_open = true;
}

/* Writes what a tool gave. */
static bt_status_t put_output(writer_t *w, uint32_t index,
                              const bt_json_node_t *item)
{
    static const char *const known[] = {"type",   "id",      "status",
                                        "output", "call_id", NULL};
    const bt_json_node_t *id = bt_json_get(w->parse->doc, item, "call_id");
    bt_status_t status =
        check_text(w, index, item, "call_id", BT_API_MAX_NAME_BYTES);
    bt_json_node_t role = {.kind = BT_JSON_STRING, .text = "tool", .len = 4};
    char path[32];

    if (status != BT_OK) {
        return status;
    }
    snprintf(path, sizeof(path), "%s[%u]", w->field, index);
    bt_api_note_members(w->parse, path, item, known);
    bt_json_object(&w->json, NULL);
    bt_json_str(&w->json, "role", "tool");
    bt_api_put_value(&w->json, "tool_call_id", id);
    bt_json_key(&w->json, "content", strlen("content"));
    w->member = "output";
    status = put_content(w, index, &role,
                         bt_json_get(w->parse->doc, item, "output"));
    w->member = "content";
    bt_json_end_object(&w->json);
    return status;
}

static bool is_item(const writer_t *w, const bt_json_node_t *item,
                    const char *type, const char *or_type)
{
    const bt_json_node_t *given = bt_json_get(w->parse->doc, item, "type");

    return w->is_input &&
           (bt_json_is(given, type) || bt_json_is(given, or_type));
}

static bool is_call_or_output(const writer_t *w, const bt_json_node_t *item)
{
    return is_item(w, item, "function_call", "custom_tool_call") ||
           is_item(w, item, "function_call_output", "custom_tool_call_output");
}

/* Writes an item other than reasoning.
 * @return is it in a message that was there before? */
static bt_status_t put_next(writer_t *w, uint32_t i, const bt_json_node_t *item,
                            bool *is_more_p)
{
    *is_more_p = false;
    if (is_item(w, item, "function_call", "custom_tool_call")) {
        *is_more_p = w->is_open && (w->thought == NULL);
        if (!*is_more_p) {
            close_open(w);
            open_for_calls(w);
        }
        return put_call(w, i, item);
    }
    close_open(w);
    if (is_item(w, item, "function_call_output", "custom_tool_call_output")) {
        note_thought(w);
        return put_output(w, i, item);
    }
    return put_message(w, i, item);
}

void bt_api_add_final(bt_api_parse_t *parse, const bt_json_node_t *part,
                      bt_strbuf_t *text)
{
    bt_strbuf_append(text, "\n", (text->len > 0) ? 1 : 0);
    bt_strbuf_append(text, part->text, part->len);
    parse->request->messages.final_part_bytes = part->len;
}

bt_status_t bt_api_keep_final(bt_api_parse_t *parse, bt_strbuf_t *text)
{
    bt_api_messages_t *messages = &parse->request->messages;
    const bt_status_t status = bt_strbuf_status(text);

    if ((status == BT_OK) && (text->len > 0)) {
        messages->final = text->data; /* owned from here on */
        messages->final_bytes = text->len;
        bt_strbuf_init(text, JSON_LIMIT);
    }
    bt_strbuf_fini(text);
    return (status == BT_OK) ? BT_OK : bt_api_error_no_memory(parse->error);
}

/* Checks for a final message that an answer can continue. */
static bt_status_t keep_final(writer_t *w, const bt_json_node_t *message)
{
    const bt_json_doc_t *doc = w->parse->doc;
    const bt_json_node_t *content = bt_json_get(doc, message, "content");
    const uint32_t n = bt_json_size(content, BT_JSON_ARRAY);
    const bt_json_node_t *part = (n > 0) ? bt_json_first(content) : NULL;
    bt_strbuf_t text;

    if (!bt_json_is(bt_json_get(doc, message, "role"), "assistant")) {
        return BT_OK;
    }
    bt_strbuf_init(&text, JSON_LIMIT);
    for (uint32_t i = 0; i < n; i++) {
        bt_api_add_final(w->parse, text_of_part(w, part), &text);
        part = bt_json_next(doc, part);
    }
    if (bt_json_is_kind(content, BT_JSON_STRING)) {
        bt_api_add_final(w->parse, content, &text);
    }
    return bt_api_keep_final(w->parse, &text);
}

/* Writes the items of a list behind those before it.
 * @param [out] last_p  the last one that is no reasoning; NULL: none */
static bt_status_t put_list(writer_t *w, const bt_json_node_t *list,
                            const bt_json_node_t **last_p)
{
    const bool is_old = w->parse->doc == w->history;
    bt_api_messages_t *messages = &w->parse->request->messages;
    const bt_json_node_t *item = bt_json_first(list);
    bt_status_t status = BT_OK;
    bool is_more;

    for (uint32_t i = 0; (i < list->n) && (status == BT_OK); i++) {
        if (is_item(w, item, "reasoning", "reasoning")) {
            note_thought(w);
            w->thought = item;
            w->thought_doc = w->parse->doc;
            w->thought_at = i;
        } else {
            status = put_next(w, i, item, &is_more);
            if ((messages->items != NULL) && !is_more) {
                messages->items[messages->n] =
                    is_old ? BT_API_OLD_ITEM : (uint16_t)i;
            }
            messages->n += is_more ? 0 : 1;
            *last_p = is_call_or_output(w, item) ? NULL : item;
        }
        item = bt_json_next(w->parse->doc, item);
    }
    return status;
}

static bt_status_t put_all(writer_t *w, const bt_json_node_t *list)
{
    const bt_json_node_t *last = NULL;
    const bt_status_t status = put_list(w, list, &last);

    close_open(w);
    note_thought(w);
    return ((status == BT_OK) && (last != NULL)) ? keep_final(w, last) : status;
}

bt_status_t bt_api_keep_messages(bt_api_parse_t *parse, bt_strbuf_t *text)
{
    if (bt_strbuf_status(text) != BT_OK) {
        return bt_api_error_no_memory(parse->error);
    }
    bt_free(parse->request->messages.json);
    parse->request->messages.json = text->data;
    bt_strbuf_init(text, JSON_LIMIT);
    return BT_OK;
}

static void begin(writer_t *w, bt_api_parse_t *parse)
{
    memset(w, 0, sizeof(*w));
    w->parse = parse;
    w->is_input = parse->request->dialect == BT_API_RESPONSES;
    w->field = w->is_input ? "input" : "messages";
    w->member = "content";
    bt_strbuf_init(&w->text, JSON_LIMIT);
    bt_json_init(&w->json, &w->text);
}

static void end(writer_t *w)
{
    bt_strbuf_fini(&w->text);
    bt_json_doc_free(w->history);
}

/* Begins the list of messages, with the items of earlier responses.
 * @param n  items that follow */
static bt_status_t begin_list(writer_t *w, size_t n)
{
    bt_api_parse_t *const parse = w->parse;
    bt_api_request_t *const request = parse->request;
    const size_t n_noted = strlen(request->ignored);
    const bt_json_doc_t *const body = parse->doc;
    const bt_json_node_t *last = NULL;
    bt_json_fault_t fault;
    bt_status_t status;
    size_t n_old;

    bt_json_array(&w->json, NULL);
    if (parse->history == NULL) {
        return BT_OK;
    }
    status = bt_json_doc_parse_client(parse->history->data, parse->history->len,
                                      BT_API_MAX_VALUES, &fault, &w->history);
    if (status == BT_ERR_NO_MEMORY) {
        return bt_api_error_no_memory(parse->error);
    }
    n_old = (status == BT_OK)
                ? bt_json_size(bt_json_doc_root(w->history), BT_JSON_ARRAY)
                : SIZE_MAX / 2;
    if (n_old + n > BT_API_MAX_MESSAGES) {
        return bt_api_refuse(parse, "previous_response_id",
                             "the conversation has more than %d items, or %d "
                             "JSON values",
                             BT_API_MAX_MESSAGES, BT_API_MAX_VALUES);
    }
    bt_free(request->messages.items);
    request->messages.items =
        bt_calloc(n_old + n + 1, sizeof(*request->messages.items));
    if (request->messages.items == NULL) {
        return bt_api_error_no_memory(parse->error);
    }
    parse->doc = w->history;
    status = put_list(w, bt_json_doc_root(w->history), &last);
    parse->doc = body;
    request->ignored[n_noted] = '\0'; /* it was noted with its response */
    return status;
}

bt_status_t bt_api_read_messages(bt_api_parse_t *parse,
                                 const bt_api_field_t *field,
                                 const bt_json_node_t *value)
{
    bt_api_request_t *request = parse->request;
    const size_t n = bt_json_size(value, BT_JSON_ARRAY);
    bt_status_t status;
    writer_t w;

    if (!bt_json_is_kind(value, BT_JSON_ARRAY)) {
        return bt_api_refuse_kind(parse, field->name, "a list", value);
    }
    if ((n == 0) || (n > BT_API_MAX_MESSAGES)) {
        return bt_api_refuse(parse, field->name,
                             "%s must have from 1 to %d entries, got %zu",
                             field->name, BT_API_MAX_MESSAGES, n);
    }
    bt_api_messages_fini(request);
    begin(&w, parse);
    if (w.is_input) {
        request->messages.items =
            bt_calloc(n + 1, sizeof(*request->messages.items));
        if (request->messages.items == NULL) {
            return bt_api_error_no_memory(parse->error);
        }
    }
    status = begin_list(&w, n);
    if (status == BT_OK) {
        status = put_all(&w, value);
        bt_json_end_array(&w.json);
    }
    if (status == BT_OK) {
        status = bt_api_keep_messages(parse, &w.text);
    }
    end(&w);
    return status;
}

bt_status_t bt_api_take_user(bt_api_parse_t *parse, const bt_json_node_t *text)
{
    bt_status_t status;
    writer_t w;

    bt_api_messages_fini(parse->request);
    begin(&w, parse);
    status = begin_list(&w, 1);
    if (status == BT_OK) {
        close_open(&w);
        bt_json_object(&w.json, NULL);
        bt_json_str(&w.json, "role", "user");
        bt_api_put_value(&w.json, "content", text);
        bt_json_end_object(&w.json);
        bt_json_end_array(&w.json);
        status = bt_api_keep_messages(parse, &w.text);
    }
    if (status == BT_OK) {
        parse->request->messages.n++;
    }
    end(&w);
    return status;
}

bt_status_t bt_api_prepend_system(bt_api_parse_t *parse, const char *text)
{
    bt_api_messages_t *messages = &parse->request->messages;
    const char *others = messages->json + 1; /* behind its bracket */
    bt_status_t status;
    writer_t w;

    begin(&w, parse);
    bt_json_array(&w.json, NULL);
    bt_json_object(&w.json, NULL);
    bt_json_str(&w.json, "role", "system");
    bt_json_str(&w.json, "content", text);
    bt_json_end_object(&w.json);
    bt_strbuf_puts(&w.text, (messages->n > 0) ? "," : "");
    bt_strbuf_puts(&w.text, others);
    status = bt_api_keep_messages(parse, &w.text);
    if (status == BT_OK) {
        if (messages->items != NULL) {
            memmove(messages->items + 1, messages->items,
                    messages->n * sizeof(*messages->items));
            messages->items[0] = BT_API_NO_ITEM;
        }
        messages->n++;
    }
    bt_strbuf_fini(&w.text);
    return status;
}
