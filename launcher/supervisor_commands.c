/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/model_file.h"
#include "launcher/supervisor_priv.h"
#include "launcher/survey.h"

#define ERROR_BYTES BT_ADMIN_TEXT_BYTES
#define ANY_MODEL   UINT32_MAX
/* A role change is awaited for this many times the silence after which a router
 * or worker counts as dead and is restarted: by then it should have been
 * delivered. */
#define ROLE_DEADS 4u

static bool is_worker(const bt_child_t *child)
{
    return child->process->model != BT_PLAN_NO_MODEL;
}

/* Events. */

static uint32_t program_of(const bt_child_t *child)
{
    if (child->process->is_standby) {
        return BT_ADMIN_PROGRAM_STANDBY;
    }
    switch (child->process->program) {
    case BT_PROG_ROUTER:
        return BT_ADMIN_PROGRAM_ROUTER;
    case BT_PROG_PREFILL:
        return BT_ADMIN_PROGRAM_PREFILL;
    default:
        return BT_ADMIN_PROGRAM_DECODE;
    }
}

static uint32_t state_of(const bt_child_t *child)
{
    static const bt_admin_process_state_t states[BT_LIFE_STATES] = {
        [BT_LIFE_STOPPED] = BT_ADMIN_PROCESS_STOPPED,
        [BT_LIFE_STARTING] = BT_ADMIN_PROCESS_STARTING,
        [BT_LIFE_READY] = BT_ADMIN_PROCESS_READY,
        [BT_LIFE_STOPPING] = BT_ADMIN_PROCESS_STOPPING,
        [BT_LIFE_CHANGING] = BT_ADMIN_PROCESS_STOPPING,
        [BT_LIFE_WAITING] = BT_ADMIN_PROCESS_WAITING,
    };

    return states[child->life];
}

static void copy(const char *text, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", text);
}

static void describe_launcher(const bt_supervisor_t *s, bt_admin_event_t *event)
{
    bt_admin_launcher_t *const launcher = &event->u.launcher;

    memset(event, 0, sizeof(*event));
    event->kind = BT_ADMIN_EVENT_LAUNCHER;
    launcher->pid = (uint64_t)getpid();
    launcher->stopping = (s->phase != BT_SUPERVISOR_RUNNING);
    copy(bt_config_version(), launcher->version, sizeof(launcher->version));
    copy(s->plan->run_dir.path, launcher->run_dir, sizeof(launcher->run_dir));
}

static void describe_model(const bt_supervisor_t *s, uint32_t i,
                           bt_admin_event_t *event)
{
    const bt_plan_model_t *const model = &s->plan->models[i];

    memset(event, 0, sizeof(*event));
    event->kind = BT_ADMIN_EVENT_MODEL;
    copy(model->name, event->u.model.name, sizeof(event->u.model.name));
    copy(model->path, event->u.model.path, sizeof(event->u.model.path));
    event->u.model.prefill = bt_plan_count(s->plan, i, BT_ADMIN_ROLE_PREFILL);
    event->u.model.decode = bt_plan_count(s->plan, i, BT_ADMIN_ROLE_DECODE);
    event->u.model.both = bt_plan_count(s->plan, i, BT_ADMIN_ROLE_BOTH);
    event->u.model.unloaded = model->is_unloaded;
}

/* Describes what keeps a process from serving; while it starts, its last log
 * line. */
static void describe_trouble(const bt_child_t *child,
                             bt_admin_process_t *process)
{
    char line[BT_LAST_WORDS_BYTES];

    switch (child->life) {
    case BT_LIFE_READY:
        copy(child->is_starved ? "starved: it waits for a core"
                               : child->ready.why,
             process->why, sizeof(process->why));
        break;
    case BT_LIFE_STARTING:
        bt_stderr_tail_cause(&child->words, line);
        if (line[0] != '\0') {
            snprintf(process->why, sizeof(process->why), "it says: %s%s%s",
                     line,
                     (child->trouble[0] != '\0') ? "; before that it " : "",
                     child->trouble);
            break;
        }
        copy(child->trouble, process->why, sizeof(process->why));
        break;
    case BT_LIFE_WAITING:
        copy(child->trouble, process->why, sizeof(process->why));
        break;
    case BT_LIFE_STOPPED: /* by a command, unless it could not start */
        if (child->has_given_up) {
            copy(child->trouble, process->why, sizeof(process->why));
        }
        break;
    case BT_LIFE_STOPPING:
    case BT_LIFE_CHANGING:
        break;
    }
}

static void describe_process(const bt_supervisor_t *s, const bt_child_t *child,
                             bt_admin_event_t *event)
{
    bt_admin_process_t *const process = &event->u.process;

    memset(event, 0, sizeof(*event));
    event->kind = BT_ADMIN_EVENT_PROCESS;
    copy(child->process->name, process->name, sizeof(process->name));
    process->program = program_of(child);
    process->role = child->process->role;
    if (is_worker(child)) {
        copy(s->plan->models[child->process->model].name, process->model,
             sizeof(process->model));
    }
    process->state = state_of(child);
    process->pid = (uint64_t)child->pid;
    process->restarts = child->n_restarts;
    process->since_ms = child->since_ms;
    describe_trouble(child, process);
    if (child->pid == 0) {
        return; /* its addresses are from a process that is gone */
    }
    /* Missing, or too long: then "". */
    if (!bt_ready_address(&child->ready, "http", process->http,
                          sizeof(process->http)) ||
        !bt_ready_address(&child->ready, "metrics", process->metrics,
                          sizeof(process->metrics))) {
        return;
    }
}

void bt_supervisor_tell_launcher(bt_supervisor_t *s)
{
    bt_admin_event_t event;

    describe_launcher(s, &event);
    bt_control_socket_tell(s->desk, &event);
}

void bt_supervisor_tell_model(bt_supervisor_t *s, uint32_t model)
{
    bt_admin_event_t event;

    describe_model(s, model, &event);
    bt_control_socket_tell(s->desk, &event);
}

void bt_supervisor_tell_process(bt_supervisor_t *s, const bt_child_t *child)
{
    bt_admin_event_t event;

    describe_process(s, child, &event);
    bt_control_socket_tell(s->desk, &event);
}

static void say_status(bt_supervisor_t *s, uint64_t client)
{
    bt_admin_event_t event;

    describe_launcher(s, &event);
    bt_control_socket_say(s->desk, client, &event);
    for (uint32_t i = 0; i < s->plan->n_models; i++) {
        describe_model(s, i, &event);
        bt_control_socket_say(s->desk, client, &event);
    }
    for (uint32_t i = 0; i < s->n_children; i++) {
        describe_process(s, s->children[i], &event);
        bt_control_socket_say(s->desk, client, &event);
    }
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

/* Orders that are answered later. */

/* A ready worker of this build has reported its role. */
static void say_fixed(const bt_child_t *child, char *error)
{
    snprintf(error, ERROR_BYTES,
             "%s is of a build that cannot change its role while it serves",
             child->process->name);
}

typedef enum outcome {
    OUTCOME_OPEN,
    OUTCOME_TRUE,
    OUTCOME_FALSE, /* and will not become true */
} outcome_t;

/* The worker is ready; does it have the requested role? */
static outcome_t outcome_of_role(const bt_pending_t *order,
                                 const bt_child_t *child, char *error)
{
    const char *const name = child->process->name;
    const char *const role = bt_admin_role_name(order->role);

    if (child->process->role != order->role) {
        snprintf(error, ERROR_BYTES, "another order gave %s the role %s", name,
                 bt_admin_role_name(child->process->role));
        return OUTCOME_FALSE;
    }
    if (strcmp(child->ready.role, role) == 0) {
        return OUTCOME_TRUE;
    }
    if (child->ready.role[0] == '\0') {
        say_fixed(child, error);
        return OUTCOME_FALSE;
    }
    if (bt_now_ms() < order->due_ms) {
        return OUTCOME_OPEN;
    }
    snprintf(error, ERROR_BYTES,
             "%s is still %s; it takes the role %s when a router reaches it",
             name, child->ready.role, role);
    return OUTCOME_FALSE;
}

/* State of a command for one child. */
static outcome_t outcome_of(const bt_pending_t *order, const bt_child_t *child,
                            char *error)
{
    const char *const name = child->process->name;
    char last[BT_LAST_WORDS_BYTES];

    if (order->until_ended) {
        if (child->life == BT_LIFE_STOPPED) {
            return OUTCOME_TRUE;
        }
        if (child->life == BT_LIFE_STOPPING) {
            return OUTCOME_OPEN;
        }
        snprintf(error, ERROR_BYTES, "another order started %s again", name);
        return OUTCOME_FALSE;
    }
    if (child->life == BT_LIFE_READY) {
        return (order->role == BT_ADMIN_ROLE_NONE)
                   ? OUTCOME_TRUE
                   : outcome_of_role(order, child, error);
    }
    if ((child->life != BT_LIFE_STOPPED) && (child->life != BT_LIFE_STOPPING)) {
        return OUTCOME_OPEN;
    }
    if (!child->has_given_up) {
        snprintf(error, ERROR_BYTES, "another order stopped %s", name);
        return OUTCOME_FALSE;
    }
    bt_stderr_tail_cause(&child->words, last);
    snprintf(error, ERROR_BYTES, "%s could not start: it ended %s%s%s", name,
             child->end,
             (last[0] == '\0') ? "" : "; its last log lines: ", last);
    return OUTCOME_FALSE;
}

static outcome_t outcome(const bt_supervisor_t *s, const bt_pending_t *order,
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

        if ((order->child == NULL) ? (child->process->model != order->model)
                                   : (child != order->child)) {
            continue;
        }
        one = outcome_of(order, child, error);
        if (one == OUTCOME_FALSE) {
            return OUTCOME_FALSE;
        }
        all = (one == OUTCOME_OPEN) ? OUTCOME_OPEN : all;
    }
    return all;
}

void bt_supervisor_answer_pending(bt_supervisor_t *s)
{
    for (size_t i = 0; i < BT_DESK_CLIENTS; i++) {
        bt_pending_t *const order = &s->pending[i];
        char error[ERROR_BYTES];
        outcome_t now;

        if (order->client == 0) {
            continue;
        }
        now = outcome(s, order, error);
        if (now != OUTCOME_OPEN) {
            const uint64_t client = order->client;

            order->client = 0;
            bt_control_socket_answer(s->desk, client,
                                     (now == OUTCOME_TRUE) ? NULL : error);
        }
    }
}

/* Answers at once, or when the child, or all workers of the model, have reached
 * the requested state. */
static void answer_when_done(bt_supervisor_t *s, uint64_t client,
                             const bt_admin_command_t *request,
                             bt_child_t *child, uint32_t model)
{
    if (!request->wait) {
        bt_control_socket_answer(s->desk, client, NULL);
        return;
    }
    for (size_t i = 0; i < BT_DESK_CLIENTS; i++) {
        if (s->pending[i].client == 0) {
            s->pending[i] = (bt_pending_t){
                .client = client,
                .until_ended = (request->verb == BT_ADMIN_VERB_STOP) ||
                               (request->verb == BT_ADMIN_VERB_DRAIN) ||
                               (request->verb == BT_ADMIN_VERB_UNLOAD),
                .child = child,
                .model = model,
            };
            if (request->verb == BT_ADMIN_VERB_ROLE) {
                s->pending[i].role = request->role;
                s->pending[i].due_ms =
                    bt_now_ms() + ROLE_DEADS * s->plan->config->dead_ms;
            }
            return;
        }
    }
    /* The clients have left, and their commands are still in progress. */
    bt_control_socket_answer(
        s->desk, client,
        "it is done, but too many orders are under way to wait for "
        "its end");
}

/* Admin commands. */

static void start_by_order(bt_supervisor_t *s, bt_child_t *child,
                           bt_process_state_event_t event)
{
    if (!bt_process_state_runs(child->life)) {
        bt_restart_init(&child->restart);
        child->is_by_order = true;
    }
    if (is_worker(child) &&
        s->plan->models[child->process->model].is_unloaded) {
        s->plan->models[child->process->model].is_unloaded = false;
        bt_supervisor_tell_model(s, child->process->model);
    }
    bt_supervisor_apply(s, child, event);
}

static void order_process(bt_supervisor_t *s, uint64_t client,
                          const bt_admin_command_t *request)
{
    char error[ERROR_BYTES];
    bt_child_t *const child = find_child(s, request->name, error);

    if (child == NULL) {
        bt_control_socket_answer(s->desk, client, error);
        return;
    }
    if (request->verb == BT_ADMIN_VERB_START) {
        start_by_order(s, child, BT_LIFE_START);
    } else if (request->verb == BT_ADMIN_VERB_RESTART) {
        start_by_order(s, child, BT_LIFE_RESTART);
    } else {
        bt_supervisor_apply(s, child, BT_LIFE_STOP);
    }
    answer_when_done(s, client, request, child, ANY_MODEL);
}

static void order_role(bt_supervisor_t *s, uint64_t client,
                       const bt_admin_command_t *request)
{
    char error[ERROR_BYTES];
    bt_child_t *const child = find_child(s, request->name, error);

    if (child == NULL) {
        bt_control_socket_answer(s->desk, client, error);
        return;
    }
    if (!is_worker(child) || child->process->is_standby) {
        snprintf(error, sizeof(error), "%s is a %s: only workers have a role",
                 request->name,
                 child->process->is_standby ? "standby" : "router");
        bt_control_socket_answer(s->desk, client, error);
        return;
    }
    if ((child->life == BT_LIFE_READY) && (child->ready.role[0] == '\0')) {
        say_fixed(child, error);
        bt_control_socket_answer(s->desk, client, error);
        return;
    }
    if (child->process->role != request->role) {
        child->process->role = request->role;
        /* Routers receive this event, and notify the worker. */
        bt_supervisor_tell_process(s, child);
        bt_supervisor_tell_model(s, child->process->model);
    }
    if ((child->life != BT_LIFE_STARTING) && (child->life != BT_LIFE_READY)) {
        start_by_order(s, child, BT_LIFE_START);
    }
    answer_when_done(s, client, request, child, ANY_MODEL);
}

static void apply_to_workers(bt_supervisor_t *s, uint32_t model, bool load)
{
    s->plan->models[model].is_unloaded = !load;
    bt_supervisor_tell_model(s, model);
    for (uint32_t i = 0; i < s->n_children; i++) {
        if (s->children[i]->process->model != model) {
            continue;
        }
        if (load) {
            start_by_order(s, s->children[i], BT_LIFE_START);
        } else {
            bt_supervisor_apply(s, s->children[i], BT_LIFE_STOP);
        }
    }
}

static void order_unload(bt_supervisor_t *s, uint64_t client,
                         const bt_admin_command_t *request)
{
    char error[ERROR_BYTES];
    const uint32_t model = find_model(s, request->name, error);

    if (model == BT_PLAN_NO_MODEL) {
        bt_control_socket_answer(s->desk, client, error);
        return;
    }
    apply_to_workers(s, model, false);
    answer_when_done(s, client, request, NULL, model);
}

static uint32_t count_or(uint32_t asked, uint32_t otherwise)
{
    return (asked == BT_ADMIN_UNSET) ? otherwise : asked;
}

/* Checks that a known model may be loaded like that. */
static bool may_load_again(const bt_supervisor_t *s, uint32_t i,
                           const bt_admin_command_t *request, char *error)
{
    const bt_plan_model_t *const model = &s->plan->models[i];
    const uint32_t prefill = model->prefill;
    const uint32_t decode = model->decode;

    if ((request->path[0] != '\0') &&
        !bt_model_file_is_same(request->path, model->path)) {
        snprintf(error, ERROR_BYTES,
                 "%s is the model %.*s already; another file "
                 "needs another name",
                 model->name, 1024, model->path);
        return false;
    }
    if ((count_or(request->prefill, prefill) < prefill) ||
        (count_or(request->decode, decode) < decode)) {
        snprintf(error, ERROR_BYTES,
                 "%s has prefill=%u and decode=%u: an order to stop one names "
                 "it",
                 model->name, prefill, decode);
        return false;
    }
    return true;
}

/* Checks that there may be such a model. */
static bool may_load(const bt_supervisor_t *s,
                     const bt_admin_command_t *request, uint32_t prefill,
                     uint32_t decode, char *error)
{
    if (!bt_config_is_model_name(request->name, strlen(request->name))) {
        snprintf(error, ERROR_BYTES,
                 "'%s' is no name: printable ASCII without space, / \" \\ , =",
                 request->name);
        return false;
    }
    if (request->path[0] != '/') {
        snprintf(error, ERROR_BYTES,
                 (request->path[0] == '\0')
                     ? "no model '%s' yet: it is loaded with its path from / on"
                     : "the path of %s has to begin with /",
                 request->name);
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
    if (s->plan->n_models == BT_CONFIG_MAX_MODELS) {
        snprintf(error, ERROR_BYTES, "there are %d models already",
                 BT_CONFIG_MAX_MODELS);
        return false;
    }
    return bt_model_file_check(request->path, error, ERROR_BYTES) == BT_OK;
}

/* `load NAME` of a model of the launch's folder of models. */
static void find_pulled(const bt_config_t *config, bt_admin_command_t *request)
{
    BT_CLEANUP(free) char *path = NULL;

    if ((request->path[0] == '\0') &&
        (bt_config_pulled_find(config->models_dir, request->name, &path) ==
         BT_OK)) {
        copy(path, request->path, sizeof(request->path));
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

/* @return its index, or BT_PLAN_NO_MODEL with the reason. */
static uint32_t add_model(bt_supervisor_t *s, const bt_admin_command_t *request,
                          char *error)
{
    const bt_config_t *const config = s->plan->config;
    const uint32_t prefill = count_or(request->prefill, config->prefill);
    const uint32_t decode = count_or(request->decode, config->decode);
    bt_admin_command_t found = *request;
    bt_status_t status;

    find_pulled(config, &found);
    request = &found;
    if (!may_load(s, request, prefill, decode, error) ||
        !has_threads_for(config, prefill, decode, error)) {
        return BT_PLAN_NO_MODEL;
    }
    status = bt_plan_add_model(s->plan, request->name, request->path, prefill,
                               decode);
    if (status == BT_OK) {
        status = bt_supervisor_add_children(s);
        if (status == BT_ERR_NO_MEMORY) {
            bt_plan_drop_model(s->plan);
        }
    }
    /* Without its log file, which was logged, a model serves all the same. */
    if ((status != BT_OK) && (status != BT_ERR_IO)) {
        snprintf(error, ERROR_BYTES, "%s cannot be added: %s", request->name,
                 bt_status_str(status));
        return BT_PLAN_NO_MODEL;
    }
    return s->plan->n_models - 1;
}

/* Adds workers to a model that has fewer than requested. @return false: @a
 * error says why not */
static bool add_workers(bt_supervisor_t *s, uint32_t i,
                        const bt_admin_command_t *request, char *error)
{
    const bt_plan_model_t *const model = &s->plan->models[i];
    const uint32_t prefill =
        count_or(request->prefill, model->prefill) - model->prefill;
    const uint32_t decode =
        count_or(request->decode, model->decode) - model->decode;
    bt_status_t status;

    if (prefill + decode == 0) {
        return true;
    }
    if (!has_threads_for(s->plan->config, prefill, decode, error)) {
        return false;
    }
    status = bt_plan_add_workers(s->plan, i, prefill, decode);
    if (status == BT_OK) {
        status = bt_supervisor_add_children(s);
        if (status == BT_ERR_NO_MEMORY) {
            bt_plan_drop_workers(s->plan, i, prefill, decode);
        }
    }
    /* Without its log file, which was logged, a worker serves all the same. */
    if ((status != BT_OK) && (status != BT_ERR_IO)) {
        snprintf(error, ERROR_BYTES, "%s cannot have more workers: %s",
                 model->name, bt_status_str(status));
        return false;
    }
    return true;
}

static void order_load(bt_supervisor_t *s, uint64_t client,
                       const bt_admin_command_t *request)
{
    uint32_t model = bt_plan_find_model(s->plan, request->name);
    char error[ERROR_BYTES];

    if (model == BT_PLAN_NO_MODEL) {
        model = add_model(s, request, error);
    } else if (!may_load_again(s, model, request, error) ||
               !add_workers(s, model, request, error)) {
        model = BT_PLAN_NO_MODEL;
    }
    if (model == BT_PLAN_NO_MODEL) {
        bt_control_socket_answer(s->desk, client, error);
        return;
    }
    apply_to_workers(s, model, true);
    answer_when_done(s, client, request, NULL, model);
}

void bt_supervisor_order(void *arg, uint64_t client,
                         const bt_admin_command_t *request)
{
    bt_supervisor_t *const s = arg;
    const bool is_question = (request->verb == BT_ADMIN_VERB_STATUS) ||
                             (request->verb == BT_ADMIN_VERB_WATCH);

    if (!is_question) {
        BT_LOG_INFO("order: %s %s", bt_admin_verb_name(request->verb),
                    request->name);
        if (s->phase != BT_SUPERVISOR_RUNNING) {
            bt_control_socket_answer(s->desk, client,
                                     "the launcher is stopping");
            return;
        }
    }
    switch (request->verb) {
    case BT_ADMIN_VERB_STATUS:
        say_status(s, client);
        bt_control_socket_answer(s->desk, client, NULL);
        break;
    case BT_ADMIN_VERB_WATCH:
        say_status(s, client);
        bt_control_socket_watch(s->desk, client);
        bt_control_socket_answer(s->desk, client, NULL);
        break;
    case BT_ADMIN_VERB_START:
    case BT_ADMIN_VERB_STOP:
    case BT_ADMIN_VERB_DRAIN:
    case BT_ADMIN_VERB_RESTART:
        order_process(s, client, request);
        break;
    case BT_ADMIN_VERB_LOAD:
        order_load(s, client, request);
        break;
    case BT_ADMIN_VERB_UNLOAD:
        order_unload(s, client, request);
        break;
    case BT_ADMIN_VERB_ROLE:
        order_role(s, client, request);
        break;
    }
}
