/* SPDX-License-Identifier: Apache-2.0 */
#include "router/launcher_client.h"

#include <event2/event.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define RETRY_MS 1000
#define ROLES_MS 500 /* between two role orders to a worker */
/* How late a launcher may learn of the end of a worker. */
#define LATE_US 30000000u

/* ---- processes ---- */

static bool is_worker(const bt_admin_process_t *process)
{
    return (process->program == BT_ADMIN_PROGRAM_PREFILL) ||
           (process->program == BT_ADMIN_PROGRAM_DECODE);
}

/* Orders the workers to take the roles that the launcher intends. Every router
 * does so, and a worker may join later: so it is repeated, and skipped for
 * workers that have these roles. */
static void order_roles(bt_launcher_client_t *launcher)
{
    for (uint32_t i = 0; i < launcher->document.n_processes; i++) {
        const bt_admin_process_t *process = &launcher->document.processes[i];
        const bt_served_t *served =
            bt_registry_named(&launcher->front->models, process->model);

        if ((process->role != BT_ADMIN_ROLE_NONE) && (served != NULL)) {
            bt_core_order_role(served->core, process->name, process->role);
        }
    }
}

/* True while requests wait for a worker of the launcher: it starts, or restarts
 * after a pause, which may be longer than the wait for unknown workers. One
 * that is ready for the launcher and absent here has just ended: a launcher
 * that waits for a core learns that late. */
static bool is_expected(const bt_admin_process_t *process, bool has_joined,
                        uint64_t since_loss_us)
{
    switch (process->state) {
    case BT_ADMIN_PROCESS_WAITING:
    case BT_ADMIN_PROCESS_STARTING:
        return true;
    case BT_ADMIN_PROCESS_READY:
        return !has_joined && (since_loss_us < LATE_US);
    default:
        return false;
    }
}

/* A router that has just started has lost the workers of the one before. */
static uint64_t last_loss_us(const bt_launcher_client_t *launcher,
                             const bt_core_t *core)
{
    const uint64_t lost_us = bt_core_lost_us(core);

    return (lost_us > launcher->start_us) ? lost_us : launcher->start_us;
}

static void expect_workers(const bt_launcher_client_t *launcher,
                           uint64_t now_us)
{
    bt_registry_t *models = &launcher->front->models;

    for (uint32_t i = 0; i < launcher->document.n_processes; i++) {
        const bt_admin_process_t *process = &launcher->document.processes[i];
        const bt_served_t *served =
            is_worker(process) ? bt_registry_named(models, process->model)
                               : NULL;

        if ((served != NULL) &&
            is_expected(process, bt_registry_has_worker(models, process->name),
                        now_us - last_loss_us(launcher, served->core))) {
            bt_core_expect_worker(served->core, now_us);
        }
    }
}

/* Adds the process to the count of its model and role. */
static void count_expected(bt_metrics_expected_t *expected, uint32_t *n,
                           const bt_admin_process_t *process)
{
    const uint32_t role = process->role;
    const uint32_t here = (process->state != BT_ADMIN_PROCESS_STOPPED) ? 1 : 0;

    for (uint32_t i = 0; i < *n; i++) {
        if ((expected[i].role == role) &&
            (strcmp(expected[i].model, process->model) == 0)) {
            expected[i].n_workers += here;
            return;
        }
    }
    expected[(*n)++] = (bt_metrics_expected_t){
        .model = process->model, .role = role, .n_workers = here};
}

static void update_metrics(bt_launcher_client_t *launcher)
{
    const size_t n = (size_t)launcher->document.n_processes + 1;
    bt_metrics_expected_t *expected = bt_calloc(n, sizeof(*expected));
    bt_metrics_restarts_t *restarts = bt_calloc(n, sizeof(*restarts));
    bt_metrics_fleet_t counts = {.expected = expected, .restarts = restarts};
    bt_status_t status = BT_ERR_NO_MEMORY;

    if ((expected == NULL) || (restarts == NULL)) {
        goto end;
    }
    for (uint32_t i = 0; i < launcher->document.n_processes; i++) {
        const bt_admin_process_t *process = &launcher->document.processes[i];

        if (is_worker(process)) {
            count_expected(expected, &counts.n_expected, process);
            restarts[counts.n_restarts++] = (bt_metrics_restarts_t){
                .worker = process->name, .n = process->restarts};
        }
    }
    status = bt_metrics_fleet(launcher->front->metrics, &counts);

end:
    if (status != BT_OK) {
        BT_LOG_WARN("metrics of the processes: %s", bt_status_str(status));
    }
    launcher->changed = false;
    bt_free(restarts);
    bt_free(expected);
}

/* ---- the connection ---- */

static void disconnect(bt_launcher_client_t *launcher)
{
    if (launcher->readable != NULL) {
        event_free(launcher->readable);
        launcher->readable = NULL;
    }
    bt_admin_client_close(launcher->client);
    launcher->client = NULL;
}

static void connection_lost(bt_launcher_client_t *launcher, bt_status_t status)
{
    if (!launcher->was_lost) {
        launcher->was_lost = true;
        BT_LOG_WARN("launcher at %s: %s; trying again every %d ms",
                    launcher->front->config->launcher, bt_status_str(status),
                    RETRY_MS);
    }
    launcher->retry_ms = bt_now_ms() + RETRY_MS;
    disconnect(launcher);
}

static void load_models(bt_launcher_client_t *launcher,
                        const bt_admin_document_t *change)
{
    for (uint32_t i = 0; i < change->n_models; i++) {
        const bt_admin_model_t *model = &change->models[i];

        bt_loads_want(&launcher->front->loads, model->name, model->path,
                      !model->loaded);
    }
}

/* Takes over the whole document of an answer, or a change of it. */
static bt_status_t take_reply(bt_launcher_client_t *launcher,
                              bt_admin_reply_t *reply)
{
    bt_admin_document_t *change = &reply->document;

    if (reply->result == BT_ADMIN_ERROR) {
        BT_LOG_WARN("launcher: %s", reply->error);
        return BT_OK;
    }
    load_models(launcher, change);
    if (reply->result == BT_ADMIN_OK) {
        const bt_admin_document_t before = launcher->document;

        launcher->document = *change;
        *change = before; /* freed by the caller */
        launcher->changed = true;
        return BT_OK;
    }
    launcher->changed = launcher->changed || (change->processes != NULL);
    return bt_admin_document_merge(&launcher->document, change);
}

static void receive(bt_launcher_client_t *launcher)
{
    bt_status_t status = BT_OK;
    bt_admin_reply_t reply;

    bt_admin_client_step(launcher->client);
    while ((status == BT_OK) &&
           bt_admin_client_next(launcher->client, &reply)) {
        status = take_reply(launcher, &reply);
        bt_admin_document_fini(&reply.document);
    }
    if (launcher->changed) {
        update_metrics(launcher);
        launcher->roles_ms = 0;
    }
    /* A change that is lost comes again with the whole document. */
    if (status == BT_OK) {
        status = bt_admin_client_status(launcher->client);
    }
    if (status != BT_OK) {
        connection_lost(launcher, status);
    }
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
    bt_launcher_client_t *launcher = ctx;

    (void)fd;
    (void)what;
    receive(launcher);
    bt_frontend_turn(launcher->front);
}

static bt_status_t connect_to_launcher(bt_launcher_client_t *launcher)
{
    const bt_admin_command_t watch = {.verb = BT_ADMIN_VERB_WATCH,
                                      .prefill = BT_ADMIN_UNSET,
                                      .decode = BT_ADMIN_UNSET};
    bt_status_t status = bt_admin_client_connect(
        launcher->front->config->launcher, &launcher->client);

    if (status == BT_OK) {
        status = bt_admin_client_send(launcher->client, &watch);
    }
    if (status != BT_OK) {
        return status;
    }
    launcher->readable =
        event_new(launcher->base, bt_admin_client_fd(launcher->client),
                  EV_READ | EV_PERSIST, on_readable, launcher);
    if ((launcher->readable == NULL) ||
        (event_add(launcher->readable, NULL) != 0)) {
        return BT_ERR_NO_MEMORY;
    }
    launcher->was_lost = false;
    return BT_OK;
}

void bt_launcher_client_init(bt_launcher_client_t *launcher,
                             struct event_base *base, bt_frontend_t *front)
{
    *launcher = (bt_launcher_client_t){
        .front = front, .base = base, .start_us = bt_now_us()};
    front->members.launcher = &launcher->document;
}

void bt_launcher_client_tick(bt_launcher_client_t *launcher, uint64_t now_ms)
{
    bt_status_t status;

    if (launcher->front->config->launcher[0] == '\0') {
        return;
    }
    if ((launcher->client != NULL) && (now_ms >= launcher->roles_ms)) {
        launcher->roles_ms = now_ms + ROLES_MS;
        order_roles(launcher);
    }
    if (launcher->client != NULL) {
        if (bt_admin_client_wants_write(launcher->client)) {
            receive(launcher);
        }
        expect_workers(launcher, bt_now_us());
        return;
    }
    if (now_ms < launcher->retry_ms) {
        return;
    }
    status = connect_to_launcher(launcher);
    if (status != BT_OK) {
        connection_lost(launcher, status);
    }
}

void bt_launcher_client_fini(bt_launcher_client_t *launcher)
{
    disconnect(launcher);
    if (launcher->front != NULL) {
        launcher->front->members.launcher = NULL;
    }
    bt_admin_document_fini(&launcher->document);
    *launcher = (bt_launcher_client_t){0};
}
