/* SPDX-License-Identifier: Apache-2.0 */
/** @file rank_tables.h
 *
 * Collectives used among the ranks of a model:
 *
 *     orders, results of a call      over host memory       the worker's own
 *     rows between layers, sums      over back-end memory   the back end's own
 *
 * Where the back end works in host memory both are one. Otherwise rank 0 of
 * each group creates the id of a second communicator, broadcasts it over the
 * first, and all ranks open it (bt_kernels_ops_t.collectives_open). Its calls
 * are queued among the back end's operations; the host does not wait for them
 * here.
 *
 * Threads: as the model's.
 */
#ifndef BT_INFERENCE_MODEL_RANK_TABLES_H
#define BT_INFERENCE_MODEL_RANK_TABLES_H

#include "common/coll/coll.h"
#include "kernels/kernels.h"

typedef struct bt_rank_tables {
    const bt_collectives_t *host;       /**< all ranks */
    const bt_collectives_t *host_stage; /**< ranks of this rank's stage;
                                             NULL: alone */
    /** Collectives of those two groups over buffers of the back end. */
    const bt_collectives_t *buffers;
    const bt_collectives_t *buffers_stage;
    bt_backend_t *be;
    bt_collectives_t *made; /**< opened on the back end; NULL: not opened
                                 here */
    bt_collectives_t *made_stage;
} bt_rank_tables_t;

/** True when ranks can share a model on this back end. */
bool bt_rank_tables_can(const bt_backend_t *be);

/**
 * Opens the collectives of the back end. Collective, where the back end has
 * memory of its own.
 *
 * @param [in]  host_stage  Collectives of all ranks, where they are one stage.
 * @param [out] tables_p    bt_rank_tables_close(), before the back end; after a
 *         failure there is nothing to close.
 * @retval BT_ERR_PEER_LOST  rank 0 did not make the id
 * @retval any of collectives_id(), collectives_open(), the host's collectives
 */
BT_MUST_CHECK bt_status_t bt_rank_tables_open(
    bt_backend_t *be, const bt_collectives_t *host,
    const bt_collectives_t *host_stage, bt_rank_tables_t *tables_p);
/** Closes the collectives; none of their calls may still be queued. All zeros
 *  are allowed. */
void bt_rank_tables_close(bt_rank_tables_t *tables);

#endif
