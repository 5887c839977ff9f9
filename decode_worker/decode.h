/* SPDX-License-Identifier: Apache-2.0 */
/** @file decode.h
 *
 * The decode worker: admission, leases, generation with in-flight batching.
 *
 *     queued ─ seat and blocks ─▶ granted ─ manifest proven ─▶ running ─▶ end
 *                                    │ (window open: KV arrives)
 *                                    └─ revoked ─▶ quarantine ─▶ end
 *
 * A grant reserves a seat and every block that the sequence can ever need, or
 * nothing, so a running sequence never waits and is never preempted. Grants are
 * given by priority and age while the prefill goes on.
 *
 * With --local-prefill the same worker also runs the context phase of requests
 * that the router sends it alone (LOCAL): no transfer, the same bytes.
 */
#ifndef BT_DECODE_WORKER_DECODE_H
#define BT_DECODE_WORKER_DECODE_H

#include "worker/worker.h"

typedef struct bt_decode {
    bt_list_t queue;   /**< waits for a seat and blocks */
    uint32_t n_seats;  /**< taken: granted or running */
    uint64_t lease_id; /**< last one given */
    uint32_t n_leases; /**< open windows */
    uint32_t quarantined_blocks;
    bt_kvt_extent_t *extents; /**< scratch, one per block of the pool */
    uint8_t *desc;            /**< scratch for a window descriptor */
} bt_decode_t;

typedef struct bt_decode_job {
    bt_job_t job; /**< first */
    bool has_seat;
    bool closing;     /**< its window was closed by us */
    bool quarantined; /**< its blocks count as such until WINDOW_CLOSED */
    bt_kvt_window_t *window; /**< open or closing */
    uint64_t granted_us;
} bt_decode_job_t;

extern const bt_worker_ops_t bt_decode_ops;

/* admission.c */

/** Give grants in order until the next one does not fit. */
void bt_decode_admit(bt_worker_t *w);
/** Its place in the batch is free; harmless when repeated. */
void bt_decode_leave_seat(bt_decode_t *state, bt_decode_job_t *dj);
/** Close the job's window, if it has one; WINDOW_CLOSED follows. */
void bt_decode_close_window(bt_decode_job_t *dj);
void bt_decode_on_kvt(bt_worker_t *w, const bt_kvt_event_t *event);
/** End the job once neither engine nor window holds it. */
void bt_decode_try_end(bt_worker_t *w, bt_decode_job_t *dj);

/* fence.c */

/** Fence (I2): this sender is silent but may still write through its mapping
 *  into a revoked lease. A process of this host is ended; its launcher starts
 *  it again. @param pid  0 = unknown */
void bt_decode_fence(int32_t pid);

#endif
