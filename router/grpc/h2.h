/* SPDX-License-Identifier: Apache-2.0 */
/** @file h2.h
 *
 * One HTTP/2 connection of a client, without its socket: bytes in, bytes out.
 * The only includer of nghttp2.h is h2.c.
 *
 *     bt_h2_feed() ──▶ on_request ─▶ on_data … ─▶ on_end    client's half
 *     bt_h2_pull() ◀── respond ◀─ write … ◀─ finish         server's half
 *     either side resets the stream ──▶ on_closed
 *
 * Limits on what a client can use: concurrent streams, bytes of a request's
 * header, memory of the protocol itself (BT_H2_MEMORY_BYTES), answers to
 * frames that require one, streams that are opened and reset again, and frames
 * that cost work and carry no data (PING, SETTINGS, PRIORITY, WINDOW_UPDATE,
 * empty DATA: a token bucket of BT_H2_IDLE_FRAMES, refilled slowly, and by
 * what is sent). A protocol error ends the stream or the connection, as RFC
 * 9113 says; bt_h2_is_over() is true when nothing more can happen on it.
 *
 * Flow control: data passed to on_data() counts as read at once, and the
 * client may send that many bytes again. To apply back pressure, do not call
 * bt_h2_feed().
 *
 * A stream belongs to the handlers from on_request() to on_closed(), which is
 * called exactly once for each stream, also from bt_h2_destroy().
 *
 * Threads: all on one thread. Source: RFC 9113, RFC 7541.
 */
#ifndef BT_ROUTER_GRPC_H2_H
#define BT_ROUTER_GRPC_H2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_H2_HEAD_BYTES        ((size_t)16 * 1024) /**< for one request */
#define BT_H2_WINDOW_BYTES      (1 << 20) /**< receive window of a stream */
#define BT_H2_CONN_WINDOW_BYTES (4 << 20)
#define BT_H2_MEMORY_BYTES      ((size_t)4 << 20)
#define BT_H2_IDLE_FRAMES       1000
#define BT_H2_IDLE_FRAMES_S     200 /**< refilled per second */
#define BT_H2_RESETS            1000
#define BT_H2_RESETS_S          100

/** Error codes of RFC 9113, 7. */
typedef enum bt_h2_code {
    BT_H2_INTERNAL_ERROR = 2,
    BT_H2_CANCEL = 8,
    BT_H2_ENHANCE_YOUR_CALM = 11,
} bt_h2_code_t;

typedef struct bt_h2 bt_h2_t;
typedef struct bt_h2_stream bt_h2_stream_t;

typedef struct bt_h2_field {
    const char *name, *value;
} bt_h2_field_t;

typedef struct bt_h2_handlers {
    /** Reports that the header of a request is complete. */
    void (*on_request)(void *ctx, bt_h2_stream_t *stream);
    void (*on_data)(void *ctx, bt_h2_stream_t *stream, const void *data,
                    size_t bytes);
    /** Reports the end of the client's half. */
    void (*on_end)(void *ctx, bt_h2_stream_t *stream);
    /** Reports that the stream is over: both sides have ended, or one has
     *  reset the stream. The stream is freed after this call. */
    void (*on_closed)(void *ctx, bt_h2_stream_t *stream);
    void *ctx;
} bt_h2_handlers_t;

/** Creates a connection.
 *  @param [in] max_streams  concurrent streams
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_h2_create(const bt_h2_handlers_t *handlers,
                                       uint32_t max_streams, bt_h2_t **h2_p);
/** Destroys a connection and calls on_closed() for each stream. Must not be
 *  called within a handler. NULL is allowed. */
void bt_h2_destroy(bt_h2_t *h2);

/**
 * Processes bytes of the client.
 *
 * @param [in] now_ms  from a monotonic clock
 * @retval BT_OK
 * @retval BT_ERR_BAD_MESSAGE  Protocol error: send the remaining output, which
 *                             has the reason, and close.
 * @retval BT_ERR_NO_MEMORY    Send the remaining output and close.
 */
BT_MUST_CHECK bt_status_t bt_h2_feed(bt_h2_t *h2, const void *data,
                                     size_t bytes, uint64_t now_ms);
/**
 * Takes some of the bytes to send to the client, about one frame.
 *
 * @param [out] data_p  Valid until the next call for this connection.
 * @retval BT_OK             *bytes_p is 0 when there is nothing to send now.
 * @retval BT_ERR_NO_MEMORY  The connection cannot continue.
 */
BT_MUST_CHECK bt_status_t bt_h2_pull(bt_h2_t *h2, const void **data_p,
                                     size_t *bytes_p);
/** True when nothing more will be received or sent. */
bool bt_h2_is_over(const bt_h2_t *h2);
/** Current values of a connection. */
typedef struct bt_h2_state {
    bool is_open; /**< the client has sent its preface and settings */
    bool in_head; /**< in the middle of a request's header */
    uint32_t n_streams;
    size_t bytes;     /**< memory for the protocol and requests' headers */
    size_t out_bytes; /**< memory for answers' bodies; 0: all was sent */
} bt_h2_state_t;
bt_h2_state_t bt_h2_state(const bt_h2_t *h2);

/** Announces that no more streams will be accepted; streams on the way still
 *  are. */
void bt_h2_announce_end(bt_h2_t *h2);
/** Refuses new streams; the connection is over when the open streams have
 *  ended. */
void bt_h2_refuse_more(bt_h2_t *h2);
/** Terminates the connection with an error code. */
void bt_h2_terminate(bt_h2_t *h2, bt_h2_code_t code);

void bt_h2_stream_set_user(bt_h2_stream_t *stream, void *user);
void *bt_h2_stream_user(const bt_h2_stream_t *stream);
/** Returns a field of the request, pseudo-fields (":path") included; NULL:
 *  absent. The first one of several fields with one name. */
const char *bt_h2_field(const bt_h2_stream_t *stream, const char *name);
/** Returns the bytes written that the client's receive window or the socket
 *  has not accepted. */
size_t bt_h2_unsent(const bt_h2_stream_t *stream);

/* The functions below do nothing if the answer has ended already. If memory is
 * short, the stream is reset, and on_closed() follows later. */

/** Sends the header of the answer, ":status" first.
 *  @param last  true: there is no body, the answer is complete */
void bt_h2_respond(bt_h2_stream_t *stream, const bt_h2_field_t *fields,
                   size_t n, bool last);
/** Sends bytes of the body; after bt_h2_respond(). */
void bt_h2_write(bt_h2_stream_t *stream, const void *data, size_t bytes);
/** Ends the answer with trailers. */
void bt_h2_finish(bt_h2_stream_t *stream, const bt_h2_field_t *trailers,
                  size_t n);
void bt_h2_reset(bt_h2_stream_t *stream, bt_h2_code_t code);

#endif
