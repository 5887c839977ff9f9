/* SPDX-License-Identifier: Apache-2.0 */
#include "router/observe/access_log.h"

#include <inttypes.h>

#include "common/base/alloc.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "router/observe/append_log.h"
#include "router/observe/ids.h"

#define LINE_BYTES (64u << 10)

struct bt_access_log {
    bt_append_log_t *file;
    bool json;
    bt_strbuf_t line; /* scratch */
};

bt_status_t bt_access_log_open(const char *path, bool json,
                               bt_access_log_t **log_p)
{
    bt_access_log_t *log = bt_calloc(1, sizeof(*log));
    bt_status_t status;

    if (log == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    status = bt_append_log_open(path, "access log", "--access-log", &log->file);
    if (status != BT_OK) {
        bt_free(log);
        return status;
    }
    log->json = json;
    bt_strbuf_init(&log->line, LINE_BYTES);
    *log_p = log;
    return BT_OK;
}

void bt_access_log_close(bt_access_log_t *log)
{
    if (log == NULL) {
        return;
    }
    bt_append_log_close(log->file);
    bt_strbuf_fini(&log->line);
    bt_free(log);
}

/* ---- a line: one list of fields, two forms ---- */

typedef enum kind {
    KIND_TEXT,
    KIND_NUMBER,
    KIND_MS, /* from microseconds */
} kind_t;

typedef struct field {
    const char *name;
    kind_t kind;
    const char *text; /* NULL or "": unknown */
    uint64_t number;
    bool unknown;
} field_t;

static bool is_plain(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((*text <= ' ') || (*text > '~') || (*text == '"') ||
            (*text == '\\')) {
            return false;
        }
    }
    return true;
}

static void put_text(bt_strbuf_t *line, const field_t *field)
{
    bt_json_t json;

    bt_strbuf_printf(line, "%s%s=", (line->len > 0) ? " " : "", field->name);
    if (field->unknown) {
        bt_strbuf_append(line, "-", 1);
    } else if (field->kind == KIND_NUMBER) {
        bt_strbuf_printf(line, "%" PRIu64, field->number);
    } else if (field->kind == KIND_MS) {
        bt_strbuf_printf(line, "%" PRIu64 ".%03u", field->number / 1000,
                         (unsigned)(field->number % 1000));
    } else if (is_plain(field->text)) {
        bt_strbuf_puts(line, field->text);
    } else {
        bt_json_init(&json, line);
        bt_json_str(&json, NULL, field->text);
    }
}

static void put_json(bt_json_t *json, const field_t *field)
{
    if (field->unknown) {
        return;
    }
    switch (field->kind) {
    case KIND_TEXT:
        bt_json_str(json, field->name, field->text);
        break;
    case KIND_NUMBER:
        bt_json_u64(json, field->name, field->number);
        break;
    case KIND_MS:
        bt_json_double(json, field->name, (double)field->number / 1000.0);
        break;
    }
}

static void put_line(bt_access_log_t *log, field_t *fields, size_t n)
{
    bt_json_t json;

    bt_strbuf_reset(&log->line);
    bt_json_init(&json, &log->line);
    if (log->json) {
        bt_json_object(&json, NULL);
    }
    for (size_t i = 0; i < n; i++) {
        if ((fields[i].kind == KIND_TEXT) &&
            ((fields[i].text == NULL) || (fields[i].text[0] == '\0'))) {
            fields[i].unknown = true;
        }
        if (log->json) {
            put_json(&json, &fields[i]);
        } else {
            put_text(&log->line, &fields[i]);
        }
    }
    if (log->json) {
        bt_json_end_object(&json);
    }
    bt_strbuf_append(&log->line, "\n", 1);
}

void bt_access_log_add(bt_access_log_t *log, const bt_access_t *access)
{
    const bool no_tokens = !access->generated;
    char time[BT_WALLTIME_BYTES];
    char trace[BT_TRACE_ID_TEXT_BYTES] = "";
    field_t fields[] = {
        {"time", KIND_TEXT, time, 0, false},
        {"id", KIND_TEXT, access->id, 0, false},
        {"client", KIND_TEXT, access->client, 0, false},
        {"method", KIND_TEXT, access->method, 0, false},
        {"route", KIND_TEXT, access->route, 0, false},
        {"path", KIND_TEXT, access->path, 0, false},
        {"status", KIND_NUMBER, NULL, access->status, false},
        {"model", KIND_TEXT, access->model, 0, false},
        {"prompt", KIND_NUMBER, NULL, access->n_prompt, no_tokens},
        {"output", KIND_NUMBER, NULL, access->n_output, no_tokens},
        {"ttft_ms", KIND_MS, NULL, access->first_us, access->first_us == 0},
        {"total_ms", KIND_MS, NULL, access->total_us, false},
        {"prefill", KIND_TEXT, access->prefill, 0, false},
        {"decode", KIND_TEXT, access->decode, 0, false},
        {"finish", KIND_TEXT, access->finish, 0, false},
        {"tenant", KIND_TEXT, access->tenant, 0, false},
        {"answer", KIND_TEXT, access->answer_id, 0, false},
        {"trace", KIND_TEXT, trace, 0, false},
    };

    bt_walltime_print(access->unix_ms, time);
    if (access->trace_id != NULL) {
        bt_trace_id_print(access->trace_id, trace);
    }
    put_line(log, fields, BT_ARRAY_LEN(fields));
    bt_append_log_add(log->file, &log->line);
}

uint64_t bt_access_log_flush(bt_access_log_t *log, uint64_t now_ms)
{
    return bt_append_log_flush(log->file, now_ms);
}

void bt_access_log_reopen(bt_access_log_t *log)
{
    bt_append_log_reopen(log->file);
}
