/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config/config_options.h"

#include <ctype.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/fuzzy_match.h"

#define S       BT_PROG_SERVE
#define R       BT_PROG_ROUTER
#define P       BT_PROG_PREFILL
#define D       BT_PROG_DECODE
#define ALL     (S | R | P | D)
#define WORKERS (P | D)
#define TERA    (UINT64_C(1) << 40)
#define GIGA    (UINT64_C(1) << 30)
#define HOUR_MS UINT64_C(3600000)

#define TEXT(name, metavar, def, programs, field, help)               \
    {                                                                 \
        name, BT_OPTION_TEXT, metavar, def, 0, 0, "", NULL, programs, \
            offsetof(bt_config_t, field), help                        \
    }
#define CHOICE(name, def, choices, programs, field, help)                 \
    {                                                                     \
        name, BT_OPTION_CHOICE, "NAME", def, 0, 0, "", choices, programs, \
            offsetof(bt_config_t, field), help                            \
    }
#define ADDRESS(name, def, programs, field, help)                            \
    {                                                                        \
        name, BT_OPTION_ADDRESS, "ADDR:PORT", def, 0, 0, "", NULL, programs, \
            offsetof(bt_config_t, field), help                               \
    }
#define COUNT(name, def, min, max, unit, programs, field, help)          \
    {                                                                    \
        name, BT_OPTION_COUNT, "N", def, min, max, unit, NULL, programs, \
            offsetof(bt_config_t, field), help                           \
    }
#define TIME(name, def, min, max, programs, field, help)                  \
    {                                                                     \
        name, BT_OPTION_COUNT, "MS", def, min, max, "ms", NULL, programs, \
            offsetof(bt_config_t, field), help                            \
    }
#define SIZE(name, def, min, max, programs, field, help)                 \
    {                                                                    \
        name, BT_OPTION_SIZE, "SIZE", def, min, max, "", NULL, programs, \
            offsetof(bt_config_t, field), help                           \
    }
#define SIZE32(name, def, min, max, programs, field, help)                 \
    {                                                                      \
        name, BT_OPTION_SIZE32, "SIZE", def, min, max, "", NULL, programs, \
            offsetof(bt_config_t, field), help                             \
    }
#define FLAG(name, programs, field, help)                           \
    {                                                               \
        name, BT_OPTION_FLAG, NULL, "no", 0, 1, "", NULL, programs, \
            offsetof(bt_config_t, field), help                      \
    }
#define SWITCH(name, choices, programs, field, help)                        \
    {                                                                       \
        name, BT_OPTION_SWITCH, "NAME", "off", 0, 0, "", choices, programs, \
            offsetof(bt_config_t, field), help                              \
    }

#define PORT(name, programs, field, help)                             \
    {                                                                 \
        name, BT_OPTION_PORT, "N", "0", 0, 65535, "", NULL, programs, \
            offsetof(bt_config_t, field), help                        \
    }
#define MODELS(name, programs, field, help)                                  \
    {                                                                        \
        name, BT_OPTION_MODELS, "[NAME=]PATH", "", 0, 0, "", NULL, programs, \
            offsetof(bt_config_t, field), help                               \
    }

#define TARGETS(name, programs, field, help)                              \
    {                                                                     \
        name, BT_OPTION_TARGETS, "NAME=TTFT/ITL,...", "", 0, 0, "", NULL, \
            programs, offsetof(bt_config_t, field), help                  \
    }

#define SAMPLING(name, programs, field, help)                           \
    {                                                                   \
        name, BT_OPTION_SAMPLING, "JSON", "", 0, 0, "", NULL, programs, \
            offsetof(bt_config_t, field), help                          \
    }

/* clang-format off */
const bt_option_t bt_config_options[] = {
    MODELS("model", ALL, model,
           "Model to serve: a GGUF file, a folder with config.json and "
           "safetensors, or the name of one that ./baton list shows; and the "
           "name under which clients find "
           "it (without spaces and / \" \\ , =); no name: that of the list, of the file, "
           "without .gguf, or of the folder. baton serve and the router take up to 16: the "
           "option again for each, a line for each in a file, a semicolon "
           "between them in BATON_MODEL"),
    TEXT("model-name", "NAME", "", ALL, model_name,
         "Name of the model (the first one) where --model gives none"),
    TEXT("models-dir", "DIR", "", ALL, models_dir,
         "Folder of models, where --model NAME looks; empty: "
         "$XDG_CACHE_HOME/baton (~/.cache/baton)"),
    COUNT("prefill", "1", 0, 256, "workers", S, prefill,
          "Prefill workers to start for each model; 0 only with "
          "--local-prefill on"),
    COUNT("decode", "1", 1, 256, "workers", S, decode,
          "Decode workers to start for each model"),
    COUNT("routers", "1", 1, BT_CONFIG_MAX_ROUTERS, "routers", S, routers,
          "Routers to start, all for the same workers; each next one listens "
          "at the ports of --http, --grpc and --metrics plus 10"),
    FLAG("share-http", S | R, share_http,
         "All routers listen at the one port of --http, and the kernel deals "
         "out connections among them"),
    COUNT("threads-prefill", "0", 0, 1024, "threads", S, threads_prefill,
          "Compute threads of each prefill worker; 0: share the cores"),
    COUNT("threads-decode", "0", 0, 1024, "threads", S, threads_decode,
          "Compute threads of each decode worker; 0: share the cores"),
    COUNT("threads", "0", 0, 1024, "threads", WORKERS, threads,
          "Compute threads; 0: one for each core that the process may use"),
    COUNT("sum-parts", "0", 0, 16, "parts", S | WORKERS, sum_parts,
          "Parts of the sums that ranks share, which workers with the same "
          "number give the same bits, whatever their --tp: a multiple of it; "
          "0: for a worker as many as its ranks, for baton serve as the "
          "largest of --prefill-tp and --decode-tp"),
    COUNT("prefill-tp", "1", 1, 16, "ranks", S, prefill_tp,
          "Ranks of each prefill worker: --tp"),
    COUNT("decode-tp", "1", 1, 16, "ranks", S, decode_tp,
          "Ranks of each decode worker: --tp"),
    COUNT("tp", "1", 1, 16, "ranks", WORKERS, tp,
          "Ranks of each of a worker's stages, each a process with a share of "
          "the heads, of the feed-forward and of the words (tensor "
          "parallelism), and of its cores"),
    COUNT("prefill-pp", "1", 1, 16, "stages", S, prefill_pp,
          "Stages of layers of each prefill worker: --pp"),
    COUNT("decode-pp", "1", 1, 16, "stages", S, decode_pp,
          "Stages of layers of each decode worker: --pp"),
    COUNT("pp", "1", 1, 16, "stages", WORKERS, pp,
          "Stages of this worker's layers, each of --tp ranks: a stage works on "
          "some rows while the next one works on those before them"),
    COUNT("standby", "0", 0, 64, "processes", S, standby,
          "Processes for each model that have its weights mapped and take the "
          "place of a worker that ends by itself, in less time than another "
          "start takes; they compute on no cores of their own; as many for each "
          "shape, where prefill and decode workers differ in ranks or stages"),
    COUNT("place-from", "0", 0, 1023, "descriptor", WORKERS, place_from,
          "Descriptor from which the launcher tells this process whose place it "
          "takes; 0: it is a worker from the beginning"),
    TEXT("cores", "LIST", "", WORKERS, cores,
         "Cores to pin the compute threads to, such as 0-3,8; empty: no "
         "pinning"),
    COUNT("worker-nice", "5", 0, 19, "", S | WORKERS, worker_nice,
          "Added to the nice value of workers that compute on the CPU "
          "(setpriority(2)), so that a router on the same cores gets one before "
          "they do; 0: workers and routers are equal"),
    SIZE("kv-memory", "0", 0, 64 * TERA, S | WORKERS, kv_memory_bytes,
         "Memory for the KV cache of each worker; 0: from the model and the "
         "machine"),
    CHOICE("lend-cores", "on", "on, idle, off", S | WORKERS, lend_cores,
           "Where each worker has cores of its own: while it has no work the "
           "others compute there too, with threads of the kernel's idle class, "
           "which give way as soon as it has some. on: and while a prompt has "
           "waited for four times as long as it takes, who generates sleeps "
           "after each iteration for up to as long as that took, within "
           "--chunk-itl-ms; idle: no such sleep"),
    TEXT("lent-cores", "LIST", "", WORKERS, lent_cores,
         "Cores of other workers of this machine, such as 4-7, to compute on "
         "while these have no work, the nearest first; the launcher says them"),
    CHOICE("role", "auto", "auto, prefill, decode, both", WORKERS, role,
           "What the worker is given until an order says otherwise; auto: what "
           "its program is called"),
    COUNT("max-batch", "64", 1, 4096, "seats", S | WORKERS, max_batch,
          "Sequences that a worker runs at the same time"),
    COUNT("chunk-tokens", "0", 0, 65536, "tokens", S | WORKERS,
          chunk_tokens,
          "Prompt tokens computed in one iteration of the context phase, a "
          "block at least; 0: tuned while running from what iterations take, "
          "up to 1024"),
    COUNT("chunk-itl-ms", "50", 1, 60000, "ms", S | WORKERS, chunk_itl_ms,
          "Time between two tokens that a tuned chunk leaves to those who "
          "generate at the same worker; where they alone need more than half "
          "of it, at most twice what they need"),
    CHOICE("prefill-order", "srpt", "srpt, fcfs, deadline", ALL, prefill_order,
           "Which prompts are computed first, at equal priority: those with the "
           "least left to compute, where each lets others pass for four times "
           "the time that it takes itself and two minutes at most; first come, "
           "first served; or those whose time-out is next"),
    CHOICE("decode-order", "prompt", "prompt, fcfs, length", S | WORKERS,
           decode_order,
           "Which sequences come to generate first, at equal priority: in the "
           "order of their prompts, by --prefill-order; first come, first "
           "served; or those with the shortest answers, by the tokens that they "
           "may have, where each lets others pass for four times the time that "
           "it takes itself and two minutes at most: static batches are then of "
           "like lengths"),
    CHOICE("scheduler-policy", "guaranteed_no_evict",
           "guaranteed_no_evict, max_utilization", ALL, scheduler_policy,
           "What a sequence holds blocks for where it generates: all that it may "
           "ever need, so that it never waits; or what it has, so that more run "
           "at a time, and where blocks run out the last in order makes room and "
           "goes on later, with the same tokens"),
    ADDRESS("http", "127.0.0.1:8000", S | R, http,
            "Where to serve HTTP"),
    PORT("port", S | R, port,
         "The port of --http, where its address is as it should be; no variable "
         "of the environment"),
    ADDRESS("grpc", BT_CONFIG_GRPC_DEFAULT, S | R, grpc,
            "Where to serve gRPC"),
    ADDRESS("metrics", "127.0.0.1:8002", S | R, metrics,
            "Where to serve /metrics"),
    TEXT("tls-cert", "FILE", "", S | R, tls_cert,
         "Certificate (PEM, with those up to its root behind it) to serve "
         "HTTP and gRPC over TLS with; empty: they are plain. /metrics is "
         "always plain. Read anew at SIGHUP, together with --tls-key"),
    TEXT("tls-key", "FILE", "", S | R, tls_key,
         "Private key (PEM, without a passphrase) of --tls-cert, which only "
         "its user may read"),
    TEXT("tls-client-ca", "FILE", "", S | R, tls_client_ca,
         "Certificates (PEM) one of which must have signed that of a client; "
         "empty: clients need none"),
    TEXT("api-keys", "FILE", "", S | R, api_keys,
         "File with the hashes of API keys, the tenant of each and its limits; "
         "every request but those for health then needs a key. ./baton key new "
         "TENANT makes one. Read anew at SIGHUP; empty: no key is asked for"),
    TEXT("tenant-header", "NAME", "", S | R, tenant_header,
         "Header, such as X-Baton-Tenant, in which a gateway says whose request "
         "it is, where there are no keys; whoever reaches the server may say "
         "anything there; empty: all requests are one tenant's"),
    CHOICE("orders-without-keys", "own-user", "own-user, anybody", S | R,
           orders_without_keys,
           "Whose orders are taken where there are no keys (load and unload "
           "models, drain workers, change settings; HTTP and gRPC): own-user: "
           "processes on the router's host of its own user or of root; anybody: "
           "whoever reaches the port"),
    FLAG("insecure", S | R, insecure,
         "Listen beyond loopback though nobody needs a key: whoever reaches the "
         "ports may use the server"),
    TEXT("allowed-hosts", "NAME[,NAME]", "", S | R, allowed_hosts,
         "Names by which clients, load balancers and web pages may call the "
         "server, beside addresses, localhost, this machine's name and those "
         "of --http, --metrics and --grpc; *.NAME: all below it; *: anything"),
    CHOICE("reasoning", "auto",
           "auto, off, think, seed, mistral, thinking, thought, reasoning, "
           "granite",
           S | R, reasoning,
           "How a model marks what it thinks before it answers, which chat's "
           "answers have as reasoning_content: <think>, <seed:think>, [THINK] "
           "and so on; auto: as the file's chat template has it; off: all is "
           "content"),
    SAMPLING("override-generation-config", S | R, override_generation_config,
             "Sampling of requests of the OpenAI API that do not say theirs, in "
             "the place of what each model's file recommends: temperature, "
             "top_p, top_k, min_p, repetition_penalty, such as "
             "{\"temperature\":0.2,\"top_p\":0.9}"),
    CHOICE("tool-format", "auto",
           "auto, off, hermes, llama3, mistral, pythonic", S | R, tool_format,
           "How a model writes that it calls a tool, which chat's answers have "
           "as tool_calls: hermes (Qwen, too): JSON in <tool_call>; llama3: "
           "JSON alone; mistral: behind [TOOL_CALLS]; pythonic: [f(a=1)]; "
           "auto: as the chat template has it; off: requests with tools are "
           "refused"),
    TEXT("cors-origins", "ORIGIN[,ORIGIN]", "", S | R, cors_origins,
         "Web pages whose scripts may use the server from a browser, such as "
         "https://example.org or http://localhost:3000; *: all pages of "
         "everybody; empty: none but what the server's own address shows"),
    TEXT("chat-template", "NAME|FILE", "", S | R, chat_template,
         "Chat template: the name of a family, or a file with a Jinja text; "
         "empty: the model file's own"),
    CHOICE("chat-template-content-format", "auto", "auto, string, openai",
           S | R, content_format,
           "How a chat template gets the content of a message: string: parts "
           "are joined by line ends; openai: a list of parts, also of a "
           "string; auto: as the client sent it, where the template shows "
           "that form"),
    CHOICE("log-level", "info", "error, warn, info, debug", ALL, log_level,
           "Least severe messages to print"),
    CHOICE("log-format", "text", "text, json", ALL, log_format,
           "Form of the messages: lines to read, or one JSON object per line"),
    TEXT("log-dir", "DIR", "", S, log_dir,
         "Directory for one log file per process; empty: standard error"),
    SIZE("log-max-bytes", "100m", 0, TERA, S, log_max_bytes,
         "Size at which a file of --log-dir is moved aside, to NAME.log.1; 0: "
         "never"),
    COUNT("log-keep", "5", 1, 1000, "files", S, log_keep,
          "Files of each process that are kept aside in --log-dir; the oldest "
          "goes"),
    TEXT("access-log", "FILE", "", S | R, access_log,
         "File to append one line to for each request that was answered; -: "
         "standard output; empty: none"),
    TEXT("trace", "FILE", "", S | R, trace,
         "File to append one line of JSON to for each request that ended, with "
         "where its time went (OpenTelemetry's OTLP); empty: none"),
    TEXT("otlp", "URL", "", S | R, otlp,
         "OpenTelemetry collector that gets the same while the server runs, by "
         "OTLP over HTTP as JSON, such as http://127.0.0.1:4318, or https:// "
         "by the certificates that this system trusts; /v1/traces is added "
         "where the URL does not end so; empty: none"),
    TEXT("otlp-headers", "FILE", "", S | R, otlp_headers,
         "Headers for --otlp, such as Authorization: a file that only its "
         "owner may read, with a line `Name: value` for each; read anew at "
         "SIGHUP"),
    SIZE("otlp-queue", "8m", 65536, GIGA, S | R, otlp_queue_bytes,
         "Memory for what waits for --otlp; what finds no room there is "
         "dropped and counted"),
    TEXT("backend", "NAME", "cpu", S | WORKERS, backend,
         "What computes the model: cpu, cuda, auto (cuda where the host has an "
         "NVIDIA driver, else cpu), or another NAME whose plugin baton_NAME.so "
         "is installed"),
    CHOICE("numerics", "exact", "exact, tensor", S | WORKERS, numerics,
           "Whose numbers a back end computes: exact: the bits of the CPU, on "
           "every device; tensor: products with F16, BF16 and FP8 weights "
           "and attention by a GPU's tensor cores, whose sums are its own"),
    FLAG("mixed-profiles", S | R, mixed_profiles,
         "Take workers of several numeric profiles: a prompt may be computed "
         "by one and go on at another; a request that runs again may get other "
         "tokens"),
    TEXT("devices", "LIST", "", S | WORKERS, devices,
         "GPUs, with commas, as CUDA_VISIBLE_DEVICES names them (also MIG-...); "
         "serve deals them out, the ranks of a worker share them; empty: those "
         "of that variable, or all there are"),
    CHOICE("transport", "auto", "auto, shm, network", S | WORKERS, transport,
           "How KV blocks travel; auto: shared memory on one host, or from GPU "
           "to GPU there, the network between hosts"),
    TEXT("net-device", "LIST", "lo", S | WORKERS, net_device,
         "Network interface that carries KV blocks; must be a private "
         "network. Of several, with commas, the ranks of a worker take one "
         "each, in turn; each must reach all of the other workers'"),
    TEXT("kv-port-range", "FIRST-LAST", "", S | WORKERS, kv_port_range,
         "Ports at which workers listen for KV blocks, such as 20000-20100, for "
         "firewalls between their hosts; two for each worker, and for each of "
         "its ranks; empty: any free ports"),
    CHOICE("kv-type", "bf16", "bf16, f16, int8, fp8", S | WORKERS, kv_type,
           "Number format of the KV cache, the same for all workers; int8 and fp8 "
           "have a scale per token and head and take about half the memory and "
           "wire"),
    CHOICE("kv-overlap", "layers", "layers, chunks, none", S | WORKERS,
           kv_overlap,
           "What of a prompt's KV leaves while the rest is computed: finished "
           "chunks and of the last one finished layers, finished chunks only, "
           "or nothing (to compare)"),
    CHOICE("late-join", "on", "on, off", S | WORKERS, late_join,
           "A sequence whose KV has come joins the iteration that is under way, "
           "between two layers; off: the next one (to compare)"),
    CHOICE("steps-ahead", "auto", "auto, on, off", S | WORKERS, steps_ahead,
           "An iteration on a GPU is prepared, and begun, while the one before "
           "is under way: with auto where that saves a 64th of its time at "
           "least, with on wherever it can be; off: after the one before"),
    COUNT("rehearse-us", "0", 0, 1000000, "us", S | WORKERS, rehearse_us,
          "So long takes an iteration at least, by waiting: with a small model "
          "a rehearsal of a large one, on few cores; 0: as long as it takes"),
    COUNT("rehearse-token-us", "0", 0, 100000, "us", S | WORKERS, rehearse_token_us,
          "The same, more for each token that it computes"),
    COUNT("tokens-per-block", "16", 1, 256, "tokens", S | WORKERS,
          tokens_per_block, "Tokens in one KV block; an even number"),
    COUNT("context-tokens", "0", 0, 1u << 24, "tokens", ALL, context_tokens,
          "Longest prompt plus answer; 0: the model's own limit"),
    CHOICE("prefix-cache", "on", "on, off", S | WORKERS, prefix_cache,
           "Keep the KV blocks of prompts, so that a prompt that begins like an "
           "earlier one computes only the rest"),
    TEXT("weight-cache", "auto|off|DIR", "auto", S | WORKERS, weight_cache,
         "Folder in which packed weights are kept, for the next start and for "
         "all workers of one host, which share one copy; auto: "
         "$XDG_CACHE_HOME/baton/weights (~/.cache/baton/weights); off: each "
         "worker packs for itself"),
    SWITCH("local-prefill", "auto, on, off", S | WORKERS, local_prefill,
           "Decode workers run the context phase too, of all prompts where no "
           "prefill worker is left, and: on (or no value) of a share of those "
           "that queue up; auto of each prompt that gains more time by it than "
           "the batch there loses, as steps and transfers were measured"),
    TEXT("join", "URL[,URL]", "", WORKERS, join,
         "Control URLs of the routers to work for"),
    TEXT("join-dir", "DIR", "", R | WORKERS, join_dir,
         "Directory that routers and workers share: a router keeps a file with "
         "its --listen address there while it takes requests, and a worker "
         "works for those that it finds, as they come and go"),
    TEXT("listen", "URL", "", R, listen,
         "Control URL at which workers announce themselves"),
    TEXT("listen-host", "ADDR", "127.0.0.1", WORKERS, listen_host,
         "Address of the worker's own control links"),
    FLAG("workers-pinned", R, workers_pinned,
         "Every worker of this machine has --cores of its own, so the router's "
         "threads may use them for longer at a time and still come first; the "
         "launcher says so where it is true"),
    TEXT("launcher", "PATH", "", R, launcher,
         "Socket of the launcher that started this router, which tells it what "
         "runs and takes its orders; empty: there is none"),
    TEXT("run-dir", "DIR", "", R | WORKERS, run_dir,
         "Directory for the sockets of processes on one host"),
    TEXT("key-file", "FILE", "", R | WORKERS, key_file,
         "File with the cluster key, the same for all processes; or with a MUNGE "
         "credential that has it, made for this user alone"),
    TEXT("munge-socket", "PATH", "", R | WORKERS, munge_socket,
         "Socket of munged, for a --key-file that is a credential; empty: "
         "munged's own"),
    TEXT("name", "NAME", "", R | WORKERS, name,
         "Name of this instance in logs and metrics"),
    TIME("heartbeat-ms", "250", 10, HOUR_MS, ALL, heartbeat_ms,
         "Time between two heartbeats"),
    CHOICE("link-transport", "auto", "auto, nng", ALL, link_transport,
           "How control messages travel; auto: memory that router and worker "
           "share on one host, nng between hosts"),
    TIME("suspect-ms", "1000", 20, HOUR_MS, ALL, suspect_ms,
         "Silence after which a peer gets no new work"),
    TIME("dead-ms", "2500", 40, HOUR_MS, ALL, dead_ms,
         "Silence after which a peer counts as dead"),
    TIME("stuck-ms", "120000", 100, HOUR_MS, S | WORKERS, stuck_ms,
         "How long a worker that computes may end no operation of a layer "
         "before it ends itself, to be started again"),
    TIME("quarantine-ms", "10000", 100, HOUR_MS, S | WORKERS, quarantine_ms,
         "Longest time that blocks of a revoked lease are set aside"),
    COUNT("waiting-kv-percent", "50", 1, 99, "percent", S | WORKERS,
          waiting_kv_percent,
          "Share of a worker's blocks for finished KV that waits for its "
          "transfer"),
    COUNT("parse-threads", "0", 0, 256, "threads", S | R, parse_threads,
          "Threads of the router that read large bodies and turn them into "
          "tokens, at least 2; 0: a quarter of the cores, from 2 to 8"),
    FLAG("client-priority", S | R, client_priority,
         "Take the priority that requests ask for (docs/CLIENTS.md says which "
         "way each API's number goes); else all have the same, for any client "
         "could put itself before the others"),
    COUNT("max-queue", "4096", 1, 1000000, "requests", S | R, max_queue,
          "Requests in flight before new ones are answered with 429"),
    SIZE("max-logits-bytes", "64m", 0, 64 * (uint64_t)GIGA, S | R | WORKERS,
         max_logits_bytes,
         "Logits that one request may ask for, 4 bytes for each token of the "
         "vocabulary and each position, kept by the worker and by the router "
         "until the answer is sent; 0: none"),
    SIZE("max-body-bytes", "8m", 1024, GIGA, S | R, max_body_bytes,
         "Longest request body"),
    TIME("header-timeout-ms", "10000", 100, HOUR_MS, S | R, header_timeout_ms,
         "Time for a client to send a whole request header"),
    TIME("body-timeout-ms", "30000", 100, HOUR_MS, S | R, body_timeout_ms,
         "Time for a client to send a whole request body"),
    TIME("idle-timeout-ms", "60000", 100, HOUR_MS, S | R, idle_timeout_ms,
         "How long an idle connection stays open"),
    TIME("ttft-target-ms", "0", 0, 24 * HOUR_MS, S | R, ttft_target_ms,
         "Time to the first token that requests are to have, unless they name "
         "one: whoever would be later gets 429 at once, with the time after "
         "which to come again; 0: none"),
    TIME("itl-target-ms", "0", 0, HOUR_MS, S | R, itl_target_ms,
         "Mean time between tokens that requests are to have, unless they name "
         "one: decode workers get no more sequences at a time than keep it; "
         "0: none"),
    TARGETS("model-targets", S | R, model_targets,
            "Targets of single models in the place of those of all: ms to the "
            "first token / between tokens, each 0 for none"),
    TIME("request-timeout-ms", "600000", 100, 24 * HOUR_MS, S | R,
         request_timeout_ms, "Longest time that one request may take"),
    SIZE32("client-buffer-bytes", "1m", 4096, GIGA, S | R,
           client_buffer_bytes,
           "Unread answer bytes that one client may leave before it is cut "
           "off"),
    SIZE("http-memory", "0", 0, TERA, S | R, http_memory_bytes,
         "Memory for the requests of all clients that are being read or worked "
         "on, half of it for one client; as much again for answers that are "
         "written, and for those that they have not read; at least 4 times "
         "--max-body-bytes; 0: a 16th of what is available, 64m to 1g"),
    SIZE("router-memory", "0", 0, 64 * TERA, S | R, router_memory_bytes,
         "Private memory of a router over which requests of more than 64 KiB "
         "are refused with 503, whatever takes it; 0: half of what is "
         "available, at least 4 times http-memory and 256m"),
    COUNT("max-connections", "0", 0, 1000000, "connections", S | R,
          max_connections,
          "Connections of clients at a time; 0: what the limit of file "
          "descriptors allows, at most 16384"),
    COUNT("max-client-connections", "4096", 0, 1000000, "connections", S | R,
          max_client_connections,
          "Connections from one address at a time; a reverse proxy or NAT is "
          "one address with all of its clients; 0: no limit"),
    COUNT("sse-keepalive-s", "15", 0, 3600, "s", S | R, sse_keepalive_s,
          "A streamed answer (SSE) that has been silent for so long, in the "
          "queue, in the context phase or between tokens, gets a comment line, "
          "which clients skip, so that no proxy takes it for dead; 0: none"),
    COUNT("max-watchers", "16", 0, 1000, "readers", S | R, max_watchers,
          "Readers of GET /v2/cluster/events at a time; 0: none may"),
    FLAG("request-texts", S | R, request_texts,
         "GET /v2/cluster/requests/{id} tells the beginnings of prompt and "
         "answer, too, 2 KiB of each: who may read that reads what clients "
         "write"),
    TIME("worker-wait-ms", "30000", 0, HOUR_MS, S | R, worker_wait_ms,
         "How long a request waits for a worker before it is answered with "
         "503; for one that the launcher starts (again) it waits to its own "
         "deadline"),
    TIME("lame-duck-ms", "2000", 0, HOUR_MS, S | R, lame_duck_ms,
         "How long a router that stops says it is not ready and takes requests "
         "all the same, for balancers to notice; none where nobody asked for "
         "its readiness within 30 s"),
    FLAG("core-dumps", ALL, core_dumps,
         "Let a crash write a core dump, as the limits of the system have it; "
         "it holds keys and prompts"),
    TIME("watchdog-ms", "10000", 0, HOUR_MS, S, watchdog_ms,
         "A router or worker whose loop is silent for so long is hung: it is "
         "killed and started again; at least 500, or 0: never, for a "
         "debugger"),
    TIME("drain-ms", "30000", 0, HOUR_MS, ALL, drain_ms,
         "Longest time to finish running requests at SIGTERM"),
    TEXT("model-repository", "DIR", "", S | R, model_repository,
         "Folder with the config.pbtxt of preprocessing, tensorrt_llm, "
         "postprocessing, ensemble and tensorrt_llm_bls, as Triton has it; what "
         "they set takes effect where no option says otherwise"),
    CHOICE("batching-strategy", "inflight_fused_batching",
           "inflight_fused_batching, inflight_batching, V1", ALL,
           batching_strategy,
           "Who generates together: whoever comes joins the others with the "
           "next iteration, which both names of in-flight batching mean; or V1, "
           "a baseline: static batches, each started as one, and nobody joins "
           "until all of it have ended. With V1 /metrics has "
           "nv_trt_llm_v1_metrics in place of in-flight's family, and "
           "--late-join is off"),
    FLAG("exclude-input-in-output", S | R, exclude_input_in_output,
         "The text and ids of Triton's models leave the prompt out where a "
         "request does not say it; a stream's always do"),
    CHOICE("unknown-fields", "warn", "ignore, warn, error", S | R,
           unknown_fields,
           "What becomes of fields of a client's JSON that nobody here knows: "
           "ignored; ignored and named in the answer's header "
           "x-baton-ignored-fields; or an error that names them and what may "
           "have been meant"),
    FLAG("accumulate-tokens", S | R, accumulate_tokens,
         "Each response of a stream of tensorrt_llm_bls has all text so far"),
    CHOICE("shared-memory", "off", "off, on", S | R, shared_memory,
           "Whether clients may pass tensors in POSIX shared memory of this "
           "host; whoever reaches the server can then have it read and write "
           "any such memory of its own user by name"),
    CHOICE("out-of-vocabulary-ids", "refuse", "refuse, modulo", S | R,
           out_of_vocabulary_ids,
           "What becomes of token ids of a prompt that the model does not have: "
           "the request is refused; or each counts modulo the vocabulary, for "
           "load generators that draw any number as an id"),
    COUNT("queue-delay-us", "0", 0, 1000000, "us", S | R, queue_delay_us,
          "How long a request waits in the router for others, to be sent to "
          "workers together with them"),
    COUNT("kv-tokens", "0", 0, 1u << 30, "tokens", S | WORKERS, kv_tokens,
          "Tokens of KV that each worker holds at most; 0: as many as "
          "--kv-memory has room for"),
    COUNT("kv-free-percent", "0", 0, 100, "percent", S | WORKERS,
          kv_free_percent,
          "Share for KV of the memory that the model leaves, where --kv-memory "
          "is 0; of the host's, which others need too, never more than by "
          "default; 0: a quarter"),
    FLAG("enable-cpu-metrics", S | R, cpu_metrics,
         "/metrics has nv_cpu_utilization and nv_cpu_memory_*"),
    FLAG("enable-gpu-metrics", S | R, gpu_metrics,
         "Taken where there is no GPU, and so no series of nv_gpu_*, as Triton "
         "has it; refused where there is one: this version does not measure it"),
    TEXT("vertex-health-route", "PATH", "", S | R, vertex_health_route,
         "Path of Vertex AI's health checks; empty: that of AIP_HEALTH_ROUTE, "
         "if it is set"),
    TEXT("vertex-predict-route", "PATH", "", S | R, vertex_predict_route,
         "Path of Vertex AI's predictions; empty: that of AIP_PREDICT_ROUTE, if "
         "it is set"),
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

/* @param [out] distance_p  SIZE_MAX: none is near enough */
static const bt_option_t *closest(const char *name, size_t n, unsigned programs,
                                  size_t *distance_p)
{
    const bt_option_t *best = NULL;

    *distance_p = SIZE_MAX;
    if (n > BT_FUZZY_MAX_BYTES) {
        return NULL;
    }
    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        const bt_option_t *option = &bt_config_options[i];
        const size_t n_name = strlen(option->name);
        const size_t distance = bt_edit_distance(name, n, option->name, n_name);

        if (((option->programs & programs) != 0) && (distance < *distance_p) &&
            bt_fuzzy_is_close(distance, n_name)) {
            best = option;
            *distance_p = distance;
        }
    }
    return best;
}

const bt_option_t *bt_config_option_closest(const char *name, size_t n,
                                            unsigned programs)
{
    size_t distance;

    return closest(name, n, programs, &distance);
}

const char *bt_config_word_closest(const char *name, size_t n,
                                   unsigned programs)
{
    /* The last two are for the script, which removes them from the options
     * that it passes on. */
    static const char *const words[] = {"help", "version", "config", "yes",
                                        "no-install"};
    const size_t n_words =
        BT_ARRAY_LEN(words) - ((programs & S) != 0 ? 0u : 2u);
    const char *best = NULL;
    const bt_option_t *option;
    size_t least;

    option = closest(name, n, programs, &least);
    if (option != NULL) {
        best = option->name;
    }
    for (size_t i = 0; (i < n_words) && (n <= BT_FUZZY_MAX_BYTES); i++) {
        const size_t n_word = strlen(words[i]);
        const size_t distance = bt_edit_distance(name, n, words[i], n_word);

        if ((distance < least) && bt_fuzzy_is_close(distance, n_word)) {
            best = words[i];
            least = distance;
        }
    }
    return best;
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
