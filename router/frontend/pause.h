/* SPDX-License-Identifier: Apache-2.0 */
/** @file pause.h
 *
 * Pausing of this router's generations by an operator, as training loops do it
 * before they change something. Requests that come meanwhile wait, to their
 * deadlines if need be; those that were here before run to their ends or, on
 * demand, end with an error.
 *
 *     running ── begin ──▶ pausing ── none of before is left ──▶ paused
 *        ▲                    │                                     │
 *        └────────────────── end ───────────────────────────────────┘
 *
 * Routers know nothing of each other: each is paused separately.
 *
 * Threads: everything on the event loop's thread.
 * Source:  vLLM, POST /pause and /resume.
 */
#ifndef BT_ROUTER_FRONTEND_PAUSE_H
#define BT_ROUTER_FRONTEND_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/containers.h"

typedef struct bt_frontend bt_frontend_t;

/** Somebody who is told when the router is paused. Owned by the caller until
 *  done() or bt_router_pause_forget(). */
typedef struct bt_router_pause_waiter {
    bt_list_t link;
    /** Called once. @param is_paused  false: it was ended before */
    void (*done)(void *ctx, bool is_paused);
    void *ctx;
} bt_router_pause_waiter_t;

typedef struct bt_pause {
    bool is_begun;     /**< pausing or paused */
    bt_list_t waiters; /**< bt_router_pause_waiter_t.link */
} bt_router_pause_t;

void bt_router_pause_init(bt_router_pause_t *pause);
/** Pauses all models; harmless when repeated.
 *  @param [in] aborts  end the generations that are here, held ones excepted
 *  @param [in] waiter  told from bt_router_pause_tick(); linked nowhere before
 */
void bt_router_pause_begin(bt_frontend_t *front, bool aborts,
                           bt_router_pause_waiter_t *waiter, uint64_t now_us);
/** Ends the pause; whoever waits for it is told at once. Harmless without one.
 */
void bt_router_pause_end(bt_frontend_t *front, uint64_t now_us);
/** True when paused and no generation of before is left. */
bool bt_router_pause_is_complete(const bt_frontend_t *front);
/** Tells those who wait, when there is something to tell. */
void bt_router_pause_tick(bt_frontend_t *front);
/** Forgets a waiter who was not told yet. */
void bt_router_pause_forget(bt_router_pause_waiter_t *waiter);

#endif
