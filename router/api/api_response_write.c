/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's responses: the object and its events.
 * Source:  OpenAI's API reference, "Responses" and "Streaming events". */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/api/api_priv.h"

#define INPUT_LIMIT ((size_t)1 << 30) /* bytes of a custom tool's input */

/* An item of a response: reasoning, a message with one part, or a call.
 *
 *     reasoning, message, call, call, message, …
 *
 * Reasoning comes first. A call stands behind the text before it; text behind
 * a call is a message of its own. */
typedef struct item {
    const bt_api_answer_t *answer;
    bt_api_item_kind_t kind;
    uint32_t n; /* of its kind, from 0 */
    bt_finish_t finish;
    const char *text; /* of reasoning or a message, so far */
    size_t bytes;
    const bt_tool_call_t *call;
    bool is_special;
    bt_api_special_tool_t tool; /* of a call, if it is special */
} item_t;

/* What kinds of items with text are called. */
typedef struct words {
    const char *prefix, *part, *delta, *done;
} words_t;

static const words_t words[] = {
    [BT_API_ITEM_REASONING] = {"rs_", "reasoning_text",
                               "response.reasoning_text.delta",
                               "response.reasoning_text.done"},
    [BT_API_ITEM_MESSAGE] = {"msg_", "output_text",
                             "response.output_text.delta",
                             "response.output_text.done"},
};

/* ---- items ---- */

static bool is_custom(const item_t *item)
{
    return item->is_special && (strcmp(item->tool.type, "custom") == 0);
}

static void put_part(const item_t *item, const char *key, bt_json_t *json)
{
    bt_json_object(json, key);
    bt_json_str(json, "type", words[item->kind].part);
    bt_json_strn(json, "text", item->text, item->bytes);
    if (item->kind == BT_API_ITEM_MESSAGE) {
        bt_json_raw(json, "annotations", "[]");
        bt_json_raw(json, "logprobs", "[]");
    }
    bt_json_end_object(json);
}

/* An answer's id is "resp_…"; its items have other prefixes, an equal rest, and
 * a number where there are several. */
static void put_item_id(const item_t *item, const char *key, bt_json_t *json)
{
    const char *const tail = strchr(item->answer->id, '_');
    const char *prefix = words[BT_API_ITEM_MESSAGE].prefix;
    char number[16] = "";
    char id[96];

    if (item->kind == BT_API_ITEM_CALL) {
        prefix = is_custom(item) ? "ctc_" : "fc_";
    } else {
        prefix = words[item->kind].prefix;
    }
    if ((item->kind == BT_API_ITEM_CALL) || (item->n > 0)) {
        snprintf(number, sizeof(number), "_%u", item->n);
    }
    snprintf(id, sizeof(id), "%s%s%s", prefix,
             (tail != NULL) ? tail + 1 : item->answer->id, number);
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

/* Writes the input of a custom tool as far as it came. */
static void put_input(const item_t *item, const char *key, bool last,
                      bt_json_t *json)
{
    const bt_strbuf_t *const arguments = &item->call->arguments;
    bt_custom_input_t reader = {0};
    bt_strbuf_t text;

    bt_strbuf_init(&text, INPUT_LIMIT);
    if (arguments->len > 0) {
        bt_custom_input_read(&reader, arguments->data, arguments->len, last,
                             &text);
    }
    if (bt_strbuf_status(&text) != BT_OK) {
        json->out->status = bt_strbuf_status(&text);
    }
    bt_json_strn(json, key, (text.len > 0) ? text.data : "", text.len);
    bt_strbuf_fini(&text);
}

/* Writes the arguments of a call, or the input of a custom tool. */
static void put_arguments(const item_t *item, bool last, bt_json_t *json)
{
    const bt_strbuf_t *const arguments = &item->call->arguments;

    if (is_custom(item)) {
        put_input(item, "input", last, json);
    } else {
        bt_json_strn(json, "arguments",
                     (arguments->len > 0) ? arguments->data : "",
                     arguments->len);
    }
}

static void put_call(const item_t *item, bool has_ended, bt_json_t *json)
{
    bt_json_str(json, "type",
                is_custom(item) ? "custom_tool_call" : "function_call");
    bt_json_str(json, "status", status_of(item->finish));
    bt_api_put_call_id(item->answer, 0, item->n, "call_id", json);
    bt_json_str(json, "name",
                item->is_special ? item->tool.bare : item->call->name);
    if (item->is_special && (item->tool.space[0] != '\0')) {
        bt_json_str(json, "namespace", item->tool.space);
    }
    if (has_ended) {
        put_arguments(item, true, json);
    } else {
        bt_json_str(json, is_custom(item) ? "input" : "arguments", "");
    }
}

static void put_item(const item_t *item, const char *key, bool has_ended,
                     bt_json_t *json)
{
    const bool thinks = item->kind == BT_API_ITEM_REASONING;

    bt_json_object(json, key);
    put_item_id(item, "id", json);
    if (item->kind == BT_API_ITEM_CALL) {
        put_call(item, has_ended, json);
        bt_json_end_object(json);
        return;
    }
    bt_json_str(json, "type", thinks ? "reasoning" : "message");
    bt_json_str(json, "status", status_of(item->finish));
    if (thinks) {
        bt_json_raw(json, "summary", "[]");
    } else {
        bt_json_str(json, "role", "assistant");
    }
    bt_json_array(json, "content");
    if (has_ended) {
        put_part(item, NULL, json);
    }
    bt_json_end_array(json);
    bt_json_end_object(json);
}

/* ---- the items of a choice ---- */

/* The text behind a call, or all of it, up to the next call. */
typedef struct segment {
    size_t from, to;
} segment_t;

/* Returns the text before call i, or behind the last one.
 * @param bytes of all text */
static segment_t segment_of(const bt_api_choice_t *choice, uint32_t i,
                            size_t bytes)
{
    const size_t from = (i > 0) ? choice->calls[i - 1].text_before : 0;
    const size_t to =
        (i < choice->n_calls) ? choice->calls[i].text_before : bytes;

    return (segment_t){from, to};
}

/* The answer may consist of reasoning or calls only. */
static bool has_empty_message(const bt_api_choice_t *whole)
{
    return (whole->text_bytes == 0) && (whole->thought_bytes == 0) &&
           (whole->n_calls == 0);
}

/* Returns how an item ended; only the last one may have been cut.
 * @param is_last no item follows */
static bt_finish_t end_of(bt_api_item_kind_t kind,
                          const bt_api_choice_t *choice, bool is_last)
{
    if (!is_last) {
        return BT_FINISH_STOP;
    }
    if (kind == BT_API_ITEM_CALL) {
        return choice->is_cut_call ? BT_FINISH_LENGTH : BT_FINISH_STOP;
    }
    return choice->finish;
}

static item_t call_item(const bt_api_answer_t *answer,
                        const bt_api_choice_t *choice, uint32_t i)
{
    const bt_tool_call_t *const call = &choice->calls[i];
    item_t item = {
        .answer = answer, .kind = BT_API_ITEM_CALL, .n = i, .call = call};

    item.is_special =
        bt_api_find_special_tool(answer->special, answer->special_bytes,
                                 call->name, strlen(call->name), &item.tool);
    return item;
}

static item_t text_item(const bt_api_answer_t *answer, bt_api_item_kind_t kind,
                        uint32_t n, const char *text, size_t bytes)
{
    return (item_t){
        .answer = answer, .kind = kind, .n = n, .text = text, .bytes = bytes};
}

/* Writes the items of a whole choice. */
static void put_output(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choice, bt_json_t *json)
{
    uint32_t n_messages = 0;
    item_t item;

    if (choice->thought_bytes > 0) {
        item = text_item(answer, BT_API_ITEM_REASONING, 0, choice->thought,
                         choice->thought_bytes);
        item.finish =
            end_of(item.kind, choice,
                   (choice->text_bytes == 0) && (choice->n_calls == 0));
        put_item(&item, NULL, true, json);
    }
    for (uint32_t i = 0; i <= choice->n_calls; i++) {
        const segment_t text = segment_of(choice, i, choice->text_bytes);

        if ((text.to > text.from) || has_empty_message(choice)) {
            item = text_item(answer, BT_API_ITEM_MESSAGE, n_messages++,
                             choice->text + text.from, text.to - text.from);
            item.finish = end_of(item.kind, choice, i == choice->n_calls);
            put_item(&item, NULL, true, json);
        }
        if (i < choice->n_calls) {
            item = call_item(answer, choice, i);
            item.finish = end_of(
                item.kind, choice,
                (i + 1 == choice->n_calls) &&
                    (choice->text_bytes == choice->calls[i].text_before));
            put_item(&item, NULL, true, json);
        }
    }
}

/* ---- the object ---- */

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
    bt_api_put_weights(answer, json);
    bt_json_bool(json, "parallel_tool_calls", !answer->only_one_call);
    bt_json_str(json, "previous_response_id", answer->previous_id);
    bt_json_object(json, "reasoning");
    bt_json_str(json, "effort", answer->effort);
    bt_json_null(json, "summary");
    bt_json_end_object(json);
    bt_json_bool(json, "store", answer->is_stored);
    bt_json_float(json, "temperature", answer->temperature);
    bt_json_object(json, "text");
    bt_json_raw(json, "format",
                (answer->format != NULL) ? answer->format
                                         : "{\"type\":\"text\"}");
    bt_json_end_object(json);
    bt_json_raw(json, "tool_choice",
                (answer->choice != NULL) ? answer->choice : "\"auto\"");
    bt_json_raw(json, "tools", (answer->tools != NULL) ? answer->tools : "[]");
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
    if (choice != NULL) {
        put_output(answer, choice, json);
    }
    bt_json_end_array(json);
    if (choice != NULL) {
        put_usage(usage, json);
    } else {
        bt_json_null(json, "usage");
    }
    bt_json_end_object(json);
}

/* No text before the member can look like it, for its quotes are escaped, and
 * what clients give as JSON is behind it. */
void bt_api_events_not_stored(bt_strbuf_t *events, size_t object_from)
{
    static const char member[] = "\"store\":true,", instead[] = "false,";
    const size_t n = sizeof("true,") - 1;
    char *at;
    size_t from;

    at = memmem(events->data + object_from, events->len - object_from, member,
                sizeof(member) - 1);
    BT_ASSERT(at != NULL);
    from = (size_t)(at - events->data) + sizeof(member) - 1 - n;
    bt_strbuf_puts(events, " "); /* makes room */
    if (bt_strbuf_status(events) == BT_OK) {
        at = events->data + from;
        memmove(at + n + 1, at + n, events->len - 1 - from - n);
        memcpy(at, instead, n + 1);
    }
}

void bt_api_put_input_tokens(uint32_t n, bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "object", "response.input_tokens");
    bt_json_u64(json, "input_tokens", n);
    bt_json_end_object(json);
}

/* ---- its events ---- */

typedef struct stream {
    const bt_api_answer_t *answer;
    const bt_api_choice_t *whole; /* the choice so far */
    bt_api_events_t *at;
    bt_strbuf_t *out;
    bt_json_t json;
} stream_t;

static bt_json_t *open_event(stream_t *s, const char *type)
{
    bt_strbuf_printf(s->out, "event: %s\ndata: ", type);
    bt_json_init(&s->json, s->out);
    bt_json_object(&s->json, NULL);
    bt_json_str(&s->json, "type", type);
    bt_json_u64(&s->json, "sequence_number", s->at->sequence++);
    return &s->json;
}

static void close_event(stream_t *s)
{
    bt_json_end_object(&s->json);
    bt_strbuf_puts(s->out, "\n\n");
}

static void put_response_event(stream_t *s, const char *type,
                               const bt_api_choice_t *choice,
                               const bt_api_usage_t *usage)
{
    bt_json_t *const json = open_event(s, type);

    bt_json_key(json, "response", strlen("response"));
    s->at->object_from = s->out->len;
    bt_api_put_response(s->answer, NULL, choice, usage, json);
    s->at->object_bytes = s->out->len - s->at->object_from;
    close_event(s);
}

static void put_begin(stream_t *s)
{
    if (s->at->sequence == 0) {
        put_response_event(s, "response.created", NULL, NULL);
        put_response_event(s, "response.in_progress", NULL, NULL);
    }
}

/* Opens an event of the last item. */
static bt_json_t *open_item_event(stream_t *s, const char *type,
                                  const item_t *item, bool has_id,
                                  bool has_content)
{
    bt_json_t *const json = open_event(s, type);

    if (has_id) {
        put_item_id(item, "item_id", json);
    }
    bt_json_u64(json, "output_index", s->at->n_items - 1);
    if (has_content) {
        bt_json_u64(json, "content_index", 0);
    }
    return json;
}

static void put_item_event(stream_t *s, const char *type, const item_t *item,
                           bool has_ended)
{
    put_item(item, "item", has_ended,
             open_item_event(s, type, item, false, false));
    close_event(s);
}

static void put_part_event(stream_t *s, const char *type, const item_t *item)
{
    put_part(item, "part", open_item_event(s, type, item, true, true));
    close_event(s);
}

/* @param key key of the text: "delta", or "text" for all of it */
static void put_text_event(stream_t *s, const char *type, const item_t *item,
                           const char *key, const char *text, size_t bytes)
{
    bt_json_t *const json = open_item_event(s, type, item, true, true);

    bt_json_strn(json, key, text, bytes);
    if (item->kind == BT_API_ITEM_MESSAGE) {
        bt_json_raw(json, "logprobs", "[]");
    }
    close_event(s);
}

/* Returns the last item, all of it so far. */
static item_t last_item(const stream_t *s)
{
    const bt_api_choice_t *const whole = s->whole;

    switch (s->at->open) {
    case BT_API_ITEM_REASONING:
        return text_item(s->answer, BT_API_ITEM_REASONING, 0, whole->thought,
                         whole->thought_bytes);
    case BT_API_ITEM_CALL:
        return call_item(s->answer, whole, s->at->n_calls - 1);
    default:
        return text_item(
            s->answer, BT_API_ITEM_MESSAGE, s->at->n_messages - 1,
            whole->text + s->at->text_from,
            segment_of(whole, s->at->n_calls, whole->text_bytes).to -
                s->at->text_from);
    }
}

/* Writes new input of a custom tool. @param [in] last  there is no more */
static void say_input(stream_t *s, const item_t *item, bool last)
{
    const bt_strbuf_t *const arguments = &item->call->arguments;
    bt_strbuf_t text;

    bt_strbuf_init(&text, INPUT_LIMIT);
    bt_custom_input_read(&s->at->input, arguments->data, arguments->len, last,
                         &text);
    if (bt_strbuf_status(&text) != BT_OK) {
        s->out->status = bt_strbuf_status(&text);
    } else if (text.len > 0) {
        bt_json_strn(open_item_event(s, "response.custom_tool_call_input.delta",
                                     item, true, false),
                     "delta", text.data, text.len);
        close_event(s);
    }
    bt_strbuf_fini(&text);
}

/* Ends the open item.
 * @param is_last no item follows */
static void close_item(stream_t *s, bool is_last)
{
    bt_json_t *json;
    item_t item;

    if (s->at->open == BT_API_ITEM_NONE) {
        return;
    }
    item = last_item(s);
    item.finish = end_of(item.kind, s->whole, is_last);
    if (item.kind == BT_API_ITEM_CALL) {
        if (is_custom(&item)) {
            say_input(s, &item, true); /* an escape that was cut */
        }
        json = open_item_event(s,
                               is_custom(&item)
                                   ? "response.custom_tool_call_input.done"
                                   : "response.function_call_arguments.done",
                               &item, true, false);
        if (!is_custom(&item)) {
            bt_json_str(json, "name",
                        item.is_special ? item.tool.bare : item.call->name);
        }
        put_arguments(&item, true, json);
        close_event(s);
    } else {
        put_text_event(s, words[item.kind].done, &item, "text", item.text,
                       item.bytes);
        put_part_event(s, "response.content_part.done", &item);
    }
    put_item_event(s, "response.output_item.done", &item, true);
    s->at->open = BT_API_ITEM_NONE;
}

/* Ends the open item, and begins another. */
static void begin_item(stream_t *s, bt_api_item_kind_t kind)
{
    item_t item;

    close_item(s, false);
    s->at->n_items++;
    s->at->open = kind;
    if (kind == BT_API_ITEM_MESSAGE) {
        s->at->n_messages++;
    } else if (kind == BT_API_ITEM_CALL) {
        s->at->n_calls++;
        s->at->input = (bt_custom_input_t){0};
    }
    item = last_item(s);
    put_item_event(s, "response.output_item.added", &item, false);
    if (kind != BT_API_ITEM_CALL) {
        item.bytes = 0;
        put_part_event(s, "response.content_part.added", &item);
    }
}

static void say(stream_t *s, bt_api_item_kind_t kind, const char *text,
                size_t bytes)
{
    item_t item;

    if (bytes == 0) {
        return;
    }
    if (s->at->open != kind) {
        begin_item(s, kind);
    }
    item = last_item(s);
    put_text_event(s, words[kind].delta, &item, "delta", text, bytes);
}

/* Writes new arguments of the open call.
 * @param from  bytes of them that were sent */
static void say_arguments(stream_t *s, size_t from)
{
    const item_t item = last_item(s);
    const bt_strbuf_t *const arguments = &item.call->arguments;

    if (arguments->len <= from) {
        return;
    }
    if (is_custom(&item)) {
        say_input(s, &item, false);
        return;
    }
    bt_json_strn(open_item_event(s, "response.function_call_arguments.delta",
                                 &item, true, false),
                 "delta", arguments->data + from, arguments->len - from);
    close_event(s);
}

/* Writes new text and calls, in the order in which the model wrote them.
 * @param from  bytes of the text that were sent
 * @param args  bytes of the open call's arguments that were sent */
static void say_rest(stream_t *s, size_t from, size_t args)
{
    const bt_api_choice_t *const whole = s->whole;

    if (s->at->open == BT_API_ITEM_CALL) {
        say_arguments(s, args);
    }
    for (;;) {
        const segment_t text =
            segment_of(whole, s->at->n_calls, whole->text_bytes);

        if (text.to > from) {
            if (s->at->open != BT_API_ITEM_MESSAGE) {
                s->at->text_from = from;
            }
            say(s, BT_API_ITEM_MESSAGE, whole->text + from, text.to - from);
            from = text.to;
        }
        if (s->at->n_calls == whole->n_calls) {
            return;
        }
        begin_item(s, BT_API_ITEM_CALL);
        say_arguments(s, 0);
    }
}

void bt_api_write_begin_events(const bt_api_answer_t *answer,
                               bt_api_events_t *events, bt_strbuf_t *out)
{
    stream_t s = {.answer = answer, .at = events, .out = out};

    put_begin(&s);
}

void bt_api_write_events(const bt_api_answer_t *answer,
                         const bt_api_choice_t *piece,
                         const bt_api_usage_t *usage, bt_api_events_t *events,
                         bt_strbuf_t *out)
{
    bt_api_choice_t whole = *piece;
    stream_t s = {.answer = answer, .whole = &whole, .at = events, .out = out};

    whole.text = piece->whole;
    whole.text_bytes = piece->whole_bytes;
    whole.thought = piece->whole_thought;
    whole.thought_bytes = piece->whole_thought_bytes;
    put_begin(&s);
    say(&s, BT_API_ITEM_REASONING, piece->thought, piece->thought_bytes);
    say_rest(&s, piece->whole_bytes - piece->text_bytes, piece->args_sent);
    if (piece->finish == BT_FINISH_NONE) {
        return;
    }
    if (has_empty_message(&whole)) {
        begin_item(&s, BT_API_ITEM_MESSAGE);
    }
    close_item(&s, true);
    put_response_event(&s,
                       (piece->finish == BT_FINISH_STOP)
                           ? "response.completed"
                           : "response.incomplete",
                       &whole, usage);
}

void bt_api_write_error_event(const bt_api_error_t *error,
                              bt_api_events_t *events, bt_strbuf_t *out)
{
    stream_t s = {.at = events, .out = out};
    bt_json_t *json = open_event(&s, "error");

    bt_json_str(json, "code", error->type);
    bt_json_str(json, "message", error->message);
    bt_json_str(json, "param", error->param);
    close_event(&s);
}
