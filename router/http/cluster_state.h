/* SPDX-License-Identifier: Apache-2.0 */
/** @file cluster_state.h
 *
 * Writes this router's current view of the cluster as JSON: for GET /v2/cluster
 * and its events (docs/CLUSTER_API.md), and the common part of GET /cluster.
 *
 * Threads: the event loop's.
 */
#ifndef BT_ROUTER_HTTP_CLUSTER_STATE_H
#define BT_ROUTER_HTTP_CLUSTER_STATE_H

#include "common/base/json.h"
#include "router/frontend/frontend.h"
#include "router/http/pooled_page.h"

#define BT_CLUSTER_ID_BYTES                           \
    17 /**< worker instance id: 16 hexadecimal digits \
        */

/** Appends the fields: now, router, queue, models, workers, tenants. */
void bt_cluster_write_state(const bt_door_t *door, bt_json_t *json);

const char *bt_cluster_router_name(const bt_frontend_t *front);
void bt_cluster_print_id(const bt_instance_t *worker,
                         char id[BT_CLUSTER_ID_BYTES]);
/** Returns "up", "silent", "starved", "draining", "drained" or "ending": as the
 *  worker reports, or as inferred for an older build. */
const char *bt_cluster_worker_state(const bt_instance_t *worker);

/** Writes one field: "unreachable", the worker pairs without a working KV link,
 *  of all models. */
void bt_cluster_write_unreachable(const bt_frontend_t *front, bt_json_t *json);

/** True when a worker of this name has joined. @a front is a bt_frontend_t. */
bool bt_cluster_is_here(void *front, const char *name);

/** GET /v2/cluster: a page with the current state, and a copy of the history.
 */
typedef struct bt_cluster_page {
    bt_pooled_page_t page;
    bt_strbuf_t state;     /**< written on the loop: short */
    bt_history_t *history; /**< owned copies, or NULL */
    bt_events_t *events;
} bt_cluster_page_t;

void bt_cluster_page_init(bt_cluster_page_t *page, bt_door_t *door);
/** See bt_pooled_page_fini(). */
void bt_cluster_page_fini(bt_cluster_page_t *page);

#endif
