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

static bool is_text_part(const bt_api_parse_t *parse, const char *type)
{
    if (parse->request->dialect == BT_API_RESPONSES) {
        return (strcmp(type, "input_text") == 0) ||
               (strcmp(type, "output_text") == 0);
    }
    return strcmp(type, "text") == 0;
}

static bt_status_t append_part(bt_api_parse_t *parse, size_t index,
                               const json_t *part, bt_strbuf_t *out)
{
    const json_t *type = json_object_get(part, "type");
    const json_t *text = json_object_get(part, "text");

    if (!json_is_object(part) || !json_is_string(type)) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu].content: a part must be an object "
                             "with a type",
                             name_of(parse), index);
    }
    if (!is_text_part(parse, json_string_value(type))) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu].content: parts of type %.40s are "
                             "not supported yet",
                             name_of(parse), index, json_string_value(type));
    }
    if (!json_is_string(text)) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu].content: a text part needs text",
                             name_of(parse), index);
    }
    if (out->len > 0) {
        bt_strbuf_append(out, "\n", 1);
    }
    bt_strbuf_append(out, json_string_value(text), json_string_length(text));
    return BT_OK;
}

static bt_status_t content_of_parts(bt_api_parse_t *parse, size_t index,
                                    const json_t *parts, char **content_p)
{
    bt_strbuf_t text;
    bt_status_t status = BT_OK;
    char *content = NULL;

    bt_strbuf_init(&text, MAX_TEXT_BYTES);
    for (size_t i = 0; (i < json_array_size(parts)) && (status == BT_OK); i++) {
        status = append_part(parse, index, json_array_get(parts, i), &text);
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
                             const json_t *value, char **role_p)
{
    static const char *const roles[][2] = {{"system", "system"},
                                           {"developer", "system"},
                                           {"user", "user"},
                                           {"assistant", "assistant"},
                                           {"tool", "tool"}};
    const size_t n = BT_ARRAY_LEN(roles) -
                     ((parse->request->dialect == BT_API_RESPONSES) ? 1 : 0);

    if (!json_is_string(value)) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu].role must be a string", name_of(parse),
                             index);
    }
    for (size_t i = 0; i < n; i++) {
        if (strcmp(json_string_value(value), roles[i][0]) == 0) {
            *role_p = bt_strdup(roles[i][1]);
            return (*role_p == NULL) ? bt_api_no_memory(parse) : BT_OK;
        }
    }
    return bt_api_refuse(
        parse, name_of(parse),
        "%s[%zu].role must be system, developer, user%s "
        "assistant%s, got %.40s",
        name_of(parse), index, (n < BT_ARRAY_LEN(roles)) ? " or" : ",",
        (n < BT_ARRAY_LEN(roles)) ? "" : " or tool", json_string_value(value));
}

/* A member that is a short text; absent and null are none. */
static bt_status_t read_text_of(bt_api_parse_t *parse, size_t index,
                                const json_t *message, const char *key,
                                char **text_p)
{
    const json_t *value = json_object_get(message, key);
    char name[64];

    if ((value == NULL) || json_is_null(value)) {
        return BT_OK;
    }
    snprintf(name, sizeof(name), "%s[%zu].%s", name_of(parse), index, key);
    if (!json_is_string(value) ||
        (json_string_length(value) > BT_API_MAX_NAME_BYTES)) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s must be a string of at most %d bytes", name,
                             BT_API_MAX_NAME_BYTES);
    }
    *text_p = bt_strdup(json_string_value(value));
    return (*text_p == NULL) ? bt_api_no_memory(parse) : BT_OK;
}

/* Calls that the assistant made, and what tools answered. */
static bt_status_t read_tool_parts(bt_api_parse_t *parse, size_t index,
                                   const json_t *value,
                                   bt_api_message_t *message)
{
    const json_t *calls = json_object_get(value, "tool_calls");
    bt_status_t status;
    char where[64];

    if (strcmp(message->role, "tool") == 0) {
        status = read_text_of(parse, index, value, "tool_call_id",
                              &message->call_id);
        return (status == BT_OK)
                   ? read_text_of(parse, index, value, "name", &message->name)
                   : status;
    }
    if ((calls != NULL) && !json_is_null(calls) && !json_is_array(calls)) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu].tool_calls must be a list, got %s",
                             name_of(parse), index, bt_api_type_of(calls));
    }
    if (json_array_size(calls) == 0) {
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
                                const json_t *value, bt_api_message_t *message)
{
    const json_t *content = json_object_get(value, "content");
    bt_status_t status;

    if (!json_is_object(value)) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu] must be an object, got %s",
                             name_of(parse), index, bt_api_type_of(value));
    }
    status =
        read_role(parse, index, json_object_get(value, "role"), &message->role);
    if (status == BT_OK) {
        status = read_tool_parts(parse, index, value, message);
    }
    if (status != BT_OK) {
        return status;
    }
    if (json_is_array(content)) {
        return content_of_parts(parse, index, content, &message->content);
    }
    if (((content == NULL) || json_is_null(content)) &&
        (strcmp(message->role, "assistant") == 0)) {
        message->content = bt_strdup("");
    } else if (json_is_string(content)) {
        message->content =
            bt_memdup(json_string_value(content), json_string_length(content));
    } else {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu].content must be a string or a list "
                             "of parts",
                             name_of(parse), index);
    }
    return (message->content == NULL) ? bt_api_no_memory(parse) : BT_OK;
}

bt_status_t bt_api_read_messages(bt_api_parse_t *parse,
                                 const bt_api_field_t *field,
                                 const json_t *value)
{
    bt_api_request_t *request = parse->request;
    const size_t n = json_array_size(value);
    bt_status_t status = BT_OK;

    if (!json_is_array(value)) {
        return bt_api_refuse(parse, field->name, "%s must be a list, got %s",
                             field->name, bt_api_type_of(value));
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
        const json_t *item = json_array_get(value, i);

        if (!bt_api_is_skipped(parse, item)) {
            status = read_message(parse, i, item,
                                  &request->messages[request->n_messages++]);
        }
    }
    return status;
}
