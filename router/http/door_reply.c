/* SPDX-License-Identifier: Apache-2.0 */
/* The reply of calls as HTTP: one JSON body, or server sent events. */
#include "common/base/alloc.h"
#include "router/http/door_priv.h"

#define JSON "application/json"
/* Triton's clients compare this text exactly. */
#define EVENT_STREAM "text/event-stream; charset=utf-8"

/* A call's way back to its exchange; the exchange's user pointer. */
typedef struct visit {
    bt_reply_t reply; /* first: the call knows only this */
    bt_door_t *door;
    bt_exchange_t *ex;
    bt_api_dialect_t dialect;
    bool began; /* the head of a stream went out */
} visit_t;

/* ---- answers in one piece ---- */

void bt_door_respond(bt_door_t *door, bt_exchange_t *ex, int status,
                     const char *type, const void *body, size_t bytes)
{
    (void)door;
    bt_exchange_respond(ex, status, type, body, bytes);
}

void bt_door_respond_error(bt_door_t *door, bt_exchange_t *ex,
                           bt_api_dialect_t dialect,
                           const bt_api_error_t *error)
{
    if ((error->http_status == 429) || (error->http_status == 503)) {
        bt_exchange_add_header(ex, "Retry-After", "1");
    }
    bt_strbuf_reset(&door->out);
    bt_api_write_error(dialect, error, &door->out);
    bt_door_respond(door, ex, error->http_status, JSON,
                    (door->out.len > 0) ? door->out.data : "", door->out.len);
}

void bt_door_format_error(void *door, const char *path, int status,
                          const char *message, bt_strbuf_t *out)
{
    bt_api_error_t error = {0};

    (void)door;
    bt_api_error_set(&error, status,
                     (status >= 500) ? "server_error" : "invalid_request_error",
                     NULL, "%s", message);
    bt_api_write_error(bt_door_dialect_of(path), &error, out);
}

/* ---- the reply of a call ---- */

/* The exchange, for its last answer; the visit is over. */
static bt_exchange_t *leave(visit_t *visit)
{
    bt_exchange_t *ex = visit->ex;

    bt_exchange_set_user(ex, NULL);
    bt_free(visit);
    return ex;
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
    visit_t *visit = (visit_t *)reply;
    bt_door_t *door = visit->door;
    const bt_api_dialect_t dialect = visit->dialect;

    if (!visit->began) {
        bt_door_respond_error(door, leave(visit), dialect, error);
        return;
    }
    bt_strbuf_reset(&door->out);
    open_event(&door->out);
    bt_api_write_error(dialect, error, &door->out);
    close_event(&door->out);
    bt_exchange_stream_end(
        leave(visit), (door->out.len > 0) ? door->out.data : "", door->out.len);
}

/* The answer cannot be put into bytes: what still runs of it is given up. */
static void fail_for_memory(visit_t *visit)
{
    bt_api_error_t error = {0};

    if (visit->reply.call != NULL) {
        bt_call_gone(visit->reply.call);
    }
    bt_api_error_set(&error, 503, "server_error", NULL,
                     "out of memory for this answer");
    on_error(&visit->reply, &error);
}

static void on_piece(bt_reply_t *reply, const bt_api_answer_t *answer,
                     const bt_api_choice_t *choice, bool first,
                     const bt_api_usage_t *usage)
{
    visit_t *visit = (visit_t *)reply;
    bt_strbuf_t *out = &visit->door->out;

    /* generate has no field for the reason of an end, so an empty last event
     * would say nothing; OpenAI's last event of a choice carries it. */
    if ((visit->dialect == BT_API_GENERATE) && (choice->text_bytes == 0) &&
        !first) {
        return;
    }
    bt_strbuf_reset(out);
    open_event(out);
    bt_api_write_piece(answer, choice, first, usage, out);
    close_event(out);
    if (bt_strbuf_status(out) != BT_OK) {
        fail_for_memory(visit);
        return;
    }
    if (!visit->began) {
        visit->began = true;
        bt_exchange_stream_begin(visit->ex, EVENT_STREAM);
    }
    /* On false the client is gone, and bt_door_gone() was called. */
    (void)bt_exchange_stream_write(visit->ex, out->data, out->len);
}

/* The stream of a whole call ends: usage and "[DONE]" where the dialect has
 * them, in one write with the end of the chunks. */
static void end_stream(visit_t *visit, const bt_api_answer_t *answer,
                       const bt_api_usage_t *usage)
{
    bt_strbuf_t *out = &visit->door->out;

    bt_strbuf_reset(out);
    if ((visit->dialect != BT_API_GENERATE) && answer->include_usage) {
        open_event(out);
        bt_api_write_usage(answer, usage, out);
        close_event(out);
    }
    if (visit->dialect != BT_API_GENERATE) {
        bt_strbuf_puts(out, "data: [DONE]\n\n");
    }
    bt_exchange_stream_end(leave(visit), (out->len > 0) ? out->data : "",
                           out->len);
}

static void on_finish(bt_reply_t *reply, const bt_api_answer_t *answer,
                      const bt_api_choice_t *choices, size_t n,
                      const bt_api_usage_t *usage)
{
    visit_t *visit = (visit_t *)reply;
    bt_door_t *door = visit->door;

    if (n == 0) {
        end_stream(visit, answer, usage);
        return;
    }
    bt_strbuf_reset(&door->out);
    bt_api_write_answer(answer, choices, n, usage, &door->out);
    if (bt_strbuf_status(&door->out) != BT_OK) {
        fail_for_memory(visit);
        return;
    }
    bt_door_respond(door, leave(visit), 200, JSON, door->out.data,
                    door->out.len);
}

static const bt_reply_ops_t reply_ops = {
    .piece = on_piece,
    .finish = on_finish,
    .error = on_error,
};

void bt_door_call(bt_door_t *door, bt_exchange_t *ex, bt_api_dialect_t dialect,
                  const char *model, bool stream)
{
    const bt_call_source_t source = {
        .dialect = dialect,
        .model = model,
        .stream = stream,
        .traceparent = bt_exchange_header(ex, "traceparent"),
    };
    visit_t *visit = bt_calloc(1, sizeof(*visit));
    bt_api_error_t error = {0};
    const void *body;
    size_t bytes = 0;

    if (visit == NULL) {
        bt_api_error_set(&error, 503, "server_error", NULL,
                         "out of memory for this request, try again later");
        bt_door_respond_error(door, ex, dialect, &error);
        return;
    }
    visit->reply.ops = &reply_ops;
    visit->door = door;
    visit->ex = ex;
    visit->dialect = dialect;
    bt_exchange_set_user(ex, visit);
    body = bt_exchange_body(ex, &bytes);
    bt_call_json(door->front, &visit->reply, &source, body, bytes);
}

void bt_door_gone(void *door, bt_exchange_t *ex)
{
    visit_t *visit = bt_exchange_user(ex);

    (void)door;
    if (visit == NULL) {
        return;
    }
    if (visit->reply.call != NULL) {
        bt_call_gone(visit->reply.call);
    }
    (void)leave(visit);
}
