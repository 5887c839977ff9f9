/* SPDX-License-Identifier: Apache-2.0 */
/* Admin commands of Triton's clients: models, the log, the trace. */
#include <string.h>

#include "common/base/alloc.h"
#include "router/frontend/served_adapters.h"
#include "router/http/routes_priv.h"

bool bt_http_request_read_settings(bt_http_request_t *r, const char *under,
                                   bt_settings_t *settings)
{
    bt_api_error_t error = {0};
    bt_strbuf_t body;
    const size_t held = bt_exchange_take_body(r->ex, &body);
    bt_status_t status = bt_unpack_short(r->ex, &body, &error);

    if (status == BT_OK) {
        status = bt_settings_read(body.data, body.len, under, settings, &error);
    }
    bt_strbuf_fini(&body);
    bt_http_give_back(r->door->http, held);
    if (status != BT_OK) {
        bt_http_request_fail(r, &error);
        return false;
    }
    return true;
}

static void refuse_by_name(bt_http_request_t *r, const char *name,
                           const char *what)
{
    bt_http_request_error(r, 400, name, "%.64s: %s", name, what);
}

/* ---- models ---- */

static void write_entry(const bt_frontend_t *front, const char *name,
                        const bt_served_t *served, bool ready_only,
                        bt_json_t *json)
{
    const char *why;
    const char *state = bt_describe_state(front, served, &why);

    if (ready_only && (why[0] != '\0')) {
        return;
    }
    bt_json_object(json, NULL);
    bt_json_str(json, "name", name);
    bt_json_str(json, "version", served->version);
    bt_json_str(json, "state", state);
    bt_json_str(json, "reason", why);
    bt_json_end_object(json);
}

/* Writes the models, Triton's names of them, and the adapters. */
static void respond_index(bt_http_request_t *r, bool ready_only)
{
    const bt_frontend_t *const front = r->door->front;
    bt_described_t list[BT_DOOR_MAX_MODELS];
    const size_t n = bt_describe_names(front, list, BT_DOOR_MAX_MODELS);
    bt_served_entry_t *entries = NULL;
    size_t n_entries = 0;
    bt_json_t json;

    if (bt_served_list(&front->models, r->base.tenant, &entries, &n_entries) !=
        BT_OK) {
        bt_http_request_refuse(r, 503, "out of memory for this answer");
        return;
    }
    bt_http_request_begin_json(r, &json);
    bt_json_array(&json, NULL);
    for (size_t i = 0; i < n; i++) {
        write_entry(front, list[i].name, list[i].served, ready_only, &json);
    }
    for (size_t i = 0; i < n_entries; i++) {
        if (entries[i].adapter != NULL) {
            write_entry(front, entries[i].adapter->name, entries[i].served,
                        ready_only, &json);
        }
    }
    bt_json_end_array(&json);
    bt_free(entries);
    bt_http_request_respond_json(r);
}

void bt_route_index(bt_http_request_t *r)
{
    bt_settings_t settings;
    bool ready_only = false;

    if (!bt_http_request_read_settings(r, NULL, &settings)) {
        return;
    }
    for (size_t i = 0; i < settings.n; i++) {
        const bt_setting_t *setting = &settings.list[i];

        if ((strcmp(setting->name, "ready") == 0) &&
            (setting->kind == BT_SETTING_BOOL)) {
            ready_only = setting->number != 0;
        } else if ((setting->kind != BT_SETTING_NULL) &&
                   ((strcmp(setting->name, "repository_name") != 0) ||
                    (setting->text[0] != '\0'))) {
            refuse_by_name(r, setting->name,
                           "there is one repository, and "
                           "\"ready\" is true or false");
            return;
        }
    }
    respond_index(r, ready_only);
}

static void control_done(void *ctx, const bt_api_error_t *error)
{
    bt_http_request_t *r = ctx;

    r->control = NULL;
    if (error != NULL) {
        bt_http_request_fail(r, error);
    } else {
        bt_http_request_respond(r, 200, BT_JSON_TYPE, "", 0);
    }
}

static void control(bt_http_request_t *r, bool load)
{
    bt_api_error_t error = {0};
    bt_settings_t parameters;

    if (!bt_http_request_read_settings(r, "parameters", &parameters)) {
        return;
    }
    for (size_t i = 0; i < parameters.n; i++) {
        if (bt_model_control_check_parameter(parameters.list[i].name, &error) !=
            BT_OK) {
            bt_http_request_fail(r, &error);
            return;
        }
    }
    if (bt_model_control_begin(r->door->front, r->door->base, r->name, load,
                               control_done, r, &r->control, &error) != BT_OK) {
        bt_http_request_fail(r, &error);
    }
}

void bt_route_load(bt_http_request_t *r)
{
    control(r, true);
}

void bt_route_unload(bt_http_request_t *r)
{
    control(r, false);
}

/* ---- settings ---- */

static void write_list(bt_json_t *json, const bt_setting_t *setting)
{
    const char *at = setting->text;

    bt_json_array(json, setting->name);
    while (*at != '\0') {
        const size_t n = strcspn(at, ",");

        bt_json_strn(json, NULL, at, n);
        at += n;
        at += (*at == ',') ? 1 : 0;
    }
    bt_json_end_array(json);
}

static void respond_settings(bt_http_request_t *r,
                             const bt_settings_t *settings)
{
    bt_json_t json;

    bt_http_request_begin_json(r, &json);
    bt_json_object(&json, NULL);
    for (size_t i = 0; i < settings->n; i++) {
        const bt_setting_t *setting = &settings->list[i];

        switch (setting->kind) {
        case BT_SETTING_BOOL:
            bt_json_bool(&json, setting->name, setting->number != 0);
            break;
        case BT_SETTING_NUMBER:
            bt_json_u64(&json, setting->name, setting->number);
            break;
        case BT_SETTING_LIST:
            write_list(&json, setting);
            break;
        case BT_SETTING_TEXT:
            bt_json_str(&json, setting->name, setting->text);
            break;
        case BT_SETTING_NULL:
            bt_json_null(&json, setting->name);
            break;
        }
    }
    bt_json_end_object(&json);
    bt_http_request_respond_json(r);
}

void bt_route_log(bt_http_request_t *r)
{
    bt_api_error_t error = {0};
    bt_settings_t settings;

    if (bt_exchange_method(r->ex) == BT_HTTP_POST) {
        if (!bt_http_request_read_settings(r, NULL, &settings)) {
            return;
        }
        if (bt_describe_set_log(r->door->front, &settings, &error) != BT_OK) {
            bt_http_request_fail(r, &error);
            return;
        }
    }
    bt_describe_log(&settings);
    respond_settings(r, &settings);
}

void bt_route_trace(bt_http_request_t *r)
{
    bt_api_error_t error = {0};
    bt_settings_t settings;

    if (bt_exchange_method(r->ex) == BT_HTTP_POST) {
        if (!bt_http_request_read_settings(r, NULL, &settings)) {
            return;
        }
        if (bt_describe_set_trace(r->door->front, r->base.model, &settings,
                                  &error) != BT_OK) {
            bt_http_request_fail(r, &error);
            return;
        }
    }
    bt_describe_trace(r->door->front, &settings);
    respond_settings(r, &settings);
}
