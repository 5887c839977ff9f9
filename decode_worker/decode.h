/* SPDX-License-Identifier: Apache-2.0 */
/** @file decode.h
 *
 * Decode worker: admission, leases, generation with in-flight or static
 * batching (sched_admit.h).
 *
 * Only bt_decode_move() changes the state of a job.
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

#include <stdbool.h>

#include "common/sched/sched_admit.h"
#include "worker/manifest_payload.h"
#include "worker/worker.h"

/*
 * State machine of a job at a decode worker. Pure.
 *
 *     QUEUED ──OPEN──▶ LEASED ──PROVEN──▶ JOINING ──RUN──▶ RUNNING
 *       └──────────────RUN, of a local one ──────────────────▲
 *
 *     a follower, whose leader has queue, lease and region (fanout.h):
 *
 *     FOLLOWING ──OPEN──▶ SHARING ──RUN──▶ RUNNING
 *       └─────────RUN, of a local one ───────▲
 *
 *     RUNNING ──LEFT──▶ ENDING ──FREE──▶ ENDED
 *
 *     a job preempted for others (worker/worker_priv.h):
 *
 *     RUNNING ──PAUSE──▶ PAUSING ──PARK──▶ PAUSED ──RUN──▶ RUNNING
 *                           └──LEFT, with its last token──▶ ENDING
 *
 *     QUEUED, JOINING, FOLLOWING, SHARING, PAUSED ──ABORT──▶ ENDING
 *     LEASED          ──ABORT──▶ QUARANTINED ──FREE──▶ ENDED
 *     RUNNING, PAUSING ──ABORT──▶ STOPPING ──LEFT──▶ ENDING
 *
 * An event without an arrow in a phase is refused there. PROVEN is the one
 * that a peer can cause at a wrong time.
 */

typedef enum bt_decode_phase {
    BT_DECODE_QUEUED,      /**< waits for a seat and blocks */
    BT_DECODE_LEASED,      /**< receive region open: KV arrives */
    BT_DECODE_JOINING,     /**< KV verified, no writer left; a static batch may
                              still wait for others */
    BT_DECODE_FOLLOWING,   /**< begins with its leader */
    BT_DECODE_SHARING,     /**< has blocks; KV arrives in the leader's */
    BT_DECODE_RUNNING,     /**< in the engine */
    BT_DECODE_PAUSING,     /**< in the engine until the iteration is over: its
                              blocks are for others */
    BT_DECODE_PAUSED,      /**< waits for a seat and blocks, to resume */
    BT_DECODE_STOPPING,    /**< in the engine until the iteration is over */
    BT_DECODE_QUARANTINED, /**< revoked before the KV was verified: a sender may
                              still write into its blocks */
    BT_DECODE_ENDING,      /**< over; the receive region may still be open */
    BT_DECODE_ENDED,       /**< all resources are returned */
} bt_decode_phase_t;
#define BT_DECODE_PHASES 12

typedef enum bt_decode_event {
    BT_DECODE_OPEN,   /**< got a seat, blocks and a receive region */
    BT_DECODE_PROVEN, /**< the manifest was verified */
    BT_DECODE_RUN,    /**< submitted to the engine */
    BT_DECODE_LEFT,   /**< the engine returned it */
    BT_DECODE_PAUSE,  /**< other jobs need the blocks */
    BT_DECODE_PARK,   /**< the engine returned it for that */
    BT_DECODE_ABORT,  /**< canceled or failed */
    BT_DECODE_FREE,   /**< the receive region is closed, or there was none */
} bt_decode_event_t;
#define BT_DECODE_EVENTS 8

/* Properties of a phase, as bits. */
/** Seat of the job's own; a SHARING job's seat belongs to the leader's lease.
 */
#define BT_DECODE_HAS_SEAT       1u
#define BT_DECODE_HAS_BLOCKS     2u
#define BT_DECODE_IN_ENGINE      4u
#define BT_DECODE_IS_QUARANTINED 8u
/** Only clean-up is left; an ENDING job may have got blocks or not. */
#define BT_DECODE_IS_OVER 16u

/** Computes the next phase. @param [out] next_p Written when there is an arrow.
 *  @return false: there is none */
bool bt_decode_phase_after(bt_decode_phase_t phase, bt_decode_event_t event,
                           bt_decode_phase_t *next_p);
/** @return bits BT_DECODE_HAS_* and the like */
unsigned bt_decode_phase_facts(bt_decode_phase_t phase);

typedef struct bt_decode {
    /* Lists kept by bt_decode_move(). */
    bt_list_t leased; /**< LEASED jobs, oldest first */
    bt_list_t ready;  /**< JOINING jobs waiting for their batch, oldest first */
    uint32_t quarantined_blocks;
    uint64_t lease_id; /**< last lease id given */
    uint32_t n_leases; /**< receive regions, open or closing */
} bt_decode_t;

typedef struct bt_decode_job {
    bt_job_t job; /**< first */
    bt_decode_phase_t phase;
    bt_transfer_in_t *region; /**< open in LEASED, else closing; NULL: none */
    uint64_t granted_us;
    /* For a leader in JOINING: results of the transfer. */
    bt_manifest_payload_t note;
    uint64_t transfer_us, transfer_bytes, arrived_us;
    uint32_t n_descriptors;
} bt_decode_job_t;

extern const bt_worker_ops_t bt_decode_ops;

/* decode.c */

/** Moves the job to its next phase with all effects: queue, seat, counts,
 *  region, cancels. The event must be legal. The job may be freed: after ABORT,
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
