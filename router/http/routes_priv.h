/* SPDX-License-Identifier: Apache-2.0 */
/** @file routes_priv.h
 *
 * Shared by routes.c and the files of handlers only.
 */
#ifndef BT_ROUTER_HTTP_ROUTES_PRIV_H
#define BT_ROUTER_HTTP_ROUTES_PRIV_H

#include "common/base/json.h"
#include "router/http/door_priv.h"
#include "router/http/query.h"
#include "router/page/page.h"
#include "router/triton/metadata.h"

/** Handler of a route; the request is over, now or later. */
typedef void bt_route_t(bt_http_request_t *r);

/* ---- routes.c ---- */

/** Begins the answer of bt_http_request_respond_json(). */
void bt_http_request_begin_json(bt_http_request_t *r, bt_json_t *json);

/** Answers with an error: "WHAT: PATH". The request is over. */
void bt_http_request_refuse(bt_http_request_t *r, int status, const char *what);
/** Answers with the door's scratch buffer as JSON. The request is over. */
void bt_http_request_respond_json(bt_http_request_t *r);

/* ---- root_route.c: / and the page's files ---- */

bt_route_t bt_route_welcome, bt_route_page, bt_route_openapi;

/* ---- describe_routes.c: what describes models and server ---- */

bt_route_t bt_route_server, bt_route_model, bt_route_config, bt_route_stats,
    bt_route_all_stats;

/* ---- manage_routes.c: admin requests ---- */

bt_route_t bt_route_index, bt_route_load, bt_route_unload, bt_route_log,
    bt_route_trace;
/** Reads the body of an admin command as settings. @param under  as in
 *  bt_settings_read()
 *  @return false: it was refused, and the error was sent */
bool bt_http_request_read_settings(bt_http_request_t *r, const char *under,
                                   bt_settings_t *settings);

/* ---- cluster_routes.c: commands to workers ---- */

bt_route_t bt_route_worker;

/* ---- training_routes.c: what training loops ask for ---- */

bt_route_t bt_route_pause, bt_route_resume, bt_route_is_paused,
    bt_route_update_weights, bt_route_weight_version;

/* ---- adapter_routes.c: LoRA adapters at run time ---- */

bt_route_t bt_route_load_adapter, bt_route_unload_adapter;

/** Reads what stands behind the '?' of an admin command.
 *  @param read  called for each name and value; returns NULL, or the error: a
 *    phrase
 *  @return false: it was refused, and the error was sent */
bool bt_route_read_query(bt_http_request_t *r,
                         const char *(*read)(const bt_query_t *query,
                                             void *options),
                         void *options);

/* ---- sleep_routes.c: memory of the workers ---- */

bt_route_t bt_route_sleep, bt_route_wake_up, bt_route_is_sleeping,
    bt_route_reset_prefix_cache;

/* ---- watch_routes.c: what live views read ---- */

bt_route_t bt_route_watch, bt_route_watch_events, bt_route_watch_requests,
    bt_route_watch_request;

/* ---- batch_routes.c: batches ---- */

bt_route_t bt_route_batches, bt_route_batch, bt_route_batch_cancel;

/* ---- file_routes.c: files of clients ---- */

bt_route_t bt_route_files, bt_route_file, bt_route_file_content;

/* ---- ollama_routes.c: models as Ollama's clients see them ---- */

bt_route_t bt_route_ollama_tags, bt_route_ollama_ps, bt_route_ollama_show;
/* Refuse to manage models, and to embed. */
bt_route_t bt_route_ollama_refuse, bt_route_ollama_embed;

/* ---- response_routes.c: stored responses ---- */

bt_route_t bt_route_response, bt_route_response_items, bt_route_response_cancel;

/* ---- memory_routes.c: regions of shared memory ---- */

bt_route_t bt_route_memory_status, bt_route_memory_register,
    bt_route_memory_unregister;
/* Regions of CUDA devices, of which there are none here. */
bt_route_t bt_route_cuda_status, bt_route_cuda_register,
    bt_route_cuda_unregister;

#endif
