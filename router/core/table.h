/* SPDX-License-Identifier: Apache-2.0 */
/** @file table.h
 *
 * The router's picture of the workers, and which pair takes a request. Pure:
 * no clock, socket or thread.
 *
 *     hello ── check ──▶ UP ⇄ SUSPECT          (control link silent)
 *                        │  └──▶ DRAINING      (takes nothing new)
 *                        └──▶ removed          (link down)
 *
 * The load of a worker is the larger of two views: what this router has sent
 * and not seen ended, and what the worker itself reported (other routers send
 * to it too).
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
#include "common/wire/wire.h"

#define BT_TABLE_WHY_BYTES 384
#define BT_TABLE_MAX_AVOID 4

typedef enum bt_instance_state {
    BT_INSTANCE_UP,
    BT_INSTANCE_SUSPECT,
    BT_INSTANCE_DRAINING,
    BT_INSTANCE_N_STATES,
} bt_instance_state_t;

typedef struct bt_instance {
    bt_list_t link;       /**< in bt_table.workers */
    bt_msg_hello_t hello; /**< hello.kvt is owned */
    bt_instance_state_t state;
    bt_msg_stats_t stats; /**< the latest; zero before the first */
    bool has_stats;
    /* Sent by this router and not seen ended. */
    bt_list_t legs;          /**< the owner of the requests uses it */
    uint32_t seats;          /**< requests */
    uint64_t prefill_tokens; /**< prompt tokens not computed yet */
    uint64_t blocks;         /**< KV blocks that those requests may take */
    uint64_t last_taken;     /**< number of the pick that took it last */
    void *link_user;         /**< the control link; the caller's */
} bt_instance_t;

typedef struct bt_table {
    bt_list_t workers;
    bt_hash128_t model; /**< of our own model file */
    uint64_t n_taken;   /**< picks */
} bt_table_t;

/** Two workers for one request. */
typedef struct bt_pick {
    bt_instance_t *prefill; /**< NULL: the decode worker does both phases */
    bt_instance_t *decode;
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
 * the workers that are here.
 *
 * @param [out] why  On refusal a sentence that names worker and difference.
 * @retval BT_OK
 * @retval BT_ERR_MISMATCH
 */
BT_MUST_CHECK bt_status_t bt_table_check(const bt_table_t *table,
                                         const bt_msg_hello_t *hello,
                                         char why[BT_TABLE_WHY_BYTES]);

/** Add a worker that was checked; copies @a hello. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_table_add(bt_table_t *table,
                                       const bt_msg_hello_t *hello,
                                       bt_instance_t **worker_p);
/** Takes the worker out and frees it; its legs must have been removed. */
void bt_table_remove(bt_instance_t *worker);

/** @return NULL when there is none. */
bt_instance_t *bt_table_find(const bt_table_t *table, uint64_t instance);

/**
 * Choose workers for one request.
 *
 * The prefill worker with the fewest outstanding prompt tokens, the decode
 * worker with the smallest share of seats or blocks in use; a suspect worker
 * only where there is no healthy one, a draining one never; the one that was
 * taken longest ago among equals.
 *
 * A healthy decode worker with BT_HELLO_LOCAL_PREFILL does both phases where no
 * prefill worker is healthy, and where that one is far behind: for each
 * outstanding prompt token of its own there are four, and 1,024 more, at the
 * best prefill worker.
 *
 * O(workers).
 *
 * @param [in] avoid  Those only where all others of that role are suspect or
 *                    none is here. NULL: nobody.
 * @return false when no pair is here.
 */
bool bt_table_pick(const bt_table_t *table, const bt_avoid_t *avoid,
                   bt_pick_t *pick_p);
/** @return false when a worker of it is suspect. */
bool bt_pick_is_healthy(const bt_pick_t *pick);
/** The request goes there, so others are next where all are equal. */
void bt_table_take(bt_table_t *table, const bt_pick_t *pick);

/** True when a request could be served now by healthy workers. */
bool bt_table_ready(const bt_table_t *table);

/** Longest sequence, prompt and output, that every worker here takes: no more
 * than its context, and than the KV blocks of a decode worker hold (a prefill
 * worker holds the prompt only). UINT32_MAX without any. */
uint32_t bt_table_context_tokens(const bt_table_t *table);

const char *bt_role_name(uint32_t role);

#endif
