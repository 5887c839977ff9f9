/* SPDX-License-Identifier: Apache-2.0 */
/** @file job_life.h
 *
 * The life of a job at a prefill worker: what it is in, and what each event
 * makes of it. Pure.
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
 *     of one with a leader, which has grant, queue and transfer (group.h):
 *
 *     FOLLOWING ──START──▶ DRAWING ──COMPUTED──▶ SHARING ──SENT──▶ ENDED
 *
 *     each of them but ENDED ──ABORT──▶ ENDING ──FREE──▶ ENDED
 *
 * An event that stands at no arrow of a phase is refused there. GRANT is the
 * one that others can cause at a wrong time.
 */
#ifndef BT_PREFILL_WORKER_JOB_LIFE_H
#define BT_PREFILL_WORKER_JOB_LIFE_H

#include <stdbool.h>

typedef enum bt_prefill_phase {
    BT_PREFILL_QUEUED,
    BT_PREFILL_GRANTED,   /**< like QUEUED */
    BT_PREFILL_COMPUTING, /**< in the engine */
    BT_PREFILL_STREAMING, /**< the same; what is finished leaves */
    BT_PREFILL_WAITING,   /**< its KV is complete */
    BT_PREFILL_SENDING,   /**< its KV is complete, the manifest asked for */
    BT_PREFILL_DROPPED,   /**< its KV was complete and made room for others */
    BT_PREFILL_RESUMING,  /**< the same, and wants to be computed again */
    BT_PREFILL_FOLLOWING, /**< begins with its leader */
    BT_PREFILL_DRAWING,   /**< in the engine, which computes its leader */
    BT_PREFILL_SHARING,   /**< drawn: its leader's KV is its own, too */
    BT_PREFILL_ENDING,    /**< over, but engine or transfer may still hold it */
    BT_PREFILL_ENDED,     /**< all is back */
} bt_prefill_phase_t;
#define BT_PREFILL_PHASES 13

typedef enum bt_prefill_event {
    BT_PREFILL_GRANT,    /**< from the decode worker */
    BT_PREFILL_START,    /**< it got blocks and a seat in the engine */
    BT_PREFILL_COMPUTED, /**< it left the engine, its KV is complete */
    BT_PREFILL_DROP,     /**< a granted one wants its blocks */
    BT_PREFILL_SENT,     /**< the decode worker has it all */
    BT_PREFILL_ABORT,    /**< canceled, failed, or over with token #1 */
    BT_PREFILL_FREE,     /**< neither engine nor transfer holds it */
} bt_prefill_event_t;
#define BT_PREFILL_EVENTS 7

/* What holds in a phase, as bits. */
/** It has its grant, or leaves that to its leader. */
#define BT_PREFILL_IS_GRANTED 1u
#define BT_PREFILL_HAS_BLOCKS 2u
#define BT_PREFILL_IN_ENGINE  4u
#define BT_PREFILL_IS_PAUSED  8u /**< its KV was dropped */
/** Its blocks count against the share for KV that has no grant. */
#define BT_PREFILL_IS_WAITING_KV 16u
/** Only clean-up is left; whether it has blocks or is in the engine is not
 *  said. */
#define BT_PREFILL_IS_OVER 32u

/** @param [out] next_p  Written when there is such an arrow.
 *  @return false: there is none */
bool bt_prefill_phase_after(bt_prefill_phase_t phase, bt_prefill_event_t event,
                            bt_prefill_phase_t *next_p);
/** @return bits BT_PREFILL_IS_* and the like */
unsigned bt_prefill_phase_facts(bt_prefill_phase_t phase);

#endif
