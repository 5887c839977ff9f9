/* SPDX-License-Identifier: Apache-2.0 */
/** @file decode.h
 *
 * Decode worker: admission, leases, generation with in-flight or static
 * batching (sched_admit.h).
 *
 * The states of a job are in job_life.h; only bt_decode_move() changes them.
 *
 * A grant reserves a seat and every block that the sequence can ever need, or
 * nothing, so a running sequence never waits and is never preempted. With
 * --scheduler-policy max_utilization it reserves what the prompt needs and
 * some ahead: the sequence grows, and may be preempted for others
 * (worker/worker_priv.h). Grants are given during the prefill, in the order of
 * common/sched (sched_admit.h).
 *
 * With --local-prefill this worker also runs the prefill of requests that the
 * router sends to it alone (LOCAL): no transfer, identical bytes.
 */
#ifndef BT_DECODE_WORKER_DECODE_H
#define BT_DECODE_WORKER_DECODE_H

#include "decode_worker/job_life.h"
#include "worker/manifest_payload.h"
#include "worker/worker.h"

typedef struct bt_decode {
    /* Lists kept by bt_decode_move(). */
    bt_list_t leased; /**< LEASED jobs, oldest first */
    bt_list_t ready;  /**< JOINING jobs waiting for their batch, oldest first */
    uint32_t quarantined_blocks;
    uint64_t lease_id; /**< last lease id given */
    uint32_t n_leases; /**< receive windows, open or closing */
} bt_decode_t;

typedef struct bt_decode_job {
    bt_job_t job; /**< first */
    bt_decode_phase_t phase;
    bt_transfer_in_t *window; /**< open in LEASED, else closing; NULL: none */
    uint64_t granted_us;
    /* For a leader in JOINING: results of the transfer. */
    bt_manifest_payload_t note;
    uint64_t transfer_us, transfer_bytes, arrived_us;
    uint32_t n_descriptors;
} bt_decode_job_t;

extern const bt_worker_ops_t bt_decode_ops;

/* decode.c */

/** Moves the job to its next phase with all effects: queue, seat, counts,
 *  window, cancels. The event must be legal. The job may be freed: after ABORT,
 *  LEFT and FREE. */
void bt_decode_move(bt_worker_t *w, bt_decode_job_t *dj,
                    bt_decode_event_t event);

/* admission.c */

/** Begins a job that has its turn and its blocks: sends the grant, or runs a
 *  local job. */
void bt_decode_begin(bt_worker_t *w, bt_job_t *job);
void bt_decode_on_transfer(bt_worker_t *w, const bt_transfer_event_t *event);
/** Starts a batch that is complete, after a round of admissions. */
void bt_decode_advance(bt_worker_t *w);

/* fence.c */

/** Fences a sender (I2) that is silent but may still write through its mapping
 *  into a revoked lease: kills a process of this host; its launcher restarts
 *  it.
 *  @param pid  0 = unknown */
void bt_decode_fence(int32_t pid);

#endif
