/* SPDX-License-Identifier: Apache-2.0 */
/** @file metrics_table.h
 *
 * The table of all metric families and series, and the cells that hold their
 * values. A line of the table has a name, type, help, labels and the cell of
 * the value.
 *
 *     scope      "@" in the labels is        cell          series
 *     PROCESS    nothing                     process cell  one
 *     LOOP       nothing                     histogram     one
 *     BUILD      version, wire protocol      process cell  one
 *     MODEL      model="NAME"                model cell    one per model
 *     SEED       model="tensorrt_llm" (first) model cell   one per model
 *     WORKER     worker, role, model         worker cell   one per worker
 *     ROUTE      route, method, code         counts        one per combination
 *     EXPECTED   model, role                 launcher's    one per report
 *     RESTARTS   worker                      launcher's    one per report
 *     TENANT     tenant                      tenant cell   one per tenant
 *     ADAPTER    model, adapter              adapter cell  one per adapter
 *     CUT        prefill, decode, at, reason, model  1     one per failed pair
 */
#ifndef BT_ROUTER_OBSERVE_METRICS_TABLE_H
#define BT_ROUTER_OBSERVE_METRICS_TABLE_H

#include <stdint.h>

#include "common/metrics/metrics.h"
#include "common/wire/wire.h"

/** Model name on the documented page. */
#define BT_METRICS_SEED_MODEL "tensorrt_llm"

typedef enum bt_series_scope {
    BT_SCOPE_PROCESS,
    BT_SCOPE_LOOP,
    BT_SCOPE_BUILD,
    BT_SCOPE_MODEL,
    BT_SCOPE_SEED,
    BT_SCOPE_INFERENCE,
    BT_SCOPE_WORKER,
    BT_SCOPE_ROUTE,
    BT_SCOPE_EXPECTED,
    BT_SCOPE_RESTARTS,
    BT_SCOPE_TENANT,
    BT_SCOPE_ADAPTER,
    BT_SCOPE_CUT,
    BT_N_SCOPES,
} bt_series_scope_t;

#define BT_METRICS_GRAMMAR_KINDS 7u /**< values of bt_grammar_kind_t */

/** Cells of a model. The gauges come first: they are computed for each page. */
typedef enum bt_model_cell {
    BT_MC_REQ_CONTEXT,
    BT_MC_REQ_SCHEDULED,
    BT_MC_REQ_MAX,
    BT_MC_REQ_ACTIVE,
    BT_MC_REQ_WAITING,
    BT_MC_REQ_GENERATION,
    BT_MC_MEM_PINNED,
    BT_MC_MEM_GPU,
    BT_MC_MEM_CPU,
    BT_MC_KV_TOKENS_PER,
    BT_MC_KV_USED,
    BT_MC_KV_FREE,
    BT_MC_KV_MAX,
    BT_MC_KV_REUSED,
    BT_MC_KV_FRACTION,
    BT_MC_MICRO_BATCH,
    BT_MC_PAUSED,
    BT_MC_CONTEXT_TOKENS,
    BT_MC_EMPTY_SLOTS,
    BT_MC_ITERATION,
    BT_MC_TIMESTAMP,
    BT_MC_PENDING,
    BT_MC_IN_FLIGHT,
    BT_MC_WAITING,
    BT_MC_LEGS,
    BT_MC_PREFILL_UP,
    BT_MC_PREFILL_SUSPECT,
    BT_MC_PREFILL_DRAINING,
    BT_MC_PREFILL_STARVED,
    BT_MC_DECODE_UP,
    BT_MC_DECODE_SUSPECT,
    BT_MC_DECODE_DRAINING,
    BT_MC_DECODE_STARVED,
    BT_MC_BOTH_UP,
    BT_MC_BOTH_SUSPECT,
    BT_MC_BOTH_DRAINING,
    BT_MC_BOTH_STARVED,
    BT_MC_LINKS_PROVEN,
    BT_MC_LINKS_FAILED,
    BT_MC_LINKS_UNPROVEN,
    BT_MC_ADAPTERS,
    BT_MC_ADAPTER_TASKS,
    BT_MC_N_GAUGES,
    BT_MC_TRANSFER_MS = BT_MC_N_GAUGES,
    BT_MC_TRANSFER_REQUESTS,
    BT_MC_SUCCESS,
    BT_MC_FAILURE,
    BT_MC_COUNT,
    BT_MC_EXEC,
    BT_MC_REQUEST_US,
    BT_MC_QUEUE_US,
    BT_MC_INPUT_US,
    BT_MC_INFER_US,
    BT_MC_OUTPUT_US,
    BT_MC_FAIL_US, /**< only in statistics */
    BT_MC_PROMPT_TOKENS,
    BT_MC_CACHED_TOKENS,
    BT_MC_GENERATION_TOKENS,
    BT_MC_REFUSED,
    BT_MC_TTFT_MET,
    BT_MC_TTFT_MISSED,
    BT_MC_TTFT_REFUSED,
    BT_MC_ITL_MET,
    BT_MC_ITL_MISSED,
    BT_MC_ITL_REFUSED,
    BT_MC_SENT_PAIR,
    BT_MC_SENT_ONE_TOKEN,
    BT_MC_SENT_NO_PREFILL,
    BT_MC_SENT_RELIEF,
    BT_MC_SENT_BOTH_ROLES,
    BT_MC_SENT_WEIGHED,
    BT_MC_RERUNS,
    BT_MC_LEASES_EXPIRED,
    BT_MC_TRANSFERS_FAILED,
    BT_MC_ATTEMPTS_REFUSED,
    BT_MC_WORKERS_LOST,
    BT_MC_DEADLINES_PASSED,
    BT_MC_OTHER_LOSSES,
    BT_MC_KV_SENT,
    BT_MC_KV_RECEIVED,
    BT_MC_KV_STALE,
    BT_MC_KV_CHECKSUM,
    BT_MC_TRANSFERS,
    BT_MC_TRANSFER_BYTES,
    BT_MC_TRANSFER_PIECES,
    BT_MC_ADAPTERS_LOADED,
    BT_MC_ADAPTERS_FAILED,
    BT_MC_GRAMMAR_HITS,
    BT_MC_GRAMMAR_OK, /**< the first of BT_METRICS_GRAMMAR_KINDS */
    BT_MC_GRAMMAR_OK_LAST = BT_MC_GRAMMAR_OK + BT_METRICS_GRAMMAR_KINDS - 1,
    BT_MC_GRAMMAR_REFUSED, /**< … */
    BT_MC_GRAMMAR_REFUSED_LAST =
        BT_MC_GRAMMAR_REFUSED + BT_METRICS_GRAMMAR_KINDS - 1,
    BT_MC_N,
} bt_model_cell_t;

typedef enum bt_model_hist {
    BT_MH_INPUT_TOKENS,
    BT_MH_OUTPUT_TOKENS,
    BT_MH_N_COUNTED, /**< histograms before this one have their own bounds */
    BT_MH_FIRST_TOKEN = BT_MH_N_COUNTED,
    BT_MH_NEXT_TOKEN,
    BT_MH_QUEUE,
    BT_MH_REQUEST,
    BT_MH_GRANT_WAIT,
    BT_MH_TRANSFER,
    BT_MH_TAIL,
    BT_MH_HANDOVER,
    BT_MH_JOIN_WAIT,
    BT_MH_GRAMMAR,
    BT_MH_N,
} bt_model_hist_t;

typedef enum bt_worker_cell {
    BT_WC_UP,
    BT_WC_SEATS,
    BT_WC_ACTIVE,
    BT_WC_QUEUED,
    BT_WC_WAITING_FOR_KV,
    BT_WC_PAUSED,
    BT_WC_BATCH_CONTEXT,
    BT_WC_BATCH_GENERATION,
    BT_WC_BATCH_TOKENS,
    BT_WC_ITERATIONS,
    BT_WC_BLOCKS_USED,
    BT_WC_BLOCKS_QUARANTINED,
    BT_WC_BLOCKS_FREE,
    BT_WC_BLOCKS_CACHED,
    BT_WC_BLOCKS_REUSED,
    BT_WC_LEASES,
    BT_WC_MEMORY_CPU,
    BT_WC_MEMORY_GPU,
    BT_WC_MEMORY_PINNED,
    BT_WC_KV_STAGED,
    BT_WC_KV_SHARED,
    BT_WC_KV_STAGE_WAITS,
    BT_WC_KV_FOREIGN_PIECES,
    BT_WC_LOG_DROPPED,
    BT_WC_PAUSES,
    BT_WC_RESUMES,
    BT_WC_RECOMPUTED,
    BT_WC_PREFILL_STEP,
    BT_WC_PREFILL_TOKEN,
    BT_WC_PREFILL_KILOPAIR,
    BT_WC_PREFILL_KILOREAD,
    BT_WC_PREFILL_ERROR,
    BT_WC_DECODE_STEP,
    BT_WC_DECODE_SEQ,
    BT_WC_DECODE_KILOREAD,
    BT_WC_DECODE_ERROR,
    BT_WC_TRANSFER_START,
    BT_WC_TRANSFER_MIB,
    BT_WC_TRANSFER_ERROR,
    BT_WC_LENT_PIECES,
    BT_WC_LENT_S,
    BT_WC_LENT_AGAIN,
    BT_WC_YIELDED_S,
    BT_WC_OVERLAPPED,
    BT_WC_DRAFT_STEPS,
    BT_WC_DRAFTED_NGRAM, /* in the order of bt_draft_source_t */
    BT_WC_DRAFTED_PREDICTION,
    BT_WC_DRAFTED_CORPUS,
    BT_WC_DRAFTED_MODEL,
    BT_WC_DRAFTED_GRAMMAR,
    BT_WC_ACCEPTED_NGRAM,
    BT_WC_ACCEPTED_PREDICTION,
    BT_WC_ACCEPTED_CORPUS,
    BT_WC_ACCEPTED_MODEL,
    BT_WC_ACCEPTED_GRAMMAR,
    BT_WC_ACCEPTED_AT, /* the first of BT_WIRE_DRAFT_POSITIONS */
    BT_WC_ACCEPTED_AT_LAST = BT_WC_ACCEPTED_AT + BT_WIRE_DRAFT_POSITIONS - 1,
    BT_WC_GRAMMAR_MASKS,
    BT_WC_GRAMMAR_HITS,
    BT_WC_GRAMMAR_MASK_S,
    BT_WC_GRAMMARS_LOADED,
    BT_WC_BLOCKS_WINDOWED,
    BT_WC_BLOCKS_SLID,
    BT_WC_OPEN_FDS,
    BT_WC_PROMPT_TOKENS,
    BT_WC_REUSED_TOKENS,
    BT_WC_GENERATED_TOKENS,
    BT_WC_CPU_S,
    BT_WC_RESIDENT,
    BT_WC_START_S,
    BT_WC_N,
} bt_worker_cell_t;

typedef enum bt_tenant_cell {
    BT_TC_REQUESTS,
    BT_TC_PROMPT_TOKENS,
    BT_TC_GENERATION_TOKENS,
    BT_TC_RUNNING,
    BT_TC_GRAMMAR_SECONDS,
    BT_TC_REFUSED, /**< the next cells are its causes */
    BT_TC_REFUSED_TOKENS = BT_TC_REFUSED,
    BT_TC_REFUSED_REQUESTS,
    BT_TC_REFUSED_GRAMMARS,
    BT_TC_REFUSED_SERVER,
    BT_TC_N,
} bt_tenant_cell_t;

typedef enum bt_adapter_cell {
    BT_AC_REQUESTS,
    BT_AC_PROMPT_TOKENS,
    BT_AC_GENERATION_TOKENS,
    BT_AC_RUNNING,
    BT_AC_N,
} bt_adapter_cell_t;

typedef enum bt_process_cell {
    BT_PC_ONE, /**< always 1 */
    BT_PC_CONNECTIONS,
    BT_PC_REQUEST_BYTES,
    BT_PC_ANSWER_BYTES,
    BT_PC_QUIET_CLOSED,
    BT_PC_TURNED_AWAY,
    BT_PC_BODIES_REFUSED,
    BT_PC_READERS_CUT,
    BT_PC_WORK_BYTES,
    BT_PC_WRITING_BYTES,
    BT_PC_MEMORY_REFUSED, /**< the next cells are its causes */
    BT_PC_MEMORY_REQUEST = BT_PC_MEMORY_REFUSED,
    BT_PC_MEMORY_CLIENT,
    BT_PC_MEMORY_SERVER,
    BT_PC_MEMORY_PROCESS,
    BT_PC_JOBS,
    BT_PC_JOBS_INSIDE,
    BT_PC_CANCELED_QUEUED,
    BT_PC_CANCELED_RUNNING,
    BT_PC_CPU_S,
    BT_PC_START_S,
    BT_PC_RESIDENT,
    BT_PC_VIRTUAL,
    BT_PC_OPEN_FDS,
    BT_PC_MAX_FDS,
    BT_PC_TRACE_LOST,
    BT_PC_ACCESS_LOST,
    BT_PC_OTLP_SENT,
    BT_PC_OTLP_REJECTED,
    BT_PC_OTLP_DROPPED,
    BT_PC_OTLP_FAILED_TRIES,
    BT_PC_OTLP_QUEUED,
    BT_PC_LOG_DROPPED,
    BT_PC_UNAUTHORIZED,
    BT_PC_STORE_BYTES,
    BT_PC_STORE_LIMIT,
    BT_PC_STORE_FILES, /**< the first of the store's kinds */
    BT_PC_STORE_BATCHES,
    BT_PC_STORE_RESPONSES,
    BT_PC_STORE_KINDS_END,
    BT_PC_BATCHES = BT_PC_STORE_KINDS_END, /**< in the order of their states */
    BT_PC_BATCHES_VALIDATING = BT_PC_BATCHES,
    BT_PC_BATCHES_IN_PROGRESS,
    BT_PC_BATCHES_FINALIZING,
    BT_PC_BATCHES_CANCELLING,
    BT_PC_BATCHES_COMPLETED,
    BT_PC_BATCHES_EXPIRED,
    BT_PC_BATCHES_FAILED,
    BT_PC_BATCHES_CANCELLED,
    BT_PC_BATCHES_END,
    BT_PC_BATCH_LINES = BT_PC_BATCHES_END, /**< the next cells are results */
    BT_PC_BATCH_LINES_COMPLETED = BT_PC_BATCH_LINES,
    BT_PC_BATCH_LINES_FAILED,
    BT_PC_BATCH_LINES_EXPIRED,
    BT_PC_BATCH_LINES_RETRIED,
    BT_PC_BATCH_LINES_END,
    BT_PC_RESPONSE_STORE_BYTES = BT_PC_BATCH_LINES_END,
    BT_PC_RESPONSE_STORE_LIMIT,
    BT_PC_RESPONSE_STORE_EVICTED,
    BT_PC_CPU_USE,
    BT_PC_CPU_TOTAL_BYTES,
    BT_PC_CPU_USED_BYTES,
    BT_PC_N,
} bt_process_cell_t;

/** Histograms of BT_SCOPE_LOOP. */
typedef enum bt_loop_hist {
    BT_LH_DELAY,
    BT_LH_TURN,
    BT_LH_N,
} bt_loop_hist_t;

typedef struct bt_series_def {
    bt_series_scope_t scope;
    const char *labels; /**< "@" stands for the labels of the scope */
    uint32_t cell;      /**< for histograms: bt_model_hist_t */
} bt_series_def_t;

/** Condition for exporting a family. */
typedef enum bt_family_when {
    BT_FAMILY_ALWAYS,
    BT_FAMILY_INFLIGHT, /**< with in-flight batching */
    BT_FAMILY_V1,       /**< with --batching-strategy V1 */
} bt_family_when_t;

typedef struct bt_family_def {
    bt_metric_type_t type;
    const char *name;
    const char *help;
    const bt_series_def_t *series;
    uint32_t n_series;
    bt_family_when_t when;
} bt_family_def_t;

extern const bt_family_def_t bt_metrics_families[];
extern const uint32_t bt_metrics_n_families;

/** Sets the bounds of each histogram of a model. */
void bt_metrics_hist_init(bt_histogram_t hists[BT_MH_N]);
/** Sets the bounds of a histogram in seconds. */
void bt_metrics_hist_init_seconds(bt_histogram_t *hist);

#endif
