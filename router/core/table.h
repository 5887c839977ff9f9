/* SPDX-License-Identifier: Apache-2.0 */
/** @file table.h
 *
 * The router's picture of the workers: who may join, who is here, what they
 * can take. Which of them take a request is decided by common/sched
 * (sched_place.h). Pure: no clock, socket or thread.
 *
 *     hello ── check ──▶ UP ⇄ SUSPECT          (control link silent)
 *                        │  └──⇄ DRAINING      (takes nothing new)
 *                        └──▶ removed          (link down)
 *
 * Threads: one thread owns a table.
 */
#ifndef BT_ROUTER_CORE_TABLE_H
#define BT_ROUTER_CORE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/status.h"
#include "common/sched/sched_place.h"
#include "common/wire/wire.h"

#define BT_TABLE_WHY_BYTES 384
#define BT_TABLE_MAX_AVOID 4
#define BT_TABLE_MAX_CUTS  64

typedef struct bt_instance {
    bt_list_t link;       /**< in bt_table.workers */
    bt_msg_hello_t hello; /**< hello.ranks is owned */
    /** What the scheduler knows of it. Its health and what is sent to it are
     *  the core's to keep. */
    bt_sched_worker_t sched;
    uint32_t roles;       /**< bits of bt_role_t, as it said last */
    uint32_t roles_ever;  /**< those that it had so far */
    bt_msg_stats_t stats; /**< the latest; zero before the first */
    bool has_stats;
    bool is_silent;    /**< nothing has come from it for a while */
    bool is_starved;   /**< ...for it waits for a core */
    bool is_still;     /**< it has work that does not move */
    bool is_launched;  /**< a launcher runs it, whose word counts */
    uint32_t n_others; /**< generate there for others, as of its STATS */
    /** Times that it had less of a prompt than was thought: what was thought
     *  before no longer counts (sched_prefix_estimate.h). */
    uint32_t n_forgot;
    /** Of prompts that were weighed (sched_disagg.h): the last one that was
     * sent here to be computed for a decode worker, and with both phases. */
    uint64_t away_at_us, here_at_us;
    /** All seats that keep the target between tokens are taken since then, or
     *  since one more was sent; 0: never looked at. */
    uint64_t seats_tried_us;
    /** Of a prefill worker: numbers of decode workers that it cannot reach. */
    bt_sched_links_t cut;
    bool is_awaited; /**< it came before the model was ready (kv_links.h) */
    bt_list_t legs;  /**< what is sent to it; the core uses it */
    void *link_user; /**< the control link; the caller's */
} bt_instance_t;

/** A pair of workers between which KV cannot travel: kv_links.h. */
typedef struct bt_cut bt_cut_t;

typedef struct bt_table {
    bt_list_t workers;
    bt_list_t candidates; /**< the same ones, of bt_sched_worker_t */
    bt_hash128_t model;   /**< of our own model file */
    uint64_t n_taken;     /**< placements */
    /** Workers of several numeric profiles may serve together, if these are of
     *  the same model: what stands behind a blank of theirs is the same. */
    bool mixes_profiles;
    bt_sched_links_t numbers; /**< of the workers that are here */
    uint32_t n_awaited;       /**< those with is_awaited */
    bt_list_t cuts;           /**< bt_cut_t, the oldest first */
    uint32_t n_cuts;          /**< at most BT_TABLE_MAX_CUTS */
} bt_table_t;

/** The workers for one request. */
typedef struct bt_pick {
    bt_instance_t *prefill; /**< NULL: the decode worker does both phases */
    bt_instance_t *decode;  /**< NULL: one token, the prefill worker's */
    bt_instance_t *weighed; /**< bt_sched_placement_t.weighed; or NULL */
    bt_sched_placement_t placement;
} bt_pick_t;

/** Instances that a request has had trouble with. */
typedef struct bt_avoid {
    uint64_t instances[BT_TABLE_MAX_AVOID];
    uint32_t n;
} bt_avoid_t;

void bt_table_init(bt_table_t *table, bt_hash128_t model);
void bt_table_fini(bt_table_t *table); /**< removes all workers */

/**
 * May this worker join? Compared are the protocols, the model with our own
 * file's, and numeric profile, KV type, block size and layout with those of
 * the workers that are here. One of several ranks meets only those who
 * can hand KV over to it or take it from it (BT_HELLO_RANKS).
 *
 * @param [out] why  On refusal a sentence that names worker and difference.
 * @retval BT_OK
 * @retval BT_ERR_MISMATCH
 */
BT_MUST_CHECK bt_status_t bt_table_check(const bt_table_t *table,
                                         const bt_msg_hello_t *hello,
                                         char why[BT_TABLE_WHY_BYTES]);

/** Could the two serve together: the same numeric profile (unless they mix
 *  here), KV type, block size and layout? */
bool bt_table_is_same_kind(const bt_table_t *table, const bt_msg_hello_t *a,
                           const bt_msg_hello_t *b);

/** Add a worker that was checked; copies @a hello. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_table_add(bt_table_t *table,
                                       const bt_msg_hello_t *hello,
                                       bt_instance_t **worker_p);
/** Takes the worker out and frees it; its legs must have been removed. */
void bt_table_remove(bt_table_t *table, bt_instance_t *worker);

/** @return NULL when there is none. */
bt_instance_t *bt_table_find(const bt_table_t *table, uint64_t instance);

/** What the worker said of itself. @return whether it has other roles now */
bool bt_table_report(bt_instance_t *worker, const bt_msg_stats_t *stats);

/** Choose workers for one request, as bt_sched_place() has it.
 *  @return false when not all whom it needs are here. */
bool bt_table_pick(const bt_table_t *table, const bt_sched_request_t *request,
                   bt_pick_t *pick_p);
/** Both phases at the worker that it names for that. */
void bt_table_pick_weighed(bt_pick_t *pick);
/** The request goes there, so others are next where all are equal. */
void bt_table_take(bt_table_t *table, const bt_pick_t *pick);

/** True when a request could be served now by healthy workers, and no decode
 *  worker is waited for (kv_links.h). */
bool bt_table_ready(const bt_table_t *table);

/** Longest sequence, prompt and output, that every worker here takes: no more
 * than its context, and than the KV blocks of a decode worker hold (a prefill
 * worker holds the prompt only). UINT32_MAX without any. */
uint32_t bt_table_context_tokens(const bt_table_t *table);

#endif
