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

void bt_model_control_leave(bt_model_control_t *control)
{
    if (control->readable != NULL) {
        event_free(control->readable);
    }
    if (control->poll != NULL) {
        event_free(control->poll);
    }
    bt_admin_client_close(control->client);
    control->front->n_model_controls--;
    bt_free(control);
}

static bool is_of_model(const bt_model_control_t *control)
{
    return (control->command.verb == BT_ADMIN_VERB_LOAD) ||
           (control->command.verb == BT_ADMIN_VERB_UNLOAD);
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

static void explain(const bt_model_control_t *control, int status,
                    const char *why, bt_api_error_t *error_p)
{
    bt_api_error_set(error_p, status, is_of_model(control) ? "model" : NULL,
                     "failed to %s '%.64s', %.400s",
                     verb_name(control->command.verb), control->command.name,
                     why);
}

static void finish(bt_model_control_t *control, const bt_api_error_t *error)
{
    bt_model_control_done_t *const done = control->done;
    void *const ctx = control->ctx;

    bt_model_control_leave(control);
    done(ctx, error);
}

static void fail(bt_model_control_t *control, int status, const char *why)
{
    bt_api_error_t error = {0};

    explain(control, status, why, &error);
    finish(control, &error);
}

/* ---- after the launcher's confirmation ---- */

static bool has_come_true(const bt_model_control_t *control)
{
    const bt_served_t *served =
        bt_registry_named(&control->front->models, control->command.name);

    switch (control->command.verb) {
    case BT_ADMIN_VERB_LOAD:
        return (served != NULL) && bt_served_ready(served);
    case BT_ADMIN_VERB_UNLOAD:
        return (served == NULL) || served->unloaded;
    default: /* processes: the launcher's report is sufficient */
        return true;
    }
}

static void settle(bt_model_control_t *control)
{
    if (has_come_true(control)) {
        finish(control, NULL);
    } else if (bt_now_ms() >= control->end_ms) {
        fail(control, 503, "the launcher did it, but no worker has come");
    }
}

/* ---- the launcher ---- */

static void take(bt_model_control_t *control)
{
    bt_admin_reply_t reply;

    bt_admin_client_step(control->client);
    while (bt_admin_client_next(control->client, &reply)) {
        bt_admin_document_fini(&reply.document);
        if (reply.result == BT_ADMIN_ERROR) {
            fail(control, 400, reply.error);
            return;
        }
        if (reply.result == BT_ADMIN_OK) {
            control->end_ms = bt_now_ms() + SETTLE_MS;
            event_free(control->readable);
            control->readable = NULL;
            settle(control);
            return;
        }
    }
    if (bt_admin_client_status(control->client) != BT_OK) {
        fail(control, 503, "the launcher is not there any more");
    }
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
    bt_model_control_t *control = ctx;
    bt_frontend_t *front = control->front;

    (void)fd;
    (void)what;
    take(control);
    bt_frontend_turn(front);
}

static void on_poll(evutil_socket_t fd, short what, void *ctx)
{
    bt_model_control_t *control = ctx;
    bt_frontend_t *front = control->front;

    (void)fd;
    (void)what;
    if (control->end_ms != 0) {
        settle(control);
    } else if (bt_admin_client_wants_write(control->client)) {
        take(control);
    }
    bt_frontend_turn(front);
}

static bt_status_t give_on(bt_model_control_t *control, struct event_base *base)
{
    const struct timeval period = {.tv_usec = POLL_MS * 1000};
    bt_status_t status = bt_admin_client_connect(
        control->front->config->launcher, &control->client);

    if (status != BT_OK) {
        return status;
    }
    status = bt_admin_client_send(control->client, &control->command);
    if (status != BT_OK) {
        return status;
    }
    control->readable = event_new(base, bt_admin_client_fd(control->client),
                                  EV_READ | EV_PERSIST, on_readable, control);
    control->poll = event_new(base, -1, EV_PERSIST, on_poll, control);
    return ((control->readable != NULL) && (control->poll != NULL) &&
            (event_add(control->readable, NULL) == 0) &&
            (event_add(control->poll, &period) == 0))
               ? BT_OK
               : BT_ERR_NO_MEMORY;
}

/* ---- the beginning ---- */

static bt_status_t refuse(const char *name, const char *why,
                          bt_api_error_t *error_p)
{
    return bt_api_error_invalid(error_p, name, "%.64s: %s", name, why);
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
                  "configuration or files of the request's own",
                  error_p);
}

/* Returns the launcher's name of a model: Triton's names stand for the first
 * one. */
static const char *name_for_launcher(bt_frontend_t *front, const char *name)
{
    const bt_served_t *served = bt_registry_find(&front->models, name);

    return (served != NULL) ? served->name : name;
}

bt_status_t bt_model_control_process(bt_frontend_t *front,
                                     struct event_base *base,
                                     const bt_admin_command_t *command,
                                     bt_model_control_done_t *done, void *ctx,
                                     bt_model_control_t **control_p,
                                     bt_api_error_t *error_p)
{
    bt_model_control_t *control;
    bt_status_t status;

    if (front->n_model_controls >= BT_MODEL_CONTROL_MAX) {
        bt_api_error_set(error_p, 429, NULL,
                         "%d commands are under way, try again later",
                         BT_MODEL_CONTROL_MAX);
        return BT_ERR_BUSY;
    }
    control = bt_calloc(1, sizeof(*control));
    if (control == NULL) {
        bt_api_error_set(error_p, 503, NULL,
                         "out of memory for this command, try again later");
        return BT_ERR_NO_MEMORY;
    }
    *control = (bt_model_control_t){
        .front = front, .done = done, .ctx = ctx, .command = *command};
    front->n_model_controls++;
    if (front->config->launcher[0] == '\0') {
        explain(control, 400,
                "this router has no launcher, which would do it (baton serve)",
                error_p);
        status = BT_ERR_UNSUPPORTED;
        goto err_control;
    }
    status = give_on(control, base);
    if (status != BT_OK) {
        explain(control, 503, bt_status_str(status), error_p);
        goto err_control;
    }
    *control_p = control;
    return BT_OK;

err_control:
    bt_model_control_leave(control);
    return status;
}

bt_status_t bt_model_control_begin(bt_frontend_t *front,
                                   struct event_base *base, const char *name,
                                   bool load, bt_model_control_done_t *done,
                                   void *ctx, bt_model_control_t **control_p,
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
    return bt_model_control_process(front, base, &command, done, ctx, control_p,
                                    error_p);
}
