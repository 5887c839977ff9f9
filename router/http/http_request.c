/* SPDX-License-Identifier: Apache-2.0 */
/* Requests over HTTP, and their answers: one JSON body, server-sent events, or
 * lines of JSON. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/frontend/adapter_loads.h"
#include "router/http/door_priv.h"
#include "router/triton/infer_json.h"

/* Triton's clients compare this text exactly. */
#define EVENT_STREAM "text/event-stream; charset=utf-8"
#define JSON_LINES   "application/x-ndjson"
#define REQUEST_ID   "X-Request-Id"

/* ---- life ---- */

static const bt_request_ops_t http_ops;

static const char *method_name(const bt_exchange_t *ex)
{
    static const char *const names[] = {[BT_HTTP_GET] = "GET",
                                        [BT_HTTP_HEAD] = "HEAD",
                                        [BT_HTTP_POST] = "POST",
                                        [BT_HTTP_DELETE] = "DELETE",
                                        [BT_HTTP_OTHER] = "other"};

    return names[bt_exchange_method(ex)];
}

bt_http_request_t *bt_http_request_begin(bt_door_t *door, bt_exchange_t *ex,
                                         const char *route,
                                         bt_api_dialect_t dialect)
{
    static const char answer[] = "{\"error\":\"out of memory\"}";
    bt_http_request_t *r;
    bt_request_t *base = bt_request_create(door->front, &http_ops, sizeof(*r));

    if (base == NULL) {
        bt_router_metrics_http(door->front->metrics, route, method_name(ex),
                               503);
        bt_exchange_add_header(ex, "Retry-After", "1");
        bt_exchange_respond(ex, 503, BT_JSON_TYPE, answer, sizeof(answer) - 1);
        return NULL;
    }
    r = bt_http_of(base);
    r->door = door;
    r->ex = ex;
    r->route = route;
    base->dialect = dialect;
    base->request_id = r->id;
    bt_exchange_ids(ex, &base->client.address, &base->client.connection);
    bt_list_init(&r->waits);
    bt_list_init(&r->stream);
    bt_request_id(&door->front->ids, bt_exchange_header(ex, REQUEST_ID), r->id);
    bt_exchange_add_header(ex, REQUEST_ID, r->id);
    if ((dialect == BT_API_ANTHROPIC) || (dialect == BT_API_ANTHROPIC_COUNT)) {
        bt_exchange_add_header(ex, "request-id", r->id);
    }
    if (door->front->access != NULL) {
        bt_exchange_client(ex, r->client);
    }
    bt_exchange_set_user(ex, r);
    return r;
}

/* Logs the request, which is over; @return its exchange, for the last bytes. */
static bt_exchange_t *leave(bt_http_request_t *r, int http_status)
{
    bt_exchange_t *ex = r->ex;
    bt_access_t access = {
        .id = r->id,
        .client = r->client,
        .method = method_name(ex),
        .route = r->route,
        .path = bt_exchange_path(ex),
        .tenant = (r->base.tenant != NULL) ? r->base.tenant->name : NULL,
    };

    bt_request_close(&r->base);
    bt_request_move(&r->base, BT_REQUEST_LOG);
    bt_request_log(r->door->front, &access, &r->base.facts, r->base.start_us,
                   http_status);
    bt_exchange_set_user(ex, NULL);
    bt_list_remove(&r->waits);
    bt_list_remove(&r->stream);
    bt_request_unref(&r->base);
    return ex;
}

void bt_http_request_respond(bt_http_request_t *r, int status, const char *type,
                             const void *body, size_t bytes)
{
    bt_exchange_respond(leave(r, status), status, type, body, bytes);
}

void bt_http_request_respond_take(bt_http_request_t *r, const char *type,
                                  bt_strbuf_t *body)
{
    bt_exchange_respond_take(leave(r, 200), 200, type, body);
}

bool bt_http_request_begin_pieces(bt_http_request_t *r, const char *type,
                                  uint64_t bytes)
{
    r->began = true;
    return bt_exchange_pieces_begin(r->ex, type, bytes);
}

void bt_http_request_end_pieces(bt_http_request_t *r, bt_strbuf_t *last)
{
    bt_exchange_pieces_end(leave(r, 200), last);
}

static void add_header(void *ctx, const char *name, const char *value)
{
    bt_exchange_add_header(ctx, name, value);
}

/* Adds rate-limit headers of the tenant. Before the head is sent. */
static void add_limit_headers(bt_http_request_t *r)
{
    if (r->base.tenant != NULL) {
        bt_tenant_tell_limits(r->base.tenant, bt_now_us(), add_header, r->ex);
    }
}

void bt_http_request_fail(bt_http_request_t *r, const bt_api_error_t *error)
{
    bt_strbuf_t *out = &r->door->out;
    char retry[16];

    if ((error->http_status == 429) || (error->http_status == 503)) {
        snprintf(retry, sizeof(retry), "%u",
                 (error->retry_after_s > 0) ? error->retry_after_s : 1);
        bt_exchange_add_header(r->ex, "Retry-After", retry);
        add_limit_headers(r);
    }
    bt_strbuf_reset(out);
    bt_api_write_error(r->base.dialect, error, out);
    bt_http_request_respond(r, error->http_status, BT_JSON_TYPE,
                            (out->len > 0) ? out->data : "", out->len);
}

void bt_http_request_error(bt_http_request_t *r, int status, const char *param,
                           const char *fmt, ...)
{
    bt_api_error_t error;
    char message[sizeof(error.message)];
    va_list args;

    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    bt_api_error_set(&error, status, param, "%s", message);
    bt_http_request_fail(r, &error);
}

void bt_door_turn(void *ctx)
{
    const bt_door_t *door = ctx;

    bt_frontend_turn(door->front);
}

/* Errors of the HTTP server itself have no request. */
void bt_door_format_error(void *ctx, const char *path, int status,
                          const char *message, bt_strbuf_t *out)
{
    bt_door_t *door = ctx;
    bt_api_error_t error = {0};

    bt_router_metrics_http(door->front->metrics, "none", "other", status);
    bt_api_error_set(&error, status, NULL, "%s", message);
    bt_api_write_error(bt_door_dialect_of(path), &error, out);
}

/* @param cached  Cache-Control of the answer. Proxies like nginx must not
 *   buffer events. */
static void begin_events(bt_http_request_t *r, const char *cached,
                         const char *type)
{
    r->began = true;
    bt_exchange_add_header(r->ex, "Cache-Control", cached);
    bt_exchange_add_header(r->ex, "X-Accel-Buffering", "no");
    bt_exchange_stream_begin(r->ex, type);
}

void bt_http_request_begin_stream(bt_http_request_t *r)
{
    begin_events(r, "no-store", EVENT_STREAM);
}

void bt_http_request_end_stream(bt_http_request_t *r, const bt_strbuf_t *last)
{
    bt_exchange_stream_end(leave(r, 200), last->data, last->len);
}

/* ---- answers ---- */

/* Adds the header for ignored fields. Before the head is sent. */
static void add_ignored_header(bt_http_request_t *r)
{
    char *const ignored = r->base.facts.ignored;

    if (ignored[0] != '\0') {
        bt_exchange_add_header(r->ex, "X-Baton-Ignored-Fields", ignored);
        ignored[0] = '\0';
    }
}

/* Adds headers to an answer that is not an error. Before the head is sent. */
static void add_answer_headers(bt_http_request_t *r)
{
    add_ignored_header(r);
    add_limit_headers(r);
}

/* ---- events of a stream, by dialect ---- */

/* Writers of events; each appends to the door's scratch buffer, or nothing.
 * begin and end may be NULL. */
typedef struct events {
    bool is_lines; /* lines of JSON, which have no comments */
    void (*begin)(bt_http_request_t *r, const bt_api_answer_t *answer);
    void (*piece)(bt_http_request_t *r, const bt_api_answer_t *answer,
                  const bt_api_choice_t *choice, bool first,
                  const bt_api_usage_t *usage);
    void (*end)(bt_http_request_t *r, const bt_api_answer_t *answer,
                const bt_api_usage_t *usage);
    void (*error)(bt_http_request_t *r, const bt_api_error_t *error);
} events_t;

static void chunks_piece(bt_http_request_t *r, const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bool first,
                         const bt_api_usage_t *usage)
{
    bt_api_write_chunks(answer, choice, first, usage, &r->door->out);
}

/* Usage and "[DONE]", in one write with the end of the chunks. */
static void chunks_end(bt_http_request_t *r, const bt_api_answer_t *answer,
                       const bt_api_usage_t *usage)
{
    bt_strbuf_t *out = &r->door->out;

    if (answer->include_usage) {
        bt_strbuf_puts(out, "data: ");
        bt_api_write_usage(answer, usage, out);
        bt_strbuf_puts(out, "\n\n");
    }
    bt_strbuf_puts(out, "data: [DONE]\n\n");
}

static void chunks_error(bt_http_request_t *r, const bt_api_error_t *error)
{
    bt_strbuf_puts(&r->door->out, "data: ");
    bt_api_write_error(r->base.dialect, error, &r->door->out);
    bt_strbuf_puts(&r->door->out, "\n\n");
}

/* generate has no field for the finish reason, so an empty last event would
 * carry nothing; OpenAI's last event of a choice carries it. */
static void generate_piece(bt_http_request_t *r, const bt_api_answer_t *answer,
                           const bt_api_choice_t *choice, bool first,
                           const bt_api_usage_t *usage)
{
    if (!choice->no_new_text || first || (choice->rows != NULL)) {
        chunks_piece(r, answer, choice, first, usage);
    }
}

static void responses_begin(bt_http_request_t *r, const bt_api_answer_t *answer)
{
    bt_api_write_begin_events(answer, &r->events, &r->door->out);
}

/* Its last piece has the end. */
static void responses_piece(bt_http_request_t *r, const bt_api_answer_t *answer,
                            const bt_api_choice_t *choice, bool first,
                            const bt_api_usage_t *usage)
{
    (void)first;
    bt_api_write_events(answer, choice, usage, &r->events, &r->door->out);
}

static void responses_error(bt_http_request_t *r, const bt_api_error_t *error)
{
    bt_api_write_error_event(error, &r->events, &r->door->out);
}

static void anthropic_begin(bt_http_request_t *r, const bt_api_answer_t *answer)
{
    bt_api_write_anthropic_start(answer, &r->blocks, &r->door->out);
}

/* Its last piece has the end. */
static void anthropic_piece(bt_http_request_t *r, const bt_api_answer_t *answer,
                            const bt_api_choice_t *choice, bool first,
                            const bt_api_usage_t *usage)
{
    (void)first;
    bt_api_write_anthropic_events(answer, choice, usage, &r->blocks,
                                  &r->door->out);
}

static void anthropic_error(bt_http_request_t *r, const bt_api_error_t *error)
{
    bt_api_write_anthropic_error_event(error, &r->door->out);
}

/* Its last piece has the end. */
static void ollama_piece(bt_http_request_t *r, const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bool first,
                         const bt_api_usage_t *usage)
{
    (void)first;
    bt_api_write_ollama_lines(answer, choice, usage, &r->door->out);
}

static void ollama_error(bt_http_request_t *r, const bt_api_error_t *error)
{
    bt_api_write_ollama_error_line(error, &r->door->out);
}

#define LINES                                                          \
    {                                                                  \
        .is_lines = true, .piece = ollama_piece, .error = ollama_error \
    }
#define CHUNKS                                                          \
    {                                                                   \
        .piece = chunks_piece, .end = chunks_end, .error = chunks_error \
    }

static const events_t events[] = {
    [BT_API_GENERATE] = {.piece = generate_piece, .error = chunks_error},
    [BT_API_COMPLETIONS] = CHUNKS,
    [BT_API_CHAT] = CHUNKS,
    [BT_API_TOKENIZE] = CHUNKS,
    [BT_API_DETOKENIZE] = CHUNKS,
    [BT_API_RESPONSES] = {.begin = responses_begin,
                          .piece = responses_piece,
                          .error = responses_error},
    [BT_API_ANTHROPIC] = {.begin = anthropic_begin,
                          .piece = anthropic_piece,
                          .error = anthropic_error},
    [BT_API_ANTHROPIC_COUNT] = CHUNKS,
    [BT_API_GENERATE_TOKENS] = CHUNKS,
    [BT_API_OLLAMA_CHAT] = LINES,
    [BT_API_OLLAMA_GENERATE] = LINES,
};

/* @return the empty scratch buffer */
static bt_strbuf_t *clear(const bt_http_request_t *r)
{
    bt_strbuf_reset(&r->door->out);
    return &r->door->out;
}

static void on_error(bt_request_t *request, const bt_api_error_t *error)
{
    bt_http_request_t *r = bt_http_of(request);
    bt_strbuf_t *out = clear(r);

    if (!r->began) {
        add_ignored_header(r);
        bt_http_request_fail(r, error);
        return;
    }
    events[r->base.dialect].error(r, error);
    bt_exchange_stream_end(leave(r, error->http_status),
                           (out->len > 0) ? out->data : "", out->len);
}

void bt_http_request_fail_for_memory(bt_http_request_t *r)
{
    bt_api_error_t error = {0};

    bt_request_close(&r->base);
    bt_api_error_set(&error, 503, NULL, "out of memory for this answer");
    on_error(&r->base, &error);
}

void bt_http_request_fail_for_length(bt_http_request_t *r)
{
    bt_http_request_error(
        r, 400, NULL,
        "the answer is more than the %u bytes that one has room "
        "for; ask for fewer log-probs or logits, or for outputs "
        "of infer with the parameter binary_data",
        BT_ANSWER_LIMIT);
}

/* ---- comments in streams that are silent ---- */

/* Returns the keep-alive comment for a client, NULL: none. The blank line after
 * it does not end an event, as there is none (the HTML standard, 9.2.6), and
 * clients that split a stream at blank lines before they look for comments need
 * it. */
static const char *comment_for(const bt_exchange_t *ex)
{
    static const struct {
        const char *agent; /* prefix of its User-Agent */
        const char *comment;
    } clients[] = {
        /* openai-go treats each blank line as an event and parses its empty
         * data as JSON. */
        {"OpenAI/Go", ": keep-alive\n"},
        /* perf_analyzer, which uses this name, counts everything it reads as a
         * token. */
        {"libcurl-agent/1.0", NULL},
    };
    const char *agent = bt_exchange_header(ex, "User-Agent");

    for (size_t i = 0; (agent != NULL) && (i < BT_ARRAY_LEN(clients)); i++) {
        if (strncmp(agent, clients[i].agent, strlen(clients[i].agent)) == 0) {
            return clients[i].comment;
        }
    }
    return ": keep-alive\n\n";
}

/* Most recently written streams are at the end. */
static void note_written(bt_http_request_t *r, uint64_t now_us)
{
    if (r->comment != NULL) {
        r->written_us = now_us;
        bt_list_remove(&r->stream);
        bt_list_push_back(&r->door->streams, &r->stream);
    }
}

void bt_door_keep_alive(bt_door_t *door, uint64_t now_us)
{
    const uint64_t silent_us =
        (uint64_t)door->front->config->sse_keepalive_s * 1000000;

    while (!bt_list_empty(&door->streams)) {
        bt_http_request_t *r =
            BT_CONTAINER_OF(door->streams.next, bt_http_request_t, stream);

        if (now_us < r->written_us + silent_us) {
            break;
        }
        note_written(r, now_us);
        /* The client may be gone, and the request with it. */
        (void)bt_exchange_stream_write(r->ex, r->comment, strlen(r->comment));
    }
}

/* Sends the head of a stream. */
static void begin_answer(bt_http_request_t *r)
{
    const bool is_lines = events[r->base.dialect].is_lines;

    add_answer_headers(r);
    if ((r->door->front->config->sse_keepalive_s > 0) && !is_lines) {
        r->comment = comment_for(r->ex);
    }
    begin_events(r, "no-cache", is_lines ? JSON_LINES : EVENT_STREAM);
}

void bt_http_request_begin_answer(bt_http_request_t *r)
{
    if (!r->began) {
        begin_answer(r);
    }
}

/* Sends the door's scratch buffer. On a failure the client is gone, and
 * bt_door_gone() was called, or memory was short and the error was sent. */
static void send_event(bt_http_request_t *r)
{
    const bt_strbuf_t *out = &r->door->out;

    if (bt_strbuf_status(out) != BT_OK) {
        bt_http_request_fail_for_memory(r);
        return;
    }
    if (out->len == 0) {
        return;
    }
    if (!r->began) {
        begin_answer(r);
    }
    note_written(r, bt_now_us());
    (void)bt_exchange_stream_write(r->ex, out->data, out->len);
}

/* Shows clients, and proxies, that the request is in progress. */
static void on_begin(bt_row_t *row)
{
    bt_http_request_t *r = bt_http_of(row->request);

    if (!r->began) {
        begin_answer(r);
        note_written(r, bt_now_us());
    }
    (void)clear(r);
    if (events[r->base.dialect].begin != NULL) {
        events[r->base.dialect].begin(r, &row->answer);
    }
    send_event(r);
}

/* Holds back the last events of a response that is stored.
 * @return false: it is not, which the events then say */
static bool hold_last(bt_http_request_t *r, bt_row_t *row,
                      const bt_api_choice_t *choice,
                      const bt_api_usage_t *usage)
{
    const bt_api_events_t before = r->events;
    bt_strbuf_t *out = clear(r);

    bt_api_write_events(&row->answer, choice, usage, &r->events, out);
    if ((bt_strbuf_status(out) == BT_OK) &&
        bt_response_save_hold(r, row, out)) {
        return true;
    }
    r->events = before;
    row->answer.is_stored = false;
    return false;
}

static void on_piece(bt_row_t *row, const bt_api_choice_t *choice, bool first,
                     const bt_api_usage_t *usage)
{
    bt_http_request_t *r = bt_http_of(row->request);

    if (row->answer.is_stored && (choice->finish != BT_FINISH_NONE) &&
        hold_last(r, row, choice, usage)) {
        return;
    }
    (void)clear(r);
    events[r->base.dialect].piece(r, &row->answer, choice, first, usage);
    send_event(r);
}

static void on_finish(bt_row_t *row, const bt_api_choice_t *choices, size_t n,
                      const bt_api_usage_t *usage)
{
    bt_http_request_t *r = bt_http_of(row->request);
    const bt_api_answer_t *answer = &row->answer;
    bt_strbuf_t *out = clear(r);

    if (r->saving != NULL) {
        bt_response_save_end(r);
        return;
    }
    if (n == 0) {
        if (events[r->base.dialect].end != NULL) {
            events[r->base.dialect].end(r, answer, usage);
        }
        bt_exchange_stream_end(leave(r, 200), (out->len > 0) ? out->data : "",
                               out->len);
        return;
    }
    if (answer->is_stored) {
        add_answer_headers(r);
        if (!bt_response_save_begin(r, row, choices, usage)) {
            bt_http_request_fail_for_memory(r);
        }
        return;
    }
    bt_request_close(&r->base);
    add_answer_headers(r);
    if (bt_api_answer_bytes(answer, choices, n) > r->door->inline_bytes) {
        if (!bt_answer_begin(r, answer, choices, n, usage)) {
            bt_http_request_fail_for_memory(r);
        }
        return;
    }
    bt_api_write_answer(answer, choices, n, usage, out);
    if (bt_strbuf_status(out) != BT_OK) {
        bt_http_request_fail_for_memory(r);
        return;
    }
    bt_http_request_respond(r, 200, BT_JSON_TYPE, out->data, out->len);
}

static void destroy(bt_request_t *request)
{
    bt_unpack_free(bt_http_of(request)->unpack);
    bt_response_save_free(bt_http_of(request)->saving);
}

static const bt_request_ops_t http_ops = {
    .admit = bt_text_admit,
    .parse = bt_text_parse,
    .parsed = bt_text_parsed,
    .begin = on_begin,
    .piece = on_piece,
    .finish = on_finish,
    .error = on_error,
    .destroy = destroy,
};

static void begin_generate(bt_http_request_t *r, bt_strbuf_t *body)
{
    bt_request_begin(&r->base, body);
}

void bt_http_request_generate(bt_http_request_t *r, bool stream)
{
    r->base.stream = stream;
    bt_http_request_take_body(r, begin_generate);
}

/* ---- tensors ---- */

static void on_tensors(bt_request_t *request, const bt_infer_response_t *whole)
{
    bt_answer_tensors(bt_http_of(request), whole);
}

static const bt_infer_ops_t infer_ops = {
    .piece = NULL, /* there is no stream here */
    .finish = on_tensors,
};

/* Returns the length of the JSON part: from a header of its own, or in the
 * content type, as with SageMaker and Vertex AI; NULL: absent. */
static const char *find_length(const bt_exchange_t *ex)
{
    static const char key[] = "json-header-size=";
    const char *text = bt_exchange_header(ex, BT_INFER_LENGTH_HEADER);

    if (text == NULL) {
        const char *type = bt_exchange_header(ex, "Content-Type");

        text = (type != NULL) ? strstr(type, key) : NULL;
        text = (text != NULL) ? text + strlen(key) : NULL;
    }
    return text;
}

/* @return false if it is no number of bytes. */
static bool read_length(const char *text, bt_infer_http_t *http)
{
    *http = (bt_infer_http_t){.has_json_bytes = text != NULL};
    return (text == NULL) || bt_parse_u64(text, &http->json_bytes);
}

static void begin_infer(bt_http_request_t *r, bt_strbuf_t *body)
{
    char client[BT_HTTP_CLIENT_BYTES] = "";
    bt_infer_http_t http;
    const bt_infer_source_t source = {
        .ops = &infer_ops,
        .peer = client,
        .parse = bt_infer_parse_json,
        .parse_ctx = &http,
        .parse_ctx_bytes = sizeof(http),
    };
    if (!read_length(find_length(r->ex), &http)) {
        bt_strbuf_fini(body);
        bt_http_request_error(r, 400, NULL,
                              BT_INFER_LENGTH_HEADER " is no number of bytes");
        return;
    }
    bt_exchange_client(r->ex, client);
    bt_infer_begin(&r->base, &source, body);
}

void bt_http_request_infer(bt_http_request_t *r)
{
    bt_http_request_take_body(r, begin_infer);
}

void bt_door_sent(void *door, bt_exchange_t *ex)
{
    bt_http_request_t *r = bt_exchange_user(ex);

    (void)door;
    if ((r != NULL) && (r->download != NULL)) {
        bt_download_go_on(r->download);
    }
}

void bt_door_gone(void *door, bt_exchange_t *ex)
{
    bt_http_request_t *r = bt_exchange_user(ex);

    (void)door;
    if (r == NULL) {
        return;
    }
    bt_request_gone(&r->base);
    if (r->watcher != NULL) {
        bt_watcher_leave(r->watcher);
    }
    if (r->control != NULL) {
        bt_model_control_leave(r->control);
    }
    if (r->updating != NULL) {
        bt_weight_update_leave(r->updating, r);
    }
    if (r->adapting != NULL) {
        bt_adapter_load_leave(r->adapting, r);
    }
    if (r->download != NULL) {
        bt_download_leave(r->download);
    }
    if (r->reading != NULL) {
        bt_pool_cancel(r->base.front->pool, &r->reading->work.job);
    }
    if (r->is_pausing) {
        bt_router_pause_forget(&r->pause);
    }
    if (r->waits_for_sleep) {
        bt_router_sleep_forget(&r->sleep);
    }
    (void)leave(r, BT_REQUEST_CLIENT_LEFT);
}
