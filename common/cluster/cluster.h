/* SPDX-License-Identifier: Apache-2.0 */
/** @file cluster.h
 *
 * Ranks and roles under mpirun or srun --mpi=pmix. The only includer of mpi.h.
 * A process started by neither (./baton serve) never calls MPI_Init: a
 * singleton would start a helper that listens on all interfaces.
 *
 * One mpirun for all roles: the roles come from the program (MPI_Comm_split),
 * and every router's address is sent to every process, so that workers need no
 * --join. One job step per instance: the world has one role only, and --join
 * (or BATON_JOIN) has the router's address.
 *
 * The processes of a role form teams of as many ranks as an instance has, in
 * rank order:
 *
 *     decode   rank 0  1 │ 2  3 │ 4  5      three instances of two
 *
 * Unless the operator has set them, MPI's own settings (OMPI_MCA_...) are
 * chosen so that it yields while it waits, and on one host opens no TCP port.
 *
 * Threads: MPI is called from one thread at a time (MPI_THREAD_SERIALIZED): the
 *          one that opened the cluster, and while that does not a team's
 *          compute thread.
 */
#ifndef BT_COMMON_CLUSTER_CLUSTER_H
#define BT_COMMON_CLUSTER_CLUSTER_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/coll/coll.h"

typedef struct bt_cluster bt_cluster_t;

/**
 * Calls MPI_Init (thread level SERIALIZED) when launched by MPI, else creates a
 * world of one.
 * @param [in] role  0 router, 1 prefill, 2 decode
 * @retval BT_ERR_INVALID_PARAM  no such role
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_INTERNAL  MPI failed; logged. If initialisation had begun, MPI
 *                          ends the other processes and this one instead.
 */
BT_MUST_CHECK bt_status_t bt_cluster_open(uint32_t role, int *argc,
                                          char ***argv, bt_cluster_t **cl_p);
/** Closes the cluster. Collective where launched: MPI_Finalize. A router
 *  that did not reach the exchange notifies the others here. NULL is
 *  allowed. */
void bt_cluster_close(bt_cluster_t *cl);

uint32_t bt_cluster_world_size(const bt_cluster_t *cl);
/** True when the world holds a router besides this worker. */
bool bt_cluster_has_router(const bt_cluster_t *cl);

/**
 * Exchanges router URLs, collectively over the world, once: each router gives
 * its URL, every process gets all routers' URLs in rank order, comma-separated.
 * Also shares the cluster key of the first router with every process whose @a
 * key_io is all zero, so that a single mpirun needs no key file.
 * @retval BT_ERR_NOT_FOUND  a world without router, or called before
 * @retval BT_ERR_PEER_LOST  no router came up: each one closed its cluster
 *                           before it had an address
 * @retval BT_ERR_TOO_LARGE  @a url_bytes are too few, or a router's own URL has
 *                           256 or more
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_INTERNAL  MPI failed; logged
 */
BT_MUST_CHECK bt_status_t bt_cluster_exchange(bt_cluster_t *cl, char *url_io,
                                              size_t url_bytes,
                                              uint8_t key_io[32]);

/** Ranks of one instance. */
typedef struct bt_cluster_team {
    uint32_t index; /**< index of the instance in its role */
    uint32_t rank;
    uint32_t size;
    bool is_local; /**< all ranks are on this host */
    /** Collectives over MPI among all ranks; NULL when there is one rank.
     *  Lives as long as the cluster. */
    const bt_collectives_t *coll;
    /** Collectives among the ranks of this one's stage; NULL when there is
     *  one. */
    const bt_collectives_t *stage;
} bt_cluster_team_t;

/**
 * Forms teams of pp stages, in rank order, of tp ranks each. Collective among
 * the processes of this role, once.
 * @retval BT_ERR_INVALID_PARAM  the role's processes are no whole number of
 *                               such teams (logged)
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_INTERNAL  MPI failed; logged
 */
BT_MUST_CHECK bt_status_t bt_cluster_team(bt_cluster_t *cl, uint32_t tp,
                                          uint32_t pp,
                                          bt_cluster_team_t *team_p);

/** Returns the first words of MPI's version string: "Open MPI v4.1.4". Works
 *  without a world. */
void bt_cluster_library(char *out, size_t bytes);

/*
 * Collectives of a communicator's ranks over MPI. Sums are gathered and added
 * by each rank in the order of coll_shm.h.
 *
 * Threads: as for the functions above.
 */

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
