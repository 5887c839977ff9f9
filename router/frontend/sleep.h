/* SPDX-License-Identifier: Apache-2.0 */
/** @file sleep.h
 *
 * Sleep of all workers by an operator, who wants their memory for something
 * else; and the emptying of their prefix caches.
 *
 *     awake ── sleep ──▶ ending ── no request of before is left ──▶ asleep
 *       ▲                  │                                          │
 *       └──────────────── wake ───────────────────────────────────────┘
 *
 * Requests that come meanwhile wait, as in a pause. The order to sleep, or to
 * wake, is in force for each model (bt_core_set_sleep()), also for workers
 * that come later, and other routers learn of it from the workers.
 *
 * Threads: everything on the event loop's thread.
 * Source:  vLLM, POST /sleep, /wake_up and /reset_prefix_cache.
 */
#ifndef BT_ROUTER_FRONTEND_SLEEP_H
#define BT_ROUTER_FRONTEND_SLEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/containers.h"
#include "common/base/status.h"
#include "router/api/api.h"
#include "router/core/core.h"

#define BT_SLEEP_MISSING_US                                                 \
    60000000u                       /**< most time to wait for workers that \
                                         were there */
#define BT_CACHE_RESET_US 10000000u /**< most time for all caches */

typedef struct bt_frontend bt_frontend_t;

/** Outcome of a command. */
typedef struct bt_sleep_result {
    bt_api_error_t error; /**< http_status 0: it is done */
    uint32_t n_workers;   /**< workers that are as ordered */
    uint32_t n_missing;   /**< workers that were there and are gone */
    uint64_t n_blocks;    /**< KV blocks that a reset found in the caches */
} bt_sleep_result_t;

/** Outcome that somebody waits for. */
typedef enum bt_sleep_wish {
    BT_SLEEP_WISH_SLEEP, /**< all workers sleep */
    BT_SLEEP_WISH_WAKE,  /**< the workers serve */
    BT_SLEEP_WISH_RESET, /**< all prefix caches are empty */
} bt_sleep_wish_t;

/** Somebody who is told of the outcome. Owned by the caller until done() or
 *  bt_router_sleep_forget(). */
typedef struct bt_router_sleep_waiter {
    bt_list_t link;
    bt_sleep_wish_t wish;
    uint64_t number;   /**< number of a reset, in the messages */
    uint64_t since_us; /**< when it began to wait */
    /** Called once. */
    void (*done)(void *ctx, const bt_sleep_result_t *result);
    void *ctx;
} bt_router_sleep_waiter_t;

typedef struct bt_router_sleep {
    bool is_ending;    /**< requests of before run to their ends */
    uint64_t last;     /**< number of the last order or reset from here */
    bt_list_t waiters; /**< bt_router_sleep_waiter_t.link */
} bt_router_sleep_t;

void bt_router_sleep_init(bt_router_sleep_t *sleep);
/** True from the command to sleep on, of this router or another. */
bool bt_router_sleep_is_begun(const bt_frontend_t *front);
/**
 * Has all workers sleep; harmless when repeated.
 *
 * @param [in]  aborts   end the generations that are here, held ones excepted
 * @param [in]  waiter   done and ctx are set; told from
 *                       bt_router_sleep_tick()
 * @param [out] error_p  filled on failure
 * @retval BT_ERR_UNSUPPORTED  a worker cannot; nothing has changed
 * @retval BT_ERR_BUSY         weights are being replaced
 */
BT_MUST_CHECK bt_status_t bt_router_sleep_begin(
    bt_frontend_t *front, bool aborts, bt_router_sleep_waiter_t *waiter,
    uint64_t now_us, bt_api_error_t *error_p);
/** Has all workers wake; harmless when repeated. Who waits for them to sleep is
 *  told so at once. */
void bt_router_sleep_end(bt_frontend_t *front, bt_router_sleep_waiter_t *waiter,
                         uint64_t now_us);
/** Empties the prefix caches of all workers.
 *  @retval BT_ERR_UNSUPPORTED  a worker cannot; others may have */
BT_MUST_CHECK bt_status_t
bt_router_cache_reset(bt_frontend_t *front, bt_router_sleep_waiter_t *waiter,
                      uint64_t now_us, bt_api_error_t *error_p);
/** Gives a model that comes later the order in force. */
void bt_router_sleep_add(const bt_frontend_t *front, bt_core_t *core);
/** Does what is due, and tells those who wait. */
void bt_router_sleep_tick(bt_frontend_t *front, uint64_t now_us);
/** Forgets a waiter who was not told yet. */
void bt_router_sleep_forget(bt_router_sleep_waiter_t *waiter);

#endif
