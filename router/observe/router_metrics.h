/* SPDX-License-Identifier: Apache-2.0 */
/** @file router_metrics.h
 *
 * Every metric family of the router: those that Triton's TensorRT-LLM backend
 * prints (nv_trt_llm_*, nv_llm_*, nv_inference_*, with its label order) and our
 * own (baton_*).
 *
 * Counters and histograms move at the event that they name; gauges are summed
 * over the workers' latest STATS when the text is asked for.
 *
 *     request_metrics   active, max: decode workers (where each request has
 *                       its seat); scheduled, context, generation, waiting:
 *                       all workers
 *     kv_cache_block    all workers; fraction = used / max
 *     v1                what a server with static batches prints in place of
 *                       inflight_batcher: tokens of the last iteration, seats
 *                       of decode workers that nobody has
 *     pending           in the router's queue or not begun where the context
 *                       phase runs
 *     *_duration_us     from the ledgers of requests that ended well, so
 *                       request = compute_input + queue + compute_infer, and
 *                       compute_output (text and writing) overlaps the last
 *     exec_count        iterations of all workers since this router started
 *     baton_*_seconds   each time when it becomes known: first and next tokens
 *                       as they come, transfers when a sequence joins, the wait
 *                       for its first iteration when its worker ends it
 *
 * Threads: one thread owns it.
 */
#ifndef BT_ROUTER_OBSERVE_ROUTER_METRICS_H
#define BT_ROUTER_OBSERVE_ROUTER_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"
#include "router/observe/record.h"

typedef struct bt_router_metrics bt_router_metrics_t;

BT_MUST_CHECK bt_status_t bt_router_metrics_create(bt_router_metrics_t **m_p);
void bt_router_metrics_destroy(bt_router_metrics_t *m);

/** A generation ended for its client (or the client left: not ok). */
void bt_router_metrics_end(bt_router_metrics_t *m, bool ok, uint32_t n_prompt,
                           uint32_t n_output);
/** Time spent on turning tokens into bytes for clients. */
void bt_router_metrics_output(bt_router_metrics_t *m, uint64_t us);
void bt_router_metrics_ledger(bt_router_metrics_t *m,
                              const bt_ledger_t *ledger);
void bt_router_metrics_transfer(bt_router_metrics_t *m,
                                const bt_msg_joined_t *joined, bool first);
void bt_router_metrics_time(bt_router_metrics_t *m, bt_gen_time_kind_t which,
                            uint64_t us);
/** Trace lines that could not be kept. */
void bt_router_metrics_trace_lost(bt_router_metrics_t *m, uint64_t n_lines);
/** A request was turned away before it became a generation: for what it asks,
 *  or (429, 5xx: also a failed inference) because the server could not. */
void bt_router_metrics_refused(bt_router_metrics_t *m, int http_status);
/** The worker's counters since its last STATS; call before it is replaced. */
void bt_router_metrics_stats(bt_router_metrics_t *m,
                             const bt_msg_stats_t *before,
                             const bt_msg_stats_t *now);

/** A worker as it is now. Everything is borrowed. */
typedef struct bt_metrics_worker {
    const bt_msg_hello_t *hello;
    const bt_msg_stats_t *stats; /**< the latest */
    uint32_t state;              /**< 0 up, 1 suspect, 2 draining */
} bt_metrics_worker_t;

/** What the gauges are made of. */
typedef struct bt_metrics_view {
    bt_metrics_worker_t *workers; /**< whoever fills the view owns them */
    uint32_t n_workers;
    uint32_t n_in_flight, n_waiting, n_legs;
    uint32_t n_connections, n_open_fds;
    int64_t unix_s; /**< wall clock, for the timestamp gauge */
} bt_metrics_view_t;

/** Append the whole text. */
void bt_router_metrics_render(bt_router_metrics_t *m,
                              const bt_metrics_view_t *view, bt_strbuf_t *out);

#endif
