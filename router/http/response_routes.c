/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/responses/ID, as OpenAI has it: stored responses are read and deleted.
 *
 * A response of another tenant is answered like one that never was, by the same
 * look-up. Where routers share responses, it is found on the disk, by the pool.
 *
 *     found, read or removed ─▶ a page of its items is written ─▶ answer
 *            (files)                       (pool)
 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "router/api/api_stored.h"
#include "router/http/query.h"
#include "router/http/routes_priv.h"
#include "router/http/stored_page.h"

#define MOST_ITEMS    100u /* OpenAI's limit, … */
#define DEFAULT_ITEMS 20u  /* … and default */

/* Work of a request at the pool. */
typedef struct response_job {
    bt_request_job_t job;
    bt_http_request_t *r;
    bt_store_t *store;
    bt_stored_t *hidden; /* a reference: it is being deleted; or NULL */
    bt_stored_t *object; /* a reference; NULL: to be looked up … */
    char space[BT_STORE_SPACE_BYTES]; /* … in this space */
    char id[BT_STORE_ID_BYTES];
    bt_account_t *account;
    bool is_list;
    bt_api_items_page_t page;
    bt_api_stored_t stored; /* what was read */
    bt_strbuf_t out;
    bt_status_t status;
    bt_status_t (*run)(struct response_job *j);
    void (*then)(struct response_job *j);
} response_job_t;

/* What a route does with a response. */
typedef struct action {
    bt_status_t (*run)(response_job_t *j); /* NULL: nothing */
    void (*then)(response_job_t *j);
    bool removes;
} action_t;

/* @return NULL: there is none, and the request was refused */
static bt_store_t *find_store(bt_http_request_t *r)
{
    bt_store_t *store = r->door->front->responses;

    if (store == NULL) {
        bt_http_request_error(r, 501, NULL,
                              "the server stores no responses "
                              "(--response-store-limit 0)");
    }
    return store;
}

static void refuse_missing(bt_http_request_t *r, const char *id)
{
    bt_api_error_t error = {0};

    bt_api_stored_missing(id, &error);
    bt_http_request_fail(r, &error);
}

/* ---- jobs ---- */

/* A response counts until its file is gone, and is there again if that failed:
 * a client may delete it later. */
static void end_delete(response_job_t *j, bool is_gone)
{
    if ((j->hidden != NULL) && (j->hidden->space != NULL)) {
        if (is_gone) {
            bt_store_remove(j->store, j->hidden);
        } else {
            bt_store_hide(j->hidden, false);
        }
    }
    bt_stored_unref(j->hidden);
}

static response_job_t *response_job_of(bt_pool_job_t *job)
{
    return BT_REQUEST_JOB_OF(job, response_job_t, job);
}

static void end(response_job_t *j, bool has_run)
{
    bt_http_request_t *r = j->r;

    r->reading = NULL;
    end_delete(j, has_run && ((j->status == BT_OK) ||
                              (j->status == BT_ERR_NOT_FOUND)));
    if (bt_request_is_open(&r->base)) {
        if (has_run && (j->status == BT_ERR_NOT_FOUND)) {
            refuse_missing(r, j->id);
        } else if (has_run) {
            j->then(j);
        } else {
            bt_http_request_error(r, 503, NULL, "the server is stopping");
        }
    }
    bt_api_stored_fini(&j->stored);
    bt_strbuf_fini(&j->out);
    bt_account_destroy(j->account);
    bt_stored_unref(j->object);
    bt_free(j);
}

static void run_write(bt_pool_job_t *job)
{
    response_job_t *j = response_job_of(job);

    j->status =
        bt_api_stored_put_items(&j->stored, j->object->id, &j->page, &j->out);
    /* Not to be taken for a response that was deleted meanwhile. */
    j->status =
        (j->status == BT_ERR_NOT_FOUND) ? BT_ERR_INVALID_PARAM : j->status;
}

static void written(bt_pool_job_t *job)
{
    end(response_job_of(job), job->ran);
}

static void run_files(bt_pool_job_t *job)
{
    response_job_t *j = response_job_of(job);

    if (j->object == NULL) {
        j->status = bt_store_look_up(j->store, BT_STORE_RESPONSE, j->space,
                                     j->id, bt_unix_us(), &j->object);
    }
    if ((j->status == BT_OK) && (j->run != NULL)) {
        j->status = j->run(j);
    }
}

/* A list is written by another thread: there is one for the files of all
 * clients. */
static void accessed_files(bt_pool_job_t *job)
{
    response_job_t *j = response_job_of(job);
    const size_t bytes = j->stored.items_bytes;

    if (j->is_list && job->ran && (j->status == BT_OK) &&
        bt_request_is_open(&j->r->base)) {
        bt_request_post(&j->job, false, run_write, written,
                        bt_work_queue(bytes), bytes);
    } else {
        end(j, job->ran);
    }
}

/* @param object  in the index; NULL: to be looked up
 * @param page    NULL: none is asked for */
static void post(bt_http_request_t *r, bt_store_t *store, bt_stored_t *object,
                 const bt_api_items_page_t *page, const action_t *action)
{
    response_job_t *j = bt_calloc(1, sizeof(*j));
    const size_t bytes = (object != NULL) ? (size_t)object->bytes : 0;

    if (j == NULL) {
        bt_http_request_fail_for_memory(r);
        return;
    }
    j->r = r;
    j->job.request = &r->base;
    j->store = store;
    /* Another router may have deleted it: the disk knows. */
    if ((object != NULL) && !bt_store_is_shared(store)) {
        j->object = bt_stored_ref(object);
    }
    if ((object != NULL) && action->removes) {
        j->hidden = bt_stored_ref(object);
        bt_store_hide(object, true);
    }
    snprintf(j->space, sizeof(j->space), "%s", bt_request_space(&r->base));
    snprintf(j->id, sizeof(j->id), "%s", r->name);
    j->is_list = page != NULL;
    if (page != NULL) {
        j->page = *page;
    }
    bt_strbuf_init(&j->out, BT_ANSWER_LIMIT);
    j->account = bt_work_account(&r->door->front->answers, r->base.tenant,
                                 &r->base.client);
    j->job.account = j->account;
    j->run = action->run;
    j->then = action->then;
    if (!action->removes) { /* a deletion goes on when its client leaves */
        r->reading = &j->job;
    }
    bt_request_post(&j->job, false, run_files, accessed_files,
                    bt_store_is_in_memory(store) ? bt_work_queue(bytes)
                                                 : BT_POOL_FILES,
                    bytes);
}

/* Finds the response that the path names, and does what is asked of it. */
static void act(bt_http_request_t *r, bt_store_t *store,
                const bt_api_items_page_t *page, const action_t *action)
{
    bt_stored_t *object = bt_store_find(store, BT_STORE_RESPONSE,
                                        bt_request_space(&r->base), r->name);
    const bool is_shared = bt_store_is_shared(store);

    if ((object == NULL) &&
        (!is_shared || (strlen(r->name) >= BT_STORE_ID_BYTES))) {
        refuse_missing(r, r->name);
        return;
    }
    post(r, store, object, page, action);
}

/* ---- GET ---- */

static bt_status_t read_response(response_job_t *j)
{
    bt_status_t status = bt_api_stored_read(j->store, j->object, &j->stored);

    if ((status == BT_OK) && !j->is_list) {
        bt_strbuf_append(&j->out, j->stored.response, j->stored.response_bytes);
        bt_api_stored_fini(&j->stored);
        status = bt_strbuf_status(&j->out);
    }
    return status;
}

static void respond_read(response_job_t *j)
{
    bt_api_error_t error = {0};

    switch (j->status) {
    case BT_OK:
        bt_http_request_respond_take(j->r, BT_JSON_TYPE, &j->out);
        return;
    case BT_ERR_INVALID_PARAM:
        bt_http_request_error(j->r, 400, "after",
                              "after: the response has no input item "
                              "'%.100s'",
                              j->page.after);
        return;
    default:
        break;
    }
    if (bt_work_refuse(j->account, &error)) {
        bt_http_request_fail(j->r, &error);
        return;
    }
    bt_http_request_error(j->r, 503, NULL, "the response cannot be read: %s",
                          bt_status_str(j->status));
}

static bool is_include(const char *name)
{
    return (strcmp(name, "include") == 0) || (strcmp(name, "include[]") == 0);
}

static bt_status_t read_item_field(const bt_query_t *query,
                                   bt_api_items_page_t *page,
                                   bt_api_error_t *error)
{
    const char *value = query->value;
    uint64_t limit = page->limit;
    bt_status_t status;

    if (strcmp(query->name, "limit") == 0) {
        status = bt_page_limit_read(value, MOST_ITEMS, &limit, error);
        page->limit = (uint32_t)limit;
        return status;
    }
    if (strcmp(query->name, "order") == 0) {
        return bt_page_order_read(value, &page->is_ascending, error);
    }
    if (strcmp(query->name, "after") == 0) {
        snprintf(page->after, sizeof(page->after), "%s", value);
        return BT_OK;
    }
    return is_include(query->name)
               ? BT_OK /* there is nothing more of an item */
               : bt_api_error_invalid(error, NULL,
                                      "%.64s is no parameter of this list: "
                                      "these are after, include, limit and "
                                      "order",
                                      query->name);
}

/* Of a response itself: nothing of it can be left out or streamed again. */
static bt_status_t read_response_field(const bt_query_t *query,
                                       bt_api_error_t *error)
{
    const bool is_stream = strcmp(query->name, "stream") == 0;

    if (is_include(query->name) ||
        (strcmp(query->name, "include_obfuscation") == 0) ||
        (is_stream && (strcmp(query->value, "false") == 0))) {
        return BT_OK;
    }
    if (is_stream || (strcmp(query->name, "starting_after") == 0)) {
        return bt_api_error_invalid(
            error, is_stream ? "stream" : "starting_after",
            "%s: a stored response cannot be streamed, only those in the "
            "background can",
            query->name);
    }
    return bt_api_error_invalid(
        error, NULL, "%.64s is no parameter of a response", query->name);
}

/* @param page  NULL: the query is a response's */
static bt_status_t read_query(const bt_http_request_t *r,
                              bt_api_items_page_t *page, bt_api_error_t *error)
{
    bt_status_t status;
    bt_query_t query;

    bt_query_init(&query, bt_exchange_query(r->ex));
    while ((status = bt_query_next(&query)) == BT_OK) {
        status = (page != NULL) ? read_item_field(&query, page, error)
                                : read_response_field(&query, error);
        if (status != BT_OK) {
            return status;
        }
    }
    return (status == BT_ERR_NOT_FOUND)
               ? BT_OK
               : bt_api_error_invalid(error, NULL, "the query is malformed");
}

/* ---- DELETE ---- */

static bt_status_t delete_response(response_job_t *j)
{
    return bt_store_unlink(j->store, j->object);
}

static void deleted(response_job_t *j)
{
    bt_json_t json;

    if (j->status != BT_OK) {
        bt_http_request_error(j->r, 503, NULL,
                              "the response cannot be deleted from the disk: "
                              "%s",
                              bt_status_str(j->status));
        return;
    }
    bt_http_request_begin_json(j->r, &json);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "id", j->object->id);
    bt_json_str(&json, "object", "response");
    bt_json_bool(&json, "deleted", true);
    bt_json_end_object(&json);
    bt_http_request_respond_json(j->r);
}

/* ---- cancel ---- */

/* All are over before they are stored. */
static void refuse_cancel(response_job_t *j)
{
    bt_api_error_t error = {0};

    if (j->status != BT_OK) {
        respond_read(j);
        return;
    }
    (void)bt_api_error_invalid(&error, NULL,
                               "Cannot cancel a synchronous response: only "
                               "those in the background can be cancelled, and "
                               "there are none here.");
    bt_http_request_fail(j->r, &error);
}

/* ---- the routes ---- */

static const action_t reading = {.run = read_response, .then = respond_read};
static const action_t deleting = {
    .run = delete_response, .then = deleted, .removes = true};
static const action_t cancelling = {.then = refuse_cancel};

void bt_route_response(bt_http_request_t *r)
{
    bt_store_t *store = find_store(r);
    bt_api_error_t error = {0};

    if (store == NULL) {
        return;
    }
    if (bt_exchange_method(r->ex) == BT_HTTP_DELETE) {
        act(r, store, NULL, &deleting);
    } else if (read_query(r, NULL, &error) != BT_OK) {
        bt_http_request_fail(r, &error);
    } else {
        act(r, store, NULL, &reading);
    }
}

void bt_route_response_items(bt_http_request_t *r)
{
    bt_store_t *store = find_store(r);
    bt_api_items_page_t page = {.limit = DEFAULT_ITEMS};
    bt_api_error_t error = {0};

    if (store == NULL) {
        return;
    }
    if (read_query(r, &page, &error) != BT_OK) {
        bt_http_request_fail(r, &error);
    } else {
        act(r, store, &page, &reading);
    }
}

void bt_route_response_cancel(bt_http_request_t *r)
{
    bt_store_t *store = find_store(r);

    if (store != NULL) {
        act(r, store, NULL, &cancelling);
    }
}
