/* SPDX-License-Identifier: Apache-2.0 */
/* A response is stored before its end is sent, so that a client that has it can
 * continue it.
 *
 *     whole:   write ─▶ space reserved ─▶ store ─▶ answer
 *                             └ no room ─▶ write ─▶ answer (store false)
 *     stream:  last piece ─▶ space reserved, events held ─▶ store ─▶ events
 *              (pool)        (event loop)                   (pool)
 *
 * One that cannot be written, on a full disk, fails only if its client asked
 * for it to be stored; else it is answered like one without room.
 *
 * A client that leaves meanwhile changes nothing: the response is stored.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/http/door_priv.h"

struct bt_response_save {
    bt_request_job_t job;
    bt_http_request_t *request;
    bt_store_put_t *put;          /* NULL: nothing is reserved */
    const char *items, *previous; /* the request's */
    bt_strbuf_t response;
    bt_strbuf_t last; /* stream: the events that end it */
    bool is_stream;
    bt_status_t status;
    bt_account_t *account; /* owned; NULL: none */
    /* Whole: what is written. */
    bt_row_t *row;
    const bt_api_choice_t *choice;
    bt_api_usage_t usage;
    size_t bytes; /* about */
};

static bt_response_save_t *save_of(bt_pool_job_t *job)
{
    return BT_REQUEST_JOB_OF(job, bt_response_save_t, job);
}

void bt_response_save_free(bt_response_save_t *k)
{
    if (k == NULL) {
        return;
    }
    if (k->put != NULL) {
        (void)bt_store_put_end(k->put);
    }
    bt_strbuf_fini(&k->response);
    bt_strbuf_fini(&k->last);
    bt_account_destroy(k->account);
    bt_free(k);
}

/* @return NULL: no memory */
static bt_response_save_t *create(bt_http_request_t *r, const bt_row_t *row)
{
    bt_response_save_t *k = bt_calloc(1, sizeof(*k));

    if (k != NULL) {
        k->request = r;
        k->job.request = &r->base;
        k->items = r->base.kept_items;
        k->previous = row->answer.previous_id;
        k->is_stream = row->stream;
        bt_strbuf_init(&k->response, BT_ANSWER_LIMIT);
        bt_strbuf_init(&k->last, BT_ANSWER_LIMIT);
    }
    return k;
}

static bt_status_t reserve(bt_response_save_t *k, const bt_row_t *row)
{
    return bt_api_stored_reserve(
        k->request->door->front->responses, bt_request_space(&k->request->base),
        row->answer.id, strlen(k->items) + k->response.len, bt_unix_us(),
        &k->put);
}

/* ---- the end ---- */

static void respond(bt_response_save_t *k)
{
    bt_http_request_t *r = k->request;

    if (k->is_stream) {
        bt_http_request_begin_answer(r);
        bt_http_request_end_stream(r, &k->last);
    } else {
        bt_http_request_respond_take(r, BT_JSON_TYPE, &k->response);
    }
}

static void fail(bt_response_save_t *k, bool has_run)
{
    bt_request_t *r = &k->request->base;

    if ((k->status != BT_OK) && bt_work_refuse(k->account, &r->error)) {
        bt_request_fail(r);
        return;
    }
    bt_api_error_set(&r->error, 503, NULL, "the response cannot be stored: %s",
                     has_run ? bt_status_str(k->status)
                             : "the server is stopping");
    bt_request_fail(r);
}

/* Ends the request, unless its client left. @param ok  respond, else fail */
static void finish(bt_response_save_t *k, bool ok, bool has_run)
{
    bt_http_request_t *r = k->request;

    r->saving = NULL;
    r->base.front->n_answers--;
    if (r->base.phase != BT_REQUEST_LOG) {
        if (ok) {
            respond(k);
        } else {
            fail(k, has_run);
        }
    }
    bt_response_save_free(k);
}

/* ---- the store ---- */

static void run_store(bt_pool_job_t *job)
{
    bt_response_save_t *k = save_of(job);

    k->status =
        bt_api_stored_write(k->put, k->previous, k->items, &k->response);
}

static void write_response(bt_response_save_t *k);

/* Answers although the response could not be stored. */
static void go_on_without(bt_response_save_t *k)
{
    BT_LOG_WARN("a response cannot be stored, and is answered without: %s",
                bt_status_str(k->status));
    if (k->is_stream) {
        bt_api_events_not_stored(&k->last, k->request->events.object_from);
        k->status = bt_strbuf_status(&k->last);
        finish(k, k->status == BT_OK, true);
    } else {
        k->row->answer.is_stored = false;
        write_response(k);
    }
}

static void stored(bt_pool_job_t *job)
{
    bt_response_save_t *k = save_of(job);
    const bool ok = bt_store_put_end(k->put) != NULL;

    k->put = NULL;
    if (!ok && job->ran && !k->request->base.asks_to_store) {
        go_on_without(k);
    } else {
        finish(k, ok, job->ran);
    }
}

/* Stores what space is reserved for: at once if it is short and in memory. */
static void store_reserved(bt_response_save_t *k)
{
    const bool is_on_disk =
        !bt_store_is_in_memory(k->request->door->front->responses);
    const size_t bytes = strlen(k->items) + k->response.len;

    k->job.account = k->account;
    bt_request_post(&k->job,
                    !is_on_disk && (bytes <= k->request->door->inline_bytes),
                    run_store, stored,
                    is_on_disk ? BT_POOL_FILES : bt_work_queue(bytes), bytes);
}

/* ---- a whole response ---- */

static void run_write(bt_pool_job_t *job)
{
    bt_response_save_t *k = save_of(job);

    bt_strbuf_reset(&k->response);
    bt_api_write_answer(&k->row->answer, k->choice, 1, &k->usage, &k->response);
    k->status = bt_strbuf_status(&k->response);
}

static void written(bt_pool_job_t *job)
{
    bt_response_save_t *k = save_of(job);
    bt_api_answer_t *answer = &k->row->answer;

    if (!job->ran) {
        finish(k, false, false);
        return;
    }
    if (k->status == BT_ERR_TOO_LARGE) {
        k->request->saving = NULL;
        k->request->base.front->n_answers--;
        if (k->request->base.phase != BT_REQUEST_LOG) {
            bt_http_request_fail_for_length(k->request);
        }
        bt_response_save_free(k);
        return;
    }
    if ((k->status != BT_OK) || !answer->is_stored) {
        finish(k, k->status == BT_OK, true);
        return;
    }
    if (reserve(k, k->row) == BT_OK) {
        store_reserved(k);
        return;
    }
    answer->is_stored = false;
    write_response(k);
}

static void write_response(bt_response_save_t *k)
{
    k->job.account = k->account;
    bt_request_post(&k->job, k->bytes <= k->request->door->inline_bytes,
                    run_write, written, bt_work_queue(k->bytes), k->bytes);
}

bool bt_response_save_begin(bt_http_request_t *r, bt_row_t *row,
                            const bt_api_choice_t *choice,
                            const bt_api_usage_t *usage)
{
    bt_response_save_t *k = create(r, row);

    if (k == NULL) {
        return false;
    }
    k->row = row;
    k->choice = choice;
    k->usage = *usage;
    k->bytes = bt_api_answer_bytes(&row->answer, choice, 1);
    k->account = bt_work_account(&r->door->front->answers, r->base.tenant,
                                 &r->base.client);
    r->saving = k;
    r->base.front->n_answers++;
    write_response(k);
    return true;
}

/* ---- a stream ---- */

bool bt_response_save_hold(bt_http_request_t *r, const bt_row_t *row,
                           bt_strbuf_t *last)
{
    bt_response_save_t *k = create(r, row);

    if (k == NULL) {
        return false;
    }
    bt_strbuf_append(&k->response, last->data + r->events.object_from,
                     r->events.object_bytes);
    if ((bt_strbuf_status(&k->response) != BT_OK) ||
        (reserve(k, row) != BT_OK)) {
        bt_response_save_free(k);
        return false;
    }
    k->last = *last;
    bt_strbuf_init(last, BT_ANSWER_LIMIT);
    r->saving = k;
    r->base.front->n_answers++;
    return true;
}

void bt_response_save_end(bt_http_request_t *r)
{
    store_reserved(r->saving);
}
