/* SPDX-License-Identifier: Apache-2.0 */
/** @file grpc_priv.h  Shared by grpc.c (the server), conn.c (a connection) and
 * gcall.c (a call) only.
 *
 * A connection, of which RFC 9113 knows more in h2.c:
 *
 *     accept ─▶ OPENING ─ preface, settings ─▶ OPEN ──▶ LINGER ─▶ closed
 *                                 listening ends │        ▲
 *                                                └─▶ LEAVING
 */
#ifndef BT_ROUTER_GRPC_GRPC_PRIV_H
#define BT_ROUTER_GRPC_GRPC_PRIV_H

#include "common/base/list.h"
#include "router/grpc/grpc.h"
#include "router/grpc/h2.h"

#define BT_GRPC_MAX_FIELDS 2

typedef enum bt_gconn_state {
    BT_GCONN_OPENING, /**< who it is has not been said */
    BT_GCONN_OPEN,
    BT_GCONN_LEAVING, /**< no more streams; those that are open go on */
    BT_GCONN_LINGER,  /**< all sent and shut; reading on for the client's FIN */
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
    bt_stream_place_t place;
    bt_list_t calls; /**< all */
    bt_list_t ready; /**< that have something to be handed over, in order */
    size_t charged;  /**< of the net */
    bool in_turn;    /**< a callback of it is on the stack, and sends */
    bool refused;    /**< it takes no more streams */
    bool broken;     /**< the protocol was: what is left is sent, no more */
    bool in_head;
    uint64_t since_ms; /**< of the state, or of being without streams */
    uint64_t head_ms;  /**< of in_head */
    uint64_t sent_ms;  /**< when the socket last took something */
    uint64_t timer_ms; /**< when the timer runs out; 0: it does not */
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
    size_t charged;    /**< of the message that is read */
    bt_list_t waiting; /**< bt_gwaiting_t: complete, not handed over */
    bool half_closed;  /**< by the client */
    bool told_half_close;
    bool is_running; /**< its method was told of it */
    bool began;      /**< our head was sent */
    size_t largest;  /**< message since the client had read nearly all */
    bool ended;      /**< it had its last word */
    bool wants_gzip;
    bt_h2_field_t fields[BT_GRPC_MAX_FIELDS];
    char memo[BT_GCALL_MEMO_BYTES];
    size_t n_fields;
    uint64_t start_us;
    uint64_t body_end_ms; /**< 0: nothing is due */
    uint64_t end_ms; /**< of its deadline, or of taking the answer; 0: none */
};

/* ---- conn.c ---- */

extern const bt_stream_handlers_t bt_gconn_stream_handlers;
/** For bt_net_handlers_t; @a grpc is a bt_grpc_t. */
bt_status_t bt_gconn_accept(void *grpc, bt_stream_t *stream);
/** There is something to send. */
void bt_gconn_dirty(bt_gconn_t *conn);
/** The timer runs out then at the latest. */
void bt_gconn_expect(bt_gconn_t *conn, uint64_t at_ms);

/* ---- gcall.c ---- */

/** Of bt_h2_handlers_t; @a conn is a bt_gconn_t. */
void bt_gcall_on_request(void *conn, bt_h2_stream_t *stream);
void bt_gcall_on_data(void *conn, bt_h2_stream_t *stream, const void *data,
                      size_t bytes);
void bt_gcall_on_end(void *conn, bt_h2_stream_t *stream);
void bt_gcall_on_closed(void *conn, bt_h2_stream_t *stream);
/** Hand over one thing: a message, or that the client has said all. Leaves
 *  conn->ready unless there is more. */
void bt_gcall_deliver(bt_gcall_t *call);
/** Its connection is closed: its method is told; it frees itself. */
void bt_gcall_give_up(bt_gcall_t *call);
/** Its deadlines. @return the next one, 0: none */
uint64_t bt_gcall_look_at_time(bt_gcall_t *call, uint64_t now_ms);

#endif
