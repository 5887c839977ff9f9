/* SPDX-License-Identifier: Apache-2.0 */
/* Admin commands of training loops: vLLM's POST /pause and /resume and GET
 * /is_paused, of its development mode, and SGLang's POST
 * /update_weights_from_disk and GET /get_weight_version. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "router/http/routes_priv.h"

typedef struct pause_options {
    bool aborts;
} pause_options_t;

/* @return NULL, or the error: a phrase */
static const char *read_pause_field(const bt_query_t *query, void *user)
{
    pause_options_t *const options = user;

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

bool bt_route_read_query(bt_http_request_t *r,
                         const char *(*read)(const bt_query_t *query,
                                             void *options),
                         void *options)
{
    bt_query_t query;
    bt_status_t status;

    bt_query_init(&query, bt_exchange_query(r->ex));
    while ((status = bt_query_next(&query)) == BT_OK) {
        const char *why = read(&query, options);

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
    pause_options_t options = {.aborts = true}; /* as vLLM's */

    if (!bt_route_read_query(r, read_pause_field, &options)) {
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

/* ---- weights ---- */

typedef struct weight_options {
    const char *path, *version, *model;
    bool aborts;
} weight_options_t;

static bool is_name(const char *text)
{
    const size_t n = strlen(text);

    for (size_t i = 0; i < n; i++) {
        if (((unsigned char)text[i] < ' ') || (text[i] == 0x7f)) {
            return false;
        }
    }
    return (n > 0) && (n < BT_WIRE_MAX_NAME);
}

/* @return NULL, or the error: a phrase */
static const char *read_weight_field(const bt_setting_t *setting,
                                     weight_options_t *options)
{
    const char *name = setting->name;
    const bool is_text = setting->kind == BT_SETTING_TEXT;
    const bool is_bool = setting->kind == BT_SETTING_BOOL;

    if (strcmp(name, "model_path") == 0) {
        options->path = setting->text;
        return (is_text && (setting->text[0] != '\0'))
                   ? NULL
                   : "the path of a file or folder";
    }
    if (strcmp(name, "weight_version") == 0) {
        options->version = setting->text;
        return (is_text && is_name(setting->text)) ? NULL
                                                   : "a text of 1 to 63 bytes";
    }
    if (strcmp(name, "model") == 0) {
        options->model = setting->text;
        return is_text ? NULL : "the name of a model";
    }
    if (strcmp(name, "load_format") == 0) {
        return (is_text && (strcmp(setting->text, "auto") == 0))
                   ? NULL
                   : "auto: the file says it";
    }
    if (strcmp(name, "abort_all_requests") == 0) {
        options->aborts = setting->number != 0;
        return is_bool ? NULL : "true or false";
    }
    if (strcmp(name, "flush_cache") == 0) {
        return (is_bool && (setting->number != 0))
                   ? NULL
                   : "true: KV of old weights is never used";
    }
    return "a replacement has model_path, weight_version, model, load_format, "
           "abort_all_requests and flush_cache, and nothing else";
}

/* @return false: it was refused, and the error was sent */
static bool read_weights(bt_http_request_t *r, bt_settings_t *settings,
                         weight_options_t *options_p)
{
    weight_options_t options = {0};

    if (!bt_http_request_read_settings(r, NULL, settings)) {
        return false;
    }
    for (size_t i = 0; i < settings->n; i++) {
        const bt_setting_t *setting = &settings->list[i];
        const char *why = NULL;

        if (setting->kind != BT_SETTING_NULL) {
            why = read_weight_field(setting, &options);
        }
        if (why != NULL) {
            bt_http_request_error(r, 400, setting->name, "%.64s: %s",
                                  setting->name, why);
            return false;
        }
    }
    if ((options.path == NULL) || (options.version == NULL)) {
        const char *missing =
            (options.path == NULL) ? "model_path" : "weight_version";

        bt_http_request_error(r, 400, missing, "%s is missing", missing);
        return false;
    }
    *options_p = options;
    return true;
}

static void update_done(void *ctx, const bt_weight_result_t *result)
{
    bt_http_request_t *r = ctx;
    char message[128];
    bt_json_t json;

    r->updating = NULL;
    if (result->error.http_status != 0) {
        bt_http_request_fail(r, &result->error);
        return;
    }
    snprintf(message, sizeof(message),
             "%u workers have the weights, %u have not come back",
             result->n_workers, result->n_missing);
    bt_http_request_begin_json(r, &json);
    bt_json_object(&json, NULL);
    bt_json_bool(&json, "success", true);
    bt_json_str(&json, "message", message);
    bt_json_str(&json, "weight_version", result->version);
    bt_json_u64(&json, "num_workers", result->n_workers);
    bt_json_u64(&json, "num_missing_workers", result->n_missing);
    bt_json_end_object(&json);
    bt_http_request_respond_json(r);
}

void bt_route_update_weights(bt_http_request_t *r)
{
    bt_settings_t settings;
    weight_options_t options;
    bt_api_error_t error = {0};
    bt_served_t *served;

    if (r->door->front->config->allow_weight_updates[0] == '\0') {
        bt_http_request_error(r, 403, NULL,
                              "this server replaces no weights: it was started "
                              "without --allow-weight-updates");
        return;
    }
    if (!read_weights(r, &settings, &options)) {
        return;
    }
    served = bt_registry_find(&r->door->front->models, options.model);
    if (served == NULL) {
        bt_registry_refuse(&r->door->front->models, options.model, &error);
        bt_http_request_fail(r, &error);
        return;
    }
    if (bt_weight_update_begin(served, options.path, options.version,
                               options.aborts, update_done, r, bt_now_us(),
                               &error) != BT_OK) {
        bt_http_request_fail(r, &error);
        return;
    }
    r->updating = served;
}

/* Of the first model: the path names none. */
void bt_route_weight_version(bt_http_request_t *r)
{
    const bt_served_t *served = bt_registry_find(&r->door->front->models, NULL);
    bt_json_t json;

    if (served == NULL) {
        bt_http_request_refuse(r, 404, "no model is served");
        return;
    }
    bt_http_request_begin_json(r, &json);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "weight_version",
                bt_core_weights(served->core)->version);
    bt_json_end_object(&json);
    bt_http_request_respond_json(r);
}
