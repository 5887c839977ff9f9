/* SPDX-License-Identifier: Apache-2.0 */
/** @file otlp.h
 *
 * Exports spans to an OpenTelemetry collector while the server runs:
 * --otlp-traces-endpoint. Adding spans never blocks and never allocates.
 *
 *     add ─▶ queue ─▶ thread: batch ─▶ gzip ─▶ POST ─┬─ 2xx ──────▶ sent
 *              │ full                     ▲         ├─ partial ───▶ rejected
 *              ▼                          │         ├─ 4xx … ─────▶ rejected
 *           dropped                       │         └─ 429, 502, 503, 504,
 *              ▲                          │            no answer
 *              └── timed out ◀──── wait, doubled each time ◀───────────┘
 *
 * A batch is sent when enough spans for one are queued or its first span has
 * waited long enough. Each span is counted once, by its final result. A
 * misbehaving receiver (it hangs, trickles, sends garbage, is down) costs time
 * of this thread, and memory for the queue, one batch and one answer, and
 * nothing else. An answer that breaks off after its status counts by its
 * status, so no span is sent twice for that reason; if an answer is lost with
 * its connection, the spans are sent again, as OTLP specifies.
 *
 * Threads: one owns the exporter and calls all functions.
 * Source:  OTLP 1.x over HTTP, JSON encoding.
 */
#ifndef BT_ROUTER_OTLP_OTLP_H
#define BT_ROUTER_OTLP_OTLP_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "router/otlp/client.h"

typedef struct bt_otlp bt_otlp_t;

typedef struct bt_otlp_options {
    const char *url;     /**< http[s]://HOST[:PORT][/PATH] (client.h) */
    const char *headers; /**< file (headers.h), or "" */
    const char *before;  /**< JSON before the spans of a batch, up to the */
    const char *behind;  /**< `[`, and after them, from the `]` of `spans` */
    size_t queue_bytes;  /**< queued spans, above 0 */
    size_t batch_bytes;  /**< a batch's JSON, approximately */
    uint32_t batch_ms;   /**< longest wait of a span for others */
    uint32_t try_ms;     /**< timeout of one request and its answer */
    bt_otlp_backoff_t backoff; /**< delays between tries */
    uint32_t give_up_ms;       /**< timeout of a batch, with all tries */
} bt_otlp_options_t;

typedef struct bt_otlp_counts {
    uint64_t n_sent, n_rejected, n_dropped; /**< spans */
    uint64_t n_failed_tries; /**< failed tries that could be retried */
    uint64_t queued_bytes;   /**< current value */
} bt_otlp_counts_t;

/** Sets the router's defaults, except `url`, `headers`, `before` and
 *  `behind`. */
void bt_otlp_options_init(bt_otlp_options_t *options);

/**
 * Starts an exporter.
 *
 * @param [in] options  Copied; the strings are borrowed until bt_otlp_close().
 * @retval BT_ERR_INVALID_PARAM  the URL; all errors are logged
 * @retval BT_ERR_NOT_FOUND, BT_ERR_IO, BT_ERR_UNAUTHORIZED, BT_ERR_BAD_FILE
 *                               the file of headers
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_otlp_open(const bt_otlp_options_t *options,
                                       bt_otlp_t **otlp_p);
/** Queues one or more spans, as JSON objects separated by commas. */
void bt_otlp_add(bt_otlp_t *otlp, const char *spans, size_t bytes,
                 uint32_t n_spans);
void bt_otlp_counts(bt_otlp_t *otlp, bt_otlp_counts_t *counts);
/** Rereads the file of headers, for SIGHUP; on failure, which is logged, the
 *  old headers stay. */
void bt_otlp_reload(bt_otlp_t *otlp);
/** Sends queued spans at once, for @a timeout_ms at most, and stops the
 *  exporter; the remaining spans are dropped, and their number is logged. NULL
 *  is allowed.
 *  @param [out] counts  final counts; may be NULL */
void bt_otlp_close(bt_otlp_t *otlp, uint32_t timeout_ms,
                   bt_otlp_counts_t *counts);

#endif
