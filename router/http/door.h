/* SPDX-License-Identifier: Apache-2.0 */
/** @file door.h
 *
 * The clients' HTTP interface: maps paths to handlers, encodes answers in the
 * clients' dialects. It owns the sockets of clients, finds the route of each
 * exchange (routes.c) and answers requests (router/request/request.h) with one
 * JSON body or with server-sent events.
 *
 *     exchange ── routes.c ──▶ request ─▶ … ─▶ http_request.c ──▶ bytes
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_HTTP_DOOR_H
#define BT_ROUTER_HTTP_DOOR_H

#include "router/batch/batch.h"
#include "router/frontend/frontend.h"
#include "router/http/cluster_state.h"
#include "router/http/door_limits.h"
#include "router/http/event_streams.h"
#include "router/http/http.h"
#include "router/http/pooled_page.h"
#include "router/net/hosts.h"

#define BT_DOOR_PATH_BYTES 256

struct bt_door {
    bt_frontend_t *front;
    bt_door_limits_t limits; /**< limits of HTTP and gRPC */
    bt_hosts_t hosts;        /**< allowed host names, for HTTP and gRPC */
    bt_http_t *http, *metrics_http;
    const bt_net_t *other; /**< gRPC's net, whose use is reported with HTTP's;
                              borrowed, or NULL */
    bt_strbuf_t out;       /**< scratch for one answer or event */
    struct event_base *base;
    bt_turn_work_t flush; /**< flushes streams at the end of the turn */
    bt_scrape_t scrape;
    bt_cluster_page_t cluster;
    bt_batches_t *batches;  /**< owned; NULL: --store is not given */
    bt_watchers_t watchers; /**< readers of the cluster's events */
    bt_list_t streams; /**< requests with event streams, longest silent first */
    size_t inline_bytes; /**< longer answers are written by the pool */
    /** Vertex AI paths; "" = none. */
    char vertex_health[BT_DOOR_PATH_BYTES], vertex_predict[BT_DOOR_PATH_BYTES];
    /** Listening addresses, "127.0.0.1:8000". */
    char http_at[BT_NET_ADDRESS_BYTES], metrics_at[BT_NET_ADDRESS_BYTES];
};

/** Checks the options with names of hosts and origins.
 *  @retval BT_ERR_INVALID_PARAM  Logged. */
BT_MUST_CHECK bt_status_t bt_door_check_names(const bt_config_t *config);
/** Binds the sockets that the options name.
 *  @param [in] front  borrowed
 *  @param [in] tls    borrowed; for the main port. NULL: plain, as the metrics
 *    port always is
 *  @retval others  Logged; bt_door_close() is still due. */
BT_MUST_CHECK bt_status_t bt_door_open(bt_door_t *door, struct event_base *base,
                                       bt_frontend_t *front, bt_tls_t *tls);
/** Closes the sockets and cancels open calls; the frontend's pool must have
 *  been stopped. Also accepts a zeroed door. */
void bt_door_close(bt_door_t *door);

/** Serves event readers, and sends a keep-alive on silent streams; call every
 * 50 ms or so. */
void bt_door_tick(bt_door_t *door, uint64_t now_us);
/** Stops accepting connections; open exchanges continue. */
void bt_door_stop_listening(bt_door_t *door);
uint32_t bt_door_n_connections(const bt_door_t *door);
/** Fills in current and total resource use of clients on both ports, for the
 *  metrics. */
void bt_door_read_use(const bt_door_t *door, double cells[BT_PC_N]);

#endif
