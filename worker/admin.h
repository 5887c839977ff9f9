/* SPDX-License-Identifier: Apache-2.0 */
/** @file admin.h
 *
 * Control of a running worker from outside: role, drain, and SIGHUP.
 */
#ifndef BT_WORKER_ADMIN_H
#define BT_WORKER_ADMIN_H

#include "common/base/status.h"
#include "worker/worker.h"

/*
 * Role of a worker and whether it accepts requests, as routers set it on
 * behalf of the cluster's operator. The worker is the authority: routers do
 * not know each other, so the worker reports its current state to all of them.
 *
 *            ROLE duty=off                 ROLE duty=end
 *     on ◀══════════════▶ off          any ─────────────▶ leaving ─▶ ended
 *            ROLE duty=on                  (finishes its jobs)
 *
 * Off: the worker sends DRAIN to every router at once and sets STATS.duty from
 * then on; a request already on its way is refused (BT_ERR_BUSY) and runs
 * elsewhere. On again: the next STATS reports it. Leaving cannot be undone, nor
 * can a drain started by a signal.
 *
 * Threads: the control thread.
 */

/** Carries out a router's ROLE message. An unknown role or duty is logged, and
 *  nothing of the message is carried out. */
void bt_admin_state_on_role(bt_worker_t *w, const bt_msg_role_t *role);
/** True when the worker accepts nothing new: drained, leaving, or stopped by a
 *  signal. */
bool bt_admin_state_is_draining(const bt_worker_t *w);
/** True when the worker was ordered to leave and no job is left: time to end.
 *  Stays true until w->draining is set. */
bool bt_admin_state_is_drained(const bt_worker_t *w);
bt_admin_state_t bt_admin_state_of(const bt_worker_t *w); /**< for STATS */
/** Notifies all routers that the worker accepts nothing new; STATS follow at
 *  once. */
void bt_admin_state_send(bt_worker_t *w);

/** Empties the prefix cache by order of a router, and answers it. */
void bt_admin_cache_reset(bt_worker_t *w, bt_worker_link_t *from,
                          const bt_msg_cache_reset_t *order);

/* SIGHUP: a worker reads its key file again. Open links
 * stay; new links, to routers and to other workers, use the new key, and for
 * ten minutes also accept the previous one. */

/** Blocks SIGHUP and opens its descriptor. Call before other threads exist.
 *  @retval BT_ERR_IO  logged */
BT_MUST_CHECK bt_status_t bt_sighup_open(bt_worker_t *w);
/** Handles the signals received since the last call. */
void bt_sighup_take(bt_worker_t *w);
/** Closes the descriptor, if open. */
void bt_sighup_close(bt_worker_t *w);

#endif
