/* SPDX-License-Identifier: Apache-2.0 */
/** @file hangup.h  SIGHUP: a worker reads its key file again. Open links stay;
 *  new links, to routers and to other workers, use the new key, and for ten
 *  minutes also accept the previous one. */
#ifndef BT_WORKER_HANGUP_H
#define BT_WORKER_HANGUP_H

#include "common/base/status.h"
#include "worker/worker.h"

/** Blocks SIGHUP and opens its descriptor. Call before other threads exist.
 *  @retval BT_ERR_IO  logged */
BT_MUST_CHECK bt_status_t bt_hangup_open(bt_worker_t *w);
/** Handles the signals received since the last call. */
void bt_hangup_take(bt_worker_t *w);
/** Closes the descriptor, if open. */
void bt_hangup_close(bt_worker_t *w);

#endif
