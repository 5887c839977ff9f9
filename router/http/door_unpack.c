/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies that are packed (Content-Encoding), unpacked on the pool.
 *
 *     body ── packed? ──▶ begin(body)
 *               └─ yes: memory held for the largest size ─▶ unpacked (pool)
 *                                            ─▶ what it is not is given back
 *                                            ─▶ begin(body)
 */
#include <strings.h>

#include "common/base/alloc.h"
#include "common/zip/zip.h"
#include "router/http/door_priv.h"

#define LEAST_BYTES ((size_t)1024)
/* Typical ratio of JSON with a long text. A body that exceeds it is
 * decompressed again in the queue class of the largest possible size. */
#define LIKELY_RATIO 8u

struct bt_unpack {
    bt_door_t *door;
    bt_zip_t format;
    bt_strbuf_t packed, body;
    size_t limit;  /* limit of decompressed bytes, this time */
    bool exceeded; /* it exceeded the likely size, and may still be valid */
    size_t packed_bytes,
        body_bytes; /* counted as held in the server's memory */
};

/* Finds the coding. @return false: it is not compressed. */
static bool find_format(const bt_exchange_t *ex, bt_zip_t *format_p)
{
    const char *coding = bt_exchange_header(ex, "Content-Encoding");

    if ((coding == NULL) || (strcasecmp(coding, "identity") == 0)) {
        return false;
    }
    *format_p =
        (strcasecmp(coding, "deflate") == 0) ? BT_ZIP_DEFLATE : BT_ZIP_GZIP;
    return true;
}

/* Fills the error of bt_unzip(). @return @a status */
static bt_status_t explain(bt_status_t status, bt_api_error_t *error)
{
    if (status == BT_ERR_TOO_LARGE) {
        bt_api_error_set(error, 413, NULL,
                         "the body is too large once it is unpacked");
    } else if (status == BT_ERR_CORRUPT) {
        bt_api_error_set(error, 400, NULL,
                         "the body is not what its Content-Encoding says");
    } else if (status != BT_OK) {
        return bt_api_error_no_memory(error);
    }
    return status;
}

void bt_unpack_free(bt_unpack_t *u)
{
    if (u != NULL) {
        bt_strbuf_fini(&u->packed);
        bt_strbuf_fini(&u->body);
        bt_http_give_back(u->door->http, u->packed_bytes + u->body_bytes);
        bt_free(u);
    }
}

/* Begins with a body; the request's account counts it from then on. */
static void begin(bt_http_request_t *r, bt_strbuf_t *body, size_t body_bytes)
{
    bt_http_give_back(r->door->http, body_bytes);
    r->begin(r, body);
}

static bt_status_t request_unpack(bt_request_t *request)
{
    bt_unpack_t *u = bt_http_of(request)->unpack;
    const bt_status_t status =
        bt_unzip(u->format, u->packed.data, u->packed.len, &u->body);

    u->exceeded = (status == BT_ERR_TOO_LARGE) && (u->limit < u->body_bytes);
    if (u->exceeded) {
        return BT_OK;
    }
    bt_strbuf_fini(&u->packed);
    return explain(status, &request->error);
}

static void unpacked(bt_request_t *request);

/* Posts decompression of up to @a bytes. */
static void post(bt_http_request_t *r, size_t bytes)
{
    bt_unpack_t *u = r->unpack;

    bt_strbuf_fini(&u->body);
    bt_strbuf_init(&u->body, bytes);
    u->limit = bytes;
    r->base.queue = bt_work_queue(bytes);
    r->base.work_bytes = bytes;
    bt_request_step(&r->base, request_unpack, unpacked);
}

static void unpacked(bt_request_t *request)
{
    bt_http_request_t *r = bt_http_of(request);
    bt_unpack_t *u = r->unpack;
    bt_strbuf_t body;
    size_t body_bytes;

    if (u->exceeded) {
        post(r, u->body_bytes);
        return;
    }
    r->unpack = NULL;
    body = u->body;
    bt_strbuf_init(&u->body, 0);
    body_bytes = (body.cap < u->body_bytes) ? body.cap : u->body_bytes;
    u->body_bytes -= body_bytes; /* the rest is released */
    bt_unpack_free(u);
    begin(r, &body, body_bytes);
}

/* Returns the largest possible size. */
static size_t most_bytes(const bt_door_t *door, size_t packed_bytes)
{
    const uint64_t limit = door->front->config->max_body_bytes;
    uint64_t most;

    if (__builtin_mul_overflow(packed_bytes, BT_ZIP_MAX_RATIO, &most) ||
        (most > limit)) {
        most = limit;
    }
    return (size_t)((most < LEAST_BYTES) ? LEAST_BYTES : most);
}

static void begin_unpack(bt_http_request_t *r, bt_zip_t format,
                         bt_strbuf_t *body, size_t body_bytes)
{
    const size_t most = most_bytes(r->door, body->len);
    const size_t likely = body->len * LIKELY_RATIO;
    bt_unpack_t *u = bt_calloc(1, sizeof(*u));

    if ((u == NULL) || !bt_http_hold(r->door->http, most)) {
        bt_free(u);
        bt_strbuf_fini(body);
        bt_http_give_back(r->door->http, body_bytes);
        bt_api_error_set(&r->base.error, 503, NULL,
                         "no memory to unpack this body, try again later");
        bt_request_refuse(&r->base);
        return;
    }
    u->door = r->door;
    u->format = format;
    u->packed = *body;
    u->packed_bytes = body_bytes;
    u->body_bytes = most;
    r->unpack = u;
    post(r, (likely < most) ? likely : most);
}

void bt_http_request_take_body(bt_http_request_t *r, bt_http_begin_t begin_fn)
{
    const char *traceparent = bt_exchange_header(r->ex, "traceparent");
    bt_request_t *base = &r->base;
    bt_zip_t format = BT_ZIP_GZIP;
    bt_strbuf_t body;
    const size_t body_bytes = bt_exchange_take_body(r->ex, &body);

    r->begin = begin_fn;
    bt_request_move(base, BT_REQUEST_PARSE);
    if (!bt_arena_strdup(&base->arena, traceparent, &base->traceparent)) {
        bt_strbuf_fini(&body);
        bt_http_give_back(r->door->http, body_bytes);
        bt_request_refuse_for_memory(base);
    } else if (find_format(r->ex, &format) && (body.len > 0)) {
        begin_unpack(r, format, &body, body_bytes);
    } else {
        begin(r, &body, body_bytes);
    }
}

bt_status_t bt_unpack_short(const bt_exchange_t *ex, bt_strbuf_t *body,
                            bt_api_error_t *error_p)
{
    bt_zip_t format = BT_ZIP_GZIP;
    bt_strbuf_t plain;
    bt_status_t status;

    if (!find_format(ex, &format) || (body->len == 0)) {
        return BT_OK;
    }
    bt_strbuf_init(&plain, BT_UNPACK_SHORT_BYTES);
    status = bt_unzip(format, body->data, body->len, &plain);
    if (status != BT_OK) {
        bt_strbuf_fini(&plain);
        return explain(status, error_p);
    }
    bt_strbuf_fini(body);
    *body = plain;
    return BT_OK;
}
