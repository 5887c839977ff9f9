/* SPDX-License-Identifier: Apache-2.0 */
/** @file http.h
 *
 * The HTTP/1.1 server of the router, on libevent's evhttp: the only includer of
 * event2 headers besides router/core/loop.c.
 *
 * evhttp's own time-outs start again with each byte, so absolute deadlines are
 * kept here: for the whole header, the whole body, and an idle keep-alive
 * connection. A body over the limit answers 413 and closes. A client that
 * leaves is noticed while its request waits or streams.
 *
 * An *exchange* is one request and its answer. It is born complete (header and
 * body read) in on_request() and lives until its answer was finished or
 * on_gone() was called; after either, nobody may touch it.
 *
 * Threads: all on the event loop's thread.
 */
#ifndef BT_ROUTER_HTTP_HTTP_H
#define BT_ROUTER_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct event_base;
typedef struct bt_http bt_http_t;
typedef struct bt_exchange bt_exchange_t;

typedef enum bt_http_method {
    BT_HTTP_GET,
    BT_HTTP_HEAD,
    BT_HTTP_POST,
    BT_HTTP_OTHER,
} bt_http_method_t;

typedef struct bt_http_config {
    uint64_t max_body_bytes;
    uint32_t header_timeout_ms, body_timeout_ms, idle_timeout_ms;
    uint32_t client_buffer_bytes; /**< unsent bytes; past it the client is
                                       dropped (on_gone) */
    uint32_t max_connections;
} bt_http_config_t;

typedef struct bt_http_handlers {
    /** Must end in one of the respond/stream calls, now or later. */
    void (*on_request)(void *ctx, bt_exchange_t *ex);
    /** The client left (or was dropped) before the answer was finished. The
     *  exchange is freed after this call. */
    void (*on_gone)(void *ctx, bt_exchange_t *ex);
    void *ctx;
} bt_http_handlers_t;

BT_MUST_CHECK bt_status_t bt_http_create(struct event_base *base,
                                         const bt_http_config_t *config,
                                         const bt_http_handlers_t *handlers,
                                         bt_http_t **http_p);
/** Listen on one more address ("127.0.0.1", "::", port; 0 picks one).
 *  @retval BT_ERR_IO  in use or not ours (logged, with the address) */
BT_MUST_CHECK bt_status_t bt_http_listen(bt_http_t *http, const char *host,
                                         uint16_t port, uint16_t *port_p);
/** Stop accepting; open exchanges go on. */
void bt_http_stop_listening(bt_http_t *http);
void bt_http_destroy(bt_http_t *http); /**< closes everything */
uint32_t bt_http_n_connections(const bt_http_t *http);

bt_http_method_t bt_exchange_method(const bt_exchange_t *ex);
const char *bt_exchange_path(const bt_exchange_t *ex); /**< decoded, no query */
/** NULL when absent. */
const char *bt_exchange_header(const bt_exchange_t *ex, const char *name);
const void *bt_exchange_body(const bt_exchange_t *ex, size_t *bytes_p);
void bt_exchange_set_user(bt_exchange_t *ex, void *user);
void *bt_exchange_user(const bt_exchange_t *ex);

/** Add a header to the answer, before it begins. */
void bt_exchange_add_header(bt_exchange_t *ex, const char *name,
                            const char *value);
/** The whole answer at once; ends the exchange. HEAD gets no body. */
void bt_exchange_respond(bt_exchange_t *ex, int status,
                         const char *content_type, const void *body,
                         size_t bytes);
/** Begin a chunked answer (200). */
void bt_exchange_stream_begin(bt_exchange_t *ex, const char *content_type);
/** One chunk, sent at once as one write (TCP_NODELAY). May call on_gone() when
 *  the client's buffer is over its cap: @return false, the exchange is gone. */
bool bt_exchange_stream_write(bt_exchange_t *ex, const void *data,
                              size_t bytes);
/** A last chunk (may be empty) together with the terminating chunk in one
 *  write; ends the exchange. */
void bt_exchange_stream_end(bt_exchange_t *ex, const void *data, size_t bytes);

#endif
