/* SPDX-License-Identifier: Apache-2.0 */
/** @file order.h
 *
 * A client's order to load or unload a model, or about a process of the
 * launcher, whatever door it came through: given on to the launcher, and
 * answered when it has come true here too:
 *
 *     begin ─▶ the launcher's ok ─▶ the model is as ordered ─▶ done(NULL)
 *                │ error              │ not within a while
 *                └─▶ 400              └─▶ 503
 *
 * A client that leaves takes nothing back: what the launcher has begun it ends.
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_TRITON_ORDER_H
#define BT_ROUTER_TRITON_ORDER_H

#include <stdbool.h>

#include "common/orders/orders.h"
#include "router/frontend/frontend.h"
#include "router/net/net.h"

#define BT_ORDER_MAX 16 /**< under way, of all clients */

typedef struct bt_order bt_order_t;

/** The last word; the order is freed.
 *  @param [in] error  NULL: it has come true */
typedef void bt_order_done_t(void *ctx, const bt_api_error_t *error);

/** May an order have this parameter?
 *  @retval BT_ERR_INVALID_PARAM  *error_p says why not. */
BT_MUST_CHECK bt_status_t bt_order_check_parameter(const char *name,
                                                   bt_api_error_t *error_p);
/**
 * Give it on.
 *
 * @param [in]  name     a client's word for the model; of Triton's names it is
 *                       the first model
 * @param [in]  done     is called later, never from inside this
 * @param [out] order_p  until done or bt_order_leave()
 * @retval BT_OK
 * @retval others  Nothing was begun; *error_p says why.
 */
BT_MUST_CHECK bt_status_t bt_order_begin(bt_frontend_t *front,
                                         struct event_base *base,
                                         const char *name, bool load,
                                         bt_order_done_t *done, void *ctx,
                                         bt_order_t **order_p,
                                         bt_api_error_t *error_p);
/** The same of an order about a process that the launcher runs: given on as it
 *  is, and done when the launcher says so. */
BT_MUST_CHECK bt_status_t bt_order_process(bt_frontend_t *front,
                                           struct event_base *base,
                                           const bt_orders_request_t *request,
                                           bt_order_done_t *done, void *ctx,
                                           bt_order_t **order_p,
                                           bt_api_error_t *error_p);
/** Nobody waits for it any more: done is not called. */
void bt_order_leave(bt_order_t *order);

#endif
