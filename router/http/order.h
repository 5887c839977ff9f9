/* SPDX-License-Identifier: Apache-2.0 */
/** @file order.h
 *
 * A client's order to load or unload a model, given on to the launcher, and
 * answered when it has come true here too:
 *
 *     begin ─▶ the launcher's ok ─▶ the model is as ordered ─▶ 200
 *                │ error              │ not within a while
 *                └─▶ 400              └─▶ 503
 *
 * A client that leaves takes nothing back: what the launcher has begun it ends.
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_HTTP_ORDER_H
#define BT_ROUTER_HTTP_ORDER_H

#include <stdbool.h>

#define BT_ORDER_MAX 16 /**< under way, of all clients */

typedef struct bt_visit bt_visit_t;
typedef struct bt_order bt_order_t;

/** Give it on; the visit is answered, now or later.
 *  @param [in] name  of the model, as the launcher knows it */
void bt_order_begin(bt_visit_t *visit, const char *name, bool load);
/** The visit is over: nobody waits for it. */
void bt_order_leave(bt_order_t *order);

#endif
