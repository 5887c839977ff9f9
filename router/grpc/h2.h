/* SPDX-License-Identifier: Apache-2.0 */
/** @file h2.h
 *
 * One HTTP/2 connection of a client, without its socket: bytes in, bytes out.
 * The only includer of nghttp2.h is h2.c.
 *
 *     bt_h2_feed() ──▶ on_request ─▶ on_data … ─▶ on_end        the client's
 * half bt_h2_pull() ◀── respond ◀─ write … ◀─ finish             ours either:
 * reset ──▶ on_closed
 *
 * What a stranger can take is bounded: streams at once, bytes of a request's
 * head, memory of the protocol itself (BT_H2_MEMORY_BYTES), answers to frames
 * that want one, streams that are opened and reset again, and frames that cost
 * us work and bring none (PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA:
 * a bucket of BT_H2_IDLE_FRAMES, filled slowly, and by what we send). What
 * breaks the protocol ends the stream or the connection, as RFC 9113 says;
 * bt_h2_is_over() tells when nothing more can come of it.
 *
 * Windows: what on_data() was told counts as read at once, and the client may
 * send as much again; who cannot take more does not feed.
 *
 * A stream is the handlers' from on_request() to on_closed(), which comes
 * exactly once for each, also from bt_h2_destroy().
 *
 * Threads: all on one thread. Source: RFC 9113, RFC 7541.
 */
#ifndef BT_ROUTER_GRPC_H2_H
#define BT_ROUTER_GRPC_H2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_H2_HEAD_BYTES        ((size_t)16 * 1024) /**< of one request */
#define BT_H2_WINDOW_BYTES      (1 << 20)           /**< of a stream */
#define BT_H2_CONN_WINDOW_BYTES (4 << 20)
#define BT_H2_MEMORY_BYTES      ((size_t)4 << 20)
#define BT_H2_IDLE_FRAMES       1000
#define BT_H2_IDLE_FRAMES_S     200 /**< as many more in each second */
#define BT_H2_RESETS            1000
#define BT_H2_RESETS_S          100

/** Codes of RFC 9113, 7. */
typedef enum bt_h2_code {
    BT_H2_NO_ERROR = 0,
    BT_H2_INTERNAL_ERROR = 2,
    BT_H2_REFUSED_STREAM = 7,
    BT_H2_CANCEL = 8,
    BT_H2_ENHANCE_YOUR_CALM = 11,
} bt_h2_code_t;

typedef struct bt_h2 bt_h2_t;
typedef struct bt_h2_stream bt_h2_stream_t;

typedef struct bt_h2_field {
    const char *name, *value;
} bt_h2_field_t;

typedef struct bt_h2_handlers {
    /** The head of a request is complete. */
    void (*on_request)(void *ctx, bt_h2_stream_t *stream);
    void (*on_data)(void *ctx, bt_h2_stream_t *stream, const void *data,
                    size_t bytes);
    /** The client has said all. */
    void (*on_end)(void *ctx, bt_h2_stream_t *stream);
    /** The stream is over and is freed after this call: both sides have ended,
     *  or one has reset it. */
    void (*on_closed)(void *ctx, bt_h2_stream_t *stream);
    void *ctx;
} bt_h2_handlers_t;

/** @param [in] max_streams  at once
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_h2_create(const bt_h2_handlers_t *handlers,
                                       uint32_t max_streams, bt_h2_t **h2_p);
/** Calls on_closed() for each stream. Not from inside a handler. NULL is
 *  allowed. */
void bt_h2_destroy(bt_h2_t *h2);

/**
 * Bytes of the client.
 *
 * @param [in] now_ms  of a clock that never goes back
 * @retval BT_OK
 * @retval BT_ERR_BAD_MESSAGE  What is left to send says why: send it and close.
 * @retval BT_ERR_NO_MEMORY    The same.
 */
BT_MUST_CHECK bt_status_t bt_h2_feed(bt_h2_t *h2, const void *data,
                                     size_t bytes, uint64_t now_ms);
/**
 * Some of the bytes for the client, a frame or so; they are taken.
 *
 * @param [out] data_p  Stays until the next call for this connection.
 * @retval BT_OK             *bytes_p is 0 when there is nothing to send now.
 * @retval BT_ERR_NO_MEMORY  The connection cannot go on.
 */
BT_MUST_CHECK bt_status_t bt_h2_pull(bt_h2_t *h2, const void **data_p,
                                     size_t *bytes_p);
/** Nothing more will come of it in either direction. */
bool bt_h2_is_over(const bt_h2_t *h2);
/** The client has said who it is: preface and settings. */
bool bt_h2_is_open(const bt_h2_t *h2);
/** In the middle of a request's head. */
bool bt_h2_in_head(const bt_h2_t *h2);
uint32_t bt_h2_n_streams(const bt_h2_t *h2);
/** Memory: of the protocol and of requests' heads. */
size_t bt_h2_bytes(const bt_h2_t *h2);
/** Memory: of bodies, while some of them is written and not sent. */
size_t bt_h2_out_bytes(const bt_h2_t *h2);

/** Says that no more streams will be taken; those on the way still are. */
void bt_h2_announce_end(bt_h2_t *h2);
/** Takes no more streams; it is over when those that are open have ended. */
void bt_h2_refuse_more(bt_h2_t *h2);
/** Ends it with a reason. */
void bt_h2_terminate(bt_h2_t *h2, bt_h2_code_t code);

void bt_h2_stream_set_user(bt_h2_stream_t *stream, void *user);
void *bt_h2_stream_user(const bt_h2_stream_t *stream);
/** A field of the request, pseudo fields (":path") included; NULL: absent. Of
 *  several with one name the first. */
const char *bt_h2_field(const bt_h2_stream_t *stream, const char *name);
/** Bytes written that the client's window or the socket has not taken. */
size_t bt_h2_unsent(const bt_h2_stream_t *stream);

/* Those below do nothing where the answer has ended already. For want of
 * memory the stream is reset, which on_closed() tells later. */

/** The head of the answer, ":status" first.
 *  @param last  there is no body: the answer is whole */
void bt_h2_respond(bt_h2_stream_t *stream, const bt_h2_field_t *fields,
                   size_t n, bool last);
/** Bytes of the body; after bt_h2_respond(). */
void bt_h2_write(bt_h2_stream_t *stream, const void *data, size_t bytes);
/** The body is whole; trailers end the answer. */
void bt_h2_finish(bt_h2_stream_t *stream, const bt_h2_field_t *trailers,
                  size_t n);
void bt_h2_reset(bt_h2_stream_t *stream, bt_h2_code_t code);

#endif
