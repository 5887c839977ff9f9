/* SPDX-License-Identifier: Apache-2.0 */
/** @file links.h
 *
 * The router's end of the control links: which worker stands behind which link,
 * and to which model it belongs.
 *
 *     link up: hello ─▶ the model of this file ─▶ its core's table, or refused
 *                 └──── waits while a model is being read, which may be it
 *     message        ─▶ that core
 *     down           ─▶ its requests run again or end
 *
 * What is sent in one turn of the event loop leaves in one write per worker.
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_LINKS_H
#define BT_ROUTER_LINKS_H

#include "common/rpc/rpc.h"
#include "router/frontend/frontend.h"

struct event_base;
struct event;

/** Of the loop's: before all others, so that no crowd of clients makes a worker
 *  look silent, or us to it. What one turn leaves of a worker's messages comes
 *  in the last one, among the clients. */
#define BT_LINKS_PRIORITY 0

typedef struct bt_links {
    bt_frontend_t *front;
    bt_rpc_t *rpc;
    bt_wire_decoder_t *decoder;
    bt_strbuf_t frame; /**< scratch: one encoded message */
    struct event *readable, *more;
    bt_turn_work_t flush; /**< at the end of the turn */
    bt_list_t waiting; /**< links whose model may be one that is being read */
    uint32_t n_loads_seen; /**< bt_loads_t.n_ended when they were looked at */
} bt_links_t;

/** Makes what bt_links_send() needs; nobody can link yet.
 *  @param [in] front  borrowed
 *  @retval others  Logged; bt_links_close() is still due. */
BT_MUST_CHECK bt_status_t bt_links_open(bt_links_t *links,
                                        struct event_base *base,
                                        bt_frontend_t *front);
/** Listen for workers. @param [out] bound  the real URL.
 *  @retval others  Logged. */
BT_MUST_CHECK bt_status_t bt_links_listen(bt_links_t *links,
                                          struct event_base *base,
                                          const char *url, const uint8_t *key,
                                          size_t key_bytes, char *bound,
                                          size_t bound_bytes);
/** See bt_rpc_rekey(). */
bool bt_links_rekey(bt_links_t *links, const uint8_t *key, size_t key_bytes);
/** Heartbeats and what came; call every 50 ms or so. */
void bt_links_tick(bt_links_t *links, uint64_t now_ms);
void bt_links_close(bt_links_t *links); /**< also of a zeroed one */

/** bt_core_ops_t.send, with the links as its context. */
void bt_links_send(void *links, bt_instance_t *worker, const bt_msg_t *msg);

#endif
