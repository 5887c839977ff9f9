/* SPDX-License-Identifier: Apache-2.0 */
/** @file hangup.h  SIGHUP: a worker reads its key file again. The links that it
 *  has stay; new ones, to routers and to other workers, are opened under the
 * key that is there now, and for ten minutes also under the one before. */
#ifndef BT_WORKER_HANGUP_H
#define BT_WORKER_HANGUP_H

#include "common/base/status.h"
#include "worker/worker.h"

/** Blocks the signal; before there are other threads.
 *  @retval BT_ERR_IO  logged */
BT_MUST_CHECK bt_status_t bt_hangup_open(bt_worker_t *w);
/** What came since. */
void bt_hangup_take(bt_worker_t *w);
/** Opened or not. */
void bt_hangup_close(bt_worker_t *w);

#endif
