/* SPDX-License-Identifier: Apache-2.0 */
/* `infer` over HTTP: tensors in JSON, or raw after it; compressed if the client
 * accepts that. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/json_slices.h"
#include "common/zip/zip.h"
#include "router/http/accept.h"
#include "router/http/answer.h"
#include "router/http/door_priv.h"
#include "router/triton/infer_json.h"

#define RAW_TYPE "application/octet-stream"

static bt_visit_t *visit_of(bt_infer_reply_t *reply)
{
    return BT_CONTAINER_OF(reply, bt_visit_t, infer);
}

/* Fills in the call's properties for the access log. */
static void note_facts(bt_visit_t *visit)
{
    visit->reply.facts = visit->infer.facts;
}

/* ---- answers ---- */

/* What is done next for an answer that becomes bytes: slice by slice on the
 * pool when it is long, else at once.
 *
 *     FRAME ─▶ JSON ─┬─────────▶ DONE
 *                    └─▶ PACK ──▶
 */
typedef enum infer_step {
    STEP_FRAME,
    STEP_JSON,
    STEP_PACK,
    STEP_DONE
} infer_step_t;

struct bt_infer_answer {
    bt_work_t work;
    bt_frontend_t *front;
    bt_visit_t *visit;     /* NULL: the client left */
    bt_infer_call_t *call; /* a reference: it owns the response */
    bt_infer_response_t response;
    infer_step_t step;
    bool any_raw;
    bt_json_slices_t slices;
    bool zips; /* client accepts compression */
    bt_zip_t format;
    bt_zipper_t *zipper; /* owned, or NULL */
    size_t n_packed;     /* compressed bytes of out */
    bt_strbuf_t out, packed;
    size_t json_bytes;
    bt_status_t status;
};

static void find_format(bt_infer_answer_t *a, const bt_exchange_t *ex)
{
    const char *list = bt_exchange_header(ex, "Accept-Encoding");

    a->zips = true;
    if (bt_accept_has_coding(list, "gzip")) {
        a->format = BT_ZIP_GZIP;
    } else if (bt_accept_has_coding(list, "deflate")) {
        a->format = BT_ZIP_DEFLATE;
    } else {
        a->zips = false;
    }
}

static void answer_init(bt_infer_answer_t *a, const bt_infer_response_t *whole)
{
    a->response = *whole;
    bt_json_slices_init(&a->slices, BT_ANSWER_LIMIT);
    bt_strbuf_init(&a->out, BT_ANSWER_LIMIT);
    bt_strbuf_init(&a->packed, BT_ANSWER_LIMIT);
}

static void answer_fini(bt_infer_answer_t *a)
{
    bt_json_slices_fini(&a->slices);
    bt_zipper_destroy(a->zipper);
    bt_strbuf_fini(&a->out);
    bt_strbuf_fini(&a->packed);
}

static infer_step_t write_json(bt_infer_answer_t *a, size_t max_bytes)
{
    if (bt_json_slices_write(&a->slices, max_bytes, &a->out)) {
        return STEP_JSON;
    }
    a->json_bytes = a->any_raw ? a->out.len : 0;
    bt_infer_append_raw(&a->response, &a->out);
    a->status = bt_strbuf_status(&a->out);
    if ((a->status == BT_OK) && a->zips) {
        a->status = bt_zipper_create(a->format, &a->zipper);
        return (a->status == BT_OK) ? STEP_PACK : STEP_DONE;
    }
    return STEP_DONE;
}

static infer_step_t pack(bt_infer_answer_t *a, size_t max_bytes)
{
    const size_t left = a->out.len - a->n_packed;
    const size_t n = (left < max_bytes) ? left : max_bytes;

    a->status = bt_zipper_add(a->zipper, a->out.data + a->n_packed, n,
                              n == left, &a->packed);
    a->n_packed += n;
    return ((n == left) || (a->status != BT_OK)) ? STEP_DONE : STEP_PACK;
}

/* Writes about @a max_bytes of the answer. */
static void write_slice(bt_infer_answer_t *a, size_t max_bytes)
{
    bt_json_t json;

    switch (a->step) {
    case STEP_FRAME:
        bt_json_slices_begin(&a->slices, &json);
        a->any_raw = bt_infer_put_json(&a->response, &json);
        a->step = STEP_JSON;
        break;
    case STEP_JSON:
        a->step = write_json(a, max_bytes);
        break;
    case STEP_PACK:
        a->step = pack(a, max_bytes);
        break;
    case STEP_DONE:
        break;
    }
}

static void write_all(bt_infer_answer_t *a)
{
    while (a->step != STEP_DONE) {
        write_slice(a, SIZE_MAX);
    }
}

static void respond(bt_visit_t *visit, bt_infer_answer_t *a)
{
    bt_strbuf_t *body = a->zips ? &a->packed : &a->out;
    bt_api_error_t error = {0};
    char length[32];

    if ((a->status != BT_OK) && bt_work_refuse(a->work.job.account, &error)) {
        bt_visit_fail(visit, &error);
        return;
    }
    if (a->status == BT_ERR_TOO_LARGE) {
        bt_visit_fail_for_length(visit);
        return;
    }
    if (a->status != BT_OK) {
        bt_visit_fail_for_memory(visit);
        return;
    }
    if (a->json_bytes > 0) {
        snprintf(length, sizeof(length), "%zu", a->json_bytes);
        bt_exchange_add_header(visit->ex, BT_INFER_LENGTH_HEADER, length);
    }
    if (a->zips) {
        bt_exchange_add_header(visit->ex, "Content-Encoding",
                               (a->format == BT_ZIP_GZIP) ? "gzip" : "deflate");
        bt_exchange_add_header(visit->ex, "Vary", "Accept-Encoding");
    }
    bt_visit_respond_take(visit, 200,
                          (a->json_bytes > 0) ? RAW_TYPE : BT_JSON_TYPE, body);
}

/* ---- the pool's ---- */

static void run_write(bt_pool_job_t *job)
{
    write_slice(BT_CONTAINER_OF(job, bt_infer_answer_t, work.job),
                BT_ANSWER_SLICE_BYTES);
}

static void on_written(bt_pool_job_t *job)
{
    bt_infer_answer_t *a = BT_CONTAINER_OF(job, bt_infer_answer_t, work.job);
    bt_visit_t *visit = a->visit;

    if ((visit != NULL) && job->ran && (a->step != STEP_DONE)) {
        bt_work_post(&a->work, a->front->pool, bt_work_lane(a->out.len),
                     BT_ANSWER_SLICE_BYTES / 16);
        return;
    }
    a->front->n_answers--;
    if (visit != NULL) {
        visit->packing = NULL;
        write_all(a); /* the server stops: the rest is written here */
        respond(visit, a);
    }
    answer_fini(a);
    bt_infer_unref(a->call);
    bt_account_unref(a->work.job.account);
    bt_free(a);
}

static void begin_write(bt_visit_t *visit, bt_infer_call_t *call,
                        const bt_infer_response_t *whole)
{
    bt_infer_answer_t *a = bt_calloc(1, sizeof(*a));
    bt_work_client_t client;

    if (a == NULL) {
        bt_visit_fail_for_memory(visit);
        return;
    }
    a->call = bt_infer_ref(call);
    answer_init(a, whole);
    find_format(a, visit->ex);
    a->front = visit->door->front;
    a->visit = visit;
    client = bt_visit_client(visit);
    bt_work_init(&a->work, visit->tenant, &client);
    a->work.job.run = run_write;
    a->work.job.done = on_written;
    visit->packing = a;
    a->front->n_answers++;
    a->work.job.account =
        bt_work_account(&a->front->answers, visit->tenant, &client);
    bt_work_post(&a->work, a->front->pool, BT_POOL_FIRST, 0);
}

static void on_finish(bt_infer_reply_t *reply, bt_infer_call_t *call,
                      const bt_infer_response_t *whole)
{
    bt_visit_t *visit = visit_of(reply);
    bt_infer_answer_t answer = {0};
    size_t bytes = 0;

    note_facts(visit);
    for (size_t i = 0; i < whole->n_outputs; i++) {
        if (bt_infer_place(whole->request, whole->outputs[i].name) == NULL) {
            bytes += whole->outputs[i].bytes;
        }
    }
    if (bytes > visit->door->inline_bytes) {
        begin_write(visit, call, whole);
        return;
    }
    answer_init(&answer, whole);
    find_format(&answer, visit->ex);
    write_all(&answer);
    respond(visit, &answer);
    answer_fini(&answer);
}

static void on_error(bt_infer_reply_t *reply, const bt_api_error_t *error)
{
    bt_visit_t *visit = visit_of(reply);

    note_facts(visit);
    bt_visit_fail(visit, error);
}

static const bt_infer_reply_ops_t reply_ops = {
    .piece = NULL, /* there is no stream here */
    .finish = on_finish,
    .error = on_error,
};

/* Returns the length of the JSON part: from a header of its own, or in the
 * content type, as with SageMaker and Vertex AI; NULL: absent. */
static const char *find_length(const bt_exchange_t *ex)
{
    static const char key[] = "json-header-size=";
    const char *text = bt_exchange_header(ex, BT_INFER_LENGTH_HEADER);

    if (text == NULL) {
        const char *type = bt_exchange_header(ex, "Content-Type");

        text = (type != NULL) ? strstr(type, key) : NULL;
        text = (text != NULL) ? text + strlen(key) : NULL;
    }
    return text;
}

/* @return false if it is no number of bytes. */
static bool read_length(const char *text, bt_infer_http_t *http)
{
    uint64_t bytes = 0;

    *http = (bt_infer_http_t){.has_json_bytes = text != NULL};
    if (text == NULL) {
        return true;
    }
    for (; (*text >= '0') && (*text <= '9'); text++) {
        if (__builtin_mul_overflow(bytes, 10, &bytes) ||
            __builtin_add_overflow(bytes, (uint64_t)(*text - '0'), &bytes)) {
            return false;
        }
    }
    http->json_bytes = bytes;
    return *text == '\0';
}

static void begin_infer(bt_visit_t *visit, const bt_visit_how_t *how,
                        bt_strbuf_t *body, size_t body_bytes)
{
    char client[BT_HTTP_CLIENT_BYTES] = "";
    bt_infer_http_t http;
    const bt_infer_source_t source = {
        .model = how->model,
        .version = how->version,
        .client = client,
        .traceparent = bt_exchange_header(visit->ex, "traceparent"),
        .tenant = visit->tenant,
        .who = bt_visit_client(visit),
        .parse = bt_infer_parse_json,
        .parse_ctx = &http,
        .parse_ctx_bytes = sizeof(http),
        .body_freed = bt_door_body_freed,
        .ctx = visit->door,
        .body_bytes = body_bytes,
    };
    bt_api_error_t error = {0};

    if (!read_length(find_length(visit->ex), &http)) {
        bt_strbuf_fini(body);
        bt_door_body_freed(visit->door, body_bytes);
        bt_api_error_set(&error, 400, "invalid_request_error", NULL,
                         BT_INFER_LENGTH_HEADER " is no number of bytes");
        bt_visit_fail(visit, &error);
        return;
    }
    bt_exchange_client(visit->ex, client);
    visit->infer.ops = &reply_ops;
    visit->infer.request_id = visit->id;
    bt_infer_begin(visit->door->front, &visit->infer, &source, body);
}

void bt_visit_infer(bt_visit_t *visit, const char *model, const char *version)
{
    const bt_visit_how_t how = {
        .begin = begin_infer,
        .model = model,
        .version = version,
    };

    bt_visit_take_body(visit, &how);
}

void bt_visit_infer_gone(bt_visit_t *visit)
{
    if (visit->packing != NULL) {
        visit->packing->visit = NULL;
        bt_pool_cancel(visit->packing->front->pool, &visit->packing->work.job);
    }
    if (visit->infer.call != NULL) {
        bt_infer_gone(visit->infer.call);
        note_facts(visit);
    }
}
