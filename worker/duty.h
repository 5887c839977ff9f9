/* SPDX-License-Identifier: Apache-2.0 */
/** @file duty.h
 *
 * What a worker is and whether it takes requests, as its routers order it for
 * whoever runs the cluster. The worker is the authority: it tells all routers,
 * which know nothing of each other, what it is now.
 *
 *            ROLE duty=off                 ROLE duty=end
 *     on ◀══════════════▶ off          any ─────────────▶ leaving ─▶ ended
 *            ROLE duty=on                  (finishes what it has)
 *
 * Off: DRAIN at once to every router, STATS.duty from then on; a request that
 * was on its way is refused (BT_ERR_BUSY) and runs elsewhere. On again: the
 * next STATS say so. A router of an older build does not read them, so its link
 * is ended: on the new one it learns that the worker is there.
 * Leaving is not taken back, nor is a signal's drain.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_DUTY_H
#define BT_WORKER_DUTY_H

#include "worker/worker.h"

/** An order of a router. What it does not know is logged, and nothing of the
 *  order is done. */
void bt_duty_on_role(bt_worker_t *w, const bt_msg_role_t *role);
/** It takes nothing new: drained, leaving, or told to end by a signal. */
bool bt_duty_is_off(const bt_worker_t *w);
/** It was told to leave, and nothing is left: time to end. Once true it is so
 *  until w->draining is set. */
bool bt_duty_is_done(const bt_worker_t *w);
bt_duty_t bt_duty_of(const bt_worker_t *w); /**< for STATS */
/** All routers, that it takes nothing new; STATS follow at once. */
void bt_duty_tell(bt_worker_t *w);

#endif
