/* SPDX-License-Identifier: Apache-2.0 */
/** @file peer_sharding.h
 *
 * Splits of the instances that may send KV here: how each divides its model
 * over ranks, as the routers report it (PEER with `sends`) before they name
 * the instance in a REQUEST. An instance not reported counts as one rank, for
 * older routers.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_PEER_SHARDING_H
#define BT_WORKER_PEER_SHARDING_H

#include "worker/worker.h"

void bt_peer_sharding_init(bt_worker_t *w);
void bt_peer_sharding_fini(bt_worker_t *w);

/** Adds or updates an instance's split. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_peer_sharding_add(bt_worker_t *w,
                                               uint64_t instance,
                                               bt_kv_split_t split);
bt_kv_split_t bt_peer_sharding_split(const bt_worker_t *w, uint64_t instance);

#endif
