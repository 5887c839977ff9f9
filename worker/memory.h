/* SPDX-License-Identifier: Apache-2.0 */
/** @file memory.h  What a model and its KV pool may take of the memory. */
#ifndef BT_WORKER_MEMORY_H
#define BT_WORKER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/** What there is for a model and its KV pool, which lies where the back end's
 *  memory is: the host's, or its own. Bytes. */
typedef struct bt_memory_room {
    uint64_t available_bytes; /**< of the host */
    uint64_t limit_bytes;     /**< where a cgroup bounds that: of how many... */
    const char *limit_by;     /**< ...and what says so; NULL or "": none does */
    uint64_t model_bytes;     /**< what the model takes of that */
    bool own_memory;          /**< of the back end; the next three are its */
    uint64_t device_available_bytes;
    uint64_t device_model_bytes;
    uint64_t device_later_bytes; /**< left for libraries and graphs */
    uint32_t percent; /**< of what is left, for the pool; 0: a quarter */
} bt_memory_room_t;

/** Default size of the KV pool: a share of what is left after the model where
 *  the pool lies; of the host's memory a quarter and 1 GiB at most, for others
 *  need it too. */
uint64_t bt_memory_pool(const bt_memory_room_t *room);

/** Does it hold the model and a pool of so many bytes?
 *  @param [out] why  On failure what is missing, and where.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_memory_check(const bt_memory_room_t *room,
                                          uint64_t pool_bytes, char *why,
                                          size_t why_bytes);

#endif
