/* SPDX-License-Identifier: Apache-2.0 */
/* Admin commands to workers, for tools without a launcher. A worker owns its
 * role and duty and reports both to all routers, so a command may come through
 * any of them; where a launcher runs the worker, the launcher's setting counts
 * and the command is forwarded to it. */
#include <stdio.h>
#include <string.h>

#include "router/http/routes_priv.h"

typedef struct command {
    uint32_t roles; /* 0: unchanged */
    bt_admin_state_t duty;
} command_t;

static void refuse(bt_http_request_t *r, int status, const char *param,
                   const char *why)
{
    bt_http_request_error(r, status, param, "%.64s: %s", r->name, why);
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
static bool read_command(bt_http_request_t *r, command_t *command_p)
{
    command_t command = {0};
    bt_settings_t settings;

    if (!bt_http_request_read_settings(r, NULL, &settings)) {
        return false;
    }
    for (size_t i = 0; i < settings.n; i++) {
        const bt_setting_t *setting = &settings.list[i];
        const bool is_text = setting->kind == BT_SETTING_TEXT;

        if (strcmp(setting->name, "role") == 0) {
            if (!is_text || !bt_role_named(setting->text, &command.roles)) {
                refuse(r, 400, "role",
                       "a worker's role is prefill, decode or both");
                return false;
            }
        } else if (strcmp(setting->name, "duty") == 0) {
            if (!is_text || !read_duty(setting->text, &command.duty)) {
                refuse(r, 400, "duty",
                       "a worker's duty is on, off (it finishes what it has) "
                       "or end (the same, and then it ends)");
                return false;
            }
        } else {
            refuse(r, 400, setting->name,
                   "a command has a role, a duty or both, and nothing else");
            return false;
        }
    }
    if ((command.roles == 0) && (command.duty == BT_ADMIN_STATE_AS_IT_IS)) {
        refuse(r, 400, NULL, "the command is empty: give a role or a duty");
        return false;
    }
    *command_p = command;
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
    uint32_t n = 0;

    BT_REGISTRY_FOR_EACH(served, &r->door->front->models)
    {
        BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker,
                               &bt_core_table(served->core)->workers, link) {
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

static void command_done(void *ctx, const bt_api_error_t *error)
{
    bt_http_request_t *r = ctx;

    r->control = NULL;
    if (error != NULL) {
        bt_http_request_fail(r, error);
    } else {
        bt_http_request_respond(r, 202, BT_JSON_TYPE, "{}", 2);
    }
}

/* A launcher would restore its own setting, so the command is forwarded to it.
 * A worker that drains there also ends, and stays stopped until it is started.
 */
static void command_launcher(bt_http_request_t *r, const bt_instance_t *worker,
                             const command_t *asked)
{
    bt_admin_command_t command = {
        .verb = BT_ADMIN_VERB_ROLE,
        .prefill = BT_ADMIN_UNSET,
        .decode = BT_ADMIN_UNSET,
        .role = (bt_admin_role_t)asked->roles, /* the same bits */
    };
    bt_api_error_t error = {0};

    if (asked->roles == 0) {
        command.verb = (asked->duty == BT_ADMIN_STATE_ON) ? BT_ADMIN_VERB_START
                                                          : BT_ADMIN_VERB_DRAIN;
        command.role = BT_ADMIN_ROLE_NONE;
    } else if (asked->duty != BT_ADMIN_STATE_AS_IT_IS) {
        refuse(r, 400, "duty",
               "a launcher runs this worker, and takes one command at a time");
        return;
    }
    snprintf(command.name, sizeof(command.name), "%s", worker->hello.name);
    if (bt_model_control_process(r->door->front, r->door->base, &command,
                                 command_done, r, &r->control,
                                 &error) != BT_OK) {
        bt_http_request_fail(r, &error);
    }
}

void bt_route_worker(bt_http_request_t *r)
{
    bt_instance_t *worker = NULL;
    bt_core_t *core = NULL;
    command_t command;

    if (!read_command(r, &command) || !find_worker(r, &core, &worker)) {
        return;
    }
    if (worker->is_launched) {
        command_launcher(r, worker, &command);
        return;
    }
    if (bt_core_order_worker(core, worker, command.roles, command.duty) !=
        BT_OK) {
        refuse(r, 409, NULL,
               "this worker is of a build that takes no such commands");
        return;
    }
    bt_http_request_respond(r, 202, BT_JSON_TYPE, "{}", 2);
}
