/* SPDX-License-Identifier: Apache-2.0 */
/* Responses that continue stored ones, and that are stored.
 *
 *     parse ─▶ previous_response_id ─▶ chain found ─▶ read ─▶ parsed again ─▶ …
 *     (pool)        (event loop)                     (files)     (pool)
 *
 * Where routers share responses, the chain is found on the disk, by the pool's
 * files thread, which does nothing but that: it is one for all clients.
 *
 * The body is parsed alone first, so that its errors name its own items.
 */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "router/request/request_priv.h"

static const char *body_of(const bt_request_t *r)
{
    return (r->body.data != NULL) ? r->body.data : "";
}

bt_status_t bt_history_parse(bt_request_t *r, bt_api_request_t *api_p,
                             bt_api_error_t *error_p)
{
    return bt_api_parse_stored(body_of(r), r->body.len, NULL, api_p, error_p);
}

/* ---- what a response continues ---- */

/* Parses the body behind the items that were read. */
static bt_status_t parse_again(bt_request_t *r, const bt_strbuf_t *items)
{
    bt_input_t *const in = r->rows[0].input;
    bt_api_request_t api;
    bt_status_t status =
        bt_api_parse_stored(body_of(r), r->body.len, items, &api, &r->error);

    if (status != BT_OK) {
        return status;
    }
    bt_api_request_fini(&in->api);
    in->api = api;
    bt_strbuf_fini(&r->body);
    return bt_text_settle(r, &in->api);
}

static bt_status_t run_parse_again(bt_request_t *r)
{
    bt_strbuf_t items;
    bt_status_t status;

    /* As JSON, an item of the history may be longer than it is stored. */
    bt_strbuf_init(&items, SIZE_MAX / 2);
    status = bt_api_history_put_items(r->history, &items, &r->error);
    if (status == BT_OK) {
        r->work_bytes = r->body.len + items.len;
        status = parse_again(r, &items);
    }
    bt_strbuf_fini(&items);
    return status;
}

static void parsed_again(bt_request_t *r)
{
    bt_input_t *const in = r->rows[0].input;

    bt_api_history_fini(r->history);
    r->queue = bt_work_queue(r->work_bytes);
    in->is_inline = r->work_bytes <= BT_REQUEST_INLINE_BYTES;
    bt_text_parsed(r);
}

static bt_status_t run_read(bt_request_t *r)
{
    return bt_api_history_read(r->history, &r->error);
}

static void read_history(bt_request_t *r)
{
    r->queue = bt_work_queue(r->work_bytes);
    bt_request_step(r, run_parse_again, parsed_again);
}

/* Reads the responses that were found. */
static void read_found(bt_request_t *r)
{
    const bool is_on_disk = !bt_store_is_in_memory(r->front->responses);

    if (bt_request_open_account(r, r->body.cap + (size_t)r->history->bytes,
                                &r->error) != BT_OK) {
        bt_request_refuse_unparsed(r);
        return;
    }
    r->work_bytes += (size_t)r->history->bytes;
    r->queue = is_on_disk ? BT_POOL_FILES : bt_work_queue(r->work_bytes);
    bt_request_step(r, run_read, read_history);
}

static bt_status_t run_look_up(bt_request_t *r)
{
    return bt_api_history_look_up(r->front->responses, bt_request_space(r),
                                  r->rows[0].input->api.previous_id,
                                  bt_unix_us(), r->history, &r->error);
}

bool bt_history_begin(bt_request_t *r)
{
    bt_store_t *const responses = r->front->responses;

    if (r->history != NULL) {
        return false;
    }
    r->is_inline = false;
    r->history = bt_calloc(1, sizeof(*r->history));
    if (r->history == NULL) {
        (void)bt_api_error_no_memory(&r->error);
        bt_request_refuse_unparsed(r);
    } else if (bt_store_is_shared(responses)) {
        r->queue = BT_POOL_FILES;
        bt_request_step(r, run_look_up, read_found);
    } else if (bt_api_history_find(responses, bt_request_space(r),
                                   r->rows[0].input->api.previous_id,
                                   r->history, &r->error) != BT_OK) {
        bt_request_refuse_unparsed(r);
    } else {
        read_found(r);
    }
    return true;
}

/* ---- whether a response is stored ---- */

bt_status_t bt_history_settle(bt_request_t *r, bt_api_request_t *api)
{
    const bool is_asked = api->store == BT_API_STORE_YES;
    const bool is_default =
        (api->store == BT_API_STORE_DEFAULT) && (r->front->responses != NULL) &&
        !bt_store_is_in_memory(r->front->responses) && !r->is_background;

    if ((api->input_json == NULL) || api->counts_only ||
        !(is_asked || is_default)) {
        return BT_OK;
    }
    if (r->is_background) {
        return bt_api_error_invalid(&r->error, "store",
                                    "store: no response of a batch is stored");
    }
    if (!bt_store_takes(r->front->responses,
                        strlen(api->input_json) + BT_API_STORED_HEAD_BYTES)) {
        if (!is_asked) {
            return BT_OK;
        }
        bt_api_error_set(&r->error, 413, "store",
                         "the input is larger than all stored responses of a "
                         "client may be (--response-store-limit): set store to "
                         "false");
        return BT_ERR_TOO_LARGE;
    }
    r->asks_to_store = is_asked;
    r->kept_items = api->input_json;
    api->input_json = NULL;
    return BT_OK;
}

void bt_history_drop(bt_request_t *r)
{
    if (r->history != NULL) {
        bt_api_history_fini(r->history);
    }
    bt_free(r->history);
    bt_free(r->kept_items);
}
