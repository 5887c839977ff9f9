/* SPDX-License-Identifier: Apache-2.0 */
/** @file metrics.h
 *
 * What the router's /metrics says: the families that Triton's TensorRT-LLM
 * backend prints (nv_trt_llm_*, nv_llm_*, nv_inference_*, with its label order)
 * and our own (baton_*, process_*). metrics_table.c has all of them in one
 * table, docs/METRICS.md is made from it.
 *
 *     events of a model ──▶ bt_model_metrics_t ─┐
 *     events of the process ──▶ cells ──────────┼─ table ──▶ page
 *     views: workers and queues as they are ────┘
 *                                    snapshot ◀─┘
 *
 * Counters and histograms move at the event that they name; gauges are made
 * of the views. A value that nobody knows is left out together with its labels.
 *
 * A page is written from a snapshot: the text of 64 workers takes a millisecond
 * and more, the copy some microseconds. So the owner takes the snapshot, and
 * another thread may write.
 *
 * The documented page has model="tensorrt_llm" in the nv_* families whatever
 * the model is called, so the model that came first stands there under that
 * name; those that came later have a set of series each under their own.
 *
 *     request_metrics   active, max: decode workers (where each request has
 *                       its seat); scheduled, context, generation, waiting:
 *                       all workers
 *     kv_cache_block    all workers; fraction = used / max
 *     v1                what a server with static batches prints in place of
 *                       inflight_batcher, where it is asked for
 *                       (--batching-strategy V1): tokens of the last iteration,
 *                       seats of decode workers that nobody has
 *     pending           in the router's queue or not begun where the context
 *                       phase runs
 *     *_duration_us     from the ledgers of requests that ended well, so
 *                       request = compute_input + queue + compute_infer, and
 *                       compute_output (text and writing) overlaps the last
 *     exec_count        sequences that workers ran and that ended well, as the
 *                       TensorRT-LLM backend counts them: each is a batch of
 *                       one; iterations are baton_worker_iterations_total
 *     baton_*_seconds   each time when it becomes known: first and next tokens
 *                       as they come, transfers when a sequence joins, the wait
 *                       for its first iteration when its worker ends it
 *
 * Threads: one thread owns it; a snapshot's page may be written on another.
 * Source:  Prometheus, "Metric and label naming", "Writing client libraries"
 *          (process metrics); the TensorRT-LLM backend's documentation.
 */
#ifndef BT_ROUTER_OBSERVE_METRICS_H
#define BT_ROUTER_OBSERVE_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"
#include "common/sched/sched_place.h"
#include "router/observe/record.h"
#include "router/otlp/otlp.h"

typedef struct bt_router_metrics bt_router_metrics_t; /**< owns the page */
typedef struct bt_model_metrics bt_model_metrics_t;   /**< of one model */

BT_MUST_CHECK bt_status_t bt_router_metrics_create(bt_router_metrics_t **m_p);
void bt_router_metrics_destroy(bt_router_metrics_t *m); /**< NULL is allowed */

/** The series of the model of this name, made when it is asked for first. They
 *  live as long as @a m, so counters go on when a model comes back.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_router_metrics_model(bt_router_metrics_t *m,
                                                  const char *name,
                                                  bt_model_metrics_t **mm_p);

/** bt_router_metrics_model() for a name that is no model of its own, such as
 *  "ensemble": it has the series of nv_inference_* alone.
 *  @param has_series  false: it has statistics only
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_router_metrics_name(bt_router_metrics_t *m,
                                                 const char *name,
                                                 bool has_series,
                                                 bt_model_metrics_t **mm_p);
/** Print nv_trt_llm_v1_metrics in place of in-flight's family. */
void bt_router_metrics_v1(bt_router_metrics_t *m, bool v1);

/* ---- events of a model ---- */

/** A generation was accepted. */
void bt_router_metrics_prompt(bt_model_metrics_t *mm, uint32_t n_tokens);
/** A generation ended well for its client: an inference, and an execution. */
void bt_router_metrics_end(bt_model_metrics_t *mm, uint32_t n_prompt,
                           uint32_t n_output);
/** A client's request ended, of as many generations as it has: once all have
 *  ended well, or when the first did not (or its client left). */
void bt_router_metrics_request(bt_model_metrics_t *mm, bool ok);
/** One response of a stream of several.
 *  @param index  in its request; those past BT_STATISTICS_RESPONSES are counted
 *                nowhere
 *  @param us     since the one before, or since the request began */
void bt_router_metrics_response(bt_model_metrics_t *mm, uint32_t index,
                                uint64_t us);
/** Time spent on turning tokens into bytes for clients, after a generation that
 *  ended well: its request lasted so much longer. */
void bt_router_metrics_output(bt_model_metrics_t *mm, uint64_t us);
void bt_router_metrics_ledger(bt_model_metrics_t *mm,
                              const bt_ledger_t *ledger);
void bt_router_metrics_transfer(bt_model_metrics_t *mm,
                                const bt_msg_joined_t *joined, bool first);
/** FIRST_TOKEN and NEXT_TOKEN, which come once per token, count it too. */
void bt_router_metrics_time(bt_model_metrics_t *mm, bt_gen_time_kind_t which,
                            uint64_t us);
/** An attempt of one of its sequences is sent. */
void bt_router_metrics_sent(bt_model_metrics_t *mm, bt_sched_cause_t cause);
/** ...failed. */
void bt_router_metrics_loss(bt_model_metrics_t *mm, bt_gen_loss_t loss);
/** The worker's counters since its last STATS; call before it is replaced. */
void bt_router_metrics_stats(bt_model_metrics_t *mm,
                             const bt_msg_stats_t *before,
                             const bt_msg_stats_t *now);

/* ---- statistics, as Triton's clients read them ---- */

#define BT_STATISTICS_RESPONSES 32 /**< of a stream, the first */

typedef struct bt_duration {
    uint64_t count, ns;
} bt_duration_t;

/** The same cells as the nv_inference_* families have, and what those do not
 *  say. As Triton counts: a batch of n is n inferences and one success (or
 *  failure), as are the times' counts; a request's time is the mean of its
 *  sequences'. */
typedef struct bt_statistics {
    uint64_t last_ms; /**< Unix time of the last end of a sequence; 0: none */
    uint64_t inference_count, execution_count;
    bt_duration_t success, fail, queue;
    bt_duration_t compute_input, compute_infer, compute_output;
    uint32_t n_responses;
    bt_duration_t responses[BT_STATISTICS_RESPONSES];
} bt_statistics_t;

void bt_router_metrics_statistics(const bt_model_metrics_t *mm,
                                  bt_statistics_t *statistics);

/* ---- events of the process ---- */

/** A request was turned away before it became a generation: for what it asks,
 *  or (429, 5xx: also a failed inference) because the server could not.
 *  @param mm  NULL: it named no model that is here */
void bt_router_metrics_refused(bt_router_metrics_t *m, bt_model_metrics_t *mm,
                               int http_status);
/** A request was turned away because n sequences of it would have been late:
 *  their first token, or else those behind it. */
void bt_router_metrics_late(bt_model_metrics_t *mm, bool first, uint32_t n);
/** An HTTP exchange was answered, or (499) its client left before.
 *  @param route   a literal out of a bounded set, with {model} where the path
 *                 has a name: "/v2/models/{model}/generate"
 *  @param method  a literal: "GET", "HEAD", "POST", "other"; "GRPC" of the
 *                 door for gRPC, whose codes are told as the nearest of HTTP */
void bt_router_metrics_http(bt_router_metrics_t *m, const char *route,
                            const char *method, int code);
/** The event loop's tick came so much later than asked: for that long requests
 *  and tokens waited too. */
void bt_router_metrics_tick(bt_router_metrics_t *m, uint64_t late_us);
/** A callback of the event loop is over: what it took of the CPU, and what
 *  finding it took since the one before. */
void bt_router_metrics_turn(bt_router_metrics_t *m);
/** Trace lines that could not be kept. */
/** What became of spans for a collector, since the start. */
void bt_router_metrics_otlp(bt_router_metrics_t *m,
                            const bt_otlp_counts_t *counts);
void bt_router_metrics_trace_lost(bt_router_metrics_t *m, uint64_t n_lines);
/** Lines of the access log that could not be kept. */
void bt_router_metrics_access_lost(bt_router_metrics_t *m, uint64_t n_lines);

/** A request came without a key that is one, where it needs one. */
void bt_router_metrics_unauthorized(bt_router_metrics_t *m);

/* ---- events of a tenant ---- */

/** Tenants that have series of their own, the first that are asked for; all
 *  later ones share those of "other", so the page has an end. */
#define BT_METRICS_MAX_TENANTS 64u

typedef struct bt_tenant_metrics bt_tenant_metrics_t;

/** Why a tenant's request was refused. */
typedef enum bt_tenant_refusal {
    BT_TENANT_REFUSED_TOKENS,   /**< more than its rate */
    BT_TENANT_REFUSED_REQUESTS, /**< more at once than it may */
    BT_TENANT_REFUSED_SERVER,   /**< the server had no room for anybody */
    BT_TENANT_N_REFUSALS,
} bt_tenant_refusal_t;

/** The series of the tenant of this name (shorter than 64 bytes); never NULL.
 *  They live as long as @a m. */
bt_tenant_metrics_t *bt_router_metrics_tenant(bt_router_metrics_t *m,
                                              const char *name);
/* NULL is allowed in all of these: nothing is counted. */
/** A generation was accepted. */
void bt_tenant_metrics_prompt(bt_tenant_metrics_t *tm, uint32_t n_tokens);
/** So many more tokens came. */
void bt_tenant_metrics_output(bt_tenant_metrics_t *tm, uint32_t n_tokens);
void bt_tenant_metrics_refused(bt_tenant_metrics_t *tm,
                               bt_tenant_refusal_t cause);
/** What was counted so far; of NULL nothing. */
typedef struct bt_tenant_totals {
    uint64_t prompt_tokens, output_tokens, refused;
} bt_tenant_totals_t;
bt_tenant_totals_t bt_tenant_metrics_totals(const bt_tenant_metrics_t *tm);
/** So many more, or fewer, are under way. */
void bt_tenant_metrics_running(bt_tenant_metrics_t *tm, int32_t change);

/* ---- what the launcher tells ---- */

/** So many workers of a role are meant to be here. */
typedef struct bt_metrics_expected {
    const char *model;
    uint32_t role; /**< bt_role_t */
    uint32_t n_workers;
} bt_metrics_expected_t;

/** So often a worker was started again. */
typedef struct bt_metrics_restarts {
    const char *worker; /**< its name */
    uint64_t n;
} bt_metrics_restarts_t;

typedef struct bt_metrics_fleet {
    const bt_metrics_expected_t *expected;
    uint32_t n_expected;
    const bt_metrics_restarts_t *restarts;
    uint32_t n_restarts;
} bt_metrics_fleet_t;

/** How the processes stand, in place of what was said before; copied. Without
 *  a launcher nobody calls it and the page says nothing of them.
 *  @retval BT_ERR_NO_MEMORY  What was said before stays. */
BT_MUST_CHECK bt_status_t bt_metrics_fleet(bt_router_metrics_t *m,
                                           const bt_metrics_fleet_t *told);

/* ---- the page ---- */

/** Of bt_metrics_worker_t.state: suspect, and it waits for a core. */
#define BT_METRICS_STARVED 3u

/** A worker as it is now. Everything is borrowed. */
typedef struct bt_metrics_worker {
    const bt_msg_hello_t *hello;
    const bt_msg_stats_t *stats; /**< the latest; NULL before the first */
    uint32_t state; /**< 0 up, 1 suspect, 2 draining, or BT_METRICS_STARVED */
} bt_metrics_worker_t;

/** A pair of workers between which KV cannot go. */
typedef struct bt_metrics_cut {
    char prefill[BT_WIRE_MAX_NAME], decode[BT_WIRE_MAX_NAME];
    char at[BT_WIRE_MAX_AT], why[BT_WIRE_MAX_WHY];
} bt_metrics_cut_t;

/** One model as it is now: what its gauges are made of. */
typedef struct bt_metrics_view {
    bt_model_metrics_t *model;
    bt_metrics_worker_t *workers; /**< of whoever fills the view */
    uint32_t n_workers;
    uint32_t n_in_flight, n_waiting, n_legs;
    bt_metrics_cut_t *cuts; /**< of whoever fills the view */
    uint32_t n_cuts;
    uint64_t n_links_proven, n_links_failed, n_links_unproven;
} bt_metrics_view_t;

/** The machine's processor time when it was read last, in ticks. */
typedef struct bt_metrics_cpu {
    uint64_t busy, all;
} bt_metrics_cpu_t;

#define BT_METRICS_MEMORY_CAUSES 4 /**< as bt_budget_refusal_t */

/** The router's process as it is now; NaN is left out. */
typedef struct bt_metrics_process {
    double n_connections;             /**< of clients */
    double work_bytes, writing_bytes; /**< of the pool's work, and answers */
    double n_memory_refused[BT_METRICS_MEMORY_CAUSES];
    double request_bytes, answer_bytes; /**< that clients' connections hold */
    double n_quiet_closed, n_turned_away, n_bodies_refused, n_readers_cut;
    double n_jobs, n_jobs_inside;                 /**< of the pool */
    double n_canceled_queued, n_canceled_running; /**< jobs of clients gone */
    double unix_s; /**< wall clock, for the timestamp gauge */
    double cpu_s, resident_bytes, virtual_bytes;
    double open_fds, max_fds;
    double n_log_dropped;
    bt_metrics_cpu_t *cpu; /**< of whoever reads, who keeps it; NULL: the next
                                three are not asked for */
    double cpu_use, cpu_total_bytes, cpu_used_bytes; /**< of the machine */
} bt_metrics_process_t;

/** Ask the system for all but what is known of connections, and cpu. Any
 *  thread may, one at a time; it takes long with many descriptors open. */
void bt_metrics_process_read(bt_metrics_process_t *process);

/** All that a page says, at one moment. */
typedef struct bt_metrics_snapshot bt_metrics_snapshot_t;

/** Copy it: some 4 KiB for each model and 400 bytes for each worker.
 *  @param views  one per model that is served now, each model once
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_metrics_snapshot_create(
    const bt_router_metrics_t *m, const bt_metrics_view_t *views,
    uint32_t n_views, bt_metrics_snapshot_t **snapshot_p);
/** On the thread that owns the metrics, and while they are there; NULL is
 *  allowed. */
void bt_metrics_snapshot_destroy(bt_metrics_snapshot_t *snapshot);
/** Append the whole page; once, since it sorts what it prints. On any thread,
 *  while the metrics are there. */
void bt_metrics_snapshot_render(bt_metrics_snapshot_t *snapshot,
                                const bt_metrics_process_t *process,
                                bt_strbuf_t *out);

/** Append the table as Markdown, for docs/METRICS.md. */
void bt_router_metrics_print_doc(bt_strbuf_t *out);

#endif
