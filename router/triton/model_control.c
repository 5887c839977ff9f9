/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/model_control.h"

#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "common/admin/connection.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/config/config.h"

#define POLL_MS 20
/* Time from the launcher's report that workers are ready until this router
 * sees them. */
#define SETTLE_MS 30000

struct bt_model_control {
    bt_frontend_t *front;
    bt_model_control_done_t *done;
    void *ctx;
    bt_admin_client_t *client;
    struct event *readable, *poll;
    uint64_t end_ms; /* 0: the launcher has not reported completion */
    bt_admin_command_t command;
};

void bt_model_control_leave(bt_model_control_t *order)
{
    if (order->readable != NULL) {
        event_free(order->readable);
    }
    if (order->poll != NULL) {
        event_free(order->poll);
    }
    bt_admin_client_close(order->client);
    order->front->n_orders--;
    bt_free(order);
}

static bool is_of_model(const bt_model_control_t *order)
{
    return (order->command.verb == BT_ADMIN_VERB_LOAD) ||
           (order->command.verb == BT_ADMIN_VERB_UNLOAD);
}

/* Triton's words: "failed to load 'm', ..." */
static const char *verb_name(bt_admin_verb_t verb)
{
    switch (verb) {
    case BT_ADMIN_VERB_LOAD:
        return "load";
    case BT_ADMIN_VERB_UNLOAD:
        return "unload";
    default:
        return bt_admin_verb_name(verb);
    }
}

static void explain(const bt_model_control_t *order, int status,
                    const char *why, bt_api_error_t *error_p)
{
    bt_api_error_set(error_p, status,
                     (status >= 500) ? "server_error" : "invalid_request_error",
                     is_of_model(order) ? "model" : NULL,
                     "failed to %s '%.64s', %.400s",
                     verb_name(order->command.verb), order->command.name, why);
}

static void finish(bt_model_control_t *order, const bt_api_error_t *error)
{
    bt_model_control_done_t *const done = order->done;
    void *const ctx = order->ctx;

    bt_model_control_leave(order);
    done(ctx, error);
}

static void fail(bt_model_control_t *order, int status, const char *why)
{
    bt_api_error_t error = {0};

    explain(order, status, why, &error);
    finish(order, &error);
}

/* ---- after the launcher's confirmation ---- */

static bool has_come_true(const bt_model_control_t *order)
{
    const bt_served_t *served =
        bt_registry_named(&order->front->models, order->command.name);

    switch (order->command.verb) {
    case BT_ADMIN_VERB_LOAD:
        return (served != NULL) && bt_served_ready(served);
    case BT_ADMIN_VERB_UNLOAD:
        return (served == NULL) || served->unloaded;
    default: /* processes: the launcher's report is sufficient */
        return true;
    }
}

static void settle(bt_model_control_t *order)
{
    if (has_come_true(order)) {
        finish(order, NULL);
    } else if (bt_now_ms() >= order->end_ms) {
        fail(order, 503, "the launcher did it, but no worker has come");
    }
}

/* ---- the launcher ---- */

static void take(bt_model_control_t *order)
{
    bt_admin_reply_t reply;

    bt_admin_client_step(order->client);
    while (bt_admin_client_next(order->client, &reply)) {
        bt_admin_document_fini(&reply.document);
        if (reply.result == BT_ADMIN_ERROR) {
            fail(order, 400, reply.error);
            return;
        }
        if (reply.result == BT_ADMIN_OK) {
            order->end_ms = bt_now_ms() + SETTLE_MS;
            event_free(order->readable);
            order->readable = NULL;
            settle(order);
            return;
        }
    }
    if (bt_admin_client_status(order->client) != BT_OK) {
        fail(order, 503, "the launcher is not there any more");
    }
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
    bt_model_control_t *order = ctx;
    bt_frontend_t *front = order->front;

    (void)fd;
    (void)what;
    take(order);
    bt_frontend_turn(front);
}

static void on_poll(evutil_socket_t fd, short what, void *ctx)
{
    bt_model_control_t *order = ctx;
    bt_frontend_t *front = order->front;

    (void)fd;
    (void)what;
    if (order->end_ms != 0) {
        settle(order);
    } else if (bt_admin_client_wants_write(order->client)) {
        take(order);
    }
    bt_frontend_turn(front);
}

static bt_status_t give_on(bt_model_control_t *order, struct event_base *base)
{
    const struct timeval period = {.tv_usec = POLL_MS * 1000};
    bt_status_t status =
        bt_admin_client_connect(order->front->config->launcher, &order->client);

    if (status != BT_OK) {
        return status;
    }
    status = bt_admin_client_send(order->client, &order->command);
    if (status != BT_OK) {
        return status;
    }
    order->readable = event_new(base, bt_admin_client_fd(order->client),
                                EV_READ | EV_PERSIST, on_readable, order);
    order->poll = event_new(base, -1, EV_PERSIST, on_poll, order);
    return ((order->readable != NULL) && (order->poll != NULL) &&
            (event_add(order->readable, NULL) == 0) &&
            (event_add(order->poll, &period) == 0))
               ? BT_OK
               : BT_ERR_NO_MEMORY;
}

/* ---- the beginning ---- */

static bt_status_t refuse(const char *name, const char *why,
                          bt_api_error_t *error_p)
{
    bt_api_error_set(error_p, 400, "invalid_request_error", name, "%.64s: %s",
                     name, why);
    return BT_ERR_INVALID_PARAM;
}

bt_status_t bt_model_control_check_parameter(const char *name,
                                             bt_api_error_t *error_p)
{
    /* No model depends on another one here. */
    if (strcmp(name, "unload_dependents") == 0) {
        return BT_OK;
    }
    return refuse(name,
                  "a model is loaded as the server was told, without a "
                  "configuration or files of the order's own",
                  error_p);
}

/* Returns the launcher's name of a model: Triton's names stand for the first
 * one. */
static const char *name_for_launcher(bt_frontend_t *front, const char *name)
{
    const bt_served_t *served = bt_registry_find(&front->models, name);

    return (served != NULL) ? served->name : name;
}

static bt_status_t begin(bt_frontend_t *front, struct event_base *base,
                         const bt_admin_command_t *command,
                         bt_model_control_done_t *done, void *ctx,
                         bt_model_control_t **order_p, bt_api_error_t *error_p)
{
    bt_model_control_t *order;
    bt_status_t status;

    if (front->n_orders >= BT_ORDER_MAX) {
        bt_api_error_set(error_p, 429, "rate_limit_error", NULL,
                         "%d commands are under way, try again later",
                         BT_ORDER_MAX);
        return BT_ERR_BUSY;
    }
    order = bt_calloc(1, sizeof(*order));
    if (order == NULL) {
        bt_api_error_set(error_p, 503, "server_error", NULL,
                         "out of memory for this command, try again later");
        return BT_ERR_NO_MEMORY;
    }
    *order = (bt_model_control_t){
        .front = front, .done = done, .ctx = ctx, .command = *command};
    front->n_orders++;
    if (front->config->launcher[0] == '\0') {
        explain(order, 400,
                "this router has no launcher, which would do it (baton serve)",
                error_p);
        status = BT_ERR_UNSUPPORTED;
        goto err_order;
    }
    status = give_on(order, base);
    if (status != BT_OK) {
        explain(order, 503, bt_status_str(status), error_p);
        goto err_order;
    }
    *order_p = order;
    return BT_OK;

err_order:
    bt_model_control_leave(order);
    return status;
}

bt_status_t bt_model_control_begin(bt_frontend_t *front,
                                   struct event_base *base, const char *name,
                                   bool load, bt_model_control_done_t *done,
                                   void *ctx, bt_model_control_t **order_p,
                                   bt_api_error_t *error_p)
{
    bt_admin_command_t command = {
        .verb = load ? BT_ADMIN_VERB_LOAD : BT_ADMIN_VERB_UNLOAD,
        .wait = true,
        .prefill = BT_ADMIN_UNSET,
        .decode = BT_ADMIN_UNSET,
    };

    if (!bt_config_is_model_name(name, strlen(name))) {
        return refuse(name, "this is no model's name", error_p);
    }
    snprintf(command.name, sizeof(command.name), "%s",
             name_for_launcher(front, name));
    return begin(front, base, &command, done, ctx, order_p, error_p);
}

bt_status_t bt_model_control_process(bt_frontend_t *front,
                                     struct event_base *base,
                                     const bt_admin_command_t *command,
                                     bt_model_control_done_t *done, void *ctx,
                                     bt_model_control_t **order_p,
                                     bt_api_error_t *error_p)
{
    return begin(front, base, command, done, ctx, order_p, error_p);
}
