/* SPDX-License-Identifier: Apache-2.0 */
/** @file free_memory.h  How much memory this process may still take. */
#ifndef BT_COMMON_BASE_FREE_MEMORY_H
#define BT_COMMON_BASE_FREE_MEMORY_H

#include <stdint.h>

/** Bytes: the smaller of the machine's MemAvailable and what the cgroup
 *  leaves. UINT64_MAX when neither can be read. */
uint64_t bt_memory_available(void);

/** What the limit of the cgroup at @a dir (version 2) leaves, its pages of
 *  files counted as free. UINT64_MAX: there is no limit, or no such cgroup. */
uint64_t bt_memory_cgroup_left(const char *dir);

#endif
