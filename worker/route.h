/* SPDX-License-Identifier: Apache-2.0 */
/** @file route.h
 *
 * The routes of a worker's hand-overs (common/kv/kv_route.h), by how the other
 * instance splits the model: each is planned when it is first asked for and
 * kept until the worker ends, so that transfers under way never lose theirs.
 * There are few: splits of at most BT_WIRE_MAX_RANKS ranks.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_ROUTE_H
#define BT_WORKER_ROUTE_H

#include "common/kv/kv_route.h"
#include "worker/worker.h"

/** Before the first use of the others. */
void bt_routes_init(bt_worker_t *w);
void bt_routes_fini(bt_worker_t *w);

/**
 * @param [in]  end      Which end of the transfers we are.
 * @param [in]  theirs   The split of the other end.
 * @param [out] route_p  Lives as long as the worker.
 * @retval BT_ERR_INVALID_PARAM  the model cannot be split like that
 * @retval BT_ERR_UNSUPPORTED    more than one lane: several transfers for one
 *                               sequence are not here yet
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_route_find(bt_worker_t *w, bt_kv_end_t end,
                                        bt_kv_split_t theirs,
                                        const bt_kv_route_t **route_p);

#endif
