/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of calls as HTTP: one JSON body, or server-sent events. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/clock.h"
#include "router/http/door_priv.h"

/* Triton's clients compare this text exactly. */
#define EVENT_STREAM "text/event-stream; charset=utf-8"
/* Status in the log for a client that left, as in nginx. */
#define CLIENT_LEFT 499
#define REQUEST_ID  "X-Request-Id"

/* ---- the visit ---- */

static const char *method_name(const bt_exchange_t *ex)
{
    switch (bt_exchange_method(ex)) {
    case BT_HTTP_GET:
        return "GET";
    case BT_HTTP_HEAD:
        return "HEAD";
    case BT_HTTP_POST:
        return "POST";
    default:
        return "other";
    }
}

bt_visit_t *bt_visit_begin(bt_door_t *door, bt_exchange_t *ex,
                           const char *route, bt_api_dialect_t dialect)
{
    static const char answer[] = "{\"error\":\"out of memory\"}";
    bt_visit_t *visit = bt_calloc(1, sizeof(*visit));

    if (visit == NULL) {
        bt_router_metrics_http(door->front->metrics, route, method_name(ex),
                               503);
        bt_exchange_add_header(ex, "Retry-After", "1");
        bt_exchange_respond(ex, 503, BT_JSON_TYPE, answer, sizeof(answer) - 1);
        return NULL;
    }
    visit->door = door;
    visit->ex = ex;
    visit->route = route;
    visit->dialect = dialect;
    visit->start_us = bt_now_us();
    bt_list_init(&visit->waits);
    bt_list_init(&visit->stream);
    bt_request_id(&door->front->ids, bt_exchange_header(ex, REQUEST_ID),
                  visit->id);
    bt_exchange_add_header(ex, REQUEST_ID, visit->id);
    if (door->front->access != NULL) {
        bt_exchange_client(ex, visit->client);
    }
    bt_exchange_set_user(ex, visit);
    return visit;
}

static const char *finish_name(bt_finish_t finish, int code)
{
    if (code == CLIENT_LEFT) {
        return "canceled";
    }
    switch (finish) {
    case BT_FINISH_STOP:
        return "stop";
    case BT_FINISH_LENGTH:
        return "length";
    case BT_FINISH_ERROR:
        return "error";
    default:
        return "";
    }
}

static void log_visit(const bt_visit_t *visit, int code)
{
    const bt_reply_facts_t *facts = &visit->reply.facts;
    const uint64_t now_us = bt_now_us();
    const bool generated = facts->n_prompt > 0;
    const bt_access_t access = {
        .unix_ms =
            (bt_unix_minus_monotonic_ns() + (int64_t)now_us * 1000) / 1000000,
        .id = visit->id,
        .client = visit->client,
        .method = method_name(visit->ex),
        .route = visit->route,
        .path = bt_exchange_path(visit->ex),
        .status = (uint32_t)code,
        .model = facts->model,
        .generated = generated,
        .n_prompt = facts->n_prompt,
        .n_output = facts->n_output,
        .first_us = facts->first_token_us,
        .total_us = now_us - visit->start_us,
        .prefill = facts->prefill,
        .decode = facts->decode,
        .finish = generated ? finish_name(facts->finish, code) : "",
        .tenant = (visit->tenant != NULL) ? visit->tenant->name : facts->tenant,
        .answer_id = facts->answer_id,
        .trace_id = facts->trace_id,
    };

    bt_access_log_add(visit->door->front->access, &access);
}

/* Ends the visit; @return its exchange, for the last bytes. */
static bt_exchange_t *leave(bt_visit_t *visit, int code)
{
    bt_exchange_t *ex = visit->ex;

    bt_router_metrics_http(visit->door->front->metrics, visit->route,
                           method_name(ex), code);
    if (visit->door->front->access != NULL) {
        log_visit(visit, code);
    }
    bt_exchange_set_user(ex, NULL);
    bt_tenant_unref(visit->tenant);
    bt_list_remove(&visit->waits);
    bt_list_remove(&visit->stream);
    bt_free(visit);
    return ex;
}

void bt_visit_respond(bt_visit_t *visit, int status, const char *type,
                      const void *body, size_t bytes)
{
    bt_exchange_respond(leave(visit, status), status, type, body, bytes);
}

void bt_visit_respond_take(bt_visit_t *visit, int status, const char *type,
                           bt_strbuf_t *body)
{
    bt_exchange_respond_take(leave(visit, status), status, type, body);
}

static void add_header(void *ctx, const char *name, const char *value)
{
    bt_exchange_add_header(ctx, name, value);
}

/* Adds rate-limit headers of the tenant. Before the head is sent. */
static void tell_limits(bt_visit_t *visit)
{
    if (visit->tenant != NULL) {
        bt_tenant_tell_limits(visit->tenant, bt_now_us(), add_header,
                              visit->ex);
    }
}

void bt_visit_fail(bt_visit_t *visit, const bt_api_error_t *error)
{
    bt_strbuf_t *out = &visit->door->out;
    char retry[16];

    if ((error->http_status == 429) || (error->http_status == 503)) {
        snprintf(retry, sizeof(retry), "%u",
                 (error->retry_after_s > 0) ? error->retry_after_s : 1);
        bt_exchange_add_header(visit->ex, "Retry-After", retry);
        tell_limits(visit);
    }
    bt_strbuf_reset(out);
    bt_api_write_error(visit->dialect, error, out);
    bt_visit_respond(visit, error->http_status, BT_JSON_TYPE,
                     (out->len > 0) ? out->data : "", out->len);
}

void bt_door_turn(void *ctx)
{
    const bt_door_t *door = ctx;

    bt_frontend_turn(door->front);
}

/* Errors of the HTTP server itself have no visit. */
void bt_door_format_error(void *ctx, const char *path, int status,
                          const char *message, bt_strbuf_t *out)
{
    bt_door_t *door = ctx;
    bt_api_error_t error = {0};

    bt_router_metrics_http(door->front->metrics, "none", "other", status);
    bt_api_error_set(&error, status,
                     (status >= 500) ? "server_error" : "invalid_request_error",
                     NULL, "%s", message);
    bt_api_write_error(bt_door_dialect_of(path), &error, out);
}

/* @param cached  Cache-Control of the answer. Proxies like nginx must not
 *   buffer events. */
static void begin_events(bt_visit_t *visit, const char *cached)
{
    visit->began = true;
    bt_exchange_add_header(visit->ex, "Cache-Control", cached);
    bt_exchange_add_header(visit->ex, "X-Accel-Buffering", "no");
    bt_exchange_stream_begin(visit->ex, EVENT_STREAM);
}

void bt_visit_begin_stream(bt_visit_t *visit)
{
    begin_events(visit, "no-store");
}

void bt_visit_end_stream(bt_visit_t *visit, const bt_strbuf_t *last)
{
    bt_exchange_stream_end(leave(visit, 200), last->data, last->len);
}

/* ---- the reply of a call ---- */

/* Adds the header for ignored fields. Before the head is sent. */
static void tell_ignored(bt_visit_t *visit)
{
    char *const ignored = visit->reply.facts.ignored;

    if (ignored[0] != '\0') {
        bt_exchange_add_header(visit->ex, "X-Baton-Ignored-Fields", ignored);
        ignored[0] = '\0';
    }
}

/* Adds headers to an answer that is not an error. Before the head is sent. */
static void tell_head(bt_visit_t *visit)
{
    tell_ignored(visit);
    tell_limits(visit);
}

static void open_event(bt_strbuf_t *out)
{
    bt_strbuf_puts(out, "data: ");
}

static void close_event(bt_strbuf_t *out)
{
    bt_strbuf_puts(out, "\n\n");
}

static void on_error(bt_reply_t *reply, const bt_api_error_t *error)
{
    bt_visit_t *visit = (bt_visit_t *)reply;
    bt_strbuf_t *out = &visit->door->out;

    if (!visit->began) {
        tell_ignored(visit);
        bt_visit_fail(visit, error);
        return;
    }
    bt_strbuf_reset(out);
    if (visit->dialect == BT_API_RESPONSES) {
        bt_api_write_error_event(error, &visit->sequence, out);
    } else {
        open_event(out);
        bt_api_write_error(visit->dialect, error, out);
        close_event(out);
    }
    bt_exchange_stream_end(leave(visit, error->http_status),
                           (out->len > 0) ? out->data : "", out->len);
}

/* Fails a visit whose answer cannot be encoded: running generations are
 * canceled. */
void bt_visit_fail_for_memory(bt_visit_t *visit)
{
    bt_api_error_t error = {0};

    if (visit->reply.call != NULL) {
        bt_call_gone(visit->reply.call);
    }
    bt_api_error_set(&error, 503, "server_error", NULL,
                     "out of memory for this answer");
    on_error(&visit->reply, &error);
}

void bt_visit_fail_for_length(bt_visit_t *visit)
{
    bt_api_error_t error = {0};

    bt_api_error_set(&error, 400, "invalid_request_error", NULL,
                     "the answer is more than the %u bytes that one has room "
                     "for; ask for fewer log-probs or logits, or for outputs "
                     "of infer with the parameter binary_data",
                     BT_ANSWER_LIMIT);
    bt_visit_fail(visit, &error);
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
static void note_written(bt_visit_t *visit, uint64_t now_us)
{
    if (visit->comment != NULL) {
        visit->written_us = now_us;
        bt_list_remove(&visit->stream);
        bt_list_push_back(&visit->door->streams, &visit->stream);
    }
}

void bt_door_keep_alive(bt_door_t *door, uint64_t now_us)
{
    const uint64_t silent_us =
        (uint64_t)door->front->config->sse_keepalive_s * 1000000;

    while (!bt_list_empty(&door->streams)) {
        bt_visit_t *visit =
            BT_CONTAINER_OF(door->streams.next, bt_visit_t, stream);

        if (now_us < visit->written_us + silent_us) {
            break;
        }
        note_written(visit, now_us);
        /* The client may be gone, and the visit with it. */
        (void)bt_exchange_stream_write(visit->ex, visit->comment,
                                       strlen(visit->comment));
    }
}

/* Sends the head of an event stream. */
static void begin_answer(bt_visit_t *visit)
{
    tell_head(visit);
    if (visit->door->front->config->sse_keepalive_s > 0) {
        visit->comment = comment_for(visit->ex);
    }
    begin_events(visit, "no-cache");
}

/* Sends the door's scratch buffer. On a failure the client is gone, and
 * bt_door_gone() was called, or memory was short and the error was sent. */
static void send_event(bt_visit_t *visit)
{
    const bt_strbuf_t *out = &visit->door->out;

    if (bt_strbuf_status(out) != BT_OK) {
        bt_visit_fail_for_memory(visit);
        return;
    }
    if (!visit->began) {
        begin_answer(visit);
    }
    note_written(visit, bt_now_us());
    (void)bt_exchange_stream_write(visit->ex, out->data, out->len);
}

/* Shows clients, and proxies, that the request is in progress; for responses
 * with events of their own. */
static void on_begin(bt_reply_t *reply, const bt_api_answer_t *answer)
{
    bt_visit_t *visit = (bt_visit_t *)reply;
    bt_strbuf_t *out = &visit->door->out;

    if (!visit->began) {
        begin_answer(visit);
        note_written(visit, bt_now_us());
    }
    if (visit->dialect == BT_API_RESPONSES) {
        bt_strbuf_reset(out);
        bt_api_write_begin_events(answer, &visit->sequence, out);
        send_event(visit);
    }
}

static void on_piece(bt_reply_t *reply, const bt_api_answer_t *answer,
                     const bt_api_choice_t *choice, bool first,
                     const bt_api_usage_t *usage)
{
    bt_visit_t *visit = (bt_visit_t *)reply;
    bt_strbuf_t *out = &visit->door->out;

    /* generate has no field for the finish reason, so an empty last event would
     * carry nothing; OpenAI's last event of a choice carries it. */
    if ((visit->dialect == BT_API_GENERATE) && choice->no_new_text && !first &&
        (choice->rows == NULL)) {
        return;
    }
    bt_strbuf_reset(out);
    if (visit->dialect == BT_API_RESPONSES) {
        bt_api_write_events(answer, choice, usage, &visit->sequence, out);
    } else {
        bt_api_write_chunks(answer, choice, first, usage, out);
    }
    send_event(visit);
}

/* Ends the stream of a call: usage and "[DONE]" where the dialect has them, in
 * one write with the end of the chunks. */
static void end_stream(bt_visit_t *visit, const bt_api_answer_t *answer,
                       const bt_api_usage_t *usage)
{
    bt_strbuf_t *out = &visit->door->out;

    bt_strbuf_reset(out);
    if (visit->dialect == BT_API_RESPONSES) { /* its last event was sent */
        bt_exchange_stream_end(leave(visit, 200), "", 0);
        return;
    }
    if ((visit->dialect != BT_API_GENERATE) && answer->include_usage) {
        open_event(out);
        bt_api_write_usage(answer, usage, out);
        close_event(out);
    }
    if (visit->dialect != BT_API_GENERATE) {
        bt_strbuf_puts(out, "data: [DONE]\n\n");
    }
    bt_exchange_stream_end(leave(visit, 200), (out->len > 0) ? out->data : "",
                           out->len);
}

static void on_finish(bt_reply_t *reply, bt_call_t *call,
                      const bt_api_answer_t *answer,
                      const bt_api_choice_t *choices, size_t n,
                      const bt_api_usage_t *usage)
{
    bt_visit_t *visit = (bt_visit_t *)reply;
    bt_strbuf_t *out = &visit->door->out;

    if (n == 0) {
        end_stream(visit, answer, usage);
        return;
    }
    tell_head(visit);
    if (bt_answer_bytes(answer, choices, n) > visit->door->inline_bytes) {
        if (!bt_answer_begin(visit, call, answer, choices, n, usage)) {
            bt_visit_fail_for_memory(visit);
        }
        return;
    }
    bt_strbuf_reset(out);
    bt_api_write_answer(answer, choices, n, usage, out);
    if (bt_strbuf_status(out) != BT_OK) {
        bt_visit_fail_for_memory(visit);
        return;
    }
    bt_visit_respond(visit, 200, BT_JSON_TYPE, out->data, out->len);
}

static const bt_reply_ops_t reply_ops = {
    .begin = on_begin,
    .piece = on_piece,
    .finish = on_finish,
    .error = on_error,
};

void bt_door_body_freed(void *ctx, size_t bytes)
{
    const bt_door_t *door = ctx;

    bt_http_give_back(door->http, bytes);
}

static void begin_call(bt_visit_t *visit, const bt_visit_how_t *how,
                       bt_strbuf_t *body, size_t body_bytes)
{
    const bt_call_source_t source = {
        .dialect = visit->dialect,
        .model = how->model,
        .stream = how->stream,
        .traceparent = bt_exchange_header(visit->ex, "traceparent"),
        .tenant = visit->tenant,
        .client = bt_visit_client(visit),
        .body_freed = bt_door_body_freed,
        .ctx = visit->door,
        .body_bytes = body_bytes,
    };

    visit->reply.ops = &reply_ops;
    visit->reply.request_id = visit->id;
    bt_call_json(visit->door->front, &visit->reply, &source, body);
}

void bt_visit_call(bt_visit_t *visit, const char *model, bool stream)
{
    const bt_visit_how_t how = {
        .begin = begin_call,
        .model = model,
        .stream = stream,
    };

    bt_visit_take_body(visit, &how);
}

void bt_door_gone(void *door, bt_exchange_t *ex)
{
    bt_visit_t *visit = bt_exchange_user(ex);

    (void)door;
    if (visit == NULL) {
        return;
    }
    if (visit->reply.call != NULL) {
        bt_call_gone(visit->reply.call);
    }
    if (visit->watcher != NULL) {
        bt_watcher_leave(visit->watcher);
    }
    if (visit->unpacking != NULL) {
        bt_unpack_leave(visit->unpacking);
    }
    bt_visit_infer_gone(visit);
    if (visit->writing != NULL) {
        bt_answer_leave(visit->writing);
    }
    if (visit->order != NULL) {
        bt_model_control_leave(visit->order);
    }
    (void)leave(visit, CLIENT_LEFT);
}
