/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/document.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "launcher/supervisor_priv.h"

#define CELL_BYTES 256
#define N_COLUMNS  8

/* Texts of one row of the table. */
typedef struct row {
    char cells[N_COLUMNS][CELL_BYTES];
} row_t;

/* ---- records ---- */

static uint32_t program_of(const bt_child_t *child)
{
    if (child->process->is_standby) {
        return BT_ADMIN_PROGRAM_STANDBY;
    }
    switch (child->process->program) {
    case BT_PROG_ROUTER:
        return BT_ADMIN_PROGRAM_ROUTER;
    case BT_PROG_PREFILL:
        return BT_ADMIN_PROGRAM_PREFILL;
    default:
        return BT_ADMIN_PROGRAM_DECODE;
    }
}

static uint32_t state_of(const bt_child_t *child)
{
    static const bt_admin_process_state_t states[BT_PROCESS_STATES] = {
        [BT_PROCESS_STOPPED] = BT_ADMIN_PROCESS_STOPPED,
        [BT_PROCESS_STARTING] = BT_ADMIN_PROCESS_STARTING,
        [BT_PROCESS_READY] = BT_ADMIN_PROCESS_READY,
        [BT_PROCESS_STOPPING] = BT_ADMIN_PROCESS_STOPPING,
        [BT_PROCESS_CHANGING] = BT_ADMIN_PROCESS_STOPPING,
        [BT_PROCESS_WAITING] = BT_ADMIN_PROCESS_WAITING,
    };

    return states[child->state];
}

static void copy(const char *text, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", text);
}

static void describe_launcher(const bt_supervisor_t *s,
                              bt_admin_launcher_t *launcher)
{
    memset(launcher, 0, sizeof(*launcher));
    launcher->pid = (uint64_t)getpid();
    launcher->stopping = (s->phase != BT_SUPERVISOR_RUNNING);
    copy(bt_config_version(), launcher->version, sizeof(launcher->version));
    copy(s->plan->run_dir.path, launcher->run_dir, sizeof(launcher->run_dir));
}

static void describe_model(const bt_supervisor_t *s, uint32_t i,
                           bt_admin_model_t *out)
{
    const bt_plan_model_t *const model = &s->plan->models[i];

    memset(out, 0, sizeof(*out));
    copy(model->name, out->name, sizeof(out->name));
    copy(model->path, out->path, sizeof(out->path));
    out->prefill = bt_plan_count(s->plan, i, BT_ADMIN_ROLE_PREFILL);
    out->decode = bt_plan_count(s->plan, i, BT_ADMIN_ROLE_DECODE);
    out->both = bt_plan_count(s->plan, i, BT_ADMIN_ROLE_BOTH);
    out->loaded = !model->is_unloaded;
}

/* Describes what keeps a process from serving; while it starts, its last log
 * line. */
static void describe_trouble(const bt_child_t *child,
                             bt_admin_process_t *process)
{
    char line[BT_STDERR_TAIL_BYTES];

    switch (child->state) {
    case BT_PROCESS_READY:
        copy(child->is_starved ? "starved: it waits for a core"
                               : child->ready.why,
             process->why, sizeof(process->why));
        break;
    case BT_PROCESS_STARTING:
        bt_stderr_tail_cause(&child->tail, line);
        if (line[0] != '\0') {
            snprintf(process->why, sizeof(process->why), "it says: %s%s%s",
                     line,
                     (child->trouble[0] != '\0') ? "; before that it " : "",
                     child->trouble);
            break;
        }
        copy(child->trouble, process->why, sizeof(process->why));
        break;
    case BT_PROCESS_WAITING:
        copy(child->trouble, process->why, sizeof(process->why));
        break;
    case BT_PROCESS_STOPPED: /* by a command, unless it could not start */
        if (child->has_given_up) {
            copy(child->trouble, process->why, sizeof(process->why));
        }
        break;
    case BT_PROCESS_STOPPING:
    case BT_PROCESS_CHANGING:
        break;
    }
}

static void describe_process(const bt_supervisor_t *s, const bt_child_t *child,
                             bt_admin_process_t *process)
{
    memset(process, 0, sizeof(*process));
    copy(child->process->name, process->name, sizeof(process->name));
    process->program = program_of(child);
    process->role = child->process->role;
    if (bt_supervisor_is_worker(child)) {
        copy(s->plan->models[child->process->model].name, process->model,
             sizeof(process->model));
    }
    process->state = state_of(child);
    process->pid = (uint64_t)child->pid;
    process->restarts = child->n_restarts;
    process->since_ms = child->since_ms;
    describe_trouble(child, process);
    if (child->pid == 0) {
        return; /* its addresses are from a process that is gone */
    }
    /* Missing, or too long: then "". */
    if (!bt_ready_address(&child->ready, "http", process->http,
                          sizeof(process->http)) ||
        !bt_ready_address(&child->ready, "metrics", process->metrics,
                          sizeof(process->metrics))) {
        return;
    }
}

/* ---- the document, and its changes ---- */

bt_status_t bt_supervisor_document(const bt_supervisor_t *s,
                                   bt_admin_document_t *document_p)
{
    const uint32_t n_models = s->plan->n_models;
    bt_admin_document_t document = {
        .now_unix_ms = (uint64_t)bt_walltime_ms(),
        .has_launcher = true,
        .models = bt_calloc((size_t)n_models + 1, sizeof(*document.models)),
        .n_models = n_models,
        .processes =
            bt_calloc((size_t)s->n_children + 1, sizeof(*document.processes)),
        .n_processes = s->n_children,
    };

    if ((document.models == NULL) || (document.processes == NULL)) {
        bt_admin_document_fini(&document);
        return BT_ERR_NO_MEMORY;
    }
    describe_launcher(s, &document.launcher);
    for (uint32_t i = 0; i < n_models; i++) {
        describe_model(s, i, &document.models[i]);
    }
    for (uint32_t i = 0; i < s->n_children; i++) {
        describe_process(s, s->children[i], &document.processes[i]);
    }
    *document_p = document;
    return BT_OK;
}

void bt_supervisor_publish_launcher(bt_supervisor_t *s)
{
    bt_admin_reply_t change = {.document = {.has_launcher = true}};

    describe_launcher(s, &change.document.launcher);
    bt_control_socket_publish(s->control, &change);
}

void bt_supervisor_publish_model(bt_supervisor_t *s, uint32_t i)
{
    bt_admin_model_t model;
    const bt_admin_reply_t change = {
        .document = {.models = &model, .n_models = 1}};

    describe_model(s, i, &model);
    bt_control_socket_publish(s->control, &change);
}

void bt_supervisor_publish_process(bt_supervisor_t *s, const bt_child_t *child)
{
    bt_admin_process_t process;
    const bt_admin_reply_t change = {
        .document = {.processes = &process, .n_processes = 1}};

    describe_process(s, child, &process);
    bt_control_socket_publish(s->control, &change);
}

/* ---- the table ---- */

/* "2d 3h", "3h 7m", "7m 5s", "5s" */
static void print_age(uint64_t ms, char *out, size_t bytes)
{
    const uint64_t s = ms / 1000;

    if (s >= 86400) {
        snprintf(out, bytes, "%" PRIu64 "d %" PRIu64 "h", s / 86400,
                 s % 86400 / 3600);
    } else if (s >= 3600) {
        snprintf(out, bytes, "%" PRIu64 "h %" PRIu64 "m", s / 3600,
                 s % 3600 / 60);
    } else if (s >= 60) {
        snprintf(out, bytes, "%" PRIu64 "m %" PRIu64 "s", s / 60, s % 60);
    } else {
        snprintf(out, bytes, "%" PRIu64 "s", s);
    }
}

/* Time in the current state. */
static uint64_t age_ms(const bt_admin_process_t *process, uint64_t now_ms)
{
    return (now_ms > process->since_ms) ? now_ms - process->since_ms : 0;
}

static void fill_row(const bt_admin_process_t *process, uint64_t now_ms,
                     row_t *row)
{
    char(*const cells)[CELL_BYTES] = row->cells;

    memset(row, 0, sizeof(*row));
    snprintf(cells[0], CELL_BYTES, "%s", process->name);
    snprintf(cells[1], CELL_BYTES, "%s",
             (process->role == BT_ADMIN_ROLE_NONE)
                 ? bt_admin_program_name(process->program)
                 : bt_admin_role_name(process->role));
    snprintf(cells[2], CELL_BYTES, "%s",
             (process->model[0] == '\0') ? "-" : process->model);
    snprintf(cells[3], CELL_BYTES, "%s",
             bt_admin_process_state_name(process->state));
    snprintf(cells[4], CELL_BYTES, "-");
    if (process->pid != 0) {
        snprintf(cells[4], CELL_BYTES, "%" PRIu64, process->pid);
    }
    print_age(age_ms(process, now_ms), cells[5], CELL_BYTES);
    snprintf(cells[6], CELL_BYTES, "%" PRIu64, process->restarts);
    if (process->http[0] != '\0') {
        snprintf(cells[7], CELL_BYTES, "%s%s",
                 (strstr(process->http, "://") != NULL) ? "" : "http://",
                 process->http);
    }
}

static void widen(const row_t *row, int *widths)
{
    for (size_t i = 0; i < N_COLUMNS; i++) {
        const int n = (int)strlen(row->cells[i]);

        widths[i] = (n > widths[i]) ? n : widths[i];
    }
}

static void print_row(const row_t *row, const int *widths, bt_strbuf_t *out)
{
    for (size_t i = 0; i < N_COLUMNS; i++) {
        bt_strbuf_printf(out, "%-*s  ", widths[i], row->cells[i]);
    }
    /* No spaces at the end of a line. */
    while ((out->len > 0) && (out->data[out->len - 1] == ' ')) {
        out->len--;
    }
    bt_strbuf_puts(out, "\n");
}

/* Prints processes that do not serve, or not all clients, and why. */
static void print_troubles(const bt_admin_document_t *document,
                           bt_strbuf_t *out)
{
    const char *before = "\n";

    for (uint32_t i = 0; i < document->n_processes; i++) {
        const bt_admin_process_t *const process = &document->processes[i];

        if (process->why[0] != '\0') {
            bt_strbuf_printf(out, "%s%s: %s\n", before, process->name,
                             process->why);
            before = "";
        }
    }
}

void bt_document_print_table(const bt_admin_document_t *document,
                             bt_strbuf_t *out)
{
    static const row_t titles = {{"PROCESS", "ROLE", "MODEL", "STATE", "PID",
                                  "SINCE", "RESTARTS", "ADDRESS"}};
    const bt_admin_launcher_t *const launcher = &document->launcher;
    const uint64_t now_ms = document->now_unix_ms;
    int widths[N_COLUMNS] = {0};
    row_t row;

    bt_strbuf_printf(out, "Baton %s, launcher %" PRIu64 " in %s%s\n\n",
                     launcher->version, launcher->pid, launcher->run_dir,
                     (launcher->stopping != 0) ? ", stopping" : "");
    for (uint32_t i = 0; i < document->n_models; i++) {
        const bt_admin_model_t *const model = &document->models[i];

        bt_strbuf_printf(
            out, "model %s: %s, %" PRIu64 " prefill, %" PRIu64 " decode, ",
            model->name, model->loaded ? "loaded" : "unloaded", model->prefill,
            model->decode);
        if (model->both != 0) {
            bt_strbuf_printf(out, "%" PRIu64 " both, ", model->both);
        }
        bt_strbuf_printf(out, "%s\n", model->path);
    }
    bt_strbuf_puts(out, "\n");
    widen(&titles, widths);
    for (uint32_t i = 0; i < document->n_processes; i++) {
        fill_row(&document->processes[i], now_ms, &row);
        widen(&row, widths);
    }
    print_row(&titles, widths, out);
    for (uint32_t i = 0; i < document->n_processes; i++) {
        fill_row(&document->processes[i], now_ms, &row);
        print_row(&row, widths, out);
    }
    print_troubles(document, out);
}

/* ---- state for a service manager ---- */

#define ADDRESS_BYTES 128
/* Time for the launcher's own end, after all processes have ended. */
#define END_MS 5000u

typedef struct counts {
    uint32_t n_meant, n_ready; /* processes, standbys included */
    uint32_t n_left;           /* that have not ended yet */
    uint32_t n_routers, n_serving;
    const bt_child_t *router; /* the first that is ready, or NULL */
} counts_t;

static void count(const bt_supervisor_t *s, counts_t *counts)
{
    for (uint32_t i = 0; i < s->n_children; i++) {
        const bt_child_t *const child = s->children[i];
        const bool is_meant = (child->state != BT_PROCESS_STOPPED) &&
                              (child->state != BT_PROCESS_STOPPING);
        const bool is_ready = (child->state == BT_PROCESS_READY);

        counts->n_meant += is_meant;
        counts->n_ready += is_ready;
        counts->n_left += (child->pid != 0);
        if (bt_child_is_router(child)) {
            counts->n_routers += is_meant;
            counts->n_serving += is_ready;
            if (is_ready && (counts->router == NULL)) {
                counts->router = child;
            }
        }
    }
}

static void describe(const bt_supervisor_t *s, const counts_t *counts,
                     char *out, size_t bytes)
{
    char http[ADDRESS_BYTES];

    if (s->phase != BT_SUPERVISOR_RUNNING) {
        snprintf(out, bytes, "Stopping: %u processes are left", counts->n_left);
    } else if (!s->was_announced) {
        snprintf(out, bytes, "Starting: %u of %u processes are ready",
                 counts->n_ready, counts->n_meant);
    } else if ((counts->router != NULL) &&
               bt_ready_address(&counts->router->ready, "http", http,
                                sizeof(http))) {
        snprintf(out, bytes, "Serving at %s: %u of %u processes are ready",
                 http, counts->n_ready, counts->n_meant);
    } else {
        snprintf(out, bytes, "No router is ready: %u of %u processes are",
                 counts->n_ready, counts->n_meant);
    }
}

void bt_supervisor_notify(bt_supervisor_t *s)
{
    char status[BT_NOTIFY_STATUS_BYTES];
    counts_t counts = {0};
    bt_notify_state_t state = {
        .is_ready = s->was_announced,
        .is_stopping = (s->phase != BT_SUPERVISOR_RUNNING),
        .stop_ms = s->options->drain_ms + BT_SUPERVISOR_DRAIN_GRACE_MS +
                   BT_SUPERVISOR_WORKER_GRACE_MS + END_MS,
        .status = status,
    };

    if (s->options->notify->fd < 0) {
        return; /* no service manager */
    }
    count(s, &counts);
    state.n_routers = counts.n_routers;
    state.n_serving = counts.n_serving;
    describe(s, &counts, status, sizeof(status));
    bt_notify_tell(s->options->notify, &state, bt_now_ms());
}
