/* SPDX-License-Identifier: Apache-2.0 */
/** @file http.h
 *
 * The HTTP/1.1 server of the router, on the sockets and streams of router/net.
 *
 * The sockets and the protocol are our own, over libevent's events. libevent
 * 2.1's evhttp cannot do what is promised here: its time-outs start again with
 * each byte, its own errors (400, 413) are HTML, a chunk-size line may grow
 * without end, and there is no hook between a request's head and its body.
 *
 * What strangers can take is bounded. Memory: bodies and heads of requests
 * under way together, and unread bytes of answers together; a body that would
 * pass the first is answered with 503 before it is read, past the second the
 * readers that are behind for longest are cut off. Bodies over 64 KiB may use
 * three quarters of the first, so that ordinary requests find room beside
 * them. Connections: a full table closes the one that is *quiet* for longest
 * (between two requests, without a byte, or in a head that is not complete),
 * then the one that sends its body for longest; a client address over its
 * share closes its own quiet ones first. Only when there is none the new
 * connection gets 503 (429: for its share).
 *
 * Turns are short: one callback reads 64 KiB at most and hands over one
 * request, or sends 256 KiB of an answer; pipelined requests wait for the
 * loop's next turn. On a loop of bt_net_loop_create() messages of workers,
 * time and signals come first.
 *
 * Deadlines are absolute: for the whole head (from accept, or from the first
 * byte of a later request), for the whole body, and for an idle keep-alive
 * connection. The first two are answered with 408. A body over the limit is
 * answered with 413 before it is read, a head over 64 KiB with 431; methods
 * other than GET, HEAD and POST with 405, but OPTIONS where the handlers take
 * it for a preflight. After such an answer the connection
 * closes. A client that leaves (FIN or RST) is noticed while its request waits
 * or streams. Pipelined requests are handled one after the other; more than
 * 64 KiB of them make the answer under way the connection's last.
 *
 * An *exchange* is one request and its answer. It is born complete (head and
 * body read) in on_request() and lives until its answer was finished or
 * on_gone() was called; after either, nobody may touch it.
 *
 *             on_request()          respond() / stream_end()
 *     reading ─────────▶ open ──────────────────▶ freed
 *                          └── client left ─ on_gone() ──▶ freed
 *
 * Threads: all on the event loop's thread.
 * Source: RFC 9110, RFC 9112.
 */
#ifndef BT_ROUTER_HTTP_HTTP_H
#define BT_ROUTER_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"
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
    BT_HTTP_OTHER, /**< answered with 405 by the server itself */
} bt_http_method_t;

typedef struct bt_http_config {
    uint64_t max_body_bytes;
    uint32_t header_timeout_ms, body_timeout_ms, idle_timeout_ms;
    uint32_t client_buffer_bytes; /**< unsent bytes of a stream; past it the
                                       client is dropped (on_gone) */
    uint32_t max_connections;
    uint32_t max_per_client; /**< connections of one address (IPv6: of one /64
                                  network); 0 = no limit */
    bool shares_ports;   /**< others may listen at the same ones (SO_REUSEPORT):
                              all of them must say so, and be of one user */
    bt_budget_t *budget; /**< see bt_net_config_t */
    uint64_t memory_bytes; /**< for requests under way, and as much again
                                for answers that were not read */
    bt_tls_t *tls;         /**< borrowed; NULL: it speaks HTTP, not HTTPS */
} bt_http_config_t;

typedef struct bt_http_handlers {
    /** Must end in one of the respond/stream calls, now or later. */
    void (*on_request)(void *ctx, bt_exchange_t *ex);
    /** The client left (or was dropped) before the answer was finished. The
     *  exchange is freed after this call; answering it does nothing. */
    void (*on_gone)(void *ctx, bt_exchange_t *ex);
    void *ctx;
    /** May be NULL. A callback of the event loop is over. */
    void (*on_turn)(void *ctx);
    /** May be NULL: pieces of streams are sent at once. Otherwise they gather,
     *  and this says that the first one did: bt_http_flush() is due. */
    void (*on_gather)(void *ctx);
    /** May be NULL. Looks at a request's head before its body is read.
     *  @return NULL, or why it is answered with 403: one sentence, static. */
    const char *(*check_head)(void *ctx, const bt_http1_head_t *head);
    /** May be NULL. Appends the headers ("Name: value\r\n" each) that every
     *  answer to this head has, also the server's own errors from here on; for
     *  heads that check_head() let pass. */
    void (*add_headers)(void *ctx, const bt_http1_head_t *head,
                        bt_strbuf_t *out);
    /** May be NULL. Looks at a head that check_head() let pass before its body
     *  is read, but for OPTIONS; may append headers of the answer to @a out.
     *  @return NULL, or why it is answered with 401: one sentence, static. */
    const char *(*admit)(void *ctx, const bt_http1_head_t *head,
                         bt_strbuf_t *out);
    /** May be NULL. A head with the method OPTIONS that check_head() let pass.
     *  @return true: it is answered with 204 and what was appended beside the
     *  headers above; false: with 405 */
    bool (*preflight)(void *ctx, const bt_http1_head_t *head, bt_strbuf_t *out);
    /** May be NULL. Body of an error that the server itself answers (400, 408,
     *  413, …); NULL, or writing nothing, gives {"error": "…"}.
     *  @param path     NULL when the request line was not understood
     *  @param message  one sentence */
    void (*format_error)(void *ctx, const char *path, int status,
                         const char *message, bt_strbuf_t *out);
} bt_http_handlers_t;

/** All limits but max_per_client must be above 0, and memory_bytes at least
 *  twice max_body_bytes; @a config and @a handlers are copied.
 *  @retval BT_ERR_INVALID_PARAM, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_http_create(struct event_base *base,
                                         const bt_http_config_t *config,
                                         const bt_http_handlers_t *handlers,
                                         bt_http_t **http_p);
#define BT_HTTP_WHY_BYTES BT_NET_WHY_BYTES
/** Listen on one more address ("127.0.0.1", "::", port; 0 picks one).
 *  @param [out] why  after a failure: the cause, a phrase
 *  @retval  any of bt_status_of_bind(), BT_ERR_NOT_FOUND for an unknown name,
 *           BT_ERR_INVALID_PARAM, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_http_listen(bt_http_t *http, const char *host,
                                         uint16_t port, uint16_t *port_p,
                                         char why[BT_HTTP_WHY_BYTES]);
/** Stop accepting; open exchanges go on, idle connections and those that end
 *  their answer are closed. */
void bt_http_stop_listening(bt_http_t *http);
/** Close everything; calls on_gone() for each open exchange. Not from inside a
 *  handler. NULL is allowed. */
void bt_http_destroy(bt_http_t *http);
/** Send what pieces of streams have gathered, each connection's in one write.
 *  May call on_gone(). */
void bt_http_flush(bt_http_t *http);
uint32_t bt_http_n_connections(const bt_http_t *http);
void bt_http_use(const bt_http_t *http, bt_net_use_t *use);

bt_http_method_t bt_exchange_method(const bt_exchange_t *ex);
const char *bt_exchange_path(const bt_exchange_t *ex); /**< decoded, no query */
const char *bt_exchange_query(const bt_exchange_t *ex); /**< as sent, or "" */
/** Equal for exchanges of one address, and of one connection; 0: not known. */
void bt_exchange_ids(const bt_exchange_t *ex, uint64_t *address_p,
                     uint64_t *connection_p);
/** Numeric address of the client, without the port; "" when it is not known. */
void bt_exchange_client(const bt_exchange_t *ex,
                        char out[BT_HTTP_CLIENT_BYTES]);
/** As bt_stream_is_of_own_user(); false for a client that has left. */
bool bt_exchange_is_of_own_user(const bt_exchange_t *ex);
/** NULL when absent. */
const char *bt_exchange_header(const bt_exchange_t *ex, const char *name);
/** The body, zero-terminated unless it is empty, becomes the caller's; the
 *  exchange has none any more.
 *  @return bytes that the server counts as held for it until they are given to
 *  bt_http_give_back() */
size_t bt_exchange_take_body(bt_exchange_t *ex, bt_strbuf_t *body_p);
/** Count so many more bytes as held, as those of a body, until they are given
 *  back. @return false: there is no room for them; nothing was done */
BT_MUST_CHECK bool bt_http_hold(bt_http_t *http, size_t bytes);
/** The memory of a body is free for others. */
void bt_http_give_back(bt_http_t *http, size_t bytes);
void bt_exchange_set_user(bt_exchange_t *ex, void *user);
void *bt_exchange_user(const bt_exchange_t *ex);

/** Add a header to the answer, before it begins. Line breaks in it become
 *  spaces. */
void bt_exchange_add_header(bt_exchange_t *ex, const char *name,
                            const char *value);
/** The whole answer at once; ends the exchange. HEAD gets no body. */
void bt_exchange_respond(bt_exchange_t *ex, int status,
                         const char *content_type, const void *body,
                         size_t bytes);
/** bt_exchange_respond() with a long body, which need not be copied; it is
 *  empty afterwards. */
void bt_exchange_respond_take(bt_exchange_t *ex, int status,
                              const char *content_type, bt_strbuf_t *body);
/** Begin a chunked answer (200). The head goes out with the first chunk, or
 *  when the loop runs next. */
void bt_exchange_stream_begin(bt_exchange_t *ex, const char *content_type);
/** One chunk, sent at once as one write (TCP_NODELAY), or with others of the
 *  same turn where the handlers gather. Nothing for no bytes.
 *  May call on_gone() when the client's buffer is over its cap or its
 *  connection broke: @return false, the exchange is gone. */
bool bt_exchange_stream_write(bt_exchange_t *ex, const void *data,
                              size_t bytes);
/** The same, however much is unsent: for who asks bt_exchange_unsent() first,
 * and adds nothing to what a slow reader has left. */
bool bt_exchange_stream_append(bt_exchange_t *ex, const void *data,
                               size_t bytes);
/** Bytes of the answer that the client has not taken. */
size_t bt_exchange_unsent(const bt_exchange_t *ex);
/** The client is dropped, as one that leaves too much unread: on_gone(). */
void bt_exchange_cut_off(bt_exchange_t *ex);
/** A last chunk (may be empty) together with the terminating chunk in one
 *  write; ends the exchange. */
void bt_exchange_stream_end(bt_exchange_t *ex, const void *data, size_t bytes);

#endif
