/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/stored_page.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "router/http/query.h"

bt_status_t bt_page_limit_read(const char *value, uint64_t most,
                               uint64_t *limit_p, bt_api_error_t *error_p)
{
    uint64_t limit;

    if (!bt_parse_u64(value, &limit) || (limit < 1) || (limit > most)) {
        return bt_api_error_invalid(error_p, "limit",
                                    "limit must be a number from 1 to %" PRIu64,
                                    most);
    }
    *limit_p = limit;
    return BT_OK;
}

bt_status_t bt_page_order_read(const char *value, bool *is_ascending_p,
                               bt_api_error_t *error_p)
{
    const bool is_ascending = strcmp(value, "asc") == 0;

    if (!is_ascending && (strcmp(value, "desc") != 0)) {
        return bt_api_error_invalid(error_p, "order",
                                    "order must be asc or desc");
    }
    *is_ascending_p = is_ascending;
    return BT_OK;
}

static bt_status_t read_field(const bt_http_request_t *r,
                              const bt_stored_list_t *list,
                              const bt_query_t *query, bt_stored_page_t *page,
                              bt_api_error_t *error)
{
    const char *name = query->name, *value = query->value;

    if (strcmp(name, "limit") == 0) {
        return bt_page_limit_read(value, list->most_limit, &page->limit, error);
    }
    if (strcmp(name, "after") == 0) {
        page->after = bt_store_find(r->door->front->store, list->kind,
                                    bt_tenant_space(r->base.tenant), value);
        if (page->after == NULL) {
            bt_api_error_set(error, 404, "after", "after: no such %s: %.100s",
                             list->what, value);
            return BT_ERR_NOT_FOUND;
        }
        return BT_OK;
    }
    if (list->has_order && (strcmp(name, "order") == 0)) {
        return bt_page_order_read(value, &page->is_ascending, error);
    }
    if (list->has_purpose && (strcmp(name, "purpose") == 0)) {
        snprintf(page->purpose, sizeof(page->purpose), "%.31s", value);
        return BT_OK;
    }
    return bt_api_error_invalid(
        error, NULL, "%.64s is no parameter of this list: these are %s", name,
        list->names);
}

bt_status_t bt_stored_page_read(const bt_http_request_t *r,
                                const bt_stored_list_t *list,
                                bt_stored_page_t *page, bt_api_error_t *error_p)
{
    bt_status_t status;
    bt_query_t query;

    bt_query_init(&query, bt_exchange_query(r->ex));
    while ((status = bt_query_next(&query)) == BT_OK) {
        status = read_field(r, list, &query, page, error_p);
        if (status != BT_OK) {
            return status;
        }
    }
    return (status == BT_ERR_NOT_FOUND)
               ? BT_OK
               : BT_API_INVALID(error_p, "the query is malformed");
}

static bool is_listed(const bt_stored_list_t *list,
                      const bt_stored_page_t *page, const bt_stored_t *object)
{
    return (object->kind == list->kind) && !object->is_hidden &&
           ((page->purpose[0] == '\0') ||
            (strcmp(object->label, page->purpose) == 0)) &&
           ((list->kind != BT_STORE_BATCH) || (object->user != NULL));
}

void bt_stored_page_write(const bt_http_request_t *r,
                          const bt_stored_list_t *list,
                          const bt_stored_page_t *page, bt_json_t *json)
{
    const uint64_t most =
        (page->limit < list->most_page) ? page->limit : list->most_page;
    bt_list_t *objects =
        bt_store_list(r->door->front->store, bt_tenant_space(r->base.tenant));
    bt_list_t *at = (page->after != NULL) ? &page->after->link : objects;
    const bt_stored_t *first = NULL, *last = NULL;
    bool has_more = false;
    uint64_t n = 0;

    bt_json_object(json, NULL);
    bt_json_str(json, "object", "list");
    bt_json_array(json, "data");
    while ((objects != NULL) && !has_more &&
           ((at = page->is_ascending ? at->next : at->prev) != objects)) {
        const bt_stored_t *object = BT_CONTAINER_OF(at, bt_stored_t, link);

        if (!is_listed(list, page, object)) {
            continue;
        }
        has_more = n == most;
        if (!has_more) {
            list->write(object, json);
            first = (first == NULL) ? object : first;
            last = object;
            n++;
        }
    }
    bt_json_end_array(json);
    bt_json_str(json, "first_id", (first != NULL) ? first->id : NULL);
    bt_json_str(json, "last_id", (last != NULL) ? last->id : NULL);
    bt_json_bool(json, "has_more", has_more);
    bt_json_end_object(json);
}
