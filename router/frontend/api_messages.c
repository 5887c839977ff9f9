/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "router/frontend/api_prompt.h"

#define MAX_TEXT_BYTES ((size_t)1 << 31)

void bt_api_messages_fini(bt_api_request_t *request)
{
    for (size_t i = 0; i < request->n_messages; i++) {
        bt_free(request->messages[i].role);
        bt_free(request->messages[i].content);
        bt_free(request->messages[i].calls_json);
        bt_free(request->messages[i].call_id);
        bt_free(request->messages[i].name);
    }
    bt_free(request->messages);
    request->messages = NULL;
    request->n_messages = 0;
}

static const char *name_of(const bt_api_parse_t *parse)
{
    return (parse->request->dialect == BT_API_RESPONSES) ? "input" : "messages";
}

static bool is_text_part(const bt_api_parse_t *parse,
                         const bt_json_node_t *type)
{
    if (parse->request->dialect == BT_API_RESPONSES) {
        return bt_json_is(type, "input_text") ||
               bt_json_is(type, "output_text");
    }
    return bt_json_is(type, "text");
}

static bt_status_t append_part(bt_api_parse_t *parse, size_t index,
                               const bt_json_node_t *part, bt_strbuf_t *out)
{
    const bt_json_node_t *type = bt_json_get(parse->doc, part, "type");
    const bt_json_node_t *text = bt_json_get(parse->doc, part, "text");

    if (!bt_json_is_kind(part, BT_JSON_OBJECT) ||
        !bt_json_is_kind(type, BT_JSON_STRING)) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu].content: a part must be an object "
                             "with a type",
                             name_of(parse), index);
    }
    if (!is_text_part(parse, type)) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu].content: parts of type %s are "
                             "not supported yet",
                             name_of(parse), index, BT_API_SHOW(type));
    }
    if (!bt_json_is_kind(text, BT_JSON_STRING)) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu].content: a text part needs text",
                             name_of(parse), index);
    }
    if (memchr(text->text, '\0', text->len) != NULL) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu].content: a part's text has a zero "
                             "character (\\u0000), which is not supported here",
                             name_of(parse), index);
    }
    if (out->len > 0) {
        bt_strbuf_append(out, "\n", 1);
    }
    bt_strbuf_append(out, text->text, text->len);
    return BT_OK;
}

static bt_status_t content_of_parts(bt_api_parse_t *parse, size_t index,
                                    const bt_json_node_t *parts,
                                    char **content_p)
{
    const bt_json_node_t *part = bt_json_first(parts);
    bt_strbuf_t text;
    bt_status_t status = BT_OK;
    char *content = NULL;

    bt_strbuf_init(&text, MAX_TEXT_BYTES);
    for (uint32_t i = 0; (i < parts->n) && (status == BT_OK); i++) {
        status = append_part(parse, index, part, &text);
        part = bt_json_next(parse->doc, part);
    }
    if (status == BT_OK) {
        if (bt_strbuf_status(&text) == BT_OK) {
            content = bt_memdup((text.data == NULL) ? "" : text.data, text.len);
        }
        if (content == NULL) {
            status = bt_api_no_memory(parse);
        } else {
            *content_p = content;
        }
    }
    bt_strbuf_fini(&text);
    return status;
}

static bt_status_t read_role(bt_api_parse_t *parse, size_t index,
                             const bt_json_node_t *value, char **role_p)
{
    static const char *const roles[][2] = {{"system", "system"},
                                           {"developer", "system"},
                                           {"user", "user"},
                                           {"assistant", "assistant"},
                                           {"tool", "tool"}};
    const size_t n = BT_ARRAY_LEN(roles) -
                     ((parse->request->dialect == BT_API_RESPONSES) ? 1 : 0);

    if (!bt_json_is_kind(value, BT_JSON_STRING)) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu].role must be a string, got %s",
                             name_of(parse), index,
                             (value != NULL) ? BT_API_SHOW(value) : "nothing");
    }
    for (size_t i = 0; i < n; i++) {
        if (bt_json_is(value, roles[i][0])) {
            *role_p = bt_strdup(roles[i][1]);
            return (*role_p == NULL) ? bt_api_no_memory(parse) : BT_OK;
        }
    }
    return bt_api_refuse(
        parse, name_of(parse),
        "%s[%zu].role must be system, developer, user%s "
        "assistant%s, got %s",
        name_of(parse), index, (n < BT_ARRAY_LEN(roles)) ? " or" : ",",
        (n < BT_ARRAY_LEN(roles)) ? "" : " or tool", BT_API_SHOW(value));
}

/* A member that is a short text; absent and null are none. */
static bt_status_t read_text_of(bt_api_parse_t *parse, size_t index,
                                const bt_json_node_t *message, const char *key,
                                char **text_p)
{
    const bt_json_node_t *value = bt_json_get(parse->doc, message, key);
    char name[64];

    if ((value == NULL) || bt_json_is_kind(value, BT_JSON_NULL)) {
        return BT_OK;
    }
    snprintf(name, sizeof(name), "%s[%zu].%s", name_of(parse), index, key);
    return bt_api_string_in(parse, name_of(parse), name, value,
                            BT_API_MAX_NAME_BYTES, text_p);
}

/* Calls that the assistant made, and what tools answered. */
static bt_status_t read_tool_parts(bt_api_parse_t *parse, size_t index,
                                   const bt_json_node_t *value,
                                   bt_api_message_t *message)
{
    const bt_json_node_t *calls = bt_json_get(parse->doc, value, "tool_calls");
    bt_status_t status;
    char where[64];

    if (strcmp(message->role, "tool") == 0) {
        status = read_text_of(parse, index, value, "tool_call_id",
                              &message->call_id);
        return (status == BT_OK)
                   ? read_text_of(parse, index, value, "name", &message->name)
                   : status;
    }
    if ((calls != NULL) && !bt_json_is_kind(calls, BT_JSON_NULL) &&
        !bt_json_is_kind(calls, BT_JSON_ARRAY)) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu].tool_calls must be a list, got %s",
                             name_of(parse), index, BT_API_SHOW(calls));
    }
    if (bt_json_size(calls, BT_JSON_ARRAY) == 0) {
        return BT_OK;
    }
    snprintf(where, sizeof(where), "%s[%zu]", name_of(parse), index);
    if ((strcmp(message->role, "assistant") != 0) ||
        (parse->request->dialect == BT_API_RESPONSES)) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s.tool_calls is for messages of the assistant",
                             where);
    }
    return bt_api_read_calls(parse, where, calls, &message->calls_json);
}

static bt_status_t read_message(bt_api_parse_t *parse, size_t index,
                                const bt_json_node_t *value,
                                bt_api_message_t *message)
{
    const bt_json_node_t *content = bt_json_get(parse->doc, value, "content");
    bt_status_t status;
    char where[64];

    if (!bt_json_is_kind(value, BT_JSON_OBJECT)) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu] must be an object, got %s",
                             name_of(parse), index, BT_API_SHOW(value));
    }
    status = read_role(parse, index, bt_json_get(parse->doc, value, "role"),
                       &message->role);
    if (status == BT_OK) {
        status = read_tool_parts(parse, index, value, message);
    }
    if (status != BT_OK) {
        return status;
    }
    if (bt_json_is_kind(content, BT_JSON_ARRAY)) {
        return content_of_parts(parse, index, content, &message->content);
    }
    if (((content == NULL) || bt_json_is_kind(content, BT_JSON_NULL)) &&
        (strcmp(message->role, "assistant") == 0)) {
        message->content = bt_strdup("");
    } else if (bt_json_is_kind(content, BT_JSON_STRING)) {
        snprintf(where, sizeof(where), "%s[%zu].content", name_of(parse),
                 index);
        return bt_api_string_in(parse, name_of(parse), where, content,
                                MAX_TEXT_BYTES, &message->content);
    } else {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu].content must be a string or a list "
                             "of parts, got %s",
                             name_of(parse), index,
                             (content != NULL) ? BT_API_SHOW(content)
                                               : "nothing");
    }
    return (message->content == NULL) ? bt_api_no_memory(parse) : BT_OK;
}

bt_status_t bt_api_read_messages(bt_api_parse_t *parse,
                                 const bt_api_field_t *field,
                                 const bt_json_node_t *value)
{
    bt_api_request_t *request = parse->request;
    const size_t n = bt_json_size(value, BT_JSON_ARRAY);
    const bt_json_node_t *item = bt_json_first(value);
    bt_status_t status = BT_OK;

    if (!bt_json_is_kind(value, BT_JSON_ARRAY)) {
        return bt_api_refuse(parse, field->name, "%s must be a list, got %s",
                             field->name, BT_API_SHOW(value));
    }
    if ((n == 0) || (n > BT_API_MAX_MESSAGES)) {
        return bt_api_refuse(parse, field->name,
                             "%s must have from 1 to %d entries, got %zu",
                             field->name, BT_API_MAX_MESSAGES, n);
    }
    bt_api_messages_fini(request);
    request->messages = bt_calloc(n, sizeof(*request->messages));
    if (request->messages == NULL) {
        return bt_api_no_memory(parse);
    }
    request->n_messages = 0;
    for (size_t i = 0; (i < n) && (status == BT_OK); i++) {
        if (!bt_api_is_skipped(parse, item)) {
            status = read_message(parse, i, item,
                                  &request->messages[request->n_messages++]);
        }
        item = bt_json_next(parse->doc, item);
    }
    return status;
}
