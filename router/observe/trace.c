/* SPDX-License-Identifier: Apache-2.0 */
#include "router/observe/trace.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json.h"
#include "common/config/config.h"
#include "router/observe/append_log.h"

#define LINE_BYTES  (64u << 10) /* a typical one has 5 KiB */
#define TRACE_BYTES 16u
#define SPAN_BYTES  8u
#define KIND_SERVER 2 /* SPAN_KIND_SERVER */
#define KIND_INNER  1 /* SPAN_KIND_INTERNAL */
#define CLOSE_MS    2000u
/* JSON after the spans of a line, or of a request to a collector. */
#define BEHIND "]}]}]}"

struct bt_trace {
    bt_append_log_t *file; /* NULL: none */
    bt_otlp_t *otlp;       /* NULL: none */
    char *before;          /* owned: JSON before the spans */
    bt_ids_t ids;
    bt_strbuf_t line; /* scratch */
};

/* ---- ids ---- */

void bt_trace_new_id(bt_trace_t *trace, uint8_t id[16])
{
    bt_ids_next16(&trace->ids, id);
}

/* Lower-case digits only, as the header demands.
 * @return false when they are not, or all zero */
static bool read_hex(const char *text, size_t n_bytes, uint8_t *out)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t any = 0;

    for (size_t i = 0; i < n_bytes; i++) {
        const char *hi = memchr(digits, text[2 * i], 16);
        const char *lo = memchr(digits, text[2 * i + 1], 16);

        if ((hi == NULL) || (lo == NULL)) {
            return false;
        }
        out[i] = (uint8_t)((hi - digits) * 16 + (lo - digits));
        any |= out[i];
    }
    return any != 0;
}

bool bt_trace_parse_parent(const char *header, bt_gen_origin_t *origin)
{
    const size_t n = strlen(header);
    uint8_t trace[TRACE_BYTES], span[SPAN_BYTES], version[1], flags[1];

    /* 00-<32>-<16>-<2>; later versions may continue with another '-'. */
    if ((n < 55) || (header[2] != '-') || (header[35] != '-') ||
        (header[52] != '-') || ((n > 55) && (header[55] != '-')) ||
        !read_hex(header + 3, TRACE_BYTES, trace) ||
        !read_hex(header + 36, SPAN_BYTES, span)) {
        return false;
    }
    if (memcmp(header, "00", 2) != 0) {
        if (!read_hex(header, 1, version) || (version[0] == 0xff)) {
            return false;
        }
    } else if (n != 55) {
        return false;
    }
    if ((memcmp(header + 53, "00", 2) != 0) &&
        !read_hex(header + 53, 1, flags)) {
        return false;
    }
    memcpy(origin->trace_id, trace, sizeof(trace));
    memcpy(origin->parent_id, span, sizeof(span));
    return true;
}

/* ---- JSON ---- */

static bool is_zero(const uint8_t *id, size_t n)
{
    uint8_t any = 0;

    for (size_t i = 0; i < n; i++) {
        any |= id[i];
    }
    return any == 0;
}

static void put_hex(bt_strbuf_t *out, const char *name, const uint8_t *id,
                    size_t n)
{
    bt_strbuf_printf(out, "\"%s\":\"", name);
    for (size_t i = 0; i < n; i++) {
        bt_strbuf_printf(out, "%02x", id[i]);
    }
    bt_strbuf_puts(out, "\",");
}

static void put_string(bt_strbuf_t *out, const char *text)
{
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_str(&json, NULL, text);
}

/* Attributes end with a comma; close_list() removes the last one. */
static void put_text(bt_strbuf_t *out, const char *key, const char *value)
{
    bt_strbuf_printf(out, "{\"key\":\"%s\",\"value\":{\"stringValue\":", key);
    put_string(out, value);
    bt_strbuf_puts(out, "}},");
}

/* Writes nothing for an empty text. */
static void put_some_text(bt_strbuf_t *out, const char *key, const char *value)
{
    if ((value != NULL) && (value[0] != '\0')) {
        put_text(out, key, value);
    }
}

static void put_int(bt_strbuf_t *out, const char *key, uint64_t value)
{
    /* 64-bit numbers are strings in OTLP's JSON. */
    bt_strbuf_printf(
        out, "{\"key\":\"%s\",\"value\":{\"intValue\":\"%" PRIu64 "\"}},", key,
        value);
}

static void put_double(bt_strbuf_t *out, const char *key, double value)
{
    bt_strbuf_printf(out, "{\"key\":\"%s\",\"value\":{\"doubleValue\":%.9g}},",
                     key, value);
}

static void put_bool(bt_strbuf_t *out, const char *key, bool value)
{
    bt_strbuf_printf(out, "{\"key\":\"%s\",\"value\":{\"boolValue\":%s}},", key,
                     value ? "true" : "false");
}

static void close_list(bt_strbuf_t *out)
{
    if ((out->len > 0) && (out->data[out->len - 1] == ',')) {
        out->len--;
    }
    bt_strbuf_puts(out, "]");
}

/* ---- one record ---- */

typedef struct span {
    uint8_t trace_id[TRACE_BYTES];
    uint8_t root_id[SPAN_BYTES];
    int64_t unix_minus_core_ns;
    uint64_t start_us; /* on the core's clock */
} span_t;

static void put_time(bt_strbuf_t *out, const span_t *span, const char *name,
                     uint64_t core_us)
{
    bt_strbuf_printf(out, "\"%s\":\"%" PRId64 "\",", name,
                     span->unix_minus_core_ns + (int64_t)core_us * 1000);
}

static void put_request(bt_strbuf_t *out, const char *model,
                        const bt_gen_record_t *r)
{
    const bt_gen_origin_t *o = r->origin;
    const bt_sampling_t *s = r->sampling;

    put_text(out, "gen_ai.operation.name",
             o->chat ? "chat" : "text_completion");
    put_text(out, "gen_ai.provider.name", "baton");
    put_text(out, "gen_ai.request.model", model);
    put_some_text(out, "gen_ai.response.id", o->answer_id);
    put_int(out, "gen_ai.request.max_tokens", r->max_new);
    put_double(out, "gen_ai.request.temperature", s->temperature);
    put_double(out, "gen_ai.request.top_p", s->top_p);
    put_int(out, "gen_ai.request.top_k", s->top_k);
    put_double(out, "gen_ai.request.frequency_penalty", s->frequency_penalty);
    put_double(out, "gen_ai.request.presence_penalty", s->presence_penalty);
    put_int(out, "gen_ai.usage.input_tokens", r->ledger->n_prompt);
    put_int(out, "gen_ai.usage.output_tokens", r->ledger->n_output);
    bt_strbuf_printf(out,
                     "{\"key\":\"gen_ai.response.finish_reasons\",\"value\":"
                     "{\"arrayValue\":{\"values\":[{\"stringValue\":\"%s\"}]}}"
                     "},",
                     bt_finish_name(r->finish));
    if (r->ledger->ttft_us > 0) {
        put_double(out, "gen_ai.server.time_to_first_token",
                   (double)r->ledger->ttft_us / 1e6);
    }
    if (r->http_status != 0) {
        bt_strbuf_printf(out,
                         "{\"key\":\"error.type\",\"value\":{\"stringValue\":"
                         "\"%d\"}},",
                         r->http_status);
    }
    put_some_text(out, "baton.request_id", o->request_id);
    put_some_text(out, "baton.tenant", o->tenant);
    put_bool(out, "baton.stream", o->stream);
    put_int(out, "baton.choice", o->choice);
}

static void put_ledger(bt_strbuf_t *out, const bt_gen_record_t *r)
{
    const bt_ledger_t *l = r->ledger;
    const struct {
        const char *key;
        uint64_t value;
    } values[] = {
        {"baton.attempts", r->n_attempts},
        {"baton.total_us", l->total_us},
        {"baton.max_gap_us", l->max_gap_us},
        {"baton.prefill.chunks", l->n_chunks},
        {"baton.prefill.cached_tokens", l->n_cached},
        {"baton.decode.queue_us", l->decode_queue_us},
        {"baton.decode.batch_us", l->worker_decode_us},
        {"baton.decode.pauses", l->n_pauses},
        {"baton.decode.paused_us", l->paused_us},
        {"baton.decode.draft_tokens", l->n_drafted},
        {"baton.decode.accepted_tokens", l->n_accepted},
        {"baton.kv.transfers", l->n_transfers},
        {"baton.kv.bytes", l->transfer_bytes},
        {"baton.kv.descriptors", l->transfer_pieces},
        {"baton.kv.grant_wait_us", l->grant_wait_us},
        {"baton.kv.transfer_us", l->transfer_us},
        {"baton.kv.tail_us", l->transfer_tail_us},
        {"baton.kv.verify_us", l->kv_verify_us},
        {"baton.kv.join_wait_us", l->join_wait_us},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(values); i++) {
        put_int(out, values[i].key, values[i].value);
    }
    if (r->n_attempts > 0) {
        const bt_gen_attempt_t *last = &r->attempts[r->n_attempts - 1];

        put_some_text(out, "baton.worker.decode", last->decode);
        put_some_text(out, "baton.worker.prefill", last->prefill);
    }
    if ((r->finish != BT_FINISH_ERROR) && (r->trouble[0] != '\0')) {
        put_text(out, "baton.trouble", r->trouble);
    }
}

static void put_events(bt_strbuf_t *out, const span_t *span,
                       const bt_gen_record_t *r)
{
    bt_strbuf_puts(out, "\"events\":[");
    for (uint32_t i = 0; i < r->n_attempts; i++) {
        const bt_gen_attempt_t *a = &r->attempts[i];

        bt_strbuf_puts(out, "{");
        put_time(out, span, "timeUnixNano", a->at_us);
        bt_strbuf_puts(out, "\"name\":\"baton.attempt\",\"attributes\":[");
        put_some_text(out, "baton.worker.prefill", a->prefill);
        put_some_text(out, "baton.worker.decode", a->decode);
        put_some_text(out, "baton.placement", a->cause);
        put_some_text(out, "baton.placement.prefill", a->prefill_why);
        put_some_text(out, "baton.placement.decode", a->decode_why);
        close_list(out);
        bt_strbuf_puts(out, "},");
    }
    if (r->ledger->ttft_us > 0) {
        bt_strbuf_puts(out, "{");
        put_time(out, span, "timeUnixNano",
                 span->start_us + r->ledger->ttft_us);
        bt_strbuf_puts(out, "\"name\":\"baton.first_token\"},");
    }
    close_list(out);
}

static void put_status(bt_strbuf_t *out, const bt_gen_record_t *r)
{
    /* 1 = OK, 2 = ERROR; unset if the client left. */
    if (r->finish == BT_FINISH_ERROR) {
        bt_strbuf_puts(out, "\"status\":{\"code\":2,\"message\":");
        put_string(out, r->trouble);
        bt_strbuf_puts(out, "}");
    } else if (r->finish == BT_FINISH_CANCELED) {
        bt_strbuf_puts(out, "\"status\":{}");
    } else {
        bt_strbuf_puts(out, "\"status\":{\"code\":1}");
    }
}

static void put_root(bt_strbuf_t *out, const char *model, const span_t *span,
                     const bt_gen_record_t *r)
{
    const bt_gen_origin_t *o = r->origin;

    bt_strbuf_puts(out, "{");
    put_hex(out, "traceId", span->trace_id, TRACE_BYTES);
    put_hex(out, "spanId", span->root_id, SPAN_BYTES);
    if (!is_zero(o->parent_id, SPAN_BYTES)) {
        put_hex(out, "parentSpanId", o->parent_id, SPAN_BYTES);
    }
    bt_strbuf_puts(out, "\"name\":");
    put_string(out, o->chat ? "chat" : "text_completion");
    bt_strbuf_printf(out, ",\"kind\":%d,", KIND_SERVER);
    put_time(out, span, "startTimeUnixNano", span->start_us);
    put_time(out, span, "endTimeUnixNano",
             span->start_us + r->ledger->total_us);
    bt_strbuf_puts(out, "\"attributes\":[");
    put_request(out, model, r);
    put_ledger(out, r);
    close_list(out);
    bt_strbuf_puts(out, ",");
    put_events(out, span, r);
    bt_strbuf_puts(out, ",");
    put_status(out, r);
    bt_strbuf_puts(out, "}");
}

/* Writes the parts of the critical path, in order. @return number of spans */
static uint32_t put_parts(bt_strbuf_t *out, bt_trace_t *trace,
                          const span_t *span, const bt_ledger_t *l)
{
    const struct {
        const char *name;
        uint64_t us;
    } parts[] = {
        {"parse", l->parse_us},       {"tokenize", l->tokenize_us},
        {"queue", l->queue_us},       {"prefill_queue", l->prefill_queue_us},
        {"prefill", l->prefill_us},   {"first_token", l->first_token_us},
        {"handover", l->handover_us}, {"decode", l->decode_us},
    };
    uint64_t at_us = span->start_us;
    uint8_t id[SPAN_BYTES];
    uint32_t n = 0;

    for (size_t i = 0; i < BT_ARRAY_LEN(parts); i++) {
        if (parts[i].us == 0) {
            continue;
        }
        bt_ids_next8(&trace->ids, id);
        bt_strbuf_puts(out, ",{");
        put_hex(out, "traceId", span->trace_id, TRACE_BYTES);
        put_hex(out, "spanId", id, SPAN_BYTES);
        put_hex(out, "parentSpanId", span->root_id, SPAN_BYTES);
        bt_strbuf_printf(out, "\"name\":\"baton.%s\",\"kind\":%d,",
                         parts[i].name, KIND_INNER);
        put_time(out, span, "startTimeUnixNano", at_us);
        at_us += parts[i].us;
        put_time(out, span, "endTimeUnixNano", at_us);
        bt_strbuf_puts(out, "\"status\":{}}");
        n++;
    }
    return n;
}

/* Passes spans on. @param n_before  bytes before the spans */
static void hand_on(bt_trace_t *trace, size_t n_before, uint32_t n_spans)
{
    bt_strbuf_t *out = &trace->line;
    const size_t n = out->len - n_before;

    if ((bt_strbuf_status(out) == BT_OK) && (trace->otlp != NULL)) {
        bt_otlp_add(trace->otlp, out->data + n_before, n, n_spans);
    }
    if (trace->file != NULL) {
        bt_strbuf_puts(out, BEHIND "\n");
        bt_append_log_add(trace->file, out);
    }
}

void bt_trace_add(bt_trace_t *trace, const char *model,
                  const bt_gen_record_t *record, int64_t unix_minus_core_ns)
{
    const bt_ledger_t *l = record->ledger;
    bt_strbuf_t *out = &trace->line;
    span_t span = {.unix_minus_core_ns = unix_minus_core_ns};
    uint32_t n_spans;
    size_t n_before;

    span.start_us = record->arrived_us - l->parse_us - l->tokenize_us;
    memcpy(span.trace_id, record->origin->trace_id, TRACE_BYTES);
    if (is_zero(span.trace_id, TRACE_BYTES)) {
        bt_trace_new_id(trace, span.trace_id);
    }
    bt_ids_next8(&trace->ids, span.root_id);

    bt_strbuf_reset(out);
    bt_strbuf_puts(out, trace->before);
    n_before = out->len;
    put_root(out, model, &span, record);
    n_spans = 1 + put_parts(out, trace, &span, l);
    hand_on(trace, n_before, n_spans);
}

/* ---- the file and the collector ---- */

static bt_status_t make_before(bt_trace_t *trace, const char *instance)
{
    bt_strbuf_t text;
    bt_status_t status;

    bt_strbuf_init(&text, LINE_BYTES);
    bt_strbuf_puts(&text,
                   "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    put_text(&text, "service.name", "baton-router");
    put_text(&text, "service.version", bt_config_version());
    put_some_text(&text, "service.instance.id", instance);
    close_list(&text);
    bt_strbuf_puts(&text, "},\"scopeSpans\":[{\"scope\":{\"name\":"
                          "\"baton-router\"},\"spans\":[");
    status = bt_strbuf_status(&text);
    if (status == BT_OK) {
        trace->before = bt_strdup(text.data);
        status = (trace->before != NULL) ? BT_OK : BT_ERR_NO_MEMORY;
    }
    bt_strbuf_fini(&text);
    return status;
}

static bt_status_t open_otlp(bt_trace_t *trace,
                             const bt_trace_options_t *options)
{
    bt_otlp_options_t otlp;

    bt_otlp_options_init(&otlp);
    otlp.url = options->url;
    otlp.headers = options->headers;
    otlp.before = trace->before;
    otlp.behind = BEHIND;
    otlp.queue_bytes = options->otlp_queue_bytes;
    return bt_otlp_open(&otlp, &trace->otlp);
}

bt_status_t bt_trace_open(const bt_trace_options_t *options,
                          bt_trace_t **trace_p)
{
    bt_trace_t *trace = bt_calloc(1, sizeof(*trace));
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (trace == NULL) {
        return status;
    }
    bt_strbuf_init(&trace->line, LINE_BYTES);
    status = make_before(trace, options->instance);
    if (status == BT_OK) {
        status = bt_ids_init(&trace->ids);
    }
    if ((status == BT_OK) && (options->path[0] != '\0')) {
        status = bt_append_log_open(options->path, "trace", "--trace-file",
                                    &trace->file);
    }
    if ((status == BT_OK) && (options->url[0] != '\0')) {
        status = open_otlp(trace, options);
    }
    if (status != BT_OK) {
        bt_trace_close(trace);
        return status;
    }
    *trace_p = trace;
    return BT_OK;
}

uint64_t bt_trace_flush(bt_trace_t *trace, uint64_t now_ms)
{
    return (trace->file != NULL) ? bt_append_log_flush(trace->file, now_ms) : 0;
}

void bt_trace_otlp_counts(bt_trace_t *trace, bt_otlp_counts_t *counts)
{
    *counts = (bt_otlp_counts_t){0};
    if (trace->otlp != NULL) {
        bt_otlp_counts(trace->otlp, counts);
    }
}

void bt_trace_reopen(bt_trace_t *trace)
{
    if (trace->file != NULL) {
        bt_append_log_reopen(trace->file);
    }
    if (trace->otlp != NULL) {
        bt_otlp_reload(trace->otlp);
    }
}

void bt_trace_close(bt_trace_t *trace)
{
    if (trace == NULL) {
        return;
    }
    bt_otlp_close(trace->otlp, CLOSE_MS, NULL);
    bt_append_log_close(trace->file);
    bt_strbuf_fini(&trace->line);
    bt_free(trace->before);
    bt_free(trace);
}
