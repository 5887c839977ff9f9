/* SPDX-License-Identifier: Apache-2.0 */
/* ModelInfer and ModelStreamInfer.
 *
 *     unary call ── one request ──▶ one response ─▶ the call's code
 *     stream ──┬── request ──▶ response … (or one error_message)
 *              ├── request ──▶ response …
 *              └── half-close, and no request is left ─▶ OK
 *
 * Every response of a stream has the parameter triton_final_response, as in
 * Triton: true in the last response of a request, false in earlier ones. The
 * last response has outputs; a client that sets
 * triton_enable_empty_final_response gets another one without outputs after it.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/zip/zip.h"
#include "router/grpc/gdoor_priv.h"
#include "router/grpc/pb_infer.h"
#include "router/triton/infer_request.h"

#define LONG_MESSAGE (1u << 20)
#define PATH_UNARY   BT_INFERENCE "ModelInfer"
#define PATH_STREAM  BT_INFERENCE "ModelStreamInfer"

typedef struct grpc_request {
    bt_request_t base;     /* first */
    bt_list_t link;        /* in stream->requests */
    struct stream *stream; /* NULL: a unary call */
    bt_gcall_t *call;
    bool final_sent;              /* stream: the last response was sent */
    char id[BT_INFER_NAME_BYTES]; /* the client's id, for an error */
} grpc_request_t;

/* A call of ModelStreamInfer. */
typedef struct stream {
    bt_gcall_t *call;
    bt_list_t requests;
    bool half_closed;
} stream_t;

static grpc_request_t *grpc_of(bt_request_t *request)
{
    return BT_CONTAINER_OF(request, grpc_request_t, base);
}

static bt_gdoor_t *door_of(const grpc_request_t *r)
{
    return bt_gcall_ctx(r->call);
}

/* Logs the request, which is over. @return its stream, or NULL */
static stream_t *request_end(grpc_request_t *r, int http_status)
{
    stream_t *stream = r->stream;

    bt_request_move(&r->base, BT_REQUEST_LOG);
    bt_gdoor_note(door_of(r), r->call, NULL,
                  (stream == NULL) ? PATH_UNARY : PATH_STREAM, &r->base,
                  r->base.start_us, http_status);
    bt_list_remove(&r->link);
    if (stream == NULL) {
        bt_gcall_set_user(r->call, NULL);
    }
    bt_request_unref(&r->base);
    return stream;
}

static void request_abort(grpc_request_t *r)
{
    bt_request_gone(&r->base);
    (void)request_end(r, BT_REQUEST_CLIENT_LEFT);
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

static void unary_error(bt_request_t *request, const bt_api_error_t *error)
{
    grpc_request_t *r = grpc_of(request);
    bt_gcall_t *call = r->call;

    (void)request_end(r, error->http_status);
    bt_gdoor_fail(call, error);
}

static void unary_finish(bt_request_t *request,
                         const bt_infer_response_t *whole)
{
    grpc_request_t *r = grpc_of(request);
    bt_gcall_t *call = r->call;
    bt_strbuf_t *out = &door_of(r)->out;

    bt_strbuf_reset(out);
    bt_pb_infer_write(whole, out);
    if (bt_strbuf_status(out) != BT_OK) {
        (void)request_end(r, 503);
        bt_gcall_end(call, BT_GRPC_UNAVAILABLE,
                     "out of memory for this answer");
        return;
    }
    (void)request_end(r, 200);
    if (bt_gcall_send(call, (out->len > 0) ? out->data : "", out->len)) {
        bt_gcall_end(call, BT_GRPC_OK, NULL);
    }
    trim(out);
}

static const bt_request_ops_t unary_ops = {.error = unary_error};
/* Without streaming, so no pieces come. */
static const bt_infer_ops_t unary_infer_ops = {.finish = unary_finish};

/* ---- many responses for many requests ---- */

static void end_if_done(stream_t *stream)
{
    bt_gcall_t *call = stream->call;

    if (stream->half_closed && bt_list_empty(&stream->requests)) {
        bt_gcall_set_user(call, NULL);
        bt_free(stream);
        bt_gcall_end(call, BT_GRPC_OK, NULL);
    }
}

/* Sends the content of `out`. @return false: the call is over, with all its
 * requests */
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

static bool send_response(grpc_request_t *r,
                          const bt_infer_response_t *response, bool final)
{
    bt_strbuf_t *out = &door_of(r)->out;

    r->final_sent = final;
    bt_strbuf_reset(out);
    bt_pb_infer_write_piece(response, final, out);
    return send_out(r->call);
}

static void stream_piece(bt_request_t *request,
                         const bt_infer_response_t *piece)
{
    (void)send_response(grpc_of(request), piece, piece->final);
}

static void stream_finish(bt_request_t *request,
                          const bt_infer_response_t *whole)
{
    grpc_request_t *r = grpc_of(request);
    bt_infer_response_t empty = *whole;

    empty.outputs = NULL;
    empty.n_outputs = 0;
    if ((whole->n_outputs > 0) &&
        !send_response(r, whole, !whole->empty_final)) {
        return;
    }
    /* Also for a request that was stopped before any output. */
    if (!r->final_sent && !send_response(r, &empty, true)) {
        return;
    }
    end_if_done(request_end(r, 200));
}

static void stream_error(bt_request_t *request, const bt_api_error_t *error)
{
    grpc_request_t *r = grpc_of(request);
    bt_strbuf_t *out = &door_of(r)->out;

    bt_strbuf_reset(out);
    bt_pb_infer_write_error(error->message, r->id, out);
    if (send_out(r->call)) {
        end_if_done(request_end(r, error->http_status));
    }
}

static const bt_request_ops_t stream_ops = {.error = stream_error};
static const bt_infer_ops_t stream_infer_ops = {
    .piece = stream_piece,
    .finish = stream_finish,
};

/* ---- the beginning ---- */

/* Reserves memory for a compressed message before it is decompressed. */
static bool charge_unpacked(const bt_gdoor_t *door, bt_gmessage_t *message)
{
    const uint64_t most = door->front->config->max_body_bytes;
    uint64_t bytes = (uint64_t)message->body.len * BT_ZIP_MAX_RATIO;

    if (!message->compressed) {
        return true;
    }
    bytes = (bytes < most) ? bytes : most;
    if (!bt_net_has_headroom(bt_grpc_net(door->grpc), 0, bytes)) {
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

/* Finds the tenant: a stream may be older than the current keys. */
static bt_status_t authenticate(grpc_request_t *r)
{
    bt_tenant_t *tenant = NULL;
    const char *why = NULL;
    const bt_status_t status = bt_tenants_find(
        &r->base.front->tenants, field_of, r->call, &tenant, &why);

    bt_request_move(&r->base, BT_REQUEST_AUTHENTICATE);
    if (status == BT_OK) {
        r->base.tenant = bt_tenant_ref(tenant);
        return BT_OK;
    }
    bt_api_error_set(&r->base.error,
                     (status == BT_ERR_UNAUTHORIZED)    ? 401
                     : (status == BT_ERR_INVALID_PARAM) ? 400
                                                        : 503,
                     NULL, "%s", why);
    return status;
}

/* Checks what has to hold before the message is parsed. */
static bt_status_t admit(grpc_request_t *r, bt_gmessage_t *message)
{
    const char *traceparent = bt_gcall_field(r->call, "traceparent");
    const bt_status_t status = authenticate(r);

    if (status != BT_OK) {
        return status;
    }
    if (!charge_unpacked(door_of(r), message) ||
        !bt_arena_strdup(&r->base.arena, traceparent, &r->base.traceparent)) {
        bt_api_error_set(&r->base.error, 503, NULL, "%s",
                         BT_GRPC_NO_MEMORY_NOW);
        return BT_ERR_BUSY;
    }
    return BT_OK;
}

/* The request may be over afterwards. */
static void begin(grpc_request_t *r, const bt_infer_ops_t *ops,
                  bt_gmessage_t *message)
{
    bt_gdoor_t *door = door_of(r);
    const bt_pb_infer_form_t form = {
        .compressed = message->compressed,
        .max_bytes = door->front->config->max_body_bytes,
    };
    char client[BT_NET_PEER_BYTES] = "";
    const bt_infer_source_t source = {
        .ops = ops,
        .may_stream = r->stream != NULL,
        .peer = client,
        .parse = bt_pb_infer_parse,
        .parse_ctx = &form,
        .parse_ctx_bytes = sizeof(form),
    };

    _Static_assert(sizeof(form) <= BT_INFER_CTX_BYTES, "it is copied");
    if (admit(r, message) != BT_OK) {
        bt_gmessage_fini(door->grpc, message);
        bt_request_fail(&r->base);
        return;
    }
    bt_gcall_peer(r->call, client);
    if (!message->compressed) {
        bt_pb_infer_id(message->body.data, message->body.len, r->id);
    }
    /* The request's account counts the body from here on. */
    bt_net_give_back(bt_grpc_net(door->grpc), message->charged);
    bt_infer_begin(&r->base, &source, &message->body);
}

static grpc_request_t *create(bt_gcall_t *call, stream_t *stream,
                              const bt_request_ops_t *ops)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    bt_request_t *base =
        bt_request_create(door->front, ops, sizeof(grpc_request_t));
    grpc_request_t *r = (base != NULL) ? grpc_of(base) : NULL;

    if (r != NULL) {
        base->request_id = bt_gcall_memo(call);
        bt_gcall_ids(call, &base->client.address, &base->client.connection);
        r->call = call;
        r->stream = stream;
        bt_list_init(&r->link);
    }
    return r;
}

static const char short_of_memory[] =
    "out of memory for this request, try again later";

void bt_infer_unary(bt_gcall_t *call, bt_gmessage_t *message)
{
    grpc_request_t *r = create(call, NULL, &unary_ops);

    if (r == NULL) {
        bt_gmessage_fini(bt_gcall_grpc(call), message);
        bt_gcall_end(call, BT_GRPC_UNAVAILABLE, short_of_memory);
        return;
    }
    bt_gcall_set_user(call, r);
    begin(r, &unary_infer_ops, message);
}

void bt_infer_unary_gone(bt_gcall_t *call)
{
    grpc_request_t *r = bt_gcall_user(call);

    if (r != NULL) {
        request_abort(r);
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
        bt_list_init(&stream->requests);
        bt_gcall_set_user(call, stream);
    }
    return stream;
}

void bt_infer_stream(bt_gcall_t *call, bt_gmessage_t *message)
{
    stream_t *stream = stream_of(call);
    grpc_request_t *r =
        (stream == NULL) ? NULL : create(call, stream, &stream_ops);
    bt_gdoor_t *door = bt_gcall_ctx(call);

    if (r == NULL) {
        bt_gmessage_fini(bt_gcall_grpc(call), message);
        bt_strbuf_reset(&door->out);
        bt_pb_infer_write_error(short_of_memory, "", &door->out);
        (void)send_out(call);
        return;
    }
    bt_list_push_back(&stream->requests, &r->link);
    begin(r, &stream_infer_ops, message);
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
    while (!bt_list_empty(&stream->requests)) {
        request_abort(
            BT_CONTAINER_OF(stream->requests.next, grpc_request_t, link));
    }
    bt_gcall_set_user(call, NULL);
    bt_free(stream);
}
