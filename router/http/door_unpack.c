/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies that are packed (Content-Encoding), unpacked on the pool.
 *
 *     body ── packed? ──▶ begin(body)
 *               └─ yes: room held for the most it could be ─▶ unpacked (pool)
 *                                            ─▶ what it is not is given back
 *                                            ─▶ begin(body)
 */
#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/zip/zip.h"
#include "router/frontend/watching.h"
#include "router/http/door_priv.h"

#define NAME_BYTES  1024 /* maximum length of a path */
#define LEAST_BYTES ((size_t)1024)
/* Typical ratio of JSON with a long text. A body that exceeds it is
 * decompressed again in the queue class of the largest possible size. */
#define LIKELY_RATIO 8u

struct bt_unpack {
    bt_work_t work;
    bt_door_t *door;
    bt_visit_t *visit; /* NULL: the client left */
    bt_zip_t format;
    bt_visit_how_t how;
    char model[NAME_BYTES], version[NAME_BYTES];
    bt_strbuf_t packed, body;
    size_t limit; /* limit of decompressed bytes, this time */
    size_t packed_bytes,
        body_bytes; /* counted as held in the server's memory */
    bt_status_t status;
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

static void fail(bt_visit_t *visit, int status, const char *why)
{
    bt_api_error_t error = {0};

    bt_watching_refused(visit->door->front, NULL, status);
    bt_api_error_set(&error, status,
                     (status >= 500) ? "server_error" : "invalid_request_error",
                     NULL, "%s", why);
    bt_visit_fail(visit, &error);
}

static void unpack_free(bt_unpack_t *u)
{
    bt_strbuf_fini(&u->packed);
    bt_strbuf_fini(&u->body);
    bt_http_give_back(u->door->http, u->packed_bytes + u->body_bytes);
    bt_free(u);
}

/* True when it exceeded the likely size, and may still be valid. */
static bool is_unlikely(const bt_unpack_t *u)
{
    return (u->status == BT_ERR_TOO_LARGE) && (u->limit < u->body_bytes);
}

static void unpack(bt_pool_job_t *job)
{
    bt_unpack_t *u = BT_CONTAINER_OF(job, bt_unpack_t, work.job);

    u->status = bt_unzip(u->format, u->packed.data, u->packed.len, &u->body);
    if (!is_unlikely(u)) {
        bt_strbuf_fini(&u->packed);
    }
}

static void refuse(bt_unpack_t *u)
{
    switch (u->status) {
    case BT_ERR_TOO_LARGE:
        fail(u->visit, 413, "the body is too large once it is unpacked");
        break;
    case BT_ERR_CORRUPT:
        fail(u->visit, 400, "the body is not what its Content-Encoding says");
        break;
    case BT_ERR_CANCELED:
        fail(u->visit, 503, "the server is stopping");
        break;
    default:
        fail(u->visit, 503, "out of memory for this request, try again later");
        break;
    }
}

/* Posts decompression of up to @a bytes. */
static void post(bt_unpack_t *u, size_t bytes)
{
    bt_strbuf_fini(&u->body);
    bt_strbuf_init(&u->body, bytes);
    u->limit = bytes;
    bt_work_post(&u->work, u->door->front->pool, bt_work_lane(bytes), bytes);
}

static void unpacked(bt_pool_job_t *job)
{
    bt_unpack_t *u = BT_CONTAINER_OF(job, bt_unpack_t, work.job);
    bt_visit_t *visit = u->visit;
    bt_strbuf_t body;
    size_t body_bytes;

    if (!job->ran) {
        u->status = BT_ERR_CANCELED;
    }
    if (visit == NULL) {
        unpack_free(u);
        return;
    }
    if (is_unlikely(u)) {
        post(u, u->body_bytes);
        return;
    }
    visit->unpacking = NULL;
    if (u->status != BT_OK) {
        refuse(u);
        unpack_free(u);
        return;
    }
    body = u->body;
    bt_strbuf_init(&u->body, 0);
    body_bytes = (body.cap < u->body_bytes) ? body.cap : u->body_bytes;
    u->body_bytes -= body_bytes; /* the rest is released */
    u->how.begin(visit, &u->how, &body, body_bytes);
    unpack_free(u);
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

static const char *copy_name(const char *name, char out[NAME_BYTES])
{
    if (name == NULL) {
        return NULL;
    }
    BT_ASSERT(strlen(name) < NAME_BYTES); /* it is a part of a path */
    memcpy(out, name, strlen(name) + 1);
    return out;
}

static void begin_unpack(bt_visit_t *visit, const bt_visit_how_t *how,
                         bt_zip_t format, bt_strbuf_t *body, size_t body_bytes)
{
    const size_t most = most_bytes(visit->door, body->len);
    const size_t likely = body->len * LIKELY_RATIO;
    bt_unpack_t *u = bt_calloc(1, sizeof(*u));
    bt_work_client_t client;

    if ((u == NULL) || !bt_http_hold(visit->door->http, most)) {
        bt_free(u);
        bt_strbuf_fini(body);
        bt_http_give_back(visit->door->http, body_bytes);
        fail(visit, 503, "no room to unpack this body, try again later");
        return;
    }
    u->door = visit->door;
    u->visit = visit;
    u->format = format;
    u->how = *how;
    u->how.model = copy_name(how->model, u->model);
    u->how.version = copy_name(how->version, u->version);
    u->packed = *body;
    u->packed_bytes = body_bytes;
    u->body_bytes = most;
    u->work.job.run = unpack;
    u->work.job.done = unpacked;
    visit->unpacking = u;
    client = bt_visit_client(visit);
    bt_work_init(&u->work, visit->tenant, &client);
    post(u, (likely < most) ? likely : most);
}

void bt_visit_take_body(bt_visit_t *visit, const bt_visit_how_t *how)
{
    bt_zip_t format = BT_ZIP_GZIP;
    bt_strbuf_t body;
    const size_t body_bytes = bt_exchange_take_body(visit->ex, &body);

    if (find_format(visit->ex, &format) && (body.len > 0)) {
        begin_unpack(visit, how, format, &body, body_bytes);
    } else {
        how->begin(visit, how, &body, body_bytes);
    }
}

bt_work_client_t bt_visit_client(const bt_visit_t *visit)
{
    bt_work_client_t client = {0};

    bt_exchange_ids(visit->ex, &client.address, &client.connection);
    return client;
}

bt_status_t bt_unpack_short(const bt_exchange_t *ex, bt_strbuf_t *body)
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
        return status;
    }
    bt_strbuf_fini(body);
    *body = plain;
    return BT_OK;
}

void bt_unpack_leave(bt_unpack_t *unpack)
{
    unpack->visit = NULL;
    bt_pool_cancel(unpack->door->front->pool, &unpack->work.job);
}
