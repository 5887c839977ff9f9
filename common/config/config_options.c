/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config/config_options.h"

#include <ctype.h>
#include <string.h>

#include "common/base/status.h"

#define S       BT_PROG_SERVE
#define R       BT_PROG_ROUTER
#define P       BT_PROG_PREFILL
#define D       BT_PROG_DECODE
#define ALL     (S | R | P | D)
#define WORKERS (P | D)
#define TERA    (UINT64_C(1) << 40)
#define GIGA    (UINT64_C(1) << 30)
#define HOUR_MS UINT64_C(3600000)

#define ROW(tier, name, type, metavar, def, min, max, unit, choices, programs, \
            field, help, details)                                              \
    {                                                                          \
        name, BT_OPTION_##type, metavar, def, min, max, unit, choices,         \
            programs, offsetof(bt_config_t, field), BT_OPTION_##tier, help,    \
            details                                                            \
    }
#define TEXT(tier, name, metavar, def, programs, field, help, details)         \
    ROW(tier, name, TEXT, metavar, def, 0, 0, "", NULL, programs, field, help, \
        details)
#define CHOICE(tier, name, def, choices, programs, field, help, details)     \
    ROW(tier, name, CHOICE, "NAME", def, 0, 0, "", choices, programs, field, \
        help, details)
#define ADDRESS(tier, name, def, programs, field, help, details)         \
    ROW(tier, name, ADDRESS, "ADDR:PORT", def, 0, 0, "", NULL, programs, \
        field, help, details)
#define COUNT(tier, name, def, min, max, unit, programs, field, help, details) \
    ROW(tier, name, COUNT, "N", def, min, max, unit, NULL, programs, field,    \
        help, details)
#define TIME(tier, name, def, min, max, programs, field, help, details)      \
    ROW(tier, name, COUNT, "MS", def, min, max, "ms", NULL, programs, field, \
        help, details)
#define SIZE(tier, name, def, min, max, programs, field, help, details)     \
    ROW(tier, name, SIZE, "SIZE", def, min, max, "", NULL, programs, field, \
        help, details)
#define SIZE32(tier, name, def, min, max, programs, field, help, details)     \
    ROW(tier, name, SIZE32, "SIZE", def, min, max, "", NULL, programs, field, \
        help, details)
#define FLAG(tier, name, programs, field, help, details)                     \
    ROW(tier, name, FLAG, NULL, "no", 0, 1, "", NULL, programs, field, help, \
        details)
#define SWITCH(tier, name, choices, programs, field, help, details)            \
    ROW(tier, name, SWITCH, "NAME", "off", 0, 0, "", choices, programs, field, \
        help, details)
#define PORT(tier, name, programs, field, help, details)                       \
    ROW(tier, name, PORT, "N", "0", 0, 65535, "", NULL, programs, field, help, \
        details)
#define MODELS(tier, name, programs, field, help, details)               \
    ROW(tier, name, MODELS, "[NAME=]PATH", "", 0, 0, "", NULL, programs, \
        field, help, details)
#define TARGETS(tier, name, programs, field, help, details)           \
    ROW(tier, name, TARGETS, "NAME=TTFT/ITL,...", "", 0, 0, "", NULL, \
        programs, field, help, details)
#define SAMPLING(tier, name, programs, field, help, details)               \
    ROW(tier, name, SAMPLING, "JSON", "", 0, 0, "", NULL, programs, field, \
        help, details)
#define ADAPTERS(tier, name, programs, field, help, details)             \
    ROW(tier, name, ADAPTERS, "NAME=PATH", "", 0, 0, "", NULL, programs, \
        field, help, details)

/* clang-format off */
const bt_option_t bt_config_options[] = {
    MODELS(COMMON, "model", ALL, model,
         "Model to serve: GGUF file, Hugging Face folder or a name that "
         "./baton list shows; repeatable",
         "A folder has config.json and safetensors. NAME is what clients "
         "call the model (without spaces and / \" \\ , =); without it, that "
         "of the list, of the file without .gguf, or of the folder. baton "
         "serve and the router take up to 16 models: the option again for "
         "each, a line for each in a file, a semicolon between them in "
         "BATON_MODEL"),
    TEXT(COMMON, "served-model-name", "NAME", "", ALL, served_model_name,
         "Name of the first model for clients, where --model gives none",
         ""),
    TEXT(ADVANCED, "models-dir", "DIR", "", ALL, models_dir,
         "Folder in which --model NAME is looked up",
         "Empty: $XDG_CACHE_HOME/baton (~/.cache/baton)"),
    CHOICE(ADVANCED, "reasoning-parser", "auto",
         "auto, off, think, seed, mistral, thinking, thought, reasoning, "
         "granite, harmony", S | R, reasoning_parser,
         "Parser that separates reasoning from the answer, as "
         "reasoning_content of chat",
         "The name is that of the marks: <think>, <seed:think>, [THINK] and "
         "so on. harmony: the messages of gpt-oss. auto: detected from the "
         "chat template of the model. off: everything is content"),
    SAMPLING(ADVANCED, "override-generation-config", S | R,
         override_generation_config,
         "Default sampling parameters for the OpenAI API, as JSON, instead "
         "of those of the model",
         "They apply where a request does not set its own: temperature, "
         "top_p, top_k, min_p, repetition_penalty, such as "
         "{\"temperature\":0.2,\"top_p\":0.9}"),
    CHOICE(ADVANCED, "tool-call-parser", "auto",
         "auto, off, hermes, llama3, mistral, pythonic, harmony", S | R,
         tool_call_parser,
         "Parser for tool calls in answers of the model, as tool_calls of "
         "chat",
         "hermes (also Qwen): JSON in <tool_call>. llama3: JSON alone. "
         "mistral: after [TOOL_CALLS]. pythonic: [f(a=1)]. harmony: messages "
         "to=functions.f of gpt-oss. auto: detected from the chat template, "
         "else hermes. off: requests with tools are refused"),
    TEXT(COMMON, "chat-template", "NAME|FILE", "", S | R, chat_template,
         "Chat template: the name of a family, or a file with Jinja text",
         "Empty: that of the model file"),
    CHOICE(ADVANCED, "chat-template-content-format", "auto",
         "auto, string, openai", S | R, content_format,
         "Form in which a chat template gets the content of a message",
         "string: parts are joined by line ends. openai: a list of parts, "
         "also for a string. auto: as the client sent it, where the "
         "template handles that form"),
    COUNT(COMMON, "max-seq-len", "0", 0, 1u << 24, "tokens", ALL, max_seq_len,
         "Maximum length of a sequence, prompt and answer; 0: the limit of "
         "the model",
         ""),
    TEXT(COMMON, "model-repository", "DIR", "", S | R, model_repository,
         "Triton model repository whose config.pbtxt files set options",
         "Its models are preprocessing, tensorrt_llm, postprocessing, "
         "ensemble and tensorrt_llm_bls. A setting takes effect where no "
         "option says otherwise"),
    COUNT(COMMON, "prefill", "1", 0, 256, "workers", S, prefill,
         "Number of prefill workers for each model",
         "0 only with --local-prefill on"),
    COUNT(COMMON, "decode", "1", 1, 256, "workers", S, decode,
         "Number of decode workers for each model",
         ""),
    COUNT(COMMON, "routers", "1", 1, BT_CONFIG_MAX_ROUTERS, "routers", S,
         routers,
         "Number of routers; all of them use the same workers",
         "Each further router listens at the ports of --http, --grpc and "
         "--metrics plus 10"),
    FLAG(ADVANCED, "reuse-http-port", S | R, reuse_http_port,
         "All routers listen at the one port of --http (SO_REUSEPORT)",
         "The kernel distributes connections among them"),
    COUNT(COMMON, "prefill-threads", "0", 0, 1024, "threads", S,
         prefill_threads,
         "Compute threads of each prefill worker; 0: share the cores",
         ""),
    COUNT(COMMON, "decode-threads", "0", 0, 1024, "threads", S,
         decode_threads,
         "Compute threads of each decode worker; 0: share the cores",
         ""),
    COUNT(COMMON, "threads", "0", 0, 1024, "threads", WORKERS, threads,
         "Compute threads of the worker; 0: one for each core that the "
         "process may use",
         ""),
    COUNT(ADVANCED, "reduction-parts", "0", 0, 16, "parts", S | WORKERS,
         reduction_parts,
         "Partial sums of a tensor-parallel reduction; 0: one for each rank",
         "Workers with the same number compute the same bits, whatever "
         "their --tp. It is a multiple of --tp. 0: for a worker the number "
         "of its ranks, for baton serve the larger of --prefill-tp and "
         "--decode-tp"),
    COUNT(ADVANCED, "moe-reduction-parts", "0", 0, 16, "parts", S | WORKERS,
         moe_reduction_parts,
         "Partial sums over the width of an expert; 0: one for each rank of "
         "an expert",
         "For models with experts, beside --reduction-parts. It is a multiple "
         "of --tp / --ep. 0: for a worker that, for baton serve the larger "
         "one of prefill and decode"),
    COUNT(COMMON, "prefill-tp", "1", 1, 16, "ranks", S, prefill_tp,
         "Tensor parallel ranks of each prefill worker (--tp)",
         ""),
    COUNT(COMMON, "decode-tp", "1", 1, 16, "ranks", S, decode_tp,
         "Tensor parallel ranks of each decode worker (--tp)",
         ""),
    COUNT(COMMON, "prefill-ep", "1", 1, 16, "groups", S, prefill_ep,
         "Expert parallel groups of the ranks of each prefill worker (--ep)",
         "It divides --prefill-tp"),
    COUNT(COMMON, "decode-ep", "1", 1, 16, "groups", S, decode_ep,
         "Expert parallel groups of the ranks of each decode worker (--ep)",
         "It divides --decode-tp"),
    COUNT(COMMON, "tp", "1", 1, 16, "ranks", WORKERS, tp,
         "Tensor parallel ranks of each pipeline stage of the worker",
         "Each rank is a process. It has a share of the attention heads, of "
         "the feed-forward layers, of the vocabulary and of the cores of "
         "the worker"),
    COUNT(COMMON, "ep", "1", 1, 16, "groups", WORKERS, ep,
         "Expert parallel groups of the --tp ranks: 1, 2, 4, 8 or 16",
         "For models with experts. Each group has as many of the experts, and "
         "its ranks, --tp / --ep of them, a share of the width of each. "
         "Attention and shared experts are divided among all --tp ranks"),
    COUNT(ADVANCED, "prefill-pp", "1", 1, 16, "stages", S, prefill_pp,
         "Pipeline stages of each prefill worker (--pp)",
         ""),
    COUNT(ADVANCED, "decode-pp", "1", 1, 16, "stages", S, decode_pp,
         "Pipeline stages of each decode worker (--pp)",
         ""),
    COUNT(ADVANCED, "pp", "1", 1, 16, "stages", WORKERS, pp,
         "Pipeline stages of the worker, each of --tp ranks",
         "A stage computes some rows while the next stage computes those "
         "before them"),
    COUNT(ADVANCED, "standby", "0", 0, 64, "processes", S, standby,
         "Standby processes for each model, with mapped weights, that "
         "replace a failed worker",
         "A replacement takes less time than another start. Standby "
         "processes have no cores of their own. Where prefill and decode "
         "workers differ in ranks or stages, the number counts for each "
         "shape"),
    COUNT(INTERNAL, "assignment-fd", "0", 0, 1023, "descriptor", WORKERS,
         assignment_fd,
         "Descriptor from which a standby process reads its assignment; 0: "
         "not a standby",
         ""),
    TEXT(ADVANCED, "cores", "LIST", "", WORKERS, cores,
         "Cores to pin the compute threads to, such as 0-3,8; empty: no "
         "pinning",
         ""),
    COUNT(ADVANCED, "worker-nice", "5", 0, 19, "", S | WORKERS, worker_nice,
         "Nice value added to workers that compute on the CPU; 0: equal to "
         "routers",
         "Set by setpriority(2), so that a router on the same cores runs "
         "first"),
    CHOICE(ADVANCED, "share-idle-cores", "on", "on, idle, off", S | WORKERS,
         share_idle_cores,
         "Workers compute on the cores of other workers that are idle",
         "Applies where each worker has cores of its own. Borrowing threads "
         "are of the kernel's idle class and yield as soon as the owner has "
         "work. on: a worker that generates also sleeps after each "
         "iteration, for at most its duration and within --itl-budget-ms, "
         "while a prompt has waited for four times as long as its "
         "computation takes. idle: no such sleep"),
    TEXT(INTERNAL, "borrowed-cores", "LIST", "", WORKERS, borrowed_cores,
         "Cores of other workers to compute on while these are idle, "
         "nearest first, such as 4-7",
         "Set by the launcher"),
    CHOICE(ADVANCED, "role", "auto", "auto, prefill, decode, both", WORKERS,
         role,
         "Initial role of the worker; auto: by the name of its program",
         "An administrator can change the role later"),
    SWITCH(COMMON, "local-prefill", "auto, on, off", S | WORKERS,
         local_prefill,
         "Decode workers also prefill: never, to relieve the queue (on), or "
         "where it is faster (auto)",
         "With each value but off they also prefill every prompt when no "
         "prefill worker is left. on (or no value): a share of the prompts "
         "that queue up. auto: each prompt that gains more time than the "
         "batch there loses, by measured iterations and transfers"),
    FLAG(INTERNAL, "workers-pinned", R, workers_pinned,
         "All workers of this host have --cores of their own",
         "Set by the launcher. The threads of the router may then run "
         "longer at a time"),
    ADDRESS(COMMON, "http", "127.0.0.1:8000", S | R, http,
         "Address of the HTTP server",
         ""),
    PORT(COMMON, "port", S | R, port,
         "Port of --http; its address stays as it is",
         "No environment variable sets it"),
    ADDRESS(COMMON, "grpc", BT_CONFIG_GRPC_DEFAULT, S | R, grpc,
         "Address of the gRPC server",
         ""),
    ADDRESS(COMMON, "metrics", "127.0.0.1:8002", S | R, metrics,
         "Address of the Prometheus endpoint /metrics",
         ""),
    TEXT(COMMON, "tls-cert", "FILE", "", S | R, tls_cert,
         "TLS certificate chain (PEM) for HTTP and gRPC; empty: plain text",
         "The file has the certificate first, then the intermediate ones. "
         "/metrics is always plain. Reloaded at SIGHUP, together with "
         "--tls-key"),
    TEXT(COMMON, "tls-key", "FILE", "", S | R, tls_key,
         "Private key (PEM, without a passphrase) of --tls-cert",
         "Only its owner may have access to the file"),
    TEXT(ADVANCED, "tls-client-ca", "FILE", "", S | R, tls_client_ca,
         "CA certificates (PEM) that sign client certificates; empty: "
         "clients need none",
         ""),
    TEXT(COMMON, "api-keys", "FILE", "", S | R, api_keys,
         "File with hashes of API keys, their tenants and limits; empty: no "
         "authentication",
         "With it, every request except for health needs a key. ./baton key "
         "new TENANT creates one. Reloaded at SIGHUP"),
    TEXT(ADVANCED, "tenant-header", "NAME", "", S | R, tenant_header,
         "HTTP header in which a gateway names the tenant, such as "
         "X-Baton-Tenant",
         "Used where there are no API keys. Every client that reaches the "
         "server can set it. Empty: all requests have one tenant"),
    CHOICE(ADVANCED, "admin-without-keys", "own-user", "own-user, anybody", S
         | R, admin_without_keys,
         "Clients that may administrate the server where there are no API "
         "keys",
         "Administration: load and unload models, drain workers, change "
         "settings; by HTTP and gRPC. own-user: processes on the host of "
         "the router that run as its user or root. anybody: every client "
         "that reaches the port"),
    FLAG(COMMON, "insecure", S | R, insecure,
         "Listen beyond loopback without API keys",
         "Every client that reaches the ports can then use the server"),
    TEXT(ADVANCED, "allowed-hosts", "NAME[,NAME]", "", S | R, allowed_hosts,
         "Host names by which clients may address the server; *.NAME: "
         "subdomains; *: any",
         "Always allowed: IP addresses, localhost, the name of this machine "
         "and those in --http, --metrics and --grpc"),
    TEXT(ADVANCED, "cors-origins", "ORIGIN[,ORIGIN]", "", S | R, cors_origins,
         "Origins whose web pages may call the server (CORS), such as "
         "https://example.org",
         "*: every origin. Empty: only pages of the server itself"),
    CHOICE(ADVANCED, "shared-memory", "off", "off, on", S | R, shared_memory,
         "Clients may pass tensors in POSIX shared memory of this host",
         "Every client that reaches the server can then make it read and "
         "write, by name, any such memory of its own user"),
    CHOICE(ADVANCED, "out-of-vocabulary-ids", "refuse", "refuse, modulo", S |
         R, out_of_vocabulary_ids,
         "Handling of prompt token ids outside the vocabulary",
         "refuse: the request is refused. modulo: each id counts modulo the "
         "vocabulary, for load generators that draw any number as an id"),
    TEXT(ADVANCED, "vertex-health-route", "PATH", "", S | R,
         vertex_health_route,
         "Path of health checks of Vertex AI; empty: that of "
         "AIP_HEALTH_ROUTE, if set",
         ""),
    TEXT(ADVANCED, "vertex-predict-route", "PATH", "", S | R,
         vertex_predict_route,
         "Path of predictions of Vertex AI; empty: that of "
         "AIP_PREDICT_ROUTE, if set",
         ""),
    SIZE(COMMON, "kv-memory", "0", 0, 64 * TERA, S | WORKERS, kv_memory_bytes,
         "Memory for the KV cache of each worker; 0: from the model and the "
         "machine",
         "That of a draft model with a KV cache of its own, too"),
    CHOICE(COMMON, "kv-dtype", "bf16", "bf16, f16, int8, fp8", S | WORKERS,
         kv_dtype,
         "Data type of the KV cache, the same for all workers",
         "int8 and fp8 have a scale per token and head. They halve the "
         "memory and the transfer of bf16, about"),
    COUNT(ADVANCED, "tokens-per-block", "16", 1, 256, "tokens", S | WORKERS,
         tokens_per_block,
         "Tokens in one KV block; an even number",
         ""),
    CHOICE(COMMON, "prefix-cache", "on", "on, off", S | WORKERS, prefix_cache,
         "Reuse the KV blocks of equal prompt prefixes",
         ""),
    TEXT(ADVANCED, "weight-cache", "auto|off|DIR", "auto", S | WORKERS,
         weight_cache,
         "Folder for packed weights, which all workers of the host share",
         "It makes the next start faster. auto: "
         "$XDG_CACHE_HOME/baton/weights (~/.cache/baton/weights). off: each "
         "worker packs for itself"),
    TIME(ADVANCED, "quarantine-ms", "10000", 100, HOUR_MS, S | WORKERS,
         quarantine_ms,
         "Longest quarantine of the KV blocks of a revoked lease",
         ""),
    COUNT(ADVANCED, "max-ungranted-kv-percent", "50", 1, 99, "percent", S |
         WORKERS, max_ungranted_kv_percent,
         "Maximum share of the blocks of a worker for finished KV that "
         "waits for its transfer",
         ""),
    COUNT(ADVANCED, "kv-tokens", "0", 0, 1u << 30, "tokens", S | WORKERS,
         kv_tokens,
         "Maximum number of KV tokens of each worker; 0: what --kv-memory "
         "holds",
         ""),
    COUNT(ADVANCED, "kv-free-percent", "0", 0, 100, "percent", S | WORKERS,
         kv_free_percent,
         "Share for KV of the memory that the model leaves, where "
         "--kv-memory is 0",
         "Of the memory of the host, which other processes need too, never "
         "more than the default. 0: a quarter"),
    COUNT(COMMON, "max-batch-size", "64", 1, 4096, "seats", S | WORKERS,
         max_batch_size,
         "Maximum number of sequences that a worker runs at the same time",
         ""),
    COUNT(ADVANCED, "chunk-tokens", "0", 0, 65536, "tokens", S | WORKERS,
         chunk_tokens,
         "Prompt tokens per iteration in chunked prefill, at least one "
         "block; 0: tuned at run time",
         "The tuned size follows the measured time of iterations, up to 1024"),
    COUNT(ADVANCED, "itl-budget-ms", "50", 1, 60000, "ms", S | WORKERS,
         itl_budget_ms,
         "Inter-token latency that a tuned prefill chunk leaves to "
         "sequences of the same worker",
         "Where decoding alone needs more than half of it, a chunk may take "
         "as long as makes it twice what decoding needs"),
    CHOICE(ADVANCED, "prefill-order", "srpt", "srpt, fcfs, deadline", ALL,
         prefill_order,
         "Order in which prompts of equal priority are prefilled",
         "srpt: shortest remaining prefill first; a prompt is passed for at "
         "most four times its own time, and two minutes. fcfs: first come, "
         "first served. deadline: the earliest time-out first"),
    CHOICE(ADVANCED, "decode-order", "prompt", "prompt, fcfs, length", S |
         WORKERS, decode_order,
         "Order in which sequences of equal priority start to decode",
         "prompt: in the order of their prompts, by --prefill-order. fcfs: "
         "first come, first served. length: the smallest token limit first; "
         "a sequence is passed for at most four times its own time, and two "
         "minutes. Static batches (V1) are then of similar lengths"),
    CHOICE(COMMON, "scheduler-policy", "guaranteed_no_evict",
         "guaranteed_no_evict, max_utilization", ALL, scheduler_policy,
         "KV allocation: maximum length up front, or on demand with "
         "preemption",
         "guaranteed_no_evict reserves the maximum length of a sequence, so "
         "that it never waits for blocks. max_utilization allocates as a "
         "sequence grows, so that more run at a time; where blocks run out, "
         "the last sequence in order is preempted and continues later with "
         "the same tokens"),
    CHOICE(INTERNAL, "kv-overlap", "layers", "layers, chunks, none", S |
         WORKERS, kv_overlap,
         "Parts of the KV of a prompt that are sent during its prefill",
         "layers: finished chunks, and finished layers of the last one. "
         "chunks: finished chunks. none: nothing, as a baseline"),
    CHOICE(INTERNAL, "midstep-join", "on", "on, off", S | WORKERS,
         midstep_join,
         "A sequence whose KV has arrived joins the running iteration "
         "between two layers",
         "off: it joins the next iteration, as a baseline"),
    CHOICE(ADVANCED, "overlap-scheduling", "auto", "auto, on, off", S |
         WORKERS, overlap_scheduling,
         "Prepare the next iteration on the host while the GPU computes the "
         "current one",
         "auto: where that saves at least 1/64 of its time. on: wherever "
         "possible. off: never"),
    TEXT(ADVANCED, "draft", "ngram|self[:TYPE]|mtp|off", "ngram", S | WORKERS,
         draft, "Speculative decoding: source of draft tokens",
         "ngram: what followed the last tokens earlier in the prompt or the "
         "answer. self: that, and draws of the model with its weights "
         "quantized to TYPE, by default q5_1, or q4_0 of 8-bit weights; for "
         "models of 8 bits a weight and more on the CPU. mtp: ngram, and the "
         "model's own layer of multi-token prediction. off: no speculative decoding. Drafts are made "
         "and verified where that is expected to save time, by measured cost "
         "and acceptance; the tokens of an answer are the same with and "
         "without"),
    TEXT(ADVANCED, "draft-model", "FILE|FOLDER", "", S | WORKERS, draft_model,
         "Speculative decoding: file of the draft model, in place of --draft "
         "self",
         "An EAGLE-3 head, or a model with the tokens of the served one. With its shape too, such "
         "as a quantized copy, it uses its KV cache; another one has a KV "
         "cache of its own, in the memory of --kv-memory"),
    SIZE(ADVANCED, "draft-corpus", "16m", 0, GIGA, S | WORKERS,
         draft_corpus_bytes,
         "Memory for earlier answers as a source of draft tokens; 0: none",
         "16 bytes for each token. It has answers of requests that share their "
         "prefix cache with all others: not those of tenants with a name or of "
         "requests with cache_salt"),
    SIZE(ADVANCED, "grammar-cache", "256m", 0, 64 * GIGA, S | WORKERS,
         grammar_cache_bytes,
         "Memory for grammars of structured output that no running request "
         "has; 0: none are kept",
         "16m for each, which is taken as a grammar needs it. A kept grammar "
         "and its masks of tokens are there for the next request that has it"),
    TEXT(ADVANCED, "allow-weight-updates", "DIR", "", ALL,
         allow_weight_updates,
         "Folder from which an admin request may replace the weights of "
         "running workers; empty: none may",
         "POST /update_weights_from_disk. Router and workers both need it. "
         "Answers then have the member weight_version"),
    ADAPTERS(COMMON, "lora", ALL, lora,
         "LoRA adapter that clients call NAME: a PEFT folder or a GGUF file; repeatable",
         "Router and workers need the same ones; in the environment ; separates several"),
    TEXT(ADVANCED, "lora-dir", "DIR", "", ALL, lora_dir, "Folder from which an admin request may load LoRA adapters; empty: none may",
         "POST /v1/load_lora_adapter. Router and workers both need it, with the same files"),
    SIZE(ADVANCED, "lora-memory", "256m", 0, 64 * GIGA, S | WORKERS, lora_memory_bytes,
         "Memory for adapters that are loaded while a worker runs", "From --lora-dir or by lora_weights. The KV pool is smaller by it"),
    SIZE(ADVANCED, "lora-cache-host-memory", "0", 0, 1024 * GIGA, ALL, lora_cache_host_bytes,
         "Memory of a router for LoRA adapters that clients send by Triton's lora_weights; 0: none are taken", "TensorRT-LLM's lora_cache_host_memory_bytes. The oldest is evicted; at workers they take --lora-memory"),
    TEXT(ADVANCED, "lora-prefetch-dir", "DIR", "", S | R, lora_prefetch_dir,
         "Folder of LoRA adapters that are there from the start, each in a folder named by its lora_task_id", "TensorRT-LLM's lora_prefetch_dir: model.lora_weights.npy and model.lora_config.npy. With --lora-cache-host-memory"),
    TEXT(ADVANCED, "lora-task-dir", "DIR", "", S | R, lora_task_dir, "Folder by which routers know the same lora_task_ids; empty: each has its own", "Created with mode 0700 if only it is missing. --lora-cache-host-memory bounds its files, too"),
    COUNT(ADVANCED, "max-lora-rank", "64", 1, 512, "", ALL, max_lora_rank, "Largest rank of a LoRA adapter", "Memory for intermediate results grows with it"),
    COUNT(INTERNAL, "draft-tokens", "0", 0, 16, "tokens", S | WORKERS,
         draft_tokens,
         "Drafts of a sequence that an iteration verifies; 0: those that are "
         "expected to pay",
         ""),
    COUNT(ADVANCED, "simulate-step-us", "0", 0, 1000000, "us", S | WORKERS,
         simulate_step_us,
         "Minimum duration of an iteration, to simulate a larger model; 0: "
         "no minimum",
         "A worker waits when its iteration was faster"),
    COUNT(ADVANCED, "simulate-token-us", "0", 0, 100000, "us", S | WORKERS,
         simulate_token_us,
         "Duration added to --simulate-step-us for each token of an "
         "iteration",
         ""),
    FLAG(ADVANCED, "client-priority", S | R, client_priority,
         "Use the priority that requests ask for; else all have the same",
         "docs/CLIENTS.md says in which direction the number of each API "
         "counts. Any client could put itself before the others"),
    CHOICE(ADVANCED, "batching-strategy", "inflight_fused_batching",
         "inflight_fused_batching, inflight_batching, V1", ALL,
         batching_strategy,
         "Batching: in flight, or static batches (V1)",
         "inflight_fused_batching and inflight_batching are the same: "
         "sequences join at the next iteration. V1 is a baseline: a static "
         "batch starts as one, and no sequence joins until all of it have "
         "ended. With V1, /metrics has nv_trt_llm_v1_metrics instead of the "
         "in-flight family, and no sequence joins an iteration midway"),
    COUNT(ADVANCED, "max-queue-delay-us", "0", 0, 1000000, "us", S | R,
         max_queue_delay_us,
         "Time that a request waits in the router to be batched with others",
         ""),
    COUNT(ADVANCED, "tokenizer-threads", "0", 0, 256, "threads", S | R,
         tokenizer_threads,
         "Threads of a router that parse and tokenize large requests",
         "At least 2. 0: a quarter of the cores, from 2 to 8"),
    COUNT(COMMON, "max-concurrent-requests", "4096", 1, 1000000, "requests", S
         | R, max_concurrent_requests,
         "Maximum number of requests in progress; further ones get 429",
         ""),
    COUNT(ADVANCED, "max-beam-width", "64", 1, 64, "beams", S | R,
         max_beam_width,
         "Maximum number of beams of a request; 1: no beam search",
         "Each beam takes a seat of a worker (--max-batch-size)"),
    SIZE(ADVANCED, "max-logits-bytes", "64m", 0, 64 * (uint64_t)GIGA, S | R |
         WORKERS, max_logits_bytes,
         "Maximum size of the logits that one request may ask for; 0: none",
         "4 bytes for each token of the vocabulary and each position. The "
         "worker and the router keep them until the answer is sent"),
    SIZE(ADVANCED, "max-body-bytes", "8m", 1024, GIGA, S | R, max_body_bytes,
         "Maximum size of a request body",
         ""),
    TIME(ADVANCED, "header-timeout-ms", "10000", 100, HOUR_MS, S | R,
         header_timeout_ms,
         "Time for a client to send a whole request header",
         ""),
    TIME(ADVANCED, "body-timeout-ms", "30000", 100, HOUR_MS, S | R,
         body_timeout_ms,
         "Time for a client to send a whole request body",
         ""),
    TIME(ADVANCED, "idle-timeout-ms", "60000", 100, HOUR_MS, S | R,
         idle_timeout_ms,
         "Time after which an idle connection is closed",
         ""),
    TIME(ADVANCED, "ttft-target-ms", "0", 0, 24 * HOUR_MS, S | R,
         ttft_target_ms,
         "Target (SLO) of the time to first token, where requests name "
         "none; 0: none",
         "A request that would miss it gets 429 at once, with Retry-After"),
    TIME(ADVANCED, "itl-target-ms", "0", 0, HOUR_MS, S | R, itl_target_ms,
         "Target (SLO) of the mean inter-token latency, where requests name "
         "none; 0: none",
         "Decode workers get at most as many sequences at a time as keep it"),
    TARGETS(ADVANCED, "model-targets", S | R, model_targets,
         "Targets of single models: NAME=TTFT/ITL in ms, comma separated; "
         "0: none",
         "They replace --ttft-target-ms and --itl-target-ms for that model"),
    TIME(COMMON, "request-timeout-ms", "600000", 100, 24 * HOUR_MS, S | R,
         request_timeout_ms,
         "Maximum duration of a request",
         ""),
    SIZE32(ADVANCED, "client-buffer-bytes", "1m", 4096, GIGA, S | R,
         client_buffer_bytes,
         "Unread answer bytes after which a slow client is disconnected",
         ""),
    SIZE(ADVANCED, "http-memory", "0", 0, TERA, S | R, http_memory_bytes,
         "Memory for requests of all clients that are read or processed; 0: "
         "from the machine",
         "Half of it for one client. As much again for answers that are "
         "written, and for answers that clients have not read. At least 4 "
         "times --max-body-bytes. 0: a 16th of the available memory, 64m to "
         "1g"),
    SIZE(ADVANCED, "router-memory", "0", 0, 64 * TERA, S | R,
         router_memory_bytes,
         "Private memory of a router above which requests over 64 KiB get "
         "503",
         "Whatever takes the memory counts. 0: half of the available "
         "memory, at least 4 times --http-memory and 256m"),
    COUNT(ADVANCED, "max-connections", "0", 0, 1000000, "connections", S | R,
         max_connections,
         "Maximum number of client connections; 0: from the file descriptor "
         "limit",
         "0: at most 16384"),
    COUNT(ADVANCED, "max-connections-per-address", "4096", 0, 1000000,
         "connections", S | R, max_connections_per_address,
         "Maximum number of connections from one address; 0: no limit",
         "A reverse proxy or NAT is one address with all of its clients"),
    COUNT(ADVANCED, "sse-keepalive-s", "15", 0, 3600, "s", S | R,
         sse_keepalive_s,
         "Interval of keep-alive comments in a silent event stream (SSE); "
         "0: none",
         "A silent stream is one whose request is in the queue, in prefill "
         "or between two tokens. Clients skip comments; proxies keep the "
         "connection open"),
    COUNT(ADVANCED, "max-event-streams", "16", 0, 1000, "readers", S | R,
         max_event_streams,
         "Maximum number of readers of GET /v2/cluster/events; 0: none",
         ""),
    FLAG(ADVANCED, "expose-request-text", S | R, expose_request_text,
         "Include prompts and answers in GET /v2/cluster/requests/{id}",
         "The first 2 KiB of each. Every reader of that path can read what "
         "clients write"),
    TIME(ADVANCED, "worker-wait-ms", "30000", 0, HOUR_MS, S | R,
         worker_wait_ms,
         "Time that a request waits for a worker before it gets 503",
         "For a worker that the launcher is starting, a request waits until "
         "its own deadline"),
    FLAG(ADVANCED, "exclude-input-in-output", S | R, exclude_input_in_output,
         "Triton models leave the prompt out of text and ids where a "
         "request does not say",
         "Streams always leave it out"),
    CHOICE(ADVANCED, "unknown-fields", "warn", "ignore, warn, error", S | R,
         unknown_fields,
         "Handling of unknown JSON fields in requests",
         "warn: ignored, and named in the response header "
         "x-baton-ignored-fields. error: refused with an error that names "
         "them and what may have been meant"),
    FLAG(ADVANCED, "accumulate-tokens", S | R, accumulate_tokens,
         "Each response of a tensorrt_llm_bls stream contains all text so "
         "far",
         ""),
    TEXT(COMMON, "backend", "NAME", "cpu", S | WORKERS, backend,
         "Compute backend: cpu, cuda, auto or the NAME of a plugin",
         "auto: cuda where the host has an NVIDIA driver, else cpu. The "
         "plugin of NAME is baton_NAME.so"),
    CHOICE(ADVANCED, "numerics", "exact", "exact, tensor", S | WORKERS,
         numerics,
         "Numerics of the backend: the exact bits of the CPU, or tensor "
         "cores of the GPU",
         "exact: the bits of the CPU on every device. tensor: attention and "
         "products with F16, BF16 and FP8 weights use the tensor cores of a "
         "GPU, whose sums differ"),
    FLAG(ADVANCED, "allow-mixed-numerics", S | R, allow_mixed_numerics,
         "Accept workers of several numeric profiles",
         "A prompt may be prefilled by one and decoded by another. A "
         "request that is retried may get other tokens"),
    TEXT(COMMON, "devices", "LIST", "", S | WORKERS, devices,
         "GPUs to use, comma separated, as in CUDA_VISIBLE_DEVICES",
         "MIG-... too. baton serve distributes them among workers; the "
         "ranks of a worker share them. Empty: those of "
         "CUDA_VISIBLE_DEVICES, or all"),
    CHOICE(ADVANCED, "kv-transport", "auto", "auto, shm, network", S |
         WORKERS, kv_transport,
         "Transport of KV blocks",
         "auto: shared memory on one host, or GPU to GPU there; the network "
         "between hosts"),
    TEXT(COMMON, "kv-net-devices", "LIST", "lo", S | WORKERS, kv_net_devices,
         "Network interfaces for KV transfers, comma separated, of a "
         "private network",
         "The ranks of a worker take one each, in turn. Each interface must "
         "reach all interfaces of other workers"),
    TEXT(ADVANCED, "kv-port-range", "FIRST-LAST", "", S | WORKERS,
         kv_port_range,
         "Ports for KV transfers, such as 20000-20100, for firewalls; "
         "empty: any free ports",
         "Two ports for each worker, and for each of its ranks"),
    CHOICE(INTERNAL, "link-transport", "auto", "auto, nng", ALL,
         link_transport,
         "Transport of control messages",
         "auto: shared memory between a router and a worker on one host, "
         "nng between hosts"),
    CHOICE(COMMON, "log-level", "info", "error, warn, info, debug", ALL,
         log_level,
         "Least severe messages to log",
         ""),
    CHOICE(ADVANCED, "log-format", "text", "text, json", ALL, log_format,
         "Form of log messages: lines of text, or one JSON object per line",
         ""),
    TEXT(COMMON, "log-dir", "DIR", "", S, log_dir,
         "Directory for one log file per process; empty: standard error",
         ""),
    SIZE(ADVANCED, "log-max-bytes", "100m", 0, TERA, S, log_max_bytes,
         "Size at which a file of --log-dir is rotated to NAME.log.1; 0: "
         "never",
         ""),
    COUNT(ADVANCED, "log-keep", "5", 1, 1000, "files", S, log_keep,
         "Rotated files to keep for each process in --log-dir",
         "The oldest file is deleted"),
    TEXT(COMMON, "access-log", "FILE", "", S | R, access_log,
         "File to append one line to for each answered request; -: standard "
         "output; empty: none",
         ""),
    TEXT(ADVANCED, "store", "DIR", "", S | R, store,
         "Folder in which files, batches and responses of clients are kept; "
         "empty: none",
         "/v1/files, /v1/batches, /v1/responses. Created with mode 0700 if only it is missing, and closed to other "
         "users. For one router"),
    SIZE(ADVANCED, "store-limit", "10g", 1024 * 1024, 64 * TERA, S | R,
         store_limit_bytes,
         "Maximum size of all that --store keeps",
         "Each object counts 4 KiB more than its bytes"),
    SIZE(ADVANCED, "store-tenant-limit", "0", 0, 64 * TERA, S | R,
         store_tenant_limit_bytes,
         "Maximum size of what --store keeps for one tenant",
         "0: half of --store-limit where there are tenants (--api-keys, "
         "--tenant-header), else all of it"),
    COUNT(ADVANCED, "store-ttl-s", "2592000", 1, 315360000, "s", S | R,
         store_ttl_s,
         "Time after which --store deletes an object",
         "By default 30 days. A client may ask for less"),
    TEXT(ADVANCED, "store-key", "FILE", "", S | R, store_key,
         "File with a key that encrypts what --store keeps; empty: it is not "
         "encrypted",
         "And --response-store-dir: one key for all routers. XChaCha20-Poly1305. 16 to 4096 bytes of text or binary, which only "
         "the owner may read. Objects of another key are left alone and not "
         "found"),
    TEXT(ADVANCED, "response-store-dir", "DIR", "", S | R, response_store_dir,
         "Folder in which routers keep stored responses (/v1/responses) for "
         "each other",
         "Created with mode 0700 if only it is missing, and closed to other "
         "users. Each router has a folder of its own in it, NAME@HOST, and "
         "finds, continues and deletes the responses of all. Both should "
         "stay the same after a restart: else what it had counts no more "
         "towards its limit, and stays until it expires. Empty: in the "
         "folder of --store, or in memory"),
    SIZE(ADVANCED, "response-store-limit", "64m", 0, 64 * TERA, S | R,
         response_store_limit_bytes,
         "Maximum size of stored responses (/v1/responses); 0: none is stored",
         "Of each router. With --store in its folder responses, or with "
         "--response-store-dir, and those that do not say store false are "
         "stored; else in memory, and only those that say store true. A tenant has half of it where there are tenants; beyond "
         "it its oldest responses are deleted"),
    COUNT(ADVANCED, "response-store-ttl-s", "86400", 1, 315360000, "s", S | R,
         response_store_ttl_s,
         "Time after which a stored response is deleted", "By default a day"),
    COUNT(ADVANCED, "batch-lines-in-flight", "16", 1, 10000, "lines", S | R,
         batch_lines_in_flight,
         "Lines of batches (/v1/batches) that are processed at a time",
         "They have the lowest priority. Of all batches together"),
    TEXT(ADVANCED, "trace-file", "FILE", "", S | R, trace_file,
         "File to append the trace of each ended request to, one line of "
         "OTLP JSON; empty: none",
         ""),
    TEXT(ADVANCED, "otlp-traces-endpoint", "URL", "", S | R,
         otlp_traces_endpoint,
         "URL of an OpenTelemetry collector for traces (OTLP over HTTP, as "
         "JSON); empty: none",
         "For example http://127.0.0.1:4318. https:// uses the certificates "
         "that the system trusts. /v1/traces is appended where the URL does "
         "not end so"),
    TEXT(ADVANCED, "otlp-headers-file", "FILE", "", S | R, otlp_headers_file,
         "File with HTTP headers for --otlp-traces-endpoint, such as "
         "Authorization",
         "A line `Name: value` for each. Only its owner may have access to "
         "the file. Reloaded at SIGHUP"),
    SIZE(ADVANCED, "otlp-queue-bytes", "8m", 65536, GIGA, S | R,
         otlp_queue_bytes,
         "Memory for spans that wait for the collector; further spans are "
         "dropped and counted",
         ""),
    FLAG(ADVANCED, "enable-cpu-metrics", S | R, cpu_metrics,
         "Export nv_cpu_utilization and nv_cpu_memory_* in /metrics",
         ""),
    FLAG(ADVANCED, "enable-gpu-metrics", S | R, gpu_metrics,
         "Accepted as by Triton on a host without a GPU; refused on one "
         "with a GPU",
         "This version does not measure nv_gpu_*"),
    TIME(ADVANCED, "heartbeat-ms", "250", 10, HOUR_MS, ALL, heartbeat_ms,
         "Interval of heartbeats",
         ""),
    TIME(ADVANCED, "suspect-ms", "1000", 20, HOUR_MS, ALL, suspect_ms,
         "Silence after which a peer gets no new work",
         ""),
    TIME(ADVANCED, "dead-ms", "2500", 40, HOUR_MS, ALL, dead_ms,
         "Silence after which a peer counts as dead",
         ""),
    TIME(ADVANCED, "compute-watchdog-ms", "120000", 100, HOUR_MS, S | WORKERS,
         compute_watchdog_ms,
         "Longest time without a finished layer operation before a worker "
         "exits to be restarted",
         ""),
    TIME(ADVANCED, "lame-duck-ms", "2000", 0, HOUR_MS, S | R, lame_duck_ms,
         "Time for which a stopping router is not ready but still accepts "
         "requests",
         "Load balancers notice it within this time. None where no client "
         "asked for readiness within 30 s"),
    FLAG(ADVANCED, "core-dumps", ALL, core_dumps,
         "Let a crash write a core dump, which has keys and prompts",
         "The limits of the system apply"),
    TIME(ADVANCED, "watchdog-ms", "10000", 0, HOUR_MS, S, watchdog_ms,
         "Silence of an event loop after which the launcher kills and "
         "restarts the process",
         "At least 500, or 0: never, for a debugger"),
    TIME(ADVANCED, "drain-ms", "30000", 0, HOUR_MS, ALL, drain_ms,
         "Maximum time to finish running requests at SIGTERM",
         ""),
    TEXT(COMMON, "join", "URL[,URL]", "", WORKERS, join,
         "Control URLs of the routers to work for, comma separated",
         ""),
    TEXT(ADVANCED, "join-dir", "DIR", "", R | WORKERS, join_dir,
         "Directory shared by routers and workers for discovery",
         "A router keeps a file with its --listen address there while it "
         "takes requests. A worker works for all routers that it finds "
         "there, as they come and go"),
    TEXT(COMMON, "listen", "URL", "", R, listen,
         "Control URL at which the router accepts workers",
         ""),
    TEXT(ADVANCED, "rank-host", "ADDR", "127.0.0.1", WORKERS, rank_host,
         "Address at which rank 0 accepts the other ranks of its instance",
         "For --tp and --pp over several hosts. Control links need no "
         "address: workers dial their routers"),
    TEXT(INTERNAL, "launcher", "PATH", "", R, launcher,
         "Socket of the launcher that started this router; empty: none",
         "It reports processes to the router and takes administration "
         "commands"),
    TEXT(ADVANCED, "run-dir", "DIR", "", R | WORKERS, run_dir,
         "Directory for the sockets of processes on one host",
         ""),
    TEXT(COMMON, "cluster-key-file", "FILE", "", R | WORKERS,
         cluster_key_file,
         "File with the cluster key, the same for all processes",
         "Or with a MUNGE credential that contains the key, made for this "
         "user alone"),
    TEXT(ADVANCED, "munge-socket", "PATH", "", R | WORKERS, munge_socket,
         "Socket of munged, where --cluster-key-file is a credential; "
         "empty: the default of munged",
         ""),
    TEXT(ADVANCED, "name", "NAME", "", R | WORKERS, name,
         "Name of this instance in logs and metrics",
         ""),
};
/* clang-format on */

const bt_option_t *bt_config_option_find(const char *name, size_t n)
{
    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        const bt_option_t *option = &bt_config_options[i];

        if ((strlen(option->name) == n) &&
            (memcmp(option->name, name, n) == 0)) {
            return option;
        }
    }
    return NULL;
}

const char *bt_config_section(const bt_option_t *option)
{
    static const struct {
        const char *title;
        const char *first; /* its options follow one another in the table */
    } sections[] = {
        {"Models", "model"},
        {"Processes and cores", "prefill"},
        {"Addresses and access", "http"},
        {"Memory", "kv-memory"},
        {"Batches", "max-batch-size"},
        {"Requests and their limits", "tokenizer-threads"},
        {"Devices and transports", "backend"},
        {"Logs, traces and metrics", "log-level"},
        {"Failures and stopping", "heartbeat-ms"},
        {"Other options", "join"},
    };
    size_t i = BT_ARRAY_LEN(sections) - 1;

    while (option < bt_config_option_find(sections[i].first,
                                          strlen(sections[i].first))) {
        i--;
    }
    return sections[i].title;
}

void bt_config_option_env(const bt_option_t *option, char *out, size_t bytes)
{
    static const char prefix[] = "BATON_";
    size_t n = 0;

    BT_ASSERT(sizeof(prefix) + strlen(option->name) <= bytes);
    for (const char *c = prefix; (*c != '\0') && (n + 1 < bytes); c++) {
        out[n++] = *c;
    }
    for (const char *c = option->name; (*c != '\0') && (n + 1 < bytes); c++) {
        out[n++] = (*c == '-') ? '_' : (char)toupper((unsigned char)*c);
    }
    out[n] = '\0';
}
