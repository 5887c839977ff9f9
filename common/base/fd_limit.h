/* SPDX-License-Identifier: Apache-2.0 */
/** @file fd_limit.h  How many descriptors this process holds, for its metrics
 * and for tests of leaks, and how many it may have. */
#ifndef BT_COMMON_BASE_FD_LIMIT_H
#define BT_COMMON_BASE_FD_LIMIT_H

#include <stdint.h>

/** @return entries of /proc/self/fd, or 0 where there is none. */
uint32_t bt_count_open_fds(void);

/** Raise the soft limit of descriptors to the hard one.
 *  @return the limit from now on; 0: it cannot be read */
uint64_t bt_raise_open_fds(void);

#endif
