/* SPDX-License-Identifier: Apache-2.0 */
/** @file watch.h
 *
 * What a live view is told beside how things stand: the last 15 minutes, what
 * happened, KV on its way, requests that are over. All of it is in memory of a
 * fixed size and costs the router a few increments for a token and a copy for a
 * request, watched or not. docs/CLUSTER_API.md says what is made of it.
 *
 *     core, links, loads ─▶ router/frontend/watching.c ─▶ history, events,
 *                                                         handovers, past
 *     doors ◀──────────────────────────────────────────────────┘
 *
 * Pure: the time comes in. Threads: one owns it.
 */
#ifndef BT_ROUTER_WATCH_WATCH_H
#define BT_ROUTER_WATCH_WATCH_H

#include <stdint.h>

#include "common/base/status.h"
#include "router/watch/events.h"
#include "router/watch/handovers.h"
#include "router/watch/history.h"
#include "router/watch/past.h"

typedef struct bt_watch {
    bt_history_t *history;
    bt_past_t past;
    bt_events_t events;
    bt_handovers_t handovers;
    uint64_t start_unix_ms, start_us;
} bt_watch_t;

/** @param life  tells this router's from others' */
BT_MUST_CHECK bt_status_t bt_watch_create(uint32_t life, uint64_t now_us,
                                          uint64_t unix_ms,
                                          bt_watch_t **watch_p);
void bt_watch_destroy(bt_watch_t *watch); /**< NULL is allowed */

#endif
