/* SPDX-License-Identifier: Apache-2.0 */
#include "common/repository/repository.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files.h"

#define FILE_NAME "config.pbtxt"

/* ---- the folders ---- */

/* @retval BT_ERR_NOT_FOUND  there is no such file */
static bt_status_t read_file(const char *path, char **text_p, size_t *n_p,
                             char why[BT_REPO_WHY_BYTES])
{
    BT_CLEANUP(close) const int fd = open(path, O_RDONLY | O_CLOEXEC);
    bt_status_t status;
    char *text;

    if (fd < 0) {
        snprintf(why, BT_REPO_WHY_BYTES, "cannot open %.600s: %m", path);
        return ((errno == ENOENT) || (errno == ENOTDIR)) ? BT_ERR_NOT_FOUND
                                                         : BT_ERR_IO;
    }
    text = bt_calloc(BT_PBTXT_MAX_BYTES + 1, 1);
    if (text == NULL) {
        snprintf(why, BT_REPO_WHY_BYTES, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    status = bt_read_file(fd, text, BT_PBTXT_MAX_BYTES, n_p);
    if (status != BT_OK) {
        snprintf(why, BT_REPO_WHY_BYTES, "cannot read %.600s: %m", path);
    } else if (*n_p > BT_PBTXT_MAX_BYTES) {
        snprintf(why, BT_REPO_WHY_BYTES, "%.600s is longer than %u bytes", path,
                 BT_PBTXT_MAX_BYTES);
        status = BT_ERR_TOO_LARGE;
    }
    if (status != BT_OK) {
        bt_free(text);
        return status;
    }
    *text_p = text;
    return BT_OK;
}

static bt_status_t read_model(bt_repository_t *repository, const char *dir,
                              uint32_t index, char why[BT_REPO_WHY_BYTES])
{
    char path[4096];
    char *text = NULL;
    size_t n = 0;
    bt_status_t status;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s/" FILE_NAME, dir,
                         bt_repo_names[index]) >= sizeof(path)) {
        snprintf(why, BT_REPO_WHY_BYTES, "the path is too long");
        return BT_ERR_TOO_LARGE;
    }
    status = read_file(path, &text, &n, why);
    if (status == BT_OK) {
        status = bt_repository_take(repository, index, path, text, n, why);
    }
    bt_free(text);
    return status;
}

static bool is_other(int dir_fd, const char *name)
{
    struct stat info;

    return !bt_repo_is_name(name) && (name[0] != '.') &&
           (fstatat(dir_fd, name, &info, 0) == 0) && S_ISDIR(info.st_mode);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Folders beside the five, in alphabetical order; none if the folder cannot
 * be listed. */
static void list_others(const char *dir, char others[BT_REPO_OTHERS_BYTES])
{
    BT_CLEANUP(close) const int fd = open(dir, O_RDONLY | O_DIRECTORY);
    struct dirent **entries = NULL;
    const int n = (fd < 0) ? 0 : scandir(dir, &entries, NULL, by_name);
    size_t used = 0;

    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;

        if (is_other(fd, name) && (used < BT_REPO_OTHERS_BYTES)) {
            used += (size_t)snprintf(others + used, BT_REPO_OTHERS_BYTES - used,
                                     "%s%s", (used > 0) ? ", " : "", name);
        }
        free(entries[i]);
    }
    free(entries);
}

static bool is_cloud(const char *dir)
{
    static const char *const schemes[] = {"s3://", "gs://", "as://"};

    for (size_t i = 0; i < BT_ARRAY_LEN(schemes); i++) {
        if (strncasecmp(dir, schemes[i], strlen(schemes[i])) == 0) {
            return true;
        }
    }
    return false;
}

bt_status_t bt_repository_read(const char *dir, bt_repository_t **repository_p,
                               char why[BT_REPO_WHY_BYTES])
{
    bt_repository_t *repository;
    bt_status_t status = BT_OK;
    uint32_t n = 0;

    if (is_cloud(dir)) {
        snprintf(why, BT_REPO_WHY_BYTES,
                 "%.200s: cloud stores (s3, gs, as) are not read; copy the "
                 "repository to a folder",
                 dir);
        return BT_ERR_UNSUPPORTED;
    }
    repository = bt_calloc(1, sizeof(*repository));
    if (repository == NULL) {
        snprintf(why, BT_REPO_WHY_BYTES, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < BT_REPO_N_MODELS); i++) {
        status = read_model(repository, dir, i, why);
        n += (status == BT_OK) ? 1 : 0;
        if (status == BT_ERR_NOT_FOUND) {
            status = BT_OK;
        }
    }
    if ((status == BT_OK) && (n == 0)) {
        snprintf(why, BT_REPO_WHY_BYTES,
                 "%.200s: there is no config.pbtxt of preprocessing, "
                 "tensorrt_llm, postprocessing, ensemble or tensorrt_llm_bls",
                 dir);
        status = BT_ERR_NOT_FOUND;
    }
    if (status != BT_OK) {
        bt_repository_destroy(repository);
        return status;
    }
    list_others(dir, repository->others);
    *repository_p = repository;
    return BT_OK;
}

void bt_repo_model_fini(bt_repo_model_t *model)
{
    for (uint32_t i = 0; (model->steps != NULL) && (i < model->n_steps); i++) {
        bt_free(model->steps[i].inputs);
        bt_free(model->steps[i].outputs);
    }
    bt_free(model->steps);
    bt_free(model->instances);
    bt_free(model->text);
    bt_free(model->parameters);
    bt_free(model->outputs);
    bt_free(model->inputs);
    *model = (bt_repo_model_t){0};
}

void bt_repository_destroy(bt_repository_t *repository)
{
    if (repository == NULL) {
        return;
    }
    for (uint32_t i = 0; i < BT_REPO_N_MODELS; i++) {
        bt_repo_model_fini(&repository->models[i]);
        bt_pbtxt_fini(&repository->trees[i]);
    }
    bt_free(repository);
}

const char *bt_repo_parameter(const bt_repo_model_t *model, const char *key)
{
    for (uint32_t i = 0; i < model->n_parameters; i++) {
        const bt_repo_pair_t *pair = &model->parameters[i];

        if (strcmp(pair->key, key) == 0) {
            return ((pair->value[0] == '\0') ||
                    (strstr(pair->value, "${") != NULL))
                       ? NULL
                       : pair->value;
        }
    }
    return NULL;
}
