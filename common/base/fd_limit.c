/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/fd_limit.h"

#include <dirent.h>
#include <stddef.h>
#include <sys/resource.h>

uint32_t bt_count_open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    uint32_t n = 0;

    if (dir == NULL) {
        return 0;
    }
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n - 3; /* ".", ".." and the directory's own descriptor */
}

uint64_t bt_raise_open_fds(void)
{
    struct rlimit limit = {0};
    uint64_t n;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 0;
    }
    n = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0) {
        n = limit.rlim_cur;
    }
    return n;
}
