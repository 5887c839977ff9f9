/* SPDX-License-Identifier: Apache-2.0 */
/** @file sighup_reload.h  SIGHUP: a worker reads its key file again. Open links
 * stay; new links, to routers and to other workers, use the new key, and for
 * ten minutes also accept the previous one. */
#ifndef BT_WORKER_SIGHUP_RELOAD_H
#define BT_WORKER_SIGHUP_RELOAD_H

#include "common/base/status.h"
#include "worker/worker.h"

/** Blocks SIGHUP and opens its descriptor. Call before other threads exist.
 *  @retval BT_ERR_IO  logged */
BT_MUST_CHECK bt_status_t bt_sighup_open(bt_worker_t *w);
/** Handles the signals received since the last call. */
void bt_sighup_take(bt_worker_t *w);
/** Closes the descriptor, if open. */
void bt_sighup_close(bt_worker_t *w);

#endif
