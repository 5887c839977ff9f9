/* SPDX-License-Identifier: Apache-2.0 */
/** @file config.h
 *
 * Configuration: one option table defines the command line, the environment,
 * the configuration file, --help and the manual. Precedence: command line, then
 * environment (BATON_KV_MEMORY for --kv-memory; an empty variable counts as
 * unset), then --config FILE (`kv-memory = 1g`, `#` comments), then a
 * config.pbtxt of --model-repository, then the default. An option of another
 * program, an unknown key or a value out of range is an error that names it and
 * the allowed range; nothing is ignored silently. A value that a later source
 * overrides is still checked.
 *
 * --port N is the port of --http, from the command line or a file; the source
 * of higher precedence sets the port. Arguments of baton serve that are no
 * option are models, as if --model preceded them.
 *
 * --model may be given several times: NAME=PATH, or PATH only. The text before
 * the first `=` is a name if it is a valid one (printable ASCII without space,
 * `/ " \\ , =`, at most 63 bytes); otherwise the whole is a path, so that
 * ./a=b.gguf always is one. In the file each model has a line; in the
 * environment `;` separates them. The source of highest precedence that names a
 * model gives the whole list. A worker takes exactly one.
 *
 *     command line ─┐
 *     environment ──┼─▶ config_value (text → number, range) ─▶ bt_config_t
 *     file ─────────┘          ▲
 *                        config_options (the table) ─▶ help, man, child args
 */
#ifndef BT_COMMON_CONFIG_CONFIG_H
#define BT_COMMON_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "common/repository/repository.h"

/** Programs that an option belongs to (bits). The file and the environment
 *  may contain options of other programs of Baton: those are skipped. */
#define BT_PROG_SERVE   1u /**< ./baton serve = launcher */
#define BT_PROG_ROUTER  2u
#define BT_PROG_PREFILL 4u
#define BT_PROG_DECODE  8u

#define BT_CONFIG_MAX_MODELS       16
#define BT_CONFIG_GRPC_DEFAULT     "127.0.0.1:8001"
#define BT_CONFIG_MAX_ROUTERS      16
#define BT_CONFIG_ROUTER_PORT_STEP 10 /**< between two routers */
#define BT_CONFIG_MODEL_NAME_BYTES 64 /**< with the zero byte */
#define BT_CONFIG_PATH_BYTES \
    4096 /**< size of an adapter's path, with the zero byte */
#define BT_CONFIG_HINT_BYTES 384 /**< size of bt_config_pulled_hint() */

/** Argument of one --model. */
typedef struct bt_config_model {
    const char *name; /**< "" = not given */
    const char *path;
    const char *pulled; /**< name in the folder of models, NULL: given as a
                             path */
} bt_config_model_t;

/** File that exists when a GPU driver is loaded. */
#define BT_CONFIG_GPU_DRIVER "/proc/driver/nvidia/version"

/** Values of all options, owned by the config object. Strings are never NULL
 *  (""). */
typedef struct bt_config {
    /* options of ./baton serve */
    const char *models_dir; /* --models-dir, "" = the cache's */
    const char *model;      /* path of models[0], "" when there is none */
    bt_config_model_t models[BT_CONFIG_MAX_MODELS]; /* --model, in order */
    uint32_t n_models;
    uint32_t prefill, decode; /* instances for each model, 1 and 1 */
    uint32_t routers;         /* 1 */
    bool reuse_http_port;
    uint32_t prefill_threads; /* 0 = share the cores */
    uint32_t decode_threads;
    uint32_t reduction_parts;     /* 0 = as many as ranks */
    uint32_t moe_reduction_parts; /* 0 = as many as ranks of an expert */
    uint32_t simulate_step_us,
        simulate_token_us; /* least time of an iteration */
    uint32_t prefill_tp;   /* ranks of each instance */
    uint32_t decode_tp;
    uint32_t prefill_ep; /* groups of these ranks, among which experts are
                            dealt */
    uint32_t decode_ep;
    uint32_t prefill_pp; /* stages of each instance */
    uint32_t decode_pp;
    uint64_t kv_memory_bytes;     /* --kv-memory SIZE per worker, 0 = auto */
    uint32_t max_batch_size;      /* seats of a worker */
    uint32_t chunk_tokens;        /* of a prefill iteration; 0 = tuned */
    uint32_t itl_budget_ms;       /* 50; target of tuned chunks */
    const char *prefill_order;    /* srpt, fcfs, deadline */
    const char *decode_order;     /* prompt, fcfs, length */
    const char *scheduler_policy; /* guaranteed_no_evict, max_utilization */
    const char *http;             /* ADDR:PORT 127.0.0.1:8000, with --port */
    uint32_t port;                /* --port; included in http */
    const char *grpc;             /* 127.0.0.1:8001 */
    const char *metrics;          /* 127.0.0.1:8002 */
    const char *tls_cert;         /* "" = plain */
    const char *tls_key, *tls_client_ca;
    const char *api_keys;           /* file, "" = no keys */
    const char *tenant_header;      /* name of the header, "" = none */
    const char *admin_without_keys; /* own-user, anybody */
    bool insecure;                  /* beyond loopback without keys */
    const char *allowed_hosts;      /* "" = the server's own names */
    const char *cors_origins;       /* "" = none */
    const char *chat_template;      /* NAME|FILE, "" = from the model file */
    const char *content_format;     /* auto, string, openai */
    const char *reasoning_parser;   /* auto, off, think ... */
    uint32_t ttft_target_ms, itl_target_ms; /* 0 = none */
    const char *model_targets;              /* NAME=TTFT/ITL,..., "" = none */
    const char *tool_call_parser;           /* auto, off, hermes ... */
    const char *override_generation_config; /* JSON, "" = none */
    const char *log_level;                  /* info */
    const char *log_format;                 /* text, json */
    const char *log_dir;                    /* "" = standard error */
    uint64_t log_max_bytes;                 /* 0: files of any size */
    uint32_t log_keep;                      /* old files to keep */
    const char *access_log; /* "" = none, "-" = standard output */
    const char *store;      /* folder of clients' objects, "" = none */
    const char *store_key;  /* file of the key that seals them, "" = none */
    uint64_t store_limit_bytes, store_tenant_limit_bytes;
    uint32_t store_ttl_s;
    const char *response_store_dir; /* folder that routers share, "" = none */
    uint64_t response_store_limit_bytes; /* 0 = no response is stored */
    uint32_t response_store_ttl_s;
    uint32_t batch_lines_in_flight; /* of all batches */
    const char *trace_file; /* file of per-request timing records, "" = none */
    const char *otlp_traces_endpoint; /* URL of a trace collector, "" = none */
    const char *otlp_headers_file; /* file of HTTP headers for it, "" = none */
    uint64_t otlp_queue_bytes;
    /* options of the processes (passed on by serve) */
    const char *served_model_name; /* of a single model without a name */
    const char *launcher;  /* router: the launcher's socket, "" = none */
    bool workers_pinned;   /* router: all workers here have dedicated cores */
    const char *join;      /* router URL(s), comma separated */
    const char *join_dir;  /* or "" */
    const char *listen;    /* router: URL at which it accepts workers */
    const char *rank_host; /* worker: address of rank 0 for the others */
    const char *run_dir;   /* directory of ipc sockets */
    const char *cluster_key_file; /* cluster key */
    const char *munge_socket;     /* "" = munged's own */
    const char *name;             /* instance name */
    uint32_t standby;             /* spare processes of each model */
    uint32_t assignment_fd; /* standby: descriptor of its assignment; 0: none */
    const char *devices;    /* GPUs; "": as CUDA_VISIBLE_DEVICES says */
    const char *kv_net_devices; /* KV network interface, lo */
    const char *kv_port_range;  /* "20000-20100"; "": any free ports */
    const char *kv_transport;   /* auto, shm, network */
    const char *backend;        /* cpu, or a plugin's name: cuda */
    const char *numerics;       /* exact, tensor */
    bool allow_mixed_numerics;  /* router: accepts several numerics profiles */
    const char *cores;          /* cpu list to pin to, "" = no pinning */
    const char *role;           /* worker: auto, prefill, decode, both */
    const char *share_idle_cores;   /* on, idle, off */
    uint32_t worker_nice;           /* worker: added to its nice value */
    const char *borrowed_cores;     /* worker: cpu list to borrow, "" = none */
    uint32_t threads;               /* of this worker; 0 = all allowed cores */
    uint32_t tp;                    /* ranks of a stage of this worker */
    uint32_t ep;                    /* groups of these ranks */
    uint32_t pp;                    /* stages of this worker */
    const char *kv_dtype;           /* bf16, f16, int8, fp8 */
    const char *kv_overlap;         /* layers, chunks, none */
    const char *midstep_join;       /* on, off */
    const char *overlap_scheduling; /* auto, on, off */
    const char *draft;              /* ngram, off, self, self:TYPE */
    const char *draft_model;        /* FILE; "": none */
    uint64_t draft_corpus_bytes;
    uint64_t grammar_cache_bytes; /* worker: matchers that no job has */
    const char *lora;             /* NAME=PATH;..., "" = none */
    const char *lora_dir;         /* DIR, "" = none are loaded at run time */
    uint64_t lora_memory_bytes;
    const char *lora_task_dir;        /* DIR, "" = tasks are a router's own */
    const char *lora_prefetch_dir;    /* DIR, "" = none */
    uint64_t lora_cache_host_bytes;   /* 0: none are taken from clients */
    uint32_t max_lora_rank;           /* 64 */
    const char *allow_weight_updates; /* DIR; "": none */
    uint32_t draft_tokens;            /* 0: those that are expected to pay */
    const char *prefix_cache;         /* on, off */
    const char *weight_cache;         /* auto, off, DIR */
    uint32_t tokens_per_block;        /* 16 */
    uint32_t max_seq_len;             /* 0 = the model's */
    const char *local_prefill;        /* D: prefills, too: off, on, auto */
    const char *link_transport;       /* "auto" */
    uint32_t heartbeat_ms, suspect_ms, dead_ms; /* 250, 1000, 2500 */
    uint32_t compute_watchdog_ms;               /* 120000 */
    uint32_t quarantine_ms;                     /* 10000 */
    uint32_t
        max_ungranted_kv_percent; /* P: share of blocks for waiting KV, 50 */
    bool client_priority;         /* clients may set priorities */
    uint32_t tokenizer_threads;   /* router: 0 = a quarter of the cores */
    uint32_t max_concurrent_requests; /* router: requests in flight, 4096 */
    uint64_t max_logits_bytes;        /* of one request, 64 MiB; 0 = none */
    uint32_t max_beam_width;          /* of one request */
    uint64_t max_body_bytes;          /* 8 MiB */
    uint32_t header_timeout_ms;       /* whole header, 10000 */
    uint32_t body_timeout_ms;         /* whole body, 30000 */
    uint32_t idle_timeout_ms;         /* keep-alive, 60000 */
    uint32_t request_timeout_ms;      /* whole request, 600000 */
    uint32_t client_buffer_bytes;     /* unread bytes of one client, 1 MiB */
    uint64_t http_memory_bytes;       /* requests of all clients, 0 = auto */
    uint64_t router_memory_bytes;     /* of a router's process, 0 = auto */
    uint32_t max_connections;         /* of clients, 0 = auto */
    uint32_t
        max_connections_per_address; /* from one address, 4096; 0 = no limit */
    uint32_t sse_keepalive_s;   /* comment in a silent stream, 15; 0 = none */
    uint32_t max_event_streams; /* of live views, 16; 0 = none */
    bool expose_request_text;   /* live views show prompts and answers */
    uint32_t worker_wait_ms;    /* then 503 if no worker is available, 30000 */
    uint32_t lame_duck_ms;      /* not ready, still serving, 2000 */
    bool core_dumps;            /* a crash may write one */
    uint32_t watchdog_ms;       /* silence that is a hang, 10000; 0 = never */
    uint32_t drain_ms;          /* longest drain at SIGTERM, 30000 */
    /* options for compatibility with Triton */
    const char *model_repository; /* folder of config.pbtxt files, "" = none */
    const bt_repository_t *repository; /* parsed model_repository, or NULL */
    const char *batching_strategy;     /* inflight_fused_batching,
                                          inflight_batching, V1 */
    bool exclude_input_in_output;      /* of Triton's models */
    bool accumulate_tokens;            /* tensorrt_llm_bls */
    const char *unknown_fields;        /* ignore, warn, error */
    const char *shared_memory;         /* of clients' tensors: off, on */
    const char *out_of_vocabulary_ids; /* of prompts: refuse, modulo */
    uint32_t max_queue_delay_us;       /* requests within it are batched */
    uint32_t kv_tokens;       /* KV capacity of a worker, 0 = what fits */
    uint32_t kv_free_percent; /* share for KV, 0 = auto */
    bool cpu_metrics;         /* nv_cpu_* */
    bool gpu_metrics;         /* nv_gpu_*: only where there is no GPU */
    const char *vertex_health_route;  /* "" = AIP_HEALTH_ROUTE's, or none */
    const char *vertex_predict_route; /* "" = AIP_PREDICT_ROUTE's, or none */
} bt_config_t;

typedef struct bt_config_store bt_config_store_t; /**< owns the strings */

/**
 * Loads the configuration of one program (one BT_PROG_ bit).
 *
 * @param [in] finds_all         Collects all errors, see bt_config_finding(),
 *                               instead of stopping at the first: an invalid
 *                               value is skipped, and the option has its value
 *                               without it.
 * @retval BT_OK                 store_p and *config_p are set; with finds_all
 *                               also where there are errors.
 * @retval BT_ERR_CANCELED       --help or --version was given, and printed.
 * @retval BT_ERR_INVALID_PARAM  The reason was printed on standard error.
 */
BT_MUST_CHECK bt_status_t bt_config_load(unsigned program, bool finds_all,
                                         int argc, char **argv,
                                         const bt_config_t **config_p,
                                         bt_config_store_t **store_p);
void bt_config_destroy(bt_config_store_t *store);

/** Error or note about the configuration. */
typedef struct bt_config_finding {
    bool is_error; /**< false: a note */
    char *text;    /**< one sentence, with the source that it is about */
} bt_config_finding_t;

/** Returns finding @a i of bt_config_load(), in order of detection; NULL
 *  after the last. */
const bt_config_finding_t *bt_config_finding(const bt_config_store_t *store,
                                             uint32_t i);
/** Logs all errors. @retval BT_ERR_INVALID_PARAM  there are some */
BT_MUST_CHECK bt_status_t
bt_config_log_findings(const bt_config_store_t *store);

/** Effective value of one option. */
typedef struct bt_config_effect {
    const char *name;   /**< without the dashes */
    const char *source; /**< "default", "model repository", "file",
                             "environment" or "command line" */
    bt_strbuf_t value;  /**< as a user would write it, "" too */
    bt_strbuf_t where;  /**< "/etc/baton.conf:3", "BATON_PREFILL",
                             "--prefill"; "" for a default */
} bt_config_effect_t;

/**
 * Iterates over the options of the store's program, in the order of --help,
 * with an entry for each model.
 *
 * @param [in,out] at_io     0 at first.
 * @param [out]    effect_p  The caller frees its buffers with fini().
 * @return false: no option is left.
 */
bool bt_config_next_effect(const bt_config_store_t *store, uint32_t *at_io,
                           bt_config_effect_t *effect_p);

/**
 * Returns the name under which a model is shown everywhere: to clients, in logs
 * and as a label of metrics. Pure.
 *
 * That is the given name, else @a model_name_option, else its name in the
 * folder of models, else the file's stem: "/x/SmolLM2-135M-Instruct.Q4_1.gguf"
 * is SmolLM2-135M-Instruct.Q4_1, with `-` for bytes that are invalid in names.
 *
 * @param [in] model_name_option  --served-model-name for the first model, ""
 * for the others.
 */
void bt_config_model_name(const bt_config_model_t *model,
                          const char *model_name_option,
                          char out[BT_CONFIG_MODEL_NAME_BYTES]);

/**
 * Finds a model in the folder of models (`--models-dir`).
 *
 * @param [in]  word               Its name there, or the OWNER/REPO[:FILE] by
 *                                 which it was pulled.
 * @param [in]  models_dir_option  "" = $XDG_CACHE_HOME/baton or
 *                                 $HOME/.cache/baton.
 * @param [out] path_p             Path of a GGUF file, of the first of its
 *                                 parts, or of a folder; owned by the caller:
 *                                 bt_free().
 * @retval BT_ERR_NOT_FOUND  There is none, or the folder is not configured.
 * @retval BT_ERR_TOO_LARGE  The folder's path.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_config_pulled_find(const char *models_dir_option,
                                                const char *word,
                                                char **path_p);

/** Writes a hint about a model that does not exist: "; did you mean X?" or
 *  how to get one; "" if @a word is obviously a path. */
void bt_config_pulled_hint(const char *models_dir_option, const char *word,
                           char *out, size_t out_bytes);

/** True when these @a n bytes are a valid model name. */
bool bt_config_is_model_name(const char *text, size_t n);

/** Returns the latency targets of requests to a model: its entry in
 *  --model-targets, else the targets of all models. 0 = none. */
void bt_config_model_targets(const bt_config_t *config, const char *model,
                             uint32_t *ttft_ms_p, uint32_t *itl_ms_p);

/** Values of --override-generation-config; omitted ones are 0. */
typedef struct bt_config_sampling {
    bool has_temperature, has_top_p, has_top_k, has_min_p;
    bool has_repetition_penalty;
    double temperature, top_p, top_k, min_p, repetition_penalty;
} bt_config_sampling_t;

/**
 * Parses --override-generation-config.
 * @param [in]  text  JSON, or "": no values
 * @param [out] why   after a failure: the cause, a phrase
 * @retval BT_ERR_INVALID_PARAM
 */
BT_MUST_CHECK bt_status_t
bt_config_sampling_read(const char *text, bt_config_sampling_t *sampling_p,
                        char *why, size_t why_bytes);

/**
 * Resolves a path within the folder of an option.
 * @param [in]  option  for messages: "--lora-dir"
 * @param [in]  path    Absolute, or relative to @a folder; untrusted.
 * @param [out] out     Path without links, of out_bytes.
 * @param [out] why     On failure the reason.
 * @retval BT_ERR_NOT_FOUND      there is no such file
 * @retval BT_ERR_INVALID_PARAM  it is not below the folder
 * @retval BT_ERR_TOO_LARGE
 */
BT_MUST_CHECK bt_status_t bt_config_resolve(const char *option,
                                            const char *folder,
                                            const char *path, char *out,
                                            size_t out_bytes, char *why,
                                            size_t why_bytes);

/** Adapter of --lora. */
typedef struct bt_config_adapter {
    char name[BT_CONFIG_MODEL_NAME_BYTES];
    char path[BT_CONFIG_PATH_BYTES];
} bt_config_adapter_t;

/** Reads the next adapter of --lora's value.
 *  @param [in,out] rest_io  what is left of the value
 *  @retval BT_OK
 *  @retval BT_ERR_NOT_FOUND      there is none left
 *  @retval BT_ERR_INVALID_PARAM  not NAME=PATH */
BT_MUST_CHECK bt_status_t
bt_config_adapter_next(const char **rest_io, bt_config_adapter_t *adapter_p);

/** Appends a --model argument as a program parses it: NAME=PATH, or PATH
 *  when @a name is "". Without a zero byte after it. */
void bt_config_print_model(const char *name, const char *path,
                           bt_strbuf_t *out);

/**
 * Appends `--name=value` (one argument each, zero-terminated strings one after
 * the other in @a out) for every option of @a target that differs from its
 * default: the arguments that the launcher passes to its children. Models and
 * their names are left to the caller, which has resolved them.
 */
BT_MUST_CHECK bt_status_t bt_config_args_for(const bt_config_store_t *store,
                                             unsigned target, bt_strbuf_t *out);

/** Prints a manual page from the table: groff man for a program, or the page
 *  of the configuration file for program 0. */
void bt_config_print_man(unsigned program, bt_strbuf_t *out);
/** Prints the whole of docs/OPTIONS.md from the option table. */
void bt_config_print_doc(bt_strbuf_t *out);

/**
 * Prints a shell completion script for the words after `baton`: the options of
 * serve from the table, and the names of the commands. The script asks each
 * command for its own options when needed.
 *
 * @param [in] shell  "bash" or "zsh"
 * @retval BT_ERR_NOT_FOUND  Another shell.
 */
BT_MUST_CHECK bt_status_t bt_config_print_completion(
    const char *shell, const char *const *commands, size_t n, bt_strbuf_t *out);

/** Returns the program's name in messages and in `ps`, such as
 *  "baton-router"; never NULL. */
const char *bt_config_program_name(unsigned program);

/** Returns the version of this build, such as "0.2.0". */
const char *bt_config_version(void);

/**
 * Git revision of the source tree, as --version prints it: "1a2b3c4d5e6f" or
 * "1a2b3c4d5e6f-dirty", "" if built without git. Defined in programs
 * (commit.c.in), not in libraries and tests, which would be relinked with each
 * commit: there its address is NULL.
 */
extern const char bt_build_commit[] __attribute__((weak));

/** Removes every option's variable from this process's environment, so that
 *  children see only the arguments of bt_config_args_for(). */
void bt_config_unset_environment(void);

/** Parses "20000-20100": ports from 1 on, the first no larger than the last;
 *  "" is 0 and 0. @retval BT_ERR_INVALID_PARAM */
BT_MUST_CHECK bt_status_t bt_config_split_ports(const char *text,
                                                uint16_t *first_p,
                                                uint16_t *last_p);
/** Splits "ADDR:PORT", "[v6]:PORT"; the port may be 0 (the system chooses).
 *  @a host is without brackets. @retval BT_ERR_INVALID_PARAM */
BT_MUST_CHECK bt_status_t bt_config_split_address(const char *text, char *host,
                                                  size_t host_bytes,
                                                  uint16_t *port_p);

/** True when this host is a loopback address. False for names other than
 *  localhost. */
bool bt_config_is_loopback(const char *host);

/*
 * Hints for a --model that names no existing path.
 */

/**
 * True when the text is OWNER/REPO[@REVISION][:FILE], as `./baton pull` takes
 * it. A relative path of two words looks like that, too.
 * @param [out] repository_bytes_p  Length of OWNER/REPO.
 */
bool bt_model_is_hub_name(const char *text, size_t *repository_bytes_p);

/** True when both paths are one file. */
bool bt_model_file_is_same(const char *path, const char *other);

/** Writes a hint for the user: a similar name beside the path, a copy in the
 *  cache of the Hugging Face Hub ($HF_HUB_CACHE, $HF_HOME), or how to get
 *  one. */
void bt_model_hint(const char *path, char *hint, size_t hint_bytes);

/*
 * Number of threads of each program, so that too low a limit is reported before
 * nng, UCX or MPI hit it, which then hang or crash. The launcher adds up those
 * of a launch (launcher/preflight.h); a program without a launcher
 * checks by itself.
 */

/** Returns the threads of a router that parse requests: --tokenizer-threads, or
 *  2 to 8 by the CPUs that may compute. */
uint32_t bt_parse_threads(const bt_config_t *config, uint32_t n_cpus);

/** Returns the most threads of a router of which @a n_parse parse requests,
 *  where @a n_online CPUs are online, whether usable by it or not. */
uint64_t bt_router_threads(uint32_t n_online, uint64_t n_parse);

/** Returns the most threads of a worker, or of one rank of it, with @a
 *  n_compute compute threads, those on borrowed cores included. */
uint64_t bt_worker_threads(uint32_t n_online, uint64_t n_compute);

/** Returns the CPUs that are online. */
uint32_t bt_online_cpus(void);

/** Checks that this process may start this many threads. @retval
 *  BT_ERR_NO_MEMORY  No; logged. */
BT_MUST_CHECK bt_status_t bt_program_threads_check(uint64_t n);

#endif
