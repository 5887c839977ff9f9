/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/intake.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/frontend/limits.h"
#include "router/frontend/priority.h"

/* ---- places in the queue ---- */

static void hold_places(bt_intake_t *in, uint32_t n)
{
    bt_tenant_begin(in->tenant, n);
    bt_tenant_leave(in->tenant, in->n_places);
    in->front->n_arriving += n;
    in->front->n_arriving -= in->n_places;
    in->n_places = n;
}

static bt_status_t refuse(bt_intake_t *in, bt_status_t status)
{
    in->status = status;
    return status;
}

/* Checks for space for the call's answers, not counting this intake's own
 * slots. */
static bt_status_t check_room(bt_intake_t *in, size_t n_choices)
{
    bt_tenant_denial_t denial;
    bt_status_t status = bt_frontend_check_room(
        in->front, in->tenant, n_choices, in->n_places, &in->error);

    if (status != BT_OK) {
        if (in->error.http_status != 400) {
            bt_tenant_metrics_refused(in->tenant->metrics,
                                      BT_TENANT_REFUSED_SERVER);
        }
        return refuse(in, status);
    }
    status = bt_tenant_check_requests(in->tenant, (uint32_t)n_choices,
                                      in->n_places, &denial);
    if (status != BT_OK) {
        bt_limits_deny(&denial, &in->error);
        return refuse(in, status);
    }
    return BT_OK;
}

/* A tenant over its token limit is refused before its body is parsed. */
static bt_status_t check_tokens(bt_intake_t *in)
{
    bt_tenant_denial_t denial;

    if (bt_tenant_check_tokens(in->tenant, 1, in->start_us, &denial) == BT_OK) {
        return BT_OK;
    }
    bt_limits_deny(&denial, &in->error);
    return refuse(in, BT_ERR_BUSY);
}

/* ---- the steps; those of the pool first ---- */

static bool is_word(const char *option, const char *word)
{
    return (option != NULL) && (strcmp(option, word) == 0);
}

/* Refuses unknown fields, if the operator wants that. */
static void judge_ignored(bt_intake_t *in)
{
    if (is_word(in->front->config->unknown_fields, "error") &&
        bt_api_refuse_ignored(&in->request, &in->error)) {
        in->status = BT_ERR_INVALID_PARAM;
    }
    if (is_word(in->front->config->unknown_fields, "ignore")) {
        in->request.ignored[0] = '\0';
    }
}

static void parse(bt_pool_job_t *job)
{
    bt_intake_t *in = BT_CONTAINER_OF(job, bt_intake_t, work.job);
    bt_api_request_t *request = &in->request;
    const char *text = (in->body.data != NULL) ? in->body.data : "";

    in->status =
        bt_api_parse(in->dialect, text, in->body.len, request, &in->error);
    bt_strbuf_fini(&in->body);
    if (in->status != BT_OK) {
        return;
    }
    judge_ignored(in);
    if (in->status != BT_OK) {
        return;
    }
    if (request->n == 0) {
        request->n = 1;
    }
    if (request->dialect == BT_API_GENERATE) {
        request->stream = in->stream;
    }
}

static void tokenize(bt_pool_job_t *job)
{
    bt_intake_t *in = BT_CONTAINER_OF(job, bt_intake_t, work.job);

    in->status = bt_prepare(in->served, in->context_tokens, &in->request,
                            &in->prepared, &in->error);
    if (in->status == BT_OK) {
        judge_ignored(in);
        if (in->status != BT_OK) {
            bt_prepared_fini(&in->prepared);
        }
    }
    if ((in->status == BT_OK) && in->tenant->is_named) {
        in->prepared.space = bt_space_of_tenant(
            in->front->space_key, in->tenant->name, in->request.cache_salt);
    }
}

/* Time-limited work on the event loop. */
typedef struct brief {
    bt_task_t task;
    uint64_t until_us;
} brief_t;

static void look_at_clock(void *ctx)
{
    brief_t *brief = ctx;

    if (bt_now_us() >= brief->until_us) {
        bt_task_cancel(&brief->task);
    }
}

/* Tokenizes on the event loop. A chat template may run long however short the
 * request is. @return false: the time was over, and nothing has changed */
static bool tokenize_briefly(bt_intake_t *in)
{
    const size_t n_ignored = strlen(in->request.ignored);
    brief_t brief = {.until_us = bt_now_us() + in->front->inline_us};
    bt_task_t *before;

    bt_task_init(&brief.task);
    brief.task.yield = look_at_clock;
    brief.task.ctx = &brief;
    before = bt_task_enter(&brief.task);
    tokenize(&in->work.job);
    bt_task_leave(before);
    if ((in->status == BT_OK) || !bt_task_is_canceled(&brief.task)) {
        return true;
    }
    in->status = BT_OK;
    in->error = (bt_api_error_t){0};
    in->request.ignored[n_ignored] = '\0';
    return false;
}

static void post(bt_intake_t *in, void (*run)(bt_pool_job_t *),
                 void (*done)(bt_pool_job_t *), bt_pool_lane_t lane)
{
    in->work.job.run = run;
    in->work.job.done = done;
    in->work.job.account = in->account;
    if (in->is_inline) {
        run(&in->work.job);
        in->work.job.ran = true;
        done(&in->work.job);
    } else {
        in->posted = true;
        bt_work_post(&in->work, in->front->pool, lane, in->text_bytes);
    }
}

/* Opens the memory account with the bytes held so far. */
static void open_account(bt_intake_t *in, size_t bytes)
{
    if (in->account == NULL) {
        in->account =
            bt_work_account(&in->front->requests, in->tenant, &in->client);
        in->status = bt_work_admit(in->account, bytes, &in->error);
    }
}

static void tell(bt_intake_t *in)
{
    hold_places(in, 0);
    if (in->user == NULL) {
        bt_intake_free(in);
    } else {
        in->told(in->user);
    }
}

/* @return true when the intake continues. */
static bool step_ended(bt_intake_t *in, uint64_t *took_us_p)
{
    const uint64_t now_us = bt_now_us();

    in->posted = false;
    *took_us_p = now_us - in->step_us;
    in->step_us = now_us;
    if (!in->work.job.ran) {
        bt_api_error_set(&in->error, 503, "server_error", NULL,
                         "the server is stopping");
        in->status = BT_ERR_CANCELED;
    } else if ((in->status != BT_OK) &&
               bt_work_refuse(in->account, &in->error)) {
        in->status = BT_ERR_BUSY;
    }
    if ((in->status == BT_OK) && (in->user != NULL)) {
        return true;
    }
    tell(in);
    return false;
}

/* Any client could put itself first, so priorities count only if the operator
 * allows them. Otherwise values are not checked either. */
static bt_status_t set_priority(bt_intake_t *in)
{
    bt_frontend_t *front = in->front;
    const bt_priority_scale_t scale = bt_priority_scale(front->config);
    uint32_t level = 0;

    if (front->config->client_priority) {
        const uint32_t most =
            bt_priority_default(&scale) + in->tenant->limits.max_priority;

        if (bt_priority_level(&scale, &in->request, &level, &in->error) !=
            BT_OK) {
            return refuse(in, BT_ERR_INVALID_PARAM);
        }
        in->priority = (level < most) ? level : most;
    } else if ((in->request.priority.kind != BT_API_PRIORITY_NONE) &&
               !front->said_priority) {
        front->said_priority = true;
        BT_LOG_INFO(
            "priorities of requests are ignored without --client-priority");
    }
    return BT_OK;
}

static bt_status_t find_model(bt_intake_t *in)
{
    in->model = (in->path_model != NULL) ? in->path_model : in->request.model;
    in->served = bt_registry_find(&in->front->models, in->model);
    if (in->served == NULL) {
        bt_registry_refuse(&in->front->models, in->model, &in->error);
        return refuse(in, BT_ERR_NOT_FOUND);
    }
    if (in->served->unloaded) {
        bt_api_error_set(&in->error, 503, "server_error", "model",
                         "model '%s' is unloaded", in->served->name);
        return refuse(in, BT_ERR_BUSY);
    }
    if (in->model == NULL) {
        in->model = in->served->name;
    }
    in->context_tokens = bt_served_context_tokens(in->served);
    return BT_OK;
}

/* As in TensorRT-LLM: the operator's default applies if the client does not set
 * it, and stream pieces have new text only, in any case. */
static void set_exclude_input(bt_intake_t *in)
{
    bt_api_request_t *request = &in->request;

    if (!request->says_exclude_input) {
        request->exclude_input_in_output =
            in->front->config->exclude_input_in_output;
    }
    if (request->stream) {
        request->exclude_input_in_output = true;
    }
}

static void tokenized(bt_pool_job_t *job)
{
    bt_intake_t *in = BT_CONTAINER_OF(job, bt_intake_t, work.job);

    if (step_ended(in, &in->tokenize_us)) {
        tell(in);
    }
}

static void parsed(bt_pool_job_t *job)
{
    bt_intake_t *in = BT_CONTAINER_OF(job, bt_intake_t, work.job);
    const bt_api_request_t *request = &in->request;
    size_t n_choices;
    uint64_t took_us = 0;

    if (!step_ended(in, &took_us)) {
        return;
    }
    in->parse_us += took_us;
    n_choices = bt_api_is_chat(request) ? 1 : request->n_prompts;
    n_choices *= request->n;
    if ((find_model(in) != BT_OK) || (set_priority(in) != BT_OK) ||
        (check_room(in, n_choices) != BT_OK)) {
        tell(in);
        return;
    }
    hold_places(in, (uint32_t)n_choices);
    set_exclude_input(in);
    if (!in->is_inline) {
        post(in, tokenize, tokenized, in->lane);
    } else if (tokenize_briefly(in)) {
        in->work.job.ran = true;
        tokenized(&in->work.job);
    } else {
        in->is_inline = false;
        open_account(in, in->text_bytes);
        if (in->status != BT_OK) {
            tell(in);
            return;
        }
        post(in, tokenize, tokenized, BT_POOL_LONG);
    }
}

/* ---- birth and end ---- */

static bool copy_text(const char *text, char **copy_p)
{
    *copy_p = bt_strdup(text);
    return (text == NULL) || (*copy_p != NULL);
}

/* Sets the queue class by the bytes to tokenize, or to parse. */
static void set_lane(bt_intake_t *in)
{
    size_t bytes = in->body.len;

    for (size_t i = 0; i < in->request.n_prompts; i++) {
        const bt_api_prompt_t *prompt = &in->request.prompts[i];

        bytes += (prompt->text != NULL) ? prompt->text_bytes
                                        : prompt->n_ids * sizeof(*prompt->ids);
    }
    in->text_bytes = bytes;
    in->is_inline = bytes <= BT_INTAKE_INLINE_BYTES;
    in->lane = bt_work_lane(bytes);
}

static void give_back_body(const bt_call_source_t *source)
{
    if (source->body_freed != NULL) {
        source->body_freed(source->ctx, source->body_bytes);
    }
}

bt_status_t bt_intake_begin(bt_frontend_t *front,
                            const bt_call_source_t *source, bt_strbuf_t *body,
                            void (*told)(void *user), void *user,
                            bt_intake_t **intake_p)
{
    bt_intake_t *in = bt_calloc(1, sizeof(*in));

    if (in == NULL) {
        if (body != NULL) {
            bt_strbuf_fini(body);
        }
        bt_api_request_fini(source->request);
        give_back_body(source);
        return BT_ERR_NO_MEMORY;
    }
    in->front = front;
    in->tenant = bt_tenant_ref((source->tenant != NULL) ? source->tenant
                                                        : front->tenants.plain);
    in->dialect = source->dialect;
    in->stream = source->stream;
    in->parse_us = source->parse_us;
    in->told = told;
    in->user = user;
    in->start_us = in->step_us = bt_now_us();
    if (body != NULL) {
        in->body = *body;
        bt_strbuf_init(body, body->limit);
    }
    if (source->request != NULL) {
        in->parsed_before = true;
        in->request = *source->request;
        memset(source->request, 0, sizeof(*source->request));
    }
    set_lane(in);
    bt_work_init(&in->work, in->tenant, &source->client);
    in->client = source->client;
    if (source->account != NULL) {
        in->account = bt_account_ref(source->account);
    } else if (!in->is_inline) {
        open_account(in, in->body.cap);
    }
    give_back_body(source);
    if (!copy_text(source->model, &in->path_model) ||
        !copy_text(source->traceparent, &in->traceparent)) {
        bt_intake_free(in);
        return BT_ERR_NO_MEMORY;
    }
    *intake_p = in;
    if ((in->status != BT_OK) || (check_room(in, 1) != BT_OK) ||
        (check_tokens(in) != BT_OK)) {
        tell(in);
        return BT_OK;
    }
    hold_places(in, 1);
    if (in->parsed_before) { /* nothing for the pool yet */
        in->work.job.ran = true;
        parsed(&in->work.job);
    } else {
        post(in, parse, parsed, in->lane);
    }
    return BT_OK;
}

void bt_intake_leave(bt_intake_t *intake)
{
    intake->user = NULL;
    if (intake->posted) {
        bt_pool_cancel(intake->front->pool, &intake->work.job);
    }
}

static void drop(bt_pool_job_t *job)
{
    bt_intake_t *in = BT_CONTAINER_OF(job, bt_intake_t, work.job);

    bt_prepared_fini(&in->prepared);
    bt_api_request_fini(&in->request);
    bt_strbuf_fini(&in->body);
}

static void dropped(bt_pool_job_t *job)
{
    bt_intake_t *in = BT_CONTAINER_OF(job, bt_intake_t, work.job);

    if (!job->ran) {
        drop(job);
    }
    bt_account_unref(in->account);
    bt_tenant_unref(in->tenant);
    bt_free(in->traceparent);
    bt_free(in->path_model);
    bt_free(in);
}

void bt_intake_free(bt_intake_t *intake)
{
    /* Freeing megabytes takes some time, so the pool does it, first in its
     * queue. */
    post(intake, drop, dropped, BT_POOL_FIRST);
}
