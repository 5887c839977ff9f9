/* SPDX-License-Identifier: Apache-2.0 */
/** @file frontend.h
 *
 * What stands between the doors and the core: the models that are served, and
 * what all calls share.
 *
 *     door ── bt_call_json() ──▶ call ──▶ its model's core ──▶ workers
 *       ▲                        │  ▲            │
 *       └──────── reply ─────────┘  └── text ────┘
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_FRONTEND_FRONTEND_H
#define BT_ROUTER_FRONTEND_FRONTEND_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/pool.h"
#include "common/config/config.h"
#include "router/frontend/loads.h"
#include "router/frontend/names.h"
#include "router/frontend/regions.h"
#include "router/frontend/registry.h"
#include "router/frontend/space.h"
#include "router/frontend/turn.h"
#include "router/frontend/work.h"
#include "router/muster/muster.h"
#include "router/observe/access_log.h"
#include "router/observe/ids.h"
#include "router/observe/metrics.h"
#include "router/observe/trace.h"
#include "router/tenants/tenants.h"
#include "router/watch/watch.h"

#define BT_ANSWER_LIMIT (64u << 20) /**< bytes of one answer */
/** Bytes of it that logits may have, beside all else that is in it. */
#define BT_ANSWER_LOGITS (BT_ANSWER_LIMIT - (1u << 20))

/** Why an order is refused where there are no keys. */
#define BT_ORDER_REFUSED                                                     \
    "this is an order to the server: where there are no keys (--api-keys), " \
    "it takes those of its own user and of root on its own host, and with "  \
    "--orders-without-keys anybody those of whoever reaches the port"

typedef struct bt_frontend {
    const bt_config_t *config;
    bt_registry_t models;
    bt_tenants_t tenants; /**< who asks */
    bt_loads_t loads;     /**< models that come later */
    bt_muster_t muster;   /**< workers that are not here, and why */
    bt_turn_t turn;       /**< of the event loop */
    bt_router_metrics_t *metrics;
    bt_watch_t *watch;           /**< what live views read; owned */
    uint64_t look_us;            /**< when it looks again (watching.h) */
    bool was_ready, was_leaving; /**< at the last look */
    uint64_t n_generations;      /**< that were begun */
    bt_names_t names;            /**< what is counted for Triton's names */
    bt_trace_t *trace;           /**< NULL: not asked for */
    bool trace_is_off;           /**< by a client's order */
    bt_access_log_t *access;     /**< the same */
    bt_ids_t ids;                /**< of requests */
    bt_regions_t *regions;       /**< of clients; NULL: --shared-memory off */
    uint8_t space_key[BT_SPACE_KEY_BYTES]; /**< zero until it is set */
    bool leaving;                          /**< not ready any more */
    bool draining;                         /**< no new requests */
    uint64_t ready_asked_ms; /**< when a client last asked; 0: never */
    bt_pool_t *pool;         /**< for what takes long; bt_frontend_step() */
    bt_work_orders_t orders; /**< of the pool */
    bt_budget_t requests;    /**< memory of those that are worked on */
    bt_budget_t answers;     /**< ... and of answers that are written */
    uint64_t most_bytes;     /**< that the process may have; 0: no limit */
    bool said_priority;      /**< that clients' are ignored */
    bt_list_t held;          /**< calls that wait for others: queue-delay-us */
    uint32_t n_held;
    /** Calls are held, and bt_call_begin_held() is due after so long; NULL:
     *  none is. */
    void (*hold_end)(void *ctx, uint32_t us);
    void *hold_ctx;
    bt_list_t waiting;   /**< calls: streams that wait for workers, in order */
    bt_list_t placed;    /**< calls: streams that are to begin */
    bt_list_t paced;     /**< calls that are refused, and told so later */
    uint32_t n_arriving; /**< choices of calls that are not running yet */
    uint32_t n_answers;  /**< ended, and being written by the pool */
    uint32_t n_orders;   /**< of clients to the launcher, under way */
    bt_list_t stoppable; /**< calls that end by their clients' ids */
    uint64_t id_start;   /**< random: makes ids of answers unique */
    uint64_t n_calls;
} bt_frontend_t;

/** Whose orders are taken where there are no keys: everybody's, or those of the
 *  router's own user alone? */
bool bt_frontend_obeys_anybody(const bt_frontend_t *front);

/**
 * Opens the models that the options name.
 *
 * @param [in] config    borrowed
 * @param [in] send      posts to a worker, see bt_core_ops_t
 * @retval others  Logged.
 */
BT_MUST_CHECK bt_status_t bt_frontend_open(bt_frontend_t *front,
                                           const bt_config_t *config,
                                           bt_send_t send, void *send_ctx);
/** Ends what still runs and writes its records. Also of a zeroed one. */
void bt_frontend_close(bt_frontend_t *front);

/** Before the first request: memory for all requests, as much again for answers
 *  that are written; and of the whole process, 0 for no limit. */
void bt_frontend_limit_memory(bt_frontend_t *front, uint64_t http_bytes,
                              uint64_t process_bytes);

/** Call it at the end of each callback of the event loop, and after
 *  bt_turn_finish() of `turn`: somebody else's turn of the processor begins. */
void bt_frontend_turn(bt_frontend_t *front);

/** Takes one thing that the pool has done; call it while its descriptor is
 *  readable. @return false: there is none */
bool bt_frontend_step(bt_frontend_t *front);
int bt_frontend_fd(const bt_frontend_t *front);

/** Deadlines, waiting requests, held refusals, the trace's file; call every 50
 * ms or so. */
void bt_frontend_tick(bt_frontend_t *front, uint64_t now_us);
/** Trace and access log go on in new files: the old ones were moved aside. */
void bt_frontend_reopen(bt_frontend_t *front);
/** End all calls with an error. */
void bt_frontend_end_all(bt_frontend_t *front, const char *why,
                         uint64_t now_us);
/** True when every loaded model can be served now and no drain has begun. */
bool bt_frontend_ready(const bt_frontend_t *front);
/** Is there room for n more answers, beside n_mine that are counted already?
 * The last eighth of the places is for tenants that have no more than an
 * eighth: one that floods is told to come later, and the others find room.
 *  @retval BT_ERR_BUSY  error_p says why not */
BT_MUST_CHECK bt_status_t bt_frontend_check_room(const bt_frontend_t *front,
                                                 const bt_tenant_t *tenant,
                                                 size_t n, uint32_t n_mine,
                                                 bt_api_error_t *error_p);
/** Those that arrive and those whose answer is being written included. */
uint32_t bt_frontend_n_in_flight(const bt_frontend_t *front);
uint32_t bt_frontend_n_legs(const bt_frontend_t *front);

#endif
