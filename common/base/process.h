/* SPDX-License-Identifier: Apache-2.0 */
/** @file process.h
 *
 * What this process has used of the machine so far, for its own figures. Each
 * call is one or two system calls: once per heartbeat, not per request.
 */
#ifndef BT_COMMON_BASE_PROCESS_H
#define BT_COMMON_BASE_PROCESS_H

#include <stdint.h>

typedef struct bt_process_use {
    uint64_t cpu_ms; /**< user and system time of all threads */
    uint64_t resident_bytes;
} bt_process_use_t;

/** A figure that the system does not tell is 0. */
bt_process_use_t bt_process_use(void);

#endif
