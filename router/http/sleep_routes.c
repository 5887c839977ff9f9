/* SPDX-License-Identifier: Apache-2.0 */
/* Admin commands that take and give back memory of the workers: vLLM's POST
 * /sleep and /wake_up, GET /is_sleeping, and POST /reset_prefix_cache, of its
 * development mode. */
#include <string.h>

#include "common/base/clock.h"
#include "router/http/routes_priv.h"

/* @return NULL, or the error: a phrase */
static const char *read_sleep_field(const bt_query_t *query, void *options)
{
    bool *const aborts = options;

    if (strcmp(query->name, "level") == 0) {
        if (strcmp(query->value, "2") == 0) {
            return "1: level 2, which forgets the weights, is not supported; "
                   "wake the workers, then POST /update_weights_from_disk";
        }
        return (strcmp(query->value, "1") == 0) ? NULL : "1";
    }
    if (strcmp(query->name, "mode") == 0) {
        *aborts = strcmp(query->value, "abort") == 0;
        return (*aborts || (strcmp(query->value, "wait") == 0))
                   ? NULL
                   : "abort or wait (keep is not supported)";
    }
    return "a sleep has a level and a mode, and nothing else";
}

typedef struct tags {
    bool has_weights, has_kv_cache;
} tags_t;

/* @return NULL, or the error: a phrase */
static const char *read_tag(const bt_query_t *query, void *options)
{
    tags_t *const tags = options;

    if (strcmp(query->name, "tags") != 0) {
        return "waking has tags, and nothing else";
    }
    if (strcmp(query->value, "weights") == 0) {
        tags->has_weights = true;
        return NULL;
    }
    tags->has_kv_cache = true;
    return (strcmp(query->value, "kv_cache") == 0) ? NULL
                                                   : "weights and kv_cache";
}

/* @return NULL, or the error: a phrase */
static const char *read_reset_field(const bt_query_t *query, void *options)
{
    const bool is_false = strcmp(query->value, "false") == 0;

    (void)options;
    if (strcmp(query->name, "reset_running_requests") == 0) {
        return is_false ? NULL
                        : "false: requests that run keep their KV blocks, "
                          "which are not cached later";
    }
    if (strcmp(query->name, "reset_external") == 0) {
        return (is_false || (strcmp(query->value, "true") == 0))
                   ? NULL /* there is no cache outside of the workers */
                   : "true or false";
    }
    return "a reset has reset_running_requests and reset_external, and nothing "
           "else";
}

static void respond(bt_http_request_t *r, const char *status,
                    const bt_sleep_result_t *result)
{
    bt_json_t json;

    bt_http_request_begin_json(r, &json);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "status", status);
    bt_json_u64(&json, "num_workers", result->n_workers);
    if (r->sleep.wish == BT_SLEEP_WISH_RESET) {
        bt_json_u64(&json, "num_blocks", result->n_blocks);
    } else {
        bt_json_u64(&json, "num_missing_workers", result->n_missing);
    }
    bt_json_end_object(&json);
    bt_http_request_respond_json(r);
}

static void done(void *ctx, const bt_sleep_result_t *result)
{
    static const char *const status[] = {
        [BT_SLEEP_WISH_SLEEP] = "sleeping",
        [BT_SLEEP_WISH_WAKE] = "awake",
        [BT_SLEEP_WISH_RESET] = "reset",
    };
    bt_http_request_t *r = ctx;

    r->waits_for_sleep = false;
    if (result->error.http_status != 0) {
        bt_http_request_fail(r, &result->error);
    } else {
        respond(r, status[r->sleep.wish], result);
    }
}

static bt_router_sleep_waiter_t *begin_wait(bt_http_request_t *r)
{
    r->sleep = (bt_router_sleep_waiter_t){.done = done, .ctx = r};
    r->waits_for_sleep = true;
    return &r->sleep;
}

static void refuse(bt_http_request_t *r, const bt_api_error_t *error)
{
    r->waits_for_sleep = false;
    bt_http_request_fail(r, error);
}

void bt_route_sleep(bt_http_request_t *r)
{
    bt_api_error_t error = {0};
    bool aborts = true; /* as vLLM's */

    if (bt_route_read_query(r, read_sleep_field, &aborts) &&
        (bt_router_sleep_begin(r->door->front, aborts, begin_wait(r),
                               bt_now_us(), &error) != BT_OK)) {
        refuse(r, &error);
    }
}

void bt_route_wake_up(bt_http_request_t *r)
{
    tags_t tags = {0};

    if (!bt_route_read_query(r, read_tag, &tags)) {
        return;
    }
    if (tags.has_weights != tags.has_kv_cache) {
        bt_http_request_error(r, 400, "tags",
                              "tags: weights and KV pool come back together: "
                              "name both, or none");
        return;
    }
    bt_router_sleep_end(r->door->front, begin_wait(r), bt_now_us());
}

void bt_route_is_sleeping(bt_http_request_t *r)
{
    bt_json_t json;

    bt_http_request_begin_json(r, &json);
    bt_json_object(&json, NULL);
    bt_json_bool(&json, "is_sleeping",
                 bt_router_sleep_is_begun(r->door->front));
    bt_json_end_object(&json);
    bt_http_request_respond_json(r);
}

void bt_route_reset_prefix_cache(bt_http_request_t *r)
{
    bt_api_error_t error = {0};

    if (bt_route_read_query(r, read_reset_field, NULL) &&
        (bt_router_cache_reset(r->door->front, begin_wait(r), bt_now_us(),
                               &error) != BT_OK)) {
        refuse(r, &error);
    }
}
