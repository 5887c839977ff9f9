/* SPDX-License-Identifier: Apache-2.0 */
/** @file otlp.h
 *
 * Spans go to an OpenTelemetry collector while the server runs: --otlp. Who
 * adds spans never waits and asks for no memory.
 *
 *     add ─▶ queue ─▶ thread: batch ─▶ gzip ─▶ POST ─┬─ 2xx ──────▶ sent
 *              │ full                     ▲         ├─ partial ───▶ rejected
 *              ▼                          │         ├─ 4xx … ─────▶ rejected
 *           dropped                       │         └─ 429, 502, 503, 504,
 *              ▲                          │            no answer
 *              └── for too long ◀── wait, twice as long each time ◀──┘
 *
 * A batch goes when there is enough for one or its first span has waited long
 * enough. Each span is counted once, where it ends. What a receiver does (it
 * hangs, trickles, sends garbage, is not there) costs this thread time, the
 * queue, one batch and one answer of memory, and nothing else. An answer that
 * ends after its status counts by its status, so no span is sent twice for it;
 * one that was lost with its connection is, as OTLP has it.
 *
 * Threads: one owns it; bt_otlp_counts() is for the same.
 * Source:  OTLP 1.x over HTTP, JSON encoding.
 */
#ifndef BT_ROUTER_OTLP_OTLP_H
#define BT_ROUTER_OTLP_OTLP_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "router/otlp/retry.h"

typedef struct bt_otlp bt_otlp_t;

typedef struct bt_otlp_options {
    const char *url;       /**< see common/config/otlp_url.h */
    const char *headers;   /**< file (headers.h), or "" */
    const char *before;    /**< JSON around the spans of a batch: up to the */
    const char *behind;    /**< `[` and from the `]` of a `spans` list */
    size_t queue_bytes;    /**< of spans that wait, above 0 */
    size_t batch_bytes;    /**< of a batch's JSON, about */
    uint32_t batch_ms;     /**< a span waits so long for others */
    uint32_t try_ms;       /**< for one request and its answer */
    bt_otlp_waits_t waits; /**< between tries */
    uint32_t give_up_ms;   /**< a batch is tried no longer than this */
} bt_otlp_options_t;

typedef struct bt_otlp_counts {
    uint64_t n_sent, n_rejected, n_dropped; /**< spans */
    uint64_t n_failed_tries; /**< that were, or would be, repeated */
    uint64_t queued_bytes;   /**< now */
} bt_otlp_counts_t;

/** What the router uses, but for `url`, `headers`, `before` and `behind`. */
void bt_otlp_options_init(bt_otlp_options_t *options);

/**
 * @param [in] options  Copied, all of it.
 * @retval BT_ERR_INVALID_PARAM  the URL; logged, as all
 * @retval BT_ERR_NOT_FOUND, BT_ERR_IO, BT_ERR_UNAUTHORIZED, BT_ERR_BAD_FILE
 *                               the file of headers
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_otlp_open(const bt_otlp_options_t *options,
                                       bt_otlp_t **otlp_p);
/** One or more spans, as JSON objects with commas between. */
void bt_otlp_add(bt_otlp_t *otlp, const char *spans, size_t bytes,
                 uint32_t n_spans);
void bt_otlp_counts(bt_otlp_t *otlp, bt_otlp_counts_t *counts);
/** For SIGHUP: the file of headers is read anew; after a failure, which is
 *  logged, the old ones stay. */
void bt_otlp_reload(bt_otlp_t *otlp);
/** What waits is sent at once, for @a timeout_ms at most; the rest is dropped,
 *  and the log says how much. A thread that waits for a name's address then is
 *  left behind. NULL is allowed.
 *  @param [out] counts  how it ended; may be NULL */
void bt_otlp_close(bt_otlp_t *otlp, uint32_t timeout_ms,
                   bt_otlp_counts_t *counts);

#endif
