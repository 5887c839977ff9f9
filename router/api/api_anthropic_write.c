/* SPDX-License-Identifier: Apache-2.0 */
/* Anthropic's messages: the message of an answer, and the events of a stream.
 * Source:  Anthropic's API reference, "Messages", "Streaming" and "Errors". */
#include <string.h>

#include "common/base/status.h"
#include "router/api/api_priv.h"

/* ---- the message ---- */

static const char *stop_reason(const bt_api_choice_t *choice)
{
    switch (choice->finish) {
    case BT_FINISH_NONE:
        return NULL;
    case BT_FINISH_LENGTH:
        return "max_tokens";
    default:
        break;
    }
    if ((choice->n_calls > 0) && !choice->is_cut_call) {
        return "tool_use";
    }
    return (choice->stop_word != NULL) ? "stop_sequence" : "end_turn";
}

static void put_stop(const bt_api_choice_t *choice, bt_json_t *json)
{
    const char *reason = (choice != NULL) ? stop_reason(choice) : NULL;
    const bool is_word =
        (reason != NULL) && (strcmp(reason, "stop_sequence") == 0);

    bt_json_str(json, "stop_reason", reason);
    bt_json_str(json, "stop_sequence", is_word ? choice->stop_word : NULL);
}

/* Tokens that came from the cache do not count as input tokens. */
static void put_usage(const bt_api_usage_t *usage, bt_json_t *json)
{
    bt_json_object(json, "usage");
    bt_json_u64(json, "input_tokens",
                usage->prompt_tokens - usage->cached_tokens);
    bt_json_u64(json, "cache_creation_input_tokens", 0);
    bt_json_u64(json, "cache_read_input_tokens", usage->cached_tokens);
    bt_json_u64(json, "output_tokens", usage->completion_tokens);
    bt_json_object(json, "output_tokens_details");
    bt_json_u64(json, "thinking_tokens", usage->thought_tokens);
    bt_json_end_object(json);
    bt_json_end_object(json);
}

/* Writes the members in front of a message's content. */
static void put_head(const bt_api_answer_t *answer, bt_json_t *json)
{
    bt_json_str(json, "id", answer->id);
    bt_json_str(json, "type", "message");
    bt_json_str(json, "role", "assistant");
    bt_json_str(json, "model", answer->model);
    bt_api_put_weights(answer, json);
}

/* Anthropic's guide names the member for what is no object. */
void bt_api_put_arguments(bt_json_t *json, const char *key,
                          const bt_strbuf_t *arguments)
{
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;

    if (arguments->len == 0) {
        bt_json_raw(json, key, "{}");
        return;
    }
    if ((bt_json_doc_parse_client(arguments->data, arguments->len,
                                  BT_API_MAX_VALUES, &fault, &doc) == BT_OK) &&
        (bt_json_doc_root(doc)->kind == BT_JSON_OBJECT)) {
        bt_json_rawn(json, key, arguments->data, arguments->len);
    } else {
        bt_json_object(json, key);
        bt_json_strn(json, "INVALID_JSON", arguments->data, arguments->len);
        bt_json_end_object(json);
    }
    bt_json_doc_free(doc);
}

static void put_call_head(const bt_api_answer_t *answer,
                          const bt_api_choice_t *choice, uint32_t i,
                          bt_json_t *json)
{
    char id[BT_API_CALL_ID_BYTES];

    bt_api_make_call_id(answer, choice->index, i, "toolu_", id);
    bt_json_str(json, "type", "tool_use");
    bt_json_str(json, "id", id);
    bt_json_str(json, "name", choice->calls[i].name);
}

static void put_thinking(const char *text, size_t bytes, bt_json_t *json)
{
    bt_json_str(json, "type", "thinking");
    bt_json_strn(json, "thinking", text, bytes);
    bt_json_str(json, "signature", "");
}

void bt_api_put_anthropic(const bt_api_answer_t *answer,
                          const bt_api_choice_t *choice,
                          const bt_api_usage_t *usage, bt_json_t *json)
{
    size_t from = 0; /* of the text */

    bt_json_object(json, NULL);
    put_head(answer, json);
    bt_json_array(json, "content");
    if (choice->thought_bytes > 0) {
        bt_json_object(json, NULL);
        put_thinking(choice->thought, choice->thought_bytes, json);
        bt_json_end_object(json);
    }
    for (uint32_t i = 0; i <= choice->n_calls; i++) {
        const size_t before =
            (i < choice->n_calls) ? choice->calls[i].text_before : SIZE_MAX;
        const size_t to =
            (before < choice->text_bytes) ? before : choice->text_bytes;

        if (to > from) {
            bt_json_object(json, NULL);
            bt_json_str(json, "type", "text");
            bt_json_strn(json, "text", choice->text + from, to - from);
            bt_json_end_object(json);
            from = to;
        }
        if (i < choice->n_calls) {
            bt_json_object(json, NULL);
            put_call_head(answer, choice, i, json);
            bt_api_put_arguments(json, "input", &choice->calls[i].arguments);
            bt_json_end_object(json);
        }
    }
    bt_json_end_array(json);
    put_stop(choice, json);
    put_usage(usage, json);
    bt_json_end_object(json);
}

/* ---- the events of a stream ---- */

typedef struct events {
    const bt_api_answer_t *answer;
    const bt_api_choice_t *piece;
    bt_api_blocks_t *blocks;
    size_t text_from; /* bytes of text before the piece's */
    bt_strbuf_t *out;
    bt_json_t json;
} events_t;

static bt_json_t *open_event(events_t *e, const char *type)
{
    bt_strbuf_puts(e->out, "event: ");
    bt_strbuf_puts(e->out, type);
    bt_strbuf_puts(e->out, "\ndata: ");
    bt_json_init(&e->json, e->out);
    bt_json_object(&e->json, NULL);
    bt_json_str(&e->json, "type", type);
    return &e->json;
}

static void close_event(events_t *e)
{
    bt_json_end_object(&e->json);
    bt_strbuf_puts(e->out, "\n\n");
}

static void put_start(events_t *e)
{
    const bt_api_usage_t usage = {.prompt_tokens = e->answer->prompt_tokens};
    bt_json_t *json;

    if (e->blocks->has_begun) {
        return;
    }
    e->blocks->has_begun = true;
    json = open_event(e, "message_start");
    bt_json_object(json, "message");
    put_head(e->answer, json);
    bt_json_raw(json, "content", "[]");
    put_stop(NULL, json);
    put_usage(&usage, json);
    bt_json_end_object(json);
    close_event(e);
}

static void close_block(events_t *e)
{
    bt_json_t *json;

    if (e->blocks->open == BT_API_BLOCK_NONE) {
        return;
    }
    json = open_event(e, "content_block_stop");
    bt_json_u64(json, "index", e->blocks->n - 1);
    close_event(e);
    e->blocks->open = BT_API_BLOCK_NONE;
}

/* Opens a block of this kind, unless it is open.
 * @param [in] call  index of a call, each of which has its own block */
static void open_block(events_t *e, bt_api_block_t kind, uint32_t call)
{
    bt_json_t *json;

    if ((e->blocks->open == kind) && (kind != BT_API_BLOCK_TOOL_USE)) {
        return;
    }
    close_block(e);
    json = open_event(e, "content_block_start");
    bt_json_u64(json, "index", e->blocks->n++);
    bt_json_object(json, "content_block");
    if (kind == BT_API_BLOCK_THINKING) {
        put_thinking("", 0, json);
    } else if (kind == BT_API_BLOCK_TEXT) {
        bt_json_str(json, "type", "text");
        bt_json_str(json, "text", "");
    } else {
        put_call_head(e->answer, e->piece, call, json);
        bt_json_raw(json, "input", "{}");
    }
    bt_json_end_object(json);
    close_event(e);
    e->blocks->open = kind;
}

/* Writes more text of the open block. */
static void put_delta(events_t *e, const char *type, const char *key,
                      const char *text, size_t bytes)
{
    bt_json_t *json;

    if (bytes == 0) {
        return;
    }
    json = open_event(e, "content_block_delta");
    bt_json_u64(json, "index", e->blocks->n - 1);
    bt_json_object(json, "delta");
    bt_json_str(json, "type", type);
    bt_json_strn(json, key, text, bytes);
    bt_json_end_object(json);
    close_event(e);
}

/* Writes arguments of the open call. @param [in] from  bytes sent before */
static void put_arguments(events_t *e, uint32_t call, size_t from)
{
    const bt_strbuf_t *arguments = &e->piece->calls[call].arguments;

    if (arguments->len > from) {
        put_delta(e, "input_json_delta", "partial_json", arguments->data + from,
                  arguments->len - from);
    }
}

/* Writes the piece's text up to a byte of the whole text. */
static void put_text_to(events_t *e, size_t to)
{
    const bt_api_choice_t *piece = e->piece;
    const size_t end = e->text_from + piece->text_bytes;
    const size_t from = e->blocks->n_text_bytes;

    to = (to < end) ? to : end;
    if (to > from) {
        open_block(e, BT_API_BLOCK_TEXT, 0);
        put_delta(e, "text_delta", "text", piece->text + (from - e->text_from),
                  to - from);
        e->blocks->n_text_bytes = to;
    }
}

/* Writes new text and calls, in the order in which the model wrote them. */
static void put_rest(events_t *e)
{
    const bt_api_choice_t *piece = e->piece;

    if (e->blocks->open == BT_API_BLOCK_TOOL_USE) {
        put_arguments(e, piece->n_calls_sent - 1, piece->args_sent);
    }
    for (uint32_t i = piece->n_calls_sent; i < piece->n_calls; i++) {
        put_text_to(e, piece->calls[i].text_before);
        open_block(e, BT_API_BLOCK_TOOL_USE, i);
        put_arguments(e, i, 0);
    }
    put_text_to(e, SIZE_MAX);
}

void bt_api_write_anthropic_start(const bt_api_answer_t *answer,
                                  bt_api_blocks_t *blocks, bt_strbuf_t *out)
{
    events_t e = {.answer = answer, .blocks = blocks, .out = out};

    put_start(&e);
}

void bt_api_write_anthropic_events(const bt_api_answer_t *answer,
                                   const bt_api_choice_t *piece,
                                   const bt_api_usage_t *usage,
                                   bt_api_blocks_t *blocks, bt_strbuf_t *out)
{
    events_t e = {.answer = answer,
                  .piece = piece,
                  .blocks = blocks,
                  .text_from = blocks->n_text_bytes,
                  .out = out};
    bt_json_t *json;

    put_start(&e);
    if (piece->thought_bytes > 0) {
        open_block(&e, BT_API_BLOCK_THINKING, 0);
        put_delta(&e, "thinking_delta", "thinking", piece->thought,
                  piece->thought_bytes);
    }
    put_rest(&e);
    if (piece->finish == BT_FINISH_NONE) {
        return;
    }
    close_block(&e);
    json = open_event(&e, "message_delta");
    bt_json_object(json, "delta");
    put_stop(piece, json);
    bt_json_end_object(json);
    put_usage(usage, json);
    close_event(&e);
    (void)open_event(&e, "message_stop");
    close_event(&e);
}

/* ---- errors ---- */

static const char *error_type(int http_status)
{
    switch (http_status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    case 504:
        return "timeout_error";
    default:
        return (http_status < 500) ? "invalid_request_error" : "api_error";
    }
}

void bt_api_put_anthropic_error(const bt_api_error_t *error, bt_json_t *json)
{
    bt_json_str(json, "type", "error");
    bt_json_object(json, "error");
    bt_json_str(json, "type", error_type(error->http_status));
    bt_json_str(json, "message", error->message);
    bt_json_end_object(json);
}

void bt_api_write_anthropic_error_event(const bt_api_error_t *error,
                                        bt_strbuf_t *out)
{
    bt_json_t json;

    bt_strbuf_puts(out, "event: error\ndata: ");
    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    bt_api_put_anthropic_error(error, &json);
    bt_json_end_object(&json);
    bt_strbuf_puts(out, "\n\n");
}
