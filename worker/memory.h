/* SPDX-License-Identifier: Apache-2.0 */
/** @file memory.h  Memory available for a model and its KV pool. */
#ifndef BT_WORKER_MEMORY_H
#define BT_WORKER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/** Memory available for a model and its KV pool, in bytes. The pool lies in the
 *  back end's memory: the host's, or the device's own. */
typedef struct bt_memory_room {
    uint64_t available_bytes; /**< free host memory */
    uint64_t limit_bytes;     /**< cgroup memory limit, if there is one */
    const char
        *limit_by; /**< source of limit_bytes; NULL or "": there is none */
    uint64_t model_bytes; /**< host memory that the model takes */
    bool own_memory; /**< the back end has memory of its own; the next three
                        fields apply */
    uint64_t device_available_bytes;
    uint64_t device_model_bytes;
    uint64_t device_later_bytes; /**< reserved for libraries and graphs */
    uint32_t percent; /**< share of the remaining memory for the pool; 0: a
                         quarter */
} bt_memory_room_t;

/** Returns the default size of the KV pool: a share of the memory left after
 *  the model. Of host memory at most a quarter and 1 GiB, since other processes
 *  need it too. */
uint64_t bt_memory_pool(const bt_memory_room_t *room);

/** Checks that the memory holds the model and a pool of @a pool_bytes.
 *  @param [out] why  On failure: what is missing, and where.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_memory_check(const bt_memory_room_t *room,
                                          uint64_t pool_bytes, char *why,
                                          size_t why_bytes);

#endif
