/* SPDX-License-Identifier: Apache-2.0 */
/** @file launcher_client.h
 *
 * Follows the launcher's state: loaded models, expected number of workers, and
 * their restarts. The router watches the launcher's socket (common/admin);
 * without one (--launcher "") this state is unknown, and the models are those
 * of the options.
 *
 *     models        ─▶ loads: a new model is read, a known one is loaded or
 *                      unloaded
 *     processes     ─▶ metrics: expected workers, restarts; requests wait for
 *                      workers that start, or restart after a pause
 *     the document  ─▶ membership, and so GET /v2/cluster
 *     lost          ─▶ the last state is kept; reconnects after a second
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_LAUNCHER_CLIENT_H
#define BT_ROUTER_LAUNCHER_CLIENT_H

#include "common/admin/connection.h"
#include "router/frontend/frontend.h"

struct event_base;
struct event;

typedef struct bt_launcher_client {
    bt_frontend_t *front;
    struct event_base *base;
    bt_admin_client_t *client; /**< NULL: not connected */
    struct event *readable;    /**< event of the client's descriptor */
    uint64_t retry_ms;         /**< when to reconnect */
    uint64_t start_us; /**< when the router started, in us of bt_now_us() */
    bool was_lost;     /**< loss was logged, until reconnected */
    bool changed;      /**< metrics are not updated yet */
    bt_admin_document_t document; /**< last reported by the launcher */
    uint64_t roles_ms;            /**< when to check the workers' roles again */
} bt_launcher_client_t;

/** Initializes with borrowed @a base and @a front; connects at the first tick.
 */
void bt_launcher_client_init(bt_launcher_client_t *launcher,
                             struct event_base *base, bt_frontend_t *front);
/** Connects if needed, and handles received replies; call every 50 ms or so. */
void bt_launcher_client_tick(bt_launcher_client_t *launcher, uint64_t now_ms);
void bt_launcher_client_fini(
    bt_launcher_client_t *launcher); /**< also accepts a zeroed one */

#endif
