/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/adapter_loads.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/repository/repository.h"
#include "inference/adapter/adapter.h"
#include "router/frontend/frontend.h"
#include "router/frontend/lora_tasks.h"

#define WHY_BYTES 512

struct bt_adapter_load {
    bt_pool_job_t job;
    bt_served_t *served;
    bt_hf_modules_t model;
    bt_served_adapter_t adapter; /* name, tenant, digest */
    char path[BT_WIRE_MAX_PATH];
    bool is_reading;
    uint64_t since_us;
    bt_adapter_load_done_t *done; /* NULL: nobody waits */
    void *ctx;
    /* Results of reading. */
    bt_status_t status;
    char why[WHY_BYTES];
};

/* ---- the pool ---- */

static void read_adapter(bt_pool_job_t *job)
{
    bt_adapter_load_t *const load =
        BT_CONTAINER_OF(job, bt_adapter_load_t, job);
    bt_adapter_t *adapter = NULL;

    load->status = bt_adapter_open_for(load->path, &load->model, load->why,
                                       sizeof(load->why), &adapter);
    if (load->status == BT_OK) {
        load->adapter.digest = adapter->digest;
    }
    bt_adapter_free(adapter);
}

/* ---- the event loop ---- */

/* @return true when a name, a task, or a load that is under way, has the
 * content */
static bool has_digest(const bt_served_t *served, bt_hash128_t digest)
{
    const bt_adapter_load_t *const load = served->adapter_load;

    if ((load != NULL) && !load->is_reading &&
        bt_hash128_equal(load->adapter.digest, digest)) {
        return true;
    }
    for (uint32_t i = 0; i < served->n_adapters; i++) {
        if (bt_hash128_equal(served->adapters[i].digest, digest)) {
            return true;
        }
    }
    return bt_lora_tasks_have(served, digest);
}

void bt_adapter_drop_unused(bt_served_t *served, bt_hash128_t digest)
{
    if (!has_digest(served, digest)) {
        bt_core_adapter_drop(served->core, digest);
        return;
    }
    for (uint32_t i = served->n_adapters; i > 0; i--) {
        const bt_served_adapter_t *const at = &served->adapters[i - 1];

        if (at->is_loaded && bt_hash128_equal(at->digest, digest)) {
            if (bt_core_adapter_load(served->core, digest, at->name,
                                     at->path) != BT_OK) {
                BT_LOG_WARN("adapter %s: out of memory", at->name);
            }
            return;
        }
    }
}

/* @param error  http_status 0: it is loaded */
static void finish(bt_served_t *served, const bt_api_error_t *error)
{
    bt_adapter_load_t *const load = served->adapter_load;

    served->adapter_load = NULL;
    bt_router_metrics_adapter_load(served->metrics, error->http_status == 0);
    if (error->http_status != 0) {
        BT_LOG_WARN("adapter %s (%s): %s", load->adapter.name, load->path,
                    error->message);
    } else {
        BT_LOG_INFO("adapter %s was loaded from %s", load->adapter.name,
                    load->path);
    }
    if (load->done != NULL) {
        load->done(load->ctx, error);
    }
    bt_adapter_drop_unused(served, load->adapter.digest);
    bt_free(load);
}

static void read_done(bt_pool_job_t *job)
{
    bt_adapter_load_t *const load =
        BT_CONTAINER_OF(job, bt_adapter_load_t, job);
    bt_served_t *const served = load->served;
    bt_api_error_t error = {0};

    load->is_reading = false;
    load->since_us = bt_now_us();
    if (!job->ran) {
        load->status = BT_ERR_NO_MEMORY;
    }
    if (load->status == BT_OK) {
        load->status = bt_core_adapter_load(served->core, load->adapter.digest,
                                            load->adapter.name, load->path);
    }
    if (load->status != BT_OK) {
        bt_api_error_set(&error, (load->status == BT_ERR_NO_MEMORY) ? 503 : 400,
                         "lora_path", "%.400s",
                         (load->why[0] != '\0') ? load->why : "out of memory");
        finish(served, &error);
    }
}

static const bt_served_adapter_t *named(const bt_served_t *served,
                                        const char *name)
{
    for (uint32_t i = 0; i < served->n_adapters; i++) {
        if (strcmp(served->adapters[i].name, name) == 0) {
            return &served->adapters[i];
        }
    }
    return NULL;
}

static void offer(bt_served_t *served)
{
    bt_adapter_load_t *const load = served->adapter_load;
    const bool replaces = named(served, load->adapter.name) != NULL;
    bt_hash128_t before = {0, 0};
    bt_api_error_t error = {0};

    load->adapter.created = (int64_t)(bt_walltime_ms() / 1000);
    load->adapter.is_loaded = true;
    bt_core_adapter_offer(served->core, load->adapter.digest);
    if (bt_served_adapter_add(served, &load->adapter, load->path) != BT_OK) {
        bt_api_error_set(&error, 503, NULL, "out of memory for this adapter");
    } else if (replaces) { /* the one before, which stands in front */
        before = bt_served_adapter_remove(served, load->adapter.name);
    }
    finish(served, &error);
    bt_adapter_drop_unused(served, before);
}

void bt_adapter_load_tick(bt_served_t *served, uint64_t now_us)
{
    const bt_adapter_load_t *const load = served->adapter_load;
    char why[WHY_BYTES] = "";
    bt_api_error_t error = {0};
    bt_status_t status;

    if ((load == NULL) || load->is_reading) {
        return;
    }
    status = bt_core_adapter_look(served->core, load->adapter.digest, why,
                                  sizeof(why));
    if (status == BT_OK) {
        offer(served);
        return;
    }
    if ((status == BT_ERR_BUSY) &&
        (now_us < load->since_us + BT_ADAPTER_LOAD_US)) {
        return;
    }
    if (status == BT_ERR_BUSY) {
        snprintf(why, sizeof(why), "not all workers have loaded it in time");
    }
    bt_api_error_set(&error,
                     (status == BT_ERR_BUSY)        ? 504
                     : (status == BT_ERR_PEER_LOST) ? 503
                                                    : 400,
                     "lora_path", "%.400s", why);
    finish(served, &error);
}

static bt_status_t check_name(const bt_served_t *served,
                              const bt_adapter_load_spec_t *spec,
                              bt_api_error_t *error)
{
    const bt_served_adapter_t *const same = named(served, spec->name);

    if (!bt_config_is_model_name(spec->name, strlen(spec->name))) {
        return bt_api_error_invalid(error, "lora_name",
                                    "lora_name is no name of a model");
    }
    if ((bt_registry_named(&served->front->models, spec->name) != NULL) ||
        bt_repo_is_name(spec->name) || ((same != NULL) && !same->is_loaded)) {
        bt_api_error_set(error, 400, "lora_name",
                         "the name '%s' is that of a model, or of an adapter "
                         "of the command line",
                         spec->name);
        return BT_ERR_EXISTS;
    }
    if ((same != NULL) && !spec->in_place) {
        bt_api_error_set(error, 400, "lora_name",
                         "The lora adapter '%s' has already been loaded. If "
                         "you want to load the adapter in place, set "
                         "'load_inplace' to True.",
                         spec->name);
        return BT_ERR_EXISTS;
    }
    if (served->adapter_load != NULL) {
        bt_api_error_set(error, 409, NULL,
                         "adapter %s is being loaded: try again later",
                         served->adapter_load->adapter.name);
        return BT_ERR_BUSY;
    }
    return BT_OK;
}

static bt_status_t check_tenant(const bt_served_t *served,
                                const bt_adapter_load_spec_t *spec,
                                bt_api_error_t *error)
{
    if ((spec->tenant == NULL) ||
        bt_tenants_may_have(&served->front->tenants, spec->tenant)) {
        return BT_OK;
    }
    bt_api_error_set(error, 400, "tenant",
                     "this server has no tenant '%.64s'; without a tenant, all "
                     "see the adapter",
                     spec->tenant);
    return BT_ERR_INVALID_PARAM;
}

bt_status_t bt_adapter_load_begin(bt_served_t *served,
                                  const bt_adapter_load_spec_t *spec,
                                  bt_adapter_load_done_t *done, void *ctx,
                                  bt_api_error_t *error_p)
{
    char why[WHY_BYTES] = "";
    bt_adapter_load_t *load;
    bt_status_t status = check_name(served, spec, error_p);

    if (status == BT_OK) {
        status = check_tenant(served, spec, error_p);
    }
    if (status != BT_OK) {
        return status;
    }
    load = bt_calloc(1, sizeof(*load));
    if (load == NULL) {
        return bt_api_error_no_memory(error_p);
    }
    status = bt_config_resolve("--lora-dir", served->front->config->lora_dir,
                               spec->path, load->path, sizeof(load->path), why,
                               sizeof(why));
    if (status == BT_OK) {
        status =
            bt_hf_modules_read(served->gguf, why, sizeof(why), &load->model);
    }
    if (status != BT_OK) {
        bt_api_error_set(error_p, (status == BT_ERR_NOT_FOUND) ? 404 : 400,
                         "lora_path", "%.200s: %.300s", spec->path, why);
        bt_free(load);
        return status;
    }
    snprintf(load->adapter.name, sizeof(load->adapter.name), "%s", spec->name);
    snprintf(load->adapter.tenant, sizeof(load->adapter.tenant), "%s",
             (spec->tenant != NULL) ? spec->tenant : "");
    load->served = served;
    load->done = done;
    load->ctx = ctx;
    load->is_reading = true;
    load->job.run = read_adapter;
    load->job.done = read_done;
    served->adapter_load = load;
    bt_pool_post(served->front->pool, &load->job, BT_POOL_FILES);
    return BT_OK;
}

void bt_adapter_load_leave(bt_served_t *served, const void *ctx)
{
    bt_adapter_load_t *const load = served->adapter_load;

    if ((load != NULL) && (load->ctx == ctx)) {
        load->done = NULL;
        load->ctx = NULL;
    }
}

void bt_adapter_load_drop(bt_served_t *served)
{
    bt_free(served->adapter_load);
    served->adapter_load = NULL;
}

bt_status_t bt_adapter_unload(bt_served_t *served, const char *name)
{
    const bt_served_adapter_t *const at = named(served, name);

    if ((at == NULL) || !at->is_loaded) {
        return BT_ERR_NOT_FOUND;
    }
    bt_adapter_drop_unused(served, bt_served_adapter_remove(served, name));
    BT_LOG_INFO("adapter %s was unloaded", name);
    return BT_OK;
}
