/* SPDX-License-Identifier: Apache-2.0 */
/** @file watchers.h
 *
 * GET /v2/cluster/events: readers of a stream of events (docs/CLUSTER_API.md).
 *
 *     tick ─▶ how things stand, once a second, written once for all
 *          ─▶ of each reader what it has not seen: events, points, hand-overs
 *
 * A reader that has not taken all that it was sent is sent nothing more until
 * it has: it misses how things stood meanwhile, and hand-overs, but no event
 * that is still kept. So what is held for one is a second's worth, whatever it
 * does. One that takes nothing for 10 s is cut off.
 *
 * Threads: the event loop's.
 */
#ifndef BT_ROUTER_HTTP_WATCHERS_H
#define BT_ROUTER_HTTP_WATCHERS_H

#include <stdint.h>

#include "common/base/list.h"
#include "common/base/strbuf.h"

typedef struct bt_door bt_door_t;
typedef struct bt_visit bt_visit_t;
typedef struct bt_watcher bt_watcher_t; /**< one of them */

typedef struct bt_watchers {
    bt_door_t *door;
    bt_list_t all;
    uint32_t n;
    uint64_t state_us, handovers_us; /**< when the next are due */
    uint64_t n_handovers;            /**< when they were told last */
    bt_strbuf_t state, handovers;    /**< scratch: for all */
    bt_strbuf_t out;                 /**< scratch: for one */
} bt_watchers_t;

void bt_watchers_init(bt_watchers_t *watchers, bt_door_t *door);
/** The visit reads on from here; or it is answered with an error: there are as
 *  many as may be, or the server stops. */
void bt_watchers_add(bt_watchers_t *watchers, bt_visit_t *visit);
/** Call every 50 ms or so. */
void bt_watchers_tick(bt_watchers_t *watchers, uint64_t now_us);
/** Its client left. */
void bt_watcher_leave(bt_watcher_t *watcher);
/** All must have left. Also of a zeroed one. */
void bt_watchers_fini(bt_watchers_t *watchers);

#endif
