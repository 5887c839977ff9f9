/* SPDX-License-Identifier: Apache-2.0 */
/** @file rpc.h
 *
 * Control links between router and workers: one per peer, over nng. The only
 * includer of nng headers is this module.
 *
 *     worker                                   router
 *     bt_rpc_join(url) ───── "my link is at URL u" ────▶ bt_rpc_listen
 *     listener at u     ◀───────────── dial ─────────────  (one per worker)
 *                       ◀─── OPEN: range, nonce, proof of the key
 *          ACCEPT: version, hello ───▶
 *                       ◀─── READY: version, hello
 *          DATA [message, …], each frame with a sequence and a tag …
 *
 * Ends on one host that both allow it put their messages into memory that they
 * share (rpc_lanes.c); heartbeats and farewells stay with nng, which also tells
 * the end of either.
 *
 * The router hears announcements by a listener of its own that speaks what a
 * sub0 socket speaks (rpc_ear.c says why).
 *
 * A worker says nothing on a connection before the router has proven the key.
 * It repeats its announcement until the link is up, and starts anew with a
 * fresh listener when it is lost or whoever came proves nothing, for every
 * router it was given. Where the two speak no common version the link is
 * refused by name; a peer of protocol 2, which had other frames, is UP for its
 * hello to be refused, and never exchanges a message. Messages posted during
 * one wake-up travel in one frame (bt_rpc_flush), and more than 512 KiB of them
 * in several, so that a slow link still hears something. An empty frame is the
 * heartbeat. Silence for suspect_ms is reported, for dead_ms ends the link. A
 * frame that is not the next one of this link and direction, by sequence and
 * tag, ends the link.
 *
 * A peer that gets no core is silent, too, and neither dead nor cut off
 * (rpc_silence.c): where that can be told, its link stays.
 *
 * Threads: one thread owns a bt_rpc_t and calls everything here; nng's own
 * threads only fill an inbox behind bt_rpc_fd(). The time is a parameter.
 */
#ifndef BT_COMMON_RPC_RPC_H
#define BT_COMMON_RPC_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/wire/wire.h"

#define BT_RPC_MAX_PAYLOAD (1u << 20)  /**< hello payload, bytes */
#define BT_RPC_MAX_MESSAGE (16u << 20) /**< bytes */

typedef struct bt_rpc bt_rpc_t;
typedef struct bt_rpc_link bt_rpc_link_t;

/** A peer that gets no link, for whoever tells people of it. Texts are borrowed
 *  for the call, and what a stranger says is in them as it came. */
typedef struct bt_rpc_refused {
    const char *name; /**< as it calls itself; "": it said none */
    const char *url;  /**< where it waits; "": unknown */
    const char *why;
    bool proven;      /**< it knows the cluster key */
    bool unreachable; /**< it was not refused: nobody answers at its url, which
                           may be that of a link that was */
} bt_rpc_refused_t;

typedef struct bt_rpc_config {
    const uint8_t *key; /**< cluster key, copied */
    size_t key_bytes;   /**< at least 16 */
    const void *hello;  /**< our hello payload, copied */
    size_t hello_bytes;
    /** What a peer of protocol 2 gets in its place, to refuse us by: such a
     * peer has proven less. Copied; NULL: the same. */
    const void *old_hello;
    size_t old_hello_bytes;
    const char *name;       /**< for logs, copied; more than 63 bytes are cut */
    bt_wire_range_t range;  /**< versions that we speak, 3 or later */
    const char *listen_dir; /**< worker: where to make ipc:// sockets, or */
    const char *listen_host; /**< worker: address for tcp:// listeners */
    uint32_t heartbeat_ms, suspect_ms, dead_ms;
    /** Silence of a peer counts as far as it is its own: not the time in which
     * its process, on this host, waited for a core; and four times dead_ms end
     * the link where its host still acknowledges what we send. */
    bool tells_starved;
    uint32_t max_queue_bytes; /**< unsent bytes per link; past it, link lost */
    /** Where both ends are on one host and want it, messages go through memory
     *  that they share (WIRE.md, "Shared memory"). */
    bool share_memory;
    /** Router: each time that a worker gets no link, on the owner's thread;
     *  NULL: nobody asks. It must not call anything here. */
    void (*on_refused)(void *ctx, const bt_rpc_refused_t *refused);
    void *refused_ctx;
} bt_rpc_config_t;

BT_MUST_CHECK bt_status_t bt_rpc_open(const bt_rpc_config_t *config,
                                      bt_rpc_t **rpc_p);
/** Flushes briefly, closes all links. NULL is allowed. */
void bt_rpc_close(bt_rpc_t *rpc);

/** Links are opened under this key from now on, and for ten minutes also under
 *  the one before; those that are there stay as they are.
 *  @param key_bytes  at least 16  @return false: it is the one in use */
bool bt_rpc_rekey(bt_rpc_t *rpc, const uint8_t *key, size_t key_bytes,
                  uint64_t now_ms);

/** Router: accept announcements at @a url (ipc:// or tcp://; tcp port 0 picks
 *  one). @param [out] bound  the url with the real port.
 *  @retval  any of bt_status_of_bind(), BT_ERR_INVALID_PARAM,
 *           BT_ERR_TOO_LARGE (all logged)  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_rpc_listen(bt_rpc_t *rpc, const char *url,
                                        char *bound, size_t bound_bytes);
/** Worker: keep a link to the router that listens at @a url. May be called
 *  for several routers. Never blocks; the router may come later. */
BT_MUST_CHECK bt_status_t bt_rpc_join(bt_rpc_t *rpc, const char *url);

/** Take the first url out of a list with commas. A path may have commas, too:
 *  behind one, a comma ends the url where another url or nothing follows.
 *  @param [in,out] rest_p  text, which is cut; then what is left of it
 *  @return in that text, or NULL: there is none left */
char *bt_rpc_url_take(char **rest_p);

/** Worker: no longer look for the router at @a url. A link that is up stays,
 * and then so does this: ask again when it is down. One that never was asked
 * for counts as left. @return whether it is left */
bool bt_rpc_leave(bt_rpc_t *rpc, const char *url);

/** How it stands between a worker and one of its routers. */
typedef struct bt_rpc_router {
    const char *url; /**< valid as long as it is joined */
    bool is_up;      /**< a link that lasts, for a refused one lasts a moment */
    const char *why; /**< not: as far as that is known, else ""; until the next
                          call of anything here */
} bt_rpc_router_t;

/** Worker: how it stands with the routers that it was given.
 *  @return how many there are; the first @a most of them are written */
uint32_t bt_rpc_routers(const bt_rpc_t *rpc, bt_rpc_router_t *list,
                        uint32_t most);

typedef enum bt_rpc_event_type {
    BT_RPC_LINK_UP,      /**< data = the peer's hello payload */
    BT_RPC_LINK_SUSPECT, /**< silent for suspect_ms */
    BT_RPC_LINK_STARVED, /**< silent for suspect_ms, and its process waits for a
                              core; may follow SUSPECT, and that this */
    BT_RPC_LINK_HEALTHY, /**< was either of these, spoke again */
    BT_RPC_LINK_DOWN,    /**< data = reason text; the link is gone after */
    BT_RPC_LINK_ROOM,    /**< as bt_rpc_want_room() asked for */
    BT_RPC_MESSAGE,      /**< data = one message */
} bt_rpc_event_type_t;

typedef struct bt_rpc_event {
    bt_rpc_event_type_t type;
    bt_rpc_link_t *link;
    const void *data; /**< valid until the next bt_rpc_next() */
    size_t bytes;
} bt_rpc_event_t;

/** Readable when bt_rpc_next() may have something. */
int bt_rpc_fd(const bt_rpc_t *rpc);

/** @return true and an event, or false when there is none. Every link gives
 *  UP first and DOWN last, exactly once each; links that never proved the key
 *  give nothing but a log line. */
bool bt_rpc_next(bt_rpc_t *rpc, uint64_t now_ms, bt_rpc_event_t *event_p);

/** Heartbeats, time-outs, repeated announcements. Call at least every
 *  heartbeat_ms / 2. */
void bt_rpc_tick(bt_rpc_t *rpc, uint64_t now_ms);

/** Queue one message. @retval BT_ERR_BUSY  the link's queue is full: the
 *  link is being dropped, LINK_DOWN will follow. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_rpc_post(bt_rpc_link_t *link, const void *data,
                                      size_t bytes);
/** Bytes that were posted and are not in a frame yet, with 4 for each message.
 *  What nng holds, one frame, and what the kernel holds is not among them.
 *  O(1). */
size_t bt_rpc_queued(const bt_rpc_link_t *link);
/** Ask for one BT_RPC_LINK_ROOM, as soon as bt_rpc_queued() is at most
 *  @a bytes: at the next bt_rpc_next() if it is already. Asking again replaces
 *  the number; the end of the link cancels it. */
void bt_rpc_want_room(bt_rpc_link_t *link, size_t bytes);
/** Send what was posted on all links; call once per wake-up. Never blocks. */
void bt_rpc_flush(bt_rpc_t *rpc);

/** Refuse or end a link; the peer sees DOWN with @a reason. We get DOWN too. */
void bt_rpc_link_close(bt_rpc_link_t *link, const char *reason);

/** The owner's pointer, NULL at first. */
void bt_rpc_link_set_user(bt_rpc_link_t *link, void *user);
void *bt_rpc_link_user(const bt_rpc_link_t *link);
/** Random number of the peer process' life, from its hello. */
uint64_t bt_rpc_link_incarnation(const bt_rpc_link_t *link);

#endif
