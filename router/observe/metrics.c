/* SPDX-License-Identifier: Apache-2.0 */
/* Cells of the metrics, and the events that update them. */
#include "router/observe/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/config/config.h"
#include "router/observe/metrics_priv.h"

#define LABEL_BYTES   (16u << 10) /* of one series */
#define MAX_HTTP      4096        /* kinds of answers; some hundred exist */
#define SHORT_TURN_NS 100000u
#define OTHER_TENANTS "other"

/* ---- creation and destruction ---- */

static void model_init(bt_model_metrics_t *mm)
{
    for (uint32_t i = 0; i < BT_MC_N_GAUGES; i++) {
        mm->values.cells[i] = NAN;
    }
    bt_strbuf_init(&mm->labels, LABEL_BYTES);
    bt_list_init(&mm->adapters);
    bt_metrics_hist_init(mm->values.hists);
}

static void model_fini(bt_model_metrics_t *mm)
{
    bt_metrics_adapters_free(mm);
    bt_strbuf_fini(&mm->labels);
    bt_free(mm->name);
}

/* @return NULL: there is none of this name */
static bt_model_metrics_t *find_model(const bt_list_t *list, const char *name)
{
    BT_LIST_FOR_EACH_ENTRY(bt_model_metrics_t, mm, list, link) {
        if (strcmp(mm->name, name) == 0) {
            return mm;
        }
    }
    return NULL;
}

/* @return NULL: no memory */
static bt_model_metrics_t *make_model(bt_list_t *list, const char *name)
{
    bt_model_metrics_t *mm = bt_calloc(1, sizeof(*mm));

    if (mm == NULL) {
        return NULL;
    }
    model_init(mm);
    mm->name = bt_strdup(name);
    bt_metrics_put_label(&mm->labels, "model", name);
    if ((mm->name == NULL) || (bt_strbuf_status(&mm->labels) != BT_OK)) {
        model_fini(mm);
        bt_free(mm);
        return NULL;
    }
    bt_list_push_back(list, &mm->link);
    return mm;
}

bt_status_t bt_router_metrics_model(bt_router_metrics_t *m, const char *name,
                                    bt_model_metrics_t **mm_p)
{
    bt_model_metrics_t *mm = find_model(&m->models, name);

    if (mm == NULL) {
        mm = make_model(&m->models, name);
        if (mm == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        mm->index = m->n_models++;
        if (strcmp(name, BT_METRICS_SEED_MODEL) == 0) {
            m->seed_is_taken = true;
        }
    }
    *mm_p = mm;
    return BT_OK;
}

bt_status_t bt_router_metrics_name(bt_router_metrics_t *m, const char *name,
                                   bool has_series, bt_model_metrics_t **mm_p)
{
    bt_model_metrics_t *mm = find_model(&m->names, name);

    if (mm == NULL) {
        mm = make_model(&m->names, name);
        if (mm == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        mm->has_series = has_series;
        m->n_names += has_series ? 1 : 0;
    }
    *mm_p = mm;
    return BT_OK;
}

void bt_router_metrics_v1(bt_router_metrics_t *m, bool v1)
{
    m->v1 = v1;
}

bt_status_t bt_router_metrics_create(bt_router_metrics_t **m_p)
{
    bt_router_metrics_t *m = bt_calloc(1, sizeof(*m));
    char protocol[16];

    if (m == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&m->models);
    bt_list_init(&m->names);
    model_init(&m->nowhere);
    for (uint32_t i = BT_MC_N_GAUGES; i < BT_MC_N; i++) {
        m->nowhere.values.cells[i] = (i == BT_MC_REFUSED) ? 0 : (double)NAN;
    }
    for (int i = 0; i < BT_LH_N; i++) {
        bt_metrics_hist_init_seconds(&m->loop[i]);
    }
    m->cells[BT_PC_ONE] = 1;
    m->cells[BT_PC_START_S] = bt_metrics_process_start();
    bt_strbuf_init(&m->labels, LABEL_BYTES);
    bt_strbuf_init(&m->build, LABEL_BYTES);
    bt_metrics_put_label(&m->build, "version", bt_config_version());
    snprintf(protocol, sizeof(protocol), "%d", BT_WIRE_PROTOCOL);
    bt_metrics_put_label(&m->build, "wire_protocol", protocol);
    if (bt_strbuf_status(&m->build) != BT_OK) {
        bt_router_metrics_destroy(m);
        return BT_ERR_NO_MEMORY;
    }
    *m_p = m;
    return BT_OK;
}

void bt_metrics_fleet_drop(bt_fleet_cells_t *fleet)
{
    if ((fleet == NULL) || (--fleet->n_refs > 0)) {
        return;
    }
    for (uint32_t i = 0; i < fleet->n; i++) {
        bt_free(fleet->cells[i].labels);
    }
    bt_free(fleet);
}

static void free_models(bt_list_t *list)
{
    BT_LIST_FOR_EACH_ENTRY(bt_model_metrics_t, mm, list, link) {
        model_fini(mm);
        bt_free(mm);
    }
}

void bt_router_metrics_destroy(bt_router_metrics_t *m)
{
    if (m == NULL) {
        return;
    }
    free_models(&m->models);
    free_models(&m->names);
    model_fini(&m->nowhere);
    bt_metrics_fleet_drop(m->fleet);
    bt_free(m->http);
    bt_strbuf_fini(&m->build);
    bt_strbuf_fini(&m->labels);
    bt_free(m);
}

/* ---- events of a model ---- */

static void add(bt_model_metrics_t *mm, bt_model_cell_t cell, double value)
{
    mm->values.cells[cell] += value;
}

void bt_router_metrics_prompt(bt_model_metrics_t *mm, uint32_t n_tokens)
{
    add(mm, BT_MC_PROMPT_TOKENS, n_tokens);
}

void bt_router_metrics_request(bt_model_metrics_t *mm, bool ok)
{
    add(mm, ok ? BT_MC_SUCCESS : BT_MC_FAILURE, 1);
}

void bt_router_metrics_end(bt_model_metrics_t *mm, uint32_t n_prompt,
                           uint32_t n_output)
{
    mm->last_ms =
        (uint64_t)(bt_unix_minus_monotonic_ns() + (int64_t)bt_now_ns()) /
        1000000;
    add(mm, BT_MC_COUNT, 1);
    add(mm, BT_MC_EXEC, 1);
    bt_histogram_observe(&mm->values.hists[BT_MH_INPUT_TOKENS], n_prompt);
    bt_histogram_observe(&mm->values.hists[BT_MH_OUTPUT_TOKENS], n_output);
}

void bt_router_metrics_response(bt_model_metrics_t *mm, uint32_t index,
                                uint64_t us)
{
    if (index < BT_STATISTICS_RESPONSES) {
        mm->responses[index].count++;
        mm->responses[index].ns += us * 1000;
    }
}

static bt_duration_t duration(const double *cells, bt_model_cell_t count,
                              bt_model_cell_t us)
{
    return (bt_duration_t){.count = (uint64_t)cells[count],
                           .ns = (uint64_t)cells[us] * 1000};
}

void bt_router_metrics_statistics(const bt_model_metrics_t *mm,
                                  bt_statistics_t *statistics)
{
    const double *cells = mm->values.cells;

    *statistics = (bt_statistics_t){
        .last_ms = mm->last_ms,
        .inference_count = (uint64_t)cells[BT_MC_COUNT],
        .execution_count = (uint64_t)cells[BT_MC_EXEC],
        .success = duration(cells, BT_MC_SUCCESS, BT_MC_REQUEST_US),
        .fail = duration(cells, BT_MC_FAILURE, BT_MC_FAIL_US),
        .queue = duration(cells, BT_MC_SUCCESS, BT_MC_QUEUE_US),
        .compute_input = duration(cells, BT_MC_SUCCESS, BT_MC_INPUT_US),
        .compute_infer = duration(cells, BT_MC_SUCCESS, BT_MC_INFER_US),
        .compute_output = duration(cells, BT_MC_SUCCESS, BT_MC_OUTPUT_US),
    };
    memcpy(statistics->responses, mm->responses, sizeof(mm->responses));
    while ((statistics->n_responses < BT_STATISTICS_RESPONSES) &&
           (mm->responses[statistics->n_responses].count > 0)) {
        statistics->n_responses++;
    }
}

void bt_router_metrics_output(bt_model_metrics_t *mm, uint64_t us)
{
    add(mm, BT_MC_OUTPUT_US, (double)us);
    add(mm, BT_MC_REQUEST_US, (double)us);
}

static void count_targets(bt_model_metrics_t *mm, const bt_ledger_t *ledger)
{
    const bt_slo_attainment_t a = bt_slo_attainment_of(ledger);

    if (a.has_ttft) {
        add(mm, a.met_ttft ? BT_MC_TTFT_MET : BT_MC_TTFT_MISSED, 1);
    }
    if (a.has_itl) {
        add(mm, a.met_itl ? BT_MC_ITL_MET : BT_MC_ITL_MISSED, 1);
    }
}

void bt_router_metrics_late(bt_model_metrics_t *mm, bool first, uint32_t n)
{
    add(mm, first ? BT_MC_TTFT_REFUSED : BT_MC_ITL_REFUSED, n);
}

void bt_router_metrics_ledger(bt_model_metrics_t *mm, const bt_ledger_t *ledger)
{
    const double n = (ledger->n_of_request > 1) ? ledger->n_of_request : 1;
    const uint64_t input = ledger->parse_us + ledger->tokenize_us;
    const uint64_t queue = ledger->queue_us + ledger->prefill_queue_us;

    count_targets(mm, ledger);
    add(mm, BT_MC_CACHED_TOKENS, ledger->n_cached);
    if (ledger->n_attempts > 1) {
        add(mm, BT_MC_RERUNS, ledger->n_attempts - 1);
    }
    if (!ledger->ok) {
        add(mm, BT_MC_FAIL_US, (double)ledger->total_us / n);
        return;
    }
    add(mm, BT_MC_REQUEST_US, (double)ledger->total_us / n);
    add(mm, BT_MC_INPUT_US, (double)input / n);
    add(mm, BT_MC_QUEUE_US, (double)queue / n);
    add(mm, BT_MC_INFER_US, (double)(ledger->total_us - input - queue) / n);
}

static void observe_us(bt_model_metrics_t *mm, bt_model_hist_t hist,
                       uint64_t us)
{
    bt_histogram_observe(&mm->values.hists[hist], (double)us / 1e6);
}

void bt_router_metrics_transfer(bt_model_metrics_t *mm,
                                const bt_msg_joined_t *joined, bool first)
{
    const double ms = (double)joined->transfer_us / 1000.0;

    add(mm, BT_MC_TRANSFER_MS, ms);
    observe_us(mm, BT_MH_TRANSFER, joined->transfer_us);
    observe_us(mm, BT_MH_GRANT_WAIT, joined->grant_wait_us);
    observe_us(mm, BT_MH_HANDOVER, joined->handover_us);
    add(mm, BT_MC_TRANSFERS, 1);
    add(mm, BT_MC_TRANSFER_BYTES, (double)joined->transfer_bytes);
    add(mm, BT_MC_TRANSFER_PIECES, joined->n_descriptors);
    if (first) {
        add(mm, BT_MC_TRANSFER_REQUESTS, 1);
    }
}

void bt_router_metrics_time(bt_model_metrics_t *mm, bt_gen_time_kind_t which,
                            uint64_t us)
{
    static const bt_model_hist_t hists[BT_N_TIMES] = {
        [BT_TIME_FIRST_TOKEN] = BT_MH_FIRST_TOKEN,
        [BT_TIME_NEXT_TOKEN] = BT_MH_NEXT_TOKEN,
        [BT_TIME_QUEUE] = BT_MH_QUEUE,
        [BT_TIME_JOIN_WAIT] = BT_MH_JOIN_WAIT,
        [BT_TIME_TAIL] = BT_MH_TAIL,
        [BT_TIME_REQUEST] = BT_MH_REQUEST,
    };

    observe_us(mm, hists[which], us);
    if ((which == BT_TIME_FIRST_TOKEN) || (which == BT_TIME_NEXT_TOKEN)) {
        add(mm, BT_MC_GENERATION_TOKENS, 1);
    }
}

void bt_router_metrics_sent(bt_model_metrics_t *mm, bt_sched_cause_t cause)
{
    static const bt_model_cell_t cells[BT_SCHED_N_CAUSES] = {
        [BT_SCHED_BY_PHASES] = BT_MC_SENT_PAIR,
        [BT_SCHED_ONE_TOKEN] = BT_MC_SENT_ONE_TOKEN,
        [BT_SCHED_NO_PREFILL] = BT_MC_SENT_NO_PREFILL,
        [BT_SCHED_RELIEF] = BT_MC_SENT_RELIEF,
        [BT_SCHED_BEST_TWICE] = BT_MC_SENT_BOTH_ROLES,
        [BT_SCHED_BOTH_TWICE] = BT_MC_SENT_BOTH_ROLES,
        [BT_SCHED_WEIGHED_SO] = BT_MC_SENT_WEIGHED,
    };

    add(mm, cells[cause], 1);
}

void bt_router_metrics_grammar(bt_model_metrics_t *mm, uint32_t kind, bool ok,
                               bool was_known, uint64_t us)
{
    const uint32_t first = ok ? BT_MC_GRAMMAR_OK : BT_MC_GRAMMAR_REFUSED;

    BT_ASSERT(kind < BT_METRICS_GRAMMAR_KINDS);
    if (was_known) {
        add(mm, BT_MC_GRAMMAR_HITS, 1);
        return;
    }
    observe_us(mm, BT_MH_GRAMMAR, us);
    add(mm, (bt_model_cell_t)(first + kind), 1);
}

void bt_router_metrics_loss(bt_model_metrics_t *mm, bt_gen_loss_t loss)
{
    static const bt_model_cell_t cells[BT_N_LOSSES] = {
        [BT_LOSS_LEASE_EXPIRED] = BT_MC_LEASES_EXPIRED,
        [BT_LOSS_TRANSFER] = BT_MC_TRANSFERS_FAILED,
        [BT_LOSS_REFUSED] = BT_MC_ATTEMPTS_REFUSED,
        [BT_LOSS_WORKER] = BT_MC_WORKERS_LOST,
        [BT_LOSS_DEADLINE] = BT_MC_DEADLINES_PASSED,
        [BT_LOSS_OTHER] = BT_MC_OTHER_LOSSES,
    };

    add(mm, cells[loss], 1);
}

static void add_growth(bt_model_metrics_t *mm, bt_model_cell_t cell,
                       uint64_t before, uint64_t now)
{
    if (now > before) {
        add(mm, cell, (double)(now - before));
    }
}

void bt_router_metrics_stats(bt_model_metrics_t *mm,
                             const bt_msg_stats_t *before,
                             const bt_msg_stats_t *now)
{
    add_growth(mm, BT_MC_KV_SENT, before->kv_bytes_sent, now->kv_bytes_sent);
    add_growth(mm, BT_MC_KV_RECEIVED, before->kv_bytes_received,
               now->kv_bytes_received);
    add_growth(mm, BT_MC_KV_STALE, before->kv_stale_discarded,
               now->kv_stale_discarded);
    add_growth(mm, BT_MC_KV_CHECKSUM, before->kv_checksum_failures,
               now->kv_checksum_failures);
}

/* ---- events of the process ---- */

void bt_router_metrics_refused(bt_router_metrics_t *m, bt_model_metrics_t *mm,
                               int http_status)
{
    add((mm != NULL) ? mm : &m->nowhere, BT_MC_REFUSED, 1);
    if ((mm != NULL) && ((http_status == 429) || (http_status >= 500))) {
        add(mm, BT_MC_FAILURE, 1);
    }
}

void bt_router_metrics_tick(bt_router_metrics_t *m, uint64_t late_us)
{
    bt_histogram_observe(&m->loop[BT_LH_DELAY], (double)late_us / 1e6);
}

/* Reading the CPU time costs as much as a short turn; for such a turn the
 * elapsed time is close enough. */
void bt_router_metrics_turn(bt_router_metrics_t *m)
{
    const uint64_t now_ns = bt_now_ns();
    const uint64_t passed_ns = now_ns - m->turn_end_ns;
    const bool is_first = m->turn_end_ns == 0;
    uint64_t cpu_ns, used_ns;

    m->turn_end_ns = now_ns;
    if (!is_first && (passed_ns < SHORT_TURN_NS)) {
        m->short_ns += passed_ns;
        bt_histogram_observe(&m->loop[BT_LH_TURN], (double)passed_ns / 1e9);
        return;
    }
    cpu_ns = bt_thread_cpu_ns();
    used_ns = cpu_ns - m->turn_ns;
    used_ns -= (m->short_ns < used_ns) ? m->short_ns : used_ns;
    if (!is_first) {
        bt_histogram_observe(&m->loop[BT_LH_TURN], (double)used_ns / 1e9);
    }
    m->turn_ns = cpu_ns;
    m->short_ns = 0;
}

void bt_router_metrics_add(bt_router_metrics_t *m, bt_process_cell_t cell,
                           double value)
{
    m->cells[cell] += value;
}

void bt_router_metrics_otlp(bt_router_metrics_t *m,
                            const bt_otlp_counts_t *counts)
{
    m->cells[BT_PC_OTLP_SENT] = (double)counts->n_sent;
    m->cells[BT_PC_OTLP_REJECTED] = (double)counts->n_rejected;
    m->cells[BT_PC_OTLP_DROPPED] = (double)counts->n_dropped;
    m->cells[BT_PC_OTLP_FAILED_TRIES] = (double)counts->n_failed_tries;
    m->cells[BT_PC_OTLP_QUEUED] = (double)counts->queued_bytes;
}

void bt_router_metrics_http(bt_router_metrics_t *m, const char *route,
                            const char *method, int code)
{
    uint32_t i = 0;

    while ((i < m->n_http) && ((m->http[i].code != code) ||
                               (strcmp(m->http[i].route, route) != 0) ||
                               (strcmp(m->http[i].method, method) != 0))) {
        i++;
    }
    if ((i == MAX_HTTP) ||
        !bt_array_grow(&m->http, &m->cap_http, i + 1, sizeof(*m->http))) {
        return; /* serving continues; this kind is not counted */
    }
    if (i == m->n_http) {
        m->http[m->n_http++] = (bt_http_count_t){route, method, code, 0};
    }
    m->http[i].n++;
}

/* ---- tenants ---- */

bt_tenant_metrics_t *bt_router_metrics_tenant(bt_router_metrics_t *m,
                                              const char *name)
{
    bt_tenant_metrics_t *tm = m->tenants;

    for (uint32_t i = 0; i < m->n_tenants; i++, tm++) {
        if (strcmp(tm->name, name) == 0) {
            return tm;
        }
    }
    if (m->n_tenants > BT_METRICS_MAX_TENANTS) {
        return &m->tenants[BT_METRICS_MAX_TENANTS];
    }
    if (m->n_tenants == BT_METRICS_MAX_TENANTS) {
        for (uint32_t i = 0; i < m->n_tenants; i++) { /* it may be taken */
            if (strcmp(m->tenants[i].name, OTHER_TENANTS) == 0) {
                return &m->tenants[i];
            }
        }
        name = OTHER_TENANTS;
    }
    BT_ASSERT(strlen(name) < sizeof(tm->name)); /* has no quotes, either */
    m->n_tenants++;
    snprintf(tm->name, sizeof(tm->name), "%s", name);
    snprintf(tm->labels, sizeof(tm->labels), "tenant=\"%s\"", tm->name);
    return tm;
}

void bt_tenant_metrics_add(bt_tenant_metrics_t *tm, bt_tenant_cell_t cell,
                           double value)
{
    if (tm != NULL) {
        tm->cells[cell] += value;
    }
}

bt_tenant_totals_t bt_tenant_metrics_totals(const bt_tenant_metrics_t *tm)
{
    bt_tenant_totals_t totals = {0};

    if (tm != NULL) {
        totals.prompt_tokens = (uint64_t)tm->cells[BT_TC_PROMPT_TOKENS];
        totals.output_tokens = (uint64_t)tm->cells[BT_TC_GENERATION_TOKENS];
        for (uint32_t i = 0; i < BT_TC_N - BT_TC_REFUSED; i++) {
            totals.refused += (uint64_t)tm->cells[BT_TC_REFUSED + i];
        }
    }
    return totals;
}

/* ---- reports of the launcher ---- */

static bt_status_t fleet_put(bt_router_metrics_t *m, bt_fleet_cell_t *cell,
                             bt_series_scope_t scope, double value)
{
    cell->scope = scope;
    cell->value = value;
    if (bt_strbuf_status(&m->labels) == BT_OK) {
        cell->labels = bt_strdup(m->labels.data);
    }
    return (cell->labels != NULL) ? BT_OK : BT_ERR_NO_MEMORY;
}

bt_status_t bt_metrics_fleet(bt_router_metrics_t *m,
                             const bt_metrics_fleet_t *report)
{
    const uint32_t n = report->n_expected + report->n_restarts;
    bt_fleet_cells_t *fleet =
        bt_calloc(1, sizeof(*fleet) + n * sizeof(fleet->cells[0]));
    bt_status_t status = BT_OK;
    uint32_t at = 0;

    if (fleet == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    fleet->n_refs = 1;
    fleet->n = n;
    for (uint32_t i = 0; (status == BT_OK) && (i < report->n_expected); i++) {
        const bt_metrics_expected_t *e = &report->expected[i];

        bt_strbuf_reset(&m->labels);
        bt_metrics_put_label(&m->labels, "role", bt_role_name(e->role));
        bt_metrics_put_label(&m->labels, "model", e->model);
        status =
            fleet_put(m, &fleet->cells[at++], BT_SCOPE_EXPECTED, e->n_workers);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < report->n_restarts); i++) {
        const bt_metrics_restarts_t *r = &report->restarts[i];

        bt_strbuf_reset(&m->labels);
        bt_metrics_put_label(&m->labels, "worker", r->worker);
        status =
            fleet_put(m, &fleet->cells[at++], BT_SCOPE_RESTARTS, (double)r->n);
    }
    if (status != BT_OK) {
        bt_metrics_fleet_drop(fleet);
        return status;
    }
    bt_metrics_fleet_drop(m->fleet);
    m->fleet = fleet;
    return BT_OK;
}
