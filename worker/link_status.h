/* SPDX-License-Identifier: Apache-2.0 */
/** @file link_status.h
 *
 * Reports this worker's router links to the launcher, so that the launcher's
 * status shows which router keeps the worker from serving. The report is the
 * line `joined` of launcher/health.h on the readiness descriptor, sent when it
 * changes and at most once in BT_JOINED_EVERY_MS. Active only when
 * BATON_READY_JOINED is set.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_LINK_STATUS_H
#define BT_WORKER_LINK_STATUS_H

#include <stdint.h>

#define BT_JOINED_EVERY_MS   500u
#define BT_JOINED_LINE_BYTES 896 /* BT_READY_WHY_BYTES has room for it */

typedef struct bt_worker bt_worker_t;

/** State of the report. Zero-initialise. */
typedef struct bt_link_status {
    char said[BT_JOINED_LINE_BYTES];
    uint64_t next_ms;
} bt_link_status_t;

/** Sends the line if it has changed. Call about once per heartbeat. Does
 *  nothing before there are links. */
void bt_link_status_send(bt_worker_t *w, uint64_t now_ms);

#endif
