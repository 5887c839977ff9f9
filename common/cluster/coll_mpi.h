/* SPDX-License-Identifier: Apache-2.0 */
/** @file coll_mpi.h
 *
 * The collectives of a communicator's ranks over MPI. Sums are gathered and
 * added by each rank in the order of coll_tree.h.
 *
 * Threads: as cluster.h.
 */
#ifndef BT_COMMON_CLUSTER_COLL_MPI_H
#define BT_COMMON_CLUSTER_COLL_MPI_H

#include <mpi.h>

#include "common/coll/coll.h"

/** Parts of 64 MiB of one message that is received in two calls. */
#define BT_COLL_MPI_MAX_PARTS 32u

typedef struct bt_coll_mpi_begun {
    MPI_Request parts[BT_COLL_MPI_MAX_PARTS];
    uint32_t n;
} bt_coll_mpi_begun_t;

typedef struct bt_coll_mpi {
    MPI_Comm comm; /**< owned; MPI_COMM_NULL: not open */
    bt_collectives_t table;
    float *gathered;     /**< of each rank a piece of a sum */
    const float **parts; /**< of them */
    bt_coll_mpi_begun_t begun[BT_COLL_MAX_BEGUN]; /**< a ring */
    uint32_t first_begun, n_begun;
} bt_coll_mpi_t;

/** Not open. */
void bt_coll_mpi_init(bt_coll_mpi_t *coll);
/**
 * Of those of @a comm that say the same color, in its order. Collective there.
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_INTERNAL  MPI failed; logged. Close it, then too.
 */
BT_MUST_CHECK bt_status_t bt_coll_mpi_open(MPI_Comm comm, uint32_t color,
                                           bt_coll_mpi_t *coll);
/** The communicator, before MPI_Finalize(). */
void bt_coll_mpi_close(bt_coll_mpi_t *coll);

#endif
