/* SPDX-License-Identifier: Apache-2.0 */
/** @file link.h
 *
 * Control links between router and workers: one per peer, over nng. This module
 * is the only includer of nng headers.
 *
 *     worker                                   router
 *     bt_control_join(url) ────────── dial ─────────▶ bt_control_listen
 *     JOIN: range, nonce ───────────────────────▶
 *                       ◀─── OPEN: range, nonce, proof of the key
 *          ACCEPT: version, hello ──────────────▶ the worker's proof
 *                       ◀─── READY: version, hello
 *          DATA [message, …], each frame with a sequence and a tag …
 *
 * Two ends on one host that both allow it exchange messages through shared
 * memory (link_shm.c); heartbeats and BYE stay with nng, which also reports
 * the end of either.
 *
 * A worker keeps one link to each router that it joins, and dials again when
 * that ends. If the two have no common version the link is refused by name.
 * A peer that has proven nothing costs the router little: the number of such
 * peers, their frames and their time are bounded. Messages posted during one
 * wake-up travel in one frame (bt_control_flush), and more than 512 KiB of them
 * in several, so that a slow link still receives something. An empty frame is
 * the heartbeat. Silence for suspect_ms is reported, silence for dead_ms ends
 * the link. A frame that is not the next one of this link and direction, by
 * sequence and tag, ends the link.
 *
 * A peer that is starved of CPU is silent, too, but neither dead nor cut off
 * (link_silence.c): where that can be detected, its link stays.
 *
 * Threads: one thread owns a bt_control_t and calls everything here; nng's own
 *          threads only fill an inbox behind bt_control_fd(). The time is a
 *          parameter.
 */
#ifndef BT_COMMON_LINK_LINK_H
#define BT_COMMON_LINK_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/wire/wire.h"

#define BT_LINK_MAX_PAYLOAD (1u << 20)  /**< hello payload, bytes */
#define BT_LINK_MAX_MESSAGE (16u << 20) /**< bytes */

typedef struct bt_control bt_control_t;
typedef struct bt_link bt_link_t;

/** Peer that gets no link, for reports to the operator. Texts are borrowed
 *  for the call, and text from a stranger is unfiltered. */
typedef struct bt_control_refused {
    const char *name; /**< name that it sent; "": none */
    const char *url;  /**< address of the peer; of a local one the router's */
    const char *why;
    bool proven; /**< the peer knows the cluster key */
} bt_control_refused_t;

/** Configuration of a bt_control_t. */
typedef struct bt_control_config {
    const uint8_t *key; /**< cluster key, copied */
    size_t key_bytes;   /**< at least 16 */
    const void *hello;  /**< our hello payload, copied */
    size_t hello_bytes;
    const char *name;      /**< for logs, copied; more than 63 bytes are cut */
    bt_wire_range_t range; /**< supported versions, 4 or later */
    uint32_t heartbeat_ms, suspect_ms, dead_ms;
    /** Tolerates starved peers. Time in which a peer's process, on this
     *  host, waited for a core does not count as silence; and a link ends
     *  only after four times dead_ms while its host still acknowledges what
     *  we send. */
    bool tells_starved;
    uint32_t max_queue_bytes; /**< unsent bytes per link; above it the link
                                   is lost */
    /** Shared memory for messages, if both ends are on one host and want it
     *  (WIRE.md, "Shared memory"). */
    bool share_memory;
    /** Router: callback for each worker that gets no link, on the owner's
     *  thread; NULL: none. Must not call anything here. */
    void (*on_refused)(void *ctx, const bt_control_refused_t *refused);
    void *refused_ctx;
} bt_control_config_t;

BT_MUST_CHECK bt_status_t bt_control_open(const bt_control_config_t *config,
                                          bt_control_t **link_p);
/** Flushes briefly and closes all links. NULL is allowed. */
void bt_control_close(bt_control_t *control);

/**
 * Changes the key of new links, and accepts the previous key for ten more
 * minutes; existing links are unaffected.
 * @param key_bytes  at least 16
 * @return false: the key is the one in use
 */
bool bt_control_rekey(bt_control_t *control, const uint8_t *key,
                      size_t key_bytes, uint64_t now_ms);

/**
 * Accepts workers at @a url (ipc:// or tcp://; tcp port 0 picks one). For
 * routers.
 * @param [out] bound  the url with the real port.
 * @retval any of bt_status_of_bind(), BT_ERR_INVALID_PARAM, BT_ERR_TOO_LARGE
 *     (all logged)
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_control_listen(bt_control_t *control,
                                            const char *url, char *bound,
                                            size_t bound_bytes);
/** Keeps a link to the router that listens at @a url. For workers; may be
 *  called for several routers. Never blocks; the router may start later. */
BT_MUST_CHECK bt_status_t bt_control_join(bt_control_t *control,
                                          const char *url);

/**
 * Takes the first url out of a comma-separated list. A path may contain commas,
 * too: in a path, a comma ends the url only if another url or nothing follows.
 * @param [in,out] rest_p  text, which is cut; then the rest of it
 * @return in that text, or NULL: there is none left
 */
char *bt_control_url_take(char **rest_p);

/** Stops looking for the router at @a url. For workers. A link that is up
 *  stays, and the router stays joined: call again when the link is down. A
 *  router that was never joined counts as left. @return true: it is left */
bool bt_control_leave(bt_control_t *control, const char *url);

/** State of a worker's link to one of its routers. */
typedef struct bt_control_router {
    const char *url; /**< valid as long as it is joined */
    bool is_up;      /**< the link is up; a refused one counts as up for a
                          moment */
    const char *why; /**< reason why not, as far as known, else ""; until the
                          next call of anything here */
} bt_control_router_t;

/**
 * Lists the routers of a worker.
 * @return their number; the first @a most of them are written
 */
uint32_t bt_control_routers(const bt_control_t *control,
                            bt_control_router_t *list, uint32_t most);

typedef enum bt_link_event_type {
    BT_LINK_UP,       /**< data = the peer's hello payload */
    BT_LINK_SUSPECT,  /**< silent for suspect_ms */
    BT_LINK_STARVED,  /**< silent for suspect_ms, and its process waits
                               for a core; may follow SUSPECT, and SUSPECT may
                               follow */
    BT_LINK_HEALTHY,  /**< was SUSPECT or STARVED, received again */
    BT_LINK_DOWN,     /**< data = reason text; the link is freed
                               afterwards */
    BT_LINK_WRITABLE, /**< requested by bt_link_want_writable() */
    BT_LINK_MESSAGE,  /**< data = one message */
} bt_link_event_type_t;

/** Event of a link. */
typedef struct bt_link_event {
    bt_link_event_type_t type;
    bt_link_t *link;
    const void *data; /**< valid until the next bt_control_next() */
    size_t bytes;
} bt_link_event_t;

/** Returns a descriptor that is readable when bt_control_next() may have an
 *  event. */
int bt_control_fd(const bt_control_t *control);

/** Returns the next event, or false when there is none. Every link has UP
 *  first and DOWN last, exactly once each; links that never proved the key
 *  cause only a log line. */
bool bt_control_next(bt_control_t *control, uint64_t now_ms,
                     bt_link_event_t *event_p);

/** Processes heartbeats, time-outs and dials. Call at least
 *  every heartbeat_ms / 2. */
void bt_control_tick(bt_control_t *control, uint64_t now_ms);

/**
 * Queues one message.
 * @retval BT_ERR_BUSY  the link's queue is full: the link is being dropped,
 *                      LINK_DOWN will follow.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_link_post(bt_link_t *link, const void *data,
                                       size_t bytes);
/** Returns the bytes that were posted and are not in a frame yet, plus 4 for
 *  each message. Excludes what nng (one frame) and the kernel hold. O(1). */
size_t bt_link_queued(const bt_link_t *link);
/** Requests one BT_LINK_WRITABLE, as soon as bt_link_queued() is at most @a
 *  bytes: at the next bt_control_next() if it is already. A new request
 * replaces the number; the end of the link cancels it. */
void bt_link_want_writable(bt_link_t *link, size_t bytes);
/** Sends posted messages on all links; call once per wake-up. Never blocks. */
void bt_control_flush(bt_control_t *control);

/** Refuses or ends a link; both sides get DOWN, the peer with @a reason. */
void bt_link_close(bt_link_t *link, const char *reason);

/** Set and return the owner's pointer, NULL at first. */
void bt_link_set_user(bt_link_t *link, void *user);
void *bt_link_user(const bt_link_t *link);

#endif
