/* SPDX-License-Identifier: Apache-2.0 */
/** @file watch.h
 *
 * Data of a live view, besides the current state: the last 15 minutes, events,
 * KV hand-overs, finished requests. Memory has a fixed size; the cost is a few
 * increments for a token and a copy for a request, whether or not there is a
 * viewer. docs/CLUSTER_API.md describes the API.
 *
 *     core, links, loads ─▶ router/frontend/watching.c ─▶ history, events,
 *                                                         handovers, past
 *     HTTP handlers ◀──────────────────────────────────────────┘
 *
 * Pure: the caller passes the time. Threads: one owns it.
 */
#ifndef BT_ROUTER_WATCH_WATCH_H
#define BT_ROUTER_WATCH_WATCH_H

#include <stdint.h>

#include "common/base/status.h"
#include "router/watch/events.h"
#include "router/watch/history.h"
#include "router/watch/recent_requests.h"

typedef struct bt_watch {
    bt_history_t *history;
    bt_recent_requests_t past;
    bt_events_t events;
    bt_kv_transfer_log_t handovers;
    uint64_t start_unix_ms, start_us;
} bt_watch_t;

/** Creates the data of a live view.
 *  @param life  id of this run of the router */
BT_MUST_CHECK bt_status_t bt_watch_create(uint32_t life, uint64_t now_us,
                                          uint64_t unix_ms,
                                          bt_watch_t **watch_p);
void bt_watch_destroy(bt_watch_t *watch); /**< NULL is allowed */

/* ---- JSON helpers of the live view ---- */

/** Writes milliseconds, with as many decimals as microseconds need. */
void bt_write_ms(bt_json_t *json, const char *key, uint64_t us);
/** Writes milliseconds, or null for 0, which means none. */
void bt_write_some_ms(bt_json_t *json, const char *key, uint64_t us);
/** Writes the id of a request as text; null for 0. */
void bt_write_id(bt_json_t *json, const char *key, uint64_t number);
/** Writes a text; null for "". */
void bt_write_some_text(bt_json_t *json, const char *key, const char *text);

#endif
