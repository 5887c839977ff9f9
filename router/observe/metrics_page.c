/* SPDX-License-Identifier: Apache-2.0 */
/* The page: what the gauges are made of, and the table written line by line. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "router/observe/metrics_priv.h"

#define SEED_LABELS "model=\"" BT_METRICS_SEED_MODEL "\""

typedef struct page {
    bt_router_metrics_t *m;
    const bt_metrics_view_t *views;
    uint32_t n_views;
    double process[BT_PC_N];
    const bt_family_def_t *family;
    bool began; /* the family's head is written */
    bt_strbuf_t *out;
} page_t;

/* As it said last; an older one says its role once. */
static uint32_t roles_of(const bt_metrics_worker_t *worker)
{
    const uint32_t said =
        (worker->stats == NULL) ? 0 : worker->stats->roles & BT_ROLES_BOTH;

    return (said != 0) ? said : worker->hello->role;
}

static bool is(const bt_metrics_worker_t *worker, bt_role_t role)
{
    return (roles_of(worker) & (uint32_t)role) != 0;
}

/* ---- gauges ---- */

static void sum_requests(double *v, const bt_metrics_worker_t *worker)
{
    const bt_msg_stats_t *s = worker->stats;

    v[BT_MC_REQ_CONTEXT] += s->context_requests;
    v[BT_MC_REQ_SCHEDULED] += s->scheduled_requests;
    v[BT_MC_REQ_WAITING] += s->waiting_requests;
    v[BT_MC_REQ_GENERATION] += s->generation_requests;
    if (is(worker, BT_ROLE_DECODE)) {
        v[BT_MC_REQ_MAX] += s->max_requests;
        v[BT_MC_REQ_ACTIVE] += s->active_requests;
        v[BT_MC_EMPTY_SLOTS] += (s->max_requests > s->active_requests)
                                    ? s->max_requests - s->active_requests
                                    : 0;
    }
    v[BT_MC_CONTEXT_TOKENS] += s->total_context_tokens;
    v[BT_MC_PAUSED] += s->paused_requests;
    if (s->micro_batch_id > v[BT_MC_MICRO_BATCH]) {
        v[BT_MC_MICRO_BATCH] = s->micro_batch_id;
    }
    v[BT_MC_ITERATION] += (double)s->iteration_counter;
}

static void sum_memory(double *v, const bt_metrics_worker_t *worker)
{
    const bt_msg_stats_t *s = worker->stats;

    v[BT_MC_MEM_PINNED] += (double)s->memory_pinned_bytes;
    v[BT_MC_MEM_GPU] += (double)s->memory_gpu_bytes;
    v[BT_MC_MEM_CPU] += (double)s->memory_cpu_bytes;
    v[BT_MC_KV_USED] += s->blocks_used;
    v[BT_MC_KV_FREE] += s->blocks_free;
    v[BT_MC_KV_MAX] += s->blocks_max;
    v[BT_MC_KV_REUSED] += s->blocks_reused;
}

/* Requests that nobody has begun: those of the router's queue and those that
 * wait where the context phase runs. (A decode worker's wait for their KV while
 * it is computed elsewhere.) */
static double pending(const bt_metrics_view_t *view)
{
    double waiting[2] = {0, 0};
    unsigned n_prefill = 0;

    for (uint32_t i = 0; i < view->n_workers; i++) {
        const bt_metrics_worker_t *worker = &view->workers[i];
        const bool decodes = !is(worker, BT_ROLE_PREFILL);

        if (worker->stats != NULL) {
            waiting[decodes ? 1 : 0] += worker->stats->waiting_requests;
        }
        n_prefill += decodes ? 0 : 1;
    }
    return view->n_waiting + waiting[(n_prefill == 0) ? 1 : 0];
}

static void fill_model(const bt_metrics_view_t *view, double unix_s)
{
    static const int first[] = {[BT_ROLE_PREFILL] = BT_MC_PREFILL_UP,
                                [BT_ROLE_DECODE] = BT_MC_DECODE_UP,
                                [BT_ROLES_BOTH] = BT_MC_BOTH_UP};
    double *v = view->model->cells;

    for (uint32_t i = 0; i < BT_MC_N_GAUGES; i++) {
        v[i] = 0;
    }
    for (uint32_t i = 0; i < view->n_workers; i++) {
        const bt_metrics_worker_t *worker = &view->workers[i];

        v[first[roles_of(worker)] + (int)worker->state] += 1;
        v[BT_MC_KV_TOKENS_PER] = worker->hello->tokens_per_block; /* of all */
        if (worker->stats != NULL) {
            sum_requests(v, worker);
            sum_memory(v, worker);
        }
    }
    if (v[BT_MC_KV_MAX] > 0) {
        v[BT_MC_KV_FRACTION] = v[BT_MC_KV_USED] / v[BT_MC_KV_MAX];
    }
    v[BT_MC_TIMESTAMP] = unix_s;
    v[BT_MC_PENDING] = pending(view);
    v[BT_MC_IN_FLIGHT] = view->n_in_flight;
    v[BT_MC_WAITING] = view->n_waiting;
    v[BT_MC_LEGS] = view->n_legs;
}

/* What a worker of an older version does not send. */
static void fill_later(const bt_msg_stats_t *s, double *w)
{
    if (s->start_unix_s == 0) {
        return;
    }
    w[BT_WC_PROMPT_TOKENS] = (double)s->prompt_tokens;
    w[BT_WC_REUSED_TOKENS] = (double)s->tokens_reused;
    w[BT_WC_GENERATED_TOKENS] = (double)s->tokens_generated;
    w[BT_WC_CPU_S] = (double)s->process_cpu_ms / 1e3;
    w[BT_WC_RESIDENT] = (double)s->resident_bytes;
    w[BT_WC_START_S] = (double)s->start_unix_s;
    w[BT_WC_BLOCKS_CACHED] = s->blocks_cached;
    w[BT_WC_KV_STAGED] = (double)s->kv_bytes_staged;
    w[BT_WC_KV_STAGE_WAITS] = (double)s->kv_stage_waits;
    w[BT_WC_KV_FOREIGN_PIECES] = (double)s->kv_foreign_pieces;
}

static void fill_worker(const bt_metrics_worker_t *worker, double *w)
{
    const bt_msg_stats_t *s = worker->stats;

    for (uint32_t i = 0; i < BT_WC_N; i++) {
        w[i] = NAN;
    }
    w[BT_WC_UP] = (worker->state == 0) ? 1 : 0;
    w[BT_WC_SEATS] = worker->hello->max_batch;
    if (s == NULL) {
        return;
    }
    w[BT_WC_SEATS] = s->max_requests;
    w[BT_WC_ACTIVE] = s->active_requests;
    w[BT_WC_QUEUED] = s->waiting_requests;
    w[BT_WC_PAUSED] = s->paused_requests;
    w[BT_WC_BATCH_CONTEXT] = s->context_requests;
    w[BT_WC_BATCH_GENERATION] = s->generation_requests;
    w[BT_WC_BATCH_TOKENS] = s->total_context_tokens;
    w[BT_WC_ITERATIONS] = (double)s->iteration_counter;
    w[BT_WC_BLOCKS_USED] = (s->blocks_used > s->quarantined_blocks)
                               ? s->blocks_used - s->quarantined_blocks
                               : 0;
    w[BT_WC_BLOCKS_QUARANTINED] = s->quarantined_blocks;
    w[BT_WC_BLOCKS_FREE] = (s->blocks_free > s->blocks_cached)
                               ? s->blocks_free - s->blocks_cached
                               : 0;
    w[BT_WC_BLOCKS_REUSED] = s->blocks_reused;
    w[BT_WC_LEASES] = s->leases;
    w[BT_WC_MEMORY_CPU] = (double)s->memory_cpu_bytes;
    w[BT_WC_MEMORY_GPU] = (double)s->memory_gpu_bytes;
    w[BT_WC_MEMORY_PINNED] = (double)s->memory_pinned_bytes;
    w[BT_WC_OPEN_FDS] = (s->open_fds > 0) ? s->open_fds : (double)NAN;
    fill_later(s, w);
}

/* ---- one line ---- */

static void begin_family(page_t *page)
{
    char help[256];

    if (!page->began) {
        page->began = true;
        bt_metrics_put_family(
            page->out, page->family->type, page->family->name,
            bt_metrics_help(page->family, help, sizeof(help)));
    }
}

/* The labels of a line of the table, with those of its scope in place of "@".
 * NULL when memory is short. */
static const char *expand(page_t *page, const char *labels, const char *scope)
{
    bt_strbuf_t *out = &page->m->labels;

    bt_strbuf_reset(out);
    bt_strbuf_append(out, "", 0);
    while (*labels != '\0') {
        const size_t fixed = strcspn(labels, "@");

        bt_strbuf_append(out, labels, fixed);
        labels += fixed;
        if (*labels == '@') {
            bt_strbuf_puts(out, scope);
            labels++;
            labels += ((scope[0] == '\0') && (*labels == ',')) ? 1 : 0;
        }
    }
    if (bt_strbuf_status(out) != BT_OK) {
        page->out->status = bt_strbuf_status(out);
        return NULL;
    }
    return out->data;
}

static void put(page_t *page, const bt_series_def_t *series, const char *scope,
                double value)
{
    const char *labels;

    if (isnan(value)) {
        return; /* unknown: its labels go with it */
    }
    labels = expand(page, series->labels, scope);
    if (labels != NULL) {
        begin_family(page);
        bt_metrics_put_sample(page->out, page->family->name, labels, value);
    }
}

static void put_hist(page_t *page, const bt_series_def_t *series,
                     const char *scope, const bt_histogram_t *hist)
{
    const char *labels = expand(page, series->labels, scope);

    if (labels != NULL) {
        begin_family(page);
        bt_metrics_put_histogram(page->out, page->family->name, labels, hist);
    }
}

/* ---- scopes ---- */

static void put_process(page_t *page, const bt_series_def_t *series)
{
    put(page, series, "", page->process[series->cell]);
}

static void put_loop(page_t *page, const bt_series_def_t *series)
{
    put_hist(page, series, "", &page->m->loop[series->cell]);
}

static void put_build(page_t *page, const bt_series_def_t *series)
{
    put(page, series, page->m->build.data, page->process[series->cell]);
}

static void put_model(page_t *page, const bt_series_def_t *series,
                      const bt_model_metrics_t *mm, const char *labels)
{
    if (page->family->type == BT_METRIC_HISTOGRAM) {
        put_hist(page, series, labels, &mm->hists[series->cell]);
    } else {
        put(page, series, labels, mm->cells[series->cell]);
    }
}

static const bt_model_metrics_t *model_at(bt_list_t *pos)
{
    return BT_CONTAINER_OF(pos, bt_model_metrics_t, link);
}

static void put_models(page_t *page, const bt_series_def_t *series)
{
    const bt_list_t *head = &page->m->models;

    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        const bt_model_metrics_t *mm = model_at(pos);

        put_model(page, series, mm, mm->labels.data);
    }
    if (page->family->type != BT_METRIC_HISTOGRAM) {
        put(page, series, "", page->m->nowhere.cells[series->cell]);
    }
}

static void put_seeds(page_t *page, const bt_series_def_t *series)
{
    const bt_list_t *head = &page->m->models;

    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        const bt_model_metrics_t *mm = model_at(pos);
        const bool seed = mm->is_first && !page->m->seed_is_taken;

        put_model(page, series, mm, seed ? SEED_LABELS : mm->labels.data);
    }
}

static void put_sum_hist(page_t *page, const bt_series_def_t *series)
{
    const bt_list_t *head = &page->m->models;
    bt_histogram_t sum = page->m->nowhere.hists[series->cell]; /* empty */

    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        bt_histogram_add(&sum, &model_at(pos)->hists[series->cell]);
    }
    put_hist(page, series, "", &sum);
}

static void put_sum(page_t *page, const bt_series_def_t *series)
{
    const bt_list_t *head = &page->m->models;
    const double nowhere = page->m->nowhere.cells[series->cell];
    double sum = isnan(nowhere) ? 0 : nowhere;

    if (page->family->type == BT_METRIC_HISTOGRAM) {
        put_sum_hist(page, series);
        return;
    }
    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        sum += model_at(pos)->cells[series->cell];
    }
    put(page, series, "", sum);
}

static void put_workers(page_t *page, const bt_series_def_t *series)
{
    const char *labels = page->m->workers.data;
    double w[BT_WC_N];

    for (uint32_t i = 0; i < page->n_views; i++) {
        for (uint32_t k = 0; k < page->views[i].n_workers; k++) {
            fill_worker(&page->views[i].workers[k], w);
            put(page, series, labels, w[series->cell]);
            labels += strlen(labels) + 1;
        }
    }
}

static void put_roles(page_t *page, const bt_series_def_t *series)
{
    double sums[BT_ROLES_BOTH + 1] = {0};
    double w[BT_WC_N];

    for (uint32_t i = 0; i < page->n_views; i++) {
        for (uint32_t k = 0; k < page->views[i].n_workers; k++) {
            const bt_metrics_worker_t *worker = &page->views[i].workers[k];

            fill_worker(worker, w);
            if (!isnan(w[series->cell])) {
                sums[roles_of(worker)] += w[series->cell];
            }
        }
    }
    for (uint32_t roles = 1; roles <= BT_ROLES_BOTH; roles++) {
        char scope[32];

        snprintf(scope, sizeof(scope), "role=\"%s\"",
                 bt_metrics_role_name(roles));
        put(page, series, scope, sums[roles]);
    }
}

static void put_routes(page_t *page, const bt_series_def_t *series)
{
    for (uint32_t i = 0; i < page->m->n_http; i++) {
        const bt_http_count_t *kind = &page->m->http[i];
        char scope[256];

        snprintf(scope, sizeof(scope), "route=\"%s\",method=\"%s\",code=\"%d\"",
                 kind->route, kind->method, kind->code);
        put(page, series, scope, kind->n);
    }
}

static void put_fleet(page_t *page, const bt_series_def_t *series)
{
    for (uint32_t i = 0; i < page->m->n_fleet; i++) {
        const bt_fleet_cell_t *cell = &page->m->fleet[i];

        if (cell->scope == series->scope) {
            put(page, series, cell->labels, cell->value);
        }
    }
}

/* ---- the whole ---- */

static int by_name(const void *a, const void *b)
{
    const bt_msg_hello_t *x = ((const bt_metrics_worker_t *)a)->hello;
    const bt_msg_hello_t *y = ((const bt_metrics_worker_t *)b)->hello;
    const int order = strcmp(x->name, y->name);

    if (order != 0) {
        return order;
    }
    return (x->instance > y->instance) - (x->instance < y->instance);
}

/* Two workers of one name would be one series twice, which makes the whole page
 * unreadable: their instances tell them apart. */
static bool needs_instance(const bt_metrics_view_t *view, uint32_t k)
{
    const char *name = view->workers[k].hello->name;

    return (name[0] == '\0') ||
           ((k > 0) && (strcmp(view->workers[k - 1].hello->name, name) == 0)) ||
           ((k + 1 < view->n_workers) &&
            (strcmp(view->workers[k + 1].hello->name, name) == 0));
}

static void label_worker(page_t *page, const bt_metrics_view_t *view,
                         uint32_t k)
{
    const bt_msg_hello_t *hello = view->workers[k].hello;
    char name[BT_WIRE_MAX_NAME + 24];
    bt_strbuf_t *labels = &page->m->labels;

    snprintf(name, sizeof(name), "%s", hello->name);
    if (needs_instance(view, k)) {
        snprintf(name, sizeof(name), "%s#%016" PRIx64, hello->name,
                 hello->instance);
    }
    bt_strbuf_reset(labels);
    bt_metrics_put_label(labels, "worker", name);
    bt_metrics_put_label(labels, "role",
                         bt_metrics_role_name(roles_of(&view->workers[k])));
    bt_strbuf_append(labels, ",", 1);
    bt_strbuf_append(labels, view->model->labels.data, view->model->labels.len);
    if (bt_strbuf_status(labels) != BT_OK) {
        page->out->status = bt_strbuf_status(labels);
        return;
    }
    bt_strbuf_append(&page->m->workers, labels->data, labels->len + 1);
}

static void fill(page_t *page, const bt_metrics_process_t *process)
{
    bt_router_metrics_t *m = page->m;
    bt_list_t *pos, *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &m->models)
    {
        bt_model_metrics_t *mm = BT_CONTAINER_OF(pos, bt_model_metrics_t, link);

        for (uint32_t i = 0; i < BT_MC_N_GAUGES; i++) {
            mm->cells[i] = NAN;
        }
    }
    bt_strbuf_reset(&m->workers);
    for (uint32_t i = 0; i < page->n_views; i++) {
        const bt_metrics_view_t *view = &page->views[i];

        fill_model(view, process->unix_s);
        if (view->n_workers > 1) {
            qsort(view->workers, view->n_workers, sizeof(*view->workers),
                  by_name);
        }
        for (uint32_t k = 0; k < view->n_workers; k++) {
            label_worker(page, view, k);
        }
    }
    if (bt_strbuf_status(&m->workers) != BT_OK) {
        page->out->status = bt_strbuf_status(&m->workers);
    }
    memcpy(page->process, m->cells, sizeof(page->process));
    page->process[BT_PC_CONNECTIONS] = process->n_connections;
    page->process[BT_PC_REQUEST_BYTES] = process->request_bytes;
    page->process[BT_PC_ANSWER_BYTES] = process->answer_bytes;
    page->process[BT_PC_QUIET_CLOSED] = process->n_quiet_closed;
    page->process[BT_PC_TURNED_AWAY] = process->n_turned_away;
    page->process[BT_PC_BODIES_REFUSED] = process->n_bodies_refused;
    page->process[BT_PC_READERS_CUT] = process->n_readers_cut;
    page->process[BT_PC_CPU_S] = process->cpu_s;
    page->process[BT_PC_RESIDENT] = process->resident_bytes;
    page->process[BT_PC_VIRTUAL] = process->virtual_bytes;
    page->process[BT_PC_OPEN_FDS] = process->open_fds;
    page->process[BT_PC_MAX_FDS] = process->max_fds;
}

void bt_router_metrics_render(bt_router_metrics_t *m,
                              const bt_metrics_view_t *views, uint32_t n_views,
                              const bt_metrics_process_t *process,
                              bt_strbuf_t *out)
{
    static void (*const writers[BT_N_SCOPES])(page_t *,
                                              const bt_series_def_t *) = {
        [BT_SCOPE_PROCESS] = put_process, [BT_SCOPE_BUILD] = put_build,
        [BT_SCOPE_LOOP] = put_loop,       [BT_SCOPE_MODEL] = put_models,
        [BT_SCOPE_SEED] = put_seeds,      [BT_SCOPE_SUM] = put_sum,
        [BT_SCOPE_WORKER] = put_workers,  [BT_SCOPE_ROLE] = put_roles,
        [BT_SCOPE_ROUTE] = put_routes,    [BT_SCOPE_EXPECTED] = put_fleet,
        [BT_SCOPE_RESTARTS] = put_fleet,
    };
    page_t page = {.m = m, .views = views, .n_views = n_views, .out = out};

    fill(&page, process);
    for (uint32_t f = 0;
         (f < bt_metrics_n_families) && (bt_strbuf_status(out) == BT_OK); f++) {
        page.family = &bt_metrics_families[f];
        page.began = false;
        for (uint32_t i = 0; i < page.family->n_series; i++) {
            const bt_series_def_t *series = &page.family->series[i];

            writers[series->scope](&page, series);
        }
    }
}
