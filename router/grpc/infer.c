/* SPDX-License-Identifier: Apache-2.0 */
/* ModelInfer and ModelStreamInfer.
 *
 *     unary call ── one visit ──▶ one response ─▶ the call's code
 *     stream ──┬── visit ──▶ response … (or one error_message)
 *              ├── visit ──▶ response …
 *              └── half-close, and no visit is left ─▶ OK
 *
 * Every response of a stream has the parameter triton_final_response, as in
 * Triton: true in the last response of a request, false in earlier ones. The
 * last response has outputs; a client that sets
 * triton_enable_empty_final_response gets another one without outputs after it.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/zip/zip.h"
#include "router/grpc/gdoor_priv.h"
#include "router/grpc/pb_infer.h"
#include "router/triton/infer_call.h"

#define CLIENT_LEFT  499
#define LONG_MESSAGE (1u << 20)
#define PATH_UNARY   BT_INFERENCE "ModelInfer"
#define PATH_STREAM  BT_INFERENCE "ModelStreamInfer"

/* One request. */
typedef struct visit {
    bt_infer_reply_t reply; /* first: the call knows only this */
    bt_list_t link;         /* in stream->visits */
    struct stream *stream;  /* NULL: a unary call */
    bt_gcall_t *call;
    uint64_t start_us;
    bool final_told;              /* stream: the last response was sent */
    char id[BT_INFER_NAME_BYTES]; /* the client's id, for an error */
} visit_t;

/* A call of ModelStreamInfer. */
typedef struct stream {
    bt_gcall_t *call;
    bt_list_t visits;
    bool half_closed;
} stream_t;

static bt_gdoor_t *door_of(const visit_t *visit)
{
    return bt_gcall_ctx(visit->call);
}

/* Ends the visit. @return its stream, or NULL */
static stream_t *leave(visit_t *visit, int http_status)
{
    stream_t *stream = visit->stream;

    bt_gdoor_note(door_of(visit), visit->call,
                  (stream == NULL) ? PATH_UNARY : PATH_STREAM,
                  &visit->reply.facts, visit->start_us, http_status);
    bt_list_remove(&visit->link);
    if (stream == NULL) {
        bt_gcall_set_user(visit->call, NULL);
    }
    bt_free(visit);
    return stream;
}

static void give_up(visit_t *visit)
{
    if (visit->reply.call != NULL) {
        bt_infer_gone(visit->reply.call);
    }
    (void)leave(visit, CLIENT_LEFT);
}

/* Frees the large buffer that a message with logits needed. */
static void trim(bt_strbuf_t *out)
{
    if (out->cap > LONG_MESSAGE) {
        bt_strbuf_fini(out);
        bt_strbuf_init(out, BT_ANSWER_LIMIT);
    }
}

/* ---- one response for one call ---- */

static void unary_error(bt_infer_reply_t *reply, const bt_api_error_t *error)
{
    visit_t *visit = (visit_t *)reply;
    bt_gcall_t *call = visit->call;

    (void)leave(visit, error->http_status);
    bt_gdoor_fail(call, error);
}

static void unary_finish(bt_infer_reply_t *reply, bt_infer_call_t *infer,
                         const bt_infer_response_t *whole)
{
    visit_t *visit = (visit_t *)reply;
    bt_gcall_t *call = visit->call;
    bt_strbuf_t *out = &door_of(visit)->out;

    (void)infer;
    bt_strbuf_reset(out);
    bt_pb_infer_write(whole, out);
    if (bt_strbuf_status(out) != BT_OK) {
        (void)leave(visit, 503);
        bt_gcall_end(call, BT_GRPC_UNAVAILABLE,
                     "out of memory for this answer");
        return;
    }
    (void)leave(visit, 200);
    if (bt_gcall_send(call, (out->len > 0) ? out->data : "", out->len)) {
        bt_gcall_end(call, BT_GRPC_OK, NULL);
    }
    trim(out);
}

/* Without streaming, so no pieces come. */
static const bt_infer_reply_ops_t unary_ops = {
    .piece = NULL,
    .finish = unary_finish,
    .error = unary_error,
};

/* ---- many responses for many requests ---- */

static void end_if_done(stream_t *stream)
{
    bt_gcall_t *call = stream->call;

    if (stream->half_closed && bt_list_empty(&stream->visits)) {
        bt_gcall_set_user(call, NULL);
        bt_free(stream);
        bt_gcall_end(call, BT_GRPC_OK, NULL);
    }
}

/* Sends the content of `out`. @return false: the call is over, with all its
 * visits */
static bool send_out(bt_gcall_t *call)
{
    bt_gdoor_t *door = bt_gcall_ctx(call);
    bt_strbuf_t *out = &door->out;
    bool is_sent;

    if (bt_strbuf_status(out) != BT_OK) {
        /* The next message may fit: report an error for this one. */
        bt_strbuf_reset(out);
        bt_pb_infer_write_error("out of memory for this response", "", out);
    }
    is_sent = bt_gcall_send(call, (out->len > 0) ? out->data : "", out->len);
    trim(out);
    return is_sent;
}

static bool tell(visit_t *visit, const bt_infer_response_t *response,
                 bool final)
{
    bt_strbuf_t *out = &door_of(visit)->out;

    visit->final_told = final;
    bt_strbuf_reset(out);
    bt_pb_infer_write_piece(response, final, out);
    return send_out(visit->call);
}

static void stream_piece(bt_infer_reply_t *reply,
                         const bt_infer_response_t *piece)
{
    (void)tell((visit_t *)reply, piece, piece->final);
}

static void stream_finish(bt_infer_reply_t *reply, bt_infer_call_t *infer,
                          const bt_infer_response_t *whole)
{
    visit_t *visit = (visit_t *)reply;
    bt_infer_response_t empty = *whole;

    (void)infer;
    empty.outputs = NULL;
    empty.n_outputs = 0;
    if ((whole->n_outputs > 0) && !tell(visit, whole, !whole->empty_final)) {
        return;
    }
    /* Also for a request that was stopped before any output. */
    if (!visit->final_told && !tell(visit, &empty, true)) {
        return;
    }
    end_if_done(leave(visit, 200));
}

static void stream_error(bt_infer_reply_t *reply, const bt_api_error_t *error)
{
    visit_t *visit = (visit_t *)reply;
    bt_strbuf_t *out = &door_of(visit)->out;

    bt_strbuf_reset(out);
    bt_pb_infer_write_error(error->message, visit->id, out);
    if (send_out(visit->call)) {
        end_if_done(leave(visit, error->http_status));
    }
}

static const bt_infer_reply_ops_t stream_ops = {
    .piece = stream_piece,
    .finish = stream_finish,
    .error = stream_error,
};

/* ---- the beginning ---- */

static void body_freed(void *ctx, size_t bytes)
{
    const bt_gdoor_t *door = ctx;

    bt_net_give_back(bt_grpc_net(door->grpc), bytes);
}

/* Reserves memory for a compressed message before it is decompressed. */
static bool hold_unpacked(const bt_gdoor_t *door, bt_gmessage_t *message)
{
    const uint64_t most = door->front->config->max_body_bytes;
    uint64_t bytes = (uint64_t)message->body.len * BT_ZIP_MAX_RATIO;

    if (!message->compressed) {
        return true;
    }
    bytes = (bytes < most) ? bytes : most;
    if (!bt_net_has_room(bt_grpc_net(door->grpc), 0, bytes)) {
        bt_net_count_refused(bt_grpc_net(door->grpc));
        return false;
    }
    bt_net_charge(bt_grpc_net(door->grpc), &message->charged,
                  message->charged + (size_t)bytes);
    return true;
}

static const char *field_of(const void *call, const char *name)
{
    return bt_gcall_field(call, name);
}

/* A stream may be older than the current keys. @return NULL: refused, and the
 * visit is over */
static bt_tenant_t *find_tenant(visit_t *visit, bt_gmessage_t *message)
{
    bt_gdoor_t *door = door_of(visit);
    bt_api_error_t error = {0};
    bt_tenant_t *tenant = NULL;
    const char *why = NULL;
    const bt_status_t status = bt_tenants_find(&door->front->tenants, field_of,
                                               visit->call, &tenant, &why);

    if (status == BT_OK) {
        return tenant;
    }
    bt_gmessage_fini(door->grpc, message);
    bt_api_error_set(&error,
                     (status == BT_ERR_UNAUTHORIZED)    ? 401
                     : (status == BT_ERR_INVALID_PARAM) ? 400
                                                        : 503,
                     "invalid_request_error", NULL, "%s", why);
    visit->reply.ops->error(&visit->reply, &error);
    return NULL;
}

static void begin_for(visit_t *visit, bt_tenant_t *tenant,
                      bt_gmessage_t *message)
{
    bt_gdoor_t *door = door_of(visit);
    const bt_pb_infer_form_t form = {
        .compressed = message->compressed,
        .max_bytes = door->front->config->max_body_bytes,
    };
    char client[BT_NET_PEER_BYTES] = "";
    bt_infer_source_t source = {
        .may_stream = visit->stream != NULL,
        .traceparent = bt_gcall_field(visit->call, "traceparent"),
        .tenant = tenant,
        .parse = bt_pb_infer_parse,
        .parse_ctx = &form,
        .parse_ctx_bytes = sizeof(form),
        .body_freed = body_freed,
        .ctx = door,
    };

    bt_gcall_ids(visit->call, &source.who.address, &source.who.connection);
    bt_gcall_peer(visit->call, client);
    source.client = (client[0] != '\0') ? client : NULL;

    if (!hold_unpacked(door, message)) {
        bt_api_error_t error = {0};

        bt_gmessage_fini(door->grpc, message);
        bt_api_error_set(
            &error, 503, "server_error", NULL,
            "the server has no room for this message now (http-memory, "
            "router-memory), try again later");
        visit->reply.ops->error(&visit->reply, &error);
        return;
    }
    if (!message->compressed) {
        bt_pb_infer_id(message->body.data, message->body.len, visit->id);
    }
    source.body_bytes = message->charged;
    _Static_assert(sizeof(form) <= BT_INFER_CTX_BYTES, "it is copied");
    bt_infer_begin(door->front, &visit->reply, &source, &message->body);
}

/* The visit may be over afterwards. */
static void begin(visit_t *visit, bt_gmessage_t *message)
{
    bt_tenant_t *tenant = find_tenant(visit, message);

    if (tenant != NULL) {
        begin_for(visit, tenant, message);
    }
}

static visit_t *visit_create(bt_gcall_t *call, stream_t *stream,
                             const bt_infer_reply_ops_t *ops)
{
    visit_t *visit = bt_calloc(1, sizeof(*visit));

    if (visit != NULL) {
        visit->reply.ops = ops;
        visit->reply.request_id = bt_gcall_memo(call);
        visit->call = call;
        visit->stream = stream;
        visit->start_us = bt_now_us();
        bt_list_init(&visit->link);
    }
    return visit;
}

static const char short_of_memory[] =
    "out of memory for this request, try again later";

void bt_infer_unary(bt_gcall_t *call, bt_gmessage_t *message)
{
    visit_t *visit = visit_create(call, NULL, &unary_ops);

    if (visit == NULL) {
        bt_gmessage_fini(bt_gcall_grpc(call), message);
        bt_gcall_end(call, BT_GRPC_UNAVAILABLE, short_of_memory);
        return;
    }
    bt_gcall_set_user(call, visit);
    begin(visit, message);
}

void bt_infer_unary_gone(bt_gcall_t *call)
{
    visit_t *visit = bt_gcall_user(call);

    if (visit != NULL) {
        give_up(visit);
    }
}

/* @return NULL: memory is short */
static stream_t *stream_of(bt_gcall_t *call)
{
    stream_t *stream = bt_gcall_user(call);

    if (stream == NULL) {
        stream = bt_calloc(1, sizeof(*stream));
        if (stream == NULL) {
            return NULL;
        }
        stream->call = call;
        bt_list_init(&stream->visits);
        bt_gcall_set_user(call, stream);
    }
    return stream;
}

void bt_infer_stream(bt_gcall_t *call, bt_gmessage_t *message)
{
    stream_t *stream = stream_of(call);
    visit_t *visit =
        (stream == NULL) ? NULL : visit_create(call, stream, &stream_ops);
    bt_gdoor_t *door = bt_gcall_ctx(call);

    if (visit == NULL) {
        bt_gmessage_fini(bt_gcall_grpc(call), message);
        bt_strbuf_reset(&door->out);
        bt_pb_infer_write_error(short_of_memory, "", &door->out);
        (void)send_out(call);
        return;
    }
    bt_list_push_back(&stream->visits, &visit->link);
    begin(visit, message);
}

void bt_infer_stream_half_close(bt_gcall_t *call)
{
    stream_t *stream = bt_gcall_user(call);

    if (stream == NULL) {
        bt_gcall_end(call, BT_GRPC_OK, NULL);
        return;
    }
    stream->half_closed = true;
    end_if_done(stream);
}

void bt_infer_stream_gone(bt_gcall_t *call)
{
    stream_t *stream = bt_gcall_user(call);

    if (stream == NULL) {
        return;
    }
    while (!bt_list_empty(&stream->visits)) {
        give_up(BT_CONTAINER_OF(stream->visits.next, visit_t, link));
    }
    bt_gcall_set_user(call, NULL);
    bt_free(stream);
}
