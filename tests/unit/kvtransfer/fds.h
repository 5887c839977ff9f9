/* SPDX-License-Identifier: Apache-2.0 */
/** @file fds.h  How many descriptors this process has open, and how many
 *  pieces of shared memory it has mapped. */
#ifndef BT_TESTS_UNIT_KVTRANSFER_FDS_H
#define BT_TESTS_UNIT_KVTRANSFER_FDS_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>

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

/* The own ones and those of peers, whatever made them. */
__attribute__((unused)) static unsigned n_shared_maps(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[1024];
    unsigned n = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        n += (strstr(line, "/dev/shm/") != NULL) ||
             (strstr(line, "/SYSV") != NULL) ||
             (strstr(line, "/memfd:") != NULL);
    }
    fclose(maps);
    return n;
}

#endif
