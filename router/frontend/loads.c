/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/loads.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/pool.h"
#include "router/frontend/frontend.h"
#include "router/frontend/watching.h"

typedef struct load {
    bt_pool_job_t job;
    bt_list_t link;
    bt_frontend_t *front;
    char name[BT_CONFIG_MODEL_NAME_BYTES];
    char *path;          /* owned */
    bool unloaded;       /* requested in the meantime */
    bt_served_t *served; /* NULL: not read */
} load_t;

static void load_free(load_t *load)
{
    bt_free(load->path);
    bt_free(load);
}

/* ---- the pool ---- */

static void read_model(bt_pool_job_t *job)
{
    load_t *load = BT_CONTAINER_OF(job, load_t, job);
    const bt_config_t *config = load->front->config;
    const bt_served_options_t options =
        bt_served_options_of(config, load->name, load->path);

    if (bt_served_read(&options, &load->served) != BT_OK) {
        load->served = NULL;
    }
}

static void drop(bt_pool_job_t *job)
{
    bt_served_free(BT_CONTAINER_OF(job, load_t, job)->served);
}

/* ---- the event loop ---- */

static void dropped(bt_pool_job_t *job)
{
    if (!job->ran) {
        drop(job);
    }
    load_free(BT_CONTAINER_OF(job, load_t, job));
}

static void set_unloaded(bt_served_t *served, bool unloaded)
{
    if (served->unloaded != unloaded) {
        served->unloaded = unloaded;
        BT_LOG_INFO("model %s is %s", served->name,
                    unloaded ? "unloaded" : "loaded again");
        bt_watching_loaded(served);
    }
}

static void model_read(bt_pool_job_t *job)
{
    load_t *load = BT_CONTAINER_OF(job, load_t, job);

    bt_list_remove(&load->link);
    load->front->loads.n_ended++;
    if (!job->ran || (load->served == NULL)) {
        load_free(load);
        return;
    }
    if (bt_registry_add(&load->front->models, load->served, load->path) !=
        BT_OK) {
        job->run = drop; /* freeing a tokenizer takes long, too */
        job->done = dropped;
        bt_pool_post(load->front->pool, job, BT_POOL_FILES);
        return;
    }
    BT_LOG_INFO("model %s was loaded", load->served->name);
    bt_watching_loaded(load->served);
    set_unloaded(load->served, load->unloaded);
    load_free(load);
}

static void begin(bt_loads_t *loads, const char *name, const char *path)
{
    load_t *load = bt_calloc(1, sizeof(*load));

    if (load != NULL) {
        load->path = bt_strdup(path);
    }
    if ((load == NULL) || (load->path == NULL)) {
        BT_LOG_ERROR("out of memory for model %s", path);
        bt_free(load);
        return;
    }
    snprintf(load->name, sizeof(load->name), "%s", name);
    load->front = loads->front;
    load->job.run = read_model;
    load->job.done = model_read;
    bt_list_push_back(&loads->under_way, &load->link);
    bt_pool_post(loads->front->pool, &load->job, BT_POOL_FILES);
}

void bt_loads_init(bt_loads_t *loads, bt_frontend_t *front)
{
    *loads = (bt_loads_t){.front = front};
    bt_list_init(&loads->under_way);
}

static load_t *find(const bt_loads_t *loads, const char *name)
{
    BT_LIST_FOR_EACH_ENTRY(load_t, load, &loads->under_way, link) {
        if (strcmp(load->name, name) == 0) {
            return load;
        }
    }
    return NULL;
}

void bt_loads_want(bt_loads_t *loads, const char *name, const char *path,
                   bool unloaded)
{
    bt_served_t *served = bt_registry_named(&loads->front->models, name);
    load_t *load = find(loads, name);

    if (served != NULL) {
        set_unloaded(served, unloaded);
    } else if (load != NULL) {
        load->unloaded = unloaded;
    } else if (!unloaded) {
        begin(loads, name, path);
    }
}

bool bt_loads_any(const bt_loads_t *loads)
{
    return !bt_list_empty(&loads->under_way);
}
