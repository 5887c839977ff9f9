/* SPDX-License-Identifier: Apache-2.0 */
/** @file prefill.h
 *
 * Prefill worker: chunked prefill, token #1, KV transfer.
 *
 * Only bt_prefill_move() changes the state of a job.
 *
 * Token #1 goes straight to the router and never waits for the transfer.
 *
 * KV without a grant may hold only a share of the pool (option
 * max-ungranted-kv-percent); beyond it no job without a grant is begun. When a
 * granted request finds no blocks, waiting KV is dropped, and recomputed once
 * its grant is there. So granted requests always make progress, and no two
 * workers can wait for each other's blocks (I4); common/sched/sched_admit.h
 * decides it. A request that is over with token #1 needs no transfer, and ends
 * where it was computed; if that is known before, it needs no grant either.
 */
#ifndef BT_PREFILL_WORKER_PREFILL_H
#define BT_PREFILL_WORKER_PREFILL_H

#include <stdbool.h>

#include "worker/worker.h"

/*
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

/** Decode worker that this worker may send to. */
typedef struct bt_prefill_peer {
    bt_list_t link;
    uint64_t instance;
    char name[BT_WIRE_MAX_NAME];
    uint32_t routers;      /**< bits of the links whose routers list it */
    bt_wire_rank_t *ranks; /**< owned: exports of its ranks, to reconnect */
    uint32_t n_ranks;
    bt_kv_split_t split;
    bool is_fit;                       /**< compatible; else never sent to */
    bt_transfer_peer_t *transfer_peer; /**< NULL: lost, or not tried yet */
    uint64_t retry_ms;                 /**< when to reconnect */
    bool is_tried;                     /**< counted in bt_prefill_t.n_tries */
    uint64_t again_ms;                 /**< when to restart a first attempt */
    uint64_t order; /**< random: order among peers not tried yet */
    /** Result of the last connection: answered, or why it failed. */
    bt_kv_link_state_t state;
    char at[BT_WIRE_MAX_AT], why[BT_WIRE_MAX_WHY];
} bt_prefill_peer_t;

/** Most connection attempts at a time. With 1,000 workers the first answer does
 *  not wait until all are connected with all, and no worker is contacted by all
 *  at once. */
#define BT_PREFILL_MAX_TRIES 16u

/** Policy for sending a last chunk in groups of layers. */
typedef struct bt_prefill_split {
    uint32_t max_groups; /**< most groups; the rest at the end is one of them */
    size_t min_piece_bytes; /**< least bytes of a group in one block */
    size_t min_chunk_bytes; /**< a smaller chunk is sent when it is complete */
} bt_prefill_split_t;

/** Transfer during prefill: option kv-overlap. */
typedef enum bt_prefill_overlap {
    BT_OVERLAP_NONE,
    BT_OVERLAP_CHUNKS,
    BT_OVERLAP_LAYERS,
} bt_prefill_overlap_t;

typedef struct bt_prefill {
    bt_prefill_overlap_t overlap;
    bt_prefill_split_t split;
    /* Jobs by phase, kept by bt_prefill_move(). */
    bt_list_t streaming; /**< STREAMING jobs */
    uint32_t n_paused;   /**< jobs with BT_PREFILL_IS_PAUSED */
    bt_list_t peers;     /**< in the order of connection attempts */
    uint32_t n_tries;    /**< peers connected to that have not answered yet */
    uint32_t n_xfers;
} bt_prefill_t;

typedef struct bt_prefill_job {
    bt_job_t job; /**< first */
    bt_prefill_phase_t phase;
    bt_wire_region_t *grant; /**< owned; NULL: no grant yet */
    bt_transfer_out_t *xfer; /**< begun, not yet over; NULL: none */
    uint32_t n_regions;      /**< regions of the grant */
    uint32_t n_computed;     /**< as last reported by the engine */
    bool token_sent; /**< token #1 was sent to the router, in any phase */
    uint32_t token;
    bt_finish_t finish;     /**< finish reason of token #1 */
    uint32_t spans_cached;  /**< leading spans that the decode worker has */
    uint32_t spans_posted;  /**< posted spans, cached ones included */
    uint32_t layers_posted; /**< leading layers posted of all further blocks */
    uint64_t complete_us;   /**< when the KV was complete */
    uint64_t granted_us;    /**< when all was posted, and the grant had come */
    uint64_t tail_bytes;    /**< bytes left to post when the KV was complete and
                               granted, at sending_us */
    uint64_t sending_us;
} bt_prefill_job_t;

extern const bt_worker_ops_t bt_prefill_ops;

/* prefill.c */

/** Moves the job to its next phase with all effects: queues, counts, blocks,
 *  cancels. The event must be legal. The job may be freed: after ABORT, FREE
 *  and SENT, and where SENDING fails at once. */
void bt_prefill_move(bt_worker_t *w, bt_prefill_job_t *pj,
                     bt_prefill_event_t event);

/* handoff.c */

void bt_prefill_on_peer(bt_worker_t *w, bt_worker_link_t *from,
                        const bt_msg_peer_t *msg);
void bt_prefill_on_peer_gone(bt_worker_t *w, const bt_worker_link_t *from,
                             uint64_t instance);
void bt_prefill_on_router_gone(bt_worker_t *w, const bt_worker_link_t *from);
/** Connects to peers without a connection, and again where one was lost: until
 *  then, a decode worker keeps what was granted over the old one. At most
 *  BT_PREFILL_MAX_TRIES attempts run at a time. */
void bt_prefill_reconnect(bt_worker_t *w);
/** Frees a peer and cancels its transfers. */
void bt_prefill_peer_forget(bt_worker_t *w, bt_prefill_peer_t *peer);
void bt_prefill_on_transfer(bt_worker_t *w, const bt_transfer_event_t *event);

/** Sends what is ready of a STREAMING job, the rest and the manifest of a
 *  SENDING one; fails the job on errors. */
void bt_prefill_push(bt_worker_t *w, bt_prefill_job_t *pj);

/* overlap.c */

/** Policy for real block sizes; measured, see docs/KV_TRANSFER.md. */
extern const bt_prefill_split_t bt_prefill_split_default;
/** Returns how many layers of a last chunk to send at a time.
 *  @param [in] n_blocks  that the last chunk completes
 *  @return n_layers: nothing is sent before the chunk is complete */
uint32_t bt_prefill_layer_group(const bt_prefill_split_t *split,
                                uint32_t n_blocks, uint32_t n_layers,
                                size_t layer_bytes);

/** Returns the time in ms until the next check for finished layers: growing
 *  while there are none. @param before_ms 0: this is the first wait */
uint32_t bt_prefill_look_ms(uint32_t before_ms, bool moved);

/** Posts what is computed and not posted; the job has a transfer.
 *  @return any error of bt_transfer_out_post() */
BT_MUST_CHECK bt_status_t bt_prefill_post(bt_worker_t *w, bt_prefill_job_t *pj);
/** Posts layers of streaming jobs that have become ready; sets w->poll_ms. */
void bt_prefill_stream(bt_worker_t *w);

#endif
