/* SPDX-License-Identifier: Apache-2.0 */
/** @file fd_limit.h
 *
 * Open file descriptors of this process, for its metrics and for leak tests,
 * and their limit.
 */
#ifndef BT_COMMON_BASE_FD_LIMIT_H
#define BT_COMMON_BASE_FD_LIMIT_H

#include <stdint.h>

/** Returns the number of entries of /proc/self/fd, or 0 where there is none. */
uint32_t bt_count_open_fds(void);

/**
 * Raises the soft limit of descriptors to the hard one.
 * @return the new limit; 0: unreadable
 */
uint64_t bt_raise_open_fds(void);

#endif
