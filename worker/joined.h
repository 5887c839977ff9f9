/* SPDX-License-Identifier: Apache-2.0 */
/** @file joined.h
 *
 * What a launcher is told of this worker's links, so that who looks at its
 * status sees who keeps it from serving: the line `joined` of launcher/ready.h,
 * on the readiness descriptor, when it is another than the last one and no more
 * often than once in BT_JOINED_EVERY_MS. Only where BATON_READY_JOINED is set.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_JOINED_H
#define BT_WORKER_JOINED_H

#include <stdint.h>

#define BT_JOINED_EVERY_MS   500u
#define BT_JOINED_LINE_BYTES 896 /* BT_READY_WHY_BYTES has room for it */

typedef struct bt_worker bt_worker_t;

/** Zero-initialise. */
typedef struct bt_joined {
    char said[BT_JOINED_LINE_BYTES];
    uint64_t next_ms;
} bt_joined_t;

/** Look, and tell; call every heartbeat or so. Does nothing before there are
 *  links to be had. */
void bt_joined_tell(bt_worker_t *w, uint64_t now_ms);

#endif
