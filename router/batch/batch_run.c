/* SPDX-License-Identifier: Apache-2.0 */
/* Lines as requests: a door without a connection.
 *
 *     ready ─▶ request ─┬─▶ answer, error ─▶ results
 *       ▲               │                       ▲
 *       │               └─▶ 429, 503, 504 ──────┘ at the third try that
 *       └──── later ─────────────┘                workers had (is_over())
 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "router/batch/batch_priv.h"

/* Answer of a line that is being written, by the pool if it is long. What it
 * points to is the request's. */
typedef struct line_answer {
    const bt_api_answer_t *answer;
    const bt_api_choice_t *choices;
    size_t n_choices;
    bt_api_usage_t usage;
    bt_json_slices_t slices;
    bool is_framed, is_written;
    bt_batch_result_t *result; /* owned; NULL: it could not be begun */
    bt_status_t status;
} line_answer_t;

#define RETRY_US     1000000u /* at least, before a refused line is tried again */
#define RETRY_MOST_S 60u

typedef struct line_request {
    bt_request_t base; /* first */
    bt_list_t link;    /* in batch->running */
    bt_batch_t *batch;
    bt_batch_line_t *line; /* owned */
    line_answer_t *answer; /* owned; NULL: the pool writes none */
    char id[BT_REQUEST_ID_BYTES];
} line_request_t;

static line_request_t *of(bt_request_t *request)
{
    return BT_CONTAINER_OF(request, line_request_t, base);
}

#define LEFT 499 /* of a line that was given up, as for clients that leave */

/* Writes a try of a line into the access log: its way is that of its batch. */
static void log_line(const bt_batch_t *b, const char *id,
                     const bt_request_facts_t *facts, uint64_t start_us,
                     int http_status)
{
    char path[sizeof("/v1/batches/") + BT_STORE_ID_BYTES];
    bt_access_t access = {
        .id = id,
        .method = "BATCH",
        .route = b->endpoint->path,
        .path = path,
        .tenant = b->tenant->name,
    };

    snprintf(path, sizeof(path), "/v1/batches/%s", b->object->id);
    bt_request_log_only(b->all->front, &access, facts, start_us, http_status);
}

static void log_try(const line_request_t *r, int http_status)
{
    log_line(r->batch, r->id, &r->base.facts, r->base.start_us, http_status);
}

/* Ends a request whose line was taken from it, or is dropped. */
static void leave(line_request_t *r)
{
    bt_batch_t *b = r->batch;

    b->n_running--;
    b->all->n_running--;
    bt_list_remove(&r->link);
    bt_batch_line_free(r->line);
    r->line = NULL;
    bt_batches_wake(b->all);
    bt_request_unref(&r->base);
}

static void again(line_request_t *r, const bt_api_error_t *error)
{
    bt_batch_t *b = r->batch;
    const uint32_t after_s = (error->retry_after_s < RETRY_MOST_S)
                                 ? error->retry_after_s
                                 : RETRY_MOST_S;
    const uint64_t until_us =
        bt_now_us() + ((after_s > 0) ? after_s * UINT64_C(1000000) : RETRY_US);

    bt_batch_count_lines(b, BT_PC_BATCH_LINES_RETRIED, 1);
    if (until_us > b->wait_until_us) {
        b->wait_until_us = until_us;
    }
    bt_list_push_back(&b->ready, &r->line->link);
    b->n_ready++;
    b->ready_bytes += r->line->body.len;
    r->line = NULL;
}

/* Keeps the answer of a line. */
static void keep_result(bt_batch_t *b, bt_batch_result_t *result)
{
    bt_batch_hold(b->all, &result->held, sizeof(*result) + result->record.cap);
    b->results_bytes += result->record.len;
    bt_list_push_back(&b->results, &result->link);
}

/* Keeps an error as the answer of a line.
 * @retval BT_ERR_TOO_LARGE, BT_ERR_NO_MEMORY */
static bt_status_t keep_error(bt_batch_t *b, const bt_batch_line_t *line,
                              const char *id, const bt_api_error_t *error)
{
    bt_batch_result_t *result = NULL;
    bt_status_t status;
    bt_strbuf_t out;

    bt_strbuf_init(&out, 65536);
    bt_api_write_error(b->endpoint->dialect, error, &out);
    status = bt_strbuf_status(&out);
    if (status == BT_OK) {
        status = bt_batch_result_answer(line, id, error->http_status, out.data,
                                        out.len, &result);
    }
    if (status == BT_OK) {
        keep_result(b, result);
    }
    bt_strbuf_fini(&out);
    return status;
}

static const bt_api_error_t later = {.retry_after_s = 1};

/* Without memory for its answer, a line runs again. */
static void keep_error_or_run(line_request_t *r, const bt_api_error_t *error)
{
    if (keep_error(r->batch, r->line, r->id, error) != BT_OK) {
        again(r, &later);
    }
}

/* Counts a try that used workers: one that was refused, or had none, says
 * nothing about the line. @return true: it was the last */
static bool is_over(line_request_t *r)
{
    r->line->n_failed += r->base.is_exhausted ? 1 : 0;
    return r->line->n_failed >= BT_BATCH_LINE_TRIES;
}

static void on_error(bt_request_t *request, const bt_api_error_t *error)
{
    line_request_t *r = of(request);
    const int status = error->http_status;

    bt_request_move(request, BT_REQUEST_LOG);
    log_try(r, status);
    if (((status == 429) || (status == 503) || (status == 504)) &&
        !is_over(r)) {
        again(r, error);
    } else {
        keep_error_or_run(r, error);
    }
    leave(r);
}

/* ---- answers ---- */

static void answer_init(line_answer_t *a, const line_request_t *r,
                        const bt_row_t *row, const bt_api_choice_t *choices,
                        size_t n, const bt_api_usage_t *usage)
{
    *a = (line_answer_t){
        .answer = &row->answer,
        .choices = choices,
        .n_choices = n,
        .usage = *usage,
    };
    bt_json_slices_init(&a->slices, BT_ANSWER_LIMIT);
    a->status = bt_batch_result_begin(r->line, r->id, 200, &a->result);
    a->is_written = a->status != BT_OK;
}

static void answer_fini(line_answer_t *a)
{
    bt_json_slices_fini(&a->slices);
    if (a->result != NULL) {
        bt_batch_result_free(a->result);
    }
}

/* Writes about @a max_bytes of the record. */
static void write_slice(line_answer_t *a, size_t max_bytes)
{
    bt_json_t json;

    if (!a->is_framed) {
        bt_json_slices_begin(&a->slices, &json);
        bt_api_put_answer(a->answer, a->choices, a->n_choices, &a->usage,
                          &json);
        a->is_framed = true;
    }
    if (!bt_json_slices_write(&a->slices, max_bytes, &a->result->record)) {
        a->status = bt_batch_result_end(a->result);
        a->is_written = true;
    }
}

/* Says why an answer could not be written. One that is too large never gets
 * another. */
static void explain(const line_answer_t *a, const bt_account_t *account,
                    bt_api_error_t *error)
{
    if (bt_work_refuse(account, error)) {
        return;
    }
    if (a->status == BT_ERR_TOO_LARGE) {
        bt_api_error_set(error, 400, NULL,
                         "the answer is more than the %u bytes that one has "
                         "room for",
                         BT_ANSWER_LIMIT);
    } else {
        bt_api_error_set(error, 503, NULL, "out of memory, or stopping");
    }
}

/* Ends a request whose answer was written, or could not be.
 * @param [in] account  of the memory for it; NULL: not counted */
static void answered(line_request_t *r, line_answer_t *a,
                     const bt_account_t *account)
{
    bt_api_error_t error = {.http_status = 200};

    bt_request_move(&r->base, BT_REQUEST_LOG);
    if (a->status != BT_OK) {
        explain(a, account, &error);
    }
    log_try(r, error.http_status);
    if (a->status == BT_OK) {
        keep_result(r->batch, a->result);
        a->result = NULL;
    } else if ((error.http_status == 429) || (error.http_status == 503)) {
        again(r, &error);
    } else {
        keep_error_or_run(r, &error);
    }
    leave(r);
}

static void run_write(bt_pool_job_t *job)
{
    write_slice(BT_REQUEST_JOB_OF(job, line_request_t, base.job)->answer,
                BT_ANSWER_SLICE_BYTES);
}

/* A line that was given up meanwhile has no batch any more. */
static void written(bt_pool_job_t *job)
{
    line_request_t *r = BT_REQUEST_JOB_OF(job, line_request_t, base.job);
    const bool is_gone = r->base.phase == BT_REQUEST_LOG;
    bt_account_t *account = r->base.job.account;
    line_answer_t *a = r->answer;

    if (!is_gone && job->ran && !a->is_written) {
        bt_request_post(&r->base.job, false, run_write, written,
                        bt_work_queue(a->result->record.len),
                        BT_ANSWER_SLICE_BYTES / 16);
        return;
    }
    r->base.front->n_answers--;
    r->base.job.account = NULL;
    r->answer = NULL;
    if (!is_gone && !a->is_written) {
        a->status = BT_ERR_CANCELED; /* the server stops: it runs again */
    }
    if (!is_gone) {
        answered(r, a, account);
    }
    answer_fini(a);
    bt_account_destroy(account);
    bt_free(a);
}

/* Lets the pool write an answer; until then it counts as in flight.
 * @return false: no memory */
static bool post_answer(line_request_t *r, const line_answer_t *answer)
{
    bt_request_t *base = &r->base;

    r->answer = bt_memdup(answer, sizeof(*answer));
    if (r->answer == NULL) {
        return false;
    }
    base->front->n_answers++;
    base->job.account =
        bt_work_account(&base->front->answers, base->tenant, &base->client);
    bt_request_post(&base->job, false, run_write, written, BT_POOL_FIRST, 0);
    return true; /* it may be over */
}

static void on_finish(bt_row_t *row, const bt_api_choice_t *choices, size_t n,
                      const bt_api_usage_t *usage)
{
    line_request_t *r = of(row->request);
    const size_t bytes = bt_api_answer_bytes(&row->answer, choices, n);
    line_answer_t a;

    bt_request_close(&r->base);
    answer_init(&a, r, row, choices, n, usage);
    if (!a.is_written && (bytes > r->batch->all->inline_bytes)) {
        if (post_answer(r, &a)) {
            return;
        }
        a.status = BT_ERR_NO_MEMORY;
        a.is_written = true;
    }
    while (!a.is_written) {
        write_slice(&a, SIZE_MAX);
    }
    answered(r, &a, NULL);
    answer_fini(&a);
}

static const bt_request_ops_t line_ops = {
    .admit = bt_text_admit,
    .parse = bt_text_parse,
    .parsed = bt_text_parsed,
    .finish = on_finish,
    .error = on_error,
};

/* Answers a line that is too large. @return false: no memory */
static bool refuse_line(bt_batch_t *b, bt_batch_line_t *line)
{
    static const bt_request_facts_t none;
    char id[BT_REQUEST_ID_BYTES];
    bt_api_error_t error = {0};

    bt_request_id(&b->all->front->ids, NULL, id);
    bt_api_error_set(&error, 400, NULL, "%s", line->refusal);
    if (keep_error(b, line, id, &error) != BT_OK) {
        return false;
    }
    log_line(b, id, &none, bt_now_us(), error.http_status);
    b->n_ready--;
    bt_batch_line_free(line);
    bt_batches_wake(b->all);
    return true;
}

/* @return false: no memory */
static bool run_line(bt_batch_t *b, bt_batch_line_t *line)
{
    bt_frontend_t *front = b->all->front;
    bt_strbuf_t body;
    bt_request_t *request;
    line_request_t *r;

    if (line->refusal != NULL) {
        return refuse_line(b, line);
    }
    bt_strbuf_init(&body, (size_t)front->config->max_body_bytes);
    bt_strbuf_append(&body, line->body.data, line->body.len);
    request = (bt_strbuf_status(&body) == BT_OK)
                  ? bt_request_create(front, &line_ops, sizeof(*r))
                  : NULL;
    if (request == NULL) {
        bt_strbuf_fini(&body);
        return false;
    }
    r = of(request);
    r->batch = b;
    r->line = line;
    bt_list_remove(&line->link);
    b->n_ready--;
    b->ready_bytes -= line->body.len;
    b->n_running++;
    b->all->n_running++;
    bt_list_push_back(&b->running, &r->link);
    bt_request_id(&front->ids, NULL, r->id);
    request->request_id = r->id;
    request->dialect = b->endpoint->dialect;
    request->tenant = bt_tenant_ref(b->tenant);
    request->is_background = true;
    bt_request_begin(request, &body); /* may end it */
    bt_strbuf_fini(&body);
    return true;
}

/* True while the tenant may have another request under way; of several, one is
 * left to its clients. */
static bool has_turn(const bt_tenant_t *tenant)
{
    const uint32_t most = tenant->limits.requests;

    return (most == 0) || (tenant->n_under_way + ((most > 1) ? 1u : 0u) < most);
}

bool bt_batch_can_run_line(const bt_batch_t *b, uint64_t now_us)
{
    const bt_frontend_t *front = b->all->front;

    return (b->status == BT_BATCH_IN_PROGRESS) && !bt_list_empty(&b->ready) &&
           (now_us >= b->wait_until_us) && !front->draining &&
           (b->tenant != NULL) && has_turn(b->tenant) &&
           (b->all->n_running < front->config->batch_lines_in_flight);
}

void bt_batch_run_line(bt_batch_t *b, uint64_t now_us)
{
    bt_batch_line_t *line =
        BT_CONTAINER_OF(b->ready.next, bt_batch_line_t, link);

    if (!run_line(b, line)) {
        b->wait_until_us = now_us + RETRY_US;
    }
}

void bt_batch_drop_lines(bt_batch_t *b)
{
    while (!bt_list_empty(&b->running)) {
        line_request_t *r =
            BT_CONTAINER_OF(b->running.next, line_request_t, link);

        bt_request_gone(&r->base);
        log_try(r, LEFT);
        leave(r);
    }
    while (!bt_list_empty(&b->ready)) {
        bt_batch_line_free(
            BT_CONTAINER_OF(b->ready.next, bt_batch_line_t, link));
    }
    b->n_ready = 0;
    b->ready_bytes = 0;
}
