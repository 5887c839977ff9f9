/* SPDX-License-Identifier: Apache-2.0 */
#include "router/api/api_stored.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json_doc.h"
#include "common/base/status.h"
#include "router/api/api_priv.h"

#define MISSING "previous_response_not_found"

/* ---- one response ---- */

void bt_api_stored_missing(const char *id, bt_api_error_t *error)
{
    bt_api_error_set(error, 404, NULL, "Response with id '%.100s' not found.",
                     id);
    error->type = "invalid_request_error";
}

bt_status_t bt_api_stored_reserve(bt_store_t *store, const char *space,
                                  const char *id, uint64_t bytes,
                                  uint64_t now_us, bt_store_put_t **put_p)
{
    const uint64_t need = bytes + BT_API_STORED_HEAD_BYTES;
    bt_stored_t *oldest;
    bt_status_t status;

    if (!bt_store_takes(store, need)) {
        return BT_ERR_TOO_LARGE;
    }
    for (;;) {
        status = bt_store_put_begin(store, BT_STORE_RESPONSE, space, need,
                                    now_us, put_p);
        if ((status != BT_ERR_TOO_LARGE) && (status != BT_ERR_OVERFLOW) &&
            (status != BT_ERR_BUSY)) {
            break;
        }
        oldest = (status == BT_ERR_BUSY)
                     ? bt_store_oldest_of_largest(
                           store, bt_store_used(store, space) + need +
                                      BT_STORE_OBJECT_BYTES)
                     : NULL;
        if (oldest == NULL) {
            oldest = bt_store_oldest(store, space);
        }
        if (oldest == NULL) { /* others have the room */
            return BT_ERR_TOO_LARGE;
        }
        bt_store_evict(store, oldest);
    }
    if (status == BT_OK) {
        bt_store_put_set_id(*put_p, id);
    }
    return status;
}

bt_status_t bt_api_stored_write(bt_store_put_t *put, const char *previous,
                                const char *items, const bt_strbuf_t *response)
{
    const size_t items_bytes = strlen(items);
    uint8_t head[BT_API_STORED_HEAD_BYTES];
    bt_status_t status;

    for (size_t i = 0; i < sizeof(head); i++) {
        head[i] = (uint8_t)((uint64_t)items_bytes >> (8 * i));
    }
    status =
        bt_store_put_describe(put, (previous != NULL) ? previous : "",
                              (previous != NULL) ? strlen(previous) : 0, 0);
    if (status == BT_OK) {
        status = bt_store_put_write(put, head, sizeof(head));
    }
    if (status == BT_OK) {
        status = bt_store_put_write(put, items, items_bytes);
    }
    if (status == BT_OK) {
        status = bt_store_put_write(put, response->data, response->len);
    }
    return (status == BT_OK) ? bt_store_put_commit(put) : status;
}

/* Finds the parts of what was read. */
static bt_status_t split(bt_api_stored_t *stored)
{
    const bt_strbuf_t *const text = &stored->text;
    uint64_t n = 0;

    if (text->len < BT_API_STORED_HEAD_BYTES) {
        return BT_ERR_CORRUPT;
    }
    for (size_t i = 0; i < BT_API_STORED_HEAD_BYTES; i++) {
        n |= (uint64_t)(uint8_t)text->data[i] << (8 * i);
    }
    if (n > text->len - BT_API_STORED_HEAD_BYTES) {
        return BT_ERR_CORRUPT;
    }
    stored->items = text->data + BT_API_STORED_HEAD_BYTES;
    stored->items_bytes = (size_t)n;
    stored->response = stored->items + n;
    stored->response_bytes = text->len - BT_API_STORED_HEAD_BYTES - (size_t)n;
    return BT_OK;
}

bt_status_t bt_api_stored_read(const bt_store_t *store,
                               const bt_stored_t *object,
                               bt_api_stored_t *stored_p)
{
    bt_api_stored_t stored = {0};
    bt_status_t status;

    bt_strbuf_init(&stored.text, (size_t)object->bytes + 1);
    status = bt_store_read(store, object, 0, UINT64_MAX, &stored.text);
    if (status == BT_OK) {
        status = split(&stored);
    }
    if (status != BT_OK) {
        bt_strbuf_fini(&stored.text);
        return status;
    }
    *stored_p = stored;
    return BT_OK;
}

void bt_api_stored_fini(bt_api_stored_t *stored)
{
    bt_strbuf_fini(&stored->text);
}

/* ---- a conversation ---- */

/* OpenAI's words. */
static bt_status_t miss(const char *id, bt_api_error_t *error)
{
    bt_api_error_set(error, 400, "previous_response_id",
                     "Previous response with id '%.100s' not found.", id);
    error->code = MISSING;
    return BT_ERR_NOT_FOUND;
}

static bt_status_t refuse_long(bt_api_error_t *error)
{
    bt_api_error_set(error, 400, "previous_response_id",
                     "the conversation has more than %u responses or %u MiB; "
                     "begin another one with what matters of it as input",
                     BT_API_MAX_CHAIN,
                     (unsigned)(BT_API_MAX_HISTORY_BYTES >> 20));
    return BT_ERR_TOO_LARGE;
}

static bt_status_t refuse_unreadable(bt_status_t status, bt_api_error_t *error)
{
    if (status == BT_ERR_NO_MEMORY) {
        return bt_api_error_no_memory(error);
    }
    bt_api_error_set(error, 503, "previous_response_id",
                     "a response of the conversation cannot be read: %s",
                     bt_status_str(status));
    return status;
}

/* Puts a response, whose reference is taken over, in front of those that
 * continue it. @param [out] next  id of the response that it continues */
static bt_status_t add_found(bt_api_history_t *history, bt_stored_t *object,
                             char next[BT_STORE_ID_BYTES],
                             bt_api_error_t *error)
{
    if ((history->n == BT_API_MAX_CHAIN) ||
        (object->bytes > BT_API_MAX_HISTORY_BYTES - history->bytes)) {
        bt_stored_unref(object);
        return refuse_long(error);
    }
    history->responses[history->n++] = object;
    history->bytes += object->bytes;
    snprintf(next, BT_STORE_ID_BYTES, "%.*s", (int)object->label_bytes,
             (object->label != NULL) ? object->label : "");
    return BT_OK;
}

bt_status_t bt_api_history_find(const bt_store_t *store, const char *space,
                                const char *id, bt_api_history_t *history,
                                bt_api_error_t *error)
{
    char next[BT_STORE_ID_BYTES] = "";
    bt_status_t status = BT_OK;

    *history = (bt_api_history_t){.store = store};
    while ((status == BT_OK) && (id[0] != '\0')) {
        bt_stored_t *object =
            bt_store_find(store, BT_STORE_RESPONSE, space, id);

        if (object == NULL) {
            return miss(id, error);
        }
        status = add_found(history, bt_stored_ref(object), next, error);
        id = next;
    }
    return (history->n > 0) ? status : miss("", error);
}

bt_status_t bt_api_history_look_up(bt_store_t *store, const char *space,
                                   const char *id, uint64_t now_us,
                                   bt_api_history_t *history,
                                   bt_api_error_t *error)
{
    char next[BT_STORE_ID_BYTES] = "";
    bt_status_t status = BT_OK;

    *history = (bt_api_history_t){.store = store};
    while ((status == BT_OK) && (id[0] != '\0')) {
        bt_stored_t *object = NULL;

        status = bt_store_look_up(store, BT_STORE_RESPONSE, space, id, now_us,
                                  &object);
        if (status != BT_OK) {
            return (status == BT_ERR_NOT_FOUND)
                       ? miss(id, error)
                       : refuse_unreadable(status, error);
        }
        status = add_found(history, object, next, error);
        id = next;
    }
    return (history->n > 0) ? status : miss("", error);
}

void bt_api_history_fini(bt_api_history_t *history)
{
    for (uint32_t i = 0; i < history->n; i++) {
        bt_stored_unref(history->responses[i]);
        if (history->texts != NULL) {
            bt_api_stored_fini(&history->texts[i]);
        }
    }
    bt_free(history->texts);
    history->texts = NULL;
    history->n = 0;
}

/* Appends what a list has between its brackets. */
static void add_items(const char *list, size_t bytes, bt_strbuf_t *items)
{
    if (bytes > 2) {
        bt_strbuf_puts(items, (items->len > 1) ? "," : "");
        bt_strbuf_append(items, list + 1, bytes - 2);
    }
}

/* Appends input and output of a response. */
static bt_status_t add_response(const bt_api_stored_t *stored,
                                bt_strbuf_t *items)
{
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;
    const bt_json_node_t *output;
    bt_status_t status = bt_json_doc_parse_client(
        stored->response, stored->response_bytes, UINT32_MAX, &fault, &doc);

    if (status != BT_OK) {
        return (status == BT_ERR_NO_MEMORY) ? status : BT_ERR_CORRUPT;
    }
    output = bt_json_get(doc, bt_json_doc_root(doc), "output");
    if (bt_json_is_kind(output, BT_JSON_ARRAY) && (stored->items_bytes >= 2)) {
        add_items(stored->items, stored->items_bytes, items);
        add_items(output->text, output->len, items);
        status = bt_strbuf_status(items);
    } else {
        status = BT_ERR_CORRUPT;
    }
    bt_json_doc_free(doc);
    return status;
}

bt_status_t bt_api_history_read(bt_api_history_t *history,
                                bt_api_error_t *error)
{
    history->texts = bt_calloc(history->n, sizeof(*history->texts));
    if (history->texts == NULL) {
        return bt_api_error_no_memory(error);
    }
    for (uint32_t i = 0; i < history->n; i++) {
        const bt_stored_t *const object = history->responses[i];
        const bt_status_t status =
            bt_api_stored_read(history->store, object, &history->texts[i]);

        if (status == BT_ERR_NOT_FOUND) { /* deleted meanwhile */
            return miss(object->id, error);
        }
        if (status != BT_OK) {
            return refuse_unreadable(status, error);
        }
    }
    return BT_OK;
}

bt_status_t bt_api_history_put_items(bt_api_history_t *history,
                                     bt_strbuf_t *items, bt_api_error_t *error)
{
    bt_strbuf_puts(items, "[");
    for (uint32_t i = history->n; i-- > 0;) {
        const bt_status_t status = add_response(&history->texts[i], items);

        bt_api_stored_fini(&history->texts[i]);
        if (status != BT_OK) {
            return refuse_unreadable(status, error);
        }
    }
    bt_strbuf_puts(items, "]");
    return (bt_strbuf_status(items) == BT_OK) ? BT_OK
                                              : bt_api_error_no_memory(error);
}

/* ---- a list of input items ---- */

#define ITEM_ID_BYTES BT_API_MAX_NAME_BYTES

typedef struct list {
    const bt_json_doc_t *doc;
    const char *response_id;
    const bt_json_node_t **items; /* owned */
    const bt_json_node_t **ids;   /* owned: an item's own; NULL: it is given
                                     another */
    uint32_t n;
} list_t;

static const bt_json_node_t *own_id(const list_t *list,
                                    const bt_json_node_t *item)
{
    const bt_json_node_t *id = bt_json_get(list->doc, item, "id");

    return (bt_json_is_kind(id, BT_JSON_STRING) && (id->len > 0) &&
            (id->len < ITEM_ID_BYTES) &&
            (memchr(id->text, '\0', id->len) == NULL))
               ? id
               : NULL;
}

/* Returns the prefix of the ids of an item's kind. */
static const char *prefix_of(const list_t *list, const bt_json_node_t *item)
{
    static const struct {
        const char *type, *prefix;
    } known[] = {
        {"reasoning", "rs_"},
        {"function_call", "fc_"},
        {"function_call_output", "fco_"},
        {"custom_tool_call", "ctc_"},
        {"custom_tool_call_output", "ctco_"},
    };
    const bt_json_node_t *type = bt_json_get(list->doc, item, "type");

    for (size_t i = 0; i < BT_ARRAY_LEN(known); i++) {
        if (bt_json_is(type, known[i].type)) {
            return known[i].prefix;
        }
    }
    return "msg_";
}

static void id_of(const list_t *list, uint32_t i, char id[ITEM_ID_BYTES])
{
    const char *const tail = strchr(list->response_id, '_');
    const bt_json_node_t *own = list->ids[i];

    if (own != NULL) {
        snprintf(id, ITEM_ID_BYTES, "%.*s", (int)own->len, own->text);
    } else {
        snprintf(id, ITEM_ID_BYTES, "%s%s_in%u",
                 prefix_of(list, list->items[i]),
                 (tail != NULL) ? tail + 1 : list->response_id, i);
    }
}

static bool is_same(const bt_json_node_t *a, const bt_json_node_t *b)
{
    return (a->len == b->len) && (memcmp(a->text, b->text, a->len) == 0);
}

/* Items of the same id are neighbours, the first of the list in front. */
static int by_id(const void *a, const void *b, void *ids)
{
    const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const bt_json_node_t *const *all = ids;
    int order = (all[i]->len > all[k]->len) - (all[i]->len < all[k]->len);

    if (order == 0) {
        order = memcmp(all[i]->text, all[k]->text, all[i]->len);
    }
    return (order != 0) ? order : (i > k) - (i < k);
}

/* An item keeps its id if no item before it has the same. Each id is searched
 * once, for an item may have many members, and a list many items. */
static bt_status_t judge_ids(list_t *list)
{
    BT_CLEANUP(free)
    uint32_t *order = bt_calloc((size_t)list->n + 1, sizeof(*order));
    const bt_json_node_t *kept = NULL;
    uint32_t n = 0;

    if (order == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < list->n; i++) {
        list->ids[i] = own_id(list, list->items[i]);
        if (list->ids[i] != NULL) {
            order[n++] = i;
        }
    }
    qsort_r(order, n, sizeof(*order), by_id, (void *)list->ids);
    for (uint32_t k = 0; k < n; k++) {
        if ((kept != NULL) && is_same(kept, list->ids[order[k]])) {
            list->ids[order[k]] = NULL;
        } else {
            kept = list->ids[order[k]];
        }
    }
    return BT_OK;
}

/* Writes a content as a list of parts, which a text may stand for. */
static void put_content(const list_t *list, const bt_json_node_t *item,
                        const bt_json_node_t *content, bt_json_t *json)
{
    if (!bt_json_is_kind(content, BT_JSON_STRING)) {
        bt_api_put_value(json, "content", content);
        return;
    }
    bt_json_array(json, "content");
    bt_json_object(json, NULL);
    if (bt_json_is(bt_json_get(list->doc, item, "role"), "assistant")) {
        bt_json_str(json, "type", "output_text");
        bt_api_put_value(json, "text", content);
        bt_json_raw(json, "annotations", "[]");
    } else {
        bt_json_str(json, "type", "input_text");
        bt_api_put_value(json, "text", content);
    }
    bt_json_end_object(json);
    bt_json_end_array(json);
}

static void put_stored_item(const list_t *list, uint32_t i, bt_json_t *json)
{
    const bt_json_node_t *const item = list->items[i];
    const bt_json_node_t *const type = bt_json_get(list->doc, item, "type");
    const uint32_t n = bt_json_size(item, BT_JSON_OBJECT);
    const bt_json_node_t *key = (n > 0) ? bt_json_first(item) : NULL;
    char id[ITEM_ID_BYTES];

    id_of(list, i, id);
    bt_json_object(json, NULL);
    bt_json_str(json, "id", id);
    if (bt_json_is_kind(type, BT_JSON_STRING)) {
        bt_api_put_value(json, "type", type);
    } else {
        bt_json_str(json, "type", "message");
    }
    if (bt_api_is_none(bt_json_get(list->doc, item, "status"))) {
        bt_json_str(json, "status", "completed");
    }
    for (uint32_t k = 0; k < n; k++, key = bt_json_next(list->doc, key + 1)) {
        const bool is_status = bt_json_is(key, "status");

        if (!bt_json_counts(key) || bt_json_is(key, "id") ||
            bt_json_is(key, "type") || (is_status && bt_api_is_none(key + 1))) {
            continue;
        }
        if (bt_json_is(key, "content")) {
            put_content(list, item, key + 1, json);
        } else {
            bt_json_key(json, key->text, key->len);
            bt_api_put_value(json, NULL, key + 1);
        }
    }
    bt_json_end_object(json);
}

/* Returns the item at a position in the order of a page. */
static uint32_t at_of(const list_t *list, const bt_api_items_page_t *page,
                      uint32_t position)
{
    return page->is_ascending ? position : list->n - 1 - position;
}

static bt_status_t put_page(const list_t *list, const bt_api_items_page_t *page,
                            bt_strbuf_t *out)
{
    char id[ITEM_ID_BYTES], first[ITEM_ID_BYTES] = "";
    bool found = page->after[0] == '\0';
    uint32_t from = 0, n;
    bt_json_t json;

    for (; !found && (from < list->n); from++) {
        id_of(list, at_of(list, page, from), id);
        found = strcmp(id, page->after) == 0;
    }
    if (!found) {
        return BT_ERR_NOT_FOUND;
    }
    n = (list->n - from < page->limit) ? list->n - from : page->limit;
    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "object", "list");
    bt_json_array(&json, "data");
    for (uint32_t k = 0; k < n; k++) {
        put_stored_item(list, at_of(list, page, from + k), &json);
    }
    bt_json_end_array(&json);
    if (n > 0) {
        id_of(list, at_of(list, page, from), first);
        id_of(list, at_of(list, page, from + n - 1), id);
    }
    bt_json_str(&json, "first_id", (n > 0) ? first : NULL);
    bt_json_str(&json, "last_id", (n > 0) ? id : NULL);
    bt_json_bool(&json, "has_more", from + n < list->n);
    bt_json_end_object(&json);
    return bt_strbuf_status(out);
}

static bt_status_t put_list(const bt_json_node_t *root, list_t *list,
                            const bt_api_items_page_t *page, bt_strbuf_t *out)
{
    const bt_json_node_t *item;
    bt_status_t status;

    if (!bt_json_is_kind(root, BT_JSON_ARRAY)) {
        return BT_ERR_CORRUPT;
    }
    list->n = root->n;
    list->items =
        bt_calloc((size_t)list->n + 1, sizeof(const bt_json_node_t *));
    list->ids = bt_calloc((size_t)list->n + 1, sizeof(const bt_json_node_t *));
    if ((list->items == NULL) || (list->ids == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    item = bt_json_first(root);
    for (uint32_t i = 0; i < list->n; i++) {
        list->items[i] = item;
        item = bt_json_next(list->doc, item);
    }
    status = judge_ids(list);
    return (status == BT_OK) ? put_page(list, page, out) : status;
}

bt_status_t bt_api_stored_put_items(const bt_api_stored_t *stored,
                                    const char *id,
                                    const bt_api_items_page_t *page,
                                    bt_strbuf_t *out)
{
    list_t list = {.response_id = id};
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;
    bt_status_t status = bt_json_doc_parse_client(
        stored->items, stored->items_bytes, UINT32_MAX, &fault, &doc);

    if (status != BT_OK) {
        return (status == BT_ERR_NO_MEMORY) ? status : BT_ERR_CORRUPT;
    }
    list.doc = doc;
    status = put_list(bt_json_doc_root(doc), &list, page, out);
    bt_free(list.items);
    bt_free(list.ids);
    bt_json_doc_free(doc);
    return status;
}
