/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of a chat, and items of a response's input, in the form that chat
 * templates get: checked, and otherwise unchanged. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/frontend/api_priv.h"

#define JSON_LIMIT ((size_t)1 << 31)

/* A list being built. */
typedef struct writer {
    bt_api_parse_t *parse;
    const char *field; /* messages, or input */
    bool is_input;     /* of a response */
    bt_strbuf_t text;
    bt_json_t json;
    const bt_json_node_t *thought; /* reasoning of the next message */
    uint32_t thought_at;
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
                         ".content: a part must be an object "
                         "with a type, got %s",
                         BT_API_SHOW((type != NULL) ? type : part));
    }
    if (key == NULL) {
        return REFUSE_AT(w, index,
                         ".content: parts of type %s are not "
                         "supported yet",
                         BT_API_SHOW(type));
    }
    text = bt_json_get(w->parse->doc, part, key);
    return REFUSE_AT(w, index, ".content: a text part needs text, got %s",
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
    snprintf(path, sizeof(path), "%s[%u].content[%u]", w->field, index, at);
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
                     ".content must be a string or a list of parts, "
                     "got %s",
                     BT_API_SHOW(content));
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

/* Writes reasoning: its content, or its summary. */
static void put_thought(writer_t *w, const bt_json_node_t *item)
{
    const bt_json_doc_t *doc = w->parse->doc;
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
    }
    bt_strbuf_fini(&text);
}

static void note_thought(writer_t *w)
{
    char path[32];

    if (w->thought != NULL) {
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
    bt_json_end_object(&w->json);
    return status;
}

static bool is_thought(const writer_t *w, const bt_json_node_t *item)
{
    return w->is_input &&
           bt_json_is(bt_json_get(w->parse->doc, item, "type"), "reasoning");
}

static void add_final(const bt_json_node_t *text, bt_strbuf_t *out,
                      size_t *part_bytes_p)
{
    bt_strbuf_append(out, "\n", (out->len > 0) ? 1 : 0);
    bt_strbuf_append(out, text->text, text->len);
    *part_bytes_p = text->len;
}

/* Checks for a final message that an answer can continue. */
static bt_status_t keep_final(writer_t *w, const bt_json_node_t *message)
{
    const bt_json_doc_t *doc = w->parse->doc;
    bt_api_messages_t *messages = &w->parse->request->messages;
    const bt_json_node_t *content = bt_json_get(doc, message, "content");
    const uint32_t n = bt_json_size(content, BT_JSON_ARRAY);
    const bt_json_node_t *part = (n > 0) ? bt_json_first(content) : NULL;
    bt_strbuf_t text;

    if (!bt_json_is(bt_json_get(doc, message, "role"), "assistant")) {
        return BT_OK;
    }
    bt_strbuf_init(&text, JSON_LIMIT);
    for (uint32_t i = 0; i < n; i++) {
        add_final(text_of_part(w, part), &text, &messages->final_part_bytes);
        part = bt_json_next(doc, part);
    }
    if (bt_json_is_kind(content, BT_JSON_STRING)) {
        add_final(content, &text, &messages->final_part_bytes);
    }
    if (bt_strbuf_status(&text) != BT_OK) {
        bt_strbuf_fini(&text);
        return bt_api_error_no_memory(w->parse->error);
    }
    if (text.len > 0) {
        messages->final = text.data; /* owned from here on */
        messages->final_bytes = text.len;
    } else {
        bt_strbuf_fini(&text);
    }
    return BT_OK;
}

static bt_status_t put_all(writer_t *w, const bt_json_node_t *list)
{
    bt_api_messages_t *messages = &w->parse->request->messages;
    const bt_json_node_t *item = bt_json_first(list);
    const bt_json_node_t *last = NULL;
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (i < list->n) && (status == BT_OK); i++) {
        if (is_thought(w, item)) {
            note_thought(w);
            w->thought = item;
            w->thought_at = i;
        } else {
            status = put_message(w, i, item);
            if (messages->items != NULL) {
                messages->items[messages->n] = (uint16_t)i;
            }
            messages->n++;
            last = item;
        }
        item = bt_json_next(w->parse->doc, item);
    }
    note_thought(w);
    return ((status == BT_OK) && (last != NULL)) ? keep_final(w, last) : status;
}

/* Moves the text to the request. */
static bt_status_t keep(writer_t *w)
{
    if (bt_strbuf_status(&w->text) != BT_OK) {
        return bt_api_error_no_memory(w->parse->error);
    }
    bt_free(w->parse->request->messages.json);
    w->parse->request->messages.json = w->text.data;
    bt_strbuf_init(&w->text, JSON_LIMIT);
    return BT_OK;
}

static void begin(writer_t *w, bt_api_parse_t *parse)
{
    memset(w, 0, sizeof(*w));
    w->parse = parse;
    w->is_input = parse->request->dialect == BT_API_RESPONSES;
    w->field = w->is_input ? "input" : "messages";
    bt_strbuf_init(&w->text, JSON_LIMIT);
    bt_json_init(&w->json, &w->text);
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
    bt_json_array(&w.json, NULL);
    status = put_all(&w, value);
    bt_json_end_array(&w.json);
    if (status == BT_OK) {
        status = keep(&w);
    }
    bt_strbuf_fini(&w.text);
    return status;
}

bt_status_t bt_api_take_user(bt_api_parse_t *parse, const bt_json_node_t *text)
{
    bt_status_t status;
    writer_t w;

    bt_api_messages_fini(parse->request);
    begin(&w, parse);
    bt_json_array(&w.json, NULL);
    bt_json_object(&w.json, NULL);
    bt_json_str(&w.json, "role", "user");
    bt_api_put_value(&w.json, "content", text);
    bt_json_end_object(&w.json);
    bt_json_end_array(&w.json);
    status = keep(&w);
    parse->request->messages.n = (status == BT_OK) ? 1 : 0;
    bt_strbuf_fini(&w.text);
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
    status = keep(&w);
    if (status == BT_OK) {
        if (messages->items != NULL) {
            memmove(messages->items + 1, messages->items,
                    messages->n * sizeof(*messages->items));
            messages->items[0] = UINT16_MAX;
        }
        messages->n++;
    }
    bt_strbuf_fini(&w.text);
    return status;
}
