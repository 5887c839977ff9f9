/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/openfds.h"

#include <dirent.h>
#include <stddef.h>

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
