/* SPDX-License-Identifier: Apache-2.0 */
/** @file door.h
 *
 * The HTTP door: paths in, the clients' dialects out. It owns the sockets of
 * clients, finds the route of each exchange (routes.c) and implements the reply
 * of calls (reply.h) as one JSON body or as server sent events.
 *
 *     exchange ── routes.c ──▶ bt_call_json() ─▶ … ─▶ reply ── door.c ──▶ bytes
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_HTTP_DOOR_H
#define BT_ROUTER_HTTP_DOOR_H

#include "router/frontend/frontend.h"
#include "router/http/cluster_state.h"
#include "router/http/door_limits.h"
#include "router/http/http.h"
#include "router/http/scrape.h"
#include "router/http/watchers.h"
#include "router/net/hosts.h"

#define BT_DOOR_ADDRESS_BYTES 96
#define BT_DOOR_PATH_BYTES    256

struct bt_door {
    bt_frontend_t *front;
    bt_door_limits_t limits; /**< also of the gRPC door */
    bt_hosts_t hosts;        /**< by which clients may call either */
    bt_http_t *http, *metrics_http;
    const bt_net_t *other; /**< of another door, whose use is told with ours;
                                borrowed, or NULL */
    bt_strbuf_t out;       /**< scratch for one answer or event */
    struct event_base *base;
    bt_turn_work_t flush; /**< of streams, at the end of the turn */
    bt_scrape_t scrape;
    bt_cluster_page_t cluster;
    bt_watchers_t watchers; /**< of the cluster's events */
    bt_list_t streams;   /**< visits: answers in events, longest silent first */
    bool secure;         /**< the main port speaks TLS */
    size_t inline_bytes; /**< longer answers are the pool's to write */
    /** Paths of Vertex AI's; "" = none. */
    char vertex_health[BT_DOOR_PATH_BYTES], vertex_predict[BT_DOOR_PATH_BYTES];
    /** Where it listens, "127.0.0.1:8000". */
    char http_at[BT_DOOR_ADDRESS_BYTES], metrics_at[BT_DOOR_ADDRESS_BYTES];
};

/** Binds the sockets that the options name.
 *  @param [in] front  borrowed
 *  @param [in] tls    borrowed; of the main port. NULL: it is plain, as the
 *                     metrics port always is
 *  @retval others  Logged; bt_door_close() is still due. */
BT_MUST_CHECK bt_status_t bt_door_open(bt_door_t *door, struct event_base *base,
                                       bt_frontend_t *front, bt_tls_t *tls);
/** Calls that are open are given up; the frontend's pool must have been
 * stopped. Also of a zeroed one. */
void bt_door_close(bt_door_t *door);

/** Readers of events, and answers that are silent; call every 50 ms or so. */
void bt_door_tick(bt_door_t *door, uint64_t now_us);
/** No new connections; open exchanges go on. */
void bt_door_stop_listening(bt_door_t *door);
uint32_t bt_door_n_connections(const bt_door_t *door);
/** What clients take and took, both ports, for the metrics. */
void bt_door_read_use(const bt_door_t *door, bt_metrics_process_t *process);

#endif
