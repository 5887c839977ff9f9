/* SPDX-License-Identifier: Apache-2.0 */
/** @file watching.h
 *
 * Feeds a live view (router/watch) from the router's models: events of a core
 * as they occur, and states that are polled twice a second: readiness, and
 * queue lengths.
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_FRONTEND_WATCHING_H
#define BT_ROUTER_FRONTEND_WATCHING_H

#include "router/frontend/frontend.h"

/** Starts the live view's data. @retval others Logged. */
BT_MUST_CHECK bt_status_t bt_watching_open(bt_frontend_t *front);
/** Polls the states; call every 50 ms or so. */
void bt_watching_tick(bt_frontend_t *front, uint64_t now_us);

/** Counts a refused request, for the metrics, too.
 *  @param served  NULL: no known model */
void bt_watching_refused(bt_frontend_t *front, bt_served_t *served,
                         int http_status);
/** Reports that a model was loaded, or unloaded, by an admin command. */
void bt_watching_loaded(bt_served_t *served);

/* Callbacks of bt_core_ops_t; @a served is a bt_served_t. */
void bt_watching_record(bt_served_t *served, const bt_gen_record_t *record);
void bt_watching_rerun(void *served, const bt_gen_origin_t *origin,
                       const char *why);
void bt_watching_handover(void *served, const bt_gen_origin_t *origin,
                          const bt_gen_attempt_t *attempt,
                          bt_handover_phase_t phase,
                          const bt_msg_joined_t *joined);
void bt_watching_worker(void *served, const bt_instance_t *worker,
                        bt_worker_event_t news, const char *text);

#endif
