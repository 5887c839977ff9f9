/* SPDX-License-Identifier: Apache-2.0 */
#include "router/observe/router_metrics.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/metrics/metrics.h"

#define MODEL "model=\"tensorrt_llm\""
#define TAIL  MODEL ",version=\"1\""

/* All single series by number, so that creation is one table. A family is
 * created where its name is first met; its series follow each other. */
typedef enum series_id {
    REQ_CONTEXT,
    REQ_SCHEDULED,
    REQ_MAX,
    REQ_ACTIVE,
    REQ_WAITING,
    REQ_GENERATION,
    MEM_PINNED,
    MEM_GPU,
    MEM_CPU,
    KV_TOKENS_PER,
    KV_USED,
    KV_FREE,
    KV_MAX,
    KV_REUSED,
    KV_FRACTION,
    IFB_MICRO_BATCH,
    IFB_GENERATION,
    IFB_CONTEXT_TOKENS,
    IFB_PAUSED,
    V1_GENERATION_TOKENS,
    V1_EMPTY_SLOTS,
    V1_CONTEXT_TOKENS,
    GEN_ITERATION,
    GEN_TIMESTAMP,
    DIS_TRANSFER_MS,
    DIS_COUNT,
    INPUT_LEN,
    OUTPUT_LEN,
    INF_SUCCESS,
    INF_FAILURE,
    INF_COUNT,
    INF_EXEC,
    INF_REQUEST_US,
    INF_QUEUE_US,
    INF_INPUT_US,
    INF_INFER_US,
    INF_OUTPUT_US,
    INF_PENDING,
    WORKERS_PREFILL_UP,
    WORKERS_PREFILL_SUSPECT,
    WORKERS_PREFILL_DRAINING,
    WORKERS_DECODE_UP,
    WORKERS_DECODE_SUSPECT,
    WORKERS_DECODE_DRAINING,
    IN_FLIGHT,
    WAITING_FOR_WORKERS,
    LEGS,
    REFUSED,
    RERUNS,
    LEASES_PREFILL,
    LEASES_DECODE,
    QUARANTINED_PREFILL,
    QUARANTINED_DECODE,
    KV_BYTES_SENT,
    KV_BYTES_RECEIVED,
    KV_STALE,
    KV_CHECKSUM,
    KV_TRANSFER_MS,
    OPEN_FDS_ROUTER,
    OPEN_FDS_PREFILL,
    OPEN_FDS_DECODE,
    CONNECTIONS,
    TIME_FIRST_TOKEN,
    TIME_NEXT_TOKEN,
    TIME_QUEUE,
    TIME_REQUEST,
    TIME_GRANT_WAIT,
    TIME_TRANSFER,
    TIME_TAIL,
    TIME_HANDOVER,
    TIME_JOIN_WAIT,
    KV_TRANSFERS,
    KV_TRANSFER_BYTES,
    KV_PIECES,
    TRACE_LOST,
    N_SERIES,
} series_id_t;

struct bt_router_metrics {
    bt_metrics_t *registry;
    bt_metric_t *series[N_SERIES];
};

typedef struct series_def {
    bt_metric_type_t type;
    const char *family;
    const char *help;
    const char *labels;
} series_def_t;

#define COUNTER   BT_METRIC_COUNTER
#define GAUGE     BT_METRIC_GAUGE
#define HISTOGRAM BT_METRIC_HISTOGRAM

#define REQUEST(kind)                                                   \
    {                                                                   \
        GAUGE, "nv_trt_llm_request_metrics", "TRT LLM request metrics", \
            MODEL ",request_type=\"" kind "\",version=\"1\""            \
    }
#define MEMORY(kind)                                           \
    {                                                          \
        GAUGE, "nv_trt_llm_runtime_memory_metrics",            \
            "TRT LLM runtime memory metrics",                  \
            "memory_type=\"" kind "\"," MODEL ",version=\"1\"" \
    }
#define KV_BLOCK(kind)                                                 \
    {                                                                  \
        GAUGE, "nv_trt_llm_kv_cache_block_metrics",                    \
            "TRT LLM KV cache block metrics",                          \
            "kv_cache_block_type=\"" kind "\"," MODEL ",version=\"1\"" \
    }
#define INFLIGHT(kind)                                             \
    {                                                              \
        GAUGE, "nv_trt_llm_inflight_batcher_metrics",              \
            "TRT LLM inflight_batcher-specific metrics",           \
            "inflight_batcher_specific_metric=\"" kind "\"," MODEL \
            ",version=\"1\""                                       \
    }
#define V1(kind)                                                       \
    {                                                                  \
        GAUGE, "nv_trt_llm_v1_metrics", "TRT LLM v1-specific metrics", \
            MODEL ",v1_specific_metric=\"" kind "\",version=\"1\""     \
    }
#define GENERAL(kind)                                                   \
    {                                                                   \
        GAUGE, "nv_trt_llm_general_metrics", "General TRT LLM metrics", \
            "general_type=\"" kind "\"," MODEL ",version=\"1\""         \
    }
#define DISAGG(kind)                                                          \
    {                                                                         \
        COUNTER, "nv_trt_llm_disaggregated_serving_metrics",                  \
            "TRT LLM disaggregated serving metrics",                          \
            "disaggregated_serving_type=\"" kind "\"," MODEL ",version=\"1\"" \
    }
#define TIME(name, help)                              \
    {                                                 \
        HISTOGRAM, "baton_" name "_seconds", help, "" \
    }
#define WORKERS(role, state)                                     \
    {                                                            \
        GAUGE, "baton_workers", "Workers linked to this router", \
            "role=\"" role "\",state=\"" state "\""              \
    }

static const series_def_t defs[N_SERIES] = {
    [REQ_CONTEXT] = REQUEST("context"),
    [REQ_SCHEDULED] = REQUEST("scheduled"),
    [REQ_MAX] = REQUEST("max"),
    [REQ_ACTIVE] = REQUEST("active"),
    [REQ_WAITING] = REQUEST("waiting"),
    [REQ_GENERATION] = REQUEST("generation"),
    [MEM_PINNED] = MEMORY("pinned"),
    [MEM_GPU] = MEMORY("gpu"),
    [MEM_CPU] = MEMORY("cpu"),
    [KV_TOKENS_PER] = KV_BLOCK("tokens_per"),
    [KV_USED] = KV_BLOCK("used"),
    [KV_FREE] = KV_BLOCK("free"),
    [KV_MAX] = KV_BLOCK("max"),
    [KV_REUSED] = KV_BLOCK("reused"),
    [KV_FRACTION] = KV_BLOCK("fraction"),
    [IFB_MICRO_BATCH] = INFLIGHT("micro_batch_id"),
    [IFB_GENERATION] = INFLIGHT("generation_requests"),
    [IFB_CONTEXT_TOKENS] = INFLIGHT("total_context_tokens"),
    [IFB_PAUSED] = INFLIGHT("paused_requests"),
    [V1_GENERATION_TOKENS] = V1("total_generation_tokens"),
    [V1_EMPTY_SLOTS] = V1("empty_generation_slots"),
    [V1_CONTEXT_TOKENS] = V1("total_context_tokens"),
    [GEN_ITERATION] = GENERAL("iteration_counter"),
    [GEN_TIMESTAMP] = GENERAL("timestamp"),
    [DIS_TRANSFER_MS] = DISAGG("kv_cache_transfer_ms"),
    [DIS_COUNT] = DISAGG("request_count"),
    [INPUT_LEN] = {HISTOGRAM, "nv_llm_input_token_len",
                   "Number of input tokens per request",
                   MODEL ",response_metric_type=\"total_input_tokens\","
                         "version=\"1\""},
    [OUTPUT_LEN] = {HISTOGRAM, "nv_llm_output_token_len",
                    "Number of output tokens per request",
                    MODEL ",response_metric_type=\"total_output_tokens\","
                          "version=\"1\""},
    [INF_SUCCESS] = {COUNTER, "nv_inference_request_success",
                     "Number of successful inference requests, all batch sizes",
                     TAIL},
    [INF_FAILURE] = {COUNTER, "nv_inference_request_failure",
                     "Number of failed inference requests, all batch sizes",
                     TAIL},
    [INF_COUNT] = {COUNTER, "nv_inference_count",
                   "Number of inferences performed (does not include cached "
                   "requests)",
                   TAIL},
    [INF_EXEC] = {COUNTER, "nv_inference_exec_count",
                  "Number of model executions performed (does not include "
                  "cached requests)",
                  TAIL},
    [INF_REQUEST_US] = {COUNTER, "nv_inference_request_duration_us",
                        "Cumulative inference request duration in microseconds "
                        "(includes cached requests)",
                        TAIL},
    [INF_QUEUE_US] = {COUNTER, "nv_inference_queue_duration_us",
                      "Cumulative inference queuing duration in microseconds "
                      "(includes cached requests)",
                      TAIL},
    [INF_INPUT_US] = {COUNTER, "nv_inference_compute_input_duration_us",
                      "Cumulative compute input duration in microseconds (does "
                      "not include cached requests)",
                      TAIL},
    [INF_INFER_US] = {COUNTER, "nv_inference_compute_infer_duration_us",
                      "Cumulative compute inference duration in microseconds "
                      "(does not include cached requests)",
                      TAIL},
    [INF_OUTPUT_US] = {COUNTER, "nv_inference_compute_output_duration_us",
                       "Cumulative inference compute output duration in "
                       "microseconds (does not include cached requests)",
                       TAIL},
    [INF_PENDING] = {GAUGE, "nv_inference_pending_request_count",
                     "Instantaneous number of pending requests awaiting "
                     "execution per-model.",
                     TAIL},
    [WORKERS_PREFILL_UP] = WORKERS("prefill", "up"),
    [WORKERS_PREFILL_SUSPECT] = WORKERS("prefill", "suspect"),
    [WORKERS_PREFILL_DRAINING] = WORKERS("prefill", "draining"),
    [WORKERS_DECODE_UP] = WORKERS("decode", "up"),
    [WORKERS_DECODE_SUSPECT] = WORKERS("decode", "suspect"),
    [WORKERS_DECODE_DRAINING] = WORKERS("decode", "draining"),
    [IN_FLIGHT] = {GAUGE, "baton_requests_in_flight",
                   "Sequences whose clients wait", ""},
    [WAITING_FOR_WORKERS] = {GAUGE, "baton_requests_waiting",
                             "Sequences that wait in the router for workers",
                             ""},
    [LEGS] = {GAUGE, "baton_worker_requests",
              "Requests at workers, sent by this router and not ended", ""},
    [REFUSED] = {COUNTER, "baton_requests_refused",
                 "Requests turned away before they were started", ""},
    [RERUNS] = {COUNTER, "baton_reruns",
                "Times a sequence was run again after a worker failed", ""},
    [LEASES_PREFILL] = {GAUGE, "baton_leases",
                        "Open leases (decode) and transfers (prefill)",
                        "role=\"prefill\""},
    [LEASES_DECODE] = {GAUGE, "baton_leases",
                       "Open leases (decode) and transfers (prefill)",
                       "role=\"decode\""},
    [QUARANTINED_PREFILL] = {GAUGE, "baton_quarantined_blocks",
                             "KV blocks that wait until nobody can write them",
                             "role=\"prefill\""},
    [QUARANTINED_DECODE] = {GAUGE, "baton_quarantined_blocks",
                            "KV blocks that wait until nobody can write them",
                            "role=\"decode\""},
    [KV_BYTES_SENT] = {COUNTER, "baton_kv_bytes",
                       "Bytes of KV that workers moved", "direction=\"sent\""},
    [KV_BYTES_RECEIVED] = {COUNTER, "baton_kv_bytes",
                           "Bytes of KV that workers moved",
                           "direction=\"received\""},
    [KV_STALE] = {COUNTER, "baton_kv_stale_discarded",
                  "Stale or foreign KV writes refused", ""},
    [KV_CHECKSUM] = {COUNTER, "baton_kv_checksum_failures",
                     "KV extents whose checksum did not match", ""},
    [KV_TRANSFER_MS] = {HISTOGRAM, "baton_kv_transfer_ms",
                        "Time of one KV transfer in milliseconds", ""},
    [OPEN_FDS_ROUTER] = {GAUGE, "baton_open_fds", "Open file descriptors",
                         "role=\"router\""},
    [OPEN_FDS_PREFILL] = {GAUGE, "baton_open_fds", "Open file descriptors",
                          "role=\"prefill\""},
    [OPEN_FDS_DECODE] = {GAUGE, "baton_open_fds", "Open file descriptors",
                         "role=\"decode\""},
    [CONNECTIONS] = {GAUGE, "baton_http_connections",
                     "Open HTTP connections of clients", ""},
    [TIME_FIRST_TOKEN] =
        TIME("time_to_first_token", "From a request's arrival to its token #1"),
    [TIME_NEXT_TOKEN] = TIME("inter_token_latency",
                             "Between two tokens of a sequence, as the router "
                             "gets them"),
    [TIME_QUEUE] = TIME("queue", "In the router and at the prefill worker, to "
                                 "the first chunk of the context phase"),
    [TIME_REQUEST] =
        TIME("request_duration", "Whole time of sequences that ended well"),
    [TIME_GRANT_WAIT] =
        TIME("kv_grant_wait", "Finished KV waited for the decode worker's "
                              "grant"),
    [TIME_TRANSFER] =
        TIME("kv_transfer_data", "KV under way, and its check on arrival"),
    [TIME_TAIL] = TIME("kv_transfer_tail",
                       "From finished KV with its grant to the word that all "
                       "has arrived"),
    [TIME_HANDOVER] =
        TIME("kv_handover", "From the last KV byte's arrival until the "
                            "sequence may join the batch"),
    [TIME_JOIN_WAIT] =
        TIME("kv_join_wait", "From there to the start of the next iteration"),
    [KV_TRANSFERS] = {COUNTER, "baton_kv_transfers_total",
                      "KV transfers that decode workers proved complete", ""},
    [KV_TRANSFER_BYTES] = {COUNTER, "baton_kv_transfer_bytes_total",
                           "Bytes of those transfers", ""},
    [KV_PIECES] = {COUNTER, "baton_kv_transfer_descriptors_total",
                   "Descriptors (pieces) of those transfers", ""},
    [TRACE_LOST] = {COUNTER, "baton_trace_lines_lost_total",
                    "Lines that the trace file did not take", ""},
};

static bt_status_t add_all(bt_router_metrics_t *m)
{
    static const double token_bounds[] = {10, 50, 100, 500, 1000};
    /* From a message on one host to a long wait in the queue. */
    static const double second_bounds[] = {
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
        0.1,    0.25,    0.5,    1,     2.5,    5,     10,   30,    60};
    static const double ms_bounds[] = {0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000};
    bt_metric_family_t *family = NULL;
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (i < N_SERIES) && (status == BT_OK); i++) {
        const series_def_t *def = &defs[i];
        const double *bounds = token_bounds;
        size_t n_bounds = BT_ARRAY_LEN(token_bounds);

        if (i == KV_TRANSFER_MS) {
            bounds = ms_bounds;
            n_bounds = BT_ARRAY_LEN(ms_bounds);
        } else if (i >= TIME_FIRST_TOKEN) {
            bounds = second_bounds;
            n_bounds = BT_ARRAY_LEN(second_bounds);
        }

        if ((i == 0) || (strcmp(def->family, defs[i - 1].family) != 0)) {
            status = bt_metrics_family(
                m->registry, def->type, def->family, def->help,
                (def->type == HISTOGRAM) ? bounds : NULL,
                (def->type == HISTOGRAM) ? (uint32_t)n_bounds : 0, &family);
        }
        if (status == BT_OK) {
            status = bt_metrics_series(family, def->labels, &m->series[i]);
        }
    }
    return status;
}

bt_status_t bt_router_metrics_create(bt_router_metrics_t **m_p)
{
    bt_router_metrics_t *m = bt_calloc(1, sizeof(*m));
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (m == NULL) {
        goto err;
    }
    status = bt_metrics_create(&m->registry);
    if (status != BT_OK) {
        goto err_m;
    }
    status = add_all(m);
    if (status != BT_OK) {
        goto err_registry;
    }
    *m_p = m;
    return BT_OK;

err_registry:
    bt_metrics_destroy(m->registry);
err_m:
    bt_free(m);
err:
    return status;
}

void bt_router_metrics_destroy(bt_router_metrics_t *m)
{
    if (m == NULL) {
        return;
    }
    bt_metrics_destroy(m->registry);
    bt_free(m);
}

/* ---- events ---- */

static void add(bt_router_metrics_t *m, series_id_t id, double value)
{
    bt_metric_add(m->series[id], value);
}

void bt_router_metrics_end(bt_router_metrics_t *m, bool ok, uint32_t n_prompt,
                           uint32_t n_output)
{
    add(m, ok ? INF_SUCCESS : INF_FAILURE, 1);
    if (!ok) {
        return;
    }
    add(m, INF_COUNT, 1);
    bt_metric_observe(m->series[INPUT_LEN], n_prompt);
    bt_metric_observe(m->series[OUTPUT_LEN], n_output);
}

void bt_router_metrics_output(bt_router_metrics_t *m, uint64_t us)
{
    add(m, INF_OUTPUT_US, (double)us);
}

void bt_router_metrics_ledger(bt_router_metrics_t *m, const bt_ledger_t *ledger)
{
    const uint64_t input = ledger->parse_us + ledger->tokenize_us;
    const uint64_t queue = ledger->wait_us + ledger->prefill_queue_us;

    if (ledger->n_attempts > 1) {
        add(m, RERUNS, ledger->n_attempts - 1);
    }
    if (!ledger->ok) {
        return;
    }
    add(m, INF_REQUEST_US, (double)ledger->total_us);
    add(m, INF_INPUT_US, (double)input);
    add(m, INF_QUEUE_US, (double)queue);
    add(m, INF_INFER_US, (double)(ledger->total_us - input - queue));
}

static void observe_us(bt_router_metrics_t *m, series_id_t id, uint64_t us)
{
    bt_metric_observe(m->series[id], (double)us / 1e6);
}

void bt_router_metrics_transfer(bt_router_metrics_t *m,
                                const bt_msg_joined_t *joined, bool first)
{
    const double ms = (double)joined->transfer_us / 1000.0;

    add(m, DIS_TRANSFER_MS, ms);
    bt_metric_observe(m->series[KV_TRANSFER_MS], ms);
    observe_us(m, TIME_TRANSFER, joined->transfer_us);
    observe_us(m, TIME_GRANT_WAIT, joined->grant_wait_us);
    observe_us(m, TIME_HANDOVER, joined->handover_us);
    add(m, KV_TRANSFERS, 1);
    add(m, KV_TRANSFER_BYTES, (double)joined->transfer_bytes);
    add(m, KV_PIECES, joined->n_descriptors);
    if (first) {
        add(m, DIS_COUNT, 1);
    }
}

void bt_router_metrics_time(bt_router_metrics_t *m, bt_gen_time_kind_t which,
                            uint64_t us)
{
    static const series_id_t ids[BT_N_TIMES] = {
        [BT_TIME_FIRST_TOKEN] = TIME_FIRST_TOKEN,
        [BT_TIME_NEXT_TOKEN] = TIME_NEXT_TOKEN,
        [BT_TIME_QUEUE] = TIME_QUEUE,
        [BT_TIME_JOIN_WAIT] = TIME_JOIN_WAIT,
        [BT_TIME_TAIL] = TIME_TAIL,
        [BT_TIME_REQUEST] = TIME_REQUEST,
    };

    observe_us(m, ids[which], us);
}

void bt_router_metrics_trace_lost(bt_router_metrics_t *m, uint64_t n_lines)
{
    add(m, TRACE_LOST, (double)n_lines);
}

void bt_router_metrics_refused(bt_router_metrics_t *m, int http_status)
{
    add(m, REFUSED, 1);
    if ((http_status == 429) || (http_status >= 500)) {
        add(m, INF_FAILURE, 1);
    }
}

static void add_growth(bt_router_metrics_t *m, series_id_t id, uint64_t before,
                       uint64_t now)
{
    if (now > before) {
        add(m, id, (double)(now - before));
    }
}

void bt_router_metrics_stats(bt_router_metrics_t *m,
                             const bt_msg_stats_t *before,
                             const bt_msg_stats_t *now)
{
    add_growth(m, INF_EXEC, before->iteration_counter, now->iteration_counter);
    add_growth(m, KV_BYTES_SENT, before->kv_bytes_sent, now->kv_bytes_sent);
    add_growth(m, KV_BYTES_RECEIVED, before->kv_bytes_received,
               now->kv_bytes_received);
    add_growth(m, KV_STALE, before->kv_stale_discarded,
               now->kv_stale_discarded);
    add_growth(m, KV_CHECKSUM, before->kv_checksum_failures,
               now->kv_checksum_failures);
}

/* ---- the text ---- */

static void sum_requests(double *v, const bt_metrics_worker_t *worker)
{
    const bt_msg_stats_t *s = worker->stats;

    v[REQ_CONTEXT] += s->context_requests;
    v[REQ_SCHEDULED] += s->scheduled_requests;
    v[REQ_WAITING] += s->waiting_requests;
    v[REQ_GENERATION] += s->generation_requests;
    if (worker->hello->role == BT_ROLE_DECODE) {
        v[REQ_MAX] += s->max_requests;
        v[REQ_ACTIVE] += s->active_requests;
        v[V1_EMPTY_SLOTS] += (s->max_requests > s->active_requests)
                                 ? s->max_requests - s->active_requests
                                 : 0;
    }
    /* Each generating request makes one token in an iteration. */
    v[V1_GENERATION_TOKENS] += s->generation_requests;
    v[V1_CONTEXT_TOKENS] += s->total_context_tokens;
    v[IFB_GENERATION] += s->generation_requests;
    v[IFB_CONTEXT_TOKENS] += s->total_context_tokens;
    v[IFB_PAUSED] += s->paused_requests;
    if (s->micro_batch_id > v[IFB_MICRO_BATCH]) {
        v[IFB_MICRO_BATCH] = s->micro_batch_id;
    }
    v[GEN_ITERATION] += (double)s->iteration_counter;
}

/* Requests that nobody has begun: those of the router's queue and those that
 * wait where the context phase runs. (A decode worker's wait for their KV while
 * it is computed elsewhere.) */
static double pending(const bt_metrics_view_t *view)
{
    double waiting[2] = {0, 0};
    unsigned n_prefill = 0;

    for (uint32_t i = 0; i < view->n_workers; i++) {
        const bt_metrics_worker_t *worker = &view->workers[i];
        const bool decodes = worker->hello->role == BT_ROLE_DECODE;

        waiting[decodes ? 1 : 0] += worker->stats->waiting_requests;
        n_prefill += decodes ? 0 : 1;
    }
    return view->n_waiting + waiting[(n_prefill == 0) ? 1 : 0];
}

static void sum_memory(double *v, const bt_metrics_worker_t *worker)
{
    const bt_msg_stats_t *s = worker->stats;
    const bool decodes = worker->hello->role == BT_ROLE_DECODE;

    v[MEM_PINNED] += (double)s->memory_pinned_bytes;
    v[MEM_GPU] += (double)s->memory_gpu_bytes;
    v[MEM_CPU] += (double)s->memory_cpu_bytes;
    v[KV_TOKENS_PER] = worker->hello->tokens_per_block; /* the same for all */
    v[KV_USED] += s->blocks_used;
    v[KV_FREE] += s->blocks_free;
    v[KV_MAX] += s->blocks_max;
    v[KV_REUSED] += s->blocks_reused;
    v[decodes ? LEASES_DECODE : LEASES_PREFILL] += s->leases;
    v[decodes ? QUARANTINED_DECODE : QUARANTINED_PREFILL] +=
        s->quarantined_blocks;
    v[decodes ? OPEN_FDS_DECODE : OPEN_FDS_PREFILL] += s->open_fds;
    v[(decodes ? WORKERS_DECODE_UP : WORKERS_PREFILL_UP) +
      (int)worker->state] += 1;
}

void bt_router_metrics_render(bt_router_metrics_t *m,
                              const bt_metrics_view_t *view, bt_strbuf_t *out)
{
    double v[N_SERIES] = {0};

    for (uint32_t i = 0; i < view->n_workers; i++) {
        sum_requests(v, &view->workers[i]);
        sum_memory(v, &view->workers[i]);
    }
    v[KV_FRACTION] = (v[KV_MAX] > 0) ? v[KV_USED] / v[KV_MAX] : 0;
    v[GEN_TIMESTAMP] = (double)view->unix_s;
    v[INF_PENDING] = pending(view);
    v[IN_FLIGHT] = view->n_in_flight;
    v[WAITING_FOR_WORKERS] = view->n_waiting;
    v[LEGS] = view->n_legs;
    v[OPEN_FDS_ROUTER] = view->n_open_fds;
    v[CONNECTIONS] = view->n_connections;
    for (uint32_t i = 0; i < N_SERIES; i++) {
        if (defs[i].type == GAUGE) {
            bt_metric_set(m->series[i], v[i]);
        }
    }
    bt_metrics_render(m->registry, out);
}
