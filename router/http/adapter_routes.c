/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's POST /v1/load_lora_adapter and /v1/unload_lora_adapter. */
#include <stdio.h>
#include <string.h>

#include "router/frontend/adapter_loads.h"
#include "router/http/routes_priv.h"

#define TEXT_TYPE "text/plain; charset=utf-8"

/* Reads the members of a command into a spec.
 * @return NULL, or the error: a phrase */
static const char *read_field(const bt_setting_t *setting,
                              bt_adapter_load_spec_t *spec)
{
    const bool is_text = setting->kind == BT_SETTING_TEXT;

    if (strcmp(setting->name, "lora_name") == 0) {
        spec->name = setting->text;
        return is_text ? NULL : "a text";
    }
    if (strcmp(setting->name, "lora_path") == 0) {
        spec->path = setting->text;
        return is_text ? NULL : "a text";
    }
    if (strcmp(setting->name, "tenant") == 0) {
        spec->tenant = setting->text;
        return is_text ? NULL : "the name of a tenant";
    }
    if (strcmp(setting->name, "load_inplace") == 0) {
        spec->in_place = setting->number != 0;
        return (setting->kind == BT_SETTING_BOOL) ? NULL : "true or false";
    }
    if (strcmp(setting->name, "lora_int_id") == 0) { /* vLLM's own number */
        return NULL;
    }
    return "an adapter has lora_name, lora_path, load_inplace and tenant, and "
           "nothing else";
}

/* @return false: it was refused, and the error was sent */
static bool read_spec(bt_http_request_t *r, bt_settings_t *settings,
                      bt_adapter_load_spec_t *spec)
{
    if ((r->door->front->config->lora_dir == NULL) ||
        (r->door->front->config->lora_dir[0] == '\0')) {
        bt_http_request_error(r, 403, NULL,
                              "this server loads no adapters: it was started "
                              "without --lora-dir");
        return false;
    }
    if (!bt_http_request_read_settings(r, NULL, settings)) {
        return false;
    }
    for (size_t i = 0; i < settings->n; i++) {
        const bt_setting_t *setting = &settings->list[i];
        const char *why = NULL;

        if (setting->kind != BT_SETTING_NULL) {
            why = read_field(setting, spec);
        }
        if (why != NULL) {
            bt_http_request_error(r, 400, setting->name, "%.64s: %s",
                                  setting->name, why);
            return false;
        }
    }
    return true;
}

static void respond_text(bt_http_request_t *r, const char *name,
                         const char *done)
{
    char text[192];
    const int n =
        snprintf(text, sizeof(text),
                 "Success: LoRA adapter '%.64s' %s successfully.", name, done);

    bt_http_request_respond(r, 200, TEXT_TYPE, text, (size_t)n);
}

static void loaded(void *ctx, const bt_api_error_t *error)
{
    bt_http_request_t *r = ctx;

    r->adapting = NULL;
    if (error->http_status != 0) {
        bt_http_request_fail(r, error);
        return;
    }
    respond_text(r, r->adapter_name, "added");
}

void bt_route_load_adapter(bt_http_request_t *r)
{
    bt_served_t *const served = bt_registry_find(&r->door->front->models, NULL);
    bt_adapter_load_spec_t spec = {0};
    bt_settings_t settings;
    bt_api_error_t error = {0};

    if (!read_spec(r, &settings, &spec)) {
        return;
    }
    if ((spec.name == NULL) || (spec.path == NULL) || (spec.name[0] == '\0') ||
        (spec.path[0] == '\0')) {
        bt_http_request_error(r, 400, NULL,
                              "Both 'lora_name' and 'lora_path' must be "
                              "provided.");
        return;
    }
    if (served == NULL) {
        bt_http_request_refuse(r, 404, "no model is served");
        return;
    }
    if (bt_adapter_load_begin(served, &spec, loaded, r, &error) != BT_OK) {
        bt_http_request_fail(r, &error);
        return;
    }
    snprintf(r->adapter_name, sizeof(r->adapter_name), "%s", spec.name);
    r->adapting = served;
}

void bt_route_unload_adapter(bt_http_request_t *r)
{
    bt_served_t *const served = bt_registry_find(&r->door->front->models, NULL);
    bt_adapter_load_spec_t spec = {0};
    bt_settings_t settings;

    if (!read_spec(r, &settings, &spec)) {
        return;
    }
    if ((spec.name == NULL) || (spec.name[0] == '\0')) {
        bt_http_request_error(r, 400, NULL,
                              "'lora_name' needs to be provided to unload a "
                              "LoRA adapter.");
        return;
    }
    if ((served == NULL) || (bt_adapter_unload(served, spec.name) != BT_OK)) {
        bt_http_request_error(r, 404, "lora_name",
                              "The lora adapter '%.64s' cannot be found.",
                              spec.name);
        return;
    }
    respond_text(r, spec.name, "removed");
}
