/* SPDX-License-Identifier: Apache-2.0 */
/** @file prefill.h
 *
 * The prefill worker: context phase in chunks, token #1, hand-over.
 *
 * job_life.h has the life of a job; bt_prefill_move() is its one way on.
 *
 * Token #1 goes straight to the router and never waits for the transfer.
 *
 * KV without a grant may hold only a share of the pool (option
 * waiting-kv-percent); beyond it nothing is begun that has none. When a granted
 * request finds no blocks, waiting KV is dropped, and computed again once its
 * grant is there. So granted requests always get on, and no two workers can
 * wait for each other's blocks (I4); common/sched/sched_admit.h decides it. An
 * answer that is over with token #1 needs no transfer, and ends where it was
 * computed; one of which that is known before needs no grant either.
 */
#ifndef BT_PREFILL_WORKER_PREFILL_H
#define BT_PREFILL_WORKER_PREFILL_H

#include "prefill_worker/job_life.h"
#include "worker/worker.h"

/** A decode worker that we may send to. */
typedef struct bt_prefill_peer {
    bt_list_t link;
    uint64_t instance;
    char name[BT_WIRE_MAX_NAME];
    uint32_t routers;      /**< bits of the links whose routers see it */
    bt_wire_rank_t *ranks; /**< owned: their exports, to connect again */
    uint32_t n_ranks;
    bt_kv_split_t split;
    bool is_fit;            /**< else it cannot be sent to */
    bt_plane_peer_t *plane; /**< to its ranks; NULL: lost, or not tried yet */
    uint64_t retry_ms;      /**< when to connect again */
    bool is_tried;          /**< one of bt_prefill_t.n_tries */
    uint64_t again_ms;      /**< of a first try: when to begin anew */
    uint64_t order;         /**< random: in which those not tried yet are */
    /** It has answered since it was connected to, or why it could not be. */
    bt_kv_link_state_t state;
    char at[BT_WIRE_MAX_AT], why[BT_WIRE_MAX_WHY];
} bt_prefill_peer_t;

/** Connections that are under way at a time. With 1,000 workers the first
 *  answer does not wait until everybody is linked with everybody, and nobody is
 *  asked by all at once. */
#define BT_PREFILL_MAX_TRIES 16u

/** When a last chunk leaves in groups of layers. */
typedef struct bt_prefill_split {
    uint32_t max_groups;    /**< what is left at its end is one of them */
    size_t min_piece_bytes; /**< of a group in one block */
    size_t min_chunk_bytes; /**< a smaller one leaves when it is complete */
} bt_prefill_split_t;

/** What leaves while the prompt is computed: option kv-overlap. */
typedef enum bt_prefill_overlap {
    BT_OVERLAP_NONE,
    BT_OVERLAP_CHUNKS,
    BT_OVERLAP_LAYERS,
} bt_prefill_overlap_t;

typedef struct bt_prefill {
    bt_prefill_overlap_t overlap;
    bt_prefill_split_t split;
    /* Jobs by phase; bt_prefill_move() keeps these. */
    bt_list_t streaming; /**< STREAMING ones */
    uint32_t n_paused;   /**< those with BT_PREFILL_IS_PAUSED */
    bt_list_t peers;     /**< in the order in which they are tried */
    uint32_t n_tries;    /**< of them: connected to, and not answered yet */
    uint32_t n_xfers;
} bt_prefill_t;

typedef struct bt_prefill_job {
    bt_job_t job; /**< first */
    bt_prefill_phase_t phase;
    bt_wire_window_t *grant; /**< owned; NULL: no grant yet */
    bt_plane_out_t *xfer;    /**< begun, not yet over; NULL: none */
    uint32_t n_windows;      /**< of the grant */
    uint32_t n_computed;     /**< as last reported by the engine */
    bool token_sent; /**< token #1 is with the router, in whatever phase */
    uint32_t token;
    bt_finish_t finish;     /**< of token #1 */
    uint32_t spans_cached;  /**< leading ones that the decode worker has */
    uint32_t spans_posted;  /**< with those */
    uint32_t layers_posted; /**< of all further blocks, the first layers */
    uint64_t complete_us;   /**< when the KV was complete */
    uint64_t granted_us; /**< when all was posted, with the grant there too */
    uint64_t tail_bytes; /**< that were left to post when its KV was complete
                              and granted, at sending_us */
    uint64_t sending_us;
} bt_prefill_job_t;

extern const bt_worker_ops_t bt_prefill_ops;

/* prefill.c */

/** Take the job to its next phase with all that belongs to it: queues, counts,
 *  blocks, cancels. The event must be legal. The job may be gone afterwards:
 *  after ABORT, FREE and SENT, and where SENDING fails at once. */
void bt_prefill_move(bt_worker_t *w, bt_prefill_job_t *pj,
                     bt_prefill_event_t event);

/* handoff.c */

void bt_prefill_on_peer(bt_worker_t *w, bt_worker_link_t *from,
                        const bt_msg_peer_t *msg);
void bt_prefill_on_peer_gone(bt_worker_t *w, const bt_worker_link_t *from,
                             uint64_t instance);
void bt_prefill_on_router_gone(bt_worker_t *w, const bt_worker_link_t *from);
/** Connect where there is no path yet, and again where one was lost: a decode
 *  worker holds what was granted over the old one until it hears of a new one.
 *  At most BT_PREFILL_MAX_TRIES are under way. */
void bt_prefill_reconnect(bt_worker_t *w);
/** Its transfers are canceled, its memory is freed. */
void bt_prefill_peer_forget(bt_worker_t *w, bt_prefill_peer_t *peer);
void bt_prefill_on_plane(bt_worker_t *w, const bt_plane_event_t *event);

/** Send what is ready of a STREAMING job, the rest and the manifest of a
 *  SENDING one; fails the job when it cannot. */
void bt_prefill_push(bt_worker_t *w, bt_prefill_job_t *pj);

/* overlap.c */

/** For real blocks; measured, see docs/KV_TRANSFER.md. */
extern const bt_prefill_split_t bt_prefill_split_default;
/** How many layers of a last chunk leave at a time.
 *  @param [in] n_blocks  that the last chunk completes
 *  @return n_layers: nothing leaves before the chunk is complete */
uint32_t bt_prefill_layer_group(const bt_prefill_split_t *split,
                                uint32_t n_blocks, uint32_t n_layers,
                                size_t layer_bytes);

/** How long to wait before the next look at finished layers: longer and longer
 *  while there are none. @param before_ms  0: this is the first wait */
uint32_t bt_prefill_look_ms(uint32_t before_ms, bool moved);

/** Post what is computed and not posted; the job has a transfer. Any error of
 *  bt_plane_out_post(). */
BT_MUST_CHECK bt_status_t bt_prefill_post(bt_worker_t *w, bt_prefill_job_t *pj);
/** Layers of streaming jobs that are ready since; sets w->poll_ms. */
void bt_prefill_stream(bt_worker_t *w);

#endif
