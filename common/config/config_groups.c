/* SPDX-License-Identifier: Apache-2.0 */
/* Headings of --help and their options. */
#include <string.h>

#include "common/base/assert.h"
#include "common/config/config_options.h"

static const char *const models[] = {"model",
                                     "model-name",
                                     "models-dir",
                                     "chat-template",
                                     "context-tokens",
                                     "model-repository",
                                     "reasoning",
                                     "override-generation-config",
                                     "tool-format",
                                     "chat-template-content-format",
                                     NULL};
static const char *const processes[] = {"prefill",
                                        "decode",
                                        "routers",
                                        "share-http",
                                        "threads-prefill",
                                        "threads-decode",
                                        "threads",
                                        "sum-parts",
                                        "prefill-tp",
                                        "decode-tp",
                                        "tp",
                                        "prefill-pp",
                                        "decode-pp",
                                        "pp",
                                        "standby",
                                        "place-from",
                                        "cores",
                                        "lend-cores",
                                        "lent-cores",
                                        "worker-nice",
                                        "role",
                                        "workers-pinned",
                                        "local-prefill",
                                        NULL};
static const char *const doors[] = {"http",
                                    "port",
                                    "grpc",
                                    "metrics",
                                    "tls-cert",
                                    "tls-key",
                                    "tls-client-ca",
                                    "api-keys",
                                    "tenant-header",
                                    "orders-without-keys",
                                    "insecure",
                                    "allowed-hosts",
                                    "cors-origins",
                                    "shared-memory",
                                    "out-of-vocabulary-ids",
                                    "vertex-health-route",
                                    "vertex-predict-route",
                                    NULL};
static const char *const memory[] = {"kv-memory",          "kv-type",
                                     "kv-tokens",          "kv-free-percent",
                                     "tokens-per-block",   "prefix-cache",
                                     "waiting-kv-percent", "quarantine-ms",
                                     "weight-cache",       NULL};
static const char *const batching[] = {
    "max-batch",      "chunk-tokens",      "chunk-itl-ms",
    "prefill-order",  "decode-order",      "scheduler-policy",
    "late-join",      "steps-ahead",       "kv-overlap",
    "queue-delay-us", "batching-strategy", "client-priority",
    "rehearse-us",    "rehearse-token-us", NULL};
static const char *const requests[] = {"max-queue",
                                       "max-body-bytes",
                                       "max-logits-bytes",
                                       "client-buffer-bytes",
                                       "http-memory",
                                       "router-memory",
                                       "max-connections",
                                       "max-client-connections",
                                       "max-watchers",
                                       "request-texts",
                                       "parse-threads",
                                       "header-timeout-ms",
                                       "body-timeout-ms",
                                       "idle-timeout-ms",
                                       "sse-keepalive-s",
                                       "request-timeout-ms",
                                       "ttft-target-ms",
                                       "itl-target-ms",
                                       "model-targets",
                                       "worker-wait-ms",
                                       "exclude-input-in-output",
                                       "accumulate-tokens",
                                       "unknown-fields",
                                       NULL};
static const char *const devices[] = {
    "backend",    "numerics",      "mixed-profiles", "devices", "transport",
    "net-device", "kv-port-range", "link-transport", NULL};
static const char *const logs[] = {"log-level",
                                   "log-format",
                                   "log-dir",
                                   "log-max-bytes",
                                   "log-keep",
                                   "access-log",
                                   "trace",
                                   "otlp",
                                   "otlp-headers",
                                   "otlp-queue",
                                   "enable-cpu-metrics",
                                   "enable-gpu-metrics",
                                   NULL};
static const char *const failures[] = {
    "heartbeat-ms", "suspect-ms", "dead-ms",    "stuck-ms", "watchdog-ms",
    "lame-duck-ms", "drain-ms",   "core-dumps", NULL};
static const char *const nothing[] = {NULL};

const bt_option_group_t bt_config_groups[BT_CONFIG_N_GROUPS] = {
    {"Models", models},
    {"Processes and cores", processes},
    {"Addresses and who may use them", doors},
    {"Memory", memory},
    {"Batches", batching},
    {"Requests and their limits", requests},
    {"Devices and transports", devices},
    {"Logs, traces and metrics", logs},
    {"Failures and stopping", failures},
    /* Also options between processes that are started by hand. */
    {"Other options", nothing},
};

size_t bt_config_group_of(const bt_option_t *option)
{
    for (size_t i = 0; i < BT_CONFIG_N_GROUPS - 1; i++) {
        const char *const *name = bt_config_groups[i].names;

        while ((*name != NULL) && (strcmp(*name, option->name) != 0)) {
            name++;
        }
        if (*name != NULL) {
            return i;
        }
    }
    return BT_CONFIG_N_GROUPS - 1;
}

bool bt_config_group_is_used(size_t group, unsigned programs)
{
    BT_ASSERT(group < BT_CONFIG_N_GROUPS);
    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        const bt_option_t *const option = &bt_config_options[i];

        if (((programs == 0) || ((option->programs & programs) != 0)) &&
            (bt_config_group_of(option) == group)) {
            return true;
        }
    }
    return false;
}
