/* SPDX-License-Identifier: Apache-2.0 */
/** @file routers.h
 *
 * A worker's routers.
 *
 * Joining: the routers of --join always, and the routers of the directory of
 * --join-dir, as their files appear and disappear.
 *
 *     file appears ─▶ joined ─▶ file and link are both gone ─▶ left
 *
 * A file that disappears closes no link: its router may be shutting down with
 * requests left.
 *
 * A worker without a router looks healthy but serves nothing, so that is
 * logged after BT_ALONE_FIRST_MS (routers may start later or restart) and
 * every BT_ALONE_AGAIN_MS after it.
 *
 * The launcher's status shows which router keeps the worker from serving: the
 * line `joined` of launcher/health.h on the readiness descriptor, sent when it
 * changes and at most once in BT_JOINED_EVERY_MS, if BATON_READY_JOINED is set.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_ROUTERS_H
#define BT_WORKER_ROUTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_worker bt_worker_t;
typedef struct bt_membership bt_membership_t;

/** Begins watching --join-dir, if given. @retval BT_ERR_NO_MEMORY (logged) */
BT_MUST_CHECK bt_status_t bt_membership_open(bt_worker_t *w);
/** Joins and leaves routers; free of cost while nothing changes. */
void bt_membership_tick(bt_worker_t *w);
void bt_membership_close(bt_worker_t *w);

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

#define BT_JOINED_EVERY_MS   500u
#define BT_JOINED_LINE_BYTES 896 /* BT_READY_WHY_BYTES has room for it */

/** State of the report. Zero-initialise. */
typedef struct bt_link_status {
    char said[BT_JOINED_LINE_BYTES];
    uint64_t next_ms;
} bt_link_status_t;

/** Sends the line if it has changed. Call about once per heartbeat. Does
 *  nothing before there are links. */
void bt_link_status_send(bt_worker_t *w, uint64_t now_ms);

#endif
