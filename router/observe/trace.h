/* SPDX-License-Identifier: Apache-2.0 */
/** @file trace.h
 *
 * For each generation that ended, its ledger as spans of OpenTelemetry: a line
 * in the file of --trace, to the collector of --otlp (router/otlp), or both.
 *
 * A line is an OTLP TracesData object, so an OpenTelemetry collector's
 * otlpjsonfile receiver reads the file as it is; a collector gets the same
 * spans, many in one request. There is one for the generation and one for each
 * part of the ledger that took time; the parts follow each other without a gap
 * and fill the whole:
 *
 *     text_completion NAME ├──────────────────────────────────────────┤
 *       parse tokenize wait │ prefill.queue │ prefill.compute │
 *                                prefill.rest │ handover │ decode
 *
 * What workers report of themselves are durations, so they are attributes
 * (baton.*_us) of the whole span: wait for the grant, the transfer's data time,
 * bytes and descriptors, its tail, hand-over, wait for the iteration's end.
 * There is no text of prompt or answer in them.
 *
 * The file is a bt_line_file_t: a thread writes it, and lines are kept, then
 * lost and counted, while it takes none.
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
#include "common/base/strbuf.h"
#include "router/observe/record.h"
#include "router/otlp/otlp.h"

typedef struct bt_trace bt_trace_t;

typedef struct bt_trace_options {
    const char *path;    /**< of the file; "" = none */
    const char *url;     /**< of the collector; "" = none */
    const char *headers; /**< file of them, for the collector; "" = none */
    uint64_t otlp_queue_bytes;
    const char *instance; /**< "" = none */
} bt_trace_options_t;

/** @param [in] options  copied; one of path and url is there
 *  @retval as of bt_line_file_open() and bt_otlp_open() */
BT_MUST_CHECK bt_status_t bt_trace_open(const bt_trace_options_t *options,
                                        bt_trace_t **trace_p);
/** Writes and sends what is left, for two seconds at most; warns when that
 *  fails. NULL is allowed. */
void bt_trace_close(bt_trace_t *trace);

/** One line, one batch of spans, in memory.
 *  @param [in] model               its name
 *  @param [in] unix_minus_core_ns  what turns the core's clock into the time of
 *                                  day */
void bt_trace_add(bt_trace_t *trace, const char *model,
                  const bt_gen_record_t *record, int64_t unix_minus_core_ns);

/** See bt_line_file_flush(). @return lines lost since the last call */
uint64_t bt_trace_flush(bt_trace_t *trace, uint64_t now_ms);
/** What became of spans for the collector; all zero without one. */
void bt_trace_otlp_counts(bt_trace_t *trace, bt_otlp_counts_t *counts);
/** For SIGHUP: the file was moved aside; the collector's headers are read
 *  anew. */
void bt_trace_reopen(bt_trace_t *trace);

/** A fresh id for a trace, never all zero. */
void bt_trace_new_id(bt_trace_t *trace, uint8_t id[16]);

/** Trace and span of a `traceparent` header.
 *  @return false when it is malformed: it counts as none, as W3C says */
bool bt_trace_parse_parent(const char *header, bt_gen_origin_t *origin);

#endif
