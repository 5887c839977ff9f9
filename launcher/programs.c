/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/programs.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/config/config.h"
#include "launcher/build.h"

static const char *build_folder(unsigned program)
{
    return (program == BT_PROG_ROUTER) ? "router" : "worker_main";
}

bt_status_t bt_program_path(const char *libexec, unsigned program, char *out,
                            size_t bytes)
{
    return bt_program_path_named(libexec, bt_config_program_name(program),
                                 build_folder(program), out, bytes);
}

bt_status_t bt_program_path_named(const char *libexec, const char *name,
                                  const char *folder, char *out, size_t bytes)
{
    static const char installed[] = BT_BUILD_LIBEXEC;
    const bool is_absolute = (installed[0] == '/');
    char own[BT_PROGRAM_PATH_BYTES];
    ssize_t n;
    char *slash;
    int wrote;

    if (libexec != NULL) {
        wrote = snprintf(out, bytes, "%s/%s", libexec, name);
        return ((size_t)wrote < bytes) ? BT_OK : BT_ERR_TOO_LARGE;
    }

    n = readlink("/proc/self/exe", own, sizeof(own) - 1);
    if (n <= 0) {
        BT_LOG_ERROR("cannot read /proc/self/exe: %m");
        return BT_ERR_IO;
    }
    own[n] = '\0';
    slash = strrchr(own, '/');
    if (slash == NULL) {
        BT_LOG_ERROR("this program's own path %s has no directory", own);
        return BT_ERR_IO;
    }
    *slash = '\0';
    wrote = snprintf(out, bytes, "%s/%s", own, name);
    if (((size_t)wrote < bytes) && (access(out, X_OK) == 0)) {
        return BT_OK;
    }
    wrote = is_absolute
                ? snprintf(out, bytes, "%s/%s", installed, name)
                : snprintf(out, bytes, "%s/%s/%s", own, installed, name);
    if (((size_t)wrote < bytes) && (access(out, X_OK) == 0)) {
        return BT_OK;
    }
    wrote = snprintf(out, bytes, "%s/../%s/%s", own, folder, name);
    return ((size_t)wrote < bytes) ? BT_OK : BT_ERR_TOO_LARGE;
}
