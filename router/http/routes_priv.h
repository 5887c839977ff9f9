/* SPDX-License-Identifier: Apache-2.0 */
/** @file routes_priv.h
 *
 * Shared by routes.c and the files of handlers only.
 */
#ifndef BT_ROUTER_HTTP_ROUTES_PRIV_H
#define BT_ROUTER_HTTP_ROUTES_PRIV_H

#include "router/http/door_priv.h"
#include "router/page/page.h"
#include "router/triton/metadata.h"

/** Argument of a route's handler. */
typedef struct bt_request {
    bt_visit_t *visit;
    bt_door_t *door;
    bt_exchange_t *ex;
    const char *model;   /**< segment {model}, or NULL */
    const char *version; /**< segment {version}, or NULL */
    const char *name;    /**< segment {name}, or NULL */
    bt_served_t *served; /**< served model of {model}, in this version */
} bt_request_t;

/* ---- routes.c ---- */

/** Answers with an error: "WHAT: PATH". The visit is over. */
void bt_request_refuse(const bt_request_t *r, int status, const char *what);
/** Answers with an error unchanged. The visit is over. */
void bt_request_fail(const bt_request_t *r, const bt_api_error_t *error);
/** Answers with the door's scratch buffer as JSON. The visit is over. */
void bt_request_respond_json(const bt_request_t *r);

/* ---- root_route.c ---- */

void bt_route_welcome(const bt_request_t *r);

/* ---- page_routes.c: the page's files ---- */

/** Answers with a file, compressed if the client accepts that, or with 304 if
 *  the client has it. The visit is over.
 *  @param [in] vary  names of headers on which the answer depends */
void bt_request_respond_page(const bt_request_t *r, const bt_page_file_t *file,
                             const char *vary);
void bt_route_page(const bt_request_t *r);

/* ---- describe_routes.c: what describes models and server ---- */

void bt_route_server(const bt_request_t *r);
void bt_route_model(const bt_request_t *r);
void bt_route_config(const bt_request_t *r);
void bt_route_stats(const bt_request_t *r);
void bt_route_all_stats(const bt_request_t *r);

/* ---- manage_routes.c: what is ordered ---- */

void bt_route_index(const bt_request_t *r);
void bt_route_load(const bt_request_t *r);
void bt_route_unload(const bt_request_t *r);
void bt_route_log(const bt_request_t *r);
void bt_route_trace(const bt_request_t *r);
/** Reads the body of an admin command as settings. @param under  as in
 *  bt_settings_read_under(), or NULL
 *  @return false: it was refused, and the error was sent */
bool bt_request_read(const bt_request_t *r, const char *under,
                     bt_settings_t *settings);

/* ---- cluster_routes.c: workers, and orders to them ---- */

void bt_route_cluster(const bt_request_t *r);
void bt_route_worker(const bt_request_t *r);

/* ---- watch_routes.c: what live views read ---- */

void bt_route_watch(const bt_request_t *r);
void bt_route_watch_events(const bt_request_t *r);
void bt_route_watch_requests(const bt_request_t *r);
void bt_route_watch_request(const bt_request_t *r);

/* ---- memory_routes.c: regions of shared memory ---- */

void bt_route_memory_status(const bt_request_t *r);
void bt_route_memory_register(const bt_request_t *r);
void bt_route_memory_unregister(const bt_request_t *r);
/* Of CUDA devices, of which there are none here. */
void bt_route_cuda_status(const bt_request_t *r);
void bt_route_cuda_register(const bt_request_t *r);
void bt_route_cuda_unregister(const bt_request_t *r);

#endif
