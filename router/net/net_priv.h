/* SPDX-License-Identifier: Apache-2.0 */
/** @file net_priv.h  Shared by net.c (listening), room.c (who may take how
 * much) and stream.c (one connection's bytes) only.
 */
#ifndef BT_ROUTER_NET_NET_PRIV_H
#define BT_ROUTER_NET_NET_PRIV_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <sys/socket.h>

#include "common/base/hmap.h"
#include "common/base/list.h"
#include "router/net/net.h"

#define BT_NET_MAX_LISTENERS 16
#define BT_NET_SCRATCH_BYTES ((size_t)64 * 1024)
#define BT_NET_KEEP_BYTES    (4u * 1024u) /**< of buffer between answers */
#define BT_NET_SMALL_BYTES \
    ((size_t)64 * 1024) /**< larger ones leave a quarter of the room free */
#define BT_NET_CLIENT_BUCKETS 4096u

/** An address that has connections. */
typedef struct bt_net_client {
    bt_list_t link;  /**< in net->clients */
    uint8_t key[16]; /**< IPv6, or IPv4 mapped to it */
    uint32_t n_conns;
    bt_list_t quiet; /**< longest first */
} bt_net_client_t;

struct bt_stream {
    bt_list_t link;        /**< in one of net's lists */
    bt_list_t client_link; /**< in client->quiet, while it is quiet */
    bt_list_t behind_link; /**< in net->behind, while bytes are unsent */
    bt_list_t gather_link; /**< in net->gathering, until bt_net_flush() */
    bt_list_t shake_link;  /**< in net->shaking, when it is its turn */
    bt_net_t *net;
    bt_net_client_t *client; /**< NULL: clients are not counted */
    const bt_stream_handlers_t *handlers;
    void *user;
    int fd; /**< -1: closed */
    bt_stream_place_t place;
    bool want_write; /**< ev_write is added */
    bool shaking;    /**< hands, with TLS: the user hears nothing yet */
    bool unread;     /**< decrypted bytes, or an end, that no socket tells of */
    bool replying; /**< TLS itself, when the socket takes it; nothing is read */
    bool ending;   /**< bt_stream_shutdown() waits for the socket */
    bool told_of_stop;
    struct event ev_read, ev_write, ev_timer;
    struct event ev_again; /**< on_readable() in the loop's next turn */
    bt_strbuf_t out;
    size_t out_sent;       /**< bytes of `out` that are gone */
    bt_strbuf_t next;      /**< taken whole, to be sent after `out` */
    size_t held;           /**< bytes of answers that the user keeps for it */
    size_t out_charged;    /**< of net->use.answer_bytes */
    bt_tls_session_t *tls; /**< NULL: plain */
    size_t tls_charged;    /**< of net->use.request_bytes */
};

typedef struct bt_listener {
    bt_net_t *net;
    int fd;
    struct event ev;
} bt_listener_t;

struct bt_net {
    struct event_base *base;
    bt_net_config_t config;
    bt_net_handlers_t handlers;
    bt_listener_t listeners[BT_NET_MAX_LISTENERS];
    uint32_t n_listeners;
    bool stopped;
    bool out_of_files;   /**< accepting is paused */
    bt_list_t quiet;     /**< longest first */
    bt_list_t reading;   /**< longest first */
    bt_list_t busy;      /**< the others */
    bt_list_t dead;      /**< closed, to be freed */
    bt_list_t behind;    /**< with unsent bytes, longest first */
    bt_list_t gathering; /**< with pieces of this turn */
    bt_list_t shaking;   /**< have sent something to the handshake */
    uint32_t n_conns;    /**< all but the dead */
    bt_net_use_t use;
    bt_hmap_t clients;
    bt_list_t *buckets; /**< owned; NULL: clients are not counted */
    uint64_t client_seed;
    struct event ev_reap;
    struct event ev_cut;
    struct event ev_shake;
    struct event ev_accept_again;
    char *scratch; /**< BT_NET_SCRATCH_BYTES */
};

/* ---- net.c ---- */

/** An event of clients gets the last priority of its loop. */
void bt_net_put_last(bt_net_t *net, struct event *ev);
/** At the end of each callback of the event loop. */
void bt_net_turn(bt_net_t *net);

/** Say why, without TLS; it is counted. */
void bt_net_refuse(bt_net_t *net, int fd, bt_net_refusal_t refusal);
/** Read some of what came, before closing. */
void bt_net_drain(int fd);
/** Those of net->shaking get their turn. */
void bt_net_shake_soon(bt_net_t *net);

/* ---- room.c ---- */

/** @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_net_room_init(bt_net_t *net);
void bt_net_room_fini(bt_net_t *net);
/** Make room for a connection from @a from, at the cost of others.
 *  @param [out] client_p  counted already; NULL: clients are not counted */
bt_net_refusal_t bt_net_admit(bt_net_t *net,
                              const struct sockaddr_storage *from,
                              bt_net_client_t **client_p);
/** One connection less. @param client  may be NULL; may be freed */
void bt_net_client_leave(bt_net_client_t *client);
/** Close a quiet connection, the longest quiet one. @return false: none */
bool bt_net_close_quiet(bt_net_t *net);
/** Bring up to date what it holds for bytes that are not sent. */
void bt_net_charge_out(bt_stream_t *stream);

/* ---- stream.c ---- */

/** Takes over @a fd and its place at @a client on success. */
BT_MUST_CHECK bt_status_t bt_stream_create(bt_net_t *net, int fd,
                                           bt_net_client_t *client);
/** One step of a handshake, of some 1 ms. May close it. */
void bt_stream_shake(bt_stream_t *stream);
/** Free what bt_stream_close() left. */
void bt_stream_free(bt_stream_t *stream);

#endif
