/* SPDX-License-Identifier: Apache-2.0 */
/** @file frontend.h
 *
 * Shared state of all requests: the served models, their cores, and what they
 * are accounted in.
 *
 *     HTTP, gRPC ──▶ request ──▶ its model's core ──▶ workers
 *       ▲              │  ▲            │
 *       └── pieces ────┘  └── text ────┘
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_FRONTEND_FRONTEND_H
#define BT_ROUTER_FRONTEND_FRONTEND_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/pool.h"
#include "common/config/config.h"
#include "router/frontend/grammar_cache.h"
#include "router/frontend/loads.h"
#include "router/frontend/names.h"
#include "router/frontend/pause.h"
#include "router/frontend/regions.h"
#include "router/frontend/registry.h"
#include "router/frontend/sleep.h"
#include "router/frontend/space.h"
#include "router/frontend/turn.h"
#include "router/frontend/work.h"
#include "router/observe/access_log.h"
#include "router/observe/ids.h"
#include "router/observe/metrics.h"
#include "router/observe/trace.h"
#include "router/store/store.h"
#include "router/tenants/tenants.h"
#include "router/watch/membership.h"
#include "router/watch/watch.h"

#define BT_ANSWER_LIMIT (64u << 20) /**< bytes of one answer */
/** Limit on the bytes of logits in one answer, leaving space for the rest. */
#define BT_ANSWER_LOGITS (BT_ANSWER_LIMIT - (1u << 20))

/** Answers up to this size are written on the event loop: that takes 100 us. */
#define BT_ANSWER_INLINE_BYTES ((size_t)24 * 1024)

/** Bytes of an answer that the pool writes in one go: some 2 ms. */
#define BT_ANSWER_SLICE_BYTES ((size_t)256 * 1024)

/** Error text for admin commands that are refused where there are no keys. */
#define BT_ADMIN_REFUSED                                                    \
    "this is an admin request: without keys (--api-keys) the server takes " \
    "it from its own user and from root on its own host, and with "         \
    "--admin-without-keys anybody from every client that reaches the port"

typedef struct bt_frontend bt_frontend_t;

/** Memory of compiled grammars that are kept. */
#define BT_FRONTEND_GRAMMAR_BYTES ((size_t)32 << 20)

/** Functions of the requests, which stand above the frontend
 *  (router/request/request.h). */
typedef struct bt_frontend_ops {
    /** Events of a generation, as in bt_core_ops_t. */
    void (*on_placed)(void *ctx, void *user);
    void (*on_text)(void *ctx, void *user, const char *text, size_t bytes,
                    uint32_t n_output);
    void (*on_end)(void *ctx, void *user, const bt_gen_end_t *end);
    /** At the end of each callback of the event loop. */
    void (*turn)(bt_frontend_t *front);
    /** Every 50 ms or so. */
    void (*tick)(bt_frontend_t *front, uint64_t now_us);
} bt_frontend_ops_t;

/** Templates and tokenizing that take longer move to the pool, in us. */
#define BT_FRONTEND_INLINE_US 1000u

struct bt_frontend {
    const bt_frontend_ops_t *ops;
    const bt_config_t *config;
    bt_registry_t models;
    bt_tenants_t tenants;    /**< tenants and their limits */
    bt_loads_t loads;        /**< models being loaded */
    bt_members_t members;    /**< missing workers, and why */
    bt_router_pause_t pause; /**< pausing by an operator */
    bt_router_sleep_t sleep; /**< sleep of the workers by an operator */
    bt_turn_t turn;          /**< deferred work of the event loop */
    bt_router_metrics_t *metrics;
    bt_watch_t *watch;           /**< data of live views; owned */
    uint64_t look_us;            /**< time of the next check (watching.h) */
    bool was_ready, was_leaving; /**< state at the last check */
    uint64_t n_generations;      /**< generations begun */
    bt_names_t names;            /**< counters per Triton model name */
    bt_trace_t *trace;           /**< NULL: not enabled */
    bool trace_is_off;           /**< disabled by a client's command */
    bt_access_log_t *access;     /**< NULL: not enabled */
    bt_ids_t ids;                /**< request ids */
    bt_regions_t *regions;       /**< clients' shared-memory regions; NULL:
                                    --shared-memory off */
    bt_store_t *store; /**< objects kept for clients; owned; NULL: --store is
                          not given */
    /** Stored responses, in memory without --store; owned; NULL: none is. */
    bt_store_t *responses;
    bt_grammar_cache_t *grammars;          /**< compiled ones; owned */
    uint8_t space_key[BT_SPACE_KEY_BYTES]; /**< zero until it is set */
    bool leaving;                          /**< not ready any more */
    bool draining;                         /**< no new requests */
    /** When a client last asked for readiness; 0: never. */
    uint64_t ready_asked_ms;
    bt_pool_t *pool;         /**< threads for long work; the loop calls
                                bt_pool_next() for each finished job */
    bt_work_orders_t orders; /**< queues of the pool */
    uint64_t inline_us;      /**< time limit of tokenizing on the event loop */
    bt_budget_t requests;    /**< memory of requests in progress */
    bt_budget_t answers;     /**< ... and of answers being written */
    uint64_t most_bytes;     /**< memory limit of the process; 0: no limit */
    bool logged_priority;    /**< logged that clients' priorities are ignored */
    bt_list_t held;          /**< rows held for batching: max-queue-delay-us */
    uint32_t n_held;
    /** Starts the timer for bt_request_begin_held(), in us, when rows are
     * held; NULL: rows are never held. */
    void (*hold_end)(void *ctx, uint32_t us);
    void *hold_ctx;
    bt_list_t waiting;   /**< stream rows that wait for workers, in order */
    bt_list_t placed;    /**< stream rows that are about to begin */
    bt_list_t paced;     /**< refused requests whose error is delayed */
    uint32_t n_arriving; /**< choices of requests that do not run yet */
    uint32_t n_answers;  /**< ended choices whose answers the pool is writing */
    uint32_t n_model_controls; /**< model controls in progress */
    bt_list_t stoppable;       /**< requests that clients can stop by id */
    uint64_t id_start;         /**< random: makes answer ids unique */
    uint64_t n_answers_begun;  /**< counter of answer ids */
};

/** True when, without keys, admin commands of all clients are accepted; false
 *  when only those of the router's own user are. */
bool bt_frontend_admits_anybody(const bt_frontend_t *front);

/** Returns what the options say of the store; for a server that has one. */
bt_store_config_t bt_frontend_store_config(const bt_config_t *config);

/**
 * Opens the models that the options name.
 *
 * @param [in] config    borrowed
 * @param [in] ops       static: bt_request_frontend_ops
 * @param [in] send      posts to a worker, see bt_core_ops_t
 * @retval others  Logged.
 */
BT_MUST_CHECK bt_status_t bt_frontend_open(bt_frontend_t *front,
                                           const bt_config_t *config,
                                           const bt_frontend_ops_t *ops,
                                           bt_send_t send, void *send_ctx);
/** Ends running generations and writes their records. Also accepts a zeroed
 *  frontend. */
void bt_frontend_close(bt_frontend_t *front);

/** Sets memory limits before the first request: for all requests, as much again
 *  for answers being written; and for the whole process, 0 for no limit. */
void bt_frontend_limit_memory(bt_frontend_t *front, uint64_t http_bytes,
                              uint64_t process_bytes);

/** Ends a callback of the event loop: call it last in each callback, and after
 *  bt_turn_finish() of `turn`. Starts another client's turn of the processor.
 */
void bt_frontend_turn(bt_frontend_t *front);

/** Handles deadlines, waiting requests, delayed refusals and the trace's file;
 *  call every 50 ms or so. */
void bt_frontend_tick(bt_frontend_t *front, uint64_t now_us);
/** Reopens trace and access log in new files, after the old ones were moved. */
void bt_frontend_reopen(bt_frontend_t *front);
/** Ends all requests with an error. */
void bt_frontend_end_all(bt_frontend_t *front, const char *why,
                         uint64_t now_us);
/** True when every loaded model can be served now and no drain has begun. */
bool bt_frontend_ready(const bt_frontend_t *front);
/** Checks that the queue has slots for @a n more answers. The last eighth of
 * the slots is for tenants that have no more than an eighth: a tenant that
 * floods gets a 429, and the others still find space.
 *  @retval BT_ERR_BUSY  error_p says why not */
BT_MUST_CHECK bt_status_t bt_frontend_check_slots(const bt_frontend_t *front,
                                                  const bt_tenant_t *tenant,
                                                  size_t n,
                                                  bt_api_error_t *error_p);
/** Returns the number of requests in flight, including arriving ones and those
 *  whose answer is being written. */
uint32_t bt_frontend_n_in_flight(const bt_frontend_t *front);
uint32_t bt_frontend_n_legs(const bt_frontend_t *front);

#endif
