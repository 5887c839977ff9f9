/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/packed/packed_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "inference/packed/packed_store.h"

bt_status_t bt_packed_dir(const char *option, char *dir, size_t dir_bytes)
{
    const char *base = getenv("XDG_CACHE_HOME");
    const char *below = "/baton/weights";
    int n;

    if (strcmp(option, "off") == 0) {
        base = "";
        below = "";
    } else if (strcmp(option, "auto") != 0) {
        base = option;
        below = "";
    } else if ((base == NULL) || (base[0] != '/')) {
        base = getenv("HOME");
        below = "/.cache/baton/weights";
        if ((base == NULL) || (base[0] != '/')) {
            return BT_ERR_NOT_FOUND;
        }
    }
    n = snprintf(dir, dir_bytes, "%s%s", base, below);
    return ((n >= 0) && ((size_t)n < dir_bytes)) ? BT_OK : BT_ERR_TOO_LARGE;
}

int bt_packed_dir_make(const char *dir)
{
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof(path), "%s", dir);

    if ((n <= 0) || ((size_t)n >= sizeof(path))) {
        return (n <= 0) ? ENOENT : ENAMETOOLONG;
    }
    for (char *c = path + 1;; c++) {
        const char was = *c;

        if ((was != '/') && (was != '\0')) {
            continue;
        }
        *c = '\0';
        /* An existing folder may be in one that is not writable. */
        if ((access(path, F_OK) != 0) && (mkdir(path, 0700) != 0) &&
            (errno != EEXIST)) {
            return errno;
        }
        if (was == '\0') {
            return 0;
        }
        *c = was;
    }
}

static int is_ours(const char *name)
{
    static const char *const ends[] = {".packed", ".packed.new"};
    const size_t n = strlen(name);

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        const size_t n_end = strlen(ends[i]);

        if ((n > n_end) && (strcmp(name + n - n_end, ends[i]) == 0)) {
            return 1;
        }
    }
    return 0;
}

void bt_packed_dir_clear(const char *dir, const char *keep, int64_t now_s)
{
    DIR *const stream = opendir(dir);
    const struct dirent *entry;
    struct stat st;

    if (stream == NULL) {
        return;
    }
    while ((entry = readdir(stream)) != NULL) {
        if (!is_ours(entry->d_name) || (strcmp(entry->d_name, keep) == 0) ||
            (fstatat(dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) !=
             0) ||
            !S_ISREG(st.st_mode) ||
            (st.st_mtim.tv_sec > now_s - BT_PACKED_UNUSED_S)) {
            continue;
        }
        if (unlinkat(dirfd(stream), entry->d_name, 0) == 0) {
            BT_LOG_INFO("packed weights %s/%s removed: not used for 30 days",
                        dir, entry->d_name);
        }
    }
    closedir(stream);
}
