/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's responses: fields of a request.
 * Source:  OpenAI's API reference, "Responses". */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/api/api_priv.h"
#include "router/api/scores.h"

/* ---- the request ---- */

/* Other items belong to tools that OpenAI runs, or refer to what it stores. */
static bt_status_t check_items(bt_api_parse_t *parse,
                               const bt_json_node_t *items)
{
    static const char *const known[] = {
        "message",          "reasoning",
        "function_call",    "function_call_output",
        "custom_tool_call", "custom_tool_call_output"};
    const bt_json_node_t *item = bt_json_first(items);

    for (uint32_t i = 0; i < items->n; i++) {
        const bt_json_node_t *type = bt_json_get(parse->doc, item, "type");
        bool is_known = !bt_json_is_kind(type, BT_JSON_STRING);

        for (size_t k = 0; !is_known && (k < BT_ARRAY_LEN(known)); k++) {
            is_known = bt_json_is(type, known[k]);
        }
        if (!is_known) {
            return bt_api_refuse(parse, "input",
                                 "input[%u]: items of type %s are not "
                                 "supported, only messages, reasoning, calls "
                                 "of functions and custom tools, and their "
                                 "outputs",
                                 i, BT_API_SHOW(type));
        }
        item = bt_json_next(parse->doc, item);
    }
    return BT_OK;
}

/* Keeps a text as a list of one message. */
static bt_status_t keep_text(bt_api_parse_t *parse, const bt_json_node_t *value)
{
    bt_strbuf_t text;
    bt_json_t json;

    bt_strbuf_init(&text, SIZE_MAX / 2);
    bt_json_init(&json, &text);
    bt_json_array(&json, NULL);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "type", "message");
    bt_json_str(&json, "role", "user");
    bt_json_strn(&json, "content", value->text, value->len);
    bt_json_end_object(&json);
    bt_json_end_array(&json);
    if (bt_strbuf_status(&text) != BT_OK) {
        bt_strbuf_fini(&text);
        return bt_api_error_no_memory(parse->error);
    }
    parse->request->input_json = text.data; /* owned from here on */
    return BT_OK;
}

static bt_status_t take_text(bt_api_parse_t *parse, const bt_json_node_t *value)
{
    bt_status_t status;

    if (value->len == 0) {
        return bt_api_refuse(parse, "input", "input is empty");
    }
    status = bt_api_take_user(parse, value);
    return ((status == BT_OK) && parse->can_store) ? keep_text(parse, value)
                                                   : status;
}

bt_status_t bt_api_read_input(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value)
{
    bt_status_t status;

    if (bt_json_is_kind(value, BT_JSON_STRING)) {
        return take_text(parse, value);
    }
    if (!bt_json_is_kind(value, BT_JSON_ARRAY)) {
        return bt_api_refuse_kind(parse, field->name,
                                  "a string or a list of messages", value);
    }
    status = check_items(parse, value);
    if (status == BT_OK) {
        status = bt_api_read_messages(parse, field, value);
    }
    return ((status == BT_OK) && parse->can_store)
               ? bt_api_raw(parse, value, &parse->request->input_json)
               : status;
}

bt_status_t bt_api_read_instructions(bt_api_parse_t *parse,
                                     const bt_api_field_t *field,
                                     const bt_json_node_t *value)
{
    char *text = NULL;
    const bt_status_t status =
        bt_api_string(parse, field->name, value, SIZE_MAX, &text);

    if (status == BT_OK) {
        bt_free(parse->request->instructions);
        parse->request->instructions = text;
    }
    return status;
}

/* Where no response is stored, a request to store one is refused. */
bt_status_t bt_api_read_store(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value)
{
    if (bt_json_is_kind(value, BT_JSON_FALSE)) {
        parse->request->store = BT_API_STORE_NO;
        return BT_OK;
    }
    if (parse->can_store) {
        parse->request->store = BT_API_STORE_YES;
        return bt_json_is_kind(value, BT_JSON_TRUE)
                   ? BT_OK
                   : bt_api_refuse_kind(parse, field->name, "a boolean", value);
    }
    return bt_api_refuse(parse, field->name,
                         "%s is not supported: no response is kept; it must be "
                         "false or left out, got %s",
                         field->name, BT_API_SHOW(value));
}

bt_status_t bt_api_read_previous(bt_api_parse_t *parse,
                                 const bt_api_field_t *field,
                                 const bt_json_node_t *value)
{
    bt_status_t status;

    if (!parse->can_store) {
        return bt_api_read_unsupported(parse, field, value);
    }
    status = bt_api_string(parse, field->name, value, BT_API_MAX_NAME_BYTES,
                           &parse->request->previous_id);
    if ((status == BT_OK) &&
        (strncmp(parse->request->previous_id, "resp_", 5) != 0)) {
        status = bt_api_refuse(parse, field->name, /* OpenAI's words */
                               "Invalid '%s': '%.100s'. Expected an ID that "
                               "begins with 'resp_'.",
                               field->name, parse->request->previous_id);
        parse->error->code = "invalid_value";
    }
    return status;
}

bt_status_t bt_api_read_truncation(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value)
{
    if (bt_json_is(value, "disabled")) {
        return BT_OK;
    }
    return bt_api_refuse(parse, field->name,
                         "truncation other than disabled is not supported yet, "
                         "got %s",
                         BT_API_SHOW(value));
}

bt_status_t bt_api_read_text(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const bt_json_node_t *value)
{
    static const char *const known[] = {"format", "verbosity", NULL};
    const bt_json_node_t *format = bt_json_get(parse->doc, value, "format");

    if (!bt_json_is_kind(value, BT_JSON_OBJECT)) {
        return bt_api_refuse_kind(parse, field->name, "an object", value);
    }
    bt_api_note_members(parse, "text", value, known);
    return bt_api_is_none(format) ? BT_OK
                                  : bt_api_read_text_format(parse, format);
}

bt_status_t bt_api_read_metadata(bt_api_parse_t *parse,
                                 const bt_api_field_t *field,
                                 const bt_json_node_t *value)
{
    const bt_json_node_t *key;
    bool ok = bt_json_size(value, BT_JSON_OBJECT) <= BT_API_MAX_METADATA;

    if (!bt_json_is_kind(value, BT_JSON_OBJECT)) {
        return bt_api_refuse_kind(parse, field->name, "an object", value);
    }
    key = bt_json_first(value);
    for (uint32_t i = 0; ok && (i < value->n); i++) {
        if (!bt_json_is_kind(key + 1, BT_JSON_STRING)) {
            return bt_api_refuse(parse, field->name,
                                 "%s: the value of %s must be a string, got %s",
                                 field->name, BT_API_SHOW(key),
                                 BT_API_SHOW(key + 1));
        }
        ok =
            (bt_n_characters(key->text, key->len) <= BT_API_MAX_META_KEY) &&
            (bt_n_characters(key[1].text, key[1].len) <= BT_API_MAX_META_VALUE);
        key = bt_json_next(parse->doc, key + 1);
    }
    if (!ok) {
        return bt_api_refuse(parse, field->name,
                             "%s has at most %d entries, with keys of at most "
                             "%d characters and texts of at most %d",
                             field->name, BT_API_MAX_METADATA,
                             BT_API_MAX_META_KEY, BT_API_MAX_META_VALUE);
    }
    return bt_api_read_json(parse, field, value);
}

/* There is nothing to include of tools and images that are not there; reasoning
 * is in its item, not encrypted. */
bt_status_t bt_api_read_include(bt_api_parse_t *parse,
                                const bt_api_field_t *field,
                                const bt_json_node_t *value)
{
    static const char *const known[] = {"web_search_call.action.sources",
                                        "web_search_call.results",
                                        "code_interpreter_call.outputs",
                                        "computer_call_output.output.image_url",
                                        "file_search_call.results",
                                        "message.input_image.image_url",
                                        "reasoning.encrypted_content"};
    const uint32_t n = bt_json_size(value, BT_JSON_ARRAY);
    const bt_json_node_t *item = (n > 0) ? bt_json_first(value) : NULL;

    if (!bt_json_is_kind(value, BT_JSON_ARRAY)) {
        return bt_api_refuse_kind(parse, field->name, "a list", value);
    }
    for (uint32_t i = 0; i < n; i++) {
        bool is_known = false;

        for (size_t k = 0; !is_known && (k < BT_ARRAY_LEN(known)); k++) {
            is_known = bt_json_is(item, known[k]);
        }
        if (!is_known) {
            return bt_api_refuse(parse, field->name,
                                 "include[%u] is not supported, got %s", i,
                                 BT_API_SHOW(item));
        }
        item = bt_json_next(parse->doc, item);
    }
    return BT_OK;
}

/* ---- how much the model thinks ---- */

bt_status_t bt_api_read_effort(bt_api_parse_t *parse,
                               const bt_api_field_t *field,
                               const bt_json_node_t *value)
{
    static const char *const known[] = {"none", "minimal", "low", "medium",
                                        "high", "xhigh",   "max"};

    for (size_t i = 0; i < BT_ARRAY_LEN(known); i++) {
        if (bt_json_is(value, known[i])) {
            parse->request->effort = bt_strdup(known[i]);
            return (parse->request->effort != NULL)
                       ? BT_OK
                       : bt_api_error_no_memory(parse->error);
        }
    }
    return bt_api_refuse(parse, field->name,
                         "%s must be none, minimal, low, medium, high, xhigh "
                         "or max, got %s",
                         (parse->request->dialect == BT_API_RESPONSES)
                             ? "reasoning.effort"
                             : field->name,
                         BT_API_SHOW(value));
}

/* A summary is a second model's; the reasoning itself is returned. */
bt_status_t bt_api_read_reasoning(bt_api_parse_t *parse,
                                  const bt_api_field_t *field,
                                  const bt_json_node_t *value)
{
    static const char *const known[] = {"effort", "summary", "generate_summary",
                                        NULL};
    const bt_json_node_t *effort = bt_json_get(parse->doc, value, "effort");

    if (!bt_json_is_kind(value, BT_JSON_OBJECT)) {
        return bt_api_refuse_kind(parse, field->name, "an object", value);
    }
    bt_api_note_members(parse, field->name, value, known);
    return bt_api_is_none(effort) ? BT_OK
                                  : bt_api_read_effort(parse, field, effort);
}

bt_status_t bt_api_check_responses(bt_api_parse_t *parse)
{
    const bt_api_request_t *request = parse->request;
    bt_status_t status;

    if (request->messages.n == 0) {
        return bt_api_refuse(parse, "input", "input is missing");
    }
    status = bt_api_check_response_tools(parse);
    return ((status != BT_OK) || (request->instructions == NULL))
               ? status
               : bt_api_prepend_system(parse, request->instructions);
}
