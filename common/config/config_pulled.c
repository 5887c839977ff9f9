/* SPDX-License-Identifier: Apache-2.0 */
/* Folder of models: `--model NAME` of one that ./baton pull fetched or a
 * user put there, and `--model OWNER/REPO[:FILE]` of the former.
 * tools/cli/model_store.py writes it and has equal rules;
 * tests/support/model_folder.txt tests both. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files.h"
#include "common/base/json_doc.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "common/config/config_options.h"

#define SUFFIX         ".gguf"
#define FIRST_PART     "-00001-of-"
#define MANIFEST       ".baton.json"
#define MANIFEST_BYTES (16u << 20)

static bool ends_with_suffix(const char *name)
{
    const size_t n = strlen(name);

    return (n > strlen(SUFFIX)) &&
           (strcasecmp(name + n - strlen(SUFFIX), SUFFIX) == 0);
}

/* Hidden files are no models, and names that begin with a dash are options. */
static bool is_name(const char *text)
{
    return bt_config_is_model_name(text, strlen(text)) && (text[0] != '.') &&
           (text[0] != '-') && !ends_with_suffix(text);
}

static bool is_file(const char *path)
{
    struct stat info;

    return (stat(path, &info) == 0) && S_ISREG(info.st_mode);
}

/* @return false: longer than any path */
static bool join(char out[PATH_MAX], const char *dir, const char *name,
                 const char *suffix)
{
    const int n = snprintf(out, PATH_MAX, "%s/%s%s", dir, name, suffix);

    return (n > 0) && (n < PATH_MAX);
}

/* @retval BT_ERR_NOT_FOUND  Nothing says where the home is. */
static bt_status_t models_dir(const char *option, char out[PATH_MAX])
{
    const char *base = getenv("XDG_CACHE_HOME");
    const char *below = "/baton";
    int n;

    if (option[0] != '\0') {
        base = option;
        below = "";
    } else if ((base == NULL) || (base[0] != '/')) {
        base = getenv("HOME");
        below = "/.cache/baton";
        if ((base == NULL) || (base[0] != '/')) {
            return BT_ERR_NOT_FOUND;
        }
    }
    n = snprintf(out, PATH_MAX, "%s%s", base, below);
    return ((n > 0) && (n < PATH_MAX)) ? BT_OK : BT_ERR_TOO_LARGE;
}

/* Model of a folder: its only GGUF file, the first of the parts of one, or
 * else the folder itself, if it is one of the Hugging Face Hub. */
static bool find_in_folder(const char *folder, char path[PATH_MAX])
{
    char last[PATH_MAX] = "";
    char first[PATH_MAX] = "";
    uint32_t n_files = 0, n_firsts = 0;
    BT_CLEANUP(closedir) DIR *const dir = opendir(folder);
    const struct dirent *entry;
    char one[PATH_MAX];

    if (dir == NULL) {
        return false;
    }
    while ((entry = readdir(dir)) != NULL) {
        if ((entry->d_name[0] == '.') || !ends_with_suffix(entry->d_name) ||
            !join(one, folder, entry->d_name, "") || !is_file(one)) {
            continue;
        }
        memcpy(last, one, sizeof(last));
        n_files++;
        if (strstr(entry->d_name, FIRST_PART) != NULL) {
            memcpy(first, one, sizeof(first));
            n_firsts++;
        }
    }
    if ((n_files == 1) || (n_firsts == 1)) {
        memcpy(path, (n_firsts == 1) ? first : last, PATH_MAX);
        return true;
    }
    if ((n_files == 0) && join(one, folder, "config.json", "") &&
        is_file(one)) {
        memcpy(path, folder, strlen(folder) + 1);
        return true;
    }
    return false;
}

static bool find_in(const char *dir, const char *name, char path[PATH_MAX])
{
    char folder[PATH_MAX];

    return is_name(name) &&
           ((join(path, dir, name, SUFFIX) && is_file(path)) ||
            (join(folder, dir, name, "") && find_in_folder(folder, path)));
}

/* True when the metadata that ./baton pull wrote into this folder names this
 * source. Case-insensitive. Unreadable metadata does not match. */
static bool came_from(const char *folder, const char *source)
{
    BT_CLEANUP(free) char *text = bt_calloc(MANIFEST_BYTES + 1, 1);
    bt_json_doc_t *doc = NULL;
    const bt_json_node_t *said;
    char path[PATH_MAX];
    char why[128];
    bool is_it;
    size_t n = 0;

    if ((text == NULL) || !join(path, folder, MANIFEST, "")) {
        return false;
    }
    {
        BT_CLEANUP(close)
        const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

        if ((fd < 0) || !is_file(path) ||
            (bt_read_file(fd, text, MANIFEST_BYTES, &n) != BT_OK) ||
            (n > MANIFEST_BYTES) ||
            (bt_json_doc_parse(text, n, why, sizeof(why), &doc) != BT_OK)) {
            return false;
        }
    }
    said = bt_json_get(doc, bt_json_doc_root(doc), "source");
    is_it = (said != NULL) && (said->kind == BT_JSON_STRING) &&
            (said->len == strlen(source)) &&
            (strncasecmp(said->text, source, said->len) == 0);
    bt_json_doc_free(doc);
    return is_it;
}

/* Finds the first by name of the models that came from there. */
static bool find_by_source(const char *dir_path, const char *source,
                           char path[PATH_MAX],
                           char name[BT_CONFIG_MODEL_NAME_BYTES])
{
    BT_CLEANUP(closedir) DIR *const dir = opendir(dir_path);
    const struct dirent *entry;
    bool found = false;

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        const char *const here = entry->d_name;
        char folder[PATH_MAX];
        char one[PATH_MAX];

        if (!is_name(here) || (found && (strcmp(here, name) >= 0)) ||
            !join(folder, dir_path, here, "") || !came_from(folder, source) ||
            !find_in_folder(folder, one)) {
            continue;
        }
        memcpy(path, one, sizeof(one));
        memcpy(name, here, strlen(here) + 1);
        found = true;
    }
    return found;
}

/* @param [out] name_out Name in the folder. */
static bt_status_t find(const char *models_dir_option, const char *word,
                        char name_out[BT_CONFIG_MODEL_NAME_BYTES],
                        char **path_p)
{
    char dir[PATH_MAX];
    char path[PATH_MAX];
    bt_status_t status = models_dir(models_dir_option, dir);
    size_t n_repository;
    char *copy;

    if (status != BT_OK) {
        return status;
    }
    if (find_in(dir, word, path)) {
        memcpy(name_out, word, strlen(word) + 1);
    } else if (!bt_model_is_hub_name(word, &n_repository) ||
               !find_by_source(dir, word, path, name_out)) {
        return BT_ERR_NOT_FOUND;
    }
    copy = bt_strdup(path);
    if (copy == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    *path_p = copy;
    return BT_OK;
}

bt_status_t bt_config_pulled_find(const char *models_dir_option,
                                  const char *word, char **path_p)
{
    char name[BT_CONFIG_MODEL_NAME_BYTES];

    return find(models_dir_option, word, name, path_p);
}

/* The name of the folder's that is nearest to @a word, "" if none is near. */
static void nearest(const char *dir_path, const char *word,
                    char out[BT_CONFIG_MODEL_NAME_BYTES])
{
    BT_CLEANUP(closedir) DIR *const dir = opendir(dir_path);
    const struct dirent *entry;
    size_t least = SIZE_MAX;

    out[0] = '\0';
    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        size_t n = strlen(entry->d_name);
        char name[BT_CONFIG_MODEL_NAME_BYTES];
        char path[PATH_MAX];
        size_t distance;

        n -= ends_with_suffix(entry->d_name) ? strlen(SUFFIX) : 0;
        if (n >= sizeof(name)) {
            continue;
        }
        memcpy(name, entry->d_name, n);
        name[n] = '\0';
        distance = bt_fuzzy_distance(word, strlen(word), name, n);
        if ((distance < least) && find_in(dir_path, name, path)) {
            least = distance;
            memcpy(out, name, n + 1);
        }
    }
}

/* Writes "; did you mean X?" from the folder, or "". An obvious path matches
 * none: *is_path_p. */
static void near_text(const char *models_dir_option, const char *word,
                      char *out, size_t out_bytes, bool *is_path_p)
{
    char near[BT_CONFIG_MODEL_NAME_BYTES] = "";
    char dir[PATH_MAX];

    out[0] = '\0';
    *is_path_p = (access(word, F_OK) == 0) || (word[0] == '/') ||
                 (word[0] == '.') || ends_with_suffix(word);
    if (!*is_path_p && (models_dir(models_dir_option, dir) == BT_OK)) {
        nearest(dir, word, near);
    }
    if (near[0] != '\0') {
        snprintf(out, out_bytes, "; did you mean %s?", near);
    }
}

void bt_config_pulled_hint(const char *models_dir_option, const char *word,
                           char *out, size_t out_bytes)
{
    size_t n_repository;
    bool is_path;

    near_text(models_dir_option, word, out, out_bytes, &is_path);
    if (bt_model_is_hub_name(word, &n_repository)) {
        out[0] = '\0'; /* see bt_model_hint() */
    } else if (!is_path && (out[0] == '\0')) {
        snprintf(out, out_bytes,
                 "; %s list shows the models that are here, %s pull "
                 "fetches others",
                 bt_process_command(), bt_process_command());
    }
}

bt_status_t bt_config_pulled_resolve(bt_config_store_t *store)
{
    bt_config_t *const c = &store->config;
    char hint[BT_CONFIG_HINT_BYTES];

    for (uint32_t i = 0; i < c->n_models; i++) {
        bt_config_model_t *const model = &c->models[i];
        bt_status_t status;
        size_t n_repository;
        bool is_path;

        if (access(model->path, F_OK) == 0) {
            continue;
        }
        status = find(c->models_dir, model->path, store->pulled_names[i],
                      &store->pulled[i]);
        if (status == BT_ERR_NO_MEMORY) {
            return status;
        }
        if (status == BT_OK) {
            model->pulled = store->pulled_names[i];
            model->path = store->pulled[i];
        } else if (store->words[i]) {
            near_text(c->models_dir, model->path, hint, sizeof(hint), &is_path);
            if (!is_path && bt_model_is_hub_name(model->path, &n_repository)) {
                snprintf(hint, sizeof(hint), "; %s pull %s fetches it",
                         bt_process_command(), model->path);
            }
            bt_config_complain(store,
                               "unexpected argument '%s': there is no such "
                               "model file, and options start with --%s",
                               model->path, hint);
            status = bt_config_go_on(store, BT_ERR_INVALID_PARAM);
            if (status != BT_OK) {
                return status;
            }
        }
    }
    c->model = (c->n_models > 0) ? c->models[0].path : "";
    return BT_OK;
}
