/* SPDX-License-Identifier: Apache-2.0 */
/** @file fds.h  How many descriptors this process has open. */
#ifndef BT_TESTS_UNIT_KVTRANSFER_FDS_H
#define BT_TESTS_UNIT_KVTRANSFER_FDS_H

#include <dirent.h>

#include "tests/support/testsupport.h"

__attribute__((unused)) static unsigned n_open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n;
}

#endif
