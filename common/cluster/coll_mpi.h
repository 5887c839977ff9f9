/* SPDX-License-Identifier: Apache-2.0 */
/** @file coll_mpi.h
 *
 * Collectives of a communicator's ranks over MPI. Sums are gathered and added
 * by each rank in the order of coll_shm.h.
 *
 * Threads: as in cluster.h.
 */
#ifndef BT_COMMON_CLUSTER_COLL_MPI_H
#define BT_COMMON_CLUSTER_COLL_MPI_H

#include <mpi.h>

#include "common/coll/coll.h"

/** Most parts of 64 MiB of one message that is received in two calls. */
#define BT_COLL_MPI_MAX_PARTS 32u

/** Begun receive. */
typedef struct bt_coll_mpi_begun {
    MPI_Request parts[BT_COLL_MPI_MAX_PARTS];
    uint32_t n;
} bt_coll_mpi_begun_t;

/** Collectives over one communicator. */
typedef struct bt_coll_mpi {
    MPI_Comm comm; /**< owned; MPI_COMM_NULL: not open */
    bt_collectives_t table;
    float *gathered;     /**< gathered pieces of a sum, one for each rank */
    const float **parts; /**< pointers into gathered */
    bt_coll_mpi_begun_t begun[BT_COLL_MAX_BEGUN]; /**< ring buffer */
    uint32_t first_begun, n_begun;
} bt_coll_mpi_t;

/** Initialises a closed object. */
void bt_coll_mpi_init(bt_coll_mpi_t *coll);
/**
 * Opens the collectives of the ranks of @a comm with one color, in its order.
 * Collective there.
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_INTERNAL  MPI failed; logged. Close it then, too.
 */
BT_MUST_CHECK bt_status_t bt_coll_mpi_open(MPI_Comm comm, uint32_t color,
                                           bt_coll_mpi_t *coll);
/** Frees the communicator, before MPI_Finalize(). */
void bt_coll_mpi_close(bt_coll_mpi_t *coll);

#endif
