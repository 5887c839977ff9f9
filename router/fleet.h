/* SPDX-License-Identifier: Apache-2.0 */
/** @file fleet.h
 *
 * What the launcher knows and the router needs: which models are loaded, how
 * many workers are meant to be here, and how often they had to be started
 * again. The router watches the launcher's socket (common/orders); without one
 * (--launcher "") nothing is known of all that, and the models are those of the
 * options.
 *
 *     model line    ─▶ loads: a new model is read, a known one is loaded or
 *                      unloaded
 *     process line  ─▶ metrics: expected workers, restarts; muster: who they
 *                      are, and what keeps one of them; requests wait for
 *                      workers that start, or start again after a pause
 *     lost          ─▶ what was said stays; connected anew after a second
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_FLEET_H
#define BT_ROUTER_FLEET_H

#include "common/orders/client.h"
#include "router/frontend/frontend.h"

struct event_base;
struct event;

typedef struct bt_fleet {
    bt_frontend_t *front;
    struct event_base *base;
    bt_orders_client_t *client;     /**< NULL: not connected */
    struct event *readable;         /**< of the client's descriptor */
    uint64_t retry_ms;              /**< when to connect again */
    bool was_lost;                  /**< said once, until it is back */
    bool changed;                   /**< the metrics do not know it yet */
    bt_orders_process_t *processes; /**< owned; as the launcher said last */
    uint32_t n_processes, cap_processes;
    uint64_t roles_ms; /**< when to see to the workers' roles again */
} bt_fleet_t;

/** Borrows both; connects at the first tick. */
void bt_fleet_init(bt_fleet_t *fleet, struct event_base *base,
                   bt_frontend_t *front);
/** Connect if need be, and see to what came; call every 50 ms or so. */
void bt_fleet_tick(bt_fleet_t *fleet, uint64_t now_ms);
void bt_fleet_fini(bt_fleet_t *fleet); /**< also of a zeroed one */

#endif
