/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config/model_hint.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/process.h"
#include "common/base/text.h"

#define NAME_BYTES 256

static bool ends_in(const char *text, const char *ending)
{
    const size_t n = strlen(text);
    const size_t n_ending = strlen(ending);

    return (n >= n_ending) && (strcmp(text + n - n_ending, ending) == 0);
}

/* A GGUF file, or a folder with a config.json. */
static bool is_model(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    int n;

    if (ends_in(name, ".gguf")) {
        return true;
    }
    n = snprintf(path, sizeof(path), "%s/%s/config.json", dir, name);
    return (n > 0) && ((size_t)n < sizeof(path)) && (stat(path, &st) == 0);
}

/* Finds the model in the folder with the nearest name. */
static bool find_near(const char *dir, const char *word, char near[NAME_BYTES])
{
    DIR *const list = opendir(dir);
    const size_t n_word = strlen(word);
    size_t best = SIZE_MAX;
    const struct dirent *entry;

    while ((list != NULL) && ((entry = readdir(list)) != NULL)) {
        const size_t n = strlen(entry->d_name);
        size_t distance;

        if ((entry->d_name[0] == '.') || (n > BT_FUZZY_MAX_BYTES) ||
            (n_word > BT_FUZZY_MAX_BYTES) || !is_model(dir, entry->d_name)) {
            continue;
        }
        distance = bt_edit_distance(word, n_word, entry->d_name, n);
        if ((distance < best) && bt_fuzzy_is_close(distance, n)) {
            best = distance;
            snprintf(near, NAME_BYTES, "%s", entry->d_name);
        }
    }
    if (list != NULL) {
        closedir(list);
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
        ((text[n_owner + 1 + n] == '\0') && ends_in(text, ".gguf")) ||
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
    char hub[PATH_MAX];
    char dir[PATH_MAX];
    const char *const slash = strchr(name, '/');
    const struct dirent *entry;
    bool has = false;
    DIR *list;
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
    if (list != NULL) {
        closedir(list);
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
