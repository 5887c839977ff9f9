/* SPDX-License-Identifier: Apache-2.0 */
/** @file alone.h
 *
 * When to say that no router answers: a worker without one looks as if it
 * served, and does not. First after BT_ALONE_FIRST_MS, since routers may come
 * later or start again, then every BT_ALONE_AGAIN_MS.
 *
 * Pure: the time comes in.
 */
#ifndef BT_WORKER_ALONE_H
#define BT_WORKER_ALONE_H

#include <stdbool.h>
#include <stdint.h>

#define BT_ALONE_FIRST_MS 3000u
#define BT_ALONE_AGAIN_MS 30000u

/** Zero-initialise. */
typedef struct bt_alone {
    bool is_alone;     /**< at the last look */
    uint64_t since_ms; /**< that long, then */
    uint64_t said_ms;  /**< when it was said the last time; 0: not yet */
} bt_alone_t;

/** Look once.
 *  @param [in] now_ms  monotonic, above 0
 *  @return for how many seconds it has been alone, when that is to be said now;
 *          else 0 */
uint64_t bt_alone_look(bt_alone_t *alone, bool has_router, uint64_t now_ms);

#endif
