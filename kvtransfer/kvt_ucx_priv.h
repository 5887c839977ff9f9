/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_ucx_priv.h
 *
 * UCX under kvtransfer; the only files that include UCX headers include this
 * one. Active messages over TCP (or RDMA) carry all control messages, also on
 * one host, and data where memory is not shared; UCX reports the death of a
 * peer.
 *
 * Shared memory between processes of one host does not use UCX: in a UCX
 * context, shared memory and peer error handling exclude each other, and UCX's
 * segments have a name in /dev/shm while UCX fills them, so that they leak if
 * the process is killed then. The pool is a file without a name; peers open it
 * through its process (/proc/PID/fd).
 *
 *     kvt_ucx.c         open, close, progress
 *     kvt_ucx_listen.c  listener and connection requests
 *     kvt_ucx_door.c    address filter in front of UCX
 *     kvt_ucx_accept.c  filter for local processes: accept() in front of libc's
 *     kvt_ucx_ep.c      connections, the end of processes
 *     kvt_ucx_am.c      messages in order, pieces
 *     kvt_ucx_shm.c     the pool, and mapped pools of peers
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

/* Limits of connections that are not authenticated yet: how many there may be,
 * and how much of each is buffered. A HELLO holds an export. */
#define UNPROVEN_MAX      64u
#define UNPROVEN_MESSAGES 64u
#define UNPROVEN_BYTES    (256u << 10)

/* Addresses of peers, and the listening sockets that only they may connect to.
 */
typedef struct ucx_door {
    int before[64]; /* listening sockets that do not belong to UCX */
    uint32_t n_before;
    int fds[8];        /* listening sockets of UCX */
    uint16_t ports[8]; /* ports of fds, in network byte order */
    uint32_t n_fds;
    bool closed; /* only the addresses may connect */
    uint8_t (*sources)[BT_KVT_SOURCE_BYTES]; /* owned */
    uint32_t n_sources, sources_cap;
    uint8_t own[BT_KVT_MAX_SOURCES][BT_KVT_SOURCE_BYTES];
    uint32_t n_own;
} ucx_door_t;

/* File that holds a pool: a descriptor of its process, and the identity of the
 * file. 24 bytes without padding. */
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
    bool shares; /* pools are shared on this host, where both sides can */
    int pool_fd; /* file of the pool; NO_FD: it is anonymous memory */
    ucp_mem_h device_mem; /* device memory of the pool, registered with net */
    size_t mapped_bytes;  /* of the pool with the probe, bytes */
    bool tcp;             /* the network is TCP; else RDMA */
    size_t eager_bytes;   /* pieces up to this size are sent eagerly; 0: UCX
                           * decides */
    ucp_listener_h listener;
    struct sockaddr_storage net_addr; /* address of the listener */
    char interface[IF_NAMESIZE];      /* interface of the listener */
    bt_kvt_file_t pool_file;          /* file by which peers open the pool */
    struct sockaddr_storage own_addr; /* address of `interface`, port 0 */
    socklen_t own_addr_bytes;
    bt_kvt_host_t host;
    bool host_known;
    uint8_t probe[16];
    int epoll_fd, net_fd;
    uint64_t watched_ms; /* clock of the last progress */
    uint64_t ran_ms;     /* time in which there was progress */
    uint32_t n_unproven; /* connections with ucx_link.proven false */
    bool some_failed;
    bool closing;
    uint32_t n_flying; /* sends not completed */
    bt_list_t links;
    bt_list_t requests; /* connection requests to accept */
    uint32_t n_requests;
    struct ucx_link *speaking; /* sender of the message being handled */
    bt_list_t small_free, large_free, landing_free;
    bt_list_t asked; /* rendezvous that wait for a slot */
    uint8_t *inbox;  /* inbox_entry_t, bytes, inbox_entry_t and so on */
    size_t inbox_bytes, inbox_cap;
    uint64_t n_bad_messages;
} ucx_t;

/* One connection. A link has one; two when both sides connected at once. */
typedef struct ucx_link {
    bt_list_t link;
    ucx_t *ucx;
    bt_kvt_link_t *owner; /* NULL: accepted, no HELLO yet; or forgotten */
    ucp_ep_h ep;
    void *map; /* the peer's pool, or NULL */
    size_t map_bytes;
    uint64_t n_sent, n_taken; /* message counters */
    bt_list_t early;
    uint32_t n_early;
    size_t early_bytes, inbox_bytes;
    uint64_t since_ms; /* start of the connection; in ucx.ran_ms */
    int pidfd;
    bool proven;        /* we opened it, or its HELLO was authenticated */
    bool failed;        /* nothing can be sent any more */
    ucs_status_t error; /* UCX error of a failed link; UCS_OK: none given */
    bool garbled;       /* a message is missing: nothing more is accepted */
    bool closing;       /* a close of ep has not completed */
} ucx_link_t;

/* kvt_ucx_listen.c */
/** Sets ucx->own_addr: the interface's first address, IPv4 before IPv6.
 *  @retval BT_ERR_UNSUPPORTED  there is none */
BT_MUST_CHECK bt_status_t bt_kvt_ucx_own_addr_read(ucx_t *ucx);
/** Opens the listener at own_addr, at a free port of the configured range.
 *  @retval BT_ERR_UNSUPPORTED  UCX refuses, or no port is free */
BT_MUST_CHECK bt_status_t bt_kvt_ucx_listener_open(ucx_t *ucx);

/** Iterator over the configured port range, from a random port on, so that
 *  workers that start together try different ports. */
typedef struct ucx_ports {
    uint32_t n, tried, begin;
    uint16_t first;
} ucx_ports_t;
ucx_ports_t bt_kvt_ucx_ports(const ucx_t *ucx);
/** Returns the next port without a listener; without a range 0, once.
 *  @return false: there is none left */
bool bt_kvt_ucx_ports_next(const ucx_t *ucx, ucx_ports_t *ports,
                           uint16_t *port_p);
/** Accepts connections that arrived since the last call; not from within a
 *  callback of UCX. While the transport closes, they wait for
 *  bt_kvt_ucx_listener_close(). */
void bt_kvt_ucx_requests_accept(ucx_t *ucx);
/** Closes the listener and rejects pending connections; no more connections
 *  arrive. Call before destroying the worker. */
void bt_kvt_ucx_listener_close(ucx_t *ucx);

/* kvt_ucx_door.c */
/** Records the listening TCP sockets of this process, to tell them from later
 *  ones. */
void bt_kvt_ucx_door_before(ucx_door_t *door);
/** Restricts listening sockets opened since bt_kvt_ucx_door_before(), which are
 *  UCX's, to admitted addresses (unless @a interface is loopback, where all
 *  addresses are equal), and on this host to this user and to Baton's programs.
 */
void bt_kvt_ucx_door_close(ucx_door_t *door, const char *interface);
/** Implements bt_kvt_transport_t.admit. */
void bt_kvt_ucx_admit(bt_kvt_t *kvt, const bt_kvt_export_info_t *info);
/** Removes the restrictions when UCX no longer listens: other processes may
 *  soon use the ports. */
void bt_kvt_ucx_door_fini(ucx_door_t *door);

/* kvt_ucx_accept.c */
typedef enum bt_kvt_ucx_guard {
    BT_KVT_UCX_OPEN,    /**< any process may connect */
    BT_KVT_UCX_GUARDED, /**< on this host only processes of this user that run a
                           program of Baton */
    BT_KVT_UCX_CLOSING, /**< no process; it was guarded before */
} bt_kvt_ucx_guard_t;
/** @return the port of a socket, in network byte order; 0: it has none */
uint16_t bt_kvt_ucx_port_of(int fd);
/** Sets which processes accept() lets connect to a listener of UCX's.
 *  @param [in] port   port of the listener, in network byte order; 0: nothing
 *                     is set
 *  @param [in] guard  any process, Baton's own processes, or none any more */
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
/** Creates an endpoint from @a params, with error handling added, and lists it
 *  in ucx. @a proven: see ucx_link.proven.
 *  @retval BT_ERR_NO_MEMORY  @retval BT_ERR_PEER_LOST */
BT_MUST_CHECK bt_status_t bt_kvt_ucx_connection_create(ucx_t *ucx,
                                                       ucp_ep_params_t *params,
                                                       bool proven,
                                                       ucx_link_t **ul_p);
/** Assigns a connection to @a link. */
void bt_kvt_ucx_connection_own(ucx_link_t *ul, bt_kvt_link_t *link);
/** Marks a connection as failed: it ends at the next report. */
void bt_kvt_ucx_connection_fail(ucx_link_t *ul);
/** @return the connection of @a ep, or NULL: closed meanwhile */
ucx_link_t *bt_kvt_ucx_connection_find(ucx_t *ucx, ucp_ep_h ep);
/** Reports failed connections / ended processes to the core. */
void bt_kvt_ucx_failed_report(ucx_t *ucx);
/** Closes connections not authenticated within dead_ms of ran_ms, and the
 *  oldest of more than UNPROVEN_MAX. */
void bt_kvt_ucx_unproven_end(ucx_t *ucx);
void bt_kvt_ucx_ended_report(ucx_t *ucx);
/** Closes all connections and the listener; links_free: after the worker. */
void bt_kvt_ucx_links_close(ucx_t *ucx);
void bt_kvt_ucx_links_free(ucx_t *ucx);

/* kvt_ucx_am.c; the first two are of bt_kvt_transport_t */
bt_status_t bt_kvt_ucx_send(bt_kvt_link_t *link, const void *msg, size_t bytes);
bt_status_t bt_kvt_ucx_send_data(bt_kvt_xfer_t *xfer,
                                 const uint8_t header[BT_KVT_PIECE_BYTES],
                                 const void *src, size_t bytes,
                                 bt_kvt_slot_t *slot);
BT_MUST_CHECK bt_status_t bt_kvt_ucx_handlers_set(ucx_t *ucx);
/** Passes the received messages to the core. */
void bt_kvt_ucx_inbox_take(ucx_t *ucx);
/** Staged: handles pieces that waited for a slot. */
void bt_kvt_ucx_pieces_take(ucx_t *ucx);
/** Drops waiting pieces; before the worker is destroyed. */
void bt_kvt_ucx_pieces_drop(ucx_t *ucx);
/** Frees the out-of-order messages of @a ul. */
void bt_kvt_ucx_early_drop(ucx_link_t *ul);

/* kvt_ucx_shm.c; the first three are of bt_kvt_transport_t */
bt_status_t bt_kvt_ucx_map(bt_kvt_link_t *link,
                           const bt_kvt_export_info_t *info);
void bt_kvt_ucx_unmap(bt_kvt_link_t *link);
uint64_t bt_kvt_ucx_copy(bt_kvt_link_t *link, const bt_hash_piece_t *pieces,
                         uint32_t n_pieces, uint64_t seed);
/** Unmaps the pool of @a ul, if it is mapped. */
void bt_kvt_ucx_shm_unmap(ucx_link_t *ul);
/** Creates the pool in shared memory; a staged pool is not there, and only the
 *  pools of peers are mapped. After a failure: bt_kvt_ucx_shm_close().
 *  @retval BT_ERR_UNSUPPORTED  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_kvt_ucx_shm_open(ucx_t *ucx);
void bt_kvt_ucx_shm_close(ucx_t *ucx);
/** Returns the free bytes of the file system behind POSIX shared memory: for
 *  messages only, since other processes may take them at any time. */
uint64_t bt_kvt_ucx_shm_headroom(void);
/** Allocates the pool in private memory. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_kvt_ucx_pool_make_anonymous(ucx_t *ucx);
/** Registers the pool in device memory with the network context, or turns the
 *  configuration to STAGED.
 *  @retval BT_ERR_UNSUPPORTED  UCX does not support such memory, or refuses
 *                              this, and there is no copier */
BT_MUST_CHECK bt_status_t bt_kvt_ucx_pool_register_device(ucx_t *ucx);
/** Falls back to STAGED, with a log line, when the network cannot use the
 *  device's memory or does not gain by it.
 *  @retval BT_ERR_UNSUPPORTED  there is no copier */
BT_MUST_CHECK bt_status_t bt_kvt_ucx_device_staged(ucx_t *ucx, const char *why);
/** Frees the pool of any kind; before the contexts are destroyed. */
void bt_kvt_ucx_pool_drop(ucx_t *ucx);
/** Returns the memory type of the pool and of the sources of pieces. */
ucs_memory_type_t bt_kvt_ucx_memory_type(const ucx_t *ucx);

#endif
