/* SPDX-License-Identifier: Apache-2.0 */
/** @file job_life.h
 *
 * The life of a job at a decode worker: what it is in, and what each event
 * makes of it. Pure.
 *
 *     QUEUED ──OPEN──▶ LEASED ──PROVEN──▶ JOINING ──RUN──▶ RUNNING
 *       └──────────────RUN, of a local one ──────────────────▲
 *
 *     of one with a leader, which has queue, lease and window (group.h):
 *
 *     FOLLOWING ──OPEN──▶ SHARING ──RUN──▶ RUNNING
 *       └─────────RUN, of a local one ───────▲
 *
 *     RUNNING ──LEFT──▶ ENDING ──FREE──▶ ENDED
 *
 *     of one that makes room for others (worker/pause.h):
 *
 *     RUNNING ──PAUSE──▶ PAUSING ──PARK──▶ PAUSED ──RUN──▶ RUNNING
 *                           └──LEFT, with its last token──▶ ENDING
 *
 *     QUEUED, JOINING, FOLLOWING, SHARING, PAUSED ──ABORT──▶ ENDING
 *     LEASED          ──ABORT──▶ QUARANTINED ──FREE──▶ ENDED
 *     RUNNING, PAUSING ──ABORT──▶ STOPPING ──LEFT──▶ ENDING
 *
 * An event that stands at no arrow of a phase is refused there. PROVEN is the
 * one that others can cause at a wrong time.
 */
#ifndef BT_DECODE_WORKER_JOB_LIFE_H
#define BT_DECODE_WORKER_JOB_LIFE_H

#include <stdbool.h>

#include "common/sched/sched_batch.h"

typedef enum bt_decode_phase {
    BT_DECODE_QUEUED,      /**< waits for a seat and blocks */
    BT_DECODE_LEASED,      /**< its window is open: KV arrives */
    BT_DECODE_JOINING,     /**< its KV is proven, no writer is left; a static
                                batch may still wait for others */
    BT_DECODE_FOLLOWING,   /**< begins with its leader */
    BT_DECODE_SHARING,     /**< it has its blocks; KV arrives in its leader's */
    BT_DECODE_RUNNING,     /**< in the engine */
    BT_DECODE_PAUSING,     /**< the same, until the iteration is over: its
                                blocks are for others */
    BT_DECODE_PAUSED,      /**< waits for a seat and blocks, to go on */
    BT_DECODE_STOPPING,    /**< in the engine until the iteration is over */
    BT_DECODE_QUARANTINED, /**< revoked before it was proven: somebody may
                                still write into its blocks */
    BT_DECODE_ENDING,      /**< over; its window may not be closed yet */
    BT_DECODE_ENDED,       /**< all is back */
} bt_decode_phase_t;
#define BT_DECODE_PHASES 12

typedef enum bt_decode_event {
    BT_DECODE_OPEN,   /**< it got a seat, blocks and a window */
    BT_DECODE_PROVEN, /**< the manifest proved its KV */
    BT_DECODE_RUN,    /**< the engine has it */
    BT_DECODE_LEFT,   /**< the engine gave it back */
    BT_DECODE_PAUSE,  /**< others need its blocks */
    BT_DECODE_PARK,   /**< the engine gave it back for that */
    BT_DECODE_ABORT,  /**< canceled or failed */
    BT_DECODE_FREE,   /**< its window is closed, or it had none */
} bt_decode_event_t;
#define BT_DECODE_EVENTS 8

/* What holds in a phase, as bits. */
/** Its own; that of a SHARING one is in its leader's lease. */
#define BT_DECODE_HAS_SEAT       1u
#define BT_DECODE_HAS_BLOCKS     2u
#define BT_DECODE_IN_ENGINE      4u
#define BT_DECODE_IS_QUARANTINED 8u
/** Only clean-up is left; an ENDING one may have got blocks or not. */
#define BT_DECODE_IS_OVER 16u

/** @param [out] next_p  Written when there is such an arrow.
 *  @return false: there is none */
bool bt_decode_phase_after(bt_decode_phase_t phase, bt_decode_event_t event,
                           bt_decode_phase_t *next_p);
/** What it is to its batch. A follower, until it runs, is in it by its leader.
 */
bt_sched_part_t bt_decode_phase_part(bt_decode_phase_t phase);
/** @return bits BT_DECODE_HAS_* and the like */
unsigned bt_decode_phase_facts(bt_decode_phase_t phase);

#endif
