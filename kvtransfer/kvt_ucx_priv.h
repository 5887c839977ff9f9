/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_ucx_priv.h
 *
 * UCX under kvtransfer; the one includer of its headers. Active messages over
 * TCP (or RDMA): all control messages, also on one host, and data where memory
 * is not shared; UCX reports the death of a peer.
 *
 * Memory that processes of one host share is not UCX's: shared memory and peer
 * error handling exclude each other in a context, and UCX's segments have a
 * name in /dev/shm while it fills them, by which they outlive who is killed
 * then. The pool is a file that never has a name; others open it at its process
 * (/proc/PID/fd).
 *
 *     kvt_ucx.c         open, close, progress
 *     kvt_ucx_listen.c  who connects
 *     kvt_ucx_door.c    from where: a filter before UCX sees anything
 *     kvt_ucx_accept.c  who of this host: accept() in front of libc's
 *     kvt_ucx_ep.c      connections, the end of processes
 *     kvt_ucx_am.c      messages in order, pieces
 *     kvt_ucx_shm.c     the pool, and those of others mapped
 */
#ifndef BT_KVTRANSFER_KVT_UCX_PRIV_H
#define BT_KVTRANSFER_KVT_UCX_PRIV_H

#include <net/if.h>
#include <sys/socket.h>

#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

#include "kvtransfer/kvt_core.h"
#include "kvtransfer/kvt_host.h"

#define NO_FD (-1)

/* Connections that have not proven whose they are: how many there may be, for
 * how long, and how much of each is kept. A hello holds an export. */
#define UNPROVEN_MAX      64u
#define UNPROVEN_MS       1000u
#define UNPROVEN_MESSAGES 64u
#define UNPROVEN_BYTES    (256u << 10)
/* Of that time, what counts between two rounds of progress: while this process
 * stands still nobody can prove anything to it. */
#define UNPROVEN_STEP_MS (UNPROVEN_MS / 16)

/* Addresses of peers, and the sockets that only they may connect to. */
typedef struct ucx_door {
    int before[64]; /* listening sockets that are not UCX's */
    uint32_t n_before;
    int fds[8];        /* those that are */
    uint16_t ports[8]; /* of these, in the order of the network */
    uint32_t n_fds;
    bool closed;                             /* to all but the addresses */
    uint8_t (*sources)[BT_KVT_SOURCE_BYTES]; /* owned */
    uint32_t n_sources, sources_cap;
    uint8_t own[BT_KVT_MAX_SOURCES][BT_KVT_SOURCE_BYTES];
    uint32_t n_own;
} ucx_door_t;

/* The file that a pool lies in: a descriptor of its process, and which file
 * that is. 24 bytes without padding. */
typedef struct bt_kvt_file {
    char magic[4];
    uint32_t fd;
    uint64_t device, inode;
} bt_kvt_file_t;

typedef struct ucx {
    bt_kvt_t *kvt;
    ucx_door_t door;
    ucp_context_h net_context;
    ucp_worker_h net;
    bool shares;          /* pools of this host, where both sides can */
    int pool_fd;          /* file of the pool; NO_FD: it is anonymous memory */
    ucp_mem_h device_mem; /* ...or the device's, registered with net */
    size_t mapped_bytes;  /* of the pool with the probe */
    bool tcp;             /* the network; else RDMA */
    size_t eager_bytes;   /* pieces up to this go without asking; 0: as UCX
                             thinks best */
    ucp_listener_h listener;
    struct sockaddr_storage net_addr; /* where it listens */
    char interface[IF_NAMESIZE];      /* and on which interface */
    bt_kvt_file_t pool_file;          /* what others open it by */
    struct sockaddr_storage own_addr; /* of that, port 0 */
    socklen_t own_addr_bytes;
    bt_kvt_host_t host;
    bool host_known;
    uint8_t probe[16];
    int epoll_fd, net_fd;
    uint64_t watched_ms; /* clock of the last progress */
    uint64_t ran_ms;     /* in which there was progress: UNPROVEN_STEP_MS */
    uint32_t n_unproven; /* ucx_link.proven is false */
    bool some_failed;
    bool closing;
    uint32_t n_flying; /* sends not completed */
    bt_list_t links;
    bt_list_t requests; /* connections to accept */
    uint32_t n_requests;
    struct ucx_link *speaking; /* sent the message that is being taken */
    bt_list_t small_free, large_free, landing_free;
    bt_list_t asked; /* rendezvous that wait for a slot */
    uint8_t *inbox;  /* inbox_entry_t, bytes, inbox_entry_t ... */
    size_t inbox_bytes, inbox_cap;
    uint64_t n_bad_messages;
} ucx_t;

/* One connection. A link has one; two when both sides connected at once. */
typedef struct ucx_link {
    bt_list_t link;
    ucx_t *ucx;
    bt_kvt_link_t *owner; /* NULL: accepted, no hello yet; or forgotten */
    ucp_ep_h ep;
    void *map; /* the peer's pool, or NULL */
    size_t map_bytes;
    uint64_t n_sent, n_taken; /* messages: the numbers */
    bt_list_t early;
    uint32_t n_early;
    size_t early_bytes, inbox_bytes;
    uint64_t since_ms; /* there; of ucx.ran_ms */
    int pidfd;
    bool proven;        /* we made it, or it said a hello that is true */
    bool failed;        /* nothing can be sent any more... */
    ucs_status_t error; /* ...for this, as UCX says; UCS_OK: it did not */
    bool garbled;       /* a message is missing: nothing is taken any more */
    bool closing;       /* a close of ep has not completed */
} ucx_link_t;

/* kvt_ucx_listen.c */
/** ucx->own_addr: the interface's first address, IPv4 before IPv6.
 *  @retval BT_ERR_UNSUPPORTED  it has none */
BT_MUST_CHECK bt_status_t bt_kvt_ucx_own_addr_read(ucx_t *ucx);
/** Listen there, at a free port of those that are configured.
 *  @retval BT_ERR_UNSUPPORTED  UCX refuses, or no port is free */
BT_MUST_CHECK bt_status_t bt_kvt_ucx_listener_open(ucx_t *ucx);

/** Ports of the range that is configured, from a random one on, so that workers
 *  that start together do not try the same ones. */
typedef struct ucx_ports {
    uint32_t n, tried, begin;
    uint16_t first;
} ucx_ports_t;
ucx_ports_t bt_kvt_ucx_ports(const ucx_t *ucx);
/** The next that nobody listens at; of no range 0, once.
 *  @return false: there is none left */
bool bt_kvt_ucx_ports_next(const ucx_t *ucx, ucx_ports_t *ports,
                           uint16_t *port_p);
/** Connections that came since; not from within a callback of UCX. While the
 *  transport closes, they wait for bt_kvt_ucx_listener_close(). */
void bt_kvt_ucx_requests_accept(ucx_t *ucx);
/** Reject those that came; no connection comes in any more. Before the worker
 *  goes. */
void bt_kvt_ucx_listener_close(ucx_t *ucx);

/* kvt_ucx_door.c */
/** Listening TCP sockets of this process now, to be told from later ones. */
void bt_kvt_ucx_door_before(ucx_door_t *door);
/** Those that came since are UCX's: closed from now on to whom nobody admits,
 *  unless @a interface is loopback, where all have the same address, and to
 *  other users and programs of this host. */
void bt_kvt_ucx_door_close(ucx_door_t *door, const char *interface);
/** Of bt_kvt_transport_t. */
void bt_kvt_ucx_admit(bt_kvt_t *kvt, const bt_kvt_export_info_t *info);
/** When UCX listens no more: its ports are soon others'. */
void bt_kvt_ucx_door_fini(ucx_door_t *door);

/* kvt_ucx_accept.c */
typedef enum bt_kvt_ucx_guard {
    BT_KVT_UCX_OPEN,    /**< everybody may connect */
    BT_KVT_UCX_GUARDED, /**< of this host only processes of this user that run a
                             program of Baton */
    BT_KVT_UCX_CLOSING, /**< nobody; it was guarded */
} bt_kvt_ucx_guard_t;
/** @return the port of a socket, in the order of the network; 0: it has none */
uint16_t bt_kvt_ucx_port_of(int fd);
/** Sets which processes accept() lets connect to a listener of UCX's.
 *  @param [in] port   of the listener, in the order of the network; 0: nothing
 *                     is set
 *  @param [in] guard  everybody, Baton's own processes, or nobody any more */
void bt_kvt_ucx_accept_set(uint16_t port, bt_kvt_ucx_guard_t guard);
/** @return whether no connection is being accepted just now */
bool bt_kvt_ucx_accept_is_idle(void);

/* kvt_ucx_ep.c; the first four are of bt_kvt_transport_t */
bt_status_t bt_kvt_ucx_connect(bt_kvt_link_t *link,
                               const bt_kvt_export_info_t *info);
void bt_kvt_ucx_locate(const bt_kvt_t *kvt, const bt_kvt_export_info_t *info,
                       char at[BT_KVT_AT_BYTES]);
void bt_kvt_ucx_disconnect(bt_kvt_link_t *link);
void bt_kvt_ucx_forget(bt_kvt_link_t *link);
bt_status_t bt_kvt_ucx_watch(bt_kvt_link_t *link,
                             const bt_kvt_export_info_t *info);
/** An endpoint from @a params, to which its error handling is added; listed in
 *  ucx. @a proven: see there. @retval BT_ERR_NO_MEMORY  @retval
 * BT_ERR_PEER_LOST */
BT_MUST_CHECK bt_status_t bt_kvt_ucx_connection_create(ucx_t *ucx,
                                                       ucp_ep_params_t *params,
                                                       bool proven,
                                                       ucx_link_t **ul_p);
/** It is @a link's from now on. */
void bt_kvt_ucx_connection_own(ucx_link_t *ul, bt_kvt_link_t *link);
/** Nothing more is wanted of it: it ends at the next report. */
void bt_kvt_ucx_connection_fail(ucx_link_t *ul);
/** @return the connection of @a ep, or NULL: closed meanwhile */
ucx_link_t *bt_kvt_ucx_connection_find(ucx_t *ucx, ucp_ep_h ep);
/** Tell the core of connections that failed / of processes that ended. */
void bt_kvt_ucx_failed_report(ucx_t *ucx);
/** End those that have proven nothing for UNPROVEN_MS of ran_ms, and the oldest
 *  of more than UNPROVEN_MAX. */
void bt_kvt_ucx_unproven_end(ucx_t *ucx);
void bt_kvt_ucx_ended_report(ucx_t *ucx);
/** Close all connections and the listener; links_free: after the worker. */
void bt_kvt_ucx_links_close(ucx_t *ucx);
void bt_kvt_ucx_links_free(ucx_t *ucx);

/* kvt_ucx_am.c; the first two are of bt_kvt_transport_t */
bt_status_t bt_kvt_ucx_send(bt_kvt_link_t *link, const void *msg, size_t bytes);
bt_status_t bt_kvt_ucx_send_data(bt_kvt_xfer_t *xfer,
                                 const uint8_t header[BT_KVT_PIECE_BYTES],
                                 const void *src, size_t bytes,
                                 bt_kvt_slot_t *slot);
BT_MUST_CHECK bt_status_t bt_kvt_ucx_handlers_set(ucx_t *ucx);
/** Hand the messages that came to the core. */
void bt_kvt_ucx_inbox_take(ucx_t *ucx);
/** Staged: pieces that waited for a slot. */
void bt_kvt_ucx_pieces_take(ucx_t *ucx);
/** They are not wanted any more; before the worker goes. */
void bt_kvt_ucx_pieces_drop(ucx_t *ucx);
/** Free the messages of @a ul that wait for their turn. */
void bt_kvt_ucx_early_drop(ucx_link_t *ul);

/* kvt_ucx_shm.c; the first three are of bt_kvt_transport_t */
bt_status_t bt_kvt_ucx_map(bt_kvt_link_t *link,
                           const bt_kvt_export_info_t *info);
void bt_kvt_ucx_unmap(bt_kvt_link_t *link);
uint64_t bt_kvt_ucx_copy(bt_kvt_link_t *link, const bt_hash_piece_t *pieces,
                         uint32_t n_pieces, uint64_t seed);
/** Give up the pool of @a ul, if it is mapped. */
void bt_kvt_ucx_shm_unmap(ucx_link_t *ul);
/** The pool in shared memory; one that is staged has none there, and only maps
 *  those of others. After a failure: bt_kvt_ucx_shm_close().
 *  @retval BT_ERR_UNSUPPORTED  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_kvt_ucx_shm_open(ucx_t *ucx);
void bt_kvt_ucx_shm_close(ucx_t *ucx);
/** Bytes that the file system behind POSIX shared memory has left: to be said,
 *  and not to be relied on, for others take them in the next moment. */
uint64_t bt_kvt_ucx_shm_room(void);
/** The pool in memory of this process alone. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_kvt_ucx_pool_make_anonymous(ucx_t *ucx);
/** The pool in device memory: register it with the network context, or turn
 *  the configuration to STAGED.
 *  @retval BT_ERR_UNSUPPORTED  UCX knows no such memory, or refuses this, and
 *                              there is no copier */
BT_MUST_CHECK bt_status_t bt_kvt_ucx_pool_register_device(ucx_t *ucx);
/** The network cannot take the device's memory, or does not gain by it: fall
 *  back to STAGED, with a line. @retval BT_ERR_UNSUPPORTED  there is no copier
 */
BT_MUST_CHECK bt_status_t bt_kvt_ucx_device_staged(ucx_t *ucx, const char *why);
/** Give the pool back, whichever it is; before the contexts go. */
void bt_kvt_ucx_pool_drop(ucx_t *ucx);
/** Of the pool and of the sources of pieces. */
ucs_memory_type_t bt_kvt_ucx_memory_type(const ucx_t *ucx);

#endif
