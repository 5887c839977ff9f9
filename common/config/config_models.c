/* SPDX-License-Identifier: Apache-2.0 */
/* The list of models: `--model [NAME=]PATH`, repeated. */
#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/config/config_options.h"

#define SUFFIX ".gguf"

static bool is_name_byte(char c)
{
    return (c > ' ') && (c <= '~') && (strchr("/\"\\,=", c) == NULL);
}

bool bt_config_is_model_name(const char *text, size_t n)
{
    if ((n == 0) || (n >= BT_CONFIG_MODEL_NAME_BYTES)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_name_byte(text[i])) {
            return false;
        }
    }
    return true;
}

size_t bt_config_model_split(const char *text, const char **path_p)
{
    const char *const equals = strchr(text, '=');

    if ((equals != NULL) &&
        bt_config_is_model_name(text, (size_t)(equals - text))) {
        *path_p = equals + 1;
        return (size_t)(equals - text);
    }
    *path_p = text;
    return 0;
}

void bt_config_print_model(const char *name, const char *path, bt_strbuf_t *out)
{
    const char *rest;

    if (name[0] != '\0') {
        bt_strbuf_printf(out, "%s=", name);
    } else if (bt_config_model_split(path, &rest) != 0) {
        bt_strbuf_puts(out, "./"); /* a path that looks like NAME=PATH */
    }
    bt_strbuf_puts(out, path);
}

void bt_config_model_name(const bt_config_model_t *model,
                          const char *model_name_option,
                          char out[BT_CONFIG_MODEL_NAME_BYTES])
{
    size_t end = strlen(model->path);
    const char *text = model->path;
    const char *slash;
    size_t n;

    while ((end > 1) && (model->path[end - 1] == '/')) {
        end--; /* of a folder */
    }
    slash = memrchr(model->path, '/', end);
    text = ((slash == NULL) || (end == 1)) ? text : slash + 1;
    n = (size_t)(model->path + end - text);
    if (model->name[0] != '\0') {
        text = model->name;
        n = strlen(text);
    } else if (model_name_option[0] != '\0') {
        text = model_name_option;
        n = strlen(text);
    } else if (model->pulled != NULL) {
        text = model->pulled;
        n = strlen(text);
    } else if ((n > strlen(SUFFIX)) &&
               (strcasecmp(text + n - strlen(SUFFIX), SUFFIX) == 0)) {
        n -= strlen(SUFFIX);
    }
    if (n == 0) {
        text = "model";
        n = strlen(text);
    }
    n = (n < BT_CONFIG_MODEL_NAME_BYTES) ? n : BT_CONFIG_MODEL_NAME_BYTES - 1;
    for (size_t i = 0; i < n; i++) {
        out[i] = is_name_byte(text[i]) ? text[i] : '-';
    }
    out[n] = '\0';
}

bt_status_t bt_config_models_add(bt_config_store_t *store, const char *text,
                                 const char *where)
{
    const bool serves_many =
        (store->program & (BT_PROG_SERVE | BT_PROG_ROUTER)) != 0;
    const uint32_t most = serves_many ? BT_CONFIG_MAX_MODELS : 1;
    bt_config_t *const config = &store->config;
    const uint32_t n = config->n_models;
    bt_config_model_t *const model = &config->models[n];
    size_t n_name;
    char *copy;

    if (text[0] == '\0') {
        return BT_OK;
    }
    if (n >= most) {
        bt_config_complain(store, "%s: '%s' is one model too many: %s takes %u",
                           where, text, bt_config_program_name(store->program),
                           most);
        return BT_ERR_INVALID_PARAM;
    }
    copy = bt_strdup(text);
    if (copy == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_free(store->model_wheres[n]);
    store->model_wheres[n] = bt_strdup(where);
    if (store->model_wheres[n] == NULL) {
        bt_free(copy);
        return BT_ERR_NO_MEMORY;
    }
    store->models[n] = copy;
    n_name = bt_config_model_split(copy, &model->path);
    model->name = "";
    if (n_name > 0) {
        copy[n_name] = '\0';
        model->name = copy;
    }
    config->n_models++;
    config->model = config->models[0].path;
    return BT_OK;
}

bt_status_t bt_config_models_check(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;
    char names[BT_CONFIG_MAX_MODELS][BT_CONFIG_MODEL_NAME_BYTES];

    if ((c->served_model_name[0] != '\0') &&
        !bt_config_is_model_name(c->served_model_name,
                                 strlen(c->served_model_name))) {
        bt_config_complain(
            store,
            "--served-model-name: '%s' is no name: printable ASCII "
            "without space, / \" \\ , = and at most %d bytes",
            c->served_model_name, BT_CONFIG_MODEL_NAME_BYTES - 1);
        return BT_ERR_INVALID_PARAM;
    }
    if ((c->served_model_name[0] != '\0') && (c->n_models > 0) &&
        (c->models[0].name[0] != '\0')) {
        bt_config_complain(
            store, "--served-model-name %s: --model names it %s already",
            c->served_model_name, c->models[0].name);
        return BT_ERR_INVALID_PARAM;
    }
    for (uint32_t i = 0; i < c->n_models; i++) {
        bt_config_model_name(&c->models[i],
                             (i == 0) ? c->served_model_name : "", names[i]);
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(names[i], names[k]) == 0) {
                bt_config_complain(store,
                                   "two models have the name %s: %s and %s; "
                                   "--model NAME=PATH gives them others",
                                   names[i], c->models[k].path,
                                   c->models[i].path);
                return BT_ERR_INVALID_PARAM;
            }
        }
    }
    return BT_OK;
}
