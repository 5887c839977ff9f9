/* SPDX-License-Identifier: Apache-2.0 */
/** @file http_priv.h
 *
 * Inside of the HTTP server: http_server.c (listening), http_room.c (who may
 * take how much), http_conn.c (one connection's life), http_exchange.c
 * (answers).
 *
 *     accept ─▶ HEAD ─▶ BODY ─▶ EXCHANGE ─▶ DRAIN ─▶ IDLE ─▶ HEAD …
 *                 └ 408 431 413 ──────────────┤
 *                                             └▶ LINGER ─▶ DEAD
 *
 * A connection dies in two steps: conn_close() closes the socket and moves it
 * to the list of the dead; a later turn of the loop frees it. So whoever is on
 * the stack may still look at its state.
 */
#ifndef BT_ROUTER_HTTP_HTTP_PRIV_H
#define BT_ROUTER_HTTP_HTTP_PRIV_H

#include <event2/event.h>
#include <event2/event_struct.h>

#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/base/strbuf.h"
#include "router/http/http.h"
#include "router/http/http1.h"

#define BT_HTTP_MAX_LISTENERS 16
#define BT_HTTP_SCRATCH_BYTES ((size_t)64 * 1024)
#define BT_HTTP_PIPELINE_BYTES                           \
    ((size_t)64 * 1024) /**< kept while an answer is due \
                         */
#define BT_HTTP_SEND_BYTES \
    ((size_t)256 * 1024) /**< of an answer in one turn: some 100 us */
#define BT_HTTP_LINGER_MS  1000u
#define BT_HTTP_KEEP_BYTES (4u * 1024u) /**< of buffer between answers */
#define BT_HTTP_SMALL_BODY_BYTES \
    ((size_t)64 * 1024) /**< larger ones leave a quarter of the room free */
#define BT_HTTP_CLIENT_BUCKETS 4096u

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

/** An address that has connections. */
typedef struct bt_http_client {
    bt_list_t link;  /**< in http->clients */
    uint8_t key[16]; /**< IPv6, or IPv4 mapped to it */
    uint32_t n_conns;
    bt_list_t quiet; /**< longest first */
} bt_http_client_t;

typedef struct bt_conn {
    bt_list_t link;        /**< in one of http's lists */
    bt_list_t client_link; /**< in client->quiet, while it is quiet */
    bt_list_t behind_link; /**< in http->behind, while bytes are unsent */
    bt_list_t gather_link; /**< in http->gathering, until bt_http_flush() */
    bt_http_t *http;
    bt_http_client_t *client; /**< NULL: clients are not counted */
    int fd;
    bt_conn_state_t state;
    uint32_t epoch;       /**< rises with each change of state */
    uint32_t timer_epoch; /**< the change that the timer was set for */
    bool feeding;         /**< conn_feed() is on the stack */
    bool handed;          /**< it has handed over a request */
    bool want_write;      /**< ev_write is added */
    bool close_after;     /**< this answer is the last */
    struct event ev_read, ev_write, ev_timer;
    struct event ev_again; /**< on_read() in the loop's next turn */
    bt_strbuf_t in;        /**< HEAD: the head so far; later: pipelined bytes */
    size_t in_charged;     /**< of http->use.request_bytes */
    size_t seen;           /**< of `in`, by bt_http1_head_end() */
    bt_exchange_t *ex;     /**< from BODY to the end of the answer */
    bt_strbuf_t out;
    size_t out_sent;    /**< bytes of `out` that are gone */
    size_t out_charged; /**< of http->use.answer_bytes */
} bt_conn_t;

struct bt_exchange {
    bt_http_t *http;
    bt_conn_t *conn; /**< NULL once the client is gone */
    size_t charged;  /**< of http->use.request_bytes */
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

typedef struct bt_listener {
    bt_http_t *http;
    int fd;
    struct event ev;
} bt_listener_t;

struct bt_http {
    struct event_base *base;
    bt_http_config_t config;
    bt_http_handlers_t handlers;
    bt_listener_t listeners[BT_HTTP_MAX_LISTENERS];
    uint32_t n_listeners;
    bool stopped;
    bool out_of_files; /**< accepting is paused */
    bt_list_t quiet;   /**< IDLE and HEAD, longest first */
    bt_list_t reading; /**< BODY, longest first */
    bt_list_t busy;    /**< the other states */
    bt_list_t dead;
    bt_list_t behind;    /**< with unsent bytes, longest first */
    bt_list_t gathering; /**< with pieces of streams of this turn */
    uint32_t n_conns;    /**< all but the dead */
    bt_http_use_t use;
    bt_hmap_t clients;
    bt_list_t *buckets; /**< owned; NULL: clients are not counted */
    uint64_t client_seed;
    struct event ev_reap;
    struct event ev_cut;
    struct event ev_accept_again;
    int64_t date_s; /**< the second that `date` says */
    char date[32];
    char *scratch; /**< BT_HTTP_SCRATCH_BYTES */
};

/* ---- http_server.c ---- */

/** An event of clients gets the last priority of its loop. */
void bt_http_put_last(bt_http_t *http, struct event *ev);
/** At the end of each callback of the event loop. */
void bt_http_turn(bt_http_t *http);

/* ---- http_room.c ---- */

/** @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_http_room_init(bt_http_t *http);
void bt_http_room_fini(bt_http_t *http);
/** The connection belongs to its state's list from now on. */
void bt_http_file(bt_conn_t *conn);
/** Make room for a connection from @a from, at the cost of others.
 *  @param [out] client_p  counted already; NULL: clients are not counted
 *  @return 0, or the status to turn it away with */
int bt_http_admit(bt_http_t *http, const struct sockaddr_storage *from,
                  bt_http_client_t **client_p);
/** One connection less. @param client  may be NULL; may be freed */
void bt_http_client_leave(bt_http_client_t *client);
/** Close a quiet connection, the longest quiet one. @return false: none */
bool bt_http_close_quiet(bt_http_t *http);
/** Is there room for @a more bytes of a request that has @a have? */
bool bt_http_has_room(const bt_http_t *http, uint64_t have, uint64_t more);
/** Bring up to date what these hold. */
void bt_http_charge_in(bt_conn_t *conn);
void bt_http_charge_out(bt_conn_t *conn);
void bt_http_charge_exchange(bt_exchange_t *ex);
/** Close quiet connections other than @a conn until what requests hold is
 *  within the limit. @return false: it is not */
bool bt_http_make_room(bt_http_t *http, const bt_conn_t *conn);

/* ---- http_conn.c ---- */

/** Takes over @a fd and its place at @a client on success. */
BT_MUST_CHECK bt_status_t bt_conn_create(bt_http_t *http, int fd,
                                         bt_http_client_t *client);
/** Close, tell the handlers of an open exchange; freed later. */
void bt_conn_close(bt_conn_t *conn);
/** Free what bt_conn_close() left. */
void bt_conn_free(bt_conn_t *conn);
/**
 * Send what the socket takes, or about as much as @a most.
 * @retval BT_OK         all is sent.
 * @retval BT_INPROGRESS the loop sends the rest.
 * @retval BT_ERR_PEER_LOST
 */
BT_MUST_CHECK bt_status_t bt_conn_flush(bt_conn_t *conn, size_t most);
/** The answer is complete in `out`: send it, then next request or close. */
void bt_conn_end_answer(bt_conn_t *conn);
/** Let the loop send `out` soon. */
void bt_conn_flush_later(bt_conn_t *conn);
/** Send what the socket takes of `out`; what follows from that may close it. */
void bt_conn_go_on(bt_conn_t *conn);

/** NULL when memory is short. Takes over @a head_text on success. */
bt_exchange_t *bt_exchange_create(bt_conn_t *conn, char *head_text,
                                  size_t head_bytes,
                                  const bt_http1_head_t *head);
void bt_exchange_free(bt_exchange_t *ex);
/** Append the head of an answer. @param length  UINT64_MAX: without one */
void bt_exchange_write_head(bt_conn_t *conn, int status,
                            const char *content_type, uint64_t length,
                            bool chunked, const bt_strbuf_t *extra, int minor);

#endif
