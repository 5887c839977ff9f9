/* SPDX-License-Identifier: Apache-2.0 */
/* Headings of --help and their options. */
#include <string.h>

#include "common/base/status.h"
#include "common/config/config_options.h"

static const char *const models[] = {"model",
                                     "served-model-name",
                                     "models-dir",
                                     "chat-template",
                                     "max-seq-len",
                                     "model-repository",
                                     "reasoning-parser",
                                     "override-generation-config",
                                     "tool-call-parser",
                                     "chat-template-content-format",
                                     NULL};
static const char *const processes[] = {"prefill",
                                        "decode",
                                        "routers",
                                        "reuse-http-port",
                                        "prefill-threads",
                                        "decode-threads",
                                        "threads",
                                        "reduction-parts",
                                        "prefill-tp",
                                        "decode-tp",
                                        "tp",
                                        "prefill-pp",
                                        "decode-pp",
                                        "pp",
                                        "standby",
                                        "assignment-fd",
                                        "cores",
                                        "share-idle-cores",
                                        "borrowed-cores",
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
                                    "admin-without-keys",
                                    "insecure",
                                    "allowed-hosts",
                                    "cors-origins",
                                    "shared-memory",
                                    "out-of-vocabulary-ids",
                                    "vertex-health-route",
                                    "vertex-predict-route",
                                    NULL};
static const char *const memory[] = {"kv-memory",
                                     "kv-dtype",
                                     "kv-tokens",
                                     "kv-free-percent",
                                     "tokens-per-block",
                                     "prefix-cache",
                                     "max-ungranted-kv-percent",
                                     "quarantine-ms",
                                     "weight-cache",
                                     NULL};
static const char *const batching[] = {
    "max-batch-size",     "chunk-tokens",       "itl-budget-ms",
    "prefill-order",      "decode-order",       "scheduler-policy",
    "midstep-join",       "overlap-scheduling", "kv-overlap",
    "max-queue-delay-us", "batching-strategy",  "client-priority",
    "simulate-step-us",   "simulate-token-us",  NULL};
static const char *const requests[] = {"max-concurrent-requests",
                                       "max-body-bytes",
                                       "max-logits-bytes",
                                       "client-buffer-bytes",
                                       "http-memory",
                                       "router-memory",
                                       "max-connections",
                                       "max-connections-per-address",
                                       "max-event-streams",
                                       "expose-request-text",
                                       "tokenizer-threads",
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
    "backend",       "numerics",       "allow-mixed-numerics",
    "devices",       "kv-transport",   "kv-net-devices",
    "kv-port-range", "link-transport", NULL};
static const char *const logs[] = {"log-level",
                                   "log-format",
                                   "log-dir",
                                   "log-max-bytes",
                                   "log-keep",
                                   "access-log",
                                   "trace-file",
                                   "otlp-traces-endpoint",
                                   "otlp-headers-file",
                                   "otlp-queue-bytes",
                                   "enable-cpu-metrics",
                                   "enable-gpu-metrics",
                                   NULL};
static const char *const failures[] = {"heartbeat-ms",
                                       "suspect-ms",
                                       "dead-ms",
                                       "compute-watchdog-ms",
                                       "watchdog-ms",
                                       "lame-duck-ms",
                                       "drain-ms",
                                       "core-dumps",
                                       NULL};
static const char *const nothing[] = {NULL};

const bt_option_section_t bt_config_sections[BT_CONFIG_N_SECTIONS] = {
    {"Models", models},
    {"Processes and cores", processes},
    {"Addresses and access", doors},
    {"Memory", memory},
    {"Batches", batching},
    {"Requests and their limits", requests},
    {"Devices and transports", devices},
    {"Logs, traces and metrics", logs},
    {"Failures and stopping", failures},
    /* Also options between processes that are started by hand. */
    {"Other options", nothing},
};

size_t bt_config_section_of(const bt_option_t *option)
{
    for (size_t i = 0; i < BT_CONFIG_N_SECTIONS - 1; i++) {
        const char *const *name = bt_config_sections[i].names;

        while ((*name != NULL) && (strcmp(*name, option->name) != 0)) {
            name++;
        }
        if (*name != NULL) {
            return i;
        }
    }
    return BT_CONFIG_N_SECTIONS - 1;
}

bool bt_config_section_is_used(size_t group, unsigned programs,
                               bt_option_tier_t tier)
{
    BT_ASSERT(group < BT_CONFIG_N_SECTIONS);
    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        const bt_option_t *const option = &bt_config_options[i];

        if (((programs == 0) || ((option->programs & programs) != 0)) &&
            (option->tier <= tier) && (bt_config_section_of(option) == group)) {
            return true;
        }
    }
    return false;
}
