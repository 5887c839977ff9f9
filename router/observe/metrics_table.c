/* SPDX-License-Identifier: Apache-2.0 */
#include "router/observe/metrics_table.h"

#include <stdio.h>

#include "common/base/assert.h"

/* The version in which aliases are no longer printed. */
#define ALIASES_END "0.3"

#define SERIES(...)                                              \
    .series = (const bt_series_def_t[]){__VA_ARGS__},            \
    .n_series = sizeof((const bt_series_def_t[]){__VA_ARGS__}) / \
                sizeof(bt_series_def_t)
#define COUNTER   .type = BT_METRIC_COUNTER
#define GAUGE     .type = BT_METRIC_GAUGE
#define HISTOGRAM .type = BT_METRIC_HISTOGRAM

#define PROCESS(cell)                      \
    {                                      \
        BT_SCOPE_PROCESS, "", BT_PC_##cell \
    }
#define PROCESS_BY(labels, cell)               \
    {                                          \
        BT_SCOPE_PROCESS, labels, BT_PC_##cell \
    }
#define MODEL(cell)                       \
    {                                     \
        BT_SCOPE_MODEL, "@", BT_MC_##cell \
    }
#define MODEL_BY(labels, cell)                    \
    {                                             \
        BT_SCOPE_MODEL, "@," labels, BT_MC_##cell \
    }
#define WORKER(cell)                       \
    {                                      \
        BT_SCOPE_WORKER, "@", BT_WC_##cell \
    }
#define WORKER_BY(labels, cell)                    \
    {                                              \
        BT_SCOPE_WORKER, "@," labels, BT_WC_##cell \
    }
#define SUM(labels, cell)                  \
    {                                      \
        BT_SCOPE_SUM, labels, BT_MC_##cell \
    }
#define ROLE(cell)                       \
    {                                    \
        BT_SCOPE_ROLE, "@", BT_WC_##cell \
    }
#define TENANT(cell)                       \
    {                                      \
        BT_SCOPE_TENANT, "@", BT_TC_##cell \
    }
#define TENANT_BY(labels, cell)                    \
    {                                              \
        BT_SCOPE_TENANT, "@," labels, BT_TC_##cell \
    }
#define OTHER(scope)             \
    {                            \
        BT_SCOPE_##scope, "@", 0 \
    }

/* As in the TensorRT-LLM backend's documentation, in this label order. */
#define SEED(cell)                                     \
    {                                                  \
        BT_SCOPE_SEED, "@,version=\"1\"", BT_MC_##cell \
    }
#define SEED_AFTER(kind, cell)                                  \
    {                                                           \
        BT_SCOPE_SEED, "@," kind ",version=\"1\"", BT_MC_##cell \
    }
#define SEED_BEFORE(kind, cell)                              \
    {                                                        \
        BT_SCOPE_SEED, kind ",@,version=\"1\"", BT_MC_##cell \
    }
#define INFERENCE(cell)                                     \
    {                                                       \
        BT_SCOPE_INFERENCE, "@,version=\"1\"", BT_MC_##cell \
    }
#define REQUEST(kind, cell) SEED_AFTER("request_type=\"" kind "\"", cell)
#define MEMORY(kind, cell)  SEED_BEFORE("memory_type=\"" kind "\"", cell)
#define KV_BLOCK(kind, cell) \
    SEED_BEFORE("kv_cache_block_type=\"" kind "\"", cell)
#define INFLIGHT(kind, cell) \
    SEED_BEFORE("inflight_batcher_specific_metric=\"" kind "\"", cell)
#define V1(kind, cell)      SEED_AFTER("v1_specific_metric=\"" kind "\"", cell)
#define GENERAL(kind, cell) SEED_BEFORE("general_type=\"" kind "\"", cell)
#define DISAGG(kind, cell) \
    SEED_BEFORE("disaggregated_serving_type=\"" kind "\"", cell)
#define LENGTH(kind, hist)                                                  \
    {                                                                       \
        BT_SCOPE_SEED, "@,response_metric_type=\"" kind "\",version=\"1\"", \
            BT_MH_##hist                                                    \
    }
#define STATE(role, state, cell) \
    MODEL_BY("role=\"" role "\",state=\"" state "\"", cell)
#define TIME(hist) SERIES({BT_SCOPE_MODEL, "@", BT_MH_##hist})

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
     "TRT LLM inflight_batcher-specific metrics", .when = BT_FAMILY_INFLIGHT,
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
            GENERAL("timestamp", TIMESTAMP))},
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
     "HTTP exchanges that were answered, or whose clients left before (499)",
     SERIES(OTHER(ROUTE))},
    {GAUGE, "baton_http_connections", "Open HTTP connections of clients",
     SERIES(PROCESS(CONNECTIONS))},
    {GAUGE, "baton_http_memory_bytes",
     "Memory that clients' requests take: while they are read (requests), and "
     "while they are worked on and generated (work); and answers, while they "
     "are written (writing), and until clients have read them (answers)",
     SERIES(PROCESS_BY("what=\"requests\"", REQUEST_BYTES),
            PROCESS_BY("what=\"work\"", WORK_BYTES),
            PROCESS_BY("what=\"writing\"", WRITING_BYTES),
            PROCESS_BY("what=\"answers\"", ANSWER_BYTES))},
    {COUNTER, "baton_http_limited_total",
     "Clients that met a limit of them all: quiet connections closed for new "
     "ones, connections turned away (503, 429), bodies refused (503), and "
     "readers cut off because together they had left too much unread",
     SERIES(PROCESS_BY("limit=\"quiet\"", QUIET_CLOSED),
            PROCESS_BY("limit=\"connections\"", TURNED_AWAY),
            PROCESS_BY("limit=\"bodies\"", BODIES_REFUSED),
            PROCESS_BY("limit=\"unread\"", READERS_CUT))},
    {COUNTER, "baton_memory_refused_total",
     "Requests refused while they were worked on, for the memory that they, "
     "their client's together (429), all together (503) or the whole router "
     "(503) would have taken; request: 413",
     SERIES(PROCESS_BY("cause=\"request\"", MEMORY_REQUEST),
            PROCESS_BY("cause=\"client\"", MEMORY_CLIENT),
            PROCESS_BY("cause=\"server\"", MEMORY_SERVER),
            PROCESS_BY("cause=\"process\"", MEMORY_PROCESS))},
    {GAUGE, "baton_jobs",
     "Work of the router's pool that waits or runs: unpacking, parsing, "
     "tokenizing, writing of long answers",
     SERIES(PROCESS(JOBS))},
    {COUNTER, "baton_jobs_inside_total",
     "Shorter work that a thread ran while longer work of the same lane "
     "paused for it",
     SERIES(PROCESS(JOBS_INSIDE))},
    {COUNTER, "baton_jobs_canceled_total",
     "Parsing, unpacking and tokenizing that was given up because the client "
     "had left: before its turn (queued), or while it ran",
     SERIES(PROCESS_BY("when=\"queued\"", CANCELED_QUEUED),
            PROCESS_BY("when=\"running\"", CANCELED_RUNNING))},
    {GAUGE, "baton_requests_in_flight", "Sequences whose clients wait",
     SERIES(MODEL(IN_FLIGHT))},
    {GAUGE, "baton_requests_waiting",
     "Sequences that wait in the router for workers",
     SERIES(MODEL(WAITING))},
    {COUNTER, "baton_requests_refused_total",
     "Requests turned away before they were started; without model: they named "
     "none that is here",
     SERIES(MODEL(REFUSED))},
    {COUNTER, "baton_target_sequences_total",
     "Sequences that had a target: of the time to the first token (ttft), of "
     "the mean time between tokens (itl). Those that were refused, because they "
     "would have been late, were offered as well; those that their clients "
     "gave up are not counted",
     SERIES(MODEL_BY("target=\"ttft\",result=\"met\"", TTFT_MET),
            MODEL_BY("target=\"ttft\",result=\"missed\"", TTFT_MISSED),
            MODEL_BY("target=\"ttft\",result=\"refused\"", TTFT_REFUSED),
            MODEL_BY("target=\"itl\",result=\"met\"", ITL_MET),
            MODEL_BY("target=\"itl\",result=\"missed\"", ITL_MISSED),
            MODEL_BY("target=\"itl\",result=\"refused\"", ITL_REFUSED))},
    {COUNTER, "baton_attempts_total",
     "Attempts of sequences, by the way that they were sent: to a worker for "
     "each phase (pair), to a prefill worker for an only token (one_token), to "
     "one worker for both phases: as no prefill worker took it (no_prefill), "
     "as prompts queued up (relief), as the worker has both roles "
     "(both_roles), as it cost less (weighed)",
     SERIES(MODEL_BY("way=\"pair\"", SENT_PAIR),
            MODEL_BY("way=\"one_token\"", SENT_ONE_TOKEN),
            MODEL_BY("way=\"no_prefill\"", SENT_NO_PREFILL),
            MODEL_BY("way=\"relief\"", SENT_RELIEF),
            MODEL_BY("way=\"both_roles\"", SENT_BOTH_ROLES),
            MODEL_BY("way=\"weighed\"", SENT_WEIGHED))},
    {COUNTER, "baton_reruns_total",
     "Times a sequence was run again after a worker failed",
     SERIES(MODEL(RERUNS))},
    {COUNTER, "baton_attempt_failures_total",
     "Attempts of sequences that failed, run again or not: the decode worker's "
     "lease ended before its KV had come (lease_expired); KV could not be sent, "
     "or was not what was sent (transfer); a worker did not take the request "
     "(refused), its link ended (worker_lost); the request's time was over, and "
     "no lease waited for KV (deadline); a device or memory (other)",
     SERIES(MODEL_BY("cause=\"lease_expired\"", LEASES_EXPIRED),
            MODEL_BY("cause=\"transfer\"", TRANSFERS_FAILED),
            MODEL_BY("cause=\"refused\"", ATTEMPTS_REFUSED),
            MODEL_BY("cause=\"worker_lost\"", WORKERS_LOST),
            MODEL_BY("cause=\"deadline\"", DEADLINES_PASSED),
            MODEL_BY("cause=\"other\"", OTHER_LOSSES))},
    {COUNTER, "baton_prompt_tokens_total",
     "Tokens of prompts that were accepted",
     SERIES(MODEL(PROMPT_TOKENS))},
    {COUNTER, "baton_prompt_tokens_cached_total",
     "Of those, tokens that a prefill worker found in its prefix cache",
     SERIES(MODEL(CACHED_TOKENS))},
    {COUNTER, "baton_generation_tokens_total",
     "Tokens generated; rises with each as it comes",
     SERIES(MODEL(GENERATION_TOKENS))},

    /* ---- times ---- */
    {HISTOGRAM, "baton_time_to_first_token_seconds",
     "From a request's arrival to its token #1", TIME(FIRST_TOKEN)},
    {HISTOGRAM, "baton_inter_token_latency_seconds",
     "Between two tokens of a sequence, as the router gets them",
     TIME(NEXT_TOKEN)},
    {HISTOGRAM, "baton_queue_seconds",
     "In the router and at the prefill worker, to the first chunk of the "
     "context phase", TIME(QUEUE)},
    {HISTOGRAM, "baton_request_duration_seconds",
     "Whole time of sequences that ended well", TIME(REQUEST)},
    {HISTOGRAM, "baton_kv_grant_wait_seconds",
     "Finished KV waited for the decode worker's grant", TIME(GRANT_WAIT)},
    {HISTOGRAM, "baton_kv_transfer_data_seconds",
     "KV under way, and its check on arrival", TIME(TRANSFER)},
    {HISTOGRAM, "baton_kv_transfer_tail_seconds",
     "From finished KV with its grant to the word that all has arrived",
     TIME(TAIL)},
    {HISTOGRAM, "baton_kv_handover_seconds",
     "From the last KV byte's arrival until the sequence may join the batch",
     TIME(HANDOVER)},
    {HISTOGRAM, "baton_kv_join_wait_seconds",
     "From there to the start of the next iteration", TIME(JOIN_WAIT)},

    /* ---- transfers of KV ---- */
    {COUNTER, "baton_kv_transfers_total",
     "KV transfers that decode workers proved complete",
     SERIES(MODEL(TRANSFERS))},
    {COUNTER, "baton_kv_transfer_bytes_total", "Bytes of those transfers",
     SERIES(MODEL(TRANSFER_BYTES))},
    {COUNTER, "baton_kv_transfer_descriptors_total",
     "Descriptors (pieces) of those transfers",
     SERIES(MODEL(TRANSFER_PIECES))},
    {COUNTER, "baton_kv_bytes_total", "Bytes of KV that workers moved",
     SERIES(MODEL_BY("direction=\"sent\"", KV_SENT),
            MODEL_BY("direction=\"received\"", KV_RECEIVED))},
    {COUNTER, "baton_kv_stale_discarded_total",
     "Stale or foreign KV writes refused", SERIES(MODEL(KV_STALE))},
    {COUNTER, "baton_kv_checksum_failures_total",
     "KV extents whose checksum did not match", SERIES(MODEL(KV_CHECKSUM))},

    /* ---- tenants ---- */
    {COUNTER, "baton_tenant_requests_total",
     "Sequences that were begun for a tenant; the first 64 tenants have series, "
     "all others are other", SERIES(TENANT(REQUESTS))},
    {COUNTER, "baton_tenant_prompt_tokens_total",
     "Prompt tokens of a tenant's sequences, found in a cache or not",
     SERIES(TENANT(PROMPT_TOKENS))},
    {COUNTER, "baton_tenant_generation_tokens_total",
     "Tokens generated for a tenant", SERIES(TENANT(GENERATION_TOKENS))},
    {GAUGE, "baton_tenant_requests_in_flight",
     "A tenant's sequences under way, those that wait included",
     SERIES(TENANT(RUNNING))},
    {COUNTER, "baton_tenant_refused_total",
     "A tenant's requests that were answered with 429 or 503: for more tokens "
     "than its rate, for more at once than it may have, or because the server "
     "had no room for anybody",
     SERIES(TENANT_BY("cause=\"tokens\"", REFUSED_TOKENS),
            TENANT_BY("cause=\"requests\"", REFUSED_REQUESTS),
            TENANT_BY("cause=\"server\"", REFUSED_SERVER))},
    {COUNTER, "baton_unauthorized_total",
     "Requests without a key that is one of the server's, where it wants one",
     SERIES(PROCESS(UNAUTHORIZED))},

    /* ---- workers ---- */
    {GAUGE, "baton_workers", "Workers linked to this router",
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
     "KV links, of each prefill worker to each decode worker: proven ones may "
     "be used, failed ones are tried again, of unproven ones nothing is known "
     "yet",
     SERIES(MODEL_BY("state=\"proven\"", LINKS_PROVEN),
            MODEL_BY("state=\"failed\"", LINKS_FAILED),
            MODEL_BY("state=\"unproven\"", LINKS_UNPROVEN))},
    {GAUGE, "baton_kv_link_failed",
     "1: no KV can go from this prefill worker to this decode worker: where it "
     "was tried, and what happened; of 64 pairs of a model at most",
     SERIES(OTHER(CUT))},
    {GAUGE, "baton_expected_workers",
     "Workers that the launcher means to run", SERIES(OTHER(EXPECTED))},
    {COUNTER, "baton_worker_restarts_total",
     "Times the launcher started a worker again", SERIES(OTHER(RESTARTS))},
    {GAUGE, "baton_worker_requests",
     "Requests at workers, sent by this router and not ended",
     SERIES(MODEL(LEGS))},
    {GAUGE, "baton_worker_up",
     "1: the worker takes requests; 0: it is silent, starved or drains",
     SERIES(WORKER(UP))},
    {GAUGE, "baton_worker_seats", "Requests that a worker runs at most",
     SERIES(WORKER(SEATS))},
    {GAUGE, "baton_worker_active_requests",
     "Requests that a worker accepted and did not end, of all routers",
     SERIES(WORKER(ACTIVE))},
    {GAUGE, "baton_worker_queued_requests",
     "Of those, requests that wait for their turn: at a prefill worker for "
     "their context phase, at a decode worker for a seat or blocks",
     SERIES(WORKER(QUEUED))},
    {GAUGE, "baton_worker_waiting_for_kv_requests",
     "Of those, requests that have a seat and blocks at a decode worker and "
     "wait for their KV, which a prefill worker computes or sends",
     SERIES(WORKER(WAITING_FOR_KV))},
    {GAUGE, "baton_worker_paused_requests",
     "Of those, requests that stand still for lack of blocks: their context "
     "phase, or what they generate (--scheduler-policy)",
     SERIES(WORKER(PAUSED))},
    {COUNTER, "baton_worker_pauses_total",
     "Times that a sequence of a worker gave its blocks up to others in the "
     "middle of its answer (--scheduler-policy max_utilization)",
     SERIES(WORKER(PAUSES))},
    {COUNTER, "baton_worker_resumes_total", "Times that one went on",
     SERIES(WORKER(RESUMES))},
    {COUNTER, "baton_worker_recomputed_tokens_total",
     "Tokens that a worker computed once more for it; those found in the prefix "
     "cache are not among them",
     SERIES(WORKER(RECOMPUTED))},
    {GAUGE, "baton_worker_batch_requests",
     "Sequences in a worker's last iteration",
     SERIES(WORKER_BY("phase=\"context\"", BATCH_CONTEXT),
            WORKER_BY("phase=\"generation\"", BATCH_GENERATION))},
    {GAUGE, "baton_worker_batch_context_tokens",
     "Prompt tokens in a worker's last iteration",
     SERIES(WORKER(BATCH_TOKENS))},
    {COUNTER, "baton_worker_iterations_total",
     "Iterations since the worker started", SERIES(WORKER(ITERATIONS))},
    {GAUGE, "baton_kv_blocks",
     "KV blocks of a worker: in use, free, free with a prefix that may be found "
     "again (cached), or set aside until nobody can write them",
     SERIES(WORKER_BY("state=\"used\"", BLOCKS_USED),
            WORKER_BY("state=\"free\"", BLOCKS_FREE),
            WORKER_BY("state=\"cached\"", BLOCKS_CACHED),
            WORKER_BY("state=\"quarantined\"", BLOCKS_QUARANTINED))},
    {COUNTER, "baton_kv_blocks_reused_total",
     "KV blocks found in a worker's prefix cache", SERIES(WORKER(BLOCKS_REUSED))},
    {GAUGE, "baton_kv_window_blocks",
     "Of a worker's used KV blocks, those of layers that see only a window",
     SERIES(WORKER(BLOCKS_WINDOWED))},
    {COUNTER, "baton_kv_blocks_slid_total",
     "KV blocks that a worker's sequences let go of because no window reached "
     "them any more",
     SERIES(WORKER(BLOCKS_SLID))},
    {GAUGE, "baton_kv_leases",
     "Open leases (decode) and transfers (prefill) of a worker",
     SERIES(WORKER(LEASES))},
    {GAUGE, "baton_worker_memory_bytes",
     "Memory for weights, KV and scratch of a worker; of a device what stays "
     "for libraries, too; pinned memory is not in cpu",
     SERIES(WORKER_BY("memory=\"cpu\"", MEMORY_CPU),
            WORKER_BY("memory=\"gpu\"", MEMORY_GPU),
            WORKER_BY("memory=\"pinned\"", MEMORY_PINNED))},
    {COUNTER, "baton_worker_kv_staged_bytes_total",
     "KV bytes that crossed between a worker's pool in device memory and the "
     "host's, both ways", SERIES(WORKER(KV_STAGED))},
    {COUNTER, "baton_worker_kv_device_bytes_total",
     "KV bytes that a worker's device wrote into another worker's, on one host",
     SERIES(WORKER(KV_SHARED))},
    {COUNTER, "baton_worker_kv_stage_waits_total",
     "Times that such bytes had to wait for a slot of host memory",
     SERIES(WORKER(KV_STAGE_WAITS))},
    {COUNTER, "baton_worker_kv_foreign_pieces_total",
     "What came to a worker's KV plane from somebody that is none of the "
     "cluster: pieces for one of its windows without the window's secret, "
     "messages without their proof, connections that proved nothing; written "
     "nowhere",
     SERIES(WORKER(KV_FOREIGN_PIECES))},
    {COUNTER, "baton_worker_log_lines_dropped_total",
     "Lines of a worker's log that were dropped because nobody read its "
     "standard error", SERIES(WORKER(LOG_DROPPED))},
    {COUNTER, "baton_worker_lent_pieces_total",
     "Pieces of a worker's operations that were computed on cores of other "
     "workers, which had no work", SERIES(WORKER(LENT_PIECES))},
    {COUNTER, "baton_worker_lent_cpu_seconds_total",
     "Time that a worker computed on cores of other workers",
     SERIES(WORKER(LENT_S))},
    {COUNTER, "baton_worker_lent_repeated_pieces_total",
     "Of a worker's pieces on cores of others, those that were done again "
     "because the core was taken back in the middle",
     SERIES(WORKER(LENT_AGAIN))},
    {COUNTER, "baton_worker_yielded_seconds_total",
     "Time that a worker which generates slept between its steps, since prompts "
     "that had waited too long wanted its cores",
     SERIES(WORKER(YIELDED_S))},
    {COUNTER, "baton_worker_steps_ahead_total",
     "Iterations of a worker that began while its device was at the one before",
     SERIES(WORKER(STEPS_AHEAD))},
    {GAUGE, "baton_worker_open_fds", "Open file descriptors of a worker",
     SERIES(WORKER(OPEN_FDS))},
    {COUNTER, "baton_worker_prompt_tokens_total",
     "Prompt tokens that a worker computed", SERIES(WORKER(PROMPT_TOKENS))},
    {COUNTER, "baton_worker_prompt_tokens_reused_total",
     "Prompt tokens that a worker found in its prefix cache",
     SERIES(WORKER(REUSED_TOKENS))},
    {COUNTER, "baton_worker_generation_tokens_total",
     "Tokens that a worker drew; a prefill worker draws the first of each "
     "sequence", SERIES(WORKER(GENERATED_TOKENS))},
    {COUNTER, "baton_worker_cpu_seconds_total",
     "User and system time of a worker", SERIES(WORKER(CPU_S))},
    {GAUGE, "baton_worker_resident_memory_bytes",
     "Resident memory of a worker, shared pages included",
     SERIES(WORKER(RESIDENT))},
    {GAUGE, "baton_worker_cost_step_seconds",
     "What an iteration of a worker takes whatever is in it, and a transfer of "
     "KV, as it has learned from those that it measured",
     SERIES(WORKER_BY("work=\"prefill\"", PREFILL_STEP),
            WORKER_BY("work=\"decode\"", DECODE_STEP),
            WORKER_BY("work=\"transfer\"", TRANSFER_START))},
    {GAUGE, "baton_worker_cost_item_seconds",
     "What one more of it takes: a token of a prompt (prefill), a sequence that "
     "generates (decode), a MiB (transfer)",
     SERIES(WORKER_BY("work=\"prefill\"", PREFILL_TOKEN),
            WORKER_BY("work=\"decode\"", DECODE_SEQ),
            WORKER_BY("work=\"transfer\"", TRANSFER_MIB))},
    {GAUGE, "baton_worker_cost_kilopair_seconds",
     "What attention of a chunk takes for 1,024 pairs of a token and a position",
     SERIES(WORKER_BY("work=\"prefill\"", PREFILL_KILOPAIR))},
    {GAUGE, "baton_worker_cost_kiloread_seconds",
     "What reading K and V of 1,024 positions takes, once for each chunk and "
     "each sequence of an iteration",
     SERIES(WORKER_BY("work=\"prefill\"", PREFILL_KILOREAD),
            WORKER_BY("work=\"decode\"", DECODE_KILOREAD))},
    {GAUGE, "baton_worker_cost_error_ratio",
     "How far off such predictions were of late, as a part of the time",
     SERIES(WORKER_BY("work=\"prefill\"", PREFILL_ERROR),
            WORKER_BY("work=\"decode\"", DECODE_ERROR),
            WORKER_BY("work=\"transfer\"", TRANSFER_ERROR))},
    {GAUGE, "baton_worker_start_time_seconds",
     "When a worker started, since the Unix epoch", SERIES(WORKER(START_S))},

    /* ---- the router's process ---- */
    {GAUGE, "baton_build_info", "1; the labels tell what is running",
     SERIES({BT_SCOPE_BUILD, "@", BT_PC_ONE})},
    {HISTOGRAM, "baton_event_loop_delay_seconds",
     "How much later than asked the router's event loop came to its tick, every "
     "50 ms", SERIES({BT_SCOPE_LOOP, "", BT_LH_DELAY})},
    {HISTOGRAM, "baton_event_loop_turn_seconds",
     "CPU time of each turn of the router's event loop: one callback and what "
     "finding it took", SERIES({BT_SCOPE_LOOP, "", BT_LH_TURN})},
    {COUNTER, "baton_trace_lines_lost_total",
     "Lines that the trace file did not take", SERIES(PROCESS(TRACE_LOST))},
    {COUNTER, "baton_otlp_spans_total",
     "Spans for the collector of --otlp-traces-endpoint: it has them (sent), it would not have "
     "them (rejected), or they are lost: the queue was full, it took none for "
     "too long, or the router stopped (dropped)",
     SERIES({BT_SCOPE_PROCESS, "result=\"sent\"", BT_PC_OTLP_SENT},
            {BT_SCOPE_PROCESS, "result=\"rejected\"", BT_PC_OTLP_REJECTED},
            {BT_SCOPE_PROCESS, "result=\"dropped\"", BT_PC_OTLP_DROPPED})},
    {COUNTER, "baton_otlp_failed_tries_total",
     "Requests to that collector that failed and that are, or would be, tried "
     "again", SERIES(PROCESS(OTLP_FAILED_TRIES))},
    {GAUGE, "baton_otlp_queue_bytes",
     "Spans that wait for that collector", SERIES(PROCESS(OTLP_QUEUED))},
    {COUNTER, "baton_access_log_lines_lost_total",
     "Lines that the access log did not take", SERIES(PROCESS(ACCESS_LOST))},
    {COUNTER, "baton_log_lines_dropped_total",
     "Lines of this router's log that were dropped because nobody read its "
     "standard error", SERIES(PROCESS(LOG_DROPPED))},
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

    /* ---- old names, with the labels that they had ----
     * Gauges, also of counters: readers give a counter without _total this
     * ending, and then it is there twice. */
    {GAUGE, "baton_requests_refused",
     .alias_of = "baton_requests_refused_total", SERIES(SUM("", REFUSED))},
    {GAUGE, "baton_reruns", .alias_of = "baton_reruns_total",
     SERIES(SUM("", RERUNS))},
    {GAUGE, "baton_leases", .alias_of = "baton_kv_leases",
     SERIES(ROLE(LEASES))},
    {GAUGE, "baton_quarantined_blocks",
     .alias_of = "baton_kv_blocks{state=\"quarantined\"}",
     SERIES(ROLE(BLOCKS_QUARANTINED))},
    {GAUGE, "baton_kv_bytes", .alias_of = "baton_kv_bytes_total",
     SERIES(SUM("direction=\"sent\"", KV_SENT),
            SUM("direction=\"received\"", KV_RECEIVED))},
    {GAUGE, "baton_kv_stale_discarded",
     .alias_of = "baton_kv_stale_discarded_total", SERIES(SUM("", KV_STALE))},
    {GAUGE, "baton_kv_checksum_failures",
     .alias_of = "baton_kv_checksum_failures_total",
     SERIES(SUM("", KV_CHECKSUM))},
    {HISTOGRAM, "baton_kv_transfer_ms",
     .alias_of = "baton_kv_transfer_data_seconds (in milliseconds)",
     SERIES({BT_SCOPE_SUM, "", BT_MH_TRANSFER_MS})},
    {GAUGE, "baton_open_fds",
     .alias_of = "process_open_fds and baton_worker_open_fds",
     SERIES({BT_SCOPE_PROCESS, "role=\"router\"", BT_PC_OPEN_FDS},
            ROLE(OPEN_FDS))},
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
    static const double ms_bounds[] = {0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000};

    bt_histogram_init(&hists[BT_MH_INPUT_TOKENS], token_bounds,
                      BT_ARRAY_LEN(token_bounds));
    bt_histogram_init(&hists[BT_MH_OUTPUT_TOKENS], token_bounds,
                      BT_ARRAY_LEN(token_bounds));
    bt_histogram_init(&hists[BT_MH_TRANSFER_MS], ms_bounds,
                      BT_ARRAY_LEN(ms_bounds));
    for (uint32_t i = BT_MH_N_COUNTED; i < BT_MH_N; i++) {
        bt_metrics_hist_init_seconds(&hists[i]);
    }
}

const char *bt_metrics_help(const bt_family_def_t *family, char *scratch,
                            uint32_t bytes)
{
    if (family->alias_of == NULL) {
        return family->help;
    }
    snprintf(scratch, bytes, "Alias of %s, goes away in " ALIASES_END,
             family->alias_of);
    return scratch;
}
