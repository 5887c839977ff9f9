/* SPDX-License-Identifier: Apache-2.0 */
/** @file membership.h
 *
 * Which routers a worker works for while it serves: those of --join always, and
 * those of the directory of --join-dir, as they come and go there.
 *
 *     a file appears ─▶ joined ─▶ it is gone, and so is the link ─▶ left
 *
 * A file that is gone ends no link: its router may be on its way out with
 * requests left.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_MEMBERSHIP_H
#define BT_WORKER_MEMBERSHIP_H

#include "common/base/status.h"

typedef struct bt_worker bt_worker_t;
typedef struct bt_membership bt_membership_t;

/** Begin to look, if there is --join-dir. @retval BT_ERR_NO_MEMORY (logged) */
BT_MUST_CHECK bt_status_t bt_membership_open(bt_worker_t *w);
/** Join and leave; costs nothing while nothing changes. */
void bt_membership_tick(bt_worker_t *w);
void bt_membership_close(bt_worker_t *w);

#endif
