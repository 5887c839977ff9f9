/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster as this router sees it, and admin commands to its workers, for
 * tools without a launcher. A worker owns its role and duty and reports both to
 * all routers, so a command may come through any of them; where a launcher runs
 * the worker, the launcher's setting counts and the command is forwarded to it.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/walltime.h"
#include "router/http/cluster_state.h"
#include "router/http/routes_priv.h"
#include "router/triton/model_control.h"

/* ---- what is here ---- */

static void write_worker(const bt_served_t *served, const bt_instance_t *worker,
                         bt_json_t *json)
{
    const bt_msg_stats_t *stats = &worker->stats;
    char id[BT_CLUSTER_ID_BYTES];

    bt_cluster_print_id(worker, id);
    bt_json_object(json, NULL);
    bt_json_str(json, "name", worker->hello.name);
    bt_json_str(json, "id", id);
    bt_json_str(json, "model", served->name);
    bt_json_str(json, "role", bt_role_name(worker->roles));
    bt_json_str(json, "state", bt_cluster_worker_state(worker));
    bt_json_str(json, "duty", bt_duty_name(stats->duty));
    bt_json_u64(json, "requests", stats->active_requests);
    bt_json_u64(json, "waiting", stats->waiting_requests);
    bt_json_u64(json, "waiting_for_kv", stats->waiting_for_kv_requests);
    bt_json_u64(json, "seats", worker->hello.max_batch);
    bt_json_u64(json, "blocks", worker->hello.n_blocks);
    bt_json_u64(json, "blocks_used", stats->blocks_used);
    bt_json_u64(json, "tp", worker->hello.tp);
    bt_json_u64(json, "pp", worker->hello.pp);
    bt_json_str(json, "version", worker->hello.version_text);
    bt_json_bool(json, "launched", worker->is_launched);
    bt_json_end_object(json);
}

static void write_models(const bt_frontend_t *front, bt_json_t *json)
{
    bt_json_array(json, "models");
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        bt_json_object(json, NULL);
        bt_json_str(json, "name", served->name);
        bt_json_bool(json, "loaded", !served->unloaded);
        bt_json_bool(json, "ready", bt_served_ready(served));
        bt_json_u64(json, "requests", bt_core_n_in_flight(served->core));
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
}

void bt_route_cluster(bt_http_request_t *r)
{
    const bt_frontend_t *front = r->door->front;
    bt_list_t *pos, *tmp;
    bt_json_t json;

    bt_strbuf_reset(&r->door->out);
    bt_json_init(&json, &r->door->out);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "router", bt_cluster_router_name(front));
    bt_json_str(&json, "version", bt_config_version());
    bt_json_bool(&json, "ready", bt_frontend_ready(front));
    write_models(front, &json);
    bt_json_array(&json, "workers");
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        BT_LIST_FOR_EACH(pos, tmp, &bt_core_table(served->core)->workers)
        {
            write_worker(served, BT_CONTAINER_OF(pos, bt_instance_t, link),
                         &json);
        }
    }
    bt_json_end_array(&json);
    bt_members_write(&front->members, (uint64_t)bt_walltime_ms(),
                     bt_cluster_is_here, r->door->front, &json);
    bt_cluster_write_unreachable(front, &json);
    bt_json_end_object(&json);
    bt_http_request_respond_json(r);
}

/* ---- orders ---- */

typedef struct order {
    uint32_t roles; /* 0: unchanged */
    bt_admin_state_t duty;
} order_t;

static void refuse(bt_http_request_t *r, int status, const char *param,
                   const char *why)
{
    bt_api_error_t error = {0};

    bt_api_error_set(&error, status,
                     (status >= 500) ? "server_error" : "invalid_request_error",
                     param, "%.64s: %s", r->name, why);
    bt_http_request_fail(r, &error);
}

static bool read_duty(const char *text, bt_admin_state_t *duty_p)
{
    for (bt_admin_state_t duty = BT_ADMIN_STATE_ON; duty <= BT_ADMIN_STATE_END;
         duty++) {
        if (strcmp(text, bt_duty_name(duty)) == 0) {
            *duty_p = duty;
            return true;
        }
    }
    return false;
}

/* @return false: it was refused, and the error was sent */
static bool read_order(bt_http_request_t *r, order_t *order_p)
{
    order_t order = {0};
    bt_settings_t settings;

    if (!bt_http_request_read_settings(r, NULL, &settings)) {
        return false;
    }
    for (size_t i = 0; i < settings.n; i++) {
        const bt_setting_t *setting = &settings.list[i];
        const bool is_text = setting->kind == BT_SETTING_TEXT;

        if (strcmp(setting->name, "role") == 0) {
            if (!is_text || !bt_role_named(setting->text, &order.roles)) {
                refuse(r, 400, "role",
                       "a worker's role is prefill, decode or both");
                return false;
            }
        } else if (strcmp(setting->name, "duty") == 0) {
            if (!is_text || !read_duty(setting->text, &order.duty)) {
                refuse(r, 400, "duty",
                       "a worker's duty is on, off (it finishes what it has) "
                       "or end (the same, and then it ends)");
                return false;
            }
        } else {
            refuse(r, 400, setting->name,
                   "an order has a role, a duty or both, and nothing else");
            return false;
        }
    }
    if ((order.roles == 0) && (order.duty == BT_ADMIN_STATE_AS_IT_IS)) {
        refuse(r, 400, NULL, "nothing is ordered: give a role or a duty");
        return false;
    }
    *order_p = order;
    return true;
}

static bool is_it(const bt_instance_t *worker, const char *word)
{
    char id[BT_CLUSTER_ID_BYTES];

    bt_cluster_print_id(worker, id);
    return (strcmp(worker->hello.name, word) == 0) || (strcmp(id, word) == 0);
}

/* Finds a worker by name or id. @return false: none or several; the error was
 * sent */
static bool find_worker(bt_http_request_t *r, bt_core_t **core_p,
                        bt_instance_t **worker_p)
{
    bt_list_t *pos, *tmp;
    uint32_t n = 0;

    BT_REGISTRY_FOR_EACH(served, &r->door->front->models)
    {
        BT_LIST_FOR_EACH(pos, tmp, &bt_core_table(served->core)->workers)
        {
            bt_instance_t *worker = BT_CONTAINER_OF(pos, bt_instance_t, link);

            if (is_it(worker, r->name)) {
                *core_p = served->core;
                *worker_p = worker;
                n++;
            }
        }
    }
    if (n == 0) {
        refuse(r, 404, NULL, "no worker here has this name or id");
    } else if (n > 1) {
        refuse(r, 409, NULL,
               "several workers have this name: give the id of one");
    }
    return n == 1;
}

static void order_done(void *ctx, const bt_api_error_t *error)
{
    bt_http_request_t *r = ctx;

    r->order = NULL;
    if (error != NULL) {
        bt_http_request_fail(r, error);
    } else {
        bt_http_request_respond(r, 202, BT_JSON_TYPE, "{}", 2);
    }
}

/* A launcher would restore its own setting, so the command is forwarded to it.
 * A worker that drains there also ends, and stays stopped until it is started.
 */
static void order_launcher(bt_http_request_t *r, const bt_instance_t *worker,
                           const order_t *order)
{
    bt_admin_command_t request = {
        .verb = BT_ADMIN_VERB_ROLE,
        .prefill = BT_ADMIN_UNSET,
        .decode = BT_ADMIN_UNSET,
        .role = (bt_admin_role_t)order->roles, /* the same bits */
    };
    bt_api_error_t error = {0};

    if (order->roles == 0) {
        request.verb = (order->duty == BT_ADMIN_STATE_ON) ? BT_ADMIN_VERB_START
                                                          : BT_ADMIN_VERB_DRAIN;
        request.role = BT_ADMIN_ROLE_NONE;
    } else if (order->duty != BT_ADMIN_STATE_AS_IT_IS) {
        refuse(r, 400, "duty",
               "a launcher runs this worker, and takes one order at a time");
        return;
    }
    snprintf(request.name, sizeof(request.name), "%s", worker->hello.name);
    if (bt_model_control_process(r->door->front, r->door->base, &request,
                                 order_done, r, &r->order, &error) != BT_OK) {
        bt_http_request_fail(r, &error);
    }
}

void bt_route_worker(bt_http_request_t *r)
{
    bt_instance_t *worker = NULL;
    bt_core_t *core = NULL;
    order_t order;

    if (!read_order(r, &order) || !find_worker(r, &core, &worker)) {
        return;
    }
    if (worker->is_launched) {
        order_launcher(r, worker, &order);
        return;
    }
    if (bt_core_order_worker(core, worker, order.roles, order.duty) != BT_OK) {
        refuse(r, 409, NULL,
               "this worker is of a build that takes no such orders");
        return;
    }
    bt_http_request_respond(r, 202, BT_JSON_TYPE, "{}", 2);
}
