/* SPDX-License-Identifier: Apache-2.0 */
/** @file worker_links.h
 *
 * Router side of the control links: maps each link to its worker, and each
 * worker to its model.
 *
 *     link up: hello ─▶ the model of this file ─▶ its core's table, or refused
 *                 └──── waits while a model is being read that may match
 *     message        ─▶ that core
 *     down           ─▶ its requests are retried or end
 *
 * Messages sent in one turn of the event loop leave in one write per worker.
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_WORKER_LINKS_H
#define BT_ROUTER_WORKER_LINKS_H

#include "common/link/link.h"
#include "router/frontend/frontend.h"

struct event_base;
struct event;

/** Event priority on the loop: before all others, so that load from clients
 *  makes neither a worker look silent to the router nor the router to a worker.
 *  Messages of workers left over from one turn are handled at the last
 *  priority, among the clients. */
#define BT_LINKS_PRIORITY 0

typedef struct bt_worker_links {
    bt_frontend_t *front;
    bt_control_t *control;
    bt_wire_decoder_t *decoder;
    bt_strbuf_t frame; /**< scratch: one encoded message */
    struct event *readable, *more;
    bt_turn_work_t flush; /**< flushes messages at the end of the turn */
    bt_list_t waiting; /**< links whose model may be one that is being read */
    uint32_t n_loads_seen; /**< bt_loads_t.n_ended at the last check */
} bt_worker_links_t;

/** Prepares bt_worker_links_send(); no worker can connect yet.
 *  @param [in] front  borrowed
 *  @retval others  Logged; bt_worker_links_close() is still due. */
BT_MUST_CHECK bt_status_t bt_worker_links_open(bt_worker_links_t *links,
                                               struct event_base *base,
                                               bt_frontend_t *front);
/** Listens for workers. @param [out] bound  the real URL.
 *  @retval others  Logged. */
BT_MUST_CHECK bt_status_t bt_worker_links_listen(
    bt_worker_links_t *links, struct event_base *base, const char *url,
    const uint8_t *key, size_t key_bytes, char *bound, size_t bound_bytes);
/** Changes the cluster key: see bt_control_rekey(). */
bool bt_worker_links_rekey(bt_worker_links_t *links, const uint8_t *key,
                           size_t key_bytes);
/** Handles heartbeats and received messages; call every 50 ms or so. */
void bt_worker_links_tick(bt_worker_links_t *links, uint64_t now_ms);
void bt_worker_links_close(
    bt_worker_links_t *links); /**< also accepts a zeroed one */

/** Sends a message to a worker, as bt_core_ops_t.send; the context is a
 *  bt_worker_links_t. */
void bt_worker_links_send(void *links, bt_instance_t *worker,
                          const bt_msg_t *msg);

#endif
