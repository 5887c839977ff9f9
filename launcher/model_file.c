/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/cleanup.h"
#include "common/config/model_hint.h"

bt_status_t bt_model_file_check(const char *path, char *why, size_t why_bytes)
{
    /* Not to hang on a pipe with that name. */
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

bool bt_model_file_is_same(const char *path, const char *other)
{
    struct stat one;
    struct stat two;

    return (strcmp(path, other) == 0) ||
           ((stat(path, &one) == 0) && (stat(other, &two) == 0) &&
            (one.st_dev == two.st_dev) && (one.st_ino == two.st_ino));
}
