/* SPDX-License-Identifier: Apache-2.0 */
#include "router/request/request.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "router/frontend/served_adapters.h"
#include "router/frontend/watching.h"
#include "router/request/request_priv.h"

/* ---- life ---- */

bt_request_t *bt_request_create(bt_frontend_t *front,
                                const bt_request_ops_t *ops, size_t bytes)
{
    bt_request_t *r = bt_calloc(1, bytes);

    if (r != NULL) {
        r->front = front;
        r->ops = ops;
        r->n_refs = 1;
        r->start_us = bt_now_us();
        r->job.request = r;
        bt_list_init(&r->stoppable);
        bt_list_init(&r->paced);
    }
    return r;
}

bt_request_t *bt_request_ref(bt_request_t *r)
{
    r->n_refs++;
    return r;
}

/* Sets the model, and keeps its adapter loaded for as long as the request is.
 */
static void set_model(bt_request_t *r, bt_served_t *served,
                      const bt_served_adapter_t *adapter)
{
    if (r->kept_adapter != NULL) {
        bt_core_adapter_unref(r->served->core, r->kept_adapter);
    }
    r->served = served;
    r->adapter = (adapter != NULL) ? adapter->digest : (bt_hash128_t){0, 0};
    r->kept_adapter = (adapter != NULL)
                          ? bt_core_adapter_ref(served->core, adapter->digest)
                          : NULL;
    r->adapter_metrics = (adapter != NULL) ? adapter->metrics : NULL;
}

void bt_request_unref(bt_request_t *r)
{
    BT_ASSERT(r->n_refs > 0);
    if (--r->n_refs > 0) {
        return;
    }
    for (size_t i = 0; i < r->n_rows; i++) {
        bt_row_free_parts(&r->rows[i]);
    }
    if (r->ops->destroy != NULL) {
        r->ops->destroy(r);
    }
    bt_request_hold_slots(r, &r->n_slots, 0);
    bt_strbuf_fini(&r->body);
    bt_history_drop(r);
    bt_account_destroy(r->account);
    bt_tenant_unref(r->tenant);
    set_model(r, NULL, NULL);
    bt_arena_fini(&r->arena);
    bt_free(r);
}

#define TO(phase) (1u << BT_REQUEST_##phase)
#define ENDS      (TO(RESPOND) | TO(LOG))

static const uint32_t edges[] = {
    [BT_REQUEST_RECEIVE] = TO(AUTHENTICATE) | TO(PARSE) | ENDS,
    [BT_REQUEST_AUTHENTICATE] = TO(PARSE) | ENDS,
    [BT_REQUEST_PARSE] = TO(TOKENIZE) | ENDS,
    [BT_REQUEST_TOKENIZE] = TO(QUEUE) | ENDS,
    [BT_REQUEST_QUEUE] = TO(RUN) | ENDS,
    [BT_REQUEST_RUN] = ENDS,
    [BT_REQUEST_RESPOND] = TO(LOG),
    [BT_REQUEST_LOG] = 0,
};

void bt_request_move(bt_request_t *r, bt_request_phase_t phase)
{
    if (phase > r->phase) {
        BT_ASSERT((edges[r->phase] & (1u << phase)) != 0);
        r->phase = phase;
    }
}

/* ---- the end ---- */

void bt_request_close(bt_request_t *r)
{
    for (size_t i = 0; i < r->n_rows; i++) {
        bt_row_close(&r->rows[i]);
    }
    /* The answer may still be written for some time: the id must not find this
     * request. */
    bt_list_remove(&r->stoppable);
    bt_list_remove(&r->paced);
    bt_request_move(r, BT_REQUEST_RESPOND);
}

void bt_request_gone(bt_request_t *r)
{
    bt_request_close(r);
    bt_request_move(r, BT_REQUEST_LOG);
    if (r->job.posted) {
        bt_pool_cancel(r->front->pool, &r->job.work.job);
    }
}

void bt_request_fail(bt_request_t *r)
{
    if (bt_request_is_open(r)) {
        bt_request_ref(r); /* it has the error */
        bt_request_close(r);
        r->ops->error(r, &r->error);
        bt_request_unref(r);
    }
}

void bt_request_fail_for_memory(bt_request_t *r)
{
    bt_api_error_set(&r->error, 503, NULL, "out of memory for this answer");
    bt_request_fail(r);
}

/* Delays a 429, so that clients that retry at once do so less often.
 * @return false: it is due now */
static bool delay_refusal(bt_request_t *r)
{
    const uint64_t now_us = bt_now_us();
    uint64_t delay_us;

    /* In a batch of several rows, one refused row ends the others at once. */
    if ((r->error.http_status != 429) || r->front->draining ||
        (r->n_rows != 1)) {
        return false;
    }
    delay_us = bt_sched_reject_delay_us(&r->tenant->pace, now_us);
    if (delay_us == 0) {
        return false;
    }
    bt_row_cancel(&r->rows[0]);
    bt_row_free_parts(&r->rows[0]);
    r->refuse_us = now_us + delay_us;
    bt_list_push_back(&r->front->paced, &r->paced);
    return true;
}

void bt_request_send_refused(bt_frontend_t *front, uint64_t now_us)
{
    bt_list_t due;

    bt_list_init(&due);
    BT_LIST_FOR_EACH_ENTRY(bt_request_t, r, &front->paced, paced) {
        if ((r->refuse_us <= now_us) || front->draining) {
            bt_list_remove(&r->paced);
            bt_list_push_back(&due, &r->paced);
        }
    }
    /* An answer may trigger the next request, or remove other clients. */
    while (!bt_list_empty(&due)) {
        bt_request_fail(BT_CONTAINER_OF(due.next, bt_request_t, paced));
    }
}

void bt_request_refuse(bt_request_t *r)
{
    const int http_status = r->error.http_status;

    /* Other rows, canceled because of this one, do not count it again. */
    r->failed = r->failed || (http_status == 429) || (http_status >= 500);
    if (r->served != NULL) {
        bt_names_refused(&r->front->names, bt_name_of(r->front, r->model),
                         http_status);
    }
    bt_watching_refused(r->front, r->served, http_status);
    if (!delay_refusal(r)) {
        bt_request_fail(r);
    }
}

void bt_request_refuse_for_memory(bt_request_t *r)
{
    (void)bt_api_error_no_memory(&r->error);
    bt_request_refuse(r);
}

void bt_request_deny(const bt_tenant_denial_t *denial, bt_api_error_t *error_p)
{
    bt_api_error_set(error_p, 429, NULL, "%s", denial->message);
    error_p->type =
        (denial->cause == BT_TC_REFUSED_TOKENS) ? "tokens" : "requests";
    error_p->retry_after_s = denial->retry_after_s;
}

/* ---- steps at the pool ---- */

static void job_done(bt_pool_job_t *pool_job)
{
    bt_request_job_t *job =
        BT_CONTAINER_OF(pool_job, bt_request_job_t, work.job);
    bt_request_t *r = job->request;

    job->posted = false;
    job->next(pool_job);
    bt_request_unref(r);
}

void bt_request_post(bt_request_job_t *job, bool at_once,
                     void (*run)(bt_pool_job_t *),
                     void (*next)(bt_pool_job_t *), bt_pool_queue_t queue,
                     size_t bytes)
{
    bt_request_t *r = bt_request_ref(job->request);
    bt_pool_job_t *pool_job = &job->work.job;

    bt_work_init(&job->work, r->tenant, &r->client);
    pool_job->run = run;
    pool_job->done = job_done;
    pool_job->account = (job->account != NULL) ? job->account : r->account;
    job->next = next;
    if (at_once) {
        run(pool_job);
        pool_job->ran = true;
        job_done(pool_job);
    } else {
        job->posted = true;
        bt_work_post(&job->work, r->front->pool, queue, bytes);
    }
}

bt_status_t bt_request_open_account(bt_request_t *r, size_t bytes,
                                    bt_api_error_t *error_p)
{
    if (r->account != NULL) {
        return BT_OK;
    }
    r->account = bt_work_account(&r->front->requests, r->tenant, &r->client);
    return bt_work_admit(r->account, bytes, error_p);
}

bt_status_t bt_request_step_status(const bt_request_job_t *job,
                                   bt_status_t status, bt_api_error_t *error)
{
    if (!job->work.job.ran) {
        bt_api_error_set(error, 503, NULL, "the server is stopping");
        return BT_ERR_CANCELED;
    }
    if ((status != BT_OK) && bt_work_refuse(job->request->account, error)) {
        return BT_ERR_BUSY;
    }
    return status;
}

void bt_request_hold_slots(bt_request_t *r, uint32_t *n_slots_p, uint32_t n)
{
    if (n != *n_slots_p) {
        bt_tenant_begin(r->tenant, n);
        bt_tenant_leave(r->tenant, *n_slots_p);
        r->front->n_arriving += n;
        r->front->n_arriving -= *n_slots_p;
        *n_slots_p = n;
    }
}

/* Frees the inputs of rows that have not begun. */
static void drop_inputs(bt_request_t *r)
{
    for (size_t i = 0; i < r->n_rows; i++) {
        if (!r->rows[i].is_open && (r->rows[i].input != NULL)) {
            bt_input_free(r->rows[i].input);
        }
    }
}

void bt_request_refuse_unparsed(bt_request_t *r)
{
    bt_account_t *account = r->account;

    /* The account ends now: a delayed answer holds no memory. What the pool
     * still frees of the request is not counted any more. */
    r->account = NULL;
    drop_inputs(r);
    bt_strbuf_fini(&r->body);
    bt_account_destroy(account);
    bt_request_hold_slots(r, &r->n_slots, 0);
    bt_request_refuse(r);
}

static void run_step(bt_pool_job_t *job)
{
    bt_request_t *r = BT_REQUEST_JOB_OF(job, bt_request_t, job);

    r->status = r->run(r);
}

static void end_step(bt_pool_job_t *job)
{
    bt_request_t *r = BT_REQUEST_JOB_OF(job, bt_request_t, job);
    const uint64_t now_us = bt_now_us();

    r->parse_us += now_us - r->step_us;
    r->step_us = now_us;
    r->status = bt_request_step_status(&r->job, r->status, &r->error);
    if (!bt_request_is_open(r)) {
        drop_inputs(r);
    } else if (r->status == BT_OK) {
        r->then(r);
    } else {
        bt_request_refuse_unparsed(r);
    }
}

void bt_request_step(bt_request_t *r, bt_status_t (*run)(bt_request_t *),
                     void (*then)(bt_request_t *))
{
    r->run = run;
    r->then = then;
    bt_request_post(&r->job, r->is_inline, run_step, end_step, r->queue,
                    r->work_bytes);
}

/* ---- the beginning ---- */

bool bt_request_make_rows(bt_request_t *r, size_t n)
{
    r->rows = bt_arena_alloc(&r->arena, n * sizeof(*r->rows));
    if (r->rows == NULL) {
        return false;
    }
    r->n_rows = n;
    for (size_t i = 0; i < n; i++) {
        r->rows[i].request = r;
        r->rows[i].index = (uint32_t)i;
        bt_list_init(&r->rows[i].held);
        bt_list_init(&r->rows[i].unbegun);
    }
    return true;
}

static bt_status_t admit(bt_request_t *r)
{
    bt_status_t status = BT_OK;

    if (!r->is_inline) {
        status = bt_request_open_account(r, r->body.cap, &r->error);
    }
    return (status == BT_OK) ? r->ops->admit(r) : status;
}

void bt_request_begin(bt_request_t *r, bt_strbuf_t *body)
{
    bt_request_ref(r);
    bt_request_move(r, BT_REQUEST_PARSE);
    if (r->tenant == NULL) {
        r->tenant = bt_tenant_ref(r->front->tenants.plain);
    }
    r->body = *body;
    bt_strbuf_init(body, body->limit);
    r->step_us = bt_now_us();
    r->parse_us = 0; /* unpacking is apart */
    r->work_bytes = r->body.len;
    r->is_inline = r->body.len <= BT_REQUEST_INLINE_BYTES;
    r->queue = bt_work_queue(r->work_bytes);
    r->status = admit(r);
    if (r->status == BT_OK) {
        bt_request_hold_slots(r, &r->n_slots, 1);
        bt_request_step(r, r->ops->parse, r->ops->parsed);
    } else {
        bt_request_refuse_unparsed(r);
    }
    bt_request_unref(r);
}

/* ---- the model ---- */

bt_status_t bt_request_find_model(bt_request_t *r, const char *name,
                                  const char *version)
{
    bt_served_entry_t entry;
    bt_served_t *served;

    if (!bt_served_find(&r->front->models, name, r->tenant,
                        bt_api_is_ollama(r->dialect), &entry)) {
        bt_registry_refuse(&r->front->models, name, &r->error);
        return BT_ERR_NOT_FOUND;
    }
    served = entry.served;
    set_model(r, served, entry.adapter);
    r->model = (name != NULL) ? name : served->name;
    if ((version != NULL) && (version[0] != '\0') &&
        (strcmp(version, served->version) != 0)) {
        bt_api_error_set(
            &r->error, 404, "model",
            "model '%.200s' has version " BT_SERVED_VERSION " only", name);
        return BT_ERR_NOT_FOUND;
    }
    if (served->unloaded) {
        bt_api_error_set(&r->error, 503, "model", "model '%s' is unloaded",
                         served->name);
        return BT_ERR_BUSY;
    }
    memcpy(r->facts.model, served->name, sizeof(r->facts.model));
    r->context_tokens = bt_served_context_tokens(served);
    return BT_OK;
}

const char *bt_request_space(const bt_request_t *r)
{
    return bt_tenant_space(r->tenant);
}

/* ---- the log ---- */

static const char *finish_name(bt_finish_t finish, int http_status)
{
    if (http_status == BT_REQUEST_CLIENT_LEFT) {
        return "canceled";
    }
    switch (finish) {
    case BT_FINISH_STOP:
        return "stop";
    case BT_FINISH_LENGTH:
        return "length";
    case BT_FINISH_REPETITION:
        return "repetition";
    case BT_FINISH_ERROR:
        return "error";
    default:
        return "";
    }
}

void bt_request_log_only(const bt_frontend_t *front, bt_access_t *access,
                         const bt_request_facts_t *facts, uint64_t start_us,
                         int http_status)
{
    static const bt_request_facts_t none;
    const bt_request_facts_t *f = (facts != NULL) ? facts : &none;
    const uint64_t now_us = bt_now_us();

    if (front->access == NULL) {
        return;
    }
    access->unix_ms =
        (bt_unix_minus_monotonic_ns() + (int64_t)now_us * 1000) / 1000000;
    access->status = (uint32_t)http_status;
    access->model = f->model;
    access->generated = f->n_prompt > 0;
    access->n_prompt = f->n_prompt;
    access->n_output = f->n_output;
    access->first_us = f->first_token_us;
    access->total_us = now_us - start_us;
    access->prefill = f->prefill;
    access->decode = f->decode;
    access->finish =
        access->generated ? finish_name(f->finish, http_status) : "";
    if (access->tenant == NULL) {
        access->tenant = "";
    }
    access->answer_id = f->answer_id;
    access->trace_id = f->trace_id;
    bt_access_log_add(front->access, access);
}

void bt_request_log(const bt_frontend_t *front, bt_access_t *access,
                    const bt_request_facts_t *facts, uint64_t start_us,
                    int http_status)
{
    bt_router_metrics_http(front->metrics, access->route, access->method,
                           http_status);
    bt_request_log_only(front, access, facts, start_us, http_status);
}
