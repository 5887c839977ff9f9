/* SPDX-License-Identifier: Apache-2.0 */
/** @file membership.h
 *
 * Routers that a worker joins: the routers of --join always, and the routers
 * of the directory of --join-dir, as their files appear and disappear.
 *
 *     file appears ─▶ joined ─▶ file and link are both gone ─▶ left
 *
 * A file that disappears closes no link: its router may be shutting down with
 * requests left.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_MEMBERSHIP_H
#define BT_WORKER_MEMBERSHIP_H

#include "common/base/status.h"

typedef struct bt_worker bt_worker_t;
typedef struct bt_membership bt_membership_t;

/** Begins watching --join-dir, if given. @retval BT_ERR_NO_MEMORY (logged) */
BT_MUST_CHECK bt_status_t bt_membership_open(bt_worker_t *w);
/** Joins and leaves routers; free of cost while nothing changes. */
void bt_membership_tick(bt_worker_t *w);
void bt_membership_close(bt_worker_t *w);

#endif
