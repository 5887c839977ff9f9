/* SPDX-License-Identifier: Apache-2.0 */
/** @file no_router_warning.h
 *
 * Decides when to log that a worker has no router. A worker without a router
 * looks healthy but serves nothing. The first message is due after
 * BT_ALONE_FIRST_MS, since routers may start later or restart; more follow
 * every BT_ALONE_AGAIN_MS.
 *
 * Pure: the caller passes the time.
 */
#ifndef BT_WORKER_NO_ROUTER_WARNING_H
#define BT_WORKER_NO_ROUTER_WARNING_H

#include <stdbool.h>
#include <stdint.h>

#define BT_ALONE_FIRST_MS 3000u
#define BT_ALONE_AGAIN_MS 30000u

/** State of the check. Zero-initialise. */
typedef struct bt_no_router_warning {
    bool is_alone;     /**< no router at the last look */
    uint64_t since_ms; /**< start of the time without a router */
    uint64_t said_ms;  /**< when the last message was due; 0: none yet */
} bt_no_router_warning_t;

/** Checks once whether a message is due.
 *  @param [in] now_ms  monotonic, above 0
 *  @return seconds without a router if a message is due now, else 0 */
uint64_t bt_no_router_warning_check(bt_no_router_warning_t *alone,
                                    bool has_router, uint64_t now_ms);

#endif
