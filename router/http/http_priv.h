/* SPDX-License-Identifier: Apache-2.0 */
/** @file http_priv.h
 *
 * Internals of the HTTP server: http_server.c (creation and end), http_conn.c
 * (one connection), http_exchange.c (answers). Sockets, connection slots and
 * memory belong to the net (router/net).
 *
 *     accept ─▶ HEAD ─▶ BODY ─▶ EXCHANGE ─▶ DRAIN ─▶ IDLE ─▶ HEAD …
 *                 └ 408 431 413 ──────────────┤
 *                                             └▶ LINGER ─▶ DEAD
 *
 * A connection ends in two steps, with its stream: when closed it is DEAD; a
 * later turn of the loop frees it. So callers on the stack may still read its
 * state.
 */
#ifndef BT_ROUTER_HTTP_HTTP_PRIV_H
#define BT_ROUTER_HTTP_HTTP_PRIV_H

#include "common/base/text.h"
#include "router/http/http.h"
#include "router/http/http1.h"
#include "router/net/net.h"

#define BT_HTTP_PIPELINE_BYTES \
    ((size_t)64 * 1024)  /**< buffered while an answer is due */
#define BT_HTTP_IN_BYTES /**< one read behind a head or pipelined bytes */ \
    ((size_t)64 * 1024 + BT_HTTP1_MAX_HEAD_BYTES + BT_HTTP_PIPELINE_BYTES)
#define BT_HTTP_EXTRA_BYTES (16u * 1024u) /**< answer headers */
#define BT_HTTP_LINGER_MS   1000u

typedef enum bt_conn_state {
    BT_CONN_IDLE,     /**< between two requests */
    BT_CONN_HEAD,     /**< reading a head, or waiting for the first one */
    BT_CONN_BODY,     /**< reading a body */
    BT_CONN_EXCHANGE, /**< the handlers have the request */
    BT_CONN_DRAIN,    /**< answer ended, but is partly unsent */
    BT_CONN_LINGER,   /**< all sent and shut; still reading until the client's
                         FIN, because closing with unread bytes causes a reset,
                         which may destroy the answer on its way */
    BT_CONN_DEAD,
} bt_conn_state_t;

typedef struct bt_conn {
    bt_http_t *http;
    bt_stream_t *stream;
    bt_conn_state_t state;
    uint32_t epoch;       /**< incremented with each change of state */
    uint32_t timer_epoch; /**< epoch for which the timer was set */
    bool feeding;         /**< feed() is on the stack */
    bool handed;          /**< a request was handed over */
    bool close_after;     /**< current answer is the last */
    bt_strbuf_t in;       /**< HEAD: the head so far; later: pipelined bytes */
    size_t in_charged;    /**< bytes charged to the net */
    size_t seen;          /**< bytes of `in` that bt_http1_head_end() scanned */
    bt_exchange_t *ex;    /**< from BODY to the end of the answer */
} bt_conn_t;

struct bt_exchange {
    bt_http_t *http;
    bt_conn_t *conn; /**< NULL once the client is gone */
    size_t charged;  /**< bytes charged to the net */
    void *user;
    bool delivered; /**< on_request() was called */
    bool streaming;
    bool is_sending; /**< a piece, after which on_sent() is due */
    bool chunked_answer;
    bt_http_method_t method;
    char *head_text; /**< owned; `head` points into it */
    size_t head_bytes;
    bt_http1_head_t head;
    bt_strbuf_t body;
    uint64_t body_left; /**< without chunked coding: bytes missing */
    bt_http1_chunked_t chunked;
    bt_strbuf_t headers; /**< answer headers, "Name: value\r\n" each */
};

struct bt_http {
    bt_http_config_t config;
    bt_http_handlers_t handlers;
    bt_net_t *net;
    int64_t date_s; /**< second that `date` shows */
    char date[32];
};

/* ---- http_conn.c ---- */

/** Handler of bt_net_handlers_t; @a http is a bt_http_t. */
bt_status_t bt_http_on_stream(void *http, bt_stream_t *stream);
/** Closes a connection and notifies the handlers of an open exchange; freed
 *  later. */
void bt_conn_close(bt_conn_t *conn);
/** Sends a complete answer from the stream's buffer, then starts the next
 *  request or closes. */
void bt_conn_end_answer(bt_conn_t *conn);

/* ---- http_exchange.c ---- */

/** Creates an exchange; takes over @a head_text on success. NULL when memory is
 *  short. */
bt_exchange_t *bt_exchange_create(bt_conn_t *conn, char *head_text,
                                  size_t head_bytes,
                                  const bt_http1_head_t *head);
void bt_exchange_free(bt_exchange_t *ex);
/** Updates the memory charged for an exchange. */
void bt_exchange_charge(bt_exchange_t *ex);
/** Appends the head of an answer. @param length  UINT64_MAX: without one */
void bt_exchange_write_head(bt_conn_t *conn, int status,
                            const char *content_type, uint64_t length,
                            bool chunked, const bt_strbuf_t *extra, int minor);

#endif
