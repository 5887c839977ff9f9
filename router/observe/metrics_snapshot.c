/* SPDX-License-Identifier: Apache-2.0 */
/* Copies the values of a page: the only cost for the owner's thread. */
#include <string.h>

#include "common/base/alloc.h"
#include "router/observe/metrics_priv.h"

/* Roles of the latest report; an older worker reports its role once. */
static uint32_t roles_of(const bt_metrics_worker_t *worker)
{
    const uint32_t said =
        (worker->stats == NULL) ? 0 : worker->stats->roles & BT_ROLES_BOTH;

    return (said != 0) ? said : worker->hello->role;
}

static void copy_worker(bt_worker_row_t *row, const bt_metrics_worker_t *worker)
{
    const bt_msg_hello_t *hello = worker->hello;

    memcpy(row->name, hello->name, sizeof(row->name));
    row->instance = hello->instance;
    row->role = roles_of(worker);
    row->tokens_per_block = hello->tokens_per_block;
    row->max_batch = hello->max_batch;
    row->state = worker->state;
    row->has_stats = (worker->stats != NULL);
    if (row->has_stats) {
        row->stats = *worker->stats;
    }
}

static void copy_models(bt_metrics_snapshot_t *snapshot,
                        const bt_router_metrics_t *m)
{
    BT_LIST_FOR_EACH_ENTRY(const bt_model_metrics_t, mm, &m->models, link) {
        bt_model_row_t *row = &snapshot->models[mm->index];

        row->labels = mm->labels.data;
        row->is_seed = (mm->index == 0) && !m->seed_is_taken;
        row->values = mm->values;
    }
}

static uint32_t count_adapters(const bt_router_metrics_t *m)
{
    uint32_t n = 0;

    BT_LIST_FOR_EACH_ENTRY(const bt_model_metrics_t, mm, &m->models, link) {
        n += mm->n_adapters;
    }
    return n;
}

static void copy_adapters(bt_metrics_snapshot_t *snapshot,
                          const bt_router_metrics_t *m)
{
    bt_adapter_row_t *row = snapshot->adapters;

    BT_LIST_FOR_EACH_ENTRY(const bt_model_metrics_t, mm, &m->models, link) {
        BT_LIST_FOR_EACH_ENTRY(const bt_adapter_metrics_t, am, &mm->adapters,
                               link) {
            row->labels = am->labels.data;
            memcpy(row->cells, am->cells, sizeof(row->cells));
            row++;
        }
    }
}

static void copy_names(bt_metrics_snapshot_t *snapshot,
                       const bt_router_metrics_t *m)
{
    uint32_t n = 0;

    BT_LIST_FOR_EACH_ENTRY(const bt_model_metrics_t, mm, &m->names, link) {
        if (mm->has_series) {
            bt_model_row_t *row = &snapshot->names[n++];

            row->labels = mm->labels.data;
            row->values = mm->values;
            /* Requests of an ensemble wait at the model that generates. */
            row->values.cells[BT_MC_PENDING] = 0;
        }
    }
}

static void copy_views(bt_metrics_snapshot_t *snapshot,
                       const bt_metrics_view_t *views, uint32_t n_views)
{
    uint32_t at = 0, cut_at = 0;

    for (uint32_t i = 0; i < n_views; i++) {
        const bt_metrics_view_t *view = &views[i];
        bt_model_row_t *row = &snapshot->models[view->model->index];

        row->is_served = true;
        row->view = *view;
        row->view.workers = NULL;
        row->view.cuts = NULL;
        row->first_cut = cut_at;
        for (uint32_t k = 0; k < view->n_cuts; k++) {
            snapshot->cuts[cut_at++] = view->cuts[k];
        }
        row->first = at;
        for (uint32_t k = 0; k < view->n_workers; k++) {
            snapshot->workers[at].model = view->model->index;
            copy_worker(&snapshot->workers[at++], &view->workers[k]);
        }
    }
}

bt_status_t bt_metrics_snapshot_create(const bt_router_metrics_t *m,
                                       const bt_metrics_view_t *views,
                                       uint32_t n_views,
                                       bt_metrics_snapshot_t **snapshot_p)
{
    bt_metrics_snapshot_t *snapshot = bt_calloc(1, sizeof(*snapshot));

    if (snapshot == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n_views; i++) {
        snapshot->n_workers += views[i].n_workers;
        snapshot->n_cuts += views[i].n_cuts;
    }
    snapshot->n_models = m->n_models;
    snapshot->n_names = m->n_names;
    snapshot->n_http = m->n_http;
    /* One more of each, so that NULL always means out of memory. */
    snapshot->models =
        bt_calloc((size_t)m->n_models + 1, sizeof(*snapshot->models));
    snapshot->names =
        bt_calloc((size_t)m->n_names + 1, sizeof(*snapshot->names));
    snapshot->workers =
        bt_calloc((size_t)snapshot->n_workers + 1, sizeof(*snapshot->workers));
    snapshot->cuts =
        bt_calloc((size_t)snapshot->n_cuts + 1, sizeof(*snapshot->cuts));
    snapshot->http = bt_calloc((size_t)m->n_http + 1, sizeof(*snapshot->http));
    snapshot->n_tenants = m->n_tenants;
    snapshot->tenants =
        bt_calloc((size_t)m->n_tenants + 1, sizeof(*snapshot->tenants));
    snapshot->n_adapters = count_adapters(m);
    snapshot->adapters = bt_calloc((size_t)snapshot->n_adapters + 1,
                                   sizeof(*snapshot->adapters));
    if ((snapshot->models == NULL) || (snapshot->names == NULL) ||
        (snapshot->workers == NULL) || (snapshot->cuts == NULL) ||
        (snapshot->http == NULL) || (snapshot->tenants == NULL) ||
        (snapshot->adapters == NULL)) {
        bt_metrics_snapshot_destroy(snapshot);
        return BT_ERR_NO_MEMORY;
    }
    copy_models(snapshot, m);
    copy_names(snapshot, m);
    copy_adapters(snapshot, m);
    copy_views(snapshot, views, n_views);
    if (m->n_http > 0) {
        memcpy(snapshot->http, m->http, m->n_http * sizeof(*m->http));
    }
    memcpy(snapshot->tenants, m->tenants,
           m->n_tenants * sizeof(*snapshot->tenants));
    snapshot->fleet = m->fleet;
    if (snapshot->fleet != NULL) {
        snapshot->fleet->n_refs++;
    }
    snapshot->v1 = m->v1;
    snapshot->build = m->build.data;
    snapshot->nowhere = m->nowhere.values;
    memcpy(snapshot->cells, m->cells, sizeof(snapshot->cells));
    memcpy(snapshot->loop, m->loop, sizeof(snapshot->loop));
    *snapshot_p = snapshot;
    return BT_OK;
}

void bt_metrics_snapshot_destroy(bt_metrics_snapshot_t *snapshot)
{
    if (snapshot == NULL) {
        return;
    }
    bt_metrics_fleet_drop(snapshot->fleet);
    bt_free(snapshot->adapters);
    bt_free(snapshot->tenants);
    bt_free(snapshot->http);
    bt_free(snapshot->cuts);
    bt_free(snapshot->workers);
    bt_free(snapshot->names);
    bt_free(snapshot->models);
    bt_free(snapshot);
}
