/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/frontend.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/config/config.h"
#include "router/frontend/adapter_loads.h"
#include "router/frontend/lora_tasks.h"
#include "router/frontend/watching.h"
#include "router/frontend/weight_update.h"

#define FOLDER_BYTES 256 /* name of a router's own folder */

static bt_status_t open_models(bt_frontend_t *front)
{
    const bt_config_t *config = front->config;
    bt_status_t status = BT_OK;

    if (config->n_models == 0) {
        BT_LOG_ERROR("no model given: use --model PATH");
        return BT_ERR_INVALID_PARAM;
    }
    for (uint32_t i = 0; (i < config->n_models) && (status == BT_OK); i++) {
        char name[BT_CONFIG_MODEL_NAME_BYTES];
        const bt_served_options_t options =
            bt_served_options_of(config, name, config->models[i].path);
        bt_served_t *served = NULL;

        bt_config_model_name(&config->models[i],
                             (i == 0) ? config->served_model_name : "", name);
        status = bt_served_read(&options, &served);
        if (status == BT_OK) {
            status = bt_registry_add(&front->models, served, options.path);
        }
        if (status != BT_OK) {
            bt_served_free(served);
        }
    }
    if (status == BT_OK) {
        status = bt_served_adapters_open(&front->models, config);
    }
    return (status == BT_OK)
               ? bt_lora_tasks_open(bt_registry_find(&front->models, NULL))
               : status;
}

/* Limit on clients' shared memory that is read for requests in progress: as for
 * bodies. */
static uint64_t max_held_bytes(const bt_config_t *config)
{
    const uint64_t least = 8 * config->max_body_bytes;

    return (config->http_memory_bytes > least) ? config->http_memory_bytes
                                               : least;
}

static bt_status_t open_trace(bt_frontend_t *front)
{
    const bt_config_t *config = front->config;
    const bt_trace_options_t options = {
        .path = config->trace_file,
        .url = config->otlp_traces_endpoint,
        .headers = config->otlp_headers_file,
        .otlp_queue_bytes = config->otlp_queue_bytes,
        .instance = config->name,
    };

    return bt_trace_open(&options, &front->trace);
}

bt_store_config_t bt_frontend_store_config(const bt_config_t *config)
{
    const bool has_tenants =
        (config->api_keys[0] != '\0') || (config->tenant_header[0] != '\0');
    const uint64_t limit = config->store_limit_bytes;

    return (bt_store_config_t){
        .path = config->store,
        .key_path = config->store_key,
        .munge_socket = config->munge_socket,
        .limit_bytes = limit,
        .space_bytes = (config->store_tenant_limit_bytes > 0)
                           ? config->store_tenant_limit_bytes
                           : (has_tenants ? limit / 2 : limit),
        .ttl_s = config->store_ttl_s,
        .has_spaces = has_tenants,
    };
}

/* Writes the name of the router's folder in --response-store-dir: no other
 * router has it. */
static void name_own_folder(const bt_config_t *config, char name[FOLDER_BYTES])
{
    char host[HOST_NAME_MAX + 1] = "";

    (void)gethostname(host, sizeof(host) - 1);
    snprintf(name, FOLDER_BYTES, "%.128s@%s",
             (config->name[0] != '\0') ? config->name : "router", host);
}

/* Opens the store of responses: a folder for all routers, one of --store, or
 * memory. */
static bt_status_t open_responses(bt_frontend_t *front)
{
    const bt_config_t *config = front->config;
    bt_store_config_t store = bt_frontend_store_config(config);
    const uint64_t limit = config->response_store_limit_bytes;
    char own_name[FOLDER_BYTES];
    char path[PATH_MAX] = "";

    if (limit == 0) {
        return BT_OK;
    }
    if (config->response_store_dir[0] != '\0') {
        snprintf(path, sizeof(path), "%s", config->response_store_dir);
        name_own_folder(config, own_name);
        store.own_name = own_name;
    } else if ((front->store != NULL) &&
               ((size_t)snprintf(path, sizeof(path), "%s/" BT_STORE_RESPONSES,
                                 config->store) >= sizeof(path))) {
        BT_LOG_ERROR("--store: the path is too long");
        return BT_ERR_TOO_LARGE;
    }
    store.path = path;
    store.limit_bytes = limit;
    store.space_bytes =
        ((config->api_keys[0] != '\0') || (config->tenant_header[0] != '\0'))
            ? limit / 2
            : limit;
    store.ttl_s = config->response_store_ttl_s;
    return bt_store_open(&store, bt_unix_us(), &front->responses);
}

bt_status_t bt_frontend_open(bt_frontend_t *front, const bt_config_t *config,
                             const bt_frontend_ops_t *ops, bt_send_t send,
                             void *send_ctx)
{
    bt_status_t status;

    *front = (bt_frontend_t){
        .ops = ops, .config = config, .inline_us = BT_FRONTEND_INLINE_US};
    bt_turn_init(&front->turn);
    bt_router_pause_init(&front->pause);
    bt_router_sleep_init(&front->sleep);
    bt_list_init(&front->held);
    bt_list_init(&front->waiting);
    bt_list_init(&front->placed);
    bt_list_init(&front->paced);
    bt_registry_init(&front->models, front, send, send_ctx);
    bt_loads_init(&front->loads, front);
    bt_list_init(&front->stoppable);
    if (getrandom(&front->id_start, sizeof(front->id_start), 0) < 0) {
        BT_LOG_ERROR("cannot read random numbers: %m");
        return BT_ERR_IO;
    }
    status = bt_pool_create(bt_parse_threads(config, bt_limits_n_cpus()),
                            &front->pool);
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot create threads: %s", bt_status_str(status));
        return status;
    }
    bt_budget_init(&front->requests, UINT64_MAX);
    bt_budget_init(&front->answers, UINT64_MAX);
    bt_work_orders_init(&front->orders, front->pool);
    status = bt_router_metrics_create(&front->metrics);
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot create the metrics: %s", bt_status_str(status));
        return status;
    }
    bt_router_metrics_v1(front->metrics,
                         strcmp(config->batching_strategy, "V1") == 0);
    status =
        bt_grammar_cache_create(BT_FRONTEND_GRAMMAR_BYTES, &front->grammars);
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot create the cache of grammars: %s",
                     bt_status_str(status));
        return status;
    }
    status = bt_watching_open(front);
    if (status != BT_OK) {
        return status;
    }
    status =
        bt_tenants_open(&front->tenants, config->api_keys,
                        config->tenant_header, front->metrics, bt_now_us());
    if (status == BT_OK) {
        status = bt_names_init(&front->names, config, front->metrics);
    }
    if (status == BT_OK) {
        status = bt_ids_init(&front->ids);
    }
    if ((status == BT_OK) && (strcmp(config->shared_memory, "on") == 0)) {
        status = bt_regions_create(max_held_bytes(config), &front->regions);
    }
    if ((status == BT_OK) && (config->store[0] != '\0')) {
        const bt_store_config_t store = bt_frontend_store_config(config);

        status = bt_store_open(&store, bt_unix_us(), &front->store);
    }
    if (status == BT_OK) {
        status = open_responses(front);
    }
    if ((status == BT_OK) && ((config->trace_file[0] != '\0') ||
                              (config->otlp_traces_endpoint[0] != '\0'))) {
        status = open_trace(front);
    }
    if ((status == BT_OK) && (config->access_log[0] != '\0')) {
        status = bt_access_log_open(config->access_log,
                                    strcmp(config->log_format, "json") == 0,
                                    &front->access);
    }
    return (status == BT_OK) ? open_models(front) : status;
}

void bt_frontend_close(bt_frontend_t *front)
{
    if (front->config == NULL) {
        return;
    }
    if (front->pool != NULL) {
        bt_pool_stop(front->pool); /* it uses the models */
    }
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        bt_weight_update_drop(served);
        bt_adapter_load_drop(served);
        bt_lora_tasks_drop(served);
        bt_core_record_rest(served->core);
    }
    bt_registry_fini(&front->models);
    bt_trace_close(front->trace);
    bt_access_log_close(front->access);
    bt_pool_destroy(front->pool);
    bt_grammar_cache_destroy(front->grammars);
    bt_work_orders_fini(&front->orders);
    bt_tenants_close(&front->tenants);
    bt_router_metrics_destroy(front->metrics);
    bt_watch_destroy(front->watch);
    bt_regions_destroy(front->regions);
    bt_store_close(front->store);
    bt_store_close(front->responses);
    *front = (bt_frontend_t){0};
}

void bt_frontend_limit_memory(bt_frontend_t *front, uint64_t http_bytes,
                              uint64_t process_bytes)
{
    front->requests.limit = http_bytes;
    front->answers.limit = http_bytes;
    front->most_bytes = process_bytes;
}

/* Last resort: checks the memory of the whole process, counted or not. */
static void look_at_memory(bt_frontend_t *front)
{
    const bool full = (front->most_bytes > 0) &&
                      (bt_process_private_bytes() > front->most_bytes);

    if (full && !front->requests.process_is_full) {
        BT_LOG_WARN(
            "the router uses more than %" PRIu64
            " MiB of memory (router-memory): requests over 64 KiB are refused",
            (front->most_bytes >> 20));
    }
    front->requests.process_is_full = full;
    front->answers.process_is_full = full;
}

void bt_frontend_turn(bt_frontend_t *front)
{
    front->ops->turn(front);
    bt_turn_step(&front->turn, bt_now_us());
    bt_router_metrics_turn(front->metrics);
}

void bt_frontend_tick(bt_frontend_t *front, uint64_t now_us)
{
    bt_otlp_counts_t sent;

    look_at_memory(front);
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        bt_weight_update_tick(served, now_us);
        bt_adapter_load_tick(served, now_us);
        bt_lora_tasks_tick(served, now_us);
        bt_core_tick(served->core, now_us);
    }
    bt_router_pause_tick(front);
    bt_router_sleep_tick(front, now_us);
    front->ops->tick(front, now_us);
    if (front->store != NULL) {
        bt_store_tick(front->store, front->pool, bt_unix_us());
    }
    if (front->responses != NULL) {
        bt_store_tick(front->responses, front->pool, bt_unix_us());
    }
    bt_watching_tick(front, now_us);
    if (front->trace != NULL) {
        bt_router_metrics_add(
            front->metrics, BT_PC_TRACE_LOST,
            (double)bt_trace_flush(front->trace, now_us / 1000));
        bt_trace_otlp_counts(front->trace, &sent);
        bt_router_metrics_otlp(front->metrics, &sent);
    }
    if (front->access != NULL) {
        bt_router_metrics_add(
            front->metrics, BT_PC_ACCESS_LOST,
            (double)bt_access_log_flush(front->access, now_us / 1000));
    }
}

void bt_frontend_reopen(bt_frontend_t *front)
{
    if (front->trace != NULL) {
        bt_trace_reopen(front->trace);
    }
    if (front->access != NULL) {
        bt_access_log_reopen(front->access);
    }
}

void bt_frontend_end_all(bt_frontend_t *front, const char *why, uint64_t now_us)
{
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        bt_core_end_all(served->core, why, now_us);
    }
}

bool bt_frontend_ready(const bt_frontend_t *front)
{
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        if (!served->unloaded && !bt_served_ready(served)) {
            return false;
        }
    }
    return !front->leaving;
}

/* True when the tenant holds its part of the queue, and the queue is nearly
 * full. */
static bool has_its_slots(const bt_frontend_t *front, const bt_tenant_t *tenant,
                          uint32_t in_flight, size_t n)
{
    const uint32_t max_queue = front->config->max_concurrent_requests;
    const uint32_t kept = max_queue / 8;

    return (kept > 0) && (tenant != NULL) &&
           bt_tenants_are_many(&front->tenants) &&
           (in_flight + n > max_queue - kept) &&
           (tenant->n_under_way + n > kept);
}

bt_status_t bt_frontend_check_slots(const bt_frontend_t *front,
                                    const bt_tenant_t *tenant, size_t n,
                                    bt_api_error_t *error_p)
{
    const uint32_t max_queue = front->config->max_concurrent_requests;
    const uint32_t in_flight = bt_frontend_n_in_flight(front);

    if (front->draining) {
        bt_api_error_set(error_p, 503, NULL, "the server is stopping");
    } else if (n > BT_API_MAX_PROMPTS) {
        bt_api_error_set(error_p, 400, "n",
                         "prompts times n is %zu answers, more than the limit "
                         "of %d",
                         n, BT_API_MAX_PROMPTS);
    } else if (in_flight + n > max_queue) {
        bt_api_error_set(error_p, 429, NULL,
                         "%u requests are in flight and the limit is %u, try "
                         "again later",
                         in_flight, max_queue);
    } else if (has_its_slots(front, tenant, in_flight, n)) {
        bt_api_error_set(error_p, 429, NULL,
                         "%u requests are in flight of %u, and the rest is for "
                         "others: %u of them are yours, try again later",
                         in_flight, max_queue, tenant->n_under_way);
    } else {
        return BT_OK;
    }
    return BT_ERR_BUSY;
}

uint32_t bt_frontend_n_in_flight(const bt_frontend_t *front)
{
    uint32_t n = front->n_arriving + front->n_answers + front->n_held;

    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        n += bt_core_n_in_flight(served->core);
    }
    return n;
}

uint32_t bt_frontend_n_legs(const bt_frontend_t *front)
{
    uint32_t n = 0;

    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        n += bt_core_n_legs(served->core);
    }
    return n;
}

bool bt_frontend_admits_anybody(const bt_frontend_t *front)
{
    return strcmp(front->config->admin_without_keys, "anybody") == 0;
}
