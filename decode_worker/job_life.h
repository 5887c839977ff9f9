/* SPDX-License-Identifier: Apache-2.0 */
/** @file job_life.h
 *
 * State machine of a job at a decode worker. Pure.
 *
 *     QUEUED ──OPEN──▶ LEASED ──PROVEN──▶ JOINING ──RUN──▶ RUNNING
 *       └──────────────RUN, of a local one ──────────────────▲
 *
 *     a follower, whose leader has queue, lease and window (fanout.h):
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
#ifndef BT_DECODE_WORKER_JOB_LIFE_H
#define BT_DECODE_WORKER_JOB_LIFE_H

#include <stdbool.h>

#include "common/sched/sched_admit.h"

typedef enum bt_decode_phase {
    BT_DECODE_QUEUED,      /**< waits for a seat and blocks */
    BT_DECODE_LEASED,      /**< receive window open: KV arrives */
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
    BT_DECODE_ENDING,      /**< over; the receive window may still be open */
    BT_DECODE_ENDED,       /**< all resources are returned */
} bt_decode_phase_t;
#define BT_DECODE_PHASES 12

typedef enum bt_decode_event {
    BT_DECODE_OPEN,   /**< got a seat, blocks and a receive window */
    BT_DECODE_PROVEN, /**< the manifest was verified */
    BT_DECODE_RUN,    /**< submitted to the engine */
    BT_DECODE_LEFT,   /**< the engine returned it */
    BT_DECODE_PAUSE,  /**< other jobs need the blocks */
    BT_DECODE_PARK,   /**< the engine returned it for that */
    BT_DECODE_ABORT,  /**< canceled or failed */
    BT_DECODE_FREE,   /**< the receive window is closed, or there was none */
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
/** Returns the job's part in the batch. A follower takes part through its
 *  leader until it runs. */
bt_sched_part_t bt_decode_phase_part(bt_decode_phase_t phase);
/** @return bits BT_DECODE_HAS_* and the like */
unsigned bt_decode_phase_facts(bt_decode_phase_t phase);

#endif
