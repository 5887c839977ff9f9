/* SPDX-License-Identifier: Apache-2.0 */
/** @file cluster_state.h
 *
 * Writes this router's current view of the cluster as JSON: for GET /v2/cluster
 * and its events (docs/CLUSTER_API.md). Members that come from the launcher are
 * those of its own document (common/admin/admin.h).
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

/** Appends the members: now_unix_ms, router, queue, models, workers, launcher,
 *  processes, refused, unreachable, tenants. */
void bt_cluster_write_state(const bt_door_t *door, bt_json_t *json);

void bt_cluster_print_id(const bt_instance_t *worker,
                         char id[BT_CLUSTER_ID_BYTES]);

/** GET /v2/cluster: a page with the current state, and a copy of the history.
 */
typedef struct bt_cluster_page {
    bt_pooled_page_t page;
    bt_strbuf_t state;     /**< written on the loop: short */
    bt_history_t *history; /**< owned copies, or NULL */
    bt_events_t *events;
} bt_cluster_page_t;

void bt_cluster_page_init(bt_cluster_page_t *page, bt_door_t *door);

#endif
