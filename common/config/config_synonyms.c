/* SPDX-License-Identifier: Apache-2.0 */
/* Options of other servers, for users and scripts that know those: vLLM,
 * SGLang, llama-server, text-generation-inference, trtllm-serve, and for baton
 * serve tritonserver. Each is a synonym of a Baton option, has no effect here,
 * which is noted, or is refused with an alternative. The program's own options
 * take precedence; a row with a name of ours is for its spelling with _.
 * Sources: the options' texts of the releases of 2024 to 2026;
 * src/command_line_parser.cc of Triton Inference Server of 2024 and 2026. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "common/config/config_options.h"

#define TEXT_BYTES  128
#define VALUE_BYTES 512

typedef enum fate {
    AS,       /* options in `ours` that the program has, with an equal value */
    HOST,     /* the host of the address `ours` */
    PORT,     /* the port of the address `ours` */
    SECONDS,  /* `ours` in ms */
    FRACTION, /* `ours` in percent */
    LAYERS,   /* of a model on a GPU: none, or all */
    KV_TYPE,  /* `ours`, with a mapping of values */
    VERBOSE,  /* 0: as it is; more: --log-level debug */
    CONTROL,  /* --model-control-mode */
    LOAD,     /* --load-model */
    ON,       /* `ours` is on; takes no value */
    OFF,      /* `ours` is off; takes no value */
    ONLY,     /* only the value `ours` is accepted, which is the behaviour */
    NO_WORD,  /* has no effect and takes no value */
    NONE,     /* has no effect */
    REFUSED,  /* `why` has the alternative; its value may be a secret */
} fate_t;

typedef struct row {
    const char *name;
    const char *letters; /* behind one dash; NULL: it has no such name */
    fate_t fate;
    const char *ours; /* of AS: one option or several, "a,b" */
    const char *why;  /* it has no effect, or the alternative */
} row_t;

static const char as_in_file[] = "weights are computed as the file has them; "
                                 "baton convert makes files of other types";
static const char kv_share[] =
    "--kv-memory SIZE is the memory for the KV cache of each worker, and "
    "--kv-free-percent N the share for it of what the model leaves";
static const char kv_types[] = "--kv-dtype bf16, f16, int8 or fp8 is the type "
                               "of keys and values";
static const char api_key[] =
    "--api-keys FILE has the hashes of keys, and baton "
    "key new TENANT makes one; others on this machine "
    "can read a key that is an argument";
static const char more_workers[] = "--prefill N and --decode N start more "
                                   "workers";
static const char mapped[] = "weights are always mapped";

static const char computes[] = "--backend says what computes";
static const char own_threads[] = "Baton has its own threads";
static const char described[] = "what a file leaves out is always completed";
static const char logs[] = "--log-level, --log-format and --log-dir say what "
                           "is logged, how and where";
static const char traces[] =
    "--trace-file FILE and --otlp-traces-endpoint URL trace requests";
static const char cache[] = "answers are not kept; --prefix-cache keeps the KV "
                            "of prompts";
static const char certs[] = "--tls-cert and --tls-key serve HTTP and gRPC "
                            "over TLS";
static const char access[] = "--api-keys FILE says who may do what";
static const char other_doors[] = "--http and --grpc are what is served";

/* The first N_OF_TRITON are of tritonserver, which baton serve alone takes. */
static const row_t rows[] = {
    {"model-store", NULL, AS, "model-repository", ""},
    {"http-port", NULL, PORT, "http", ""},
    {"grpc-port", NULL, PORT, "grpc", ""},
    {"metrics-port", NULL, PORT, "metrics", ""},
    {"http-address", NULL, HOST, "http", ""},
    {"grpc-address", NULL, HOST, "grpc", ""},
    {"metrics-address", NULL, HOST, "metrics", ""},
    {"http-max-input-size", NULL, AS, "max-body-bytes", ""},
    {"allow-cpu-metrics", NULL, AS, "enable-cpu-metrics", ""},
    {"allow-gpu-metrics", NULL, NONE, "", "--enable-gpu-metrics is for them"},
    {"exit-timeout-secs", NULL, SECONDS, "drain-ms", ""},
    {"log-verbose", NULL, VERBOSE, "log-level", ""},
    {"model-control-mode", NULL, CONTROL, "", ""},
    {"load-model", NULL, LOAD, "", ""},
    {"allow-http", NULL, ONLY, "true",
     "HTTP is always served: --http "
     "127.0.0.1:PORT keeps it to this machine"},
    {"allow-grpc", NULL, ONLY, "true",
     "gRPC is always served: --grpc "
     "127.0.0.1:PORT keeps it to this machine"},
    {"allow-metrics", NULL, ONLY, "true",
     "metrics are always served: --metrics 127.0.0.1:PORT keeps them to this "
     "machine"},
    {"disable-auto-complete-config", NULL, NO_WORD, "", described},
    {"strict-model-config", NULL, NONE, "", described},
    {"backend-config", NULL, NONE, "", "there are no back ends of Triton"},
    {"backend-directory", NULL, NONE, "", "there are no back ends of Triton"},
    {"repoagent-directory", NULL, NONE, "", "there are no repository agents"},
    {"cache-directory", NULL, NONE, "", cache},
    {"cache-config", NULL, NONE, "", cache},
    {"response-cache-byte-size", NULL, NONE, "", cache},
    {"exit-on-error", NULL, NONE, "", "a start that fails ends"},
    {"strict-readiness", NULL, NONE, "", "ready is when all models are"},
    {"repository-poll-secs", NULL, NONE, "",
     "the repository is read once, at the start"},
    {"log-info", NULL, NONE, "", logs},
    {"log-warning", NULL, NONE, "", logs},
    {"log-error", NULL, NONE, "", logs},
    {"log-file", NULL, NONE, "", logs},
    {"rate-limit", NULL, NONE, "",
     "keys of --api-keys have limits of their own"},
    {"rate-limit-resource", NULL, NONE, "",
     "keys of --api-keys have limits of their own"},
    {"metrics-interval-ms", NULL, NONE, "", "metrics are always up to date"},
    {"metrics-config", NULL, NONE, "", "metrics have no settings"},
    {"http-thread-count", NULL, NONE, "", own_threads},
    {"buffer-manager-thread-count", NULL, NONE, "", own_threads},
    {"model-load-thread-count", NULL, NONE, "", own_threads},
    {"model-load-retry-count", NULL, NONE, "",
     "a worker that ends is started again"},
    {"model-load-gpu-limit", NULL, NONE, "", computes},
    {"model-namespacing", NULL, NONE, "", "names of models are unique"},
    {"enable-peer-access", NULL, NONE, "", computes},
    {"host-policy", NULL, NONE, "", computes},
    {"pinned-memory-pool-byte-size", NULL, NONE, "", computes},
    {"cuda-memory-pool-byte-size", NULL, NONE, "", computes},
    {"cuda-virtual-address-size", NULL, NONE, "", computes},
    {"min-supported-compute-capability", NULL, NONE, "", computes},
    {"grpc-infer-thread-count", NULL, NONE, "", own_threads},
    {"grpc-infer-allocation-pool-size", NULL, NONE, "", own_threads},
    {"grpc-max-response-pool-size", NULL, NONE, "", own_threads},
    {"grpc-infer-response-compression-level", NULL, NONE, "",
     "a client asks for compression"},
    {"grpc-keepalive-time", NULL, NONE, "",
     "--idle-timeout-ms ends connections"},
    {"grpc-keepalive-timeout", NULL, NONE, "",
     "--idle-timeout-ms ends connections"},
    {"grpc-keepalive-permit-without-calls", NULL, NONE, "",
     "--idle-timeout-ms ends connections"},
    {"grpc-http2-max-pings-without-data", NULL, NONE, "",
     "--idle-timeout-ms ends connections"},
    {"grpc-http2-min-recv-ping-interval-without-data", NULL, NONE, "",
     "--idle-timeout-ms ends connections"},
    {"grpc-http2-max-ping-strikes", NULL, NONE, "",
     "--idle-timeout-ms ends connections"},
    {"grpc-max-connection-age", NULL, NONE, "",
     "--idle-timeout-ms ends connections"},
    {"grpc-max-connection-age-grace", NULL, NONE, "",
     "--idle-timeout-ms ends connections"},
    {"reuse-grpc-port", NULL, NONE, "", "--reuse-http-port is for that"},
    {"http-header-forward-pattern", NULL, NONE, "", "no model sees headers"},
    {"grpc-header-forward-pattern", NULL, NONE, "", "no model sees headers"},
    {"id", NULL, NONE, "", "the server's name is its own"},
    {"trace-level", NULL, NONE, "", traces},
    {"trace-rate", NULL, NONE, "", traces},
    {"trace-count", NULL, NONE, "", traces},
    {"trace-log-frequency", NULL, NONE, "", traces},
    {"trace-config", NULL, NONE, "", traces},
    {"grpc-use-ssl", NULL, ONLY, "false", certs},
    {"grpc-use-ssl-mutual", NULL, ONLY, "false", certs},
    {"grpc-server-cert", NULL, REFUSED, "", certs},
    {"grpc-server-key", NULL, REFUSED, "", certs},
    {"grpc-root-cert", NULL, REFUSED, "",
     "--tls-client-ca asks clients for one"},
    {"allow-client-shm", NULL, ONLY, "false", "--shared-memory on is for that"},
    {"allow-sagemaker", NULL, ONLY, "false", other_doors},
    {"sagemaker-port", NULL, NONE, "", other_doors},
    {"sagemaker-safe-port-range", NULL, NONE, "", other_doors},
    {"sagemaker-thread-count", NULL, NONE, "", other_doors},
    {"allow-vertex-ai", NULL, ONLY, "false", other_doors},
    {"vertex-ai-port", NULL, NONE, "", other_doors},
    {"vertex-ai-thread-count", NULL, NONE, "", other_doors},
    {"vertex-ai-default-model", NULL, NONE, "", other_doors},
    {"model-config-name", NULL, REFUSED, "",
     "config.pbtxt is the one that is read"},
    {"http-restricted-api", NULL, REFUSED, "", access},
    {"grpc-restricted-protocol", NULL, REFUSED, "", access},
    /* ---- other servers ---- */
    {"host", NULL, HOST, "http", ""},
    {"hostname", NULL, HOST, "http", ""},
    {"model", "m", AS, "model", ""},
    {"model-path", NULL, AS, "model", ""},
    {"model-id", NULL, AS, "model", ""},
    {"served-model-name", NULL, AS, "served-model-name", ""},
    {"alias", "a", AS, "served-model-name", ""},
    {"max-model-len", NULL, AS, "max-seq-len", ""},
    {"max-seq-len", NULL, AS, "max-seq-len", ""},
    {"max-total-tokens", NULL, AS, "max-seq-len", ""},
    {"context-length", NULL, AS, "max-seq-len", ""},
    {"ctx-size", "c", AS, "max-seq-len", ""},
    {"max-num-seqs", NULL, AS, "max-batch-size", ""},
    {"lora-modules", NULL, AS, "lora", ""},
    {"lora-paths", NULL, AS, "lora", ""},
    {"enable-lora", NULL, NO_WORD, "", "--lora NAME=PATH serves adapters"},
    {"max-loras", NULL, NONE, "", "a batch takes any number of adapters"},
    {"max-cpu-loras", NULL, NONE, "", "all adapters are kept in memory"},
    {"max-loras-per-batch", NULL, NONE, "",
     "a batch takes any number of adapters"},
    {"max-batch-size", NULL, AS, "max-batch-size", ""},
    {"max-running-requests", NULL, AS, "max-batch-size", ""},
    {"parallel", "np", AS, "max-batch-size", ""},
    {"max-concurrent-requests", NULL, AS, "max-concurrent-requests", ""},
    {"max-num-batched-tokens", NULL, AS, "chunk-tokens", ""},
    {"max-num-tokens", NULL, AS, "chunk-tokens", ""},
    {"chunked-prefill-size", NULL, AS, "chunk-tokens", ""},
    {"ubatch-size", "ub", AS, "chunk-tokens", ""},
    {"batch-size", "b", REFUSED, "",
     "--chunk-tokens N is the tokens of a prompt in one iteration, and "
     "--max-batch-size N the sequences of a worker"},
    {"tensor-parallel-size", "tp", AS, "prefill-tp,decode-tp,tp", ""},
    {"tp-size", NULL, AS, "prefill-tp,decode-tp,tp", ""},
    {"tp", NULL, AS, "prefill-tp,decode-tp,tp", ""},
    {"num-shard", NULL, AS, "prefill-tp,decode-tp,tp", ""},
    {"expert-parallel-size", "ep", AS, "prefill-ep,decode-ep,ep", ""},
    {"ep-size", NULL, AS, "prefill-ep,decode-ep,ep", ""},
    {"ep", NULL, AS, "prefill-ep,decode-ep,ep", ""},
    {"enable-expert-parallel", NULL, REFUSED, "",
     "--prefill-ep N and --decode-ep N deal the experts to N groups of the "
     "ranks of each worker (of a worker --ep N); N = --tp is what vLLM does"},
    {"pipeline-parallel-size", "pp", AS, "prefill-pp,decode-pp,pp", ""},
    {"pp-size", NULL, AS, "prefill-pp,decode-pp,pp", ""},
    {"pp", NULL, AS, "prefill-pp,decode-pp,pp", ""},
    {"data-parallel-size", "dp", REFUSED, "", more_workers},
    {"dp-size", NULL, REFUSED, "", more_workers},
    {"dp", NULL, REFUSED, "", more_workers},
    {"threads", "t", AS, "threads",
     "--prefill-threads N and --decode-threads N are those of each worker"},
    {"gpu-memory-utilization", NULL, REFUSED, "", kv_share},
    {"mem-fraction-static", NULL, REFUSED, "", kv_share},
    {"cuda-memory-fraction", NULL, REFUSED, "", kv_share},
    {"kv-cache-free-gpu-memory-fraction", NULL, FRACTION, "kv-free-percent",
     ""},
    {"n-gpu-layers", "ngl", LAYERS, "backend", ""},
    {"gpu-layers", NULL, LAYERS, "backend", ""},
    {"device", NULL, REFUSED, "",
     "--backend cpu, cuda or auto says what computes, and --devices LIST which "
     "GPUs"},
    {"api-key", NULL, REFUSED, "", api_key},
    {"api-key-file", NULL, REFUSED, "", api_key},
    {"dtype", NULL, ONLY, "auto", as_in_file},
    {"quantization", "q", REFUSED, "", as_in_file},
    {"quantize", NULL, REFUSED, "", as_in_file},
    {"kv-cache-dtype", NULL, KV_TYPE, "kv-dtype", kv_types},
    {"cache-type-k", "ctk", REFUSED, "", kv_types},
    {"cache-type-v", "ctv", REFUSED, "", kv_types},
    {"block-size", NULL, AS, "tokens-per-block", ""},
    {"page-size", NULL, AS, "tokens-per-block", ""},
    {"enable-prefix-caching", NULL, ON, "prefix-cache", ""},
    {"no-enable-prefix-caching", NULL, OFF, "prefix-cache", ""},
    {"disable-radix-cache", NULL, OFF, "prefix-cache", ""},
    {"enable-chunked-prefill", NULL, NO_WORD, "",
     "prompts are always computed in chunks"},
    {"cont-batching", "cb", NO_WORD, "", "batching is always continuous"},
    {"jinja", NULL, NO_WORD, "", "templates are always Jinja's"},
    {"chat-template-file", NULL, AS, "chat-template", ""},
    {"mlock", NULL, NO_WORD, "", mapped},
    {"no-mmap", NULL, NO_WORD, "", mapped},
    {"enforce-eager", NULL, NO_WORD, "", "nothing is compiled"},
    {"trust-remote-code", NULL, NO_WORD, "", "no code of models is run"},
    {"disable-log-requests", NULL, NO_WORD, "",
     "requests are logged only by --access-log and --trace-file"},
    {"no-enable-log-requests", NULL, NO_WORD, "",
     "requests are logged only by --access-log and --trace-file"},
    {"enable-metrics", NULL, NO_WORD, "",
     "--metrics is where they are always served"},
    {"swap-space", NULL, NONE, "", "KV blocks are not swapped"},
    {"seed", "s", REFUSED, "", "each request names its seed"},
    {"tokenizer", NULL, REFUSED, "",
     "the tokenizer is that in the model's file or folder"},
    {"hf-repo", "hf", REFUSED, "",
     "baton pull OWNER/REPO[:FILE] fetches a model, and --model NAME serves "
     "it"},
    {"ssl-certfile", NULL, AS, "tls-cert", ""},
    {"ssl-cert-file", NULL, AS, "tls-cert", ""},
    {"ssl-keyfile", NULL, AS, "tls-key", ""},
    {"ssl-key-file", NULL, AS, "tls-key", ""},
    {"ssl-ca-certs", NULL, REFUSED, "",
     "--tls-client-ca FILE has the CA certificates of clients"},
    {"allowed-origins", NULL, REFUSED, "",
     "--cors-origins ORIGIN[,ORIGIN] names web pages that may use the server"},
    {"timeout", "to", REFUSED, "",
     "--request-timeout-ms and --idle-timeout-ms are for that"},
    {"tool-call-parser", NULL, AS, "tool-call-parser", ""},
    {"reasoning-parser", NULL, AS, "reasoning-parser", ""},
    {"enable-auto-tool-choice", NULL, NO_WORD, "",
     "tools are taken wherever the chat template has them"},
};

#define N_OF_TRITON 86

static const char *const addresses[BT_CONFIG_N_ADDRESSES] = {"http", "grpc",
                                                             "metrics"};

/* _ counts as -, as in several of those servers. */
static bool is_name(const char *ours, const char *name, size_t n)
{
    size_t i = 0;

    while ((i < n) && (ours[i] != '\0') &&
           (ours[i] == ((name[i] == '_') ? '-' : name[i]))) {
        i++;
    }
    return (i == n) && (ours[i] == '\0');
}

/* @param [in] arg  with its dashes */
static const row_t *find(const char *arg, size_t n, bool with_triton)
{
    const bool is_long = (n > 2) && (memcmp(arg, "--", 2) == 0);

    if (!is_long && ((n < 2) || (arg[0] != '-'))) {
        return NULL;
    }
    for (size_t i = with_triton ? 0 : N_OF_TRITON; i < BT_ARRAY_LEN(rows);
         i++) {
        if (is_long ? is_name(rows[i].name, arg + 2, n - 2)
                    : ((rows[i].letters != NULL) &&
                       is_name(rows[i].letters, arg + 1, n - 1))) {
            return &rows[i];
        }
    }
    return NULL;
}

static const bt_option_t *option_of(const char *name)
{
    return bt_config_option_find(name, strcspn(name, ","));
}

bool bt_config_synonyms_know(const bt_config_store_t *store, const char *arg)
{
    const size_t n = strcspn(arg, "=");
    const bt_option_t *const own = (strncmp(arg, "--", 2) == 0)
                                       ? bt_config_option_find(arg + 2, n - 2)
                                       : NULL;

    return ((own == NULL) || ((own->programs & store->program) == 0)) &&
           (find(arg, n, store->program == BT_PROG_SERVE) != NULL);
}

const bt_option_t *bt_config_synonym_of(const char *name, size_t n)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        if (is_name(rows[i].name, name, n)) {
            return option_of(rows[i].ours);
        }
    }
    return NULL;
}

static bt_status_t refuse(const bt_config_store_t *store, const row_t *row,
                          const char *value, const char *where)
{
    return bt_config_complain(store, "%s%s%.100s is not served: %s", where,
                              (value[0] == '\0') ? "" : " ", value, row->why);
}

/* Sets the row's options that the program has. */
static bt_status_t set(bt_config_store_t *store, const row_t *row,
                       const char *value, const char *where)
{
    bool is_set = false;

    for (const char *name = row->ours; *name != '\0';
         name += strcspn(name, ","), name += (*name == ',')) {
        const bt_option_t *const option = option_of(name);
        bt_status_t status;

        BT_ASSERT(option != NULL);
        if ((option->programs & store->program) == 0) {
            continue;
        }
        status = bt_config_store_set(store, option, value,
                                     BT_CONFIG_COMMAND_LINE, where);
        if (status != BT_OK) {
            return status;
        }
        is_set = true;
    }
    if (is_set) {
        return BT_OK;
    }
    if (row->why[0] != '\0') {
        return refuse(store, row, "", where);
    }
    return bt_config_complain(store, "%s is --%s, which %s does not have",
                              where, option_of(row->ours)->name,
                              bt_config_program_name(store->program));
}

static bt_status_t take_fraction(bt_config_store_t *store, const row_t *row,
                                 const char *value, const char *where)
{
    char *end;
    const double share = strtod(value, &end);
    char percent[TEXT_BYTES];

    if ((value[0] == '\0') || (*end != '\0') ||
        !((share > 0) && (share <= 1))) {
        return bt_config_complain(
            store, "%s: '%.64s' is no number above 0 up to 1", where, value);
    }
    /* 0 would select the default behaviour. */
    snprintf(percent, sizeof(percent), "%u",
             (share < 0.01) ? 1u : (unsigned)(share * 100 + 1e-9));
    return set(store, row, percent, where);
}

/* A model is on one kind of processor as a whole. */
static bt_status_t take_layers(bt_config_store_t *store, const row_t *row,
                               const char *value, const char *where)
{
    static const char *const all[] = {"all", "auto", "-1", "-2"};
    bool is_all =
        (value[0] != '\0') && (strspn(value, "0123456789") == strlen(value));

    if (is_all && (strspn(value, "0") == strlen(value))) {
        return set(store, row, "cpu", where);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(all); i++) {
        is_all = is_all || (strcmp(value, all[i]) == 0);
    }
    if (!is_all) {
        return bt_config_complain(store, "%s: '%.64s' is no number of layers",
                                  where, value);
    }
    bt_config_note(store,
                   "%s %s: a GPU computes all layers, where there is one "
                   "(--backend auto), or none (--backend cpu)",
                   where, value);
    return set(store, row, "auto", where);
}

static bt_status_t take_kv_type(bt_config_store_t *store, const row_t *row,
                                const char *value, const char *where)
{
    static const struct {
        const char *theirs;
        const char *ours; /* NULL: default behaviour */
    } names[] = {
        {"auto", NULL},   {"bfloat16", "bf16"}, {"bf16", "bf16"},
        {"fp16", "f16"},  {"float16", "f16"},   {"fp8", "fp8"},
        {"int8", "int8"}, {"fp8_e4m3", "fp8"},  {"f16", "f16"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        if (strcmp(names[i].theirs, value) == 0) {
            return (names[i].ours == NULL)
                       ? BT_OK
                       : set(store, row, names[i].ours, where);
        }
    }
    return refuse(store, row, value, where);
}

/* True and false are read as by tritonserver. */
static bool is_same_word(const char *want, const char *value)
{
    const bool wants_true = strcmp(want, "true") == 0;
    static const char *const yes[] = {"true", "True", "TRUE", "1", "on"};
    static const char *const no[] = {"false", "False", "FALSE", "0", "off"};

    if (!wants_true && (strcmp(want, "false") != 0)) {
        return strcmp(want, value) == 0;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(yes); i++) {
        if (strcmp(wants_true ? yes[i] : no[i], value) == 0) {
            return true;
        }
    }
    return false;
}

/* Kept until --http, --grpc and --metrics are known:
 * bt_config_addresses_complete(). */
static bt_status_t keep_address(bt_config_store_t *store, const row_t *row,
                                const char *value, const char *where)
{
    size_t i = 0;

    if ((option_of(row->ours)->programs & store->program) == 0) {
        return set(store, row, value, where); /* which says so */
    }
    while (strcmp(addresses[i], row->ours) != 0) {
        i++;
    }
    if ((value[0] == '\0') || (strlen(value) >= BT_CONFIG_ADDRESS_BYTES)) {
        return bt_config_complain(store, "%s: '%.64s' is no %s", where, value,
                                  (row->fate == PORT) ? "port" : "host");
    }
    snprintf((row->fate == PORT) ? store->ports[i] : store->hosts[i],
             BT_CONFIG_ADDRESS_BYTES, "%s", value);
    snprintf(store->address_wheres[i], BT_CONFIG_ADDRESS_BYTES, "%s", where);
    return BT_OK;
}

static bt_status_t take_control(bt_config_store_t *store, const char *mode)
{
    if (strcmp(mode, "poll") == 0) {
        return bt_config_complain(
            store, "--model-control-mode poll is not served: the "
                   "repository is read once, at the start; `explicit` "
                   "lets clients load and unload models");
    }
    if ((strcmp(mode, "none") != 0) && (strcmp(mode, "explicit") != 0)) {
        return bt_config_complain(
            store,
            "--model-control-mode: '%.64s' is none of none, "
            "explicit and poll",
            mode);
    }
    bt_config_note(store,
                   "--model-control-mode %s has no effect: all models are "
                   "loaded at the start, and a client with an admin key "
                   "loads and unloads them",
                   mode);
    return BT_OK;
}

/* @return false: no digits, which was reported */
static bool check_digits(const bt_config_store_t *store, const char *value,
                         const char *where)
{
    const bool ok =
        (value[0] != '\0') && (strspn(value, "0123456789") == strlen(value));

    if (!ok) {
        bt_config_complain(store, "%s: '%.64s' is no number", where, value);
    }
    return ok;
}

static bt_status_t take_number(bt_config_store_t *store, const row_t *row,
                               const char *value, const char *where)
{
    const bool is_zero = strspn(value, "0") == strlen(value);
    char ms[VALUE_BYTES];

    if (!check_digits(store, value, where)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (row->fate == VERBOSE) {
        return is_zero ? BT_OK : set(store, row, "debug", where);
    }
    snprintf(ms, sizeof(ms), "%.100s%s", value, is_zero ? "" : "000");
    return set(store, row, ms, where);
}

static bt_status_t take(bt_config_store_t *store, const row_t *row,
                        const char *value, const char *where)
{
    switch (row->fate) {
    case AS:
        return set(store, row, value, where);
    case HOST:
    case PORT:
        return keep_address(store, row, value, where);
    case SECONDS:
    case VERBOSE:
        return take_number(store, row, value, where);
    case FRACTION:
        return take_fraction(store, row, value, where);
    case LAYERS:
        return take_layers(store, row, value, where);
    case KV_TYPE:
        return take_kv_type(store, row, value, where);
    case ON:
        return set(store, row, "on", where);
    case OFF:
        return set(store, row, "off", where);
    case CONTROL:
        return take_control(store, value);
    case LOAD:
        bt_config_note(store,
                       "--load-model %.64s has no effect: all models are "
                       "loaded at the start",
                       value);
        return BT_OK;
    case ONLY:
        return is_same_word(row->ours, value)
                   ? BT_OK
                   : refuse(store, row, value, where);
    case NO_WORD:
    case NONE:
    case REFUSED: /* refused already */
        bt_config_note(store, "%s has no effect: %s", where, row->why);
        break;
    }
    return BT_OK;
}

static bool has_value(fate_t fate)
{
    return (fate != ON) && (fate != OFF) && (fate != NO_WORD) &&
           (fate != REFUSED);
}

bt_status_t bt_config_synonyms_take(bt_config_store_t *store, const char *arg,
                                    const char *next, bool *used_p)
{
    const size_t n = strcspn(arg, "=");
    const row_t *const row = find(arg, n, store->program == BT_PROG_SERVE);
    const char *value = (arg[n] == '=') ? arg + n + 1 : NULL;
    char where[TEXT_BYTES];

    BT_ASSERT(row != NULL);
    *used_p = false;
    snprintf(where, sizeof(where), "%.*s", (int)n, arg);
    if (row->fate == REFUSED) {
        /* The next argument is its value, if any: never printed. */
        *used_p = (value == NULL) && (next != NULL) && (next[0] != '-');
        return refuse(store, row, "", where);
    }
    if ((value != NULL) && !has_value(row->fate)) {
        return bt_config_complain(store, "%s takes no value", where);
    }
    if ((value == NULL) && has_value(row->fate)) {
        if ((next == NULL) || (strncmp(next, "--", 2) == 0)) {
            return bt_config_complain(store, "%s needs a value", where);
        }
        value = next;
        *used_p = true;
    }
    return take(store, row, value, where);
}

bt_status_t bt_config_addresses_complete(bt_config_store_t *store)
{
    bt_status_t status = BT_OK;

    for (size_t i = 0; (i < BT_ARRAY_LEN(addresses)) && (status == BT_OK);
         i++) {
        const char *const host = store->hosts[i];
        const char *const port = store->ports[i];
        const bt_option_t *option = option_of(addresses[i]);
        const char *address = *(
            const char *const *)((const char *)&store->config + option->offset);
        const char *colon = strrchr(address, ':');
        const bool brackets = (strchr(host, ':') != NULL) && (host[0] != '[');
        char whole[VALUE_BYTES];

        if (((host[0] == '\0') && (port[0] == '\0')) || (colon == NULL)) {
            continue;
        }
        snprintf(whole, sizeof(whole), "%s%.*s%s:%s", brackets ? "[" : "",
                 (host[0] != '\0') ? (int)strlen(host) : (int)(colon - address),
                 (host[0] != '\0') ? host : address, brackets ? "]" : "",
                 (port[0] != '\0') ? port : colon + 1);
        status = bt_config_go_on(store,
                                 bt_config_store_set(store, option, whole,
                                                     BT_CONFIG_COMMAND_LINE,
                                                     store->address_wheres[i]));
    }
    return status;
}

/* ---- names of nobody ---- */

/* @param [out] distance_p  SIZE_MAX: none is near enough */
static const bt_option_t *closest(const char *name, size_t n, unsigned programs,
                                  size_t *distance_p)
{
    const bt_option_t *best = NULL;

    *distance_p = SIZE_MAX;
    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        const bt_option_t *option = &bt_config_options[i];
        const size_t distance =
            bt_fuzzy_distance(name, n, option->name, strlen(option->name));

        if (((option->programs & programs) != 0) && (distance < *distance_p)) {
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
    static const char *const words[] = {"help",   "help-all", "version",
                                        "config", "yes",      "no-install"};
    const size_t n_words =
        BT_ARRAY_LEN(words) - ((programs & BT_PROG_SERVE) != 0 ? 0u : 2u);
    const char *best = NULL;
    const bt_option_t *option;
    size_t least;

    option = closest(name, n, programs, &least);
    if (option != NULL) {
        best = option->name;
    }
    for (size_t i = 0; i < n_words; i++) {
        const size_t distance =
            bt_fuzzy_distance(name, n, words[i], strlen(words[i]));

        if (distance < least) {
            best = words[i];
            least = distance;
        }
    }
    return best;
}
