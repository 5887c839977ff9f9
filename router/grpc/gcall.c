/* SPDX-License-Identifier: Apache-2.0 */
/* One call: an HTTP/2 stream as gRPC. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/zip/zip.h"
#include "router/grpc/grpc_priv.h"

#define CONTENT_TYPE  "application/grpc"
#define ENCODINGS     "identity,gzip"
#define MESSAGE_BYTES ((size_t)2048) /* of an error's text, encoded */
/* Shorter messages do not shrink, longer ones take too long. */
#define GZIP_LEAST 1024u
#define GZIP_MOST  65536u
#define MAX_HEAD   8

/* ---- answers ---- */

static void put_status(bt_h2_field_t *fields, size_t *n, bt_grpc_code_t code,
                       const char *message, char number[16], bt_strbuf_t *text)
{
    snprintf(number, 16, "%d", (int)code);
    fields[(*n)++] = (bt_h2_field_t){"grpc-status", number};
    if (message != NULL) {
        bt_grpc_message_encode(message, MESSAGE_BYTES, text);
        fields[(*n)++] =
            (bt_h2_field_t){"grpc-message", (text->len > 0) ? text->data : ""};
    }
}

/* Sends an answer without a body. */
static void answer_briefly(bt_h2_stream_t *stream, const bt_h2_field_t *more,
                           size_t n_more, bt_grpc_code_t code,
                           const char *message)
{
    bt_h2_field_t fields[MAX_HEAD] = {{":status", "200"},
                                      {"content-type", CONTENT_TYPE},
                                      {"grpc-accept-encoding", ENCODINGS}};
    size_t n = 3;
    bt_strbuf_t text;
    char number[16];

    bt_strbuf_init(&text, 2 * MESSAGE_BYTES);
    put_status(fields, &n, code, message, number, &text);
    for (size_t i = 0; i < n_more; i++) {
        fields[n++] = more[i];
    }
    bt_h2_respond(stream, fields, n, true);
    bt_strbuf_fini(&text);
}

/* Answers a client that does not speak gRPC. */
static void answer_http(bt_h2_stream_t *stream, const char *status,
                        const char *name, const char *value)
{
    const bt_h2_field_t fields[] = {{":status", status}, {name, value}};

    bt_h2_respond(stream, fields, BT_ARRAY_LEN(fields), true);
}

static void begin_answer(bt_gcall_t *call)
{
    bt_h2_field_t fields[MAX_HEAD] = {{":status", "200"},
                                      {"content-type", CONTENT_TYPE},
                                      {"grpc-accept-encoding", ENCODINGS}};
    size_t n = 3;

    call->began = true;
    if (call->wants_gzip) {
        fields[n++] = (bt_h2_field_t){"grpc-encoding", "gzip"};
    }
    for (size_t i = 0; i < call->n_fields; i++) {
        fields[n++] = call->fields[i];
    }
    bt_h2_respond(call->stream, fields, n, false);
}

static void drop_waiting(bt_gcall_t *call)
{
    while (!bt_list_empty(&call->waiting)) {
        bt_gwaiting_t *waiting =
            BT_CONTAINER_OF(call->waiting.next, bt_gwaiting_t, link);

        bt_list_remove(&waiting->link);
        bt_gmessage_fini(call->conn->grpc, &waiting->message);
        bt_free(waiting);
    }
    bt_list_remove(&call->ready_link);
    bt_grpc_reader_fini(&call->reader);
    call->reader.n_prefix = 0;
    bt_net_charge(call->conn->grpc->net, &call->charged, 0);
}

/* Ends the call: its status was sent, or the client is gone. */
static void call_over(bt_gcall_t *call, bt_grpc_code_t code)
{
    const bt_grpc_handlers_t *handlers = &call->conn->grpc->handlers;

    call->ended = true;
    call->is_running = false;
    call->body_end_ms = 0;
    call->end_ms = bt_now_ms() + call->conn->grpc->config.idle_timeout_ms;
    drop_waiting(call);
    handlers->on_end(handlers->ctx, call, code);
}

static void report_gone(bt_gcall_t *call)
{
    if (call->is_running) {
        call->is_running = false;
        if (call->method->on_gone != NULL) {
            call->method->on_gone(call);
        }
    }
}

void bt_gcall_end(bt_gcall_t *call, bt_grpc_code_t code, const char *message)
{
    bt_h2_field_t fields[2];
    size_t n = 0;
    bt_strbuf_t text;
    char number[16];

    if (call->ended) {
        return;
    }
    if (!call->began) {
        answer_briefly(call->stream, call->fields, call->n_fields, code,
                       message);
    } else {
        bt_strbuf_init(&text, 2 * MESSAGE_BYTES);
        put_status(fields, &n, code, message, number, &text);
        bt_h2_finish(call->stream, fields, n);
        bt_strbuf_fini(&text);
    }
    call_over(call, code);
    bt_gconn_expect(call->conn, call->end_ms);
    bt_gconn_dirty(call->conn);
}

static void fail(bt_gcall_t *call, bt_grpc_code_t code, const char *message)
{
    report_gone(call);
    bt_gcall_end(call, code, message);
}

/* Resets a call whose client does not read. */
static void reset_slow_reader(bt_gcall_t *call)
{
    report_gone(call);
    bt_h2_reset(call->stream, BT_H2_ENHANCE_YOUR_CALM);
    call_over(call, BT_GRPC_RESOURCE_EXHAUSTED);
    bt_gconn_dirty(call->conn);
}

bool bt_gcall_send(bt_gcall_t *call, const void *data, size_t bytes)
{
    const size_t limit = call->conn->grpc->config.client_buffer_bytes;
    uint8_t prefix[BT_GRPC_PREFIX_BYTES];
    bt_strbuf_t packed;
    size_t unsent;
    bool gzip;

    if (call->ended) {
        return false;
    }
    unsent = bt_h2_unsent(call->stream);
    if (unsent <= limit) {
        call->largest = 0;
    }
    /* One message may exceed the limit for all pending output. */
    if (unsent > limit + call->largest) {
        reset_slow_reader(call);
        return false;
    }
    call->largest = (bytes > call->largest) ? bytes : call->largest;
    if (!call->began) {
        begin_answer(call);
    }
    bt_strbuf_init(&packed, bytes);
    gzip = call->wants_gzip && (bytes >= GZIP_LEAST) && (bytes <= GZIP_MOST) &&
           (bt_zip(BT_ZIP_GZIP, data, bytes, &packed) == BT_OK);
    bt_grpc_prefix_write(prefix, gzip, (uint32_t)(gzip ? packed.len : bytes));
    bt_h2_write(call->stream, prefix, sizeof(prefix));
    if (gzip) {
        bt_h2_write(call->stream, packed.data, packed.len);
    } else {
        bt_h2_write(call->stream, data, bytes);
    }
    bt_strbuf_fini(&packed);
    bt_gconn_dirty(call->conn);
    return true;
}

/* ---- the beginning ---- */

static const bt_gmethod_t *find_method(const bt_grpc_t *grpc, const char *path)
{
    return BT_FIND_NAMED(grpc->handlers.methods, grpc->handlers.n_methods, path,
                         path);
}

static void refuse(bt_gconn_t *conn, bt_h2_stream_t *stream,
                   bt_grpc_code_t code, const char *message)
{
    const bt_grpc_handlers_t *handlers = &conn->grpc->handlers;
    char id_text[BT_GCALL_MEMO_BYTES] = "";
    const bt_h2_field_t id = {handlers->id_field, id_text};

    handlers->on_refused(handlers->ctx, bt_h2_field(stream, handlers->id_field),
                         code, id_text);
    answer_briefly(stream, &id, 1, code, message);
}

static const char *field_of(const void *stream, const char *name)
{
    return bt_h2_field(stream, name);
}

/* @return false: the call was refused */
static bool check_head(bt_gconn_t *conn, bt_h2_stream_t *stream,
                       const bt_gmethod_t *method)
{
    const char *encoding = bt_h2_field(stream, "grpc-encoding");
    const char *timeout = bt_h2_field(stream, "grpc-timeout");
    const char *authority = bt_h2_field(stream, ":authority");
    const bt_grpc_handlers_t *handlers = &conn->grpc->handlers;
    bt_grpc_code_t code = BT_GRPC_UNAUTHENTICATED;
    const char *why;
    uint64_t us;

    if (authority == NULL) { /* as translated from HTTP/1.1 (RFC 9113, 8.3.1) */
        authority = bt_h2_field(stream, "host");
    }
    why = handlers->on_check(handlers->ctx, authority,
                             bt_h2_field(stream, "origin"));
    if (why != NULL) {
        refuse(conn, stream, BT_GRPC_PERMISSION_DENIED, why);
        return false;
    }
    if (method == NULL) {
        refuse(conn, stream, BT_GRPC_UNIMPLEMENTED,
               "this server has no method of this path");
        return false;
    }
    why = handlers->on_admit(handlers->ctx, method, conn->stream, field_of,
                             stream, &code);
    if (why != NULL) {
        refuse(conn, stream, code, why);
        return false;
    }
    if ((encoding != NULL) && (strcmp(encoding, "identity") != 0) &&
        (strcmp(encoding, "gzip") != 0)) {
        refuse(conn, stream, BT_GRPC_UNIMPLEMENTED,
               "grpc-encoding is neither identity nor gzip");
        return false;
    }
    if ((timeout != NULL) && (bt_grpc_timeout_parse(timeout, &us) != BT_OK)) {
        refuse(conn, stream, BT_GRPC_INVALID_ARGUMENT,
               "grpc-timeout is not up to eight digits and a unit");
        return false;
    }
    return true;
}

static bool answers_gzip(const bt_h2_stream_t *stream)
{
    const char *encoding = bt_h2_field(stream, "grpc-encoding");
    const char *accepts = bt_h2_field(stream, "grpc-accept-encoding");

    return (encoding != NULL) && (strcmp(encoding, "gzip") == 0) &&
           (accepts != NULL) && bt_grpc_accepts_gzip(accepts);
}

static bt_gcall_t *call_create(bt_gconn_t *conn, bt_h2_stream_t *stream,
                               const bt_gmethod_t *method)
{
    const bt_grpc_config_t *config = &conn->grpc->config;
    const char *timeout = bt_h2_field(stream, "grpc-timeout");
    bt_gcall_t *call = bt_calloc(1, sizeof(*call));
    const uint64_t now_ms = bt_now_ms();
    uint64_t us = 0;

    if (call == NULL) {
        return NULL;
    }
    call->conn = conn;
    call->start_us = bt_now_us();
    call->stream = stream;
    call->method = method;
    call->reader.limit = (method->max_bytes > 0)
                             ? method->max_bytes
                             : (size_t)config->max_message_bytes;
    call->wants_gzip = answers_gzip(stream);
    bt_list_init(&call->waiting);
    bt_list_init(&call->ready_link);
    bt_list_push_back(&conn->calls, &call->link);
    if (!method->takes_many) {
        call->body_end_ms = now_ms + config->body_timeout_ms;
        bt_gconn_expect(conn, call->body_end_ms);
    }
    if ((timeout != NULL) && (bt_grpc_timeout_parse(timeout, &us) == BT_OK)) {
        call->end_ms = now_ms + us / 1000 + 1;
        if (call->end_ms - now_ms > UINT32_MAX / 2) {
            call->end_ms = 0; /* weeks */
        } else {
            bt_gconn_expect(conn, call->end_ms);
        }
    }
    bt_h2_stream_set_user(stream, call);
    return call;
}

void bt_gcall_on_request(void *ctx, bt_h2_stream_t *stream)
{
    bt_gconn_t *conn = ctx;
    const bt_grpc_handlers_t *handlers = &conn->grpc->handlers;
    const char *method_name = bt_h2_field(stream, ":method");
    const char *path = bt_h2_field(stream, ":path");
    const char *type = bt_h2_field(stream, "content-type");
    const bt_gmethod_t *method;
    bt_gcall_t *call;

    if ((method_name == NULL) || (strcmp(method_name, "POST") != 0)) {
        answer_http(stream, "405", "allow", "POST");
        return;
    }
    if ((type == NULL) || !bt_grpc_is_content_type(type)) {
        answer_http(stream, "415", "accept", CONTENT_TYPE);
        return;
    }
    method = find_method(conn->grpc, (path == NULL) ? "" : path);
    if (!check_head(conn, stream, method)) {
        return;
    }
    call = call_create(conn, stream, method);
    if (call == NULL) {
        refuse(conn, stream, BT_GRPC_UNAVAILABLE, "out of memory");
        return;
    }
    handlers->on_begin(handlers->ctx, call);
}

/* ---- messages ---- */

static void make_ready(bt_gcall_t *call)
{
    if (bt_list_empty(&call->ready_link)) {
        bt_list_push_back(&call->conn->ready, &call->ready_link);
    }
}

static void message_complete(bt_gcall_t *call)
{
    bt_gwaiting_t *waiting;

    if (!call->method->takes_many && !bt_list_empty(&call->waiting)) {
        fail(call, BT_GRPC_INVALID_ARGUMENT,
             "a unary call has more than one message");
        return;
    }
    waiting = bt_calloc(1, sizeof(*waiting));
    if (waiting == NULL) {
        fail(call, BT_GRPC_UNAVAILABLE, "out of memory for this message");
        return;
    }
    waiting->message.compressed =
        bt_grpc_reader_take(&call->reader, &waiting->message.body);
    waiting->message.charged = call->charged;
    call->charged = 0;
    bt_list_push_back(&call->waiting, &waiting->link);
    if (call->method->takes_many) {
        call->body_end_ms = 0;
        make_ready(call);
    }
}

static void refuse_message(bt_gcall_t *call, bt_status_t status)
{
    const bt_gconn_t *conn = call->conn;
    char why[160];

    switch (status) {
    case BT_ERR_TOO_LARGE:
        snprintf(why, sizeof(why),
                 "a message of %u bytes is over the limit of %zu bytes%s",
                 call->reader.length, call->reader.limit,
                 (call->method->max_bytes > 0) ? " of this call"
                                               : " (--max-body-bytes)");
        fail(call, BT_GRPC_RESOURCE_EXHAUSTED, why);
        break;
    case BT_ERR_BUSY:
        bt_net_count_refused(conn->grpc->net);
        fail(call, BT_GRPC_UNAVAILABLE, BT_GRPC_NO_MEMORY_NOW);
        break;
    case BT_ERR_NO_MEMORY:
        fail(call, BT_GRPC_UNAVAILABLE, "out of memory for this message");
        break;
    default:
        fail(call, BT_GRPC_INTERNAL, "a message's prefix is malformed");
        break;
    }
}

/* Adjusts the charged memory: a prefix is complete, or more of a message has
 * come. */
static bt_status_t charge_memory(bt_gcall_t *call, bool was_begun)
{
    const bt_gconn_t *conn = call->conn;
    bt_grpc_reader_t *reader = &call->reader;
    const bool begun = reader->n_prefix == BT_GRPC_PREFIX_BYTES;

    if (begun && !was_begun &&
        !bt_net_has_headroom(conn->grpc->net, 0, reader->length)) {
        return BT_ERR_BUSY;
    }
    bt_net_charge(conn->grpc->net, &call->charged, reader->body.cap);
    if (!bt_net_has_headroom(conn->grpc->net, reader->body.len, 0)) {
        return BT_ERR_BUSY;
    }
    return BT_OK;
}

static void expect_rest(bt_gcall_t *call)
{
    if (call->method->takes_many && (call->body_end_ms == 0) &&
        bt_grpc_reader_is_busy(&call->reader)) {
        call->body_end_ms =
            bt_now_ms() + call->conn->grpc->config.body_timeout_ms;
        bt_gconn_expect(call->conn, call->body_end_ms);
    }
}

void bt_gcall_on_data(void *ctx, bt_h2_stream_t *stream, const void *data,
                      size_t bytes)
{
    bt_gcall_t *call = bt_h2_stream_user(stream);
    const char *from = data;

    (void)ctx;
    while ((call != NULL) && !call->ended && (bytes > 0)) {
        const bool was_begun = call->reader.n_prefix == BT_GRPC_PREFIX_BYTES;
        size_t used = 0;
        bt_status_t status =
            bt_grpc_reader_feed(&call->reader, from, bytes, &used);
        const bool complete = (status == BT_OK);

        if (complete || (status == BT_INPROGRESS)) {
            status = charge_memory(call, was_begun);
        }
        if (status != BT_OK) {
            refuse_message(call, status);
            return;
        }
        from += used;
        bytes -= used;
        if (complete) {
            message_complete(call);
        } else {
            expect_rest(call);
        }
    }
}

void bt_gcall_on_end(void *ctx, bt_h2_stream_t *stream)
{
    bt_gcall_t *call = bt_h2_stream_user(stream);

    (void)ctx;
    if ((call == NULL) || call->ended) {
        return;
    }
    call->half_closed = true;
    call->body_end_ms = 0;
    if (bt_grpc_reader_is_busy(&call->reader)) {
        fail(call, BT_GRPC_INVALID_ARGUMENT, "the last message is cut off");
    } else if (!call->method->takes_many && bt_list_empty(&call->waiting)) {
        fail(call, BT_GRPC_INVALID_ARGUMENT, "a unary call has no message");
    } else {
        make_ready(call);
    }
}

void bt_gcall_deliver(bt_gcall_t *call)
{
    bt_gwaiting_t *waiting;
    bt_gmessage_t message;

    call->is_running = true;
    if (bt_list_empty(&call->waiting)) {
        bt_list_remove(&call->ready_link);
        if (call->half_closed && !call->half_close_delivered) {
            call->half_close_delivered = true;
            if (call->method->on_half_close != NULL) {
                call->method->on_half_close(call);
            }
        }
        return;
    }
    waiting = BT_CONTAINER_OF(call->waiting.next, bt_gwaiting_t, link);
    message = waiting->message;
    bt_list_remove(&waiting->link);
    bt_free(waiting);
    /* To the end of the queue; a call with nothing more leaves it next time. */
    bt_list_remove(&call->ready_link);
    if (!bt_list_empty(&call->waiting) ||
        (call->half_closed && call->method->takes_many)) {
        bt_list_push_back(&call->conn->ready, &call->ready_link);
    }
    call->method->on_message(call, &message);
}

/* ---- the end ---- */

static const char deadline_text[] = "the deadline of the call has passed";

uint64_t bt_gcall_check_deadlines(bt_gcall_t *call, uint64_t now_ms)
{
    uint64_t next_ms = call->end_ms;

    if ((call->end_ms != 0) && (now_ms >= call->end_ms)) {
        if (call->ended) {
            call->end_ms = 0;
            bt_h2_reset(call->stream, BT_H2_CANCEL);
            return 0;
        }
        fail(call, BT_GRPC_DEADLINE_EXCEEDED, deadline_text);
        return call->end_ms;
    }
    if ((call->body_end_ms != 0) && (now_ms >= call->body_end_ms)) {
        fail(call, BT_GRPC_DEADLINE_EXCEEDED, "the message took too long");
        return call->end_ms;
    }
    if ((call->body_end_ms != 0) &&
        ((next_ms == 0) || (call->body_end_ms < next_ms))) {
        next_ms = call->body_end_ms;
    }
    return next_ms;
}

void bt_gcall_abort(bt_gcall_t *call)
{
    report_gone(call);
    if (!call->ended) {
        call_over(call, BT_GRPC_CANCELLED);
    }
    bt_list_remove(&call->link);
}

void bt_gcall_on_closed(void *ctx, bt_h2_stream_t *stream)
{
    bt_gconn_t *conn = ctx;
    bt_gcall_t *call = bt_h2_stream_user(stream);

    if (call != NULL) {
        bt_gcall_abort(call);
        bt_free(call);
    }
    if ((conn->state == BT_GCONN_OPEN) && bt_list_empty(&conn->calls)) {
        conn->since_ms = bt_now_ms();
    }
}

/* ---- for methods ---- */

void *bt_gcall_ctx(const bt_gcall_t *call)
{
    return call->conn->grpc->handlers.ctx;
}

const bt_gmethod_t *bt_gcall_method(const bt_gcall_t *call)
{
    return call->method;
}

bt_grpc_t *bt_gcall_grpc(const bt_gcall_t *call)
{
    return call->conn->grpc;
}

void bt_gcall_set_user(bt_gcall_t *call, void *user)
{
    call->user = user;
}

void *bt_gcall_user(const bt_gcall_t *call)
{
    return call->user;
}

const char *bt_gcall_field(const bt_gcall_t *call, const char *name)
{
    return bt_h2_field(call->stream, name);
}

void bt_gcall_ids(const bt_gcall_t *call, uint64_t *address_p,
                  uint64_t *connection_p)
{
    bt_stream_ids(call->conn->stream, address_p, connection_p);
}

void bt_gcall_peer(const bt_gcall_t *call, char out[BT_NET_PEER_BYTES])
{
    bt_stream_peer(call->conn->stream, out);
}

void bt_gcall_add_field(bt_gcall_t *call, const char *name, const char *value)
{
    BT_ASSERT(!call->began && (call->n_fields < BT_GRPC_MAX_FIELDS));
    call->fields[call->n_fields++] = (bt_h2_field_t){name, value};
}

char *bt_gcall_memo(bt_gcall_t *call)
{
    return call->memo;
}

uint64_t bt_gcall_start_us(const bt_gcall_t *call)
{
    return call->start_us;
}

void bt_gmessage_fini(bt_grpc_t *grpc, bt_gmessage_t *message)
{
    bt_strbuf_fini(&message->body);
    bt_net_charge(grpc->net, &message->charged, 0);
}
