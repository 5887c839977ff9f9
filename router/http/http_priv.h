/* SPDX-License-Identifier: Apache-2.0 */
/** @file http_priv.h
 *
 * Inside of the HTTP server: http_server.c (its birth and end), http_conn.c
 * (one connection's life), http_exchange.c (answers). Sockets, places and
 * memory are the net's (router/net).
 *
 *     accept ─▶ HEAD ─▶ BODY ─▶ EXCHANGE ─▶ DRAIN ─▶ IDLE ─▶ HEAD …
 *                 └ 408 431 413 ──────────────┤
 *                                             └▶ LINGER ─▶ DEAD
 *
 * A connection dies in two steps, with its stream: closed it is DEAD; a later
 * turn of the loop frees it. So whoever is on the stack may still look at its
 * state.
 */
#ifndef BT_ROUTER_HTTP_HTTP_PRIV_H
#define BT_ROUTER_HTTP_HTTP_PRIV_H

#include "common/base/strbuf.h"
#include "router/http/http.h"
#include "router/http/http1.h"
#include "router/net/net.h"

#define BT_HTTP_PIPELINE_BYTES \
    ((size_t)64 * 1024)  /**< kept while an answer is due */
#define BT_HTTP_IN_BYTES /**< one read behind a head or pipelined bytes */ \
    ((size_t)64 * 1024 + BT_HTTP1_MAX_HEAD_BYTES + BT_HTTP_PIPELINE_BYTES)
#define BT_HTTP_EXTRA_BYTES (16u * 1024u) /**< of an answer's own headers */
#define BT_HTTP_LINGER_MS   1000u

typedef enum bt_conn_state {
    BT_CONN_IDLE,     /**< between two requests */
    BT_CONN_HEAD,     /**< reading a head, or waiting for the first one */
    BT_CONN_BODY,     /**< reading a body */
    BT_CONN_EXCHANGE, /**< the handlers have the request */
    BT_CONN_DRAIN,    /**< the answer ended, some of it is unsent */
    BT_CONN_LINGER,   /**< all sent and shut; reading on for the client's FIN,
                           because closing on unread bytes resets, and a reset
                           may destroy the answer on its way */
    BT_CONN_DEAD,
} bt_conn_state_t;

typedef struct bt_conn {
    bt_http_t *http;
    bt_stream_t *stream;
    bt_conn_state_t state;
    uint32_t epoch;       /**< rises with each change of state */
    uint32_t timer_epoch; /**< the change that the timer was set for */
    bool feeding;         /**< conn_feed() is on the stack */
    bool handed;          /**< it has handed over a request */
    bool close_after;     /**< this answer is the last */
    bt_strbuf_t in;       /**< HEAD: the head so far; later: pipelined bytes */
    size_t in_charged;    /**< to the net */
    size_t seen;          /**< of `in`, by bt_http1_head_end() */
    bt_exchange_t *ex;    /**< from BODY to the end of the answer */
} bt_conn_t;

struct bt_exchange {
    bt_http_t *http;
    bt_conn_t *conn; /**< NULL once the client is gone */
    size_t charged;  /**< to the net */
    void *user;
    bool delivered; /**< on_request() was called */
    bool streaming;
    bool chunked_answer;
    bt_http_method_t method;
    char *head_text; /**< owned; `head` points into it */
    size_t head_bytes;
    bt_http1_head_t head;
    bt_strbuf_t body;
    uint64_t body_left; /**< without chunked coding */
    bt_http1_chunked_t chunked;
    bt_strbuf_t headers; /**< of the answer, "Name: value\r\n" each */
};

struct bt_http {
    bt_http_config_t config;
    bt_http_handlers_t handlers;
    bt_net_t *net;
    int64_t date_s; /**< the second that `date` says */
    char date[32];
};

/* ---- http_conn.c ---- */

/** Handler of bt_net_handlers_t; @a http is a bt_http_t. */
bt_status_t bt_http_on_stream(void *http, bt_stream_t *stream);
/** Close, tell the handlers of an open exchange; freed later. */
void bt_conn_close(bt_conn_t *conn);
/** The answer is complete in the stream's buffer: send it, then next request
 *  or close. */
void bt_conn_end_answer(bt_conn_t *conn);

/* ---- http_exchange.c ---- */

/** NULL when memory is short. Takes over @a head_text on success. */
bt_exchange_t *bt_exchange_create(bt_conn_t *conn, char *head_text,
                                  size_t head_bytes,
                                  const bt_http1_head_t *head);
void bt_exchange_free(bt_exchange_t *ex);
/** Bring up to date what it holds. */
void bt_exchange_charge(bt_exchange_t *ex);
/** Append the head of an answer. @param length  UINT64_MAX: without one */
void bt_exchange_write_head(bt_conn_t *conn, int status,
                            const char *content_type, uint64_t length,
                            bool chunked, const bt_strbuf_t *extra, int minor);

#endif
