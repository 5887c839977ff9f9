/* SPDX-License-Identifier: Apache-2.0 */
/* Admin commands of training loops, under vLLM's names (its development mode):
 * POST /pause and /resume, GET /is_paused. */
#include <string.h>

#include "common/base/clock.h"
#include "router/http/query.h"
#include "router/http/routes_priv.h"

typedef struct pause_options {
    bool aborts;
} pause_options_t;

/* @return NULL, or the error: a phrase */
static const char *read_pause_field(const bt_query_t *query,
                                    pause_options_t *options)
{
    if (strcmp(query->name, "mode") == 0) {
        options->aborts = strcmp(query->value, "abort") == 0;
        return (options->aborts || (strcmp(query->value, "wait") == 0))
                   ? NULL
                   : "abort or wait (keep is not supported)";
    }
    if (strcmp(query->name, "clear_cache") == 0) {
        return (strcmp(query->value, "false") == 0)
                   ? NULL
                   : "false: a cached prefix is dropped with its weights, "
                     "and not by a pause";
    }
    return "a pause has a mode and clear_cache, and nothing else";
}

/* @return false: it was refused, and the error was sent */
static bool read_pause(bt_http_request_t *r, pause_options_t *options_p)
{
    pause_options_t options = {.aborts = true}; /* as vLLM's */
    bt_query_t query;
    bt_status_t status;

    bt_query_init(&query, bt_exchange_query(r->ex));
    while ((status = bt_query_next(&query)) == BT_OK) {
        const char *why = read_pause_field(&query, &options);

        if (why != NULL) {
            bt_http_request_error(r, 400, query.name, "%s: %s", query.name,
                                  why);
            return false;
        }
    }
    if (status != BT_ERR_NOT_FOUND) {
        bt_http_request_error(r, 400, NULL,
                              "what stands behind '?' is malformed or too "
                              "long");
        return false;
    }
    *options_p = options;
    return true;
}

static void respond_status(bt_http_request_t *r, const char *status)
{
    bt_json_t json;

    bt_http_request_begin_json(r, &json);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "status", status);
    bt_json_end_object(&json);
    bt_http_request_respond_json(r);
}

static void pause_done(void *ctx, bool is_paused)
{
    bt_http_request_t *r = ctx;

    r->is_pausing = false;
    if (is_paused) {
        respond_status(r, "paused");
    } else {
        bt_http_request_error(r, 409, NULL,
                              "resumed before all requests had ended");
    }
}

void bt_route_pause(bt_http_request_t *r)
{
    pause_options_t options;

    if (!read_pause(r, &options)) {
        return;
    }
    r->pause = (bt_router_pause_waiter_t){.done = pause_done, .ctx = r};
    r->is_pausing = true;
    bt_router_pause_begin(r->door->front, options.aborts, &r->pause,
                          bt_now_us());
}

void bt_route_resume(bt_http_request_t *r)
{
    bt_router_pause_end(r->door->front, bt_now_us());
    respond_status(r, "resumed");
}

void bt_route_is_paused(bt_http_request_t *r)
{
    bt_json_t json;

    bt_http_request_begin_json(r, &json);
    bt_json_object(&json, NULL);
    bt_json_bool(&json, "is_paused", r->door->front->pause.is_begun);
    bt_json_end_object(&json);
    bt_http_request_respond_json(r);
}
