/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/cluster_state.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/core/kv_links.h"
#include "router/http/door_priv.h"
#include "router/watch/watch.h"

#define MAX_TENANTS 64u /* idle ones beyond are left out */

/* ---- words ---- */

static const char *router_name(const bt_frontend_t *front)
{
    return (front->config->name[0] != '\0') ? front->config->name : "router";
}

void bt_cluster_print_id(const bt_instance_t *worker,
                         char id[BT_CLUSTER_ID_BYTES])
{
    snprintf(id, BT_CLUSTER_ID_BYTES, "%016" PRIx64, worker->hello.instance);
}

static const char *worker_state(const bt_instance_t *worker)
{
    switch (worker->sched.health) {
    case BT_SCHED_UP:
        return "up";
    case BT_SCHED_SUSPECT:
        return worker->is_starved ? "starved" : "silent";
    default:
        break;
    }
    if (bt_instance_is_asleep(worker)) {
        return "asleep";
    }
    if (worker->stats.duty == BT_ADMIN_STATE_END) {
        return "ending";
    }
    return (worker->stats.active_requests > 0) ? "draining" : "drained";
}

static const char *router_state(const bt_frontend_t *front)
{
    if (front->draining) {
        return "draining";
    }
    if (front->leaving) {
        return "leaving";
    }
    return bt_frontend_ready(front) ? "ready" : "not_ready";
}

/* ---- router, queue, models ---- */

static void write_router(const bt_door_t *door, bt_json_t *json)
{
    const bt_frontend_t *front = door->front;
    const bt_watch_t *watch = front->watch;
    uint32_t n_connections = bt_door_n_connections(door);

    n_connections +=
        (door->other != NULL) ? bt_net_n_connections(door->other) : 0;
    bt_json_object(json, "router");
    bt_json_str(json, "name", router_name(front));
    bt_json_str(json, "version", bt_config_version());
    bt_json_bool(json, "ready", bt_frontend_ready(front));
    bt_json_str(json, "state", router_state(front));
    bt_json_u64(json, "start_unix_ms", watch->start_unix_ms);
    bt_json_u64(json, "uptime_ms", (bt_now_us() - watch->start_us) / 1000);
    bt_json_u64(json, "connections", n_connections);
    bt_json_u64(json, "watchers", door->watchers.n);
    bt_json_u64(json, "max_watchers", front->config->max_event_streams);
    bt_json_end_object(json);
}

static void write_queue(const bt_frontend_t *front, bt_json_t *json)
{
    uint32_t waiting = 0, running = 0;

    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        waiting += bt_core_n_waiting(served->core);
        running += bt_core_n_in_flight(served->core);
    }
    bt_json_object(json, "queue");
    bt_json_u64(json, "waiting", waiting);
    bt_json_u64(json, "running", running);
    bt_json_u64(json, "arriving", front->n_arriving + front->n_held);
    bt_json_u64(json, "max", front->config->max_concurrent_requests);
    bt_json_end_object(json);
}

/* Writes the members that the launcher knows. */
static void write_launched_model(const bt_frontend_t *front,
                                 const bt_served_t *served, bt_json_t *json)
{
    const bt_admin_model_t *model =
        bt_members_model(&front->members, served->name);

    if (model != NULL) {
        bt_admin_write_model_members(model, json);
    } else {
        bt_json_str(json, "name", served->name);
        bt_json_bool(json, "loaded", !served->unloaded);
    }
}

static void write_models(const bt_frontend_t *front, bt_json_t *json)
{
    bt_json_array(json, "models");
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        uint32_t ttft_ms = 0, itl_ms = 0;

        bt_config_model_targets(front->config, served->name, &ttft_ms, &itl_ms);
        bt_json_object(json, NULL);
        write_launched_model(front, served, json);
        bt_json_bool(json, "ready", bt_served_ready(served));
        bt_json_u64(json, "running", bt_core_n_in_flight(served->core));
        bt_json_u64(json, "waiting", bt_core_n_waiting(served->core));
        bt_json_u64(json, "context_tokens", bt_served_context_tokens(served));
        bt_write_some_ms(json, "ttft_target_ms", ttft_ms * UINT64_C(1000));
        bt_write_some_ms(json, "itl_target_ms", itl_ms * UINT64_C(1000));
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
}

/* ---- workers ---- */

static void write_known(const bt_members_t *members,
                        const bt_instance_t *worker, bt_json_t *json)
{
    const bt_admin_process_t *process =
        bt_members_process(members, worker->hello.name);

    if (bt_members_are_known(members)) {
        bt_json_bool(json, "expected",
                     (process != NULL) && bt_members_expects(process));
    } else {
        bt_json_null(json, "expected"); /* unknown without a launcher */
    }
    bt_json_bool(json, "launched", worker->is_launched);
    if (process != NULL) {
        bt_json_u64(json, "restarts", process->restarts);
    } else {
        bt_json_null(json, "restarts");
    }
}

/* Writes a worker's requests and its last iteration. */
static void write_work(const bt_msg_stats_t *s, bt_json_t *json)
{
    bt_json_u64(json, "active", s->active_requests);
    bt_json_u64(json, "waiting", s->waiting_requests);
    bt_json_u64(json, "waiting_for_kv", s->waiting_for_kv_requests);
    bt_json_u64(json, "paused", s->paused_requests);
    bt_json_u64(json, "batch_requests", s->scheduled_requests);
    bt_json_u64(json, "batch_context", s->context_requests);
    bt_json_u64(json, "batch_generation", s->generation_requests);
    bt_json_u64(json, "batch_context_tokens", s->total_context_tokens);
    bt_json_u64(json, "iterations", s->iteration_counter);
}

static void write_blocks(const bt_msg_hello_t *hello, const bt_msg_stats_t *s,
                         bt_json_t *json)
{
    bt_json_u64(json, "blocks", hello->n_blocks);
    bt_json_u64(json, "blocks_used", s->blocks_used);
    bt_json_u64(json, "blocks_free", s->blocks_free);
    bt_json_u64(json, "blocks_cached", s->blocks_cached);
    bt_json_u64(json, "blocks_quarantined", s->quarantined_blocks);
    bt_json_u64(json, "blocks_window", s->blocks_windowed);
    bt_json_u64(json, "block_tokens", hello->tokens_per_block);
    bt_json_u64(json, "leases", s->leases);
}

static void write_totals(const bt_msg_stats_t *s, bt_json_t *json)
{
    bt_json_u64(json, "prompt_tokens", s->prompt_tokens);
    bt_json_u64(json, "generated_tokens", s->tokens_generated);
    bt_json_u64(json, "reused_tokens", s->tokens_reused);
    bt_json_u64(json, "kv_sent_bytes", s->kv_bytes_sent);
    bt_json_u64(json, "kv_received_bytes", s->kv_bytes_received);
    bt_json_u64(json, "cpu_ms", s->process_cpu_ms);
    bt_json_u64(json, "resident_bytes", s->resident_bytes);
    bt_json_u64(json, "still_ms", s->still_ms);
}

static void write_worker(const bt_members_t *members, const bt_served_t *served,
                         const bt_instance_t *worker, bt_json_t *json)
{
    const bt_msg_hello_t *hello = &worker->hello;
    const bt_msg_stats_t *s = &worker->stats;
    char id[BT_CLUSTER_ID_BYTES];

    bt_cluster_print_id(worker, id);
    bt_json_object(json, NULL);
    bt_json_str(json, "name", hello->name);
    bt_json_str(json, "id", id);
    bt_json_str(json, "model", served->name);
    bt_json_str(json, "role", bt_role_name(worker->roles));
    bt_json_str(json, "state", worker_state(worker));
    bt_json_str(json, "duty", bt_duty_name(s->duty));
    write_known(members, worker, json);
    bt_json_str(json, "version", hello->version_text);
    bt_json_u64(json, "tp", hello->tp);
    bt_json_u64(json, "pp", hello->pp);
    bt_write_some_ms(json, "start_unix_ms", s->start_unix_s * 1000000);
    bt_json_bool(json, "reported", worker->has_stats);
    bt_json_u64(json, "seats", hello->max_batch);
    write_work(s, json);
    write_blocks(hello, s, json);
    write_totals(s, json);
    bt_json_u64(json, "sent_requests", worker->sched.seats);
    bt_json_u64(json, "sent_prompt_tokens", worker->sched.prefill_tokens);
    bt_write_ms(json, "sent_prompt_ms", worker->sched.prefill_us);
    bt_json_end_object(json);
}

/* Writes the workers that the launcher expects and that are missing. */
static void write_missing(const bt_frontend_t *front, bt_json_t *json)
{
    const bt_admin_document_t *launcher = front->members.launcher;

    for (uint32_t i = 0; (launcher != NULL) && (i < launcher->n_processes);
         i++) {
        const bt_admin_process_t *process = &launcher->processes[i];

        if (!bt_members_expects(process) ||
            bt_registry_has_worker(&front->models, process->name)) {
            continue;
        }
        bt_json_object(json, NULL);
        bt_json_str(json, "name", process->name);
        bt_json_null(json, "id");
        bt_json_str(json, "model", process->model);
        bt_json_str(json, "role", bt_admin_role_name(process->role));
        bt_json_str(json, "state", "missing");
        bt_json_bool(json, "expected", true);
        bt_json_bool(json, "launched", true);
        bt_json_u64(json, "restarts", process->restarts);
        bt_json_str(json, "process",
                    bt_admin_process_state_name(process->state));
        bt_json_u64(json, "since_ms", process->since_ms);
        bt_write_some_text(json, "why", process->why);
        bt_json_end_object(json);
    }
}

static void write_workers(const bt_frontend_t *front, bt_json_t *json)
{
    bt_json_array(json, "workers");
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker,
                               &bt_core_table(served->core)->workers, link) {
            write_worker(&front->members, served, worker, json);
        }
    }
    write_missing(front, json);
    bt_json_end_array(json);
}

static void write_cut(const bt_served_t *served, const bt_cut_t *cut,
                      bt_json_t *json)
{
    char text[BT_CUT_TEXT];

    bt_cut_print(cut, text);
    bt_json_object(json, NULL);
    bt_json_str(json, "model", served->name);
    bt_json_str(json, "prefill", cut->prefill->hello.name);
    bt_json_str(json, "decode", cut->decode->hello.name);
    bt_json_str(json, "address", (cut->at[0] != '\0') ? cut->at : NULL);
    bt_json_str(json, "why", cut->why);
    bt_json_str(json, "text", text);
    bt_json_end_object(json);
}

static void write_unreachable(const bt_frontend_t *front, bt_json_t *json)
{
    bt_json_array(json, "unreachable");
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        BT_LIST_FOR_EACH_ENTRY(bt_cut_t, cut,
                               &bt_core_table(served->core)->cuts, link) {
            write_cut(served, cut, json);
        }
    }
    bt_json_end_array(json);
}

/* ---- tenants ---- */

static void write_limit(bt_json_t *json, const char *key, uint64_t limit)
{
    if (limit > 0) {
        bt_json_u64(json, key, limit);
    } else {
        bt_json_null(json, key);
    }
}

static void write_tenant(const bt_tenant_t *tenant, bt_json_t *json)
{
    const bt_tenant_limits_t *limits = &tenant->limits;
    const bt_tenant_totals_t totals = bt_tenant_metrics_totals(tenant->metrics);

    bt_json_object(json, NULL);
    bt_json_str(json, "name", tenant->name);
    bt_json_u64(json, "weight", limits->weight);
    bt_json_u64(json, "kv_percent", limits->kv_percent);
    bt_json_u64(json, "running", tenant->n_under_way);
    write_limit(json, "max_requests", limits->requests);
    write_limit(json, "max_tokens_per_s", limits->rate);
    bt_json_u64(json, "prompt_tokens", totals.prompt_tokens);
    bt_json_u64(json, "output_tokens", totals.output_tokens);
    bt_json_u64(json, "refused", totals.refused);
    bt_json_end_object(json);
}

static void write_tenants(const bt_tenants_t *tenants, bt_json_t *json)
{
    uint32_t n = 0;

    bt_json_array(json, "tenants");
    if (!bt_tenants_are_keyed(tenants)) {
        write_tenant(tenants->plain, json);
    }
    BT_LIST_FOR_EACH_ENTRY(const bt_tenant_t, tenant, &tenants->all, link) {
        if ((n < MAX_TENANTS) || (tenant->n_under_way > 0)) {
            write_tenant(tenant, json);
            n++;
        }
    }
    bt_json_end_array(json);
}

void bt_cluster_write_state(const bt_door_t *door, bt_json_t *json)
{
    bt_json_u64(json, "now_unix_ms", (uint64_t)bt_walltime_ms());
    write_router(door, json);
    write_queue(door->front, json);
    write_models(door->front, json);
    write_workers(door->front, json);
    bt_members_write(&door->front->members, (uint64_t)bt_walltime_ms(), json);
    write_unreachable(door->front, json);
    write_tenants(&door->front->tenants, json);
}

/* ---- the page ---- */

static bt_cluster_page_t *page_of(bt_pooled_page_t *page)
{
    return BT_CONTAINER_OF(page, bt_cluster_page_t, page);
}

static bt_status_t take(bt_pooled_page_t *page)
{
    bt_cluster_page_t *cluster = page_of(page);
    const bt_watch_t *watch = page->door->front->watch;
    bt_json_t json;
    bt_status_t status = bt_history_copy(watch->history, &cluster->history);

    if (status != BT_OK) {
        return status;
    }
    cluster->events = bt_memdup(&watch->events, sizeof(watch->events));
    if (cluster->events == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_strbuf_init(&cluster->state, BT_ANSWER_LIMIT);
    bt_json_init(&json, &cluster->state);
    bt_json_object(&json, NULL);
    bt_cluster_write_state(page->door, &json);
    return bt_strbuf_status(&cluster->state);
}

static void write_page(bt_pooled_page_t *page, bt_strbuf_t *out)
{
    const bt_cluster_page_t *cluster = page_of(page);
    bt_json_t json;

    bt_strbuf_append(out, cluster->state.data, cluster->state.len);
    bt_json_init(&json, out);
    json.more = true; /* continues the existing object */
    bt_json_object(&json, "history");
    bt_history_write(cluster->history, BT_HISTORY_POINTS, &json);
    bt_json_end_object(&json);
    bt_events_write(cluster->events, &json);
    bt_json_end_object(&json);
}

static void drop(bt_pooled_page_t *page)
{
    bt_cluster_page_t *cluster = page_of(page);

    bt_strbuf_fini(&cluster->state);
    bt_history_destroy(cluster->history);
    bt_free(cluster->events);
    cluster->history = NULL;
    cluster->events = NULL;
}

void bt_cluster_page_init(bt_cluster_page_t *page, bt_door_t *door)
{
    static const bt_pooled_page_ops_t ops = {
        .type = BT_JSON_TYPE,
        .take = take,
        .write = write_page,
        .drop = drop,
    };

    *page = (bt_cluster_page_t){0};
    bt_pooled_page_init(&page->page, &ops, door);
}
