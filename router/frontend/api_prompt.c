/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "router/frontend/api_prompt.h"

#define MAX_TEXT_BYTES ((size_t)1 << 31)

static void free_prompts(bt_api_request_t *request)
{
    for (size_t i = 0; i < request->n_prompts; i++) {
        bt_free(request->prompts[i].text);
        bt_free(request->prompts[i].ids);
    }
    bt_free(request->prompts);
    request->prompts = NULL;
    request->n_prompts = 0;
}

static void free_messages(bt_api_request_t *request)
{
    for (size_t i = 0; i < request->n_messages; i++) {
        bt_free(request->messages[i].role);
        bt_free(request->messages[i].content);
    }
    bt_free(request->messages);
    request->messages = NULL;
    request->n_messages = 0;
}

void bt_api_prompts_fini(bt_api_request_t *request)
{
    free_prompts(request);
    free_messages(request);
}

/* ---- prompts ---- */

static bt_status_t text_prompt(bt_api_parse_t *parse, const char *name,
                               const json_t *value, bt_api_prompt_t *prompt)
{
    if (json_is_string(value) && (json_string_length(value) == 0)) {
        return bt_api_refuse(parse, name, "%s is empty", name);
    }
    return bt_api_string(parse, name, value, MAX_TEXT_BYTES, &prompt->text);
}

static bt_status_t ids_prompt(bt_api_parse_t *parse, const char *name,
                              const json_t *value, bt_api_prompt_t *prompt)
{
    const size_t n = json_array_size(value);

    if (n == 0) {
        return bt_api_refuse(parse, name, "%s is empty", name);
    }
    prompt->ids = bt_calloc(n, sizeof(*prompt->ids));
    if (prompt->ids == NULL) {
        return bt_api_no_memory(parse);
    }
    prompt->n_ids = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(value, i);
        const double real = json_number_value(id);

        /* 3.0 is an integer, as everywhere else */
        if (!json_is_number(id) || (real != floor(real))) {
            return bt_api_refuse(parse, name,
                                 "%s: token ids must be integers, got %s", name,
                                 bt_api_type_of(id));
        }
        if ((real < 0) || (real > INT32_MAX)) {
            return bt_api_refuse(parse, name,
                                 "%s: %.15g is not a token id of this model",
                                 name, real);
        }
        prompt->ids[i] = (uint32_t)real;
    }
    return BT_OK;
}

/* An element of a list of prompts. */
static bt_status_t one_prompt(bt_api_parse_t *parse, const char *name,
                              const json_t *value, bt_api_prompt_t *prompt)
{
    if (json_is_array(value)) {
        return ids_prompt(parse, name, value, prompt);
    }
    return text_prompt(parse, name, value, prompt);
}

static bt_status_t make_prompts(bt_api_parse_t *parse, size_t n)
{
    bt_api_request_t *request = parse->request;

    free_prompts(request);
    request->prompts = bt_calloc(n, sizeof(*request->prompts));
    if (request->prompts == NULL) {
        return bt_api_no_memory(parse);
    }
    request->n_prompts = n;
    return BT_OK;
}

static bool is_mark(const json_t *value)
{
    return json_is_string(value) &&
           (strcmp(json_string_value(value), BT_API_LIFT_MARK) == 0);
}

static bt_status_t take_lifted(bt_api_parse_t *parse)
{
    const bt_status_t status = make_prompts(parse, 1);

    if (status == BT_OK) {
        parse->request->prompts[0].ids = parse->lift->ids;
        parse->request->prompts[0].n_ids = parse->lift->n_ids;
        parse->lift->ids = NULL;
    }
    return status;
}

bt_status_t bt_api_read_prompt(bt_api_parse_t *parse,
                               const bt_api_field_t *field, const json_t *value)
{
    const json_t *first = json_array_get(value, 0);
    const bool list = json_is_string(first) || json_is_array(first);
    const size_t n = list ? json_array_size(value) : 1;
    bt_status_t status;

    if ((parse->lift != NULL) && is_mark(value)) {
        return take_lifted(parse);
    }
    if (!json_is_string(value) && !json_is_array(value)) {
        return bt_api_refuse(parse, field->name,
                             "%s must be a string, a list of strings, token "
                             "ids or a list of token-id lists, got %s",
                             field->name, bt_api_type_of(value));
    }
    if (n > BT_API_MAX_PROMPTS) {
        return bt_api_refuse(parse, field->name,
                             "%s has %zu prompts, at most %d are allowed",
                             field->name, n, BT_API_MAX_PROMPTS);
    }
    status = make_prompts(parse, n);
    for (size_t i = 0; (i < n) && (status == BT_OK); i++) {
        status = one_prompt(parse, field->name,
                            list ? json_array_get(value, i) : value,
                            &parse->request->prompts[i]);
    }
    return status;
}

bt_status_t bt_api_read_text_input(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const json_t *value)
{
    bt_status_t status;

    if (json_is_array(value)) { /* one of one was unwrapped by the caller */
        return bt_api_refuse(parse, field->name,
                             "%s must be one prompt, got %zu", field->name,
                             json_array_size(value));
    }
    status = make_prompts(parse, 1);
    if (status == BT_OK) {
        status =
            text_prompt(parse, field->name, value, &parse->request->prompts[0]);
    }
    return status;
}

/* ---- messages ---- */

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
                                           {"assistant", "assistant"}};

    if (!json_is_string(value)) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu].role must be a string", name_of(parse),
                             index);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(roles); i++) {
        if (strcmp(json_string_value(value), roles[i][0]) == 0) {
            *role_p = bt_strdup(roles[i][1]);
            return (*role_p == NULL) ? bt_api_no_memory(parse) : BT_OK;
        }
    }
    return bt_api_refuse(parse, name_of(parse),
                         "%s[%zu].role must be system, developer, user "
                         "or assistant, got %.40s",
                         name_of(parse), index, json_string_value(value));
}

static bt_status_t read_message(bt_api_parse_t *parse, size_t index,
                                const json_t *value, bt_api_message_t *message)
{
    const json_t *content = json_object_get(value, "content");
    const json_t *calls = json_object_get(value, "tool_calls");
    bt_status_t status;

    if (!json_is_object(value)) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu] must be an object, got %s",
                             name_of(parse), index, bt_api_type_of(value));
    }
    if (json_array_size(calls) > 0) {
        return bt_api_refuse(parse, name_of(parse),
                             "%s[%zu].tool_calls is not supported yet",
                             name_of(parse), index);
    }
    status =
        read_role(parse, index, json_object_get(value, "role"), &message->role);
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
    free_messages(request);
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
