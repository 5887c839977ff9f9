/* SPDX-License-Identifier: Apache-2.0 */
/** @file event_streams.h
 *
 * GET /v2/cluster/events: readers of a stream of events (docs/CLUSTER_API.md).
 *
 *     tick ─▶ current state, once a second, written once for all readers
 *          ─▶ for each reader the new items: events, points, hand-overs
 *
 * A reader that has not received everything sent so far gets nothing more until
 * it has: it misses the states in between, and hand-overs, but no event that is
 * still stored. So the buffer per reader is bounded by one second's data. A
 * reader that receives nothing for 10 s is disconnected.
 *
 * Threads: the event loop's.
 */
#ifndef BT_ROUTER_HTTP_EVENT_STREAMS_H
#define BT_ROUTER_HTTP_EVENT_STREAMS_H

#include <stdint.h>

#include "common/base/containers.h"
#include "common/base/text.h"

typedef struct bt_door bt_door_t;
typedef struct bt_http_request bt_http_request_t;
typedef struct bt_watcher bt_watcher_t; /**< reader of the events */

typedef struct bt_watchers {
    bt_door_t *door;
    bt_list_t all;
    uint32_t n;
    uint64_t state_us, handovers_us; /**< due times of the next in us */
    uint64_t n_handovers;            /**< count at the last send */
    bt_strbuf_t state, handovers;    /**< scratch: for all readers */
    bt_strbuf_t out;                 /**< scratch: for one reader */
} bt_watchers_t;

void bt_watchers_init(bt_watchers_t *watchers, bt_door_t *door);
/** Turns the request into a reader; or answers with an error at the limit of
 *  readers or when the server stops. */
void bt_watchers_add(bt_watchers_t *watchers, bt_http_request_t *r);
/** Sends due items; call every 50 ms or so. */
void bt_watchers_tick(bt_watchers_t *watchers, uint64_t now_us);
/** Removes a reader whose client left. */
void bt_watcher_leave(bt_watcher_t *watcher);
/** Frees the list; all readers must have left. Also accepts a zeroed list. */
void bt_watchers_fini(bt_watchers_t *watchers);

#endif
