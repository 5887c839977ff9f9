/* SPDX-License-Identifier: Apache-2.0 */
/** @file senders.h
 *
 * How the instances that may send here split their models over ranks: what the
 * routers say of them (PEER with `sends`) before they name them in a REQUEST.
 * Of one that nobody spoke of it is one rank, as older routers have it.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_SENDERS_H
#define BT_WORKER_SENDERS_H

#include "worker/worker.h"

void bt_senders_init(bt_worker_t *w);
void bt_senders_fini(bt_worker_t *w);

/** @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_senders_add(bt_worker_t *w, uint64_t instance,
                                         bt_kv_split_t split);
bt_kv_split_t bt_senders_split(const bt_worker_t *w, uint64_t instance);

#endif
