/* SPDX-License-Identifier: Apache-2.0 */
/** @file cleanup.h
 *
 * BT_CLEANUP(free|close) for resources that do not outlive the function.
 */
#ifndef BT_COMMON_BASE_CLEANUP_H
#define BT_COMMON_BASE_CLEANUP_H

#include <unistd.h>

#include "common/base/alloc.h"

static inline void bt_cleanup_free(void *ptr_p)
{
    bt_free(*(void **)ptr_p);
}

static inline void bt_cleanup_close(const int *fd_p)
{
    if (*fd_p >= 0) {
        close(*fd_p);
    }
}

#define BT_CLEANUP(what) __attribute__((cleanup(bt_cleanup_##what)))

#endif
