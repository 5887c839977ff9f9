/* SPDX-License-Identifier: Apache-2.0 */
/** @file trace.h
 *
 * Exports the timing record of each finished generation as OpenTelemetry
 * spans: a line in the file of --trace-file, to the collector of
 * --otlp-traces-endpoint (router/otlp), or both.
 *
 * A line is an OTLP TracesData object, so an OpenTelemetry collector's
 * otlpjsonfile receiver reads the file unchanged; a collector receives these
 * spans in requests of many. There is one span for the generation and one for
 * each part of the timing record that took time; the parts are contiguous and
 * fill the whole:
 *
 *     text_completion NAME ├──────────────────────────────────────────┤
 *       parse tokenize wait │ prefill.queue │ prefill.compute │
 *                                prefill.rest │ handover │ decode
 *
 * Workers report durations, so these are attributes (baton.*_us) of the whole
 * span: wait for the grant, the transfer's data time, bytes and descriptors,
 * its tail, hand-over, wait for the iteration's end. Spans never contain text
 * of prompts or answers.
 *
 * The file is a bt_append_log_t: a thread writes it. While the file accepts
 * nothing, lines are kept, then lost and counted.
 *
 * Threads: one thread owns it.
 * Source:  OTLP 1.3 (JSON encoding, File Exporter); semantic conventions for
 *          generative AI 1.37; W3C Trace Context level 1.
 */
#ifndef BT_ROUTER_OBSERVE_TRACE_H
#define BT_ROUTER_OBSERVE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "router/observe/record.h"
#include "router/otlp/otlp.h"

typedef struct bt_trace bt_trace_t;

typedef struct bt_trace_options {
    const char *path;    /**< file; "" = none */
    const char *url;     /**< collector; "" = none */
    const char *headers; /**< file of headers for it; "" = none */
    uint64_t otlp_queue_bytes;
    const char *instance; /**< "" = none */
} bt_trace_options_t;

/** Opens the file and the exporter.
 *  @param [in] options  copied; at least one of path and url is set
 *  @retval others  see bt_append_log_open() and bt_otlp_open() */
BT_MUST_CHECK bt_status_t bt_trace_open(const bt_trace_options_t *options,
                                        bt_trace_t **trace_p);
/** Writes and sends pending spans, for two seconds at most, and closes; warns
 *  on failure. NULL is allowed. */
void bt_trace_close(bt_trace_t *trace);

/** Adds one line, or one batch of spans, in memory.
 *  @param [in] model               name of the model
 *  @param [in] unix_minus_core_ns  offset from the core's clock to the time of
 *                                  day */
void bt_trace_add(bt_trace_t *trace, const char *model,
                  const bt_gen_record_t *record, int64_t unix_minus_core_ns);

/** Writes pending lines; see bt_append_log_flush().
 *  @return lines lost since the last call */
uint64_t bt_trace_flush(bt_trace_t *trace, uint64_t now_ms);
/** Returns counts of spans for the collector; all zero without a collector. */
void bt_trace_otlp_counts(bt_trace_t *trace, bt_otlp_counts_t *counts);
/** Reopens the file, for SIGHUP: the file was moved aside; rereads the
 *  collector's headers. */
void bt_trace_reopen(bt_trace_t *trace);

/** Generates a trace id, never all zero. */
void bt_trace_new_id(bt_trace_t *trace, uint8_t id[16]);

/** Parses trace and span of a `traceparent` header.
 *  @return false when malformed: treated as absent, as W3C says */
bool bt_trace_parse_parent(const char *header, bt_gen_origin_t *origin);

#endif
