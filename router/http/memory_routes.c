/* SPDX-License-Identifier: Apache-2.0 */
/* Shared-memory regions that Triton's clients register. With the option off the
 * list is empty: clients that clean up after an earlier run, or ask for the
 * list, need not know. */
#include <string.h>

#include "router/http/routes_priv.h"

static void respond_nothing(bt_http_request_t *r)
{
    bt_http_request_respond(r, 200, BT_JSON_TYPE, "", 0);
}

static void fail(bt_http_request_t *r, int status, const char *what)
{
    bt_http_request_error(r, status, NULL, "%.127s: %s", r->name, what);
}

/* ---- of the system ---- */

static void write_region(bt_json_t *json, const bt_region_info_t *info)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "name", info->name);
    bt_json_str(json, "key", info->key);
    bt_json_u64(json, "offset", info->offset);
    bt_json_u64(json, "byte_size", info->bytes);
    bt_json_end_object(json);
}

void bt_route_memory_status(bt_http_request_t *r)
{
    const bt_regions_t *regions = r->door->front->regions;
    const size_t n = (regions != NULL) ? bt_regions_count(regions) : 0;
    bool any = r->name == NULL;
    bt_json_t json;

    bt_http_request_begin_json(r, &json);
    bt_json_array(&json, NULL);
    for (size_t i = 0; i < n; i++) {
        const bt_region_info_t *info = bt_regions_at(regions, i);

        if ((r->name == NULL) || (strcmp(r->name, info->name) == 0)) {
            write_region(&json, info);
            any = true;
        }
    }
    bt_json_end_array(&json);
    if (any) {
        bt_http_request_respond_json(r);
    } else {
        fail(r, 404, "no such region of shared memory is registered");
    }
}

/* Fields of a body: {"key": "/x", "offset": 0, "byte_size": 64}. */
typedef struct form {
    const char *key; /* NULL: absent */
    uint64_t offset, bytes;
} form_t;

/* @return NULL: valid; else the name of the invalid field */
static const char *read_form(const bt_settings_t *body, form_t *form)
{
    for (size_t i = 0; i < body->n; i++) {
        const bt_setting_t *given = &body->list[i];

        if ((strcmp(given->name, "key") == 0) &&
            (given->kind == BT_SETTING_TEXT)) {
            form->key = given->text;
        } else if ((strcmp(given->name, "offset") == 0) &&
                   (given->kind == BT_SETTING_NUMBER)) {
            form->offset = given->number;
        } else if ((strcmp(given->name, "byte_size") == 0) &&
                   (given->kind == BT_SETTING_NUMBER)) {
            form->bytes = given->number;
        } else if (given->kind != BT_SETTING_NULL) {
            return given->name;
        }
    }
    return (form->key == NULL) ? "key" : NULL;
}

void bt_route_memory_register(bt_http_request_t *r)
{
    bt_api_error_t error = {0};
    bt_settings_t body;
    form_t form = {0};
    const char *wrong;

    if (r->door->front->regions == NULL) {
        fail(r, 400,
             "shared memory with clients is not served (--shared-memory off): "
             "send the tensors themselves");
        return;
    }
    if (!bt_http_request_read_settings(r, NULL, &body)) {
        return;
    }
    wrong = read_form(&body, &form);
    if (wrong != NULL) {
        bt_http_request_error(
            r, 400, NULL,
            "%.127s: \"%.63s\": a region of shared memory has a "
            "text \"key\" and numbers \"offset\" and "
            "\"byte_size\"",
            r->name, wrong);
        return;
    }
    if (bt_regions_register(r->door->front->regions, r->name, form.key,
                            form.offset, form.bytes, &error) != BT_OK) {
        bt_http_request_fail(r, &error);
        return;
    }
    respond_nothing(r);
}

/* A missing region counts as unregistered. */
void bt_route_memory_unregister(bt_http_request_t *r)
{
    if (r->door->front->regions != NULL) {
        bt_regions_unregister(r->door->front->regions, r->name);
    }
    respond_nothing(r);
}

/* ---- of devices ---- */

void bt_route_cuda_status(bt_http_request_t *r)
{
    if (r->name != NULL) {
        fail(r, 404, "no such region of CUDA shared memory is registered");
    } else {
        bt_http_request_respond(r, 200, BT_JSON_TYPE, "[]", 2);
    }
}

void bt_route_cuda_register(bt_http_request_t *r)
{
    fail(r, 400,
         "CUDA shared memory is not served: tensors are in the router's "
         "memory, which has no device");
}

void bt_route_cuda_unregister(bt_http_request_t *r)
{
    respond_nothing(r);
}
