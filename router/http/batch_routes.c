/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/batches, as OpenAI has it. A tenant sees its own batches only. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "router/batch/batch.h"
#include "router/http/routes_priv.h"
#include "router/http/stored_page.h"
#include "router/store/store.h"

#define MOST_LISTED 100u
#define LISTED      20u

/* @return NULL: there are none, and the request was refused */
static bt_batches_t *find_batches(bt_http_request_t *r)
{
    bt_batches_t *const batches = r->door->batches;

    if (batches == NULL) {
        bt_http_request_error(r, 501, NULL,
                              "the server keeps no batches: --store DIR gives "
                              "it a folder for them");
    }
    return batches; /* the request may be gone */
}

/* @return NULL: there is none, and the request was refused */
static bt_batch_t *find_batch(bt_http_request_t *r)
{
    const bt_stored_t *object =
        bt_store_find(r->door->front->store, BT_STORE_BATCH,
                      bt_tenant_space(r->base.tenant), r->name);
    bt_batch_t *batch = (object != NULL) ? bt_batch_of(object) : NULL;

    if (batch == NULL) {
        bt_http_request_error(r, 404, "id", "no such batch: %.100s", r->name);
    }
    return batch;
}

static void respond_batch(bt_http_request_t *r, const bt_batch_t *batch)
{
    bt_json_t json;

    bt_http_request_begin_json(r, &json);
    bt_batch_write(batch, &json);
    bt_http_request_respond_json(r);
}

/* The request has a reference, which ends here. */
static void respond_later(void *ctx, const bt_batch_t *batch,
                          const bt_api_error_t *error)
{
    bt_http_request_t *r = ctx;

    if (bt_request_is_open(&r->base)) {
        if (batch != NULL) {
            respond_batch(r, batch);
        } else {
            bt_http_request_fail(r, error);
        }
    }
    bt_request_unref(&r->base);
}

/* ---- POST /v1/batches ---- */

static bt_status_t check_fields(const bt_http_request_t *r,
                                const bt_batch_fields_t *fields,
                                bt_api_error_t *error)
{
    if (bt_store_find(r->door->front->store, BT_STORE_FILE,
                      bt_tenant_space(r->base.tenant),
                      fields->input_id) == NULL) {
        bt_api_error_set(error, 404, "input_file_id",
                         "input_file_id: no such File object: %.60s",
                         fields->input_id);
        return BT_ERR_NOT_FOUND;
    }
    return BT_OK;
}

static void begin_batch(bt_http_request_t *r, bt_strbuf_t *body)
{
    bt_api_error_t error = {0};
    bt_batch_fields_t fields;
    bt_status_t status;

    status = bt_batch_fields_read((body->len > 0) ? body->data : "", body->len,
                                  &fields, &error);
    bt_strbuf_fini(body);
    if (status == BT_OK) {
        status = check_fields(r, &fields, &error);
    }
    if (status == BT_OK) {
        const bt_batch_params_t params = {
            .tenant = r->base.tenant,
            .input_id = fields.input_id,
            .endpoint = fields.endpoint,
            .metadata = (fields.metadata.len > 0) ? fields.metadata.data : NULL,
            .output_life_s = fields.life_s,
        };

        (void)bt_request_ref(&r->base);
        status =
            bt_batch_begin(r->door->batches, &params, respond_later, r, &error);
        if (status != BT_OK) {
            bt_request_unref(&r->base);
        }
    }
    bt_batch_fields_fini(&fields);
    if (status != BT_OK) {
        bt_http_request_fail(r, &error);
    }
}

/* ---- GET /v1/batches ---- */

static void write_batch(const bt_stored_t *object, bt_json_t *json)
{
    bt_batch_write(bt_batch_of(object), json);
}

static const bt_stored_list_t list = {
    .kind = BT_STORE_BATCH,
    .what = "batch",
    .names = "after and limit",
    .most_limit = MOST_LISTED,
    .most_page = MOST_LISTED,
    .write = write_batch,
};

void bt_route_batches(bt_http_request_t *r)
{
    bt_api_error_t error = {0};
    bt_stored_page_t page = {.limit = LISTED};
    bt_json_t json;

    if (find_batches(r) == NULL) {
        return;
    }
    if (bt_exchange_method(r->ex) == BT_HTTP_POST) {
        bt_http_request_take_body(r, begin_batch);
        return;
    }
    if (bt_stored_page_read(r, &list, &page, &error) != BT_OK) {
        bt_http_request_fail(r, &error);
        return;
    }
    bt_http_request_begin_json(r, &json);
    bt_stored_page_write(r, &list, &page, &json);
    bt_http_request_respond_json(r);
}

/* ---- one batch ---- */

void bt_route_batch(bt_http_request_t *r)
{
    const bt_batch_t *batch = (find_batches(r) != NULL) ? find_batch(r) : NULL;

    if (batch != NULL) {
        respond_batch(r, batch);
    }
}

void bt_route_batch_cancel(bt_http_request_t *r)
{
    bt_batch_t *batch = (find_batches(r) != NULL) ? find_batch(r) : NULL;
    bt_api_error_t error = {0};

    if (batch == NULL) {
        return;
    }
    (void)bt_request_ref(&r->base);
    if (bt_batch_cancel(batch, respond_later, r, &error) != BT_OK) {
        bt_request_unref(&r->base);
        bt_http_request_fail(r, &error);
    }
}
