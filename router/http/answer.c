/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/answer.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json.h"
#include "common/zip/zip.h"
#include "router/http/accept.h"
#include "router/http/door_priv.h"
#include "router/triton/infer_json.h"

#define RAW_TYPE "application/octet-stream"

/* The next step: slice by slice on the pool when the answer is long, else
 * at once.
 *
 *     FRAME ─▶ JSON ─┬─────────▶ DONE
 *                    └─▶ PACK ──▶
 */
typedef enum step { STEP_FRAME, STEP_JSON, STEP_PACK, STEP_DONE } step_t;

struct bt_answer {
    bt_http_request_t *request;
    /** Begins the JSON; the rest of it is read later. */
    void (*put)(struct bt_answer *a, bt_json_t *json);
    /** Text: what the JSON is made of. */
    const bt_api_answer_t *answer;
    const bt_api_choice_t *choices;
    size_t n_choices;
    bt_api_usage_t usage;
    /** Tensors: the response, whose raw outputs follow the JSON. */
    bt_infer_response_t response;
    bool any_raw;
    size_t json_bytes;
    step_t step;
    bt_json_slices_t slices;
    bool zips; /* client accepts compression */
    bt_zip_t format;
    bt_zipper_t *zipper; /* owned, or NULL */
    size_t n_packed;     /* compressed bytes of out */
    bt_strbuf_t out, packed;
    bt_status_t status;
};

static void answer_init(bt_answer_t *a, bt_http_request_t *r)
{
    a->request = r;
    bt_json_slices_init(&a->slices, BT_ANSWER_LIMIT);
    bt_strbuf_init(&a->out, BT_ANSWER_LIMIT);
    bt_strbuf_init(&a->packed, BT_ANSWER_LIMIT);
}

static void answer_fini(bt_answer_t *a)
{
    bt_json_slices_fini(&a->slices);
    bt_zipper_destroy(a->zipper);
    bt_strbuf_fini(&a->out);
    bt_strbuf_fini(&a->packed);
}

/* ---- writing, on the pool or at once ---- */

static void put_text(bt_answer_t *a, bt_json_t *json)
{
    bt_api_put_answer(a->answer, a->choices, a->n_choices, &a->usage, json);
}

static void put_tensors(bt_answer_t *a, bt_json_t *json)
{
    a->any_raw = bt_infer_put_json(&a->response, json);
}

static step_t write_json(bt_answer_t *a, size_t max_bytes)
{
    if (bt_json_slices_write(&a->slices, max_bytes, &a->out)) {
        return STEP_JSON;
    }
    if (a->any_raw) {
        a->json_bytes = a->out.len;
    }
    bt_infer_append_raw(&a->response, &a->out);
    a->status = bt_strbuf_status(&a->out);
    if ((a->status == BT_OK) && a->zips) {
        a->status = bt_zipper_create(a->format, &a->zipper);
        return (a->status == BT_OK) ? STEP_PACK : STEP_DONE;
    }
    return STEP_DONE;
}

static step_t pack(bt_answer_t *a, size_t max_bytes)
{
    const size_t left = a->out.len - a->n_packed;
    const size_t n = (left < max_bytes) ? left : max_bytes;

    a->status = bt_zipper_add(a->zipper, a->out.data + a->n_packed, n,
                              n == left, &a->packed);
    a->n_packed += n;
    return ((n == left) || (a->status != BT_OK)) ? STEP_DONE : STEP_PACK;
}

/* Writes about @a max_bytes of the answer. */
static void write_slice(bt_answer_t *a, size_t max_bytes)
{
    bt_json_t json;

    if (a->step == STEP_FRAME) {
        bt_json_slices_begin(&a->slices, &json);
        a->put(a, &json);
        a->step = STEP_JSON;
    }
    a->step =
        (a->step == STEP_JSON) ? write_json(a, max_bytes) : pack(a, max_bytes);
}

static void write_all(bt_answer_t *a)
{
    while (a->step != STEP_DONE) {
        write_slice(a, SIZE_MAX);
    }
}

static void respond(bt_answer_t *a, const bt_account_t *account)
{
    bt_http_request_t *r = a->request;
    bt_api_error_t error = {0};
    char length[32];

    if ((a->status != BT_OK) && bt_work_refuse(account, &error)) {
        bt_http_request_fail(r, &error);
        return;
    }
    if (a->status == BT_ERR_TOO_LARGE) {
        bt_http_request_fail_for_length(r);
        return;
    }
    if (a->status != BT_OK) {
        bt_http_request_fail_for_memory(r);
        return;
    }
    if (a->json_bytes > 0) {
        snprintf(length, sizeof(length), "%zu", a->json_bytes);
        bt_exchange_add_header(r->ex, BT_INFER_LENGTH_HEADER, length);
    }
    if (a->zips) {
        bt_exchange_add_header(r->ex, "Content-Encoding",
                               (a->format == BT_ZIP_GZIP) ? "gzip" : "deflate");
        bt_exchange_add_header(r->ex, "Vary", "Accept-Encoding");
    }
    bt_http_request_respond_take(r,
                                 (a->json_bytes > 0) ? RAW_TYPE : BT_JSON_TYPE,
                                 a->zips ? &a->packed : &a->out);
}

/* ---- the pool ---- */

static void run_write(bt_pool_job_t *job)
{
    write_slice(BT_REQUEST_JOB_OF(job, bt_http_request_t, base.job)->answer,
                BT_ANSWER_SLICE_BYTES);
}

static void written(bt_pool_job_t *job)
{
    bt_http_request_t *r = BT_REQUEST_JOB_OF(job, bt_http_request_t, base.job);
    const bool is_gone = r->base.phase == BT_REQUEST_LOG;
    bt_account_t *account = r->base.job.account;
    bt_answer_t *a = r->answer;

    if (!is_gone && job->ran && (a->step != STEP_DONE)) {
        bt_request_post(&r->base.job, false, run_write, written,
                        bt_work_queue(a->out.len), BT_ANSWER_SLICE_BYTES / 16);
        return;
    }
    r->base.front->n_answers--;
    r->answer = NULL;
    r->base.job.account = NULL;
    if (!is_gone) {
        write_all(a); /* the server stops: the rest is written here */
        respond(a, account);
    }
    answer_fini(a);
    bt_account_destroy(account);
    bt_free(a);
}

static void post(bt_http_request_t *r, bt_answer_t *a)
{
    r->answer = a;
    r->base.front->n_answers++;
    r->base.job.account = bt_work_account(&r->base.front->answers,
                                          r->base.tenant, &r->base.client);
    bt_request_post(&r->base.job, false, run_write, written, BT_POOL_FIRST, 0);
}

/* ---- texts ---- */

bool bt_answer_begin(bt_http_request_t *r, const bt_api_answer_t *answer,
                     const bt_api_choice_t *choices, size_t n,
                     const bt_api_usage_t *usage)
{
    bt_answer_t *a = bt_calloc(1, sizeof(*a));

    if (a == NULL) {
        return false;
    }
    answer_init(a, r);
    a->put = put_text;
    a->answer = answer;
    a->choices = choices;
    a->n_choices = n;
    a->usage = *usage;
    post(r, a);
    return true;
}

/* ---- tensors ---- */

static void init_tensors(bt_answer_t *a, bt_http_request_t *r,
                         const bt_infer_response_t *whole)
{
    const char *list = bt_exchange_header(r->ex, "Accept-Encoding");

    answer_init(a, r);
    a->put = put_tensors;
    a->response = *whole;
    a->zips = bt_accept_has_coding(list, "gzip");
    a->format = BT_ZIP_GZIP;
    if (!a->zips) {
        a->zips = bt_accept_has_coding(list, "deflate");
        a->format = BT_ZIP_DEFLATE;
    }
}

void bt_answer_tensors(bt_http_request_t *r, const bt_infer_response_t *whole)
{
    bt_answer_t answer = {0};
    bt_answer_t *a = &answer;
    size_t bytes = 0;

    for (size_t i = 0; i < whole->n_outputs; i++) {
        if (bt_infer_output_region(whole->request, whole->outputs[i].name) ==
            NULL) {
            bytes += whole->outputs[i].bytes;
        }
    }
    if (bytes <= r->door->inline_bytes) {
        init_tensors(a, r, whole);
        write_all(a);
        respond(a, NULL);
        answer_fini(a);
        return;
    }
    a = bt_calloc(1, sizeof(*a));
    if (a == NULL) {
        bt_http_request_fail_for_memory(r);
        return;
    }
    init_tensors(a, r, whole);
    post(r, a);
}
