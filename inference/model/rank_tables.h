/* SPDX-License-Identifier: Apache-2.0 */
/** @file rank_tables.h
 *
 * Who carries what among the ranks of a model:
 *
 *     orders, results of a call      the host's memory      the worker's tables
 *     rows between layers, sums      the back end's         its own tables
 *
 * Where the back end works in the host's memory both are the same. Else rank 0
 * of a table makes the id of another one, which the first one brings to the
 * others, and all open it (bt_kernels_ops_t.collectives_open). Its calls are
 * queued among the back end's operations; nobody waits for them here.
 *
 * Threads: as the model's.
 */
#ifndef BT_INFERENCE_MODEL_RANK_TABLES_H
#define BT_INFERENCE_MODEL_RANK_TABLES_H

#include "common/coll/coll.h"
#include "kernels/kernels.h"

typedef struct bt_rank_tables {
    const bt_collectives_t *host;       /**< of all ranks */
    const bt_collectives_t *host_stage; /**< of this one's stage; NULL: alone */
    /** The same ranks, over buffers of the back end. */
    const bt_collectives_t *buffers;
    const bt_collectives_t *buffers_stage;
    bt_backend_t *be;
    bt_collectives_t *made; /**< by the back end; NULL: not this one */
    bt_collectives_t *made_stage;
} bt_rank_tables_t;

/** Can ranks share a model on this back end? */
bool bt_rank_tables_can(const bt_backend_t *be);

/**
 * Collective, where the back end has memory of its own.
 *
 * @param [in]  host_stage  That of all, where they are one stage.
 * @param [out] tables_p    bt_rank_tables_close(), before the back end; after a
 *                          failure there is nothing to close.
 * @retval BT_ERR_PEER_LOST  rank 0 did not make the id
 * @retval  any of collectives_id(), collectives_open(), the host's tables
 */
BT_MUST_CHECK bt_status_t bt_rank_tables_open(
    bt_backend_t *be, const bt_collectives_t *host,
    const bt_collectives_t *host_stage, bt_rank_tables_t *tables_p);
/** Nothing is queued any more. All zeros are allowed. */
void bt_rank_tables_close(bt_rank_tables_t *tables);

#endif
