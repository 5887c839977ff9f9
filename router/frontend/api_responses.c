/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's responses: request fields, the object and its events. Supports text
 * and its reasoning; no response is stored.
 * Source:  OpenAI's API reference, "Responses" and "Streaming events". */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/frontend/api_priv.h"
#include "router/frontend/scores.h"

/* ---- the request ---- */

/* Items other than messages belong to tools, or refer to data stored by other
 * servers. */
static bt_status_t check_items(bt_api_parse_t *parse,
                               const bt_json_node_t *items)
{
    const bt_json_node_t *item = bt_json_first(items);

    for (uint32_t i = 0; i < items->n; i++) {
        const bt_json_node_t *type = bt_json_get(parse->doc, item, "type");

        if (bt_json_is_kind(type, BT_JSON_STRING) &&
            !bt_json_is(type, "reasoning") && !bt_json_is(type, "message")) {
            return bt_api_refuse(parse, "input",
                                 "input[%u]: items of type %s are not "
                                 "supported yet, only message and reasoning",
                                 i, BT_API_SHOW(type));
        }
        item = bt_json_next(parse->doc, item);
    }
    return BT_OK;
}

static bt_status_t take_text(bt_api_parse_t *parse, const bt_json_node_t *value)
{
    if (value->len == 0) {
        return bt_api_refuse(parse, "input", "input is empty");
    }
    return bt_api_take_user(parse, value);
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
    return (status == BT_OK) ? bt_api_read_messages(parse, field, value)
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

/* Responses are not stored here, so a request to store one is refused. */
bt_status_t bt_api_read_store(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value)
{
    if (bt_json_is_kind(value, BT_JSON_FALSE)) {
        return BT_OK;
    }
    return bt_api_refuse(parse, field->name,
                         "%s is not supported: no response is kept; it must be "
                         "false or left out, got %s",
                         field->name, BT_API_SHOW(value));
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
    static const char *const known[] = {"format", NULL};
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

bt_status_t bt_api_check_responses(bt_api_parse_t *parse)
{
    const bt_api_request_t *request = parse->request;

    if (request->messages.n == 0) {
        return bt_api_refuse(parse, "input", "input is missing");
    }
    return (request->instructions == NULL)
               ? BT_OK
               : bt_api_prepend_system(parse, request->instructions);
}

/* ---- the object ---- */

/* An item of a response: the reasoning, or the message. */
typedef struct item {
    const char *prefix; /* of its id */
    const char *part;   /* type of its only part */
    const char *delta, *done;
} item_t;

static const item_t thinking = {"rs_", "reasoning_text",
                                "response.reasoning_text.delta",
                                "response.reasoning_text.done"};
static const item_t speaking = {"msg_", "output_text",
                                "response.output_text.delta",
                                "response.output_text.done"};

static void put_part(const item_t *item, const char *key, const char *text,
                     size_t bytes, bt_json_t *json)
{
    bt_json_object(json, key);
    bt_json_str(json, "type", item->part);
    bt_json_strn(json, "text", text, bytes);
    if (item == &speaking) {
        bt_json_raw(json, "annotations", "[]");
        bt_json_raw(json, "logprobs", "[]");
    }
    bt_json_end_object(json);
}

/* An answer's id is "resp_…"; its items have other prefixes and an equal rest.
 */
static void put_item_id(const bt_api_answer_t *answer, const item_t *item,
                        const char *key, bt_json_t *json)
{
    char id[80];
    const char *tail = strchr(answer->id, '_');

    snprintf(id, sizeof(id), "%s%s", item->prefix,
             (tail != NULL) ? tail + 1 : answer->id);
    bt_json_str(json, key, id);
}

static const char *status_of(bt_finish_t finish)
{
    switch (finish) {
    case BT_FINISH_NONE:
        return "in_progress";
    case BT_FINISH_STOP:
        return "completed";
    default:
        return "incomplete";
    }
}

/* The answer may consist of reasoning only. */
static bool has_message(const bt_api_choice_t *choice)
{
    return (choice->text_bytes > 0) || (choice->thought_bytes == 0);
}

/* Returns how the item ended with its choice. */
static bt_finish_t end_of(const item_t *item, const bt_api_choice_t *choice)
{
    return ((item == &thinking) && has_message(choice)) ? BT_FINISH_STOP
                                                        : choice->finish;
}

/* @param choice its whole text once the item has ended; NULL: none yet */
static void put_item(const bt_api_answer_t *answer, const item_t *item,
                     const char *key, const bt_api_choice_t *choice,
                     bt_json_t *json)
{
    const bool thinks = item == &thinking;

    bt_json_object(json, key);
    put_item_id(answer, item, "id", json);
    bt_json_str(json, "type", thinks ? "reasoning" : "message");
    bt_json_str(
        json, "status",
        status_of((choice != NULL) ? end_of(item, choice) : BT_FINISH_NONE));
    if (thinks) {
        bt_json_raw(json, "summary", "[]");
    } else {
        bt_json_str(json, "role", "assistant");
    }
    bt_json_array(json, "content");
    if ((choice != NULL) && thinks) {
        put_part(item, NULL, choice->thought, choice->thought_bytes, json);
    } else if (choice != NULL) {
        put_part(item, NULL, choice->text, choice->text_bytes, json);
    }
    bt_json_end_array(json);
    bt_json_end_object(json);
}

static void put_usage(const bt_api_usage_t *usage, bt_json_t *json)
{
    bt_json_object(json, "usage");
    bt_json_u64(json, "input_tokens", usage->prompt_tokens);
    bt_json_object(json, "input_tokens_details");
    bt_json_u64(json, "cached_tokens", usage->cached_tokens);
    bt_json_u64(json, "cache_write_tokens", usage->kept_tokens);
    bt_json_end_object(json);
    bt_json_u64(json, "output_tokens", usage->completion_tokens);
    bt_json_object(json, "output_tokens_details");
    bt_json_u64(json, "reasoning_tokens", usage->thought_tokens);
    bt_json_end_object(json);
    bt_json_u64(json, "total_tokens",
                (uint64_t)usage->prompt_tokens + usage->completion_tokens);
    bt_json_end_object(json);
}

/* Writes the request's options. */
static void put_options(const bt_api_answer_t *answer, bt_json_t *json)
{
    bt_json_str(json, "instructions", answer->instructions);
    if (answer->max_tokens > 0) {
        bt_json_u64(json, "max_output_tokens", answer->max_tokens);
    } else {
        bt_json_null(json, "max_output_tokens");
    }
    bt_json_str(json, "model", answer->model);
    bt_json_bool(json, "parallel_tool_calls", false);
    bt_json_null(json, "previous_response_id");
    bt_json_bool(json, "store", false);
    bt_json_float(json, "temperature", answer->temperature);
    bt_json_object(json, "text");
    bt_json_raw(json, "format",
                (answer->format != NULL) ? answer->format
                                         : "{\"type\":\"text\"}");
    bt_json_end_object(json);
    bt_json_str(json, "tool_choice", "auto");
    bt_json_raw(json, "tools", "[]");
    bt_json_float(json, "top_p", answer->top_p);
    bt_json_str(json, "truncation", "disabled");
    bt_json_raw(json, "metadata",
                (answer->metadata != NULL) ? answer->metadata : "{}");
}

void bt_api_put_response(const bt_api_answer_t *answer, const char *key,
                         const bt_api_choice_t *choice,
                         const bt_api_usage_t *usage, bt_json_t *json)
{
    const bt_finish_t finish =
        (choice != NULL) ? choice->finish : BT_FINISH_NONE;

    bt_json_object(json, key);
    bt_json_str(json, "id", answer->id);
    bt_json_str(json, "object", "response");
    bt_json_i64(json, "created_at", answer->created);
    bt_json_str(json, "status", status_of(finish));
    bt_json_null(json, "error");
    if ((finish == BT_FINISH_LENGTH) || (finish == BT_FINISH_REPETITION)) {
        bt_json_object(json, "incomplete_details");
        bt_json_str(json, "reason",
                    (finish == BT_FINISH_LENGTH) ? "max_output_tokens"
                                                 : "repetition");
        bt_json_end_object(json);
    } else {
        bt_json_null(json, "incomplete_details");
    }
    put_options(answer, json);
    bt_json_array(json, "output");
    if ((choice != NULL) && (choice->thought_bytes > 0)) {
        put_item(answer, &thinking, NULL, choice, json);
    }
    if ((choice != NULL) && has_message(choice)) {
        put_item(answer, &speaking, NULL, choice, json);
    }
    bt_json_end_array(json);
    if (choice != NULL) {
        put_usage(usage, json);
    } else {
        bt_json_null(json, "usage");
    }
    bt_json_end_object(json);
}

/* ---- its events ---- */

typedef struct events {
    const bt_api_answer_t *answer;
    uint32_t *sequence;
    bt_strbuf_t *out;
    bt_json_t json;
} events_t;

static bt_json_t *open_event(events_t *e, const char *type)
{
    bt_strbuf_printf(e->out, "event: %s\ndata: ", type);
    bt_json_init(&e->json, e->out);
    bt_json_object(&e->json, NULL);
    bt_json_str(&e->json, "type", type);
    bt_json_u64(&e->json, "sequence_number", (*e->sequence)++);
    return &e->json;
}

static void close_event(events_t *e)
{
    bt_json_end_object(&e->json);
    bt_strbuf_puts(e->out, "\n\n");
}

static void put_position(events_t *e, const item_t *item, uint32_t index,
                         bool content)
{
    if (content) {
        put_item_id(e->answer, item, "item_id", &e->json);
    }
    bt_json_u64(&e->json, "output_index", index);
    if (content) {
        bt_json_u64(&e->json, "content_index", 0);
    }
}

static void put_response_event(events_t *e, const char *type,
                               const bt_api_choice_t *choice,
                               const bt_api_usage_t *usage)
{
    bt_api_put_response(e->answer, "response", choice, usage,
                        open_event(e, type));
    close_event(e);
}

static void put_item_event(events_t *e, const char *type, const item_t *item,
                           uint32_t index, const bt_api_choice_t *choice)
{
    bt_json_t *json = open_event(e, type);

    put_position(e, item, index, false);
    put_item(e->answer, item, "item", choice, json);
    close_event(e);
}

static void put_part_event(events_t *e, const char *type, const item_t *item,
                           uint32_t index, const char *text, size_t bytes)
{
    bt_json_t *json = open_event(e, type);

    put_position(e, item, index, true);
    put_part(item, "part", text, bytes, json);
    close_event(e);
}

/* @param key key of the text: "delta", or "text" for all of it */
static void put_text_event(events_t *e, const char *type, const item_t *item,
                           uint32_t index, const char *key, const char *text,
                           size_t bytes)
{
    bt_json_t *json = open_event(e, type);

    put_position(e, item, index, true);
    bt_json_strn(json, key, text, bytes);
    if (item == &speaking) {
        bt_json_raw(json, "logprobs", "[]");
    }
    close_event(e);
}

static void open_item(events_t *e, const item_t *item, uint32_t index)
{
    put_item_event(e, "response.output_item.added", item, index, NULL);
    put_part_event(e, "response.content_part.added", item, index, "", 0);
}

/* @param whole all text so far, and how it ended */
static void close_item(events_t *e, const item_t *item, uint32_t index,
                       const bt_api_choice_t *whole)
{
    const bool thinks = item == &thinking;
    const char *text = thinks ? whole->thought : whole->text;
    const size_t bytes = thinks ? whole->thought_bytes : whole->text_bytes;

    put_text_event(e, item->done, item, index, "text", text, bytes);
    put_part_event(e, "response.content_part.done", item, index, text, bytes);
    put_item_event(e, "response.output_item.done", item, index, whole);
}

static void put_begin(events_t *e)
{
    if (*e->sequence == 0) {
        put_response_event(e, "response.created", NULL, NULL);
        put_response_event(e, "response.in_progress", NULL, NULL);
    }
}

void bt_api_write_begin_events(const bt_api_answer_t *answer,
                               uint32_t *sequence, bt_strbuf_t *out)
{
    events_t e = {.answer = answer, .sequence = sequence, .out = out};

    put_begin(&e);
}

/* Reasoning is sent before the text; an item ends where the next one begins, or
 * with the choice. */
void bt_api_write_events(const bt_api_answer_t *answer,
                         const bt_api_choice_t *piece,
                         const bt_api_usage_t *usage, uint32_t *sequence,
                         bt_strbuf_t *out)
{
    events_t e = {.answer = answer, .sequence = sequence, .out = out};
    const bool ends = piece->finish != BT_FINISH_NONE;
    const bool spoke = piece->whole_bytes > piece->text_bytes;
    const bool thought = piece->whole_thought_bytes > 0;
    const uint32_t index = thought ? 1 : 0; /* of the message */
    bt_api_choice_t whole = *piece;

    whole.text = piece->whole;
    whole.text_bytes = piece->whole_bytes;
    whole.thought = piece->whole_thought;
    whole.thought_bytes = piece->whole_thought_bytes;
    put_begin(&e);
    if (piece->thought_bytes > 0) {
        if (piece->whole_thought_bytes == piece->thought_bytes) {
            open_item(&e, &thinking, 0);
        }
        put_text_event(&e, thinking.delta, &thinking, 0, "delta",
                       piece->thought, piece->thought_bytes);
    }
    if (thought && !spoke && (ends || (piece->text_bytes > 0))) {
        close_item(&e, &thinking, 0, &whole);
    }
    if (!spoke && ((piece->text_bytes > 0) || (ends && has_message(&whole)))) {
        open_item(&e, &speaking, index);
    }
    if (piece->text_bytes > 0) {
        put_text_event(&e, speaking.delta, &speaking, index, "delta",
                       piece->text, piece->text_bytes);
    }
    if (!ends) {
        return;
    }
    if (has_message(&whole)) {
        close_item(&e, &speaking, index, &whole);
    }
    put_response_event(&e,
                       (piece->finish == BT_FINISH_STOP)
                           ? "response.completed"
                           : "response.incomplete",
                       &whole, usage);
}

void bt_api_write_error_event(const bt_api_error_t *error, uint32_t *sequence,
                              bt_strbuf_t *out)
{
    events_t e = {.sequence = sequence, .out = out};
    bt_json_t *json = open_event(&e, "error");

    bt_json_str(json, "code", error->type);
    bt_json_str(json, "message", error->message);
    bt_json_str(json, "param", error->param);
    close_event(&e);
}
