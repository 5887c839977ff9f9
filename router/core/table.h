/* SPDX-License-Identifier: Apache-2.0 */
/** @file table.h
 *
 * The router's table of workers: which may join, which are present, and their
 * capacity. common/sched (sched_place.h) chooses the workers for a request.
 * Pure: no clock, socket or thread.
 *
 *     hello ── check ──▶ UP ⇄ SUSPECT          (control link silent)
 *                        │  └──⇄ DRAINING      (takes no new requests)
 *                        └──▶ removed          (link down)
 *
 * Threads: one thread owns a table.
 */
#ifndef BT_ROUTER_CORE_TABLE_H
#define BT_ROUTER_CORE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/containers.h"
#include "common/base/status.h"
#include "common/sched/sched_place.h"
#include "common/wire/wire.h"

#define BT_TABLE_WHY_BYTES 384
#define BT_TABLE_MAX_AVOID 4
#define BT_TABLE_MAX_CUTS  64
#define BT_TABLE_MAX_NUMBER                                                  \
    (UINT64_MAX / 2) /**< largest number of an order that a worker may have: \
                          later ones have to be larger; microseconds of UNIX \
                          time stay below for 290 000 years */

/** KV blocks that sequences need at a worker, from its HELLO. A span is the
 *  tokens of one block. A span takes several blocks where layers are in groups
 *  (common/kv); in groups with an attention window a sequence holds no more
 *  than the window:
 *
 *      span_blocks for each span, and window_blocks for each of the first
 *      window_spans spans
 */
typedef struct bt_kv_need {
    uint32_t tokens_per_block;
    uint32_t span_blocks, window_blocks, window_spans;
} bt_kv_need_t;

/** Returns the identity of the model that routers know the worker by: that of
 *  the file that it started with. */
static inline bt_hash128_t bt_hello_base(const bt_msg_hello_t *hello)
{
    return (hello->weights.update != 0) ? hello->base : hello->model;
}

bt_kv_need_t bt_kv_need_of(const bt_msg_hello_t *hello);

/** Returns the most blocks that a sequence of @a n_tokens takes. */
uint64_t bt_kv_need_blocks(const bt_kv_need_t *need, uint64_t n_tokens);

/** Returns the length in tokens of the longest sequence that fits @a n_blocks.
 */
uint64_t bt_kv_need_longest(const bt_kv_need_t *need, uint64_t n_blocks);

typedef struct bt_instance {
    bt_list_t link;       /**< link in bt_table_t.workers */
    bt_msg_hello_t hello; /**< hello.ranks is owned */
    /** Scheduler's state of the worker. The core maintains its health and the
     *  load sent to it. */
    bt_sched_worker_t sched;
    uint32_t roles; /**< current roles, bits of bt_role_t, as last reported */
    uint32_t roles_ever;  /**< all roles reported so far */
    bt_msg_stats_t stats; /**< the latest; zero before the first */
    bool has_stats;
    bool is_silent;      /**< no message received for a while */
    bool is_starved;     /**< silent because the worker waits for a CPU core */
    bool is_still;       /**< has work that makes no progress */
    bool lacks_adapters; /**< bt_table_lacks_adapters() */
    bool is_stale;       /**< has other weights than those in force */
    uint64_t asked_update; /**< weights that it was asked to look at last */
    bt_msg_weights_checked_t checked; /**< last answer to that */
    /** Time at which it refused to load the weights in force, or was ordered
     *  to try it again; 0: it has not refused. @a checked has the reason. */
    uint64_t refused_us;
    bool is_away;  /**< sleeps, or is to sleep: gets no requests */
    uint64_t told; /**< number of the order to sleep or to wake that it was
                        sent and has not carried out yet; 0: none */
    /** Time at which it came back asleep when it was to wake; 0: it has not, or
     *  was ordered again. */
    uint64_t failed_us;
    uint64_t asked_reset; /**< number of the last order to empty its cache */
    bt_msg_cache_is_empty_t emptied; /**< last answer about its prefix cache */
    bool is_launched; /**< run by a launcher, which may order its role */
    /** Generations of others at the worker, as of its STATS. */
    uint32_t n_others;
    /** Number of times that the worker had less of a prompt cached than
     *  estimated; each time all earlier estimates become void
     *  (sched_slo.h). */
    uint32_t n_forgot;
    /** Time of the last weighed prompt (sched_slo.h): sent to this worker
     *  for prefill on behalf of a decode worker, and sent with both phases.
     */
    uint64_t away_at_us, here_at_us;
    /** Time in us since which all seats that keep the ITL target are taken, or
     *  when one seat more was last tried; 0: never checked. */
    uint64_t seats_tried_us;
    /** Numbers of the decode workers that this prefill worker cannot reach. */
    bt_sched_links_t cut;
    bool is_awaited; /**< joined before the model was ready (kv_links.h) */
    bt_list_t legs;  /**< open legs at the worker, used by the core */
    void *link_user; /**< control link; owned by the caller */
} bt_instance_t;

/** True for a worker that sleeps: it has no weights and no KV pool. */
static inline bool bt_instance_is_asleep(const bt_instance_t *worker)
{
    return (worker->hello.flags & BT_HELLO_ASLEEP) != 0;
}

/** Failed KV link between two workers: kv_links.h. */
typedef struct bt_cut bt_cut_t;

typedef struct bt_table {
    bt_list_t workers;
    bt_list_t candidates; /**< bt_sched_worker_t of all workers */
    bt_hash128_t model;   /**< identity of the router's model file */
    uint64_t n_taken;     /**< number of placements */
    /** Workers of several numerics profiles may serve together if these are of
     *  one model: the text after the first blank of the profiles is equal.
     */
    bool mixes_profiles;
    bt_sched_links_t numbers; /**< numbers in use by present workers */
    uint32_t n_awaited;       /**< number of workers with is_awaited */
    bt_list_t cuts;           /**< list of bt_cut_t, the oldest first */
    uint32_t n_cuts;          /**< at most BT_TABLE_MAX_CUTS */
} bt_table_t;

/** Workers for one request. */
typedef struct bt_pick {
    bt_instance_t *prefill; /**< NULL: the decode worker does both phases */
    bt_instance_t *decode;  /**< NULL: one token, from the prefill worker */
    bt_instance_t *weighed; /**< bt_sched_placement_t.weighed; or NULL */
    bt_sched_placement_t placement;
} bt_pick_t;

/** Instances that failed a request before. */
typedef struct bt_avoid {
    uint64_t instances[BT_TABLE_MAX_AVOID];
    uint32_t n;
} bt_avoid_t;

void bt_table_init(bt_table_t *table, bt_hash128_t model);
void bt_table_fini(bt_table_t *table); /**< removes all workers */

/**
 * Checks whether a worker may join. Compares the protocols, the model with the
 * router's own file, and numerics profile, KV type, block size and layout with
 * those of the present workers.
 *
 * @param [out] why  On refusal a sentence that names worker and difference.
 * @retval BT_OK
 * @retval BT_ERR_MISMATCH
 */
BT_MUST_CHECK bt_status_t bt_table_check(const bt_table_t *table,
                                         const bt_msg_hello_t *hello,
                                         char why[BT_TABLE_WHY_BYTES]);

/** Adds a worker that was checked; copies @a hello. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_table_add(bt_table_t *table,
                                       const bt_msg_hello_t *hello,
                                       bt_instance_t **worker_p);
/** Removes and frees a worker; its legs must have been removed. */
void bt_table_remove(bt_table_t *table, bt_instance_t *worker);

/** Returns the worker of an instance, or NULL when there is none. */
bt_instance_t *bt_table_find(const bt_table_t *table, uint64_t instance);

/** Sets whether a worker lacks an adapter that is offered to clients: then it
 *  gets no request that has any. */
void bt_table_lacks_adapters(bt_instance_t *worker, bool lacks);
/** Stores a worker's STATS. @return true when its roles have changed */
bool bt_table_report(bt_instance_t *worker, const bt_msg_stats_t *stats);

/** Chooses workers for one request by bt_sched_place().
 *  @return false when workers that the request needs are missing. */
bool bt_table_pick(const bt_table_t *table, const bt_sched_request_t *request,
                   bt_pick_t *pick_p);
/** Assigns both phases to the worker that the pick names for local prefill. */
void bt_table_pick_weighed(bt_pick_t *pick);

/** Returns the capabilities (BT_SCHED_CAPABILITIES) that all workers have. */
uint32_t bt_table_common_capabilities(const bt_table_t *table);
/** True when a request could be served now by healthy workers, and no decode
 *  worker is waited for (kv_links.h). */
bool bt_table_ready(const bt_table_t *table);

/** Returns the longest sequence, prompt and output, that every present worker
 *  accepts: limited by its context length, and by the KV blocks of a decode
 *  worker (a prefill worker holds the prompt only). UINT32_MAX without any
 *  workers. */
uint32_t bt_table_context_tokens(const bt_table_t *table);

/* ---- workers of another profile ----
 *
 * The first worker to join determines numerics profile, KV type, block size and
 * layout, and may be the wrong one. The refused workers of one kind replace the
 * present ones when together they could serve better, for a while, and the
 * present ones have no requests:
 *
 *     kind          nothing < serves alone (a decode worker that prefills)
 *                           < has both roles
 *     refused ─▶ noted ─▶ better for BT_QUORUM_WAIT_US ─▶ win
 *                  └──▶ not seen again for BT_QUORUM_KEEP_US ─▶ forgotten
 *
 * Refused workers try again every two seconds or so. */

#define BT_QUORUM_MAX_REFUSED 16
#define BT_QUORUM_WAIT_US     10000000u /**< longer than a worker's restart */
#define BT_QUORUM_KEEP_US     10000000u

typedef struct bt_refused_worker {
    bt_msg_hello_t hello; /**< hello without ranks */
    uint64_t seen_us;
} bt_refused_worker_t;

/** Refused workers; all zero: none. */
typedef struct bt_profile_quorum {
    bt_refused_worker_t list[BT_QUORUM_MAX_REFUSED];
    uint32_t n;
    uint64_t better_since_us; /**< since when in us; 0: they are not better */
} bt_profile_quorum_t;

/** Records a worker that @a table refused because of the workers in it.
 *  @return true when the refused workers of this kind should replace the
 *    present ones */
bool bt_profile_quorum_refused(bt_profile_quorum_t *quorum,
                               const bt_table_t *table,
                               const bt_msg_hello_t *hello, uint64_t now_us);

#endif
