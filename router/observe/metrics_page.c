/* SPDX-License-Identifier: Apache-2.0 */
/* Renders the page of a snapshot: computes the gauges, then writes the table
 * line by line. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "router/observe/metrics_priv.h"

#define SEED_LABELS  "model=\"" BT_METRICS_SEED_MODEL "\""
#define LABEL_BYTES  (16u << 10) /* of one series */
#define WORKER_BYTES (64u << 20) /* labels of all workers */

typedef struct page {
    bt_metrics_snapshot_t *s;
    double process[BT_PC_N];
    const bt_family_def_t *family;
    bool began;          /* the family's header was written */
    bt_strbuf_t labels;  /* of one series */
    bt_strbuf_t workers; /* labels of each, zero-terminated, in order */
    bt_strbuf_t *out;
} page_t;

static bool is(const bt_worker_row_t *worker, bt_role_t role)
{
    return (worker->role & (uint32_t)role) != 0;
}

/* ---- gauges ---- */

static void sum_requests(double *v, const bt_worker_row_t *worker)
{
    const bt_msg_stats_t *s = &worker->stats;

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

static void sum_memory(double *v, const bt_worker_row_t *worker)
{
    const bt_msg_stats_t *s = &worker->stats;

    v[BT_MC_MEM_PINNED] += (double)s->memory_pinned_bytes;
    v[BT_MC_MEM_GPU] += (double)s->memory_gpu_bytes;
    v[BT_MC_MEM_CPU] += (double)s->memory_cpu_bytes;
    v[BT_MC_KV_USED] += s->blocks_used;
    v[BT_MC_KV_FREE] += s->blocks_free;
    v[BT_MC_KV_MAX] += s->blocks_max;
    v[BT_MC_KV_REUSED] += s->blocks_reused;
}

/* Requests not begun: those in the router's queue and those that wait for
 * their prefill at a worker. (Those at a decode worker wait for a seat or
 * blocks.) */
static double pending(const bt_model_row_t *model,
                      const bt_worker_row_t *workers)
{
    double waiting[2] = {0, 0};
    unsigned n_prefill = 0;

    for (uint32_t i = 0; i < model->view.n_workers; i++) {
        const bt_worker_row_t *worker = &workers[i];
        const bool decodes = !is(worker, BT_ROLE_PREFILL);

        if (worker->has_stats) {
            waiting[decodes ? 1 : 0] += worker->stats.waiting_requests;
        }
        n_prefill += decodes ? 0 : 1;
    }
    return model->view.n_waiting + waiting[(n_prefill == 0) ? 1 : 0];
}

/* The gauges of a model that is not served are unknown. */
static void fill_model(bt_model_row_t *model, const bt_worker_row_t *workers,
                       double unix_s)
{
    static const int first[] = {[BT_ROLE_PREFILL] = BT_MC_PREFILL_UP,
                                [BT_ROLE_DECODE] = BT_MC_DECODE_UP,
                                [BT_ROLES_BOTH] = BT_MC_BOTH_UP};
    double *v = model->values.cells;

    for (uint32_t i = 0; i < BT_MC_N_GAUGES; i++) {
        v[i] = model->is_served ? 0 : (double)NAN;
    }
    if (!model->is_served) {
        return;
    }
    for (uint32_t i = 0; i < model->view.n_workers; i++) {
        const bt_worker_row_t *worker = &workers[i];

        v[first[worker->role] + (int)worker->state] += 1;
        v[BT_MC_KV_TOKENS_PER] = worker->tokens_per_block; /* of all workers */
        if (worker->has_stats) {
            sum_requests(v, worker);
            sum_memory(v, worker);
        }
    }
    if (v[BT_MC_KV_MAX] > 0) {
        v[BT_MC_KV_FRACTION] = v[BT_MC_KV_USED] / v[BT_MC_KV_MAX];
    }
    v[BT_MC_TIMESTAMP] = unix_s;
    v[BT_MC_PENDING] = pending(model, workers);
    v[BT_MC_IN_FLIGHT] = model->view.n_in_flight;
    v[BT_MC_WAITING] = model->view.n_waiting;
    v[BT_MC_LEGS] = model->view.n_legs;
    v[BT_MC_LINKS_PROVEN] = (double)model->view.n_links_proven;
    v[BT_MC_LINKS_FAILED] = (double)model->view.n_links_failed;
    v[BT_MC_LINKS_UNPROVEN] = (double)model->view.n_links_unproven;
    v[BT_MC_ADAPTERS] = model->view.n_adapters;
    v[BT_MC_ADAPTER_TASKS] = model->view.n_adapter_tasks;
}

/* Values that a worker of an older version does not send. */
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
    w[BT_WC_KV_SHARED] = (double)s->kv_bytes_shared;
    w[BT_WC_KV_STAGE_WAITS] = (double)s->kv_stage_waits;
    w[BT_WC_KV_FOREIGN_PIECES] = (double)s->kv_foreign_pieces;
    w[BT_WC_PAUSES] = (double)s->pauses;
    w[BT_WC_RESUMES] = (double)s->resumes;
    w[BT_WC_RECOMPUTED] = (double)s->tokens_recomputed;
    w[BT_WC_LOG_DROPPED] = (double)s->log_lines_dropped;
    w[BT_WC_LENT_PIECES] = (double)s->lent_pieces;
    w[BT_WC_LENT_S] = (double)s->lent_us / 1e6;
    w[BT_WC_LENT_AGAIN] = (double)s->lent_again;
    w[BT_WC_YIELDED_S] = (double)s->yielded_us / 1e6;
    w[BT_WC_OVERLAPPED] = (double)s->overlapped_iterations;
    w[BT_WC_DRAFT_STEPS] = (double)s->draft_steps;
    for (unsigned i = 0; i < BT_WIRE_DRAFT_SOURCES; i++) {
        w[BT_WC_DRAFTED_NGRAM + i] = (double)s->drafted[i];
        w[BT_WC_ACCEPTED_NGRAM + i] = (double)s->accepted[i];
    }
    for (unsigned i = 0; i < BT_WIRE_DRAFT_POSITIONS; i++) {
        w[BT_WC_ACCEPTED_AT + i] = (double)s->accepted_at[i];
    }
    w[BT_WC_GRAMMAR_MASKS] = (double)s->grammar_masks;
    w[BT_WC_GRAMMAR_HITS] = (double)s->grammar_mask_hits;
    w[BT_WC_GRAMMAR_MASK_S] = (double)s->grammar_mask_us / 1e6;
    w[BT_WC_GRAMMARS_LOADED] = (double)s->grammars_loaded;
    w[BT_WC_BLOCKS_WINDOWED] = s->blocks_windowed;
    w[BT_WC_BLOCKS_SLID] = (double)s->blocks_slid;
}

/* A worker's learned cost rates. */
static void fill_rates(const bt_sched_rates_t *r, double *w)
{
    if (r->prefill_token_ns > 0) {
        w[BT_WC_PREFILL_STEP] = (double)r->prefill_step_ns / 1e9;
        w[BT_WC_PREFILL_TOKEN] = (double)r->prefill_token_ns / 1e9;
        w[BT_WC_PREFILL_KILOPAIR] = (double)r->prefill_kilopair_ns / 1e9;
        w[BT_WC_PREFILL_KILOREAD] = (double)r->prefill_kiloread_ns / 1e9;
        w[BT_WC_PREFILL_ERROR] = (double)r->prefill_error / 1e3;
    }
    if (r->decode_step_ns + r->decode_seq_ns > 0) {
        w[BT_WC_DECODE_STEP] = (double)r->decode_step_ns / 1e9;
        w[BT_WC_DECODE_SEQ] = (double)r->decode_seq_ns / 1e9;
        w[BT_WC_DECODE_KILOREAD] = (double)r->decode_kiloread_ns / 1e9;
        w[BT_WC_DECODE_ERROR] = (double)r->decode_error / 1e3;
    }
    if (r->transfer_start_ns + r->transfer_mib_ns > 0) {
        w[BT_WC_TRANSFER_START] = (double)r->transfer_start_ns / 1e9;
        w[BT_WC_TRANSFER_MIB] = (double)r->transfer_mib_ns / 1e9;
        w[BT_WC_TRANSFER_ERROR] = (double)r->transfer_error / 1e3;
    }
}

static void fill_worker(const bt_worker_row_t *worker, double *w)
{
    const bt_msg_stats_t *s = &worker->stats;

    for (uint32_t i = 0; i < BT_WC_N; i++) {
        w[i] = NAN;
    }
    w[BT_WC_UP] = (worker->state == 0) ? 1 : 0;
    w[BT_WC_SEATS] = worker->max_batch;
    if (!worker->has_stats) {
        return;
    }
    w[BT_WC_SEATS] = s->max_requests;
    w[BT_WC_ACTIVE] = s->active_requests;
    w[BT_WC_QUEUED] = s->waiting_requests;
    w[BT_WC_WAITING_FOR_KV] = s->waiting_for_kv_requests;
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
    fill_rates(&s->rates, w);
}

/* ---- one line ---- */

static void begin_family(page_t *page)
{
    if (!page->began) {
        page->began = true;
        bt_metrics_put_family(page->out, page->family->type, page->family->name,
                              page->family->help);
    }
}

/* Replaces "@" in the labels of a table line with those of the scope. NULL:
 * out of memory. */
static const char *expand(page_t *page, const char *labels, const char *scope)
{
    bt_strbuf_t *out = &page->labels;

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
        return; /* unknown: left out with its labels */
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
    put_hist(page, series, "", &page->s->loop[series->cell]);
}

static void put_build(page_t *page, const bt_series_def_t *series)
{
    put(page, series, page->s->build, page->process[series->cell]);
}

static void put_model(page_t *page, const bt_series_def_t *series,
                      const bt_model_row_t *model, const char *labels)
{
    if (page->family->type == BT_METRIC_HISTOGRAM) {
        put_hist(page, series, labels, &model->values.hists[series->cell]);
    } else {
        put(page, series, labels, model->values.cells[series->cell]);
    }
}

static void put_models(page_t *page, const bt_series_def_t *series)
{
    for (uint32_t i = 0; i < page->s->n_models; i++) {
        put_model(page, series, &page->s->models[i], page->s->models[i].labels);
    }
    if (page->family->type != BT_METRIC_HISTOGRAM) {
        put(page, series, "", page->s->nowhere.cells[series->cell]);
    }
}

static void put_seeds(page_t *page, const bt_series_def_t *series)
{
    for (uint32_t i = 0; i < page->s->n_models; i++) {
        const bt_model_row_t *model = &page->s->models[i];

        put_model(page, series, model,
                  model->is_seed ? SEED_LABELS : model->labels);
    }
}

/* A model with its own series under this name takes precedence. */
static bool is_named(const page_t *page, const char *labels)
{
    for (uint32_t i = 0; i < page->s->n_models; i++) {
        const bt_model_row_t *model = &page->s->models[i];

        if (!model->is_seed && (strcmp(model->labels, labels) == 0)) {
            return true;
        }
    }
    return false;
}

static void put_inference(page_t *page, const bt_series_def_t *series)
{
    put_seeds(page, series);
    for (uint32_t i = 0; i < page->s->n_names; i++) {
        const bt_model_row_t *name = &page->s->names[i];

        if (!is_named(page, name->labels)) {
            put_model(page, series, name, name->labels);
        }
    }
}

static void put_workers(page_t *page, const bt_series_def_t *series)
{
    const char *labels = page->workers.data;
    double w[BT_WC_N];

    for (uint32_t i = 0; i < page->s->n_workers; i++) {
        fill_worker(&page->s->workers[i], w);
        put(page, series, labels, w[series->cell]);
        labels += strlen(labels) + 1;
    }
}

static void put_routes(page_t *page, const bt_series_def_t *series)
{
    for (uint32_t i = 0; i < page->s->n_http; i++) {
        const bt_http_count_t *kind = &page->s->http[i];
        char scope[256];

        snprintf(scope, sizeof(scope), "route=\"%s\",method=\"%s\",code=\"%d\"",
                 kind->route, kind->method, kind->code);
        put(page, series, scope, kind->n);
    }
}

static void put_fleet(page_t *page, const bt_series_def_t *series)
{
    const bt_fleet_cells_t *fleet = page->s->fleet;

    for (uint32_t i = 0; (fleet != NULL) && (i < fleet->n); i++) {
        const bt_fleet_cell_t *cell = &fleet->cells[i];

        if (cell->scope == series->scope) {
            put(page, series, cell->labels, cell->value);
        }
    }
}

static void put_tenants(page_t *page, const bt_series_def_t *series)
{
    for (uint32_t i = 0; i < page->s->n_tenants; i++) {
        const bt_tenant_metrics_t *tm = &page->s->tenants[i];

        put(page, series, tm->labels, tm->cells[series->cell]);
    }
}

static void put_adapters(page_t *page, const bt_series_def_t *series)
{
    for (uint32_t i = 0; i < page->s->n_adapters; i++) {
        const bt_adapter_row_t *row = &page->s->adapters[i];

        put(page, series, row->labels, row->cells[series->cell]);
    }
}

/* True when an earlier incarnation of the names has the same text. */
static bool is_said(const bt_metrics_cut_t *cuts, uint32_t k)
{
    for (uint32_t i = 0; i < k; i++) {
        if ((strcmp(cuts[i].prefill, cuts[k].prefill) == 0) &&
            (strcmp(cuts[i].decode, cuts[k].decode) == 0) &&
            (strcmp(cuts[i].at, cuts[k].at) == 0) &&
            (strcmp(cuts[i].why, cuts[k].why) == 0)) {
            return true;
        }
    }
    return false;
}

static void put_cuts(page_t *page, const bt_series_def_t *series)
{
    const bt_metrics_snapshot_t *s = page->s;
    bt_strbuf_t scope;

    bt_strbuf_init(&scope, LABEL_BYTES);
    for (uint32_t m = 0; m < s->n_models; m++) {
        const bt_metrics_cut_t *cuts = &s->cuts[s->models[m].first_cut];

        for (uint32_t k = 0; k < s->models[m].view.n_cuts; k++) {
            if (is_said(cuts, k)) {
                continue;
            }
            bt_strbuf_reset(&scope);
            bt_metrics_put_label(&scope, "prefill", cuts[k].prefill);
            bt_metrics_put_label(&scope, "decode", cuts[k].decode);
            bt_metrics_put_label(&scope, "at", cuts[k].at);
            bt_metrics_put_label(&scope, "reason", cuts[k].why);
            bt_strbuf_append(&scope, ",", 1);
            bt_strbuf_puts(&scope, s->models[m].labels);
            if (bt_strbuf_status(&scope) != BT_OK) {
                page->out->status = bt_strbuf_status(&scope);
                break;
            }
            put(page, series, scope.data, 1);
        }
    }
    bt_strbuf_fini(&scope);
}

/* ---- the whole ---- */

static int by_name(const void *a, const void *b)
{
    const bt_worker_row_t *x = a;
    const bt_worker_row_t *y = b;
    const int order = strcmp(x->name, y->name);

    if (order != 0) {
        return order;
    }
    return (x->instance > y->instance) - (x->instance < y->instance);
}

/* Two workers of one name would be a duplicate series, which makes the whole
 * page invalid: the instance distinguishes them. */
static bool needs_instance(const bt_worker_row_t *workers, uint32_t n,
                           uint32_t k)
{
    const char *name = workers[k].name;

    return (name[0] == '\0') ||
           ((k > 0) && (strcmp(workers[k - 1].name, name) == 0)) ||
           ((k + 1 < n) && (strcmp(workers[k + 1].name, name) == 0));
}

static void label_worker(page_t *page, const bt_model_row_t *model,
                         const bt_worker_row_t *workers, uint32_t k)
{
    const bt_worker_row_t *worker = &workers[k];
    char name[BT_WIRE_MAX_NAME + 24];
    bt_strbuf_t *labels = &page->labels;

    snprintf(name, sizeof(name), "%s", worker->name);
    if (needs_instance(workers, model->view.n_workers, k)) {
        snprintf(name, sizeof(name), "%s#%016" PRIx64, worker->name,
                 worker->instance);
    }
    bt_strbuf_reset(labels);
    bt_metrics_put_label(labels, "worker", name);
    bt_metrics_put_label(labels, "role", bt_role_name(worker->role));
    bt_strbuf_append(labels, ",", 1);
    bt_strbuf_puts(labels, model->labels);
    if (bt_strbuf_status(labels) != BT_OK) {
        page->out->status = bt_strbuf_status(labels);
        return;
    }
    bt_strbuf_append(&page->workers, labels->data, labels->len + 1);
}

/* Workers of one model are adjacent. */
static void fill_workers(page_t *page)
{
    bt_metrics_snapshot_t *s = page->s;
    const bt_model_row_t *model;

    for (uint32_t at = 0; at < s->n_workers; at += model->view.n_workers) {
        bt_worker_row_t *workers = &s->workers[at];

        model = &s->models[workers->model];
        qsort(workers, model->view.n_workers, sizeof(*workers), by_name);
        for (uint32_t k = 0; k < model->view.n_workers; k++) {
            label_worker(page, model, workers, k);
        }
    }
    if (bt_strbuf_status(&page->workers) != BT_OK) {
        page->out->status = bt_strbuf_status(&page->workers);
    }
}

static void fill(page_t *page, const bt_metrics_process_t *process)
{
    bt_metrics_snapshot_t *s = page->s;

    for (uint32_t i = 0; i < s->n_models; i++) {
        fill_model(&s->models[i], &s->workers[s->models[i].first],
                   process->unix_s);
    }
    fill_workers(page);
    for (uint32_t i = 0; i < BT_PC_N; i++) { /* each has one source */
        page->process[i] = s->cells[i] + process->cells[i];
    }
}

void bt_metrics_snapshot_render(bt_metrics_snapshot_t *snapshot,
                                const bt_metrics_process_t *process,
                                bt_strbuf_t *out)
{
    static void (*const writers[BT_N_SCOPES])(page_t *,
                                              const bt_series_def_t *) = {
        [BT_SCOPE_PROCESS] = put_process,     [BT_SCOPE_BUILD] = put_build,
        [BT_SCOPE_LOOP] = put_loop,           [BT_SCOPE_MODEL] = put_models,
        [BT_SCOPE_SEED] = put_seeds,          [BT_SCOPE_ROUTE] = put_routes,
        [BT_SCOPE_INFERENCE] = put_inference, [BT_SCOPE_WORKER] = put_workers,
        [BT_SCOPE_EXPECTED] = put_fleet,      [BT_SCOPE_RESTARTS] = put_fleet,
        [BT_SCOPE_TENANT] = put_tenants,      [BT_SCOPE_CUT] = put_cuts,
        [BT_SCOPE_ADAPTER] = put_adapters,
    };
    page_t page = {.s = snapshot, .out = out};

    bt_strbuf_init(&page.labels, LABEL_BYTES);
    bt_strbuf_init(&page.workers, WORKER_BYTES);
    fill(&page, process);
    for (uint32_t f = 0;
         (f < bt_metrics_n_families) && (bt_strbuf_status(out) == BT_OK); f++) {
        page.family = &bt_metrics_families[f];
        page.began = false;
        if (page.family->when ==
            (snapshot->v1 ? BT_FAMILY_INFLIGHT : BT_FAMILY_V1)) {
            continue;
        }
        for (uint32_t i = 0; i < page.family->n_series; i++) {
            const bt_series_def_t *series = &page.family->series[i];

            writers[series->scope](&page, series);
        }
    }
    bt_strbuf_fini(&page.workers);
    bt_strbuf_fini(&page.labels);
}
