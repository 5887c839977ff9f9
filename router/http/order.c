/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/order.h"

#include <event2/event.h>
#include <stdio.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/orders/client.h"
#include "router/http/door_priv.h"

#define POLL_MS 20
/* From the launcher's word that its workers are ready to theirs to us. */
#define SETTLE_MS 30000

struct bt_order {
    bt_visit_t *visit;
    bt_door_t *door;
    bt_orders_client_t *client;
    struct event *readable, *poll;
    bool load;
    uint64_t end_ms; /* 0: the launcher has not said that it is done */
    char name[BT_ORDERS_NAME_BYTES];
};

static void order_free(bt_order_t *order)
{
    if (order->readable != NULL) {
        event_free(order->readable);
    }
    if (order->poll != NULL) {
        event_free(order->poll);
    }
    bt_orders_close(order->client);
    order->door->n_orders--;
    bt_free(order);
}

void bt_order_leave(bt_order_t *order)
{
    order->visit->order = NULL;
    order_free(order);
}

static void fail(bt_order_t *order, int status, const char *why)
{
    bt_visit_t *visit = order->visit;
    bt_api_error_t error = {0};

    bt_api_error_set(&error, status,
                     (status >= 500) ? "server_error" : "invalid_request_error",
                     "model", "failed to %s '%.64s', %.400s",
                     order->load ? "load" : "unload", order->name, why);
    bt_order_leave(order);
    bt_visit_fail(visit, &error);
}

/* ---- after the launcher's ok ---- */

static bool has_come_true(const bt_order_t *order)
{
    const bt_served_t *served =
        bt_registry_named(&order->door->front->models, order->name);

    return order->load ? ((served != NULL) && bt_served_ready(served))
                       : ((served == NULL) || served->unloaded);
}

static void settle(bt_order_t *order)
{
    bt_visit_t *visit = order->visit;

    if (has_come_true(order)) {
        bt_order_leave(order);
        bt_visit_respond(visit, 200, BT_JSON_TYPE, "", 0);
    } else if (bt_now_ms() >= order->end_ms) {
        fail(order, 503, "the launcher did it, but no worker has come");
    }
}

/* ---- the launcher ---- */

static void take(bt_order_t *order)
{
    const bt_status_t status = bt_orders_step(order->client);
    bt_orders_event_t event;

    while (bt_orders_next(order->client, &event)) {
        if (event.kind == BT_ORDERS_EVENT_ERROR) {
            fail(order, 400, event.u.error);
            return;
        }
        if (event.kind == BT_ORDERS_EVENT_OK) {
            order->end_ms = bt_now_ms() + SETTLE_MS;
            event_free(order->readable);
            order->readable = NULL;
            settle(order);
            return;
        }
    }
    if (status != BT_OK) {
        fail(order, 503, "the launcher is not there any more");
    }
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
    bt_order_t *order = ctx;
    bt_door_t *door = order->door;

    (void)fd;
    (void)what;
    take(order);
    bt_frontend_turn(door->front);
}

static void on_poll(evutil_socket_t fd, short what, void *ctx)
{
    bt_order_t *order = ctx;
    bt_door_t *door = order->door;

    (void)fd;
    (void)what;
    if (order->end_ms != 0) {
        settle(order);
    } else if (bt_orders_wants_write(order->client)) {
        take(order);
    }
    bt_frontend_turn(door->front);
}

static bt_status_t give_on(bt_order_t *order)
{
    bt_orders_request_t request = {
        .verb = order->load ? BT_ORDERS_LOAD : BT_ORDERS_UNLOAD,
        .wait = true,
        .prefill = BT_ORDERS_UNSET,
        .decode = BT_ORDERS_UNSET,
    };
    const struct timeval period = {.tv_usec = POLL_MS * 1000};
    bt_status_t status =
        bt_orders_connect(order->door->front->config->launcher, &order->client);

    if (status != BT_OK) {
        return status;
    }
    snprintf(request.name, sizeof(request.name), "%s", order->name);
    status = bt_orders_send(order->client, &request);
    if (status != BT_OK) {
        return status;
    }
    order->readable = event_new(order->door->base, bt_orders_fd(order->client),
                                EV_READ | EV_PERSIST, on_readable, order);
    order->poll = event_new(order->door->base, -1, EV_PERSIST, on_poll, order);
    return ((order->readable != NULL) && (order->poll != NULL) &&
            (event_add(order->readable, NULL) == 0) &&
            (event_add(order->poll, &period) == 0))
               ? BT_OK
               : BT_ERR_NO_MEMORY;
}

void bt_order_begin(bt_visit_t *visit, const char *name, bool load)
{
    bt_order_t *order;
    bt_status_t status;

    if (visit->door->n_orders >= BT_ORDER_MAX) {
        bt_api_error_t error = {0};

        bt_api_error_set(&error, 429, "rate_limit_error", NULL,
                         "%d orders are under way, try again later",
                         BT_ORDER_MAX);
        bt_visit_fail(visit, &error);
        return;
    }
    order = bt_calloc(1, sizeof(*order));
    if (order == NULL) {
        bt_visit_fail_for_memory(visit);
        return;
    }
    order->visit = visit;
    order->door = visit->door;
    order->load = load;
    snprintf(order->name, sizeof(order->name), "%s", name);
    visit->order = order;
    visit->door->n_orders++;
    if (visit->door->front->config->launcher[0] == '\0') {
        fail(order, 400,
             "this router has no launcher, which would do it (baton serve)");
        return;
    }
    status = give_on(order);
    if (status != BT_OK) {
        fail(order, 503, bt_status_str(status));
    }
}
