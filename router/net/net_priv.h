/* SPDX-License-Identifier: Apache-2.0 */
/** @file net_priv.h
 *
 * Shared by net.c (listening), limits.c (connection and memory limits) and
 * stream.c (one connection's bytes) only.
 */
#ifndef BT_ROUTER_NET_NET_PRIV_H
#define BT_ROUTER_NET_NET_PRIV_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <sys/socket.h>

#include "common/base/containers.h"
#include "router/net/net.h"

#define BT_NET_MAX_LISTENERS 16
#define BT_NET_SCRATCH_BYTES ((size_t)64 * 1024)
#define BT_NET_KEEP_BYTES    (4u * 1024u) /**< buffer kept between answers */
#define BT_NET_SMALL_BYTES \
    ((size_t)64 * 1024) /**< larger requests leave a quarter free */
#define BT_NET_CLIENT_BUCKETS 4096u

/** Client address that has connections. */
typedef struct bt_net_client {
    bt_list_t link;  /**< link in net->clients */
    uint8_t key[16]; /**< IPv6, or IPv4 mapped to it */
    uint32_t n_conns;
    bt_list_t quiet; /**< quiet streams, longest first */
} bt_net_client_t;

struct bt_stream {
    bt_list_t link;        /**< link in one of net's lists */
    bt_list_t client_link; /**< link in client->quiet, while quiet */
    bt_list_t behind_link; /**< link in net->behind, while bytes are unsent */
    bt_list_t gather_link; /**< link in net->gathering, until bt_net_flush() */
    /** Link in net->shaking, when a handshake step is due. */
    bt_list_t handshake_link;
    bt_net_t *net;
    bt_net_client_t *client; /**< NULL: clients are not counted */
    const bt_stream_handlers_t *handlers;
    void *user;
    int fd; /**< -1: closed */
    bt_stream_class_t class;
    bool want_write;   /**< ev_write is added */
    bool in_handshake; /**< TLS handshake in progress: no user callbacks yet */
    bool unread;       /**< decrypted bytes or an end are left in TLS */
    bool replying;     /**< TLS itself must send first; nothing is read */
    bool ending;       /**< bt_stream_shutdown() waits for the socket */
    bool stop_reported;
    struct event ev_read, ev_write, ev_timer;
    /** Requests on_readable() in the loop's next turn. */
    struct event ev_again;
    bt_strbuf_t out;
    size_t out_sent;       /**< sent bytes of `out` */
    bt_strbuf_t next;      /**< owned data to be sent after `out` */
    size_t held;           /**< answer bytes that the user buffers */
    size_t out_charged;    /**< bytes charged to net->use.answer_bytes */
    bt_tls_session_t *tls; /**< NULL: plain */
    size_t tls_charged;    /**< bytes charged to net->use.request_bytes */
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
    bool out_of_files;      /**< accepting is paused */
    bt_list_t quiet;        /**< quiet streams, longest first */
    bt_list_t reading;      /**< reading streams, longest first */
    bt_list_t busy;         /**< all other streams */
    bt_list_t dead;         /**< closed streams to be freed */
    bt_list_t behind;       /**< streams with unsent bytes, longest first */
    bt_list_t gathering;    /**< streams with pieces of this turn */
    bt_list_t in_handshake; /**< streams whose handshake data has arrived */
    uint32_t n_conns;       /**< all streams but the dead */
    bt_net_use_t use;
    bt_hmap_t clients;
    bt_list_t *buckets; /**< owned; NULL: clients are not counted */
    uint64_t client_seed;
    struct event ev_reap;
    struct event ev_cut;
    struct event ev_handshake;
    struct event ev_accept_again;
    char *scratch; /**< BT_NET_SCRATCH_BYTES */
};

/* ---- net.c ---- */

/** Gives an event of clients the lowest priority of its loop. */
void bt_net_put_last(bt_net_t *net, struct event *ev);
/** Ends a callback of the event loop: calls on_turn(). */
void bt_net_turn(bt_net_t *net);

/** Answers a refused connection with the reason, without TLS, and counts it. */
void bt_net_refuse(bt_net_t *net, int fd, bt_net_refusal_t refusal);
/** Reads some of the received bytes, before closing. */
void bt_net_drain(int fd);
/** Schedules the next handshake steps of net->shaking. */
void bt_net_handshake_soon(bt_net_t *net);

/* ---- limits.c ---- */

/** Initializes the limits. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_net_limits_init(bt_net_t *net);
void bt_net_limits_fini(bt_net_t *net);
/** Admits a connection from @a from, closing others if needed.
 *  @param [out] client_p  counted already; NULL: clients are not counted */
bt_net_refusal_t bt_net_admit(bt_net_t *net,
                              const struct sockaddr_storage *from,
                              bt_net_client_t **client_p);
/** Uncounts a connection of a client. @param client  may be NULL; may be freed
 */
void bt_net_client_leave(bt_net_client_t *client);
/** Closes the first stream of net->quiet or net->reading, which is in that
 *  class for longest. @return false: none */
bool bt_net_close_first(bt_net_t *net, bt_list_t *list);
/** Updates the memory charged for a stream's unsent bytes. */
void bt_net_charge_out(bt_stream_t *stream);

/* ---- stream.c ---- */

/** Creates a stream; on success takes over @a fd and its count at @a client. */
BT_MUST_CHECK bt_status_t bt_stream_create(bt_net_t *net, int fd,
                                           bt_net_client_t *client);
/** Runs one step of a handshake, of some 1 ms. May close the stream. */
void bt_stream_handshake(bt_stream_t *stream);
/** Frees a closed stream. */
void bt_stream_free(bt_stream_t *stream);

#endif
