/* SPDX-License-Identifier: Apache-2.0 */
/** @file http.h
 *
 * HTTP/1.1 server of the router, on the sockets and streams of router/net.
 *
 * Sockets and protocol are implemented here, over libevent's events. libevent
 * 2.1's evhttp lacks required properties: its time-outs restart with each byte,
 * its own errors (400, 413) are HTML, a chunk-size line may grow without end,
 * and there is no hook between a request's head and its body.
 *
 * Resources of untrusted clients are bounded. Memory has two limits: bodies and
 * heads of requests in progress, and unread bytes of answers. A body that would
 * exceed the first is answered with 503 before it is read; beyond the second
 * the readers that are behind for longest are disconnected. Bodies over 64 KiB
 * may use three quarters of the first, so that ordinary requests still fit.
 * Connections: a full table closes the one that is *quiet* for longest (between
 * two requests, without a byte, or with an incomplete head), then the one that
 * sends its body for longest; a client address over its share closes its own
 * quiet ones first. Only if there is none, the new connection gets 503 (429:
 * for its share).
 *
 * Turns are short: one callback reads 64 KiB at most and hands over one
 * request, or sends 256 KiB of an answer; pipelined requests wait for the
 * loop's next turn. On a loop of bt_net_loop_create() messages of workers,
 * timers and signals come first.
 *
 * Deadlines are absolute: for the whole head (from accept, or from the first
 * byte of a later request), for the whole body, and for an idle keep-alive
 * connection; and for a client to take a piece of an answer. The first two are
 * answered with 408. A body over the limit is answered with 413 before it is
 * read, a head over 64 KiB with 431; methods other than GET, HEAD, POST and
 * DELETE with 405, except OPTIONS where the handlers accept it as a preflight.
 * After such an answer the connection closes. A client that leaves (FIN or RST)
 * is noticed while its request waits or streams. Pipelined requests are handled
 * one after the other; more than 64 KiB of them make the current answer the
 * connection's last.
 *
 * An *exchange* is one request and its answer. It is complete (head and body
 * read) in on_request() and lives until its answer was finished or on_gone()
 * was called; after either, the exchange must not be used.
 *
 *             on_request()          respond() / stream_end()
 *     reading ─────────▶ open ──────────────────▶ freed
 *                          └── client left ─ on_gone() ──▶ freed
 *
 * Threads: all on the event loop's thread.
 * Source:  RFC 9110, RFC 9112.
 */
#ifndef BT_ROUTER_HTTP_HTTP_H
#define BT_ROUTER_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "router/http/http1.h"
#include "router/net/net.h"

#define BT_HTTP_CLIENT_BYTES BT_NET_PEER_BYTES

struct event_base;
typedef struct bt_http bt_http_t;
typedef struct bt_exchange bt_exchange_t;

typedef enum bt_http_method {
    BT_HTTP_GET,
    BT_HTTP_HEAD,
    BT_HTTP_POST,
    BT_HTTP_DELETE,
    BT_HTTP_OTHER, /**< answered with 405 by the server itself */
} bt_http_method_t;

typedef struct bt_http_config {
    uint64_t max_body_bytes;
    uint32_t header_timeout_ms, body_timeout_ms, idle_timeout_ms;
    uint32_t client_buffer_bytes; /**< limit on unsent bytes of a stream; beyond
                                     it the client is disconnected (on_gone) */
    uint32_t max_connections;
    uint32_t max_per_client; /**< connections of one address (IPv6: of one /64
                                network); 0 = no limit */
    bool shares_ports; /**< share ports with other processes (SO_REUSEPORT): all
                          of them must set this, and be of one user */
    bt_budget_t *budget;   /**< see bt_net_config_t */
    uint64_t memory_bytes; /**< for requests in progress, and as much again for
                              unread answers */
    bt_tls_t *tls;         /**< borrowed; NULL: HTTP, not HTTPS */
} bt_http_config_t;

typedef struct bt_http_handlers {
    /** Handles a request; must end in one of the respond/stream calls, now or
     *  later. */
    void (*on_request)(void *ctx, bt_exchange_t *ex);
    /** Client left (or was disconnected) before the answer was finished. The
     *  exchange is freed after this call; answering it does nothing. */
    void (*on_gone)(void *ctx, bt_exchange_t *ex);
    void *ctx;
    /** The piece of bt_exchange_send_piece() that was on its way was sent: the
     *  next one is due. NULL where no answer has pieces. */
    void (*on_sent)(void *ctx, bt_exchange_t *ex);
    /** End of a callback of the event loop. May be NULL. */
    void (*on_turn)(void *ctx);
    /** First piece of streams was gathered: bt_net_flush() is due. NULL:
     *  pieces are sent at once. */
    void (*on_gather)(void *ctx);
    /** Checks a request's head before its body is read. May be NULL.
     *  @return NULL, or why it is answered with 403: one sentence, static.
     */
    const char *(*check_head)(void *ctx, const bt_http1_head_t *head);
    /** Appends the headers ("Name: value\r\n" each) that every answer to this
     *  head has, including the server's own errors from here on; for heads that
     *  check_head() accepted. May be NULL. */
    void (*add_headers)(void *ctx, const bt_http1_head_t *head,
                        bt_strbuf_t *out);
    /** Authorizes a head that check_head() accepted, before its body is read;
     *  not called for OPTIONS. May append headers of the answer to @a out. May
     *  be NULL.
     *  @return NULL, or why it is answered with 401: one sentence, static.
     */
    const char *(*admit)(void *ctx, const bt_http1_head_t *head,
                         bt_strbuf_t *out);
    /** Handles a head with the method OPTIONS that check_head() accepted. May
     *  be NULL.
     *  @return true: answer 204 with the appended headers and those of
     *    add_headers(); false: 405 */
    bool (*preflight)(void *ctx, const bt_http1_head_t *head, bt_strbuf_t *out);
    /** Writes the body of an error that the server itself answers (400, 408,
     *  413, …); NULL, or writing nothing, gives {"error": "…"}.
     *  @param path     NULL when the request line is malformed
     *  @param message  one sentence */
    void (*format_error)(void *ctx, const char *path, int status,
                         const char *message, bt_strbuf_t *out);
} bt_http_handlers_t;

/** Creates a server. All limits but max_per_client must be above 0, and
 *  memory_bytes at least twice max_body_bytes; @a config and @a handlers are
 *  copied.
 *  @retval BT_ERR_INVALID_PARAM, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_http_create(struct event_base *base,
                                         const bt_http_config_t *config,
                                         const bt_http_handlers_t *handlers,
                                         bt_http_t **http_p);
/** Returns the server's sockets and memory. Open exchanges continue after
 *  bt_net_stop_listening(), while idle connections and those that end their
 *  answer are closed; bt_net_flush() sends the gathered pieces of streams, in
 *  one write per connection, and may call on_gone(). */
bt_net_t *bt_http_net(bt_http_t *http);
/** Closes everything; calls on_gone() for each open exchange. Not from inside a
 *  handler. NULL is allowed. */
void bt_http_destroy(bt_http_t *http);
bt_http_method_t bt_exchange_method(const bt_exchange_t *ex);
const char *bt_exchange_path(const bt_exchange_t *ex); /**< decoded, no query */
/** As received, or "". */
const char *bt_exchange_query(const bt_exchange_t *ex);
/** Returns ids that are equal for exchanges of one address, and of one
 *  connection; 0: not known. */
void bt_exchange_ids(const bt_exchange_t *ex, uint64_t *address_p,
                     uint64_t *connection_p);
/** Writes the numeric address of the client, without the port; "" if not known.
 */
void bt_exchange_client(const bt_exchange_t *ex,
                        char out[BT_HTTP_CLIENT_BYTES]);
/** True when bt_stream_is_of_own_user(); false for a client that has left. */
bool bt_exchange_is_of_own_user(const bt_exchange_t *ex);
/** Returns the value of a header; NULL when absent. */
const char *bt_exchange_header(const bt_exchange_t *ex, const char *name);
/** Moves the body, zero-terminated unless it is empty, to the caller; the
 *  exchange has none any more.
 *  @return bytes that the server counts as held for the body until they are
 *    given to bt_http_give_back() */
size_t bt_exchange_take_body(bt_exchange_t *ex, bt_strbuf_t *body_p);
/** Counts @a bytes more as held, like those of a body, until they are given
 *  back.
 *  @return false: over the limit; nothing was done */
BT_MUST_CHECK bool bt_http_hold(bt_http_t *http, size_t bytes);
/** Releases the counted memory of a body. */
void bt_http_give_back(bt_http_t *http, size_t bytes);
void bt_exchange_set_user(bt_exchange_t *ex, void *user);
void *bt_exchange_user(const bt_exchange_t *ex);

/** Adds a header to the answer, before the answer begins. Line breaks in the
 *  value become spaces. */
void bt_exchange_add_header(bt_exchange_t *ex, const char *name,
                            const char *value);
/** Sends the whole answer at once; ends the exchange. HEAD gets no body. */
void bt_exchange_respond(bt_exchange_t *ex, int status,
                         const char *content_type, const void *body,
                         size_t bytes);
/** Sends the whole answer with a long body, which need not be copied and is
 *  empty afterwards; otherwise as bt_exchange_respond(). */
void bt_exchange_respond_take(bt_exchange_t *ex, int status,
                              const char *content_type, bt_strbuf_t *body);
/** Begins an answer (200) of @a bytes in all, which come in pieces.
 *  @return false: the exchange is gone */
BT_MUST_CHECK bool bt_exchange_pieces_begin(bt_exchange_t *ex,
                                            const char *content_type,
                                            uint64_t bytes);
/**
 * Sends the next bytes, which need not be copied; @a piece is empty afterwards.
 * A client that takes longer for a piece than idle_timeout_ms is disconnected.
 * @retval BT_OK             sent: the next piece may follow
 * @retval BT_INPROGRESS     on_sent() will follow: there may be no other before
 * @retval BT_ERR_PEER_LOST  the exchange is gone
 */
BT_MUST_CHECK bt_status_t bt_exchange_send_piece(bt_exchange_t *ex,
                                                 bt_strbuf_t *piece);
/** Sends the last bytes, which may be none; otherwise as
 *  bt_exchange_respond_take(). HEAD has this piece only, and it is not sent. */
void bt_exchange_pieces_end(bt_exchange_t *ex, bt_strbuf_t *last);
/** Begins a chunked answer (200). The head is sent with the first chunk, or
 *  when the loop runs next. */
void bt_exchange_stream_begin(bt_exchange_t *ex, const char *content_type);
/** Sends one chunk, at once as one write (TCP_NODELAY), or with others of the
 *  turn where the handlers gather. Does nothing for no bytes. May call
 *  on_gone() when the client's buffer is over its limit or its connection
 *  broke.
 *  @return false: the exchange is gone */
bool bt_exchange_stream_write(bt_exchange_t *ex, const void *data,
                              size_t bytes);
/** Appends one chunk without checking the buffer limit; for callers that check
 *  bt_exchange_unsent() first, and send a slow reader nothing more. */
bool bt_exchange_stream_append(bt_exchange_t *ex, const void *data,
                               size_t bytes);
/** Returns the bytes of the answer that the client has not read. */
size_t bt_exchange_unsent(const bt_exchange_t *ex);
/** Disconnects a client that leaves too much unread: on_gone(). */
void bt_exchange_cut_off(bt_exchange_t *ex);
/** Sends a last chunk (may be empty) together with the terminating chunk in one
 *  write; ends the exchange. */
void bt_exchange_stream_end(bt_exchange_t *ex, const void *data, size_t bytes);

#endif
