/* SPDX-License-Identifier: Apache-2.0 */
/** @file metrics.h
 *
 * The router's /metrics: the families that Triton's TensorRT-LLM backend
 * exports (nv_trt_llm_*, nv_llm_*, nv_inference_*, with its label order) and
 * Baton's own (baton_*, process_*). metrics_table.c has all of them in one
 * table; docs/METRICS.md is generated from it.
 *
 *     events of a model ──▶ bt_model_metrics_t ─┐
 *     events of the process ──▶ cells ──────────┼─ table ──▶ page
 *     views: current workers and queues ────────┘
 *                                    snapshot ◀─┘
 *
 * Counters and histograms are updated at the event that they name; gauges are
 * computed from the views. An unknown value is left out together with its
 * labels.
 *
 * A page is rendered from a snapshot: rendering 64 workers takes a millisecond
 * and more, the copy a few microseconds. So the owner takes the snapshot, and
 * another thread may render.
 *
 * The documented page has model="tensorrt_llm" in the nv_* families for any
 * model name, so the first model appears there under that name; each later
 * model has its own set of series under its own name.
 *
 *     request_metrics   active, max: decode workers (where each request has
 *                       its seat); scheduled, context, generation, waiting:
 *                       all workers
 *     kv_cache_block    all workers; fraction = used / max
 *     v1                exported by a server with static batches in place of
 *                       inflight_batcher, if configured
 *                       (--batching-strategy V1): tokens of the last iteration,
 *                       free seats of decode workers
 *     pending           in the router's queue, or prefill not begun at a worker
 *     *_duration_us     from the timing records of requests that succeeded, so
 *                       request = compute_input + queue + compute_infer, and
 *                       compute_output (text and writing) overlaps the last
 *     exec_count        sequences that workers ran and that succeeded, as the
 *                       TensorRT-LLM backend counts them: each is a batch of
 *                       one; iterations are baton_worker_iterations_total
 *     baton_*_seconds   each time when it becomes known: first and next tokens
 *                       as they arrive, transfers when a sequence joins, the
 *                       wait for its first iteration when its worker ends it
 *
 * Threads: one thread owns it; a snapshot may be rendered on another.
 * Source:  Prometheus, "Metric and label naming", "Writing client libraries"
 *          (process metrics); the TensorRT-LLM backend's documentation.
 */
#ifndef BT_ROUTER_OBSERVE_METRICS_H
#define BT_ROUTER_OBSERVE_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "common/sched/sched_place.h"
#include "router/observe/metrics_table.h"
#include "router/observe/record.h"
#include "router/otlp/otlp.h"

typedef struct bt_router_metrics bt_router_metrics_t; /**< all metrics */
typedef struct bt_model_metrics bt_model_metrics_t;   /**< one model's */

BT_MUST_CHECK bt_status_t bt_router_metrics_create(bt_router_metrics_t **m_p);
void bt_router_metrics_destroy(bt_router_metrics_t *m); /**< NULL is allowed */

/** Returns the series of the model of this name; created on first use. The
 *  series live as long as @a m, so counters continue when a model comes back.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_router_metrics_model(bt_router_metrics_t *m,
                                                  const char *name,
                                                  bt_model_metrics_t **mm_p);

/** Returns the series of a name that is no model of its own, such as
 *  "ensemble": only those of nv_inference_*. Created on first use.
 *  @param has_series  false: statistics only
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_router_metrics_name(bt_router_metrics_t *m,
                                                 const char *name,
                                                 bool has_series,
                                                 bt_model_metrics_t **mm_p);
/** Exports nv_trt_llm_v1_metrics in place of the inflight-batcher family. */
void bt_router_metrics_v1(bt_router_metrics_t *m, bool v1);

/* ---- events of a model ---- */

/** Counts a generation that was accepted. */
void bt_router_metrics_prompt(bt_model_metrics_t *mm, uint32_t n_tokens);
/** Counts a generation that succeeded: an inference, and an execution. */
void bt_router_metrics_end(bt_model_metrics_t *mm, uint32_t n_prompt,
                           uint32_t n_output);
/** Counts a client's request, of any number of generations: once all have
 *  succeeded, or when the first one failed (or its client left). */
void bt_router_metrics_request(bt_model_metrics_t *mm, bool ok);
/** Counts one response of a stream of several.
 *  @param index  position in the request; responses past
 *                BT_STATISTICS_RESPONSES are not counted
 *  @param us     since the previous response, or since the request began */
void bt_router_metrics_response(bt_model_metrics_t *mm, uint32_t index,
                                uint64_t us);
/** Adds the time for converting tokens to bytes for clients, after a
 *  generation that succeeded: its request lasted longer by this time. */
void bt_router_metrics_output(bt_model_metrics_t *mm, uint64_t us);
void bt_router_metrics_ledger(bt_model_metrics_t *mm,
                              const bt_ledger_t *ledger);
void bt_router_metrics_transfer(bt_model_metrics_t *mm,
                                const bt_msg_joined_t *joined, bool first);
/** Records a time in its histogram. FIRST_TOKEN and NEXT_TOKEN, which come
 *  once per token, also count the token. */
void bt_router_metrics_time(bt_model_metrics_t *mm, bt_gen_time_kind_t which,
                            uint64_t us);
/** Counts a request with a grammar.
 *  @param kind       bt_grammar_kind_t
 *  @param was_known  it had been compiled before; else in us */
void bt_router_metrics_grammar(bt_model_metrics_t *mm, uint32_t kind, bool ok,
                               bool was_known, uint64_t us);
/** Counts an attempt of a sequence of the model that was sent to workers. */
void bt_router_metrics_sent(bt_model_metrics_t *mm, bt_sched_cause_t cause);
/** Counts a failed attempt of a sequence of the model. */
void bt_router_metrics_loss(bt_model_metrics_t *mm, bt_gen_loss_t loss);
/** Adds the change of a worker's counters since its previous STATS; call
 *  before the previous STATS is replaced. */
void bt_router_metrics_stats(bt_model_metrics_t *mm,
                             const bt_msg_stats_t *before,
                             const bt_msg_stats_t *now);

/* ---- statistics, as Triton's clients read them ---- */

#define BT_STATISTICS_RESPONSES 32 /**< counted per stream */

typedef struct bt_duration {
    uint64_t count, ns;
} bt_duration_t;

/** Statistics of a model: the cells of the nv_inference_* families, and more.
 *  As in Triton, a batch of n counts as n inferences and one success (or
 *  failure), and so do the counts of times; a request's time is the mean over
 *  its sequences. */
typedef struct bt_statistics {
    uint64_t last_ms; /**< Unix time of the last sequence's end; 0: none */
    uint64_t inference_count, execution_count;
    bt_duration_t success, fail, queue;
    bt_duration_t compute_input, compute_infer, compute_output;
    uint32_t n_responses;
    bt_duration_t responses[BT_STATISTICS_RESPONSES];
} bt_statistics_t;

void bt_router_metrics_statistics(const bt_model_metrics_t *mm,
                                  bt_statistics_t *statistics);

/* ---- events of the process ---- */

/** Counts a request rejected before it became a generation: for its content,
 *  or (429, 5xx: also a failed inference) because the server could not serve
 *  it.
 *  @param mm  NULL: the request named no model that is here */
void bt_router_metrics_refused(bt_router_metrics_t *m, bt_model_metrics_t *mm,
                               int http_status);
/** Counts a request rejected because n of its sequences would have missed a
 *  target: TTFT if @a first, else ITL. */
void bt_router_metrics_late(bt_model_metrics_t *mm, bool first, uint32_t n);
/** Counts an HTTP exchange that was answered, or (499) abandoned by its
 *  client.
 *  @param route   a literal from a bounded set, with {model} where the path
 *                 has a name: "/v2/models/{model}/generate"
 *  @param method  a literal: "GET", "HEAD", "POST", "other"; "GRPC" for gRPC,
 *                 whose codes are given as the nearest HTTP status */
void bt_router_metrics_http(bt_router_metrics_t *m, const char *route,
                            const char *method, int code);
/** Records the delay of the event loop's tick: requests and tokens waited for
 *  that time too. */
void bt_router_metrics_tick(bt_router_metrics_t *m, uint64_t late_us);
/** Records the end of an event loop callback: its CPU time, and the CPU time
 *  to find the callback since the previous one. */
void bt_router_metrics_turn(bt_router_metrics_t *m);
/** Sets the counts of spans sent to a collector, since the start. */
void bt_router_metrics_otlp(bt_router_metrics_t *m,
                            const bt_otlp_counts_t *counts);
/** Adds to a counter: lost lines of trace or access log, requests without a
 *  valid key. */
void bt_router_metrics_add(bt_router_metrics_t *m, bt_process_cell_t cell,
                           double value);

/* ---- events of a tenant ---- */

/** Tenants with their own series, the first ones requested; all later tenants
 *  share the series of "other", so the page's size is bounded. */
#define BT_METRICS_MAX_TENANTS 64u

typedef struct bt_tenant_metrics bt_tenant_metrics_t;

/** Returns the series of the tenant of this name (shorter than 64 bytes);
 *  never NULL. The series live as long as @a m. */
bt_tenant_metrics_t *bt_router_metrics_tenant(bt_router_metrics_t *m,
                                              const char *name);
/** Adds to a counter or gauge of a tenant. @param [in] tm  NULL: not counted */
void bt_tenant_metrics_add(bt_tenant_metrics_t *tm, bt_tenant_cell_t cell,
                           double value);
/** Counts so far; all zero for NULL. */
typedef struct bt_tenant_totals {
    uint64_t prompt_tokens, output_tokens, refused;
} bt_tenant_totals_t;
bt_tenant_totals_t bt_tenant_metrics_totals(const bt_tenant_metrics_t *tm);

/* ---- events of a LoRA adapter ---- */

/** Adapters of a model with their own series, the first ones offered; all later
 *  ones share the series of "other", so the page's size is bounded. */
#define BT_METRICS_MAX_ADAPTERS 64u
/** Most of these whose adapters clients sent, so that they leave some to
 *  adapters that an operator named. */
#define BT_METRICS_MAX_SENT_ADAPTERS 32u

typedef struct bt_adapter_metrics bt_adapter_metrics_t;

/** Returns the series of the adapter of this name, of any bytes; created on
 *  first use. They live as long as the model's, so they may be kept by a
 *  request whose adapter is unloaded, and counters continue when an adapter
 *  comes back.
 *  @param [in] mm       NULL: no model
 *  @param [in] is_sent  a client sent the adapter
 *  @return NULL: no model, or no memory: not counted */
bt_adapter_metrics_t *bt_router_metrics_adapter(bt_model_metrics_t *mm,
                                                const char *name, bool is_sent);
/** Adds to a counter or gauge of an adapter.
 *  @param [in] am  NULL: not counted */
void bt_adapter_metrics_add(bt_adapter_metrics_t *am, bt_adapter_cell_t cell,
                            double value);
/** Counts an adapter that was loaded at run time, or could not be.
 *  @param [in] mm  NULL: not counted */
void bt_router_metrics_adapter_load(bt_model_metrics_t *mm, bool ok);

/* ---- reports of the launcher ---- */

/** Number of workers of a role that should be running. */
typedef struct bt_metrics_expected {
    const char *model;
    uint32_t role; /**< bt_role_t */
    uint32_t n_workers;
} bt_metrics_expected_t;

/** Number of times that a worker was restarted. */
typedef struct bt_metrics_restarts {
    const char *worker; /**< name of the worker */
    uint64_t n;
} bt_metrics_restarts_t;

typedef struct bt_metrics_fleet {
    const bt_metrics_expected_t *expected;
    uint32_t n_expected;
    const bt_metrics_restarts_t *restarts;
    uint32_t n_restarts;
} bt_metrics_fleet_t;

/** Replaces the launcher's reported numbers of processes; copied. Without a
 *  launcher this is never called, and the page has no such series.
 *  @retval BT_ERR_NO_MEMORY  The previous numbers stay. */
BT_MUST_CHECK bt_status_t bt_metrics_fleet(bt_router_metrics_t *m,
                                           const bt_metrics_fleet_t *report);

/* ---- the page ---- */

/** Value of bt_metrics_worker_t.state: suspect, and waiting for a CPU core. */
#define BT_METRICS_STARVED 3u

/** Current state of a worker. Everything is borrowed. */
typedef struct bt_metrics_worker {
    const bt_msg_hello_t *hello;
    const bt_msg_stats_t *stats; /**< the latest; NULL before the first */
    uint32_t state; /**< 0 up, 1 suspect, 2 draining, or BT_METRICS_STARVED */
} bt_metrics_worker_t;

/** Pair of workers between which KV transfers are impossible. */
typedef struct bt_metrics_cut {
    char prefill[BT_WIRE_MAX_NAME], decode[BT_WIRE_MAX_NAME];
    char at[BT_WIRE_MAX_AT], why[BT_WIRE_MAX_WHY];
} bt_metrics_cut_t;

/** Current state of one model, from which gauges are computed. */
typedef struct bt_metrics_view {
    bt_model_metrics_t *model;
    bt_metrics_worker_t *workers; /**< owned by the caller */
    uint32_t n_workers;
    uint32_t n_in_flight, n_waiting, n_legs;
    bt_metrics_cut_t *cuts; /**< owned by the caller */
    uint32_t n_cuts;
    uint64_t n_links_proven, n_links_failed, n_links_unproven;
    uint32_t n_adapters;      /**< LoRA adapters that have names */
    uint32_t n_adapter_tasks; /**< LoRA adapters of a lora_task_id */
} bt_metrics_view_t;

/** CPU time of the machine at the last reading, in ticks. */
typedef struct bt_metrics_cpu {
    uint64_t busy, all;
} bt_metrics_cpu_t;

/** Current state of the router's process. */
typedef struct bt_metrics_process {
    double unix_s;         /**< wall clock, for the timestamp gauge */
    bt_metrics_cpu_t *cpu; /**< the caller's state between readings; NULL: the
                              cells of the machine are not read */
    double cells[BT_PC_N]; /**< NaN values are left out of the page */
} bt_metrics_process_t;

/** Reads everything except the clients' cells (bt_door_read_use()) and cpu.
 *  Any thread may call, one at a time; slow with many open descriptors. */
void bt_metrics_process_read(bt_metrics_process_t *process);

/** All values of a page, at one moment. */
typedef struct bt_metrics_snapshot bt_metrics_snapshot_t;

/** Copies the current values: about 4 KiB for each model and 400 bytes for
 *  each worker.
 *  @param views  one per model that is served now, each model once
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_metrics_snapshot_create(
    const bt_router_metrics_t *m, const bt_metrics_view_t *views,
    uint32_t n_views, bt_metrics_snapshot_t **snapshot_p);
/** Frees a snapshot; on the thread that owns the metrics, before the metrics
 *  are destroyed. NULL is allowed. */
void bt_metrics_snapshot_destroy(bt_metrics_snapshot_t *snapshot);
/** Appends the whole page; only once per snapshot, since rendering sorts the
 *  snapshot. On any thread, before the metrics are destroyed. */
void bt_metrics_snapshot_render(bt_metrics_snapshot_t *snapshot,
                                const bt_metrics_process_t *process,
                                bt_strbuf_t *out);

/** Appends the table as Markdown, for docs/METRICS.md. */
void bt_router_metrics_print_doc(bt_strbuf_t *out);

#endif
