/* SPDX-License-Identifier: Apache-2.0 */
/** @file watching.h
 *
 * What the router's models tell a live view (router/watch): events of a core
 * as they come, and what only looking tells, twice a second: who is ready, and
 * how much waits.
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_FRONTEND_WATCHING_H
#define BT_ROUTER_FRONTEND_WATCHING_H

#include "router/frontend/frontend.h"

/** @retval others  Logged. */
BT_MUST_CHECK bt_status_t bt_watching_open(bt_frontend_t *front);
/** Call every 50 ms or so. */
void bt_watching_tick(bt_frontend_t *front, uint64_t now_us);

/** A request was turned away: for the metrics, too.
 *  @param served  NULL: of no model that is here */
void bt_watching_refused(bt_frontend_t *front, bt_served_t *served,
                         int http_status);
/** A model was loaded, or unloaded, by order. */
void bt_watching_loaded(bt_served_t *served);

/* Of bt_core_ops_t; @a served is a bt_served_t. */
void bt_watching_record(bt_served_t *served, const bt_gen_record_t *record);
void bt_watching_rerun(void *served, const bt_gen_origin_t *origin,
                       const char *why);
void bt_watching_handover(void *served, const bt_gen_origin_t *origin,
                          const bt_gen_attempt_t *attempt,
                          bt_handover_phase_t phase,
                          const bt_msg_joined_t *joined);
void bt_watching_worker(void *served, const bt_instance_t *worker,
                        bt_worker_news_t news, const char *text);

#endif
