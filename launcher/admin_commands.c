/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "launcher/document.h"
#include "launcher/preflight.h"
#include "launcher/supervisor_priv.h"
#include "launcher/survey.h"

#define ERROR_BYTES BT_ADMIN_TEXT_BYTES
/* A role change is awaited for this many times the silence after which a router
 * or worker counts as dead and is restarted: by then it should have been
 * delivered. */
#define ROLE_DEADS 4u

bool bt_supervisor_is_worker(const bt_child_t *child)
{
    return child->process->model != BT_PLAN_NO_MODEL;
}

static void copy(const char *text, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", text);
}

/* Answers a command. @param [in] error NULL = ok */
static void answer(bt_supervisor_t *s, uint64_t client, const char *error)
{
    bt_admin_reply_t reply = {.result = BT_ADMIN_OK};

    if (error != NULL) {
        reply.result = BT_ADMIN_ERROR;
        copy(error, reply.error, sizeof(reply.error));
    }
    bt_control_socket_answer(s->control, client, &reply);
}

/* @return false: an error was answered */
static bool answer_document(bt_supervisor_t *s, uint64_t client)
{
    bt_admin_reply_t reply = {.result = BT_ADMIN_OK};
    const bt_status_t status = bt_supervisor_document(s, &reply.document);

    if (status != BT_OK) {
        answer(s, client, bt_status_str(status));
        return false;
    }
    bt_control_socket_answer(s->control, client, &reply);
    bt_admin_document_fini(&reply.document);
    return true;
}

/* Processes that a command names. */

static bt_child_t *find_child(const bt_supervisor_t *s, const char *name,
                              char *error)
{
    size_t n = 0;

    for (uint32_t i = 0; i < s->n_children; i++) {
        if (strcmp(s->children[i]->process->name, name) == 0) {
            return s->children[i];
        }
    }
    n = (size_t)snprintf(error, ERROR_BYTES,
                         "no process '%s'; there are:", name);
    for (uint32_t i = 0; (i < s->n_children) && (n < ERROR_BYTES); i++) {
        n += (size_t)snprintf(error + n, ERROR_BYTES - n, "%s %s",
                              (i == 0) ? "" : ",",
                              s->children[i]->process->name);
    }
    return NULL;
}

static uint32_t find_model(const bt_supervisor_t *s, const char *name,
                           char *error)
{
    const uint32_t model = bt_plan_find_model(s->plan, name);
    size_t n;

    if (model != BT_PLAN_NO_MODEL) {
        return model;
    }
    n = (size_t)snprintf(error, ERROR_BYTES, "no model '%s'; there are:", name);
    for (uint32_t i = 0; (i < s->plan->n_models) && (n < ERROR_BYTES); i++) {
        n += (size_t)snprintf(error + n, ERROR_BYTES - n, "%s %s",
                              (i == 0) ? "" : ",", s->plan->models[i].name);
    }
    return BT_PLAN_NO_MODEL;
}

/* Commands that are answered later. */

typedef enum outcome {
    OUTCOME_OPEN,
    OUTCOME_TRUE,
    OUTCOME_FALSE, /* and will not become true */
} outcome_t;

/* The worker is ready; does it have the requested role? */
static outcome_t outcome_of_role(const bt_pending_t *pending,
                                 const bt_child_t *child, char *error)
{
    const char *const name = child->process->name;
    const char *const role = bt_admin_role_name(pending->role);

    if (child->process->role != pending->role) {
        snprintf(error, ERROR_BYTES, "another command gave %s the role %s",
                 name, bt_admin_role_name(child->process->role));
        return OUTCOME_FALSE;
    }
    if (strcmp(child->ready.role, role) == 0) {
        return OUTCOME_TRUE;
    }
    if (bt_now_ms() < pending->due_ms) {
        return OUTCOME_OPEN;
    }
    snprintf(error, ERROR_BYTES,
             "%s is still %s; it takes the role %s when a router reaches it",
             name, child->ready.role, role);
    return OUTCOME_FALSE;
}

/* State of a command for one child. */
static outcome_t outcome_of(const bt_pending_t *pending,
                            const bt_child_t *child, char *error)
{
    const char *const name = child->process->name;
    char last[BT_STDERR_TAIL_BYTES];

    if (pending->until_ended) {
        if (child->state == BT_PROCESS_STOPPED) {
            return OUTCOME_TRUE;
        }
        if (child->state == BT_PROCESS_STOPPING) {
            return OUTCOME_OPEN;
        }
        snprintf(error, ERROR_BYTES, "another command started %s again", name);
        return OUTCOME_FALSE;
    }
    if (child->state == BT_PROCESS_READY) {
        return (pending->role == BT_ADMIN_ROLE_NONE)
                   ? OUTCOME_TRUE
                   : outcome_of_role(pending, child, error);
    }
    if ((child->state != BT_PROCESS_STOPPED) &&
        (child->state != BT_PROCESS_STOPPING)) {
        return OUTCOME_OPEN;
    }
    if (!child->has_given_up) {
        snprintf(error, ERROR_BYTES, "another command stopped %s", name);
        return OUTCOME_FALSE;
    }
    bt_stderr_tail_cause(&child->tail, last);
    snprintf(error, ERROR_BYTES, "%s could not start: it ended %s%s%s", name,
             child->end,
             (last[0] == '\0') ? "" : "; its last log lines: ", last);
    return OUTCOME_FALSE;
}

static outcome_t outcome(const bt_supervisor_t *s, const bt_pending_t *pending,
                         char *error)
{
    outcome_t all = OUTCOME_TRUE;

    if (s->phase != BT_SUPERVISOR_RUNNING) {
        copy("the launcher is stopping", error, ERROR_BYTES);
        return OUTCOME_FALSE;
    }
    for (uint32_t i = 0; i < s->n_children; i++) {
        const bt_child_t *const child = s->children[i];
        outcome_t one;

        if ((pending->child == NULL) ? (child->process->model != pending->model)
                                     : (child != pending->child)) {
            continue;
        }
        one = outcome_of(pending, child, error);
        if (one == OUTCOME_FALSE) {
            return OUTCOME_FALSE;
        }
        all = (one == OUTCOME_OPEN) ? OUTCOME_OPEN : all;
    }
    return all;
}

void bt_supervisor_answer_pending(bt_supervisor_t *s)
{
    for (size_t i = 0; i < BT_CONTROL_SOCKET_CLIENTS; i++) {
        bt_pending_t *const pending = &s->pending[i];
        char error[ERROR_BYTES];
        outcome_t now;

        if (pending->client == 0) {
            continue;
        }
        now = outcome(s, pending, error);
        if (now != OUTCOME_OPEN) {
            const uint64_t client = pending->client;

            pending->client = 0;
            answer(s, client, (now == OUTCOME_TRUE) ? NULL : error);
        }
    }
}

/* Answers at once, or when the child, or all workers of the model, have reached
 * the requested state. */
static void answer_when_done(bt_supervisor_t *s, uint64_t client,
                             const bt_admin_command_t *command,
                             bt_child_t *child, uint32_t model)
{
    if (!command->wait) {
        answer(s, client, NULL);
        return;
    }
    for (size_t i = 0; i < BT_CONTROL_SOCKET_CLIENTS; i++) {
        if (s->pending[i].client == 0) {
            s->pending[i] = (bt_pending_t){
                .client = client,
                .until_ended = (command->verb == BT_ADMIN_VERB_STOP) ||
                               (command->verb == BT_ADMIN_VERB_DRAIN) ||
                               (command->verb == BT_ADMIN_VERB_UNLOAD),
                .child = child,
                .model = model,
            };
            if (command->verb == BT_ADMIN_VERB_ROLE) {
                s->pending[i].role = command->role;
                s->pending[i].due_ms =
                    bt_now_ms() + ROLE_DEADS * s->plan->config->dead_ms;
            }
            return;
        }
    }
    /* The clients have left, and their commands are still in progress. */
    answer(s, client,
           "it is done, but too many commands are under way to wait for "
           "its end");
}

/* Admin commands. */

static void start_by_command(bt_supervisor_t *s, bt_child_t *child,
                             bt_process_state_event_t event)
{
    if (!bt_process_state_runs(child->state)) {
        bt_restart_init(&child->restart);
        child->is_by_command = true;
    }
    if (bt_supervisor_is_worker(child) &&
        s->plan->models[child->process->model].is_unloaded) {
        s->plan->models[child->process->model].is_unloaded = false;
        bt_supervisor_publish_model(s, child->process->model);
    }
    bt_supervisor_apply(s, child, event);
}

/* Each returns the child, or the index of the model, that the command is about;
 * NULL and BT_PLAN_NO_MODEL: @a error says why it was not carried out. */

static bt_child_t *command_process(bt_supervisor_t *s,
                                   const bt_admin_command_t *command,
                                   char *error)
{
    bt_child_t *const child = find_child(s, command->name, error);

    if (child == NULL) {
        return NULL;
    }
    if (command->verb == BT_ADMIN_VERB_START) {
        start_by_command(s, child, BT_PROCESS_EVENT_START);
    } else if (command->verb == BT_ADMIN_VERB_RESTART) {
        start_by_command(s, child, BT_PROCESS_EVENT_RESTART);
    } else {
        bt_supervisor_apply(s, child, BT_PROCESS_EVENT_STOP);
    }
    return child;
}

static bt_child_t *command_role(bt_supervisor_t *s,
                                const bt_admin_command_t *command, char *error)
{
    bt_child_t *const child = find_child(s, command->name, error);

    if (child == NULL) {
        return NULL;
    }
    if (!bt_supervisor_is_worker(child) || child->process->is_standby) {
        snprintf(error, ERROR_BYTES, "%s is a %s: only workers have a role",
                 command->name,
                 child->process->is_standby ? "standby" : "router");
        return NULL;
    }
    if (child->process->role != command->role) {
        child->process->role = command->role;
        /* Routers receive this event, and notify the worker. */
        bt_supervisor_publish_process(s, child);
        bt_supervisor_publish_model(s, child->process->model);
    }
    if ((child->state != BT_PROCESS_STARTING) &&
        (child->state != BT_PROCESS_READY)) {
        start_by_command(s, child, BT_PROCESS_EVENT_START);
    }
    return child;
}

static void apply_to_workers(bt_supervisor_t *s, uint32_t model, bool load)
{
    s->plan->models[model].is_unloaded = !load;
    bt_supervisor_publish_model(s, model);
    for (uint32_t i = 0; i < s->n_children; i++) {
        if (s->children[i]->process->model != model) {
            continue;
        }
        if (load) {
            start_by_command(s, s->children[i], BT_PROCESS_EVENT_START);
        } else {
            bt_supervisor_apply(s, s->children[i], BT_PROCESS_EVENT_STOP);
        }
    }
}

static uint32_t command_unload(bt_supervisor_t *s,
                               const bt_admin_command_t *command, char *error)
{
    const uint32_t model = find_model(s, command->name, error);

    if (model != BT_PLAN_NO_MODEL) {
        apply_to_workers(s, model, false);
    }
    return model;
}

static uint32_t count_or(uint32_t asked, uint32_t otherwise)
{
    return (asked == BT_ADMIN_UNSET) ? otherwise : asked;
}

/* Checks that a known model may be loaded like that. */
static bool may_load_again(const bt_supervisor_t *s, uint32_t i,
                           const bt_admin_command_t *command, char *error)
{
    const bt_plan_model_t *const model = &s->plan->models[i];
    const uint32_t prefill = model->prefill;
    const uint32_t decode = model->decode;

    if ((command->path[0] != '\0') &&
        !bt_model_file_is_same(command->path, model->path)) {
        snprintf(error, ERROR_BYTES,
                 "%s is the model %.*s already; another file "
                 "needs another name",
                 model->name, 1024, model->path);
        return false;
    }
    if ((count_or(command->prefill, prefill) < prefill) ||
        (count_or(command->decode, decode) < decode)) {
        snprintf(error, ERROR_BYTES,
                 "%s has prefill=%u and decode=%u: a command to stop one names "
                 "it",
                 model->name, prefill, decode);
        return false;
    }
    return true;
}

/* Checks that there may be such a model. */
static bool may_load(const bt_supervisor_t *s,
                     const bt_admin_command_t *command, uint32_t prefill,
                     uint32_t decode, char *error)
{
    if (!bt_config_is_model_name(command->name, strlen(command->name))) {
        snprintf(error, ERROR_BYTES,
                 "'%s' is no name: printable ASCII without space, / \" \\ , =",
                 command->name);
        return false;
    }
    if (command->path[0] != '/') {
        snprintf(error, ERROR_BYTES,
                 (command->path[0] == '\0')
                     ? "no model '%s' yet: it is loaded with its path from / on"
                     : "the path of %s has to begin with /",
                 command->name);
        return false;
    }
    if ((decode == 0) ||
        ((prefill == 0) &&
         (strcmp(s->plan->config->local_prefill, "on") != 0))) {
        copy(
            (decode == 0)
                ? "decode=0 leaves no decode worker"
                : "prefill=0 leaves no worker to run prefill: the launch has no --local-prefill on",
            error, ERROR_BYTES);
        return false;
    }
    if ((s->plan->config->lora[0] != '\0') ||
        (s->plan->config->lora_dir[0] != '\0') ||
        (s->plan->config->lora_cache_host_bytes > 0)) {
        snprintf(error, ERROR_BYTES,
                 "%s is not loaded beside %s: adapters (%s) are those of one "
                 "model",
                 command->name, s->plan->models[0].name,
                 (s->plan->config->lora[0] != '\0') ? "--lora"
                 : (s->plan->config->lora_dir[0] != '\0')
                     ? "--lora-dir"
                     : "--lora-cache-host-memory");
        return false;
    }
    if (s->plan->n_models == BT_CONFIG_MAX_MODELS) {
        snprintf(error, ERROR_BYTES, "there are %d models already",
                 BT_CONFIG_MAX_MODELS);
        return false;
    }
    return bt_model_file_check(command->path, error, ERROR_BYTES) == BT_OK;
}

/* `load NAME` of a model of the launch's folder of models. */
static void find_pulled(const bt_config_t *config, bt_admin_command_t *command)
{
    BT_CLEANUP(free) char *path = NULL;

    if ((command->path[0] == '\0') &&
        (bt_config_pulled_find(config->models_dir, command->name, &path) ==
         BT_OK)) {
        copy(path, command->path, sizeof(command->path));
    }
}

/* Checks the thread limit, besides the running processes. */
static bool has_threads_for(const bt_config_t *config, uint32_t prefill,
                            uint32_t decode, char *error)
{
    bt_config_t added = *config;
    bt_diagnostics_t findings = {0};
    bt_survey_limits_t limits;
    bool has_them;

    added.prefill = prefill;
    added.decode = decode;
    added.routers = 0;
    bt_survey_limits_read("", &limits);
    bt_survey_check_threads(&added, 1, &limits, &findings);
    has_them = bt_diagnostics_count(&findings, BT_FINDING_PROBLEM) == 0;
    if (!has_them) {
        snprintf(error, ERROR_BYTES, "%s", findings.list[0].text);
    }
    bt_diagnostics_fini(&findings);
    return has_them;
}

/* Adds the children of processes that were @a planned. Without its log file,
 * which was logged, a process serves all the same. @return false: nothing was
 * added, and the plan is to be undone if it was planned */
static bool add_children(bt_supervisor_t *s, bt_status_t planned,
                         const char *model, char *error)
{
    const bt_status_t status =
        (planned == BT_OK) ? bt_supervisor_add_children(s) : planned;

    if ((status == BT_OK) || (status == BT_ERR_IO)) {
        return true;
    }
    snprintf(error, ERROR_BYTES, "no worker of %s was added: %s", model,
             bt_status_str(status));
    return false;
}

/* @return its index, or BT_PLAN_NO_MODEL with the reason. */
static uint32_t add_model(bt_supervisor_t *s, const bt_admin_command_t *command,
                          char *error)
{
    const bt_config_t *const config = s->plan->config;
    const uint32_t prefill = count_or(command->prefill, config->prefill);
    const uint32_t decode = count_or(command->decode, config->decode);
    bt_admin_command_t found = *command;
    bt_status_t status;

    find_pulled(config, &found);
    command = &found;
    if (!may_load(s, command, prefill, decode, error) ||
        !has_threads_for(config, prefill, decode, error)) {
        return BT_PLAN_NO_MODEL;
    }
    status = bt_plan_add_model(s->plan, command->name, command->path, prefill,
                               decode);
    if (!add_children(s, status, command->name, error)) {
        if (status == BT_OK) {
            bt_plan_drop_model(s->plan);
        }
        return BT_PLAN_NO_MODEL;
    }
    return s->plan->n_models - 1;
}

/* Adds workers to a model that has fewer than requested. @return false: @a
 * error says why not */
static bool add_workers(bt_supervisor_t *s, uint32_t i,
                        const bt_admin_command_t *command, char *error)
{
    const bt_plan_model_t *const model = &s->plan->models[i];
    const uint32_t prefill =
        count_or(command->prefill, model->prefill) - model->prefill;
    const uint32_t decode =
        count_or(command->decode, model->decode) - model->decode;
    bt_status_t status;

    if (prefill + decode == 0) {
        return true;
    }
    if (!has_threads_for(s->plan->config, prefill, decode, error)) {
        return false;
    }
    status = bt_plan_add_workers(s->plan, i, prefill, decode);
    if (!add_children(s, status, model->name, error)) {
        if (status == BT_OK) {
            bt_plan_drop_workers(s->plan, i, prefill, decode);
        }
        return false;
    }
    return true;
}

static uint32_t command_load(bt_supervisor_t *s,
                             const bt_admin_command_t *command, char *error)
{
    uint32_t model = bt_plan_find_model(s->plan, command->name);

    if (model == BT_PLAN_NO_MODEL) {
        model = add_model(s, command, error);
    } else if (!may_load_again(s, model, command, error) ||
               !add_workers(s, model, command, error)) {
        model = BT_PLAN_NO_MODEL;
    }
    if (model != BT_PLAN_NO_MODEL) {
        apply_to_workers(s, model, true);
    }
    return model;
}

void bt_supervisor_command(void *arg, uint64_t client,
                           const bt_admin_command_t *command)
{
    bt_supervisor_t *const s = arg;
    const bool is_question = (command->verb == BT_ADMIN_VERB_STATUS) ||
                             (command->verb == BT_ADMIN_VERB_WATCH);
    bt_child_t *child = NULL;
    uint32_t model = BT_PLAN_NO_MODEL;
    char error[ERROR_BYTES];

    if (!is_question) {
        BT_LOG_INFO("admin command: %s %s", bt_admin_verb_name(command->verb),
                    command->name);
        if (s->phase != BT_SUPERVISOR_RUNNING) {
            answer(s, client, "the launcher is stopping");
            return;
        }
    }
    switch (command->verb) {
    case BT_ADMIN_VERB_STATUS:
        (void)answer_document(s, client);
        return;
    case BT_ADMIN_VERB_WATCH:
        if (answer_document(s, client)) {
            bt_control_socket_watch(s->control, client);
        }
        return;
    case BT_ADMIN_VERB_START:
    case BT_ADMIN_VERB_STOP:
    case BT_ADMIN_VERB_DRAIN:
    case BT_ADMIN_VERB_RESTART:
        child = command_process(s, command, error);
        break;
    case BT_ADMIN_VERB_LOAD:
        model = command_load(s, command, error);
        break;
    case BT_ADMIN_VERB_UNLOAD:
        model = command_unload(s, command, error);
        break;
    case BT_ADMIN_VERB_ROLE:
        child = command_role(s, command, error);
        break;
    }
    if ((child == NULL) && (model == BT_PLAN_NO_MODEL)) {
        answer(s, client, error);
    } else {
        answer_when_done(s, client, command, child, model);
    }
}
