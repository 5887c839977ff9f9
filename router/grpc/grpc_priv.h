/* SPDX-License-Identifier: Apache-2.0 */
/** @file grpc_priv.h
 *
 * Shared by conn.c (the server and its connections) and gcall.c (a call) only.
 *
 * States of a connection (h2.c has the details of RFC 9113):
 *
 *     accept ─▶ OPENING ─ preface, settings ─▶ OPEN ──▶ LINGER ─▶ closed
 *                                 listening ends │        ▲
 *                                                └─▶ LEAVING
 */
#ifndef BT_ROUTER_GRPC_GRPC_PRIV_H
#define BT_ROUTER_GRPC_GRPC_PRIV_H

#include "common/base/containers.h"
#include "router/grpc/grpc.h"
#include "router/grpc/h2.h"

#define BT_GRPC_MAX_FIELDS 2

typedef enum bt_gconn_state {
    BT_GCONN_OPENING, /**< waits for the client's preface and settings */
    BT_GCONN_OPEN,
    BT_GCONN_LEAVING, /**< no new streams; open streams continue */
    BT_GCONN_LINGER,  /**< all sent and shut; reading until the client's FIN */
    BT_GCONN_CLOSED,
} bt_gconn_state_t;

struct bt_grpc {
    bt_net_t *net;
    bt_grpc_config_t config;
    bt_grpc_handlers_t handlers;
};

typedef struct bt_gconn {
    bt_grpc_t *grpc;
    bt_stream_t *stream;
    bt_h2_t *h2;
    bt_gconn_state_t state;
    bt_stream_class_t class;
    bt_list_t calls; /**< all calls */
    bt_list_t ready; /**< calls with something to deliver, in order */
    size_t charged;  /**< bytes charged to the net */
    bool in_turn;    /**< a callback is on the stack and will send */
    bool refused;    /**< new streams are refused */
    bool broken;     /**< protocol error: pending data is sent, then closed */
    bool in_head;
    uint64_t since_ms; /**< start of the state, or of having no streams */
    uint64_t head_ms;  /**< start of in_head */
    uint64_t sent_ms;  /**< time the socket last accepted bytes */
    uint64_t timer_ms; /**< expiry of the timer; 0: not armed */
} bt_gconn_t;

typedef struct bt_gwaiting {
    bt_list_t link; /**< in call->waiting */
    bt_gmessage_t message;
} bt_gwaiting_t;

struct bt_gcall {
    bt_list_t link;       /**< in conn->calls */
    bt_list_t ready_link; /**< in conn->ready */
    bt_gconn_t *conn;
    bt_h2_stream_t *stream;
    const bt_gmethod_t *method;
    void *user;
    bt_grpc_reader_t reader;
    size_t charged;    /**< bytes charged for the current message */
    bt_list_t waiting; /**< bt_gwaiting_t: complete, not delivered */
    bool half_closed;  /**< by the client */
    bool half_close_delivered;
    bool is_running; /**< the method has received a callback */
    bool began;      /**< the answer's header was sent */
    size_t largest; /**< largest message since the client had read nearly all */
    bool ended;     /**< the status code was set */
    bool wants_gzip;
    bt_h2_field_t fields[BT_GRPC_MAX_FIELDS];
    char memo[BT_GCALL_MEMO_BYTES];
    size_t n_fields;
    uint64_t start_us;
    uint64_t body_end_ms; /**< 0: no body is expected */
    uint64_t end_ms; /**< deadline, or limit for reading the answer; 0: none */
};

/* ---- conn.c ---- */

/** Marks a connection as having something to send. */
void bt_gconn_dirty(bt_gconn_t *conn);
/** Arms the timer to expire at @a at_ms at the latest. */
void bt_gconn_expect(bt_gconn_t *conn, uint64_t at_ms);

/* ---- gcall.c ---- */

/** Handlers of bt_h2_handlers_t; @a conn is a bt_gconn_t. */
void bt_gcall_on_request(void *conn, bt_h2_stream_t *stream);
void bt_gcall_on_data(void *conn, bt_h2_stream_t *stream, const void *data,
                      size_t bytes);
void bt_gcall_on_end(void *conn, bt_h2_stream_t *stream);
void bt_gcall_on_closed(void *conn, bt_h2_stream_t *stream);
/** Delivers one item: a message, or the client's half-close. Leaves
 *  conn->ready unless there is more. */
void bt_gcall_deliver(bt_gcall_t *call);
/** Ends a call whose connection is closed: on_gone() is called.
 *  bt_gcall_on_closed() frees the call. */
void bt_gcall_abort(bt_gcall_t *call);
/** Checks the deadlines of a call.
 *  @return the next deadline in ms; 0: none */
uint64_t bt_gcall_check_deadlines(bt_gcall_t *call, uint64_t now_ms);

#endif
