/* SPDX-License-Identifier: Apache-2.0 */
/** @file decode.h
 *
 * The decode worker: admission, leases, generation with in-flight or static
 * batching (sched_batch.h).
 *
 * job_life.h has the life of a job; bt_decode_move() is its one way on.
 *
 * A grant reserves a seat and every block that the sequence can ever need, or
 * nothing, so a running sequence never waits and is never preempted; or, by
 * --scheduler-policy max_utilization, what its prompt needs and some ahead: it
 * grows, and may be paused for others (worker/pause.h). Grants are given while
 * the prefill goes on, in the order of common/sched (sched_admit.h).
 *
 * With --local-prefill the same worker also runs the context phase of requests
 * that the router sends it alone (LOCAL): no transfer, the same bytes.
 */
#ifndef BT_DECODE_WORKER_DECODE_H
#define BT_DECODE_WORKER_DECODE_H

#include "decode_worker/job_life.h"
#include "worker/note.h"
#include "worker/route.h"
#include "worker/worker.h"

typedef struct bt_decode {
    /* bt_decode_move() keeps these. */
    bt_list_t leased; /**< LEASED ones, oldest first */
    bt_list_t ready;  /**< JOINING ones that wait for their batch, the same */
    uint32_t quarantined_blocks;
    uint64_t lease_id; /**< last one given */
    uint32_t n_leases; /**< windows, open or closing */
    /** From a prefill worker to us: of one rank, without BT_HELLO_RANKS. */
    const bt_kv_route_t *route;
    bt_kvt_extent_t *extents; /**< scratch: of all blocks of the pool */
    uint8_t *desc;            /**< scratch for a window descriptor */
} bt_decode_t;

typedef struct bt_decode_job {
    bt_job_t job; /**< first */
    bt_decode_phase_t phase;
    bt_kvt_window_t *window; /**< open in LEASED, else closing; NULL: none */
    uint64_t granted_us;
    /* Of a leader in JOINING: what came with its KV. */
    bt_note_t note;
    uint64_t transfer_us, transfer_bytes, arrived_us;
    uint32_t n_descriptors;
} bt_decode_job_t;

extern const bt_worker_ops_t bt_decode_ops;

/* decode.c */

/** Take the job to its next phase with all that belongs to it: queue, seat,
 *  counts, window, cancels. The event must be legal. The job may be gone
 *  afterwards: after ABORT, LEFT and FREE. */
void bt_decode_move(bt_worker_t *w, bt_decode_job_t *dj,
                    bt_decode_event_t event);

/* admission.c */

/** Its turn has come, its blocks are there: give the grant, or run it if it is
 *  local. */
void bt_decode_begin(bt_worker_t *w, bt_job_t *job);
void bt_decode_on_kvt(bt_worker_t *w, const bt_kvt_event_t *event);
/** After a round of admissions: start a batch that is complete. */
void bt_decode_advance(bt_worker_t *w);

/* fence.c */

/** Fence (I2): this sender is silent but may still write through its mapping
 *  into a revoked lease. A process of this host is ended; its launcher starts
 *  it again. @param pid  0 = unknown */
void bt_decode_fence(int32_t pid);

#endif
