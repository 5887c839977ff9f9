/* SPDX-License-Identifier: Apache-2.0 */
/* Data for live views (docs/CLUSTER_API.md). */
#include <stdio.h>
#include <string.h>

#include "router/http/query.h"
#include "router/http/routes_priv.h"

#define DEFAULT_LIMIT 100u
#define MAX_LIMIT     256u

void bt_route_watch(bt_http_request_t *r)
{
    bt_pooled_page_ask(&r->door->cluster.page, r);
}

void bt_route_watch_events(bt_http_request_t *r)
{
    if (bt_exchange_method(r->ex) == BT_HTTP_HEAD) {
        bt_http_request_respond(r, 200, "text/event-stream; charset=utf-8", "",
                                0);
        return;
    }
    bt_watchers_add(&r->door->watchers, r);
}

/* ---- requests ---- */

static void refuse(bt_http_request_t *r, const char *param, const char *why)
{
    bt_http_request_error(r, 400, param, "%s%s%s", (param != NULL) ? param : "",
                          (param != NULL) ? ": " : "", why);
}

/* Reads digits only, from @a least to @a most. */
static bool read_number(const char *text, uint64_t least, uint64_t most,
                        uint64_t *value_p)
{
    return (strlen(text) <= 18) && bt_parse_u64(text, value_p) &&
           (*value_p >= least) && (*value_p <= most);
}

static bool read_yes(const char *text, bool *value_p)
{
    *value_p = strcmp(text, "1") == 0;
    return *value_p || (strcmp(text, "0") == 0);
}

/* @return NULL, or the error: a phrase */
static const char *read_field(const bt_query_t *query,
                              bt_recent_requests_filter_t *filter,
                              char model[BT_QUERY_BYTES])
{
    const char *name = query->name;
    const char *value = query->value;
    uint64_t number = 0;

    if (strcmp(name, "model") == 0) {
        snprintf(model, BT_QUERY_BYTES, "%s", value);
        filter->model = model;
        return NULL;
    }
    if (strcmp(name, "slow_ms") == 0) {
        if (!read_number(value, 0, 86400000, &number)) {
            return "milliseconds, 0 to 86400000";
        }
        filter->slow_us = number * 1000;
        return NULL;
    }
    if (strcmp(name, "missed") == 0) {
        return read_yes(value, &filter->missed) ? NULL : "0 or 1";
    }
    if (strcmp(name, "failed") == 0) {
        return read_yes(value, &filter->failed) ? NULL : "0 or 1";
    }
    if (strcmp(name, "limit") == 0) {
        if (!read_number(value, 1, MAX_LIMIT, &number)) {
            return "a number from 1 to 256";
        }
        filter->limit = (uint32_t)number;
        return NULL;
    }
    if (strcmp(name, "before") == 0) {
        return read_number(value, 1, UINT64_MAX, &filter->before)
                   ? NULL
                   : "the id of a request";
    }
    return "there is no such filter: model, slow_ms, missed, failed, limit "
           "and before are";
}

/* @return false: it was refused, and the error was sent */
static bool read_filter(bt_http_request_t *r,
                        bt_recent_requests_filter_t *filter,
                        char model[BT_QUERY_BYTES])
{
    bt_query_t query;
    bt_status_t status;

    bt_query_init(&query, bt_exchange_query(r->ex));
    while ((status = bt_query_next(&query)) == BT_OK) {
        const char *why = read_field(&query, filter, model);

        if (why != NULL) {
            refuse(r, query.name, why);
            return false;
        }
    }
    if (status != BT_ERR_NOT_FOUND) {
        refuse(r, NULL, "what stands behind '?' is malformed or too long");
        return false;
    }
    return true;
}

void bt_route_watch_requests(bt_http_request_t *r)
{
    bt_recent_requests_filter_t filter = {.limit = DEFAULT_LIMIT};
    char model[BT_QUERY_BYTES];
    bt_json_t json;

    if (!read_filter(r, &filter, model)) {
        return;
    }
    bt_http_request_begin_json(r, &json);
    bt_json_object(&json, NULL);
    bt_recent_requests_write(&r->door->front->watch->past, &filter, &json);
    bt_json_end_object(&json);
    bt_http_request_respond_json(r);
}

void bt_route_watch_request(bt_http_request_t *r)
{
    const bt_recent_request_t *one =
        bt_recent_requests_find(&r->door->front->watch->past, r->name);
    bt_json_t json;

    if (one == NULL) {
        bt_http_request_error(
            r, 404, NULL, "request %.64s is not among the latest that ended",
            r->name);
        return;
    }
    bt_http_request_begin_json(r, &json);
    bt_recent_requests_write_one(one, &json);
    bt_http_request_respond_json(r);
}
