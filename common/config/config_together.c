/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints between options that no single row of the table can express. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/config/config_options.h"

static bt_status_t check_times(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;

    if ((c->suspect_ms > c->heartbeat_ms) && (c->dead_ms > c->suspect_ms)) {
        return BT_OK;
    }
    bt_config_complain(store,
                       "--heartbeat-ms %u, --suspect-ms %u and --dead-ms %u "
                       "must rise in this order",
                       c->heartbeat_ms, c->suspect_ms, c->dead_ms);
    return BT_ERR_INVALID_PARAM;
}

static bt_status_t check_block(const bt_config_store_t *store)
{
    const uint32_t tokens = store->config.tokens_per_block;

    if (tokens % 2 == 0) { /* values lie by pairs of tokens */
        return BT_OK;
    }
    bt_config_complain(store, "--tokens-per-block %u must be an even number",
                       tokens);
    return BT_ERR_INVALID_PARAM;
}

static bt_status_t check_chunk(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;

    if ((c->chunk_tokens == 0) || (c->chunk_tokens >= c->tokens_per_block)) {
        return BT_OK;
    }
    bt_config_complain(store,
                       "--chunk-tokens %u is less than one block: "
                       "--tokens-per-block %u",
                       c->chunk_tokens, c->tokens_per_block);
    return BT_ERR_INVALID_PARAM;
}

static bt_status_t check_devices(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;

    if ((c->devices[0] == '\0') || (strcmp(c->backend, "cpu") != 0)) {
        return BT_OK;
    }
    bt_config_complain(store,
                       "--devices: the back end cpu has none; --backend cuda "
                       "has");
    return BT_ERR_INVALID_PARAM;
}

/* Where there is no GPU there is nothing that nv_gpu_* could say. */
static bt_status_t check_gpu_metrics(const bt_config_store_t *store)
{
    if (!store->config.gpu_metrics ||
        (access(BT_CONFIG_GPU_DRIVER, F_OK) != 0)) {
        return BT_OK;
    }
    bt_config_complain(store,
                       "--enable-gpu-metrics: nv_gpu_* is not measured by this "
                       "version; nv_trt_llm_runtime_memory_metrics has the "
                       "memory that workers take of a device");
    return BT_ERR_INVALID_PARAM;
}

static bt_status_t check_prefill(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;

    if ((c->prefill > 0) || (strcmp(c->local_prefill, "on") == 0)) {
        return BT_OK;
    }
    bt_config_complain(
        store,
        "--prefill 0 leaves no worker to run prefill; add --local-prefill on or a prefill worker");
    return BT_ERR_INVALID_PARAM;
}

/* The ports of the last router of --routers exist. */
static bt_status_t check_ports(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;
    const char *const addresses[] = {c->http, c->grpc, c->metrics};
    static const char *const names[] = {"http", "grpc", "metrics"};
    const uint32_t most =
        UINT16_MAX - (c->routers - 1) * BT_CONFIG_ROUTER_PORT_STEP;

    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        const char *const colon = strrchr(addresses[i], ':');

        if ((i == 0) && c->reuse_http_port && (c->routers > 1)) {
            if ((colon != NULL) && (strtoul(colon + 1, NULL, 10) == 0)) {
                bt_config_complain(
                    store, "--reuse-http-port needs a port in --http %s",
                    c->http);
                return BT_ERR_INVALID_PARAM;
            }
            continue; /* one port for all routers */
        }
        if ((colon != NULL) && (strtoul(colon + 1, NULL, 10) > most)) {
            bt_config_complain(store,
                               "--routers %u: the ports from --%s %s on would "
                               "pass 65535",
                               c->routers, names[i], addresses[i]);
            return BT_ERR_INVALID_PARAM;
        }
    }
    return BT_OK;
}

/* One for connections, one for their data. */
static bt_status_t check_kv_ports(const bt_config_store_t *store)
{
    uint16_t first, last;

    if ((bt_config_split_ports(store->config.kv_port_range, &first, &last) ==
         BT_OK) &&
        ((first == 0) || (first < last))) {
        return BT_OK;
    }
    bt_config_complain(store,
                       "--kv-port-range %s: give two ports from 1 to 65535, "
                       "the smaller one first, such as 20000-20100",
                       store->config.kv_port_range);
    return BT_ERR_INVALID_PARAM;
}

static const struct {
    unsigned programs;
    bt_status_t (*check)(const bt_config_store_t *store);
} checks[] = {
    {~0u, check_times},
    {~0u, check_block},
    {~0u, check_chunk},
    {~0u, check_devices},
    {~0u, check_kv_ports},
    {~0u, check_gpu_metrics},
    {BT_PROG_SERVE, check_prefill},
    {BT_PROG_SERVE | BT_PROG_ROUTER, bt_config_check_doors},
    {BT_PROG_SERVE, check_ports},
    {~0u, bt_config_models_check},
};

bt_status_t bt_config_check_together(const bt_config_store_t *store)
{
    bt_status_t status = BT_OK;

    for (size_t i = 0; (i < BT_ARRAY_LEN(checks)) && (status == BT_OK); i++) {
        if ((checks[i].programs & store->program) != 0) {
            status = bt_config_go_on(store, checks[i].check(store));
        }
    }
    return status;
}
