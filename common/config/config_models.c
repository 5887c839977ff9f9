/* SPDX-License-Identifier: Apache-2.0 */
/* The list of models: `--model [NAME=]PATH`, repeated. */
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "common/base/process.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "common/config/config.h"
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
        return bt_config_complain(
            store, "%s: '%s' is one model too many: %s takes %u", where, text,
            bt_config_program_name(store->program), most);
    }
    if ((bt_config_keep(&store->models[n], text) != BT_OK) ||
        (bt_config_keep(&store->model_wheres[n], where) != BT_OK)) {
        return BT_ERR_NO_MEMORY;
    }
    copy = store->models[n];
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
        return bt_config_complain(
            store,
            "--served-model-name: '%s' is no name: printable ASCII "
            "without space, / \" \\ , = and at most %d bytes",
            c->served_model_name, BT_CONFIG_MODEL_NAME_BYTES - 1);
    }
    if ((c->served_model_name[0] != '\0') && (c->n_models > 0) &&
        (c->models[0].name[0] != '\0')) {
        return bt_config_complain(
            store, "--served-model-name %s: --model names it %s already",
            c->served_model_name, c->models[0].name);
    }
    for (uint32_t i = 0; i < c->n_models; i++) {
        bt_config_model_name(&c->models[i],
                             (i == 0) ? c->served_model_name : "", names[i]);
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(names[i], names[k]) == 0) {
                return bt_config_complain(
                    store,
                    "two models have the name %s: %s and %s; "
                    "--model NAME=PATH gives them others",
                    names[i], c->models[k].path, c->models[i].path);
            }
        }
    }
    return BT_OK;
}

static bool has_control_bytes(const char *text)
{
    for (; *text != '\0'; text++) {
        if (((unsigned char)*text < ' ') || (*text == 0x7f)) {
            return true;
        }
    }
    return false;
}

bt_status_t bt_config_resolve(const char *option, const char *folder,
                              const char *path, char *out, size_t out_bytes,
                              char *why, size_t why_bytes)
{
    char named[PATH_MAX], top[PATH_MAX], real[PATH_MAX];
    size_t n;

    if ((size_t)snprintf(named, sizeof(named), "%s%s%s",
                         (path[0] == '/') ? "" : folder,
                         (path[0] == '/') ? "" : "/", path) >= sizeof(named)) {
        snprintf(why, why_bytes, "the path is too long");
        return BT_ERR_TOO_LARGE;
    }
    if (realpath(folder, top) == NULL) {
        snprintf(why, why_bytes, "%s %s: %m", option, folder);
        return BT_ERR_NOT_FOUND;
    }
    if (realpath(named, real) == NULL) {
        snprintf(why, why_bytes, "%m");
        return BT_ERR_NOT_FOUND;
    }
    n = strlen(top);
    if ((strncmp(real, top, n) != 0) || (n == 1) || (real[n] != '/')) {
        snprintf(why, why_bytes, "it is not below %s %s", option, folder);
        return BT_ERR_INVALID_PARAM;
    }
    if (has_control_bytes(real)) { /* it is printed and logged */
        snprintf(why, why_bytes, "the path has control characters");
        return BT_ERR_INVALID_PARAM;
    }
    if (strlen(real) >= out_bytes) {
        snprintf(why, why_bytes, "the path is too long");
        return BT_ERR_TOO_LARGE;
    }
    memcpy(out, real, strlen(real) + 1);
    return BT_OK;
}

bt_status_t bt_config_adapter_next(const char **rest_io,
                                   bt_config_adapter_t *adapter_p)
{
    const char *const text = (*rest_io != NULL) ? *rest_io : "";
    const size_t n = strcspn(text, ";");
    const char *const equals = memchr(text, '=', n);
    size_t n_name, n_path;

    if (n == 0) {
        return (text[0] == '\0') ? BT_ERR_NOT_FOUND : BT_ERR_INVALID_PARAM;
    }
    n_name = (equals != NULL) ? (size_t)(equals - text) : 0;
    n_path = n - n_name - 1;
    if (!bt_config_is_model_name(text, n_name) || (n_path == 0) ||
        (n_path >= sizeof(adapter_p->path))) {
        return BT_ERR_INVALID_PARAM;
    }
    memcpy(adapter_p->name, text, n_name);
    adapter_p->name[n_name] = '\0';
    memcpy(adapter_p->path, equals + 1, n_path);
    adapter_p->path[n_path] = '\0';
    *rest_io = text + n + ((text[n] == ';') ? 1 : 0);
    return BT_OK;
}

/* Sets options from a model repository, unless a source of higher precedence
 * does. */

static bool is_given(const bt_config_store_t *store, const bt_option_t *option)
{
    return store->sources[option - bt_config_options] > BT_CONFIG_REPOSITORY;
}

bool bt_model_file_is_same(const char *path, const char *other)
{
    struct stat one, two;

    return (strcmp(path, other) == 0) ||
           ((stat(path, &one) == 0) && (stat(other, &two) == 0) &&
            (one.st_dev == two.st_dev) && (one.st_ino == two.st_ino));
}

static bt_status_t set(bt_config_store_t *store,
                       const bt_repo_setting_t *setting)
{
    const bt_option_t *option =
        bt_config_option_find(setting->option, strlen(setting->option));

    BT_ASSERT_ALWAYS(option != NULL); /* a row of the fields' table names it */
    if ((option->type == BT_OPTION_MODELS) &&
        (is_given(store, option) || (store->config.n_models > 0))) {
        /* An additional model does not conflict with the first. */
        if (!bt_model_file_is_same(store->config.model, setting->path)) {
            bt_repository_note(store->repository, BT_REPO_LLM,
                               "parameters.gpt_model_path",
                               "not served: --model names the model");
        }
        return BT_OK;
    }
    return bt_config_store_set(
        store, option, (setting->path != NULL) ? setting->path : setting->value,
        BT_CONFIG_REPOSITORY, setting->where);
}

bt_status_t bt_config_repository_read(bt_config_store_t *store)
{
    const char *dir = store->config.model_repository;
    char why[BT_REPO_WHY_BYTES];
    bt_status_t status;

    if (dir[0] == '\0') {
        return BT_OK;
    }
    status = bt_repository_read(dir, &store->repository, why);
    if (status != BT_OK) {
        bt_config_complain(store, "--model-repository: %s", why);
        return (status == BT_ERR_NO_MEMORY) ? status : BT_ERR_INVALID_PARAM;
    }
    store->config.repository = store->repository;
    for (uint32_t i = 0;
         (status == BT_OK) && (i < store->repository->n_settings); i++) {
        status = set(store, &store->repository->settings[i]);
    }
    return status;
}

#define NAME_BYTES 256

/* A GGUF file, or a folder with a config.json. */
static bool is_model(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    int n;

    if (bt_ends_with(name, ".gguf")) {
        return true;
    }
    n = snprintf(path, sizeof(path), "%s/%s/config.json", dir, name);
    return (n > 0) && ((size_t)n < sizeof(path)) && (stat(path, &st) == 0);
}

/* Finds the model in the folder with the nearest name. */
static bool find_near(const char *dir, const char *word, char near[NAME_BYTES])
{
    BT_CLEANUP(closedir) DIR *const list = opendir(dir);
    size_t best = SIZE_MAX;
    const struct dirent *entry;

    while ((list != NULL) && ((entry = readdir(list)) != NULL)) {
        const size_t distance = bt_fuzzy_distance(
            word, strlen(word), entry->d_name, strlen(entry->d_name));

        if ((distance < best) && (entry->d_name[0] != '.') &&
            is_model(dir, entry->d_name)) {
            best = distance;
            snprintf(near, NAME_BYTES, "%s", entry->d_name);
        }
    }
    return best != SIZE_MAX;
}

/* Bytes of the name of an owner, or of a repository, at text. */
static size_t word_bytes(const char *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789-._";

    return (text[0] == '.') ? 0 : strspn(text, letters);
}

bool bt_model_is_hub_name(const char *text, size_t *repository_bytes_p)
{
    const size_t n_owner = word_bytes(text);
    size_t n;

    if ((n_owner == 0) || (text[n_owner] != '/')) {
        return false;
    }
    n = word_bytes(text + n_owner + 1);
    if ((n == 0) ||
        ((text[n_owner + 1 + n] == '\0') && bt_ends_with(text, ".gguf")) ||
        (strchr(":@", text[n_owner + 1 + n]) == NULL)) {
        return false;
    }
    *repository_bytes_p = n_owner + 1 + n;
    return true;
}

/* Folder of the Hub's own cache. */
static bool cache_folder(char dir[PATH_MAX])
{
    const char *const hub = getenv("HF_HUB_CACHE");
    const char *const hf = getenv("HF_HOME");
    const char *const home = getenv("HOME");
    const int n = (hub != NULL)    ? snprintf(dir, PATH_MAX, "%s", hub)
                  : (hf != NULL)   ? snprintf(dir, PATH_MAX, "%s/hub", hf)
                  : (home != NULL) ? snprintf(dir, PATH_MAX,
                                              "%s/.cache/huggingface/hub", home)
                                   : -1;

    return (n > 0) && (n < PATH_MAX);
}

/* Finds a snapshot of the model in the cache. */
static bool find_cached(const char *name, size_t n_name, char found[PATH_MAX])
{
    BT_CLEANUP(closedir) DIR *list = NULL;
    char hub[PATH_MAX];
    char dir[PATH_MAX];
    const char *const slash = strchr(name, '/');
    const struct dirent *entry;
    bool has = false;
    int n;

    if (!cache_folder(hub)) {
        return false;
    }
    n = snprintf(dir, sizeof(dir), "%s/models--%.*s--%.*s/snapshots", hub,
                 (int)(slash - name), name, (int)(name + n_name - (slash + 1)),
                 slash + 1);
    if ((n < 0) || ((size_t)n >= sizeof(dir))) {
        return false;
    }
    list = opendir(dir);
    while (!has && (list != NULL) && ((entry = readdir(list)) != NULL)) {
        if ((entry->d_name[0] != '.') && is_model(dir, entry->d_name)) {
            n = snprintf(found, PATH_MAX, "%s/%s", dir, entry->d_name);
            has = (n > 0) && (n < PATH_MAX);
        }
    }
    return has;
}

void bt_model_hint(const char *path, char *hint, size_t hint_bytes)
{
    char near[NAME_BYTES] = "";
    char dir[PATH_MAX];
    char found[PATH_MAX];
    const char *const slash = strrchr(path, '/');
    const char *const word = (slash != NULL) ? slash + 1 : path;
    size_t n_repository = 0;
    const bool is_hub_name = bt_model_is_hub_name(path, &n_repository);

    snprintf(dir, sizeof(dir), "%.*s",
             ((slash == NULL) || (slash == path)) ? 1 : (int)(slash - path),
             (slash == NULL) ? "." : path);
    if (find_near(dir, word, near)) {
        snprintf(hint, hint_bytes, "is %s meant, %s?", near,
                 (slash != NULL) ? "beside it" : "which is here");
    } else if (is_hub_name && (path[n_repository] == '\0') &&
               find_cached(path, n_repository, found)) {
        snprintf(hint, hint_bytes,
                 "that model was fetched before: use --model %s", found);
    } else if (is_hub_name) {
        snprintf(hint, hint_bytes,
                 "models of a hub are fetched first: %s pull %s",
                 bt_process_command(), path);
    } else {
        snprintf(hint, hint_bytes,
                 "a model is a GGUF file, or a folder with config.json, "
                 "tokenizer.json and safetensors");
    }
}
