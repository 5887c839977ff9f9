/* SPDX-License-Identifier: Apache-2.0 */
/** @file net.h
 *
 * Common network layer of the client ports, below any protocol: listening
 * sockets, admission of connections, memory limits, and the byte streams
 * themselves. HTTP/1 and HTTP/2 build on it. Uses libevent's event loop; apart
 * from the router's own loop, only this layer and the protocols on it include
 * event2 headers.
 *
 * A *net* is one client port: its sockets, its connection table and its memory
 * budget. A *stream* is one connection of the net. The protocol keeps its own
 * object for each stream, its *user*:
 *
 *     accept ─▶ on_stream(): make the user, bt_stream_attach()
 *          ─▶ on_readable(): bt_stream_read() until BT_INPROGRESS or enough
 *          ─▶ append to bt_stream_out(), bt_stream_flush()
 *          ─▶ on_writable(): some was sent: bt_stream_flush() again
 *          ─▶ on_timer()
 *     bt_stream_close(), by the user, or by the net to free resources
 *          ─▶ on_closed(): notify waiters; the stream's buffers are gone
 *          ─▶ a later turn of the loop: on_free(): free the user
 *
 * So a stream ends in two steps, and callers on the stack may still read the
 * user's state after any call that may have closed the stream.
 *
 * Connections: a full table closes the one that is *quiet* for longest, then
 * the one that is *reading* for longest; a client address over its share closes
 * its own quiet ones first. Only if there is none, the new one is turned away.
 * The user sets the class of its stream: bt_stream_set_class().
 *
 * Memory: the user charges the memory of requests with bt_net_charge(), and
 * checks the limit with bt_net_has_headroom(); a stream charges its out buffer
 * itself, and beyond the limit the readers that are behind for longest are
 * closed.
 *
 * TLS: where the config has a bt_tls_t, streams are encrypted, and nothing else
 * changes for the user. on_stream() is called at once, and the next callback
 * follows the handshake: the deadline set in on_stream() and the quiet class
 * apply to the handshake. A flush meanwhile returns BT_INPROGRESS. In one turn
 * of the loop the handshakes of all streams of a net get about a millisecond;
 * the others wait in a queue. A session's memory is charged like that of
 * requests.
 *
 * Turns are short: bt_stream_read() returns 64 KiB at most, once in a turn;
 * flushes of an answer pass BT_NET_SEND_BYTES. Events of clients have the last
 * priority on a loop of bt_net_loop_create(), so messages of workers, timers
 * and signals come first.
 *
 * Threads: all on the event loop's thread.
 */
#ifndef BT_ROUTER_NET_NET_H
#define BT_ROUTER_NET_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/task.h"
#include "common/base/text.h"
#include "router/net/tls.h"

struct event_base;
typedef struct bt_net bt_net_t;
typedef struct bt_stream bt_stream_t;

typedef struct bt_net_config {
    uint32_t max_connections; /**< above 0 */
    uint32_t max_per_client;  /**< connections of one address (IPv6: of one /64
                                 network); 0 = no limit */
    bool shares_ports; /**< share ports with other processes (SO_REUSEPORT): all
                          of them must set this, and be of one user */
    uint64_t memory_bytes; /**< for requests, and again for unread answers */
    bt_budget_t *budget; /**< borrowed; shared budget from which the memory for
                            requests is taken; NULL: none */
    bt_tls_t *tls;       /**< borrowed; NULL: streams are plain */
    /** ALPN protocol, with tls: "http/1.1" or "h2"; static. */
    const char *protocol;
} bt_net_config_t;

/** Overload counters since the net was created, and memory held now. */
typedef struct bt_net_use {
    uint64_t request_bytes, answer_bytes; /**< bytes held now */
    uint64_t n_quiet_closed;   /**< quiet connections closed for new ones */
    uint64_t n_turned_away;    /**< rejected at accept, with 503 or 429 */
    uint64_t n_bodies_refused; /**< bodies refused with 503 */
    /** Readers closed over the limit on unread bytes. */
    uint64_t n_readers_cut;
} bt_net_use_t;

/** Reason why a connection is refused. */
typedef enum bt_net_refusal {
    BT_NET_NOT_REFUSED,
    BT_NET_FULL,       /**< connection table is full */
    BT_NET_OVER_SHARE, /**< address has used its share of the table */
    BT_NET_NEEDS_TLS,  /**< peer spoke HTTP/1 where TLS is required */
} bt_net_refusal_t;
#define BT_NET_REFUSAL_BYTES 512

typedef struct bt_net_handlers {
    /** Stream was accepted, in the quiet class. Creates the user and attaches
     *  it.
     *  @retval others  The stream is gone and must not be used. */
    bt_status_t (*on_stream)(void *ctx, bt_stream_t *stream);
    /** Writes the answer for a plain connection that is turned away. NULL:
     *  close without an answer. @return bytes of @a out */
    size_t (*write_refusal)(void *ctx, bt_net_refusal_t refusal,
                            char out[BT_NET_REFUSAL_BYTES]);
    void *ctx;
    /** End of a callback of the event loop. May be NULL. */
    void (*on_turn)(void *turn_ctx);
    /** First stream was gathered: bt_net_flush() is due. NULL:
     *  bt_stream_flush_later() means the loop's next turn. */
    void (*on_gather)(void *turn_ctx);
    void *turn_ctx; /**< argument of on_turn() and on_gather() */
} bt_net_handlers_t;

/** Protocol callbacks of one stream. Any of them may close the stream. */
typedef struct bt_stream_handlers {
    /** Bytes, or the end of the input, may be there; or after
     *  bt_stream_again(). */
    void (*on_readable)(void *user);
    /** Socket accepts more, or bt_net_flush() runs: call bt_stream_flush(). */
    void (*on_writable)(void *user);
    /** Timer of bt_stream_set_timer() expired. */
    void (*on_timer)(void *user);
    /** Net stops listening. May be NULL. */
    void (*on_stop)(void *user);
    /** Stream was closed, by any side. Nothing can be read or sent any more. */
    void (*on_closed)(void *user);
    /** User can be freed; the stream has no reference to it any more. */
    void (*on_free)(void *user);
} bt_stream_handlers_t;

/* ---- net.c ---- */

/** Creates an event loop on which clients' sockets have the lowest priority:
 *  after a few of their callbacks the loop checks for other events in any case.
 *  @return NULL if memory or descriptors are short */
struct event_base *bt_net_loop_create(void);
/** Creates a net; @a config and @a handlers are copied.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_net_create(struct event_base *base,
                                        const bt_net_config_t *config,
                                        const bt_net_handlers_t *handlers,
                                        bt_net_t **net_p);
#define BT_NET_WHY_BYTES 128
/** Listens on one more address ("127.0.0.1", "::", port; 0 picks one).
 *  @param [out] why  after a failure: the cause, a phrase
 *  @retval  any of bt_status_of_bind(), BT_ERR_NOT_FOUND for an unknown name,
 *    BT_ERR_INVALID_PARAM, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_net_listen(bt_net_t *net, const char *host,
                                        uint16_t port, uint16_t *port_p,
                                        char why[BT_NET_WHY_BYTES]);
#define BT_NET_ADDRESS_BYTES 96
/** Listens at an option's ADDR:PORT; a failure is logged.
 *  @param [out] at  address and port in use */
BT_MUST_CHECK bt_status_t bt_net_listen_at(bt_net_t *net, const char *option,
                                           const char *address,
                                           char at[BT_NET_ADDRESS_BYTES]);
/** Stops accepting; each stream's on_stop() is called. */
void bt_net_stop_listening(bt_net_t *net);
bool bt_net_stopped(const bt_net_t *net);
/** Closes everything. Not from inside a handler. NULL is allowed. */
void bt_net_destroy(bt_net_t *net);
/** Calls on_writable() of the gathered streams. */
void bt_net_flush(bt_net_t *net);
uint32_t bt_net_n_connections(const bt_net_t *net);
void bt_net_use(const bt_net_t *net, bt_net_use_t *use);

/* ---- limits.c: memory of requests ---- */

/** Updates the memory charged for a part of a request to @a now bytes; @a
 *  charged points to the amount charged before, 0 at first. */
void bt_net_charge(bt_net_t *net, size_t *charged, size_t now);
/** Releases @a bytes of charged memory. */
void bt_net_give_back(bt_net_t *net, size_t bytes);
/** True when @a more bytes fit for a request that has @a have. Requests over 64
 *  KiB must leave a quarter of the budget to small ones. */
bool bt_net_has_headroom(const bt_net_t *net, uint64_t have, uint64_t more);
/** Closes quiet streams other than @a stream until the memory of requests is
 *  within the limit. @return false: it is still above */
bool bt_net_reclaim(bt_net_t *net, const bt_stream_t *stream);
/** Counts a request that was refused because memory was short. */
void bt_net_count_refused(bt_net_t *net);

/* ---- stream.c ---- */

/** Attaches the user to a stream, from inside on_stream(); @a handlers must be
 *  static. */
void bt_stream_attach(bt_stream_t *stream, const bt_stream_handlers_t *handlers,
                      void *user);

/** Class of a stream, by which streams are closed when a slot is needed. */
typedef enum bt_stream_class {
    BT_STREAM_QUIET,   /**< no request is complete: closed first */
    BT_STREAM_READING, /**< sends a body: closed when none is quiet */
    BT_STREAM_BUSY,    /**< an answer is due or being sent: never closed */
} bt_stream_class_t;
/** Moves a stream to a class, as its youngest member. */
void bt_stream_set_class(bt_stream_t *stream, bt_stream_class_t class);

/**
 * Reads received bytes, 64 KiB at most. Once in a turn: with more to read the
 * loop calls on_readable() again.
 * @param [out] data_p  valid until any stream of the net reads
 * @retval BT_OK             *@a n_p bytes, 0: the peer sends no more (FIN)
 * @retval BT_INPROGRESS     nothing now
 * @retval BT_ERR_PEER_LOST
 */
BT_MUST_CHECK bt_status_t bt_stream_read(bt_stream_t *stream,
                                         const char **data_p, size_t *n_p);
/** Requests on_readable() in the loop's next turn, whatever the socket has. */
void bt_stream_again(bt_stream_t *stream);
/** Stops on_readable() for the socket, when the peer sends no more. */
void bt_stream_stop_reading(bt_stream_t *stream);

/** Returns the send buffer: append to it, then flush. */
bt_strbuf_t *bt_stream_out(bt_stream_t *stream);
/** Queues bytes to be sent after those that were appended, without a copy if
 *  they are many; @a body is empty afterwards. */
void bt_stream_take(bt_stream_t *stream, bt_strbuf_t *body);
/** Returns the bytes of the stream that were not sent. */
size_t bt_stream_unsent(const bt_stream_t *stream);
/** Counts answer bytes that the user itself buffers for a slow peer; they count
 *  like the stream's unsent bytes. */
void bt_stream_hold(bt_stream_t *stream, size_t bytes);
#define BT_NET_SEND_BYTES \
    ((size_t)256 * 1024) /**< bytes of an answer in one turn: some 100 us */
/**
 * Sends what the socket accepts of bt_stream_out(), or about @a most bytes.
 * @retval BT_OK             all is sent; the buffer is empty.
 * @retval BT_INPROGRESS     on_writable() will follow.
 * @retval BT_ERR_PEER_LOST  also: an append had failed. Close the stream.
 */
BT_MUST_CHECK bt_status_t bt_stream_flush(bt_stream_t *stream, size_t most);
/** Requests on_writable() at the end of the turn (bt_net_flush()), together
 *  with other streams; without on_gather() when the loop runs next. */
void bt_stream_flush_later(bt_stream_t *stream);
/** Cancels a request of bt_stream_flush_later(). */
void bt_stream_forget_flush(bt_stream_t *stream);
/** Ends sending; the peer is notified (FIN).
 *  @retval BT_ERR_PEER_LOST */
BT_MUST_CHECK bt_status_t bt_stream_shutdown(bt_stream_t *stream);

/** Requests on_timer() after @a ms; a later call moves the timer. */
void bt_stream_set_timer(bt_stream_t *stream, uint32_t ms);
void bt_stream_stop_timer(bt_stream_t *stream);

#define BT_NET_PEER_BYTES 64
/** Writes the numeric address of the peer, without the port; "" if not known.
 */
void bt_stream_peer(const bt_stream_t *stream, char out[BT_NET_PEER_BYTES]);
/** True when the peer is a process on this host, of this process's user or of
 *  root. The kernel is asked (common/base/tcp_peer.h). */
bool bt_stream_is_of_own_user(const bt_stream_t *stream);
/** Returns ids to tell clients apart: equal for streams of one address (IPv6:
 *  of one /64 network; 0 without a limit of connections per address), and of
 *  one stream. */
void bt_stream_ids(const bt_stream_t *stream, uint64_t *address_p,
                   uint64_t *stream_p);

/** Closes a stream and calls on_closed(); does nothing if it is closed. */
void bt_stream_close(bt_stream_t *stream);

#endif
