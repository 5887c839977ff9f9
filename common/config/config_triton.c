/* SPDX-License-Identifier: Apache-2.0 */
/* Options of tritonserver, for scripts that start it: each is a synonym of a
 * Baton option, has no effect here, which is noted, or is refused with a
 * remedy. Source: the option groups of src/command_line_parser.cc of Triton
 * Inference Server, of 2024 and 2026. */
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "common/config/config_options.h"

#define VALUE_BYTES 512

typedef enum fate {
    AS,      /* `ours`, with an equal value */
    PORT,    /* the port of `ours`, an address */
    HOST,    /* host part of `ours` */
    SECONDS, /* `ours` in ms */
    VERBOSE, /* 0: as it is; more: --log-level debug */
    NO_WORD, /* has no effect and takes no value */
    NONE,    /* has no effect */
    ONLY,    /* only the value `ours` is accepted, which is the behaviour */
    CONTROL, /* --model-control-mode */
    LOAD,    /* --load-model */
    REFUSED,
} fate_t;

typedef struct row {
    const char *name;
    fate_t fate;
    const char *ours;
    const char *why; /* it has no effect, or the remedy */
} row_t;

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
static const char other_doors[] = "--http and --grpc are what is served";
static const char keys[] = "--api-keys FILE says who may do what";

static const row_t rows[] = {
    {"model-store", AS, "model-repository", ""},
    {"http-port", PORT, "http", ""},
    {"grpc-port", PORT, "grpc", ""},
    {"metrics-port", PORT, "metrics", ""},
    {"http-address", HOST, "http", ""},
    {"grpc-address", HOST, "grpc", ""},
    {"metrics-address", HOST, "metrics", ""},
    {"http-max-input-size", AS, "max-body-bytes", ""},
    {"allow-cpu-metrics", AS, "enable-cpu-metrics", ""},
    {"allow-gpu-metrics", NONE, "", "--enable-gpu-metrics is for them"},
    {"exit-timeout-secs", SECONDS, "drain-ms", ""},
    {"log-verbose", VERBOSE, "log-level", ""},
    {"model-control-mode", CONTROL, "", ""},
    {"load-model", LOAD, "", ""},
    {"allow-http", ONLY, "true",
     "HTTP is always served: --http "
     "127.0.0.1:PORT keeps it to this machine"},
    {"allow-grpc", ONLY, "true",
     "gRPC is always served: --grpc "
     "127.0.0.1:PORT keeps it to this machine"},
    {"allow-metrics", ONLY, "true",
     "metrics are always served: --metrics 127.0.0.1:PORT keeps them to this "
     "machine"},
    {"disable-auto-complete-config", NO_WORD, "", described},
    {"strict-model-config", NONE, "", described},
    {"backend-config", NONE, "", "there are no back ends of Triton"},
    {"backend-directory", NONE, "", "there are no back ends of Triton"},
    {"repoagent-directory", NONE, "", "there are no repository agents"},
    {"cache-directory", NONE, "", cache},
    {"cache-config", NONE, "", cache},
    {"response-cache-byte-size", NONE, "", cache},
    {"exit-on-error", NONE, "", "a start that fails ends"},
    {"strict-readiness", NONE, "", "ready is when all models are"},
    {"repository-poll-secs", NONE, "",
     "the repository is read once, at the start"},
    {"log-info", NONE, "", logs},
    {"log-warning", NONE, "", logs},
    {"log-error", NONE, "", logs},
    {"log-file", NONE, "", logs},
    {"rate-limit", NONE, "", "keys of --api-keys have limits of their own"},
    {"rate-limit-resource", NONE, "",
     "keys of --api-keys have limits of their own"},
    {"metrics-interval-ms", NONE, "", "metrics are always up to date"},
    {"metrics-config", NONE, "", "metrics have no settings"},
    {"http-thread-count", NONE, "", own_threads},
    {"buffer-manager-thread-count", NONE, "", own_threads},
    {"model-load-thread-count", NONE, "", own_threads},
    {"model-load-retry-count", NONE, "", "a worker that ends is started again"},
    {"model-load-gpu-limit", NONE, "", computes},
    {"model-namespacing", NONE, "", "names of models are unique"},
    {"enable-peer-access", NONE, "", computes},
    {"host-policy", NONE, "", computes},
    {"pinned-memory-pool-byte-size", NONE, "", computes},
    {"cuda-memory-pool-byte-size", NONE, "", computes},
    {"cuda-virtual-address-size", NONE, "", computes},
    {"min-supported-compute-capability", NONE, "", computes},
    {"grpc-infer-thread-count", NONE, "", own_threads},
    {"grpc-infer-allocation-pool-size", NONE, "", own_threads},
    {"grpc-max-response-pool-size", NONE, "", own_threads},
    {"grpc-infer-response-compression-level", NONE, "",
     "a client asks for compression"},
    {"grpc-keepalive-time", NONE, "", "--idle-timeout-ms ends connections"},
    {"grpc-keepalive-timeout", NONE, "", "--idle-timeout-ms ends connections"},
    {"grpc-keepalive-permit-without-calls", NONE, "",
     "--idle-timeout-ms ends connections"},
    {"grpc-http2-max-pings-without-data", NONE, "",
     "--idle-timeout-ms ends connections"},
    {"grpc-http2-min-recv-ping-interval-without-data", NONE, "",
     "--idle-timeout-ms ends connections"},
    {"grpc-http2-max-ping-strikes", NONE, "",
     "--idle-timeout-ms ends connections"},
    {"grpc-max-connection-age", NONE, "", "--idle-timeout-ms ends connections"},
    {"grpc-max-connection-age-grace", NONE, "",
     "--idle-timeout-ms ends connections"},
    {"reuse-grpc-port", NONE, "", "--reuse-http-port is for that"},
    {"http-header-forward-pattern", NONE, "", "no model sees headers"},
    {"grpc-header-forward-pattern", NONE, "", "no model sees headers"},
    {"id", NONE, "", "the server's name is its own"},
    {"trace-level", NONE, "", traces},
    {"trace-rate", NONE, "", traces},
    {"trace-count", NONE, "", traces},
    {"trace-log-frequency", NONE, "", traces},
    {"trace-config", NONE, "", traces},
    {"grpc-use-ssl", ONLY, "false", certs},
    {"grpc-use-ssl-mutual", ONLY, "false", certs},
    {"grpc-server-cert", REFUSED, "", certs},
    {"grpc-server-key", REFUSED, "", certs},
    {"grpc-root-cert", REFUSED, "", "--tls-client-ca asks clients for one"},
    {"allow-client-shm", ONLY, "false", "--shared-memory on is for that"},
    {"allow-sagemaker", ONLY, "false", other_doors},
    {"sagemaker-port", NONE, "", other_doors},
    {"sagemaker-safe-port-range", NONE, "", other_doors},
    {"sagemaker-thread-count", NONE, "", other_doors},
    {"allow-vertex-ai", ONLY, "false", other_doors},
    {"vertex-ai-port", NONE, "", other_doors},
    {"vertex-ai-thread-count", NONE, "", other_doors},
    {"vertex-ai-default-model", NONE, "", other_doors},
    {"model-config-name", REFUSED, "", "config.pbtxt is the one that is read"},
    {"http-restricted-api", REFUSED, "", keys},
    {"grpc-restricted-protocol", REFUSED, "", keys},
};

static const char *const addresses[BT_CONFIG_N_ADDRESSES] = {"http", "grpc",
                                                             "metrics"};

static const row_t *find(const char *name, size_t n)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        if ((strlen(rows[i].name) == n) &&
            (memcmp(rows[i].name, name, n) == 0)) {
            return &rows[i];
        }
    }
    return NULL;
}

static const bt_option_t *option_of(const char *name)
{
    return bt_config_option_find(name, strlen(name));
}

static bt_status_t set(bt_config_store_t *store, const char *ours,
                       const char *value, const char *where)
{
    return bt_config_store_set(store, option_of(ours), value,
                               BT_CONFIG_COMMAND_LINE, where);
}

static bt_status_t refuse(const bt_config_store_t *store, const row_t *row,
                          const char *value)
{
    bt_config_complain(store, "--%s %.100s is not served: %s", row->name,
                       (value != NULL) ? value : "", row->why);
    return BT_ERR_INVALID_PARAM;
}

/* As tritonserver reads true and false. */
static bool is_same_word(const char *want, const char *value)
{
    const bool wants_true = strcmp(want, "true") == 0;
    static const char *const yes[] = {"true", "True", "TRUE", "1", "on"};
    static const char *const no[] = {"false", "False", "FALSE", "0", "off"};

    for (size_t i = 0; i < BT_ARRAY_LEN(yes); i++) {
        if (strcmp(wants_true ? yes[i] : no[i], value) == 0) {
            return true;
        }
    }
    return false;
}

/* Kept until --http, --grpc and --metrics are known: put_addresses(). */
static bt_status_t keep_address(bt_config_store_t *store, const row_t *row,
                                const char *value)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(addresses); i++) {
        if (strcmp(addresses[i], row->ours) != 0) {
            continue;
        }
        snprintf((row->fate == PORT) ? store->triton_ports[i]
                                     : store->triton_hosts[i],
                 BT_CONFIG_TRITON_BYTES, "%s", value);
    }
    return BT_OK;
}

static bt_status_t take_control(bt_config_store_t *store, const char *mode)
{
    if (strcmp(mode, "poll") == 0) {
        bt_config_complain(store,
                           "--model-control-mode poll is not served: the "
                           "repository is read once, at the start; `explicit` "
                           "lets clients load and unload models");
        return BT_ERR_INVALID_PARAM;
    }
    if ((strcmp(mode, "none") != 0) && (strcmp(mode, "explicit") != 0)) {
        bt_config_complain(store,
                           "--model-control-mode: '%.64s' is none of none, "
                           "explicit and poll",
                           mode);
        return BT_ERR_INVALID_PARAM;
    }
    bt_config_note(store,
                   "--model-control-mode %s has no effect: all models are "
                   "loaded at the start, and a client with an admin key "
                   "loads and unloads them",
                   mode);
    return BT_OK;
}

static bt_status_t check_digits(const bt_config_store_t *store,
                                const row_t *row, const char *value)
{
    if ((value[0] == '\0') || (strspn(value, "0123456789") != strlen(value))) {
        bt_config_complain(store, "--%s: '%.64s' is no number", row->name,
                           value);
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

static bt_status_t take_verbose(bt_config_store_t *store, const row_t *row,
                                const char *value, const char *where)
{
    const bt_status_t status = check_digits(store, row, value);

    if ((status != BT_OK) || (strspn(value, "0") == strlen(value))) {
        return status;
    }
    return set(store, row->ours, "debug", where);
}

static bt_status_t take_seconds(bt_config_store_t *store, const row_t *row,
                                const char *value, const char *where)
{
    char ms[VALUE_BYTES];
    const bt_status_t status = check_digits(store, row, value);

    if (status != BT_OK) {
        return status;
    }
    snprintf(ms, sizeof(ms), "%.100s%s", value,
             (strspn(value, "0") == strlen(value)) ? "" : "000");
    return set(store, row->ours, ms, where);
}

static bt_status_t take(bt_config_store_t *store, const row_t *row,
                        const char *value)
{
    char where[128];

    snprintf(where, sizeof(where), "--%s", row->name);
    switch (row->fate) {
    case AS:
        return set(store, row->ours, value, where);
    case PORT:
    case HOST:
        return keep_address(store, row, value);
    case SECONDS:
        return take_seconds(store, row, value, where);
    case VERBOSE:
        return take_verbose(store, row, value, where);
    case CONTROL:
        return take_control(store, value);
    case LOAD:
        bt_config_note(store,
                       "--load-model %.64s has no effect: all models are "
                       "loaded at the start",
                       value);
        return BT_OK;
    case ONLY:
        return is_same_word(row->ours, value) ? BT_OK
                                              : refuse(store, row, value);
    case REFUSED:
        return refuse(store, row, value);
    default:
        bt_config_note(store, "--%s has no effect: %s", row->name, row->why);
        return BT_OK;
    }
}

bool bt_config_triton_knows(const char *name, size_t n)
{
    return find(name, n) != NULL;
}

const bt_option_t *bt_config_triton_of(const char *name, size_t n)
{
    const row_t *const row = find(name, n);

    return (row == NULL) ? NULL : option_of(row->ours);
}

bt_status_t bt_config_triton_take(bt_config_store_t *store, const char *name,
                                  size_t n, const char *value, const char *next,
                                  bool *used_p)
{
    const row_t *row = find(name, n);

    BT_ASSERT(row != NULL);
    *used_p = false;
    if ((value == NULL) && (row->fate != NO_WORD)) {
        if ((next == NULL) || (strncmp(next, "--", 2) == 0)) {
            bt_config_complain(store, "--%s needs a value", row->name);
            return BT_ERR_INVALID_PARAM;
        }
        value = next;
        *used_p = true;
    }
    return take(store, row, value);
}

bt_status_t bt_config_triton_addresses(bt_config_store_t *store)
{
    bt_status_t status = BT_OK;

    for (size_t i = 0; (i < BT_ARRAY_LEN(addresses)) && (status == BT_OK);
         i++) {
        const char *const parts[] = {store->triton_hosts[i],
                                     store->triton_ports[i]};
        const bt_option_t *option = option_of(addresses[i]);
        const char *address = *(
            const char *const *)((const char *)&store->config + option->offset);
        const char *colon = strrchr(address, ':');
        char whole[VALUE_BYTES], where[128];
        bool brackets;

        if (((parts[0][0] == '\0') && (parts[1][0] == '\0')) ||
            (colon == NULL)) {
            continue;
        }
        brackets = (strchr(parts[0], ':') != NULL) && (parts[0][0] != '[');
        snprintf(whole, sizeof(whole), "%s%.*s%s:%s", brackets ? "[" : "",
                 (parts[0][0] != '\0') ? (int)strlen(parts[0])
                                       : (int)(colon - address),
                 (parts[0][0] != '\0') ? parts[0] : address,
                 brackets ? "]" : "",
                 (parts[1][0] != '\0') ? parts[1] : colon + 1);
        snprintf(where, sizeof(where), "--%s-%s", addresses[i],
                 (parts[1][0] != '\0') ? "port" : "address");
        if ((i == 0) && store->says_host) {
            snprintf(where, sizeof(where), "--host");
        }
        status = bt_config_go_on(store, set(store, addresses[i], whole, where));
    }
    return status;
}
