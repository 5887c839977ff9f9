/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/cleanup.h"
#include "common/config/model_hint.h"

/* trtllm-build writes rank0.engine beside a config.json. */
static bool is_engine(int fd, const struct stat *info, const char *path)
{
    const size_t n = strlen(path);
    static const char suffix[] = ".engine";

    if (S_ISDIR(info->st_mode)) {
        return faccessat(fd, "rank0.engine", F_OK, 0) == 0;
    }
    return (n > sizeof(suffix)) &&
           (strcmp(path + n - (sizeof(suffix) - 1), suffix) == 0);
}

bt_status_t bt_model_file_check(const char *path, char *why, size_t why_bytes)
{
    /* Do not hang on a pipe of that name. */
    BT_CLEANUP(close)
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;

    if ((fd < 0) && ((errno == ENOENT) || (errno == ENOTDIR))) {
        snprintf(why, why_bytes, "cannot open the model %s: %m; ", path);
        bt_model_hint(path, why + strlen(why), why_bytes - strlen(why));
        return BT_ERR_IO;
    }
    if ((fd < 0) || (fstat(fd, &info) != 0)) {
        snprintf(why, why_bytes, "cannot open the model %s: %m", path);
        return BT_ERR_IO;
    }
    if (is_engine(fd, &info, path)) {
        snprintf(why, why_bytes,
                 "%s is an engine of TensorRT, which is not served; a GGUF "
                 "file or the folder of Hugging Face that it was built from is",
                 path);
        return BT_ERR_IO;
    }
    if (S_ISDIR(info.st_mode) && (faccessat(fd, "config.json", R_OK, 0) != 0)) {
        snprintf(why, why_bytes,
                 "the model %s is a folder without a config.json, so not a "
                 "model's",
                 path);
        return BT_ERR_IO;
    }
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
        snprintf(why, why_bytes, "the model %s is neither a file nor a folder",
                 path);
        return BT_ERR_IO;
    }
    return BT_OK;
}

void bt_model_file_origin(const bt_config_t *config, const char *path,
                          char *out, size_t out_bytes)
{
    const bt_repository_t *repository = config->repository;
    const char *named =
        (repository != NULL)
            ? bt_repo_parameter(&repository->models[BT_REPO_LLM],
                                "gpt_model_path")
            : NULL;

    out[0] = '\0';
    if ((named != NULL) && (strcmp(named, path) == 0)) {
        snprintf(out, out_bytes,
                 " (gpt_model_path, fill_template's engine_dir, of "
                 "%s/tensorrt_llm/config.pbtxt says so: --model PATH names "
                 "the model that is served)",
                 config->model_repository);
    }
}

bool bt_model_file_is_same(const char *path, const char *other)
{
    struct stat one;
    struct stat two;

    return (strcmp(path, other) == 0) ||
           ((stat(path, &one) == 0) && (stat(other, &two) == 0) &&
            (one.st_dev == two.st_dev) && (one.st_ino == two.st_ino));
}
