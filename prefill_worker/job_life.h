/* SPDX-License-Identifier: Apache-2.0 */
/** @file job_life.h
 *
 * State machine of a job at a prefill worker. Pure.
 *
 *     no grant                               with one
 *     QUEUED    ──GRANT──────────────────▶ GRANTED
 *        │ START                              │ START
 *        ▼                                    ▼
 *     COMPUTING ──GRANT──────────────────▶ STREAMING ◀──START── RESUMING
 *        │ COMPUTED                           │ COMPUTED           ▲
 *        ▼                                    ▼                    │ GRANT
 *     WAITING   ──GRANT──────────────────▶ SENDING                 │
 *        └──────DROP──▶ DROPPED ───────────────┼───────────────────┘
 *                                              └──SENT──▶ ENDED
 *
 *     a follower, whose leader has grant, queue and transfer (fanout.h):
 *
 *     FOLLOWING ──START──▶ DRAWING ──COMPUTED──▶ SHARING ──SENT──▶ ENDED
 *
 *     all of them but ENDED ──ABORT──▶ ENDING ──FREE──▶ ENDED
 *
 * An event without an arrow in a phase is refused there. GRANT is the one that
 * a peer can cause at a wrong time.
 */
#ifndef BT_PREFILL_WORKER_JOB_LIFE_H
#define BT_PREFILL_WORKER_JOB_LIFE_H

#include <stdbool.h>

typedef enum bt_prefill_phase {
    BT_PREFILL_QUEUED,
    BT_PREFILL_GRANTED,   /**< like QUEUED */
    BT_PREFILL_COMPUTING, /**< in the engine */
    BT_PREFILL_STREAMING, /**< in the engine; finished KV is sent */
    BT_PREFILL_WAITING,   /**< KV complete */
    BT_PREFILL_SENDING,   /**< KV complete; manifest to be sent */
    BT_PREFILL_DROPPED,   /**< KV was complete, and evicted for others */
    BT_PREFILL_RESUMING,  /**< KV was evicted, and is to be recomputed */
    BT_PREFILL_FOLLOWING, /**< begins with its leader */
    BT_PREFILL_DRAWING,   /**< in the engine, which computes the leader */
    BT_PREFILL_SHARING,   /**< sampled: shares the leader's KV */
    BT_PREFILL_ENDING,    /**< over, but engine or transfer may still hold it */
    BT_PREFILL_ENDED,     /**< all resources are returned */
} bt_prefill_phase_t;
#define BT_PREFILL_PHASES 13

typedef enum bt_prefill_event {
    BT_PREFILL_GRANT,    /**< from the decode worker */
    BT_PREFILL_START,    /**< got blocks and a seat in the engine */
    BT_PREFILL_COMPUTED, /**< left the engine, KV complete */
    BT_PREFILL_DROP,     /**< a granted job needs the blocks */
    BT_PREFILL_SENT,     /**< the decode worker has all KV */
    BT_PREFILL_ABORT,    /**< canceled, failed, or over with token #1 */
    BT_PREFILL_FREE,     /**< neither engine nor transfer holds it */
} bt_prefill_event_t;
#define BT_PREFILL_EVENTS 7

/* Properties of a phase, as bits. */
/** Grant received, or left to the leader. */
#define BT_PREFILL_IS_GRANTED 1u
#define BT_PREFILL_HAS_BLOCKS 2u
#define BT_PREFILL_IN_ENGINE  4u
#define BT_PREFILL_IS_PAUSED  8u /**< the KV was evicted */
/** Blocks count against the share for KV without a grant. */
#define BT_PREFILL_IS_WAITING_KV 16u
/** Only clean-up is left; the bits for blocks and engine are not valid. */
#define BT_PREFILL_IS_OVER 32u

/** Computes the next phase. @param [out] next_p Written when there is an arrow.
 *  @return false: there is none */
bool bt_prefill_phase_after(bt_prefill_phase_t phase, bt_prefill_event_t event,
                            bt_prefill_phase_t *next_p);
/** @return bits BT_PREFILL_IS_* and the like */
unsigned bt_prefill_phase_facts(bt_prefill_phase_t phase);

#endif
