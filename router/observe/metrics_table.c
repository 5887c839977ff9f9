/* SPDX-License-Identifier: Apache-2.0 */
#include "router/observe/metrics_table.h"

#include "common/base/status.h"

#define SERIES(...)                                              \
    .series = (const bt_series_def_t[]){__VA_ARGS__},            \
    .n_series = sizeof((const bt_series_def_t[]){__VA_ARGS__}) / \
                sizeof(bt_series_def_t)
#define COUNTER   .type = BT_METRIC_COUNTER
#define GAUGE     .type = BT_METRIC_GAUGE
#define HISTOGRAM .type = BT_METRIC_HISTOGRAM

/* clang-format off */
#define CELL(scope, labels, cell) {BT_SCOPE_##scope, labels, cell}
/* clang-format on */
#define PROCESS(cell)            CELL(PROCESS, "", BT_PC_##cell)
#define PROCESS_BY(labels, cell) CELL(PROCESS, labels, BT_PC_##cell)
#define MODEL(cell)              CELL(MODEL, "@", BT_MC_##cell)
#define MODEL_BY(labels, cell)   CELL(MODEL, "@," labels, BT_MC_##cell)
#define WORKER(cell)             CELL(WORKER, "@", BT_WC_##cell)
#define WORKER_BY(labels, cell)  CELL(WORKER, "@," labels, BT_WC_##cell)
#define ACCEPTED_AT(name, i)     WORKER_BY("position=\"" name "\"", ACCEPTED_AT + i)
#define GRAMMAR(kind, result, cell, i) \
    MODEL_BY("kind=\"" kind "\",result=\"" result "\"", GRAMMAR_##cell + i)
/* In the order of bt_grammar_kind_t. */
#define GRAMMARS(result, cell)                                                 \
    GRAMMAR("json_object", result, cell, 0),                                   \
        GRAMMAR("json_schema", result, cell, 1),                               \
        GRAMMAR("regex", result, cell, 2), GRAMMAR("choice", result, cell, 3), \
        GRAMMAR("ebnf", result, cell, 4), GRAMMAR("lark", result, cell, 5),    \
        GRAMMAR("structural_tag", result, cell, 6)
#define TENANT(cell)            CELL(TENANT, "@", BT_TC_##cell)
#define TENANT_BY(labels, cell) CELL(TENANT, "@," labels, BT_TC_##cell)
#define ADAPTER(cell)           CELL(ADAPTER, "@", BT_AC_##cell)
#define OTHER(scope)            CELL(scope, "@", 0)

/* As in the TensorRT-LLM backend's documentation, in this label order. */
#define VERSION                 ",version=\"1\""
#define INFERENCE(cell)         CELL(INFERENCE, "@" VERSION, BT_MC_##cell)
#define SEED_AFTER(kind, cell)  CELL(SEED, "@," kind VERSION, BT_MC_##cell)
#define SEED_BEFORE(kind, cell) CELL(SEED, kind ",@" VERSION, BT_MC_##cell)
#define REQUEST(kind, cell)     SEED_AFTER("request_type=\"" kind "\"", cell)
#define MEMORY(kind, cell)      SEED_BEFORE("memory_type=\"" kind "\"", cell)
#define KV_BLOCK(kind, cell) \
    SEED_BEFORE("kv_cache_block_type=\"" kind "\"", cell)
#define INFLIGHT(kind, cell) \
    SEED_BEFORE("inflight_batcher_specific_metric=\"" kind "\"", cell)
#define V1(kind, cell)      SEED_AFTER("v1_specific_metric=\"" kind "\"", cell)
#define GENERAL(kind, cell) SEED_BEFORE("general_type=\"" kind "\"", cell)
#define DISAGG(kind, cell) \
    SEED_BEFORE("disaggregated_serving_type=\"" kind "\"", cell)
#define LENGTH(kind, hist) \
    CELL(SEED, "@,response_metric_type=\"" kind "\"" VERSION, BT_MH_##hist)
#define STATE(role, state, cell) \
    MODEL_BY("role=\"" role "\",state=\"" state "\"", cell)
#define TIME(hist) SERIES(CELL(MODEL, "@", BT_MH_##hist))

/* clang-format off */
const bt_family_def_t bt_metrics_families[] = {
    /* ---- families of TensorRT-LLM's backend ---- */
    {GAUGE, "nv_trt_llm_request_metrics", "TRT LLM request metrics",
     SERIES(REQUEST("context", REQ_CONTEXT),
            REQUEST("scheduled", REQ_SCHEDULED),
            REQUEST("max", REQ_MAX),
            REQUEST("active", REQ_ACTIVE),
            REQUEST("waiting", REQ_WAITING))},
    {GAUGE, "nv_trt_llm_runtime_memory_metrics",
     "TRT LLM runtime memory metrics",
     SERIES(MEMORY("pinned", MEM_PINNED),
            MEMORY("gpu", MEM_GPU),
            MEMORY("cpu", MEM_CPU))},
    {GAUGE, "nv_trt_llm_kv_cache_block_metrics",
     "TRT LLM KV cache block metrics",
     SERIES(KV_BLOCK("tokens_per", KV_TOKENS_PER),
            KV_BLOCK("used", KV_USED),
            KV_BLOCK("free", KV_FREE),
            KV_BLOCK("max", KV_MAX),
            KV_BLOCK("reused", KV_REUSED),
            KV_BLOCK("fraction", KV_FRACTION))},
    {GAUGE, "nv_trt_llm_inflight_batcher_metrics",
     "TRT LLM inflight_batcher-specific metrics",
     .when = BT_FAMILY_INFLIGHT,
     SERIES(INFLIGHT("micro_batch_id", MICRO_BATCH),
            INFLIGHT("generation_requests", REQ_GENERATION),
            INFLIGHT("total_context_tokens", CONTEXT_TOKENS),
            INFLIGHT("paused_requests", PAUSED))},
    {GAUGE, "nv_trt_llm_v1_metrics", "TRT LLM v1-specific metrics",
     .when = BT_FAMILY_V1,
     /* Each generating request gets one token per iteration. */
     SERIES(V1("total_generation_tokens", REQ_GENERATION),
            V1("empty_generation_slots", EMPTY_SLOTS),
            V1("total_context_tokens", CONTEXT_TOKENS))},
    {GAUGE, "nv_trt_llm_general_metrics", "General TRT LLM metrics",
     SERIES(GENERAL("iteration_counter", ITERATION),
            GENERAL("timestamp",
     TIMESTAMP))},
    {COUNTER, "nv_trt_llm_disaggregated_serving_metrics",
     "TRT LLM disaggregated serving metrics",
     SERIES(DISAGG("kv_cache_transfer_ms", TRANSFER_MS),
            DISAGG("request_count", TRANSFER_REQUESTS))},
    {HISTOGRAM, "nv_llm_input_token_len",
     "Number of input tokens per request",
     SERIES(LENGTH("total_input_tokens", INPUT_TOKENS))},
    {HISTOGRAM, "nv_llm_output_token_len",
     "Number of output tokens per request",
     SERIES(LENGTH("total_output_tokens", OUTPUT_TOKENS))},
    {COUNTER, "nv_inference_request_success",
     "Number of successful inference requests, all batch sizes",
     SERIES(INFERENCE(SUCCESS))},
    {COUNTER, "nv_inference_request_failure",
     "Number of failed inference requests, all batch sizes",
     SERIES(INFERENCE(FAILURE))},
    {COUNTER, "nv_inference_count",
     "Number of inferences performed (does not include cached requests)",
     SERIES(INFERENCE(COUNT))},
    {COUNTER, "nv_inference_exec_count",
     "Number of model executions performed (does not include cached requests)",
     SERIES(INFERENCE(EXEC))},
    {COUNTER, "nv_inference_request_duration_us",
     "Cumulative inference request duration in microseconds (includes cached "
     "requests)",
     SERIES(INFERENCE(REQUEST_US))},
    {COUNTER, "nv_inference_queue_duration_us",
     "Cumulative inference queuing duration in microseconds (includes cached "
     "requests)",
     SERIES(INFERENCE(QUEUE_US))},
    {COUNTER, "nv_inference_compute_input_duration_us",
     "Cumulative compute input duration in microseconds (does not include "
     "cached requests)",
     SERIES(INFERENCE(INPUT_US))},
    {COUNTER, "nv_inference_compute_infer_duration_us",
     "Cumulative compute inference duration in microseconds (does not include "
     "cached requests)",
     SERIES(INFERENCE(INFER_US))},
    {COUNTER, "nv_inference_compute_output_duration_us",
     "Cumulative inference compute output duration in microseconds (does not "
     "include cached requests)",
     SERIES(INFERENCE(OUTPUT_US))},
    {GAUGE, "nv_inference_pending_request_count",
     "Instantaneous number of pending requests awaiting execution per-model.",
     SERIES(INFERENCE(PENDING))},
    {GAUGE, "nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]",
     SERIES(PROCESS(CPU_USE))},
    {GAUGE, "nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes",
     SERIES(PROCESS(CPU_TOTAL_BYTES))},
    {GAUGE, "nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes",
     SERIES(PROCESS(CPU_USED_BYTES))},

    /* ---- requests ---- */
    {COUNTER, "baton_http_requests_total",
     "Answered HTTP and gRPC requests; code 499: the client left before the "
     "answer",
     SERIES(OTHER(ROUTE))},
    {GAUGE, "baton_http_connections",
     "Open client connections",
     SERIES(PROCESS(CONNECTIONS))},
    {GAUGE, "baton_http_memory_bytes",
     "Memory of client requests: while they are read (requests), while they "
     "are processed (processing), while answers are written (writing), and "
     "for answers that clients have not read (unread)",
     SERIES(PROCESS_BY("kind=\"requests\"", REQUEST_BYTES),
            PROCESS_BY("kind=\"processing\"", WORK_BYTES),
            PROCESS_BY("kind=\"writing\"", WRITING_BYTES),
            PROCESS_BY("kind=\"unread\"", ANSWER_BYTES))},
    {COUNTER, "baton_http_limited_total",
     "Clients that met a limit of the server: idle connections closed for new "
     "ones (idle_closed), connections refused with 503 or 429 (connections), "
     "bodies refused with 503 (bodies), slow readers disconnected "
     "(slow_reader)",
     SERIES(PROCESS_BY("reason=\"idle_closed\"", QUIET_CLOSED),
            PROCESS_BY("reason=\"connections\"", TURNED_AWAY),
            PROCESS_BY("reason=\"bodies\"", BODIES_REFUSED),
            PROCESS_BY("reason=\"slow_reader\"", READERS_CUT))},
    {COUNTER, "baton_memory_refused_total",
     "Requests refused during processing for the memory that they would take: "
     "request: itself (413); client: all of its client (429); server: all "
     "clients (503); process: the router process (503)",
     SERIES(PROCESS_BY("reason=\"request\"", MEMORY_REQUEST),
            PROCESS_BY("reason=\"client\"", MEMORY_CLIENT),
            PROCESS_BY("reason=\"server\"", MEMORY_SERVER),
            PROCESS_BY("reason=\"process\"", MEMORY_PROCESS))},
    {GAUGE, "baton_pool_jobs",
     "Jobs of the thread pool of the router that wait or run: decompression, "
     "parsing, tokenization, writing of long answers",
     SERIES(PROCESS(JOBS))},
    {COUNTER, "baton_pool_jobs_nested_total",
     "Short jobs that ran on a thread whose longer job of the same class "
     "paused for them",
     SERIES(PROCESS(JOBS_INSIDE))},
    {COUNTER, "baton_pool_jobs_canceled_total",
     "Jobs canceled because the client had left, before they ran (queued) or "
     "while they ran (running)",
     SERIES(PROCESS_BY("state=\"queued\"", CANCELED_QUEUED),
            PROCESS_BY("state=\"running\"", CANCELED_RUNNING))},
    {GAUGE, "baton_requests_in_flight",
     "Sequences in progress",
     SERIES(MODEL(IN_FLIGHT))},
    {GAUGE, "baton_requests_waiting",
     "Sequences in the queue of the router",
     SERIES(MODEL(WAITING))},
    {COUNTER, "baton_requests_refused_total",
     "Requests refused before they started; without the label model: the "
     "model is unknown",
     SERIES(MODEL(REFUSED))},
    {COUNTER, "baton_slo_sequences_total",
     "Sequences with a latency target (SLO): time to first token (ttft), mean "
     "inter-token latency (itl). refused: refused because the target would "
     "have been missed. Canceled sequences are not counted",
     SERIES(MODEL_BY("target=\"ttft\",result=\"met\"", TTFT_MET),
            MODEL_BY("target=\"ttft\",result=\"missed\"", TTFT_MISSED),
            MODEL_BY("target=\"ttft\",result=\"refused\"", TTFT_REFUSED),
            MODEL_BY("target=\"itl\",result=\"met\"", ITL_MET),
            MODEL_BY("target=\"itl\",result=\"missed\"", ITL_MISSED),
            MODEL_BY("target=\"itl\",result=\"refused\"", ITL_REFUSED))},
    {COUNTER, "baton_attempts_total",
     "Attempts by path and reason. disaggregated: a prefill and a decode "
     "worker. prefill_only: a request for one token. aggregated: one worker "
     "for both phases, because no prefill worker was available "
     "(no_prefill_worker), prompts queued up (queue), the worker has both "
     "roles (both_roles) or it cost less (cost)",
     SERIES(MODEL_BY("path=\"disaggregated\",reason=\"default\"", SENT_PAIR),
            MODEL_BY("path=\"prefill_only\",reason=\"one_token\"", SENT_ONE_TOKEN),
            MODEL_BY("path=\"aggregated\",reason=\"no_prefill_worker\"", SENT_NO_PREFILL),
            MODEL_BY("path=\"aggregated\",reason=\"queue\"", SENT_RELIEF),
            MODEL_BY("path=\"aggregated\",reason=\"both_roles\"", SENT_BOTH_ROLES),
            MODEL_BY("path=\"aggregated\",reason=\"cost\"", SENT_WEIGHED))},
    {COUNTER, "baton_retries_total",
     "Retries of sequences after a worker failed",
     SERIES(MODEL(RERUNS))},
    {COUNTER, "baton_attempt_failures_total",
     "Failed attempts, retried or not. lease_expired: the lease ended before "
     "the KV arrived. transfer: the KV could not be sent or verified. "
     "refused: a worker refused the request. worker_lost: its control link "
     "ended. deadline: the deadline passed and no lease waited for KV. other: "
     "a device, memory",
     SERIES(MODEL_BY("reason=\"lease_expired\"", LEASES_EXPIRED),
            MODEL_BY("reason=\"transfer\"", TRANSFERS_FAILED),
            MODEL_BY("reason=\"refused\"", ATTEMPTS_REFUSED),
            MODEL_BY("reason=\"worker_lost\"", WORKERS_LOST),
            MODEL_BY("reason=\"deadline\"", DEADLINES_PASSED),
            MODEL_BY("reason=\"other\"", OTHER_LOSSES))},
    {COUNTER, "baton_prompt_tokens_total",
     "Prompt tokens of accepted requests",
     SERIES(MODEL(PROMPT_TOKENS))},
    {COUNTER, "baton_prompt_tokens_cached_total",
     "Prompt tokens that a prefill worker found in its prefix cache",
     SERIES(MODEL(CACHED_TOKENS))},
    {COUNTER, "baton_generation_tokens_total",
     "Generated tokens; counted as each one arrives",
     SERIES(MODEL(GENERATION_TOKENS))},

    /* ---- times ---- */
    {HISTOGRAM, "baton_time_to_first_token_seconds",
     "Time from the arrival of a request to its first token",
     TIME(FIRST_TOKEN)},
    {HISTOGRAM, "baton_inter_token_latency_seconds",
     "Time between two tokens of a sequence, as the router receives them",
     TIME(NEXT_TOKEN)},
    {HISTOGRAM, "baton_queue_seconds",
     "Time in the queues of the router and of the prefill worker, up to the "
     "first chunk",
     TIME(QUEUE)},
    {HISTOGRAM, "baton_request_duration_seconds",
     "Total time of successful sequences",
     TIME(REQUEST)},
    {HISTOGRAM, "baton_grammar_compile_seconds",
     "Structured output: CPU time to compile a grammar",
     TIME(GRAMMAR)},
    {HISTOGRAM, "baton_kv_grant_wait_seconds",
     "Time that finished KV waited for the grant of the decode worker",
     TIME(GRANT_WAIT)},
    {HISTOGRAM, "baton_kv_transfer_seconds",
     "Time of a KV transfer, with its verification",
     TIME(TRANSFER)},
    {HISTOGRAM, "baton_kv_transfer_tail_seconds",
     "Part of a KV transfer that did not overlap the prefill: from finished "
     "and granted KV until all of it has arrived",
     TIME(TAIL)},
    {HISTOGRAM, "baton_kv_verify_seconds",
     "Time from the arrival of the last KV byte until the sequence may join "
     "the batch",
     TIME(HANDOVER)},
    {HISTOGRAM, "baton_kv_join_wait_seconds",
     "Time from then to the start of the next iteration",
     TIME(JOIN_WAIT)},

    /* ---- structured output ---- */
    {COUNTER, "baton_grammar_compilations_total",
     "Structured output: compilations of grammars, by what describes them",
     SERIES(GRAMMARS("ok", OK),
            GRAMMARS("refused", REFUSED))},
    {COUNTER, "baton_grammar_cache_hits_total",
     "Structured output: requests whose grammar had been compiled before",
     SERIES(MODEL(GRAMMAR_HITS))},

    /* ---- transfers of KV ---- */
    {COUNTER, "baton_kv_transfers_total",
     "KV transfers that decode workers verified as complete",
     SERIES(MODEL(TRANSFERS))},
    {COUNTER, "baton_kv_transfer_bytes_total",
     "Bytes of verified KV transfers",
     SERIES(MODEL(TRANSFER_BYTES))},
    {COUNTER, "baton_kv_transfer_descriptors_total",
     "Descriptors (pieces) of verified KV transfers",
     SERIES(MODEL(TRANSFER_PIECES))},
    {COUNTER, "baton_kv_bytes_total",
     "KV bytes sent and received by workers",
     SERIES(MODEL_BY("direction=\"sent\"", KV_SENT),
            MODEL_BY("direction=\"received\"", KV_RECEIVED))},
    {COUNTER, "baton_kv_stale_discarded_total",
     "Stale or unauthenticated KV writes that were discarded",
     SERIES(MODEL(KV_STALE))},
    {COUNTER, "baton_kv_checksum_failures_total",
     "KV extents with a wrong checksum",
     SERIES(MODEL(KV_CHECKSUM))},

    /* ---- tenants ---- */
    {COUNTER, "baton_tenant_requests_total",
     "Sequences started for a tenant; the first 64 tenants have series, the "
     "rest are tenant=\"other\"",
     SERIES(TENANT(REQUESTS))},
    {COUNTER, "baton_tenant_prompt_tokens_total",
     "Prompt tokens of a tenant, cached ones included",
     SERIES(TENANT(PROMPT_TOKENS))},
    {COUNTER, "baton_tenant_generation_tokens_total",
     "Tokens generated for a tenant",
     SERIES(TENANT(GENERATION_TOKENS))},
    {GAUGE, "baton_tenant_requests_in_flight",
     "Sequences of a tenant in progress, waiting ones included",
     SERIES(TENANT(RUNNING))},
    {COUNTER, "baton_tenant_grammar_seconds_total",
     "Structured output: CPU time to compile a tenant's grammars, also of "
     "compilations that failed or were canceled",
     SERIES(TENANT(GRAMMAR_SECONDS))},
    {COUNTER, "baton_tenant_refused_total",
     "Requests of a tenant refused with 429 or 503: over its token rate "
     "(tokens), over its concurrency (requests), over its time to compile "
     "grammars (grammars), or the server was full (server)",
     SERIES(TENANT_BY("reason=\"tokens\"", REFUSED_TOKENS),
            TENANT_BY("reason=\"requests\"", REFUSED_REQUESTS),
            TENANT_BY("reason=\"grammars\"", REFUSED_GRAMMARS),
            TENANT_BY("reason=\"server\"", REFUSED_SERVER))},
    {COUNTER, "baton_requests_unauthorized_total",
     "Requests without a valid API key",
     SERIES(PROCESS(UNAUTHORIZED))},

    /* ---- LoRA adapters ---- */
    {COUNTER, "baton_adapter_requests_total",
     "Sequences started with a LoRA adapter, which the model's families count "
     "too; the first 64 adapters of a model have series, the rest are "
     "adapter=\"other\"",
     SERIES(ADAPTER(REQUESTS))},
    {COUNTER, "baton_adapter_prompt_tokens_total",
     "Prompt tokens of a LoRA adapter, cached ones included",
     SERIES(ADAPTER(PROMPT_TOKENS))},
    {COUNTER, "baton_adapter_generation_tokens_total",
     "Tokens generated with a LoRA adapter",
     SERIES(ADAPTER(GENERATION_TOKENS))},
    {GAUGE, "baton_adapter_requests_in_flight",
     "Sequences with a LoRA adapter in progress, waiting ones included",
     SERIES(ADAPTER(RUNNING))},
    {GAUGE, "baton_adapters",
     "LoRA adapters that are served: by their names (name), and those that "
     "clients sent or --lora-prefetch-dir has (lora_task_id)",
     SERIES(MODEL_BY("by=\"name\"", ADAPTERS),
            MODEL_BY("by=\"lora_task_id\"", ADAPTER_TASKS))},
    {COUNTER, "baton_adapter_loads_total",
     "LoRA adapters that were loaded while the model was served, or could not "
     "be (failed)",
     SERIES(MODEL_BY("result=\"ok\"", ADAPTERS_LOADED),
            MODEL_BY("result=\"failed\"", ADAPTERS_FAILED))},

    /* ---- workers ---- */
    {GAUGE, "baton_workers",
     "Workers linked to this router",
     SERIES(STATE("prefill", "up", PREFILL_UP),
            STATE("prefill", "suspect", PREFILL_SUSPECT),
            STATE("prefill", "draining", PREFILL_DRAINING),
            STATE("prefill", "starved", PREFILL_STARVED),
            STATE("decode", "up", DECODE_UP),
            STATE("decode", "suspect", DECODE_SUSPECT),
            STATE("decode", "draining", DECODE_DRAINING),
            STATE("decode", "starved", DECODE_STARVED),
            STATE("both", "up", BOTH_UP),
            STATE("both", "suspect", BOTH_SUSPECT),
            STATE("both", "draining", BOTH_DRAINING),
            STATE("both", "starved", BOTH_STARVED))},
    {GAUGE, "baton_kv_links",
     "KV links from prefill to decode workers: proven ones are used, failed "
     "ones are tried again, unproven ones are not known yet",
     SERIES(MODEL_BY("state=\"proven\"", LINKS_PROVEN),
            MODEL_BY("state=\"failed\"", LINKS_FAILED),
            MODEL_BY("state=\"unproven\"", LINKS_UNPROVEN))},
    {GAUGE, "baton_kv_link_failed",
     "1: no KV can be sent from this prefill worker to this decode worker; "
     "at: where it was tried; reason: the error. At most 64 pairs of a model",
     SERIES(OTHER(CUT))},
    {GAUGE, "baton_expected_workers",
     "Workers that the launcher is to run",
     SERIES(OTHER(EXPECTED))},
    {COUNTER, "baton_worker_restarts_total",
     "Restarts of a worker by the launcher",
     SERIES(OTHER(RESTARTS))},
    {GAUGE, "baton_worker_requests",
     "Requests of this router at workers",
     SERIES(MODEL(LEGS))},
    {GAUGE, "baton_worker_up",
     "1: the worker takes requests; 0: it is silent, starved or drains",
     SERIES(WORKER(UP))},
    {GAUGE, "baton_worker_seats",
     "Maximum number of requests that a worker runs (--max-batch-size)",
     SERIES(WORKER(SEATS))},
    {GAUGE, "baton_worker_active_requests",
     "Requests that a worker accepted and has not finished, from all routers",
     SERIES(WORKER(ACTIVE))},
    {GAUGE, "baton_worker_queued_requests",
     "Active requests that wait: at a prefill worker for their prefill, at a "
     "decode worker for a seat or blocks",
     SERIES(WORKER(QUEUED))},
    {GAUGE, "baton_worker_waiting_for_kv_requests",
     "Active requests of a decode worker that have a seat and blocks and wait "
     "for their KV",
     SERIES(WORKER(WAITING_FOR_KV))},
    {GAUGE, "baton_worker_paused_requests",
     "Active requests that are paused for lack of blocks, in prefill or in "
     "decode (--scheduler-policy)",
     SERIES(WORKER(PAUSED))},
    {COUNTER, "baton_worker_preemptions_total",
     "Preemptions: a sequence gave its blocks to others (--scheduler-policy "
     "max_utilization)",
     SERIES(WORKER(PAUSES))},
    {COUNTER, "baton_worker_preemption_resumes_total",
     "Preempted sequences that continued",
     SERIES(WORKER(RESUMES))},
    {COUNTER, "baton_worker_recomputed_tokens_total",
     "Tokens recomputed after preemptions, without those found in the prefix "
     "cache",
     SERIES(WORKER(RECOMPUTED))},
    {GAUGE, "baton_worker_batch_requests",
     "Sequences in the last iteration of a worker",
     SERIES(WORKER_BY("phase=\"prefill\"", BATCH_CONTEXT),
            WORKER_BY("phase=\"decode\"", BATCH_GENERATION))},
    {GAUGE, "baton_worker_batch_prefill_tokens",
     "Prompt tokens in the last iteration of a worker",
     SERIES(WORKER(BATCH_TOKENS))},
    {COUNTER, "baton_worker_iterations_total",
     "Iterations since the start of a worker",
     SERIES(WORKER(ITERATIONS))},
    {GAUGE, "baton_kv_blocks",
     "KV blocks of a worker: used, free, free with a reusable prefix "
     "(cached), or quarantined until no late write can reach them",
     SERIES(WORKER_BY("state=\"used\"", BLOCKS_USED),
            WORKER_BY("state=\"free\"", BLOCKS_FREE),
            WORKER_BY("state=\"cached\"", BLOCKS_CACHED),
            WORKER_BY("state=\"quarantined\"", BLOCKS_QUARANTINED))},
    {COUNTER, "baton_kv_blocks_reused_total",
     "KV blocks found in the prefix cache of a worker",
     SERIES(WORKER(BLOCKS_REUSED))},
    {GAUGE, "baton_kv_window_blocks",
     "Used KV blocks of layers with a sliding attention window",
     SERIES(WORKER(BLOCKS_WINDOWED))},
    {COUNTER, "baton_kv_blocks_window_evicted_total",
     "KV blocks evicted because they left the attention window",
     SERIES(WORKER(BLOCKS_SLID))},
    {GAUGE, "baton_kv_leases",
     "Open leases (decode) and transfers (prefill) of a worker",
     SERIES(WORKER(LEASES))},
    {GAUGE, "baton_worker_memory_bytes",
     "Memory of a worker for weights, KV and scratch; gpu includes what "
     "libraries keep; cpu excludes pinned memory",
     SERIES(WORKER_BY("memory=\"cpu\"", MEMORY_CPU),
            WORKER_BY("memory=\"gpu\"", MEMORY_GPU),
            WORKER_BY("memory=\"pinned\"", MEMORY_PINNED))},
    {COUNTER, "baton_worker_kv_staged_bytes_total",
     "KV bytes copied between device and host memory of a worker, both "
     "directions",
     SERIES(WORKER(KV_STAGED))},
    {COUNTER, "baton_worker_kv_device_bytes_total",
     "KV bytes that the device of a worker wrote directly to that of another "
     "on one host",
     SERIES(WORKER(KV_SHARED))},
    {COUNTER, "baton_worker_kv_stage_waits_total",
     "Times that staged KV waited for a slot of host memory",
     SERIES(WORKER(KV_STAGE_WAITS))},
    {COUNTER, "baton_kv_unauthenticated_messages_total",
     "Unauthenticated traffic at the KV port of a worker, discarded: pieces "
     "without the secret of their receive region, messages without proof, "
     "connections that proved nothing",
     SERIES(WORKER(KV_FOREIGN_PIECES))},
    {COUNTER, "baton_worker_log_lines_dropped_total",
     "Log lines of a worker dropped because standard error was not read",
     SERIES(WORKER(LOG_DROPPED))},
    {COUNTER, "baton_worker_borrowed_core_tasks_total",
     "Tasks that a worker computed on idle cores of other workers",
     SERIES(WORKER(LENT_PIECES))},
    {COUNTER, "baton_worker_borrowed_core_cpu_seconds_total",
     "CPU time of a worker on idle cores of other workers",
     SERIES(WORKER(LENT_S))},
    {COUNTER, "baton_worker_borrowed_core_task_retries_total",
     "Tasks on borrowed cores that were repeated because the core was taken "
     "back",
     SERIES(WORKER(LENT_AGAIN))},
    {COUNTER, "baton_worker_donated_seconds_total",
     "Time that a generating worker slept between iterations to leave its "
     "cores to prompts that had waited too long",
     SERIES(WORKER(YIELDED_S))},
    {COUNTER, "baton_worker_overlapped_iterations_total",
     "Iterations that began while the device computed the one before",
     SERIES(WORKER(OVERLAPPED))},
    {COUNTER, "baton_spec_decode_drafts_total",
     "Speculative decoding: times that draft tokens of a sequence were verified",
     SERIES(WORKER(DRAFT_STEPS))},
    {COUNTER, "baton_spec_decode_draft_tokens_total",
     "Speculative decoding: draft tokens that were verified",
     SERIES(WORKER_BY("source=\"ngram\"", DRAFTED_NGRAM),
            WORKER_BY("source=\"prediction\"", DRAFTED_PREDICTION),
            WORKER_BY("source=\"corpus\"", DRAFTED_CORPUS),
            WORKER_BY("source=\"model\"", DRAFTED_MODEL),
            WORKER_BY("source=\"grammar\"", DRAFTED_GRAMMAR))},
    {COUNTER, "baton_spec_decode_accepted_tokens_total",
     "Speculative decoding: draft tokens that were accepted",
     SERIES(WORKER_BY("source=\"ngram\"", ACCEPTED_NGRAM),
            WORKER_BY("source=\"prediction\"", ACCEPTED_PREDICTION),
            WORKER_BY("source=\"corpus\"", ACCEPTED_CORPUS),
            WORKER_BY("source=\"model\"", ACCEPTED_MODEL),
            WORKER_BY("source=\"grammar\"", ACCEPTED_GRAMMAR))},
    {COUNTER, "baton_spec_decode_accepted_tokens_per_pos_total",
     "Speculative decoding: draft tokens that were accepted, by position in the "
     "draft",
     SERIES(ACCEPTED_AT("0", 0),
            ACCEPTED_AT("1", 1),
            ACCEPTED_AT("2", 2),
            ACCEPTED_AT("3", 3),
            ACCEPTED_AT("4", 4),
            ACCEPTED_AT("5", 5),
            ACCEPTED_AT("6", 6),
            ACCEPTED_AT("7", 7),
            ACCEPTED_AT("8", 8),
            ACCEPTED_AT("9", 9),
            ACCEPTED_AT("10", 10),
            ACCEPTED_AT("11", 11),
            ACCEPTED_AT("12", 12),
            ACCEPTED_AT("13", 13),
            ACCEPTED_AT("14", 14),
            ACCEPTED_AT("15", 15))},
    {COUNTER, "baton_grammar_masks_total",
     "Structured output: masks of tokens that draws of a worker asked for, of "
     "sequences that have ended",
     SERIES(WORKER(GRAMMAR_MASKS))},
    {COUNTER, "baton_grammar_mask_hits_total",
     "Structured output: masks that had been made before",
     SERIES(WORKER(GRAMMAR_HITS))},
    {COUNTER, "baton_grammar_mask_seconds_total",
     "Structured output: time for all masks",
     SERIES(WORKER(GRAMMAR_MASK_S))},
    {COUNTER, "baton_grammar_programs_total",
     "Structured output: grammars that a worker loaded",
     SERIES(WORKER(GRAMMARS_LOADED))},
    {GAUGE, "baton_worker_open_fds",
     "Open file descriptors of a worker",
     SERIES(WORKER(OPEN_FDS))},
    {COUNTER, "baton_worker_prompt_tokens_total",
     "Prompt tokens that a worker computed",
     SERIES(WORKER(PROMPT_TOKENS))},
    {COUNTER, "baton_worker_prompt_tokens_reused_total",
     "Prompt tokens that a worker found in its prefix cache",
     SERIES(WORKER(REUSED_TOKENS))},
    {COUNTER, "baton_worker_generation_tokens_total",
     "Tokens that a worker sampled; a prefill worker samples the first of "
     "each sequence",
     SERIES(WORKER(GENERATED_TOKENS))},
    {COUNTER, "baton_worker_cpu_seconds_total",
     "User and system CPU time of a worker",
     SERIES(WORKER(CPU_S))},
    {GAUGE, "baton_worker_resident_memory_bytes",
     "Resident memory of a worker, shared pages included",
     SERIES(WORKER(RESIDENT))},
    {GAUGE, "baton_cost_model_step_seconds",
     "Cost model: fixed time of an iteration (prefill, decode) or of a KV "
     "transfer, learned from measurements",
     SERIES(WORKER_BY("work=\"prefill\"", PREFILL_STEP),
            WORKER_BY("work=\"decode\"", DECODE_STEP),
            WORKER_BY("work=\"transfer\"", TRANSFER_START))},
    {GAUGE, "baton_cost_model_item_seconds",
     "Cost model: time for each prompt token (prefill), generating sequence "
     "(decode) or MiB (transfer)",
     SERIES(WORKER_BY("work=\"prefill\"", PREFILL_TOKEN),
            WORKER_BY("work=\"decode\"", DECODE_SEQ),
            WORKER_BY("work=\"transfer\"", TRANSFER_MIB))},
    {GAUGE, "baton_cost_model_attention_per_1k_pairs_seconds",
     "Cost model: attention time of a chunk for 1,024 pairs of a token and a "
     "position",
     SERIES(WORKER_BY("work=\"prefill\"", PREFILL_KILOPAIR))},
    {GAUGE, "baton_cost_model_kv_read_per_1k_positions_seconds",
     "Cost model: time to read K and V of 1,024 positions, for each chunk and "
     "each sequence of an iteration",
     SERIES(WORKER_BY("work=\"prefill\"", PREFILL_KILOREAD),
            WORKER_BY("work=\"decode\"", DECODE_KILOREAD))},
    {GAUGE, "baton_cost_model_error_ratio",
     "Cost model: recent prediction error, as a part of the measured time",
     SERIES(WORKER_BY("work=\"prefill\"", PREFILL_ERROR),
            WORKER_BY("work=\"decode\"", DECODE_ERROR),
            WORKER_BY("work=\"transfer\"", TRANSFER_ERROR))},
    {GAUGE, "baton_worker_start_time_seconds",
     "Start time of a worker since the Unix epoch",
     SERIES(WORKER(START_S))},

    /* ---- the router's process ---- */
    {GAUGE, "baton_build_info",
     "1; the labels name the running version",
     SERIES({BT_SCOPE_BUILD, "@", BT_PC_ONE})},
    {HISTOGRAM, "baton_event_loop_delay_seconds",
     "Delay of the tick of the event loop of the router, every 50 ms",
     SERIES({BT_SCOPE_LOOP, "", BT_LH_DELAY})},
    {HISTOGRAM, "baton_event_loop_turn_seconds",
     "CPU time of one turn of the event loop of the router: one callback and "
     "its dispatch",
     SERIES({BT_SCOPE_LOOP, "", BT_LH_TURN})},
    {COUNTER, "baton_trace_lines_dropped_total",
     "Trace lines that could not be written",
     SERIES(PROCESS(TRACE_LOST))},
    {COUNTER, "baton_otlp_spans_total",
     "Spans for the collector: exported (sent), refused by it (rejected), or "
     "lost because the queue was full, the collector was away for too long, "
     "or the router stopped (dropped)",
     SERIES({BT_SCOPE_PROCESS, "result=\"sent\"", BT_PC_OTLP_SENT},
            {BT_SCOPE_PROCESS, "result=\"rejected\"", BT_PC_OTLP_REJECTED},
            {BT_SCOPE_PROCESS, "result=\"dropped\"", BT_PC_OTLP_DROPPED})},
    {COUNTER, "baton_otlp_export_failures_total",
     "Failed export requests to the collector that are retried",
     SERIES(PROCESS(OTLP_FAILED_TRIES))},
    {GAUGE, "baton_otlp_queue_bytes",
     "Spans that wait for export",
     SERIES(PROCESS(OTLP_QUEUED))},
    {GAUGE, "baton_store_bytes",
     "Bytes that count for --store-limit, with what is reserved for files that "
     "are being written",
     SERIES(PROCESS(STORE_BYTES))},
    {GAUGE, "baton_store_limit_bytes", "Value of --store-limit",
     SERIES(PROCESS(STORE_LIMIT))},
    {GAUGE, "baton_store_objects",
     "Objects of clients: files and batches in the folder of --store, responses "
     "there or in memory",
     SERIES(PROCESS_BY("kind=\"file\"", STORE_FILES),
            PROCESS_BY("kind=\"batch\"", STORE_BATCHES),
            PROCESS_BY("kind=\"response\"", STORE_RESPONSES))},
    {GAUGE, "baton_response_store_bytes",
     "Bytes that count for --response-store-limit, with what is reserved for "
     "responses that are being stored",
     SERIES(PROCESS(RESPONSE_STORE_BYTES))},
    {GAUGE, "baton_response_store_limit_bytes",
     "Value of --response-store-limit",
     SERIES(PROCESS(RESPONSE_STORE_LIMIT))},
    {COUNTER, "baton_response_store_evictions_total",
     "Stored responses that were removed before their time to make room for "
     "newer ones",
     SERIES(PROCESS(RESPONSE_STORE_EVICTED))},
    {GAUGE, "baton_batches",
     "Batches in the folder of --store; those that have ended are there until "
     "they expire",
     SERIES(PROCESS_BY("status=\"validating\"", BATCHES_VALIDATING),
            PROCESS_BY("status=\"in_progress\"", BATCHES_IN_PROGRESS),
            PROCESS_BY("status=\"finalizing\"", BATCHES_FINALIZING),
            PROCESS_BY("status=\"cancelling\"", BATCHES_CANCELLING),
            PROCESS_BY("status=\"completed\"", BATCHES_COMPLETED),
            PROCESS_BY("status=\"expired\"", BATCHES_EXPIRED),
            PROCESS_BY("status=\"failed\"", BATCHES_FAILED),
            PROCESS_BY("status=\"cancelled\"", BATCHES_CANCELLED))},
    {COUNTER, "baton_batch_lines_total",
     "Lines of batches: with an answer or an error that is on the disk "
     "(completed, failed), without a turn before their batch expired "
     "(expired); and tries that were refused and are made again (retried)",
     SERIES(PROCESS_BY("result=\"completed\"", BATCH_LINES_COMPLETED),
            PROCESS_BY("result=\"failed\"", BATCH_LINES_FAILED),
            PROCESS_BY("result=\"expired\"", BATCH_LINES_EXPIRED),
            PROCESS_BY("result=\"retried\"", BATCH_LINES_RETRIED))},
    {COUNTER, "baton_access_log_lines_dropped_total",
     "Access log lines that could not be written",
     SERIES(PROCESS(ACCESS_LOST))},
    {COUNTER, "baton_log_lines_dropped_total",
     "Log lines of this router dropped because standard error was not read",
     SERIES(PROCESS(LOG_DROPPED))},
    {COUNTER, "process_cpu_seconds_total",
     "Total user and system CPU time spent in seconds.",
     SERIES(PROCESS(CPU_S))},
    {GAUGE, "process_start_time_seconds",
     "Start time of the process since unix epoch in seconds.",
     SERIES(PROCESS(START_S))},
    {GAUGE, "process_resident_memory_bytes", "Resident memory size in bytes.",
     SERIES(PROCESS(RESIDENT))},
    {GAUGE, "process_virtual_memory_bytes", "Virtual memory size in bytes.",
     SERIES(PROCESS(VIRTUAL))},
    {GAUGE, "process_open_fds", "Number of open file descriptors.",
     SERIES(PROCESS(OPEN_FDS))},
    {GAUGE, "process_max_fds", "Maximum number of open file descriptors.",
     SERIES(PROCESS(MAX_FDS))},
};
/* clang-format on */

const uint32_t bt_metrics_n_families = BT_ARRAY_LEN(bt_metrics_families);

void bt_metrics_hist_init_seconds(bt_histogram_t *hist)
{
    /* From a message on one host to a long wait in a queue. */
    static const double bounds[] = {
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
        0.1,    0.25,    0.5,    1,     2.5,    5,     10,   30,    60};

    bt_histogram_init(hist, bounds, BT_ARRAY_LEN(bounds));
}

void bt_metrics_hist_init(bt_histogram_t hists[BT_MH_N])
{
    static const double token_bounds[] = {10, 50, 100, 500, 1000};

    bt_histogram_init(&hists[BT_MH_INPUT_TOKENS], token_bounds,
                      BT_ARRAY_LEN(token_bounds));
    bt_histogram_init(&hists[BT_MH_OUTPUT_TOKENS], token_bounds,
                      BT_ARRAY_LEN(token_bounds));
    for (uint32_t i = BT_MH_N_COUNTED; i < BT_MH_N; i++) {
        bt_metrics_hist_init_seconds(&hists[i]);
    }
}
