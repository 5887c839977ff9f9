/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/json.h"
#include "common/base/walltime.h"

#define REPORT_BYTES (16u << 20)
#define CELL_BYTES   256
#define N_COLUMNS    8

/* Texts of one row of the table. */
typedef struct row {
    char cells[N_COLUMNS][CELL_BYTES];
} row_t;

bt_status_t bt_status_report_add(bt_status_report_t *report,
                                 const bt_admin_event_t *event)
{
    bt_admin_process_t *grown;

    switch (event->kind) {
    case BT_ADMIN_EVENT_LAUNCHER:
        report->launcher = event->u.launcher;
        break;
    case BT_ADMIN_EVENT_MODEL:
        if (report->n_models < BT_ARRAY_LEN(report->models)) {
            report->models[report->n_models++] = event->u.model;
        }
        break;
    case BT_ADMIN_EVENT_PROCESS:
        grown = bt_realloc_array(
            report->processes, (size_t)report->n_processes + 1, sizeof(*grown));
        if (grown == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        report->processes = grown;
        grown[report->n_processes++] = event->u.process;
        break;
    case BT_ADMIN_EVENT_OK:
    case BT_ADMIN_EVENT_ERROR:
        break;
    }
    return BT_OK;
}

void bt_status_report_fini(bt_status_report_t *report)
{
    bt_free(report->processes);
    report->processes = NULL;
    report->n_processes = 0;
}

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
static void print_troubles(const bt_status_report_t *report, bt_strbuf_t *out)
{
    const char *before = "\n";

    for (uint32_t i = 0; i < report->n_processes; i++) {
        const bt_admin_process_t *const process = &report->processes[i];

        if (process->why[0] != '\0') {
            bt_strbuf_printf(out, "%s%s: %s\n", before, process->name,
                             process->why);
            before = "";
        }
    }
}

void bt_status_report_table(const bt_status_report_t *report, uint64_t now_ms,
                            bt_strbuf_t *out)
{
    static const row_t titles = {{"PROCESS", "ROLE", "MODEL", "STATE", "PID",
                                  "SINCE", "RESTARTS", "ADDRESS"}};
    const bt_admin_launcher_t *const launcher = &report->launcher;
    int widths[N_COLUMNS] = {0};
    row_t row;

    bt_strbuf_printf(out, "Baton %s, launcher %" PRIu64 " in %s%s\n\n",
                     launcher->version, launcher->pid, launcher->run_dir,
                     (launcher->stopping != 0) ? ", stopping" : "");
    for (uint32_t i = 0; i < report->n_models; i++) {
        const bt_admin_model_t *const model = &report->models[i];

        bt_strbuf_printf(
            out, "model %s: %s, %" PRIu64 " prefill, %" PRIu64 " decode, ",
            model->name, (model->unloaded != 0) ? "unloaded" : "loaded",
            model->prefill, model->decode);
        if (model->both != 0) {
            bt_strbuf_printf(out, "%" PRIu64 " both, ", model->both);
        }
        bt_strbuf_printf(out, "%s\n", model->path);
    }
    bt_strbuf_puts(out, "\n");
    widen(&titles, widths);
    for (uint32_t i = 0; i < report->n_processes; i++) {
        fill_row(&report->processes[i], now_ms, &row);
        widen(&row, widths);
    }
    print_row(&titles, widths, out);
    for (uint32_t i = 0; i < report->n_processes; i++) {
        fill_row(&report->processes[i], now_ms, &row);
        print_row(&row, widths, out);
    }
    print_troubles(report, out);
}

static void write_process(const bt_admin_process_t *process, uint64_t now_ms,
                          bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "name", process->name);
    bt_json_str(json, "program", bt_admin_program_name(process->program));
    bt_json_str(json, "role",
                (process->role == BT_ADMIN_ROLE_NONE)
                    ? NULL
                    : bt_admin_role_name(process->role));
    bt_json_str(json, "model",
                (process->model[0] == '\0') ? NULL : process->model);
    bt_json_str(json, "state", bt_admin_process_state_name(process->state));
    bt_json_u64(json, "pid", process->pid);
    bt_json_u64(json, "restarts", process->restarts);
    bt_json_u64(json, "since_ms", process->since_ms);
    bt_json_u64(json, "age_ms", age_ms(process, now_ms));
    bt_json_str(json, "http",
                (process->http[0] == '\0') ? NULL : process->http);
    bt_json_str(json, "metrics",
                (process->metrics[0] == '\0') ? NULL : process->metrics);
    bt_json_str(json, "why", (process->why[0] == '\0') ? NULL : process->why);
    bt_json_end_object(json);
}

void bt_status_report_json(const bt_status_report_t *report, uint64_t now_ms,
                           bt_strbuf_t *out)
{
    const bt_admin_launcher_t *const launcher = &report->launcher;
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    bt_json_object(&json, "launcher");
    bt_json_u64(&json, "pid", launcher->pid);
    bt_json_str(&json, "version", launcher->version);
    bt_json_str(&json, "run_dir", launcher->run_dir);
    bt_json_str(&json, "state",
                (launcher->stopping != 0) ? "stopping" : "running");
    bt_json_end_object(&json);
    bt_json_array(&json, "models");
    for (uint32_t i = 0; i < report->n_models; i++) {
        const bt_admin_model_t *const model = &report->models[i];

        bt_json_object(&json, NULL);
        bt_json_str(&json, "name", model->name);
        bt_json_str(&json, "path", model->path);
        bt_json_u64(&json, "prefill", model->prefill);
        bt_json_u64(&json, "decode", model->decode);
        bt_json_u64(&json, "both", model->both);
        bt_json_str(&json, "state",
                    (model->unloaded != 0) ? "unloaded" : "loaded");
        bt_json_end_object(&json);
    }
    bt_json_end_array(&json);
    bt_json_array(&json, "processes");
    for (uint32_t i = 0; i < report->n_processes; i++) {
        write_process(&report->processes[i], now_ms, &json);
    }
    bt_json_end_array(&json);
    bt_json_end_object(&json);
    bt_strbuf_puts(out, "\n");
}

bool bt_status_report_print(const bt_status_report_t *report, bool json)
{
    const uint64_t now_ms = (uint64_t)bt_walltime_ms();
    bt_strbuf_t out;
    bool done;

    bt_strbuf_init(&out, REPORT_BYTES);
    if (json) {
        bt_status_report_json(report, now_ms, &out);
    } else {
        bt_status_report_table(report, now_ms, &out);
    }
    done = (bt_strbuf_status(&out) == BT_OK) &&
           (fputs(out.data, stdout) >= 0) && (fflush(stdout) == 0);
    if (!done) {
        fputs("baton: the status cannot be printed\n", stderr);
    }
    bt_strbuf_fini(&out);
    return done;
}
