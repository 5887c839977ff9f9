/* SPDX-License-Identifier: Apache-2.0 */
/** @file net.h
 *
 * What the doors for clients have in common, below any protocol: listening
 * sockets, who may have a connection and how much memory, and the streams of
 * bytes themselves. HTTP/1 and HTTP/2 are plugged onto it. On libevent's event
 * loop; beside router's own loop the only includer of event2 headers, with
 * what is plugged on.
 *
 * A *net* is one door: its sockets, its table of connections and its room for
 * memory. A *stream* is one connection of it. What speaks the protocol keeps
 * its own object for each stream, its *user*:
 *
 *     accept ─▶ on_stream(): make the user, bt_stream_attach()
 *          ─▶ on_readable(): bt_stream_read() until BT_INPROGRESS or enough
 *          ─▶ append to bt_stream_out(), bt_stream_flush()
 *          ─▶ on_writable(): some was sent: bt_stream_flush() again
 *          ─▶ on_timer()
 *     bt_stream_close(), by anybody: the user, or the net for others' sake
 *          ─▶ on_closed(): tell whoever waits; the stream's buffers are gone
 *          ─▶ a later turn of the loop: on_free(): free the user
 *
 * So a stream ends in two steps, and whoever is on the stack may still look at
 * the user's state after anything that may have closed it.
 *
 * Connections: a full table closes the one that is *quiet* for longest, then
 * the one that is *reading* for longest; a client address over its share closes
 * its own quiet ones first. Only when there is none the new one is turned
 * away. The user says what its stream is: bt_stream_file().
 *
 * Memory: what requests hold is charged by the user with bt_net_charge(), and
 * asked for with bt_net_has_room(); what a stream has in its out buffer is
 * charged by itself, and past the limit the readers that are behind for
 * longest are closed.
 *
 * TLS: where the config has a bt_tls_t, streams are encrypted, and nothing else
 * changes for the user. It learns of a stream at once, and hears of it again
 * when hands were shaken: the deadline that it sets in on_stream() counts for
 * that, and so does being quiet. A flush meanwhile says BT_INPROGRESS. Hands
 * are shaken with all streams of a net for about a millisecond in a turn of the
 * loop; the others wait in a queue. A session's memory is charged as that of
 * requests is.
 *
 * Turns are short: bt_stream_read() gives 64 KiB at most, once in a turn; the
 * flushes of an answer are given BT_NET_SEND_BYTES. Events of clients have the
 * last priority on a loop of bt_net_loop_create(), so messages of workers, time
 * and signals come first.
 *
 * Threads: all on the event loop's thread.
 */
#ifndef BT_ROUTER_NET_NET_H
#define BT_ROUTER_NET_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/budget.h"
#include "common/base/status.h"
#include "common/base/strbuf.h"
#include "router/net/tls.h"

struct event_base;
typedef struct bt_net bt_net_t;
typedef struct bt_stream bt_stream_t;

typedef struct bt_net_config {
    uint32_t max_connections; /**< above 0 */
    uint32_t max_per_client;  /**< connections of one address (IPv6: of one /64
                                   network); 0 = no limit */
    bool shares_ports; /**< others may listen at the same ones (SO_REUSEPORT):
                            all of them must say so, and be of one user */
    uint64_t memory_bytes; /**< for requests under way, and as much again
                                for answers that were not read */
    bt_budget_t *budget;   /**< borrowed: of which the memory for requests is
                                taken, beside others'; NULL: none */
    bt_tls_t *tls;         /**< borrowed; NULL: streams are plain */
    const char *protocol;  /**< of ALPN, with tls: "http/1.1" or "h2"; static */
} bt_net_config_t;

/** What was done about too much, since the net was made, and what is held
 *  now. */
typedef struct bt_net_use {
    uint64_t request_bytes, answer_bytes; /**< held now */
    uint64_t n_quiet_closed;              /**< for others that came */
    uint64_t n_turned_away;               /**< at once, with 503 or 429 */
    uint64_t n_bodies_refused;            /**< with 503 */
    uint64_t n_readers_cut; /**< together they had left too much unread */
} bt_net_use_t;

/** Why a connection is not served. */
typedef enum bt_net_refusal {
    BT_NET_NOT_REFUSED,
    BT_NET_FULL,       /**< the table is */
    BT_NET_OVER_SHARE, /**< its address has its share of the table */
    BT_NET_NEEDS_TLS,  /**< it spoke HTTP/1 where TLS is spoken */
} bt_net_refusal_t;
#define BT_NET_REFUSAL_BYTES 512

typedef struct bt_net_handlers {
    /** Accepted, filed as quiet. Makes the user and attaches it.
     *  @retval others  The stream is gone; nothing of it may be kept. */
    bt_status_t (*on_stream)(void *ctx, bt_stream_t *stream);
    /** May be NULL: it is closed without a word. What a plain connection is
     *  told that is turned away. @return bytes of @a out */
    size_t (*write_refusal)(void *ctx, bt_net_refusal_t refusal,
                            char out[BT_NET_REFUSAL_BYTES]);
    /** May be NULL. A callback of the event loop is over. */
    void (*on_turn)(void *ctx);
    /** May be NULL: bt_stream_flush_later() is the loop's next turn. Otherwise
     *  streams gather, and this says that the first one did: bt_net_flush() is
     *  due. */
    void (*on_gather)(void *ctx);
    void *ctx;
} bt_net_handlers_t;

/** What a protocol does with one stream. All of them may close it. */
typedef struct bt_stream_handlers {
    /** Bytes, or the end of the input, may be there; or bt_stream_again(). */
    void (*on_readable)(void *user);
    /** The socket takes more, or bt_net_flush() runs: bt_stream_flush(). */
    void (*on_writable)(void *user);
    /** bt_stream_set_timer() ran out. */
    void (*on_timer)(void *user);
    /** The net stops listening. May be NULL. */
    void (*on_stop)(void *user);
    /** It was closed, by whomever. Nothing can be read or sent any more. */
    void (*on_closed)(void *user);
    /** Nobody knows it any more. */
    void (*on_free)(void *user);
} bt_stream_handlers_t;

/* ---- net.c ---- */

/** An event loop on which clients' sockets come after everything else: after
 *  a few of their callbacks it looks for other events, whatever they are up to.
 *  @return NULL for want of memory or descriptors */
struct event_base *bt_net_loop_create(void);
/** @a config and @a handlers are copied.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_net_create(struct event_base *base,
                                        const bt_net_config_t *config,
                                        const bt_net_handlers_t *handlers,
                                        bt_net_t **net_p);
#define BT_NET_WHY_BYTES 128
/** Listen on one more address ("127.0.0.1", "::", port; 0 picks one).
 *  @param [out] why  after a failure: the cause, a phrase
 *  @retval  any of bt_status_of_bind(), BT_ERR_NOT_FOUND for an unknown name,
 *           BT_ERR_INVALID_PARAM, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_net_listen(bt_net_t *net, const char *host,
                                        uint16_t port, uint16_t *port_p,
                                        char why[BT_NET_WHY_BYTES]);
/** Stop accepting; each stream's on_stop() is called. */
void bt_net_stop_listening(bt_net_t *net);
bool bt_net_stopped(const bt_net_t *net);
/** Close everything. Not from inside a handler. NULL is allowed. */
void bt_net_destroy(bt_net_t *net);
/** on_writable() of the streams that gathered. */
void bt_net_flush(bt_net_t *net);
uint32_t bt_net_n_connections(const bt_net_t *net);
void bt_net_use(const bt_net_t *net, bt_net_use_t *use);

/* ---- room.c: memory of requests ---- */

/** Something of a request holds @a now bytes from here on; *@a charged is what
 *  it held before, 0 at first. */
void bt_net_charge(bt_net_t *net, size_t *charged, size_t now);
/** The memory of so much that was charged is free for others. */
void bt_net_give_back(bt_net_t *net, size_t bytes);
/** Is there room for @a more bytes of a request that has @a have? Those over
 *  64 KiB leave a quarter of the room to small ones. */
bool bt_net_has_room(const bt_net_t *net, uint64_t have, uint64_t more);
/** Close quiet streams other than @a stream until what requests hold is
 *  within the limit. @return false: it is not */
bool bt_net_make_room(bt_net_t *net, const bt_stream_t *stream);
/** A request was refused for want of room: it is counted. */
void bt_net_count_refused(bt_net_t *net);

/* ---- stream.c ---- */

/** From inside on_stream(): @a handlers (static) and @a user are its own. */
void bt_stream_attach(bt_stream_t *stream, const bt_stream_handlers_t *handlers,
                      void *user);

/** How much a stream may be missed, when others need its place. */
typedef enum bt_stream_place {
    BT_STREAM_QUIET,   /**< no request is complete: the first to go */
    BT_STREAM_READING, /**< sends a body: goes when none is quiet */
    BT_STREAM_BUSY,    /**< an answer is due or on its way: never goes */
} bt_stream_place_t;
/** It is this from now on, as the youngest of them. */
void bt_stream_file(bt_stream_t *stream, bt_stream_place_t place);

/**
 * What has come, 64 KiB at most. Once in a turn: with more to read the loop
 * calls on_readable() again.
 * @param [out] data_p  lent until any stream of the net reads
 * @retval BT_OK             *@a n_p bytes, 0: the peer sends no more (FIN)
 * @retval BT_INPROGRESS     nothing now
 * @retval BT_ERR_PEER_LOST
 */
BT_MUST_CHECK bt_status_t bt_stream_read(bt_stream_t *stream,
                                         const char **data_p, size_t *n_p);
/** on_readable() in the loop's next turn, whatever the socket has. */
void bt_stream_again(bt_stream_t *stream);
/** No more on_readable() of the socket, for one whose peer sends no more. */
void bt_stream_stop_reading(bt_stream_t *stream);

/** What is to be sent: append to it, then flush. */
bt_strbuf_t *bt_stream_out(bt_stream_t *stream);
/** Bytes to be sent after those that were appended, without a copy where they
 *  are many; @a body is empty afterwards. */
void bt_stream_take(bt_stream_t *stream, bt_strbuf_t *body);
/** Bytes of it that were not sent. */
size_t bt_stream_unsent(const bt_stream_t *stream);
/** The user itself keeps so many bytes of answers for it that its peer does not
 *  take now; they count as its unsent ones do. */
void bt_stream_hold(bt_stream_t *stream, size_t bytes);
#define BT_NET_SEND_BYTES \
    ((size_t)256 * 1024) /**< of an answer in one turn: some 100 us */
/**
 * Send what the socket takes of bt_stream_out(), or about as much as @a most.
 * @retval BT_OK             all is sent; the buffer is empty.
 * @retval BT_INPROGRESS     on_writable() will follow.
 * @retval BT_ERR_PEER_LOST  also: an append had failed. Close it.
 */
BT_MUST_CHECK bt_status_t bt_stream_flush(bt_stream_t *stream, size_t most);
/** on_writable() at the end of the turn (bt_net_flush()), together with other
 *  streams; without on_gather() when the loop runs next. */
void bt_stream_flush_later(bt_stream_t *stream);
/** What bt_stream_flush_later() began need not be any more. */
void bt_stream_forget_flush(bt_stream_t *stream);
/** We send no more; the peer is told (FIN).
 *  @retval BT_ERR_PEER_LOST */
BT_MUST_CHECK bt_status_t bt_stream_shutdown(bt_stream_t *stream);

/** on_timer() after so long; a later call moves it. */
void bt_stream_set_timer(bt_stream_t *stream, uint32_t ms);
void bt_stream_stop_timer(bt_stream_t *stream);

#define BT_NET_PEER_BYTES 64
/** Numeric address of the peer, without the port; "" when it is not known. */
void bt_stream_peer(const bt_stream_t *stream, char out[BT_NET_PEER_BYTES]);
/** Is the peer a process on this host, of this process' user or of root?
 *  The kernel is asked (common/base/tcp_peer.h). */
bool bt_stream_is_of_own_user(const bt_stream_t *stream);
/** For telling clients apart: equal for streams of one address (IPv6: of one
 *  /64 network; 0 without a limit of connections for each), and of one stream.
 */
void bt_stream_ids(const bt_stream_t *stream, uint64_t *address_p,
                   uint64_t *stream_p);
bt_net_t *bt_stream_net(const bt_stream_t *stream);

/** Close it and call on_closed(); nothing for one that is closed. */
void bt_stream_close(bt_stream_t *stream);

#endif
