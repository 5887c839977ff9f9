/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/files/ID/content: an object of any size, in pieces.
 *
 *     read (the pool's files thread) ─▶ sent ─▶ read … ─▶ the last one
 *                                         └ on_sent(), for a slow client
 *
 * Nothing is open between two pieces, so a client that is slow holds one piece
 * and a connection. A file that is deleted meanwhile, or damaged, ends the
 * answer before its length: the client sees that it is not whole.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/http/door_priv.h"

#define PIECE_BYTES (4 * BT_STORE_CHUNK_BYTES)

struct bt_download {
    bt_work_t work;
    bool has_job;
    bt_http_request_t *r; /* a reference; NULL: its client left */
    const bt_store_t *store;
    bt_stored_t *object; /* a reference */
    uint64_t at;         /* bytes that were sent, or are on their way */
    bt_strbuf_t piece;
    bt_status_t status;
};

/* Frees a download; its request has ended, or goes on without it. */
static void end(bt_download_t *d)
{
    bt_http_request_t *r = d->r;

    if (r != NULL) {
        r->download = NULL;
        bt_request_unref(&r->base);
    }
    bt_strbuf_fini(&d->piece);
    bt_stored_unref(d->object);
    bt_free(d);
}

static void refuse(bt_http_request_t *r, const bt_download_t *d)
{
    switch (d->status) {
    case BT_ERR_NOT_FOUND:
        bt_http_request_error(r, 404, "id", "no such File object: %.100s",
                              d->object->id);
        break;
    case BT_ERR_CORRUPT:
        bt_http_request_error(r, 503, NULL,
                              "the file is damaged on the server's disk");
        break;
    case BT_ERR_CANCELED:
        bt_http_request_error(r, 503, NULL, "the server is stopping");
        break;
    default:
        bt_http_request_error(r, 503, NULL, "the file cannot be read: %s",
                              bt_status_str(d->status));
        break;
    }
}

/* The first piece could be read, or there is none: the head is sent.
 * @return false: the client is gone */
static bool begin(bt_http_request_t *r, const bt_stored_t *object)
{
    bt_exchange_add_header(r->ex, "X-Content-Type-Options", "nosniff");
    bt_exchange_add_header(r->ex, "Content-Disposition", "attachment");
    return bt_http_request_begin_pieces(r, "application/octet-stream",
                                        object->bytes);
}

/* Sends what was read. @return false: the download is over */
static bool send_piece(bt_download_t *d)
{
    const bool is_first = d->at == 0;
    bt_http_request_t *r = d->r;
    bt_status_t status;

    if ((d->status != BT_OK) && is_first) {
        refuse(r, d);
        return false;
    }
    d->r = NULL; /* a client that leaves in here is not told to d */
    r->download = NULL;
    if (is_first && !begin(r, d->object)) {
        bt_request_unref(&r->base);
        return false;
    }
    if (d->status != BT_OK) {
        bt_exchange_cut_off(r->ex);
        bt_request_unref(&r->base);
        return false;
    }
    d->at += d->piece.len;
    if (d->at == d->object->bytes) {
        bt_http_request_end_pieces(r, &d->piece);
        bt_request_unref(&r->base);
        return false;
    }
    status = bt_exchange_send_piece(r->ex, &d->piece);
    if (status == BT_ERR_PEER_LOST) {
        bt_request_unref(&r->base);
        return false;
    }
    d->r = r;
    r->download = d;
    if (status == BT_OK) {
        bt_download_go_on(d);
    }
    return true;
}

static void run_read(bt_pool_job_t *job)
{
    bt_download_t *d = BT_CONTAINER_OF(job, bt_download_t, work.job);

    bt_strbuf_init(&d->piece, PIECE_BYTES);
    d->status =
        bt_store_read(d->store, d->object, d->at, PIECE_BYTES, &d->piece);
}

static void read_done(bt_pool_job_t *job)
{
    bt_download_t *d = BT_CONTAINER_OF(job, bt_download_t, work.job);

    d->has_job = false;
    if (!job->ran) {
        d->status = BT_ERR_CANCELED;
    }
    if ((d->r == NULL) || !send_piece(d)) {
        end(d);
    }
}

void bt_download_go_on(bt_download_t *d)
{
    BT_ASSERT(!d->has_job);
    d->has_job = true;
    bt_strbuf_fini(&d->piece);
    bt_work_post(&d->work, d->r->door->front->pool, BT_POOL_FILES, PIECE_BYTES);
}

void bt_download_leave(bt_download_t *d)
{
    bt_http_request_t *r = d->r;

    d->r = NULL;
    r->download = NULL;
    bt_request_unref(&r->base);
    if (!d->has_job) {
        end(d);
    }
}

void bt_download_begin(bt_http_request_t *r, bt_stored_t *object)
{
    bt_download_t *d;

    if (bt_exchange_method(r->ex) == BT_HTTP_HEAD) {
        bt_strbuf_t none;

        bt_strbuf_init(&none, 0);
        if (begin(r, object)) {
            bt_http_request_end_pieces(r, &none);
        }
        return;
    }
    d = bt_calloc(1, sizeof(*d));
    if (d == NULL) {
        bt_http_request_fail_for_memory(r);
        return;
    }
    d->r = r;
    r->download = d;
    (void)bt_request_ref(&r->base);
    d->store = r->door->front->store;
    d->object = bt_stored_ref(object);
    bt_work_init(&d->work, r->base.tenant, &r->base.client);
    d->work.job.run = run_read;
    d->work.job.done = read_done;
    bt_download_go_on(d);
}
