/* SPDX-License-Identifier: Apache-2.0 */
/** @file instance_ranks.h
 *
 * Ranks of an instance: the processes of one instance, whose model is split by
 * tensor (tp) or pipeline parallelism (pp). Rank 0 is the worker that routers
 * know.
 *
 *     launcher ── rank 0 ═╦═ rank 1      a rank that ends takes the whole
 *     routers  ──         ╚═ rank 2      instance with it
 *
 * Start: without MPI, rank 0 starts the other ranks as its children: the same
 * program with the same options. The kernel kills a child when rank 0 dies
 * (PR_SET_PDEATHSIG). Under mpirun or srun all ranks exist already: the ranks
 * of an instance are consecutive processes of their role (cluster.h), on one
 * host or several.
 *
 * Collectives: on one host the ranks use a shared memory segment (coll_shm.h),
 * on several hosts MPI.
 *
 * Streams: rank 0 has a stream to each other rank (rank_link.h). Under MPI the
 * ranks connect to a socket of rank 0, and prove themselves with a token that
 * rank 0 sent over MPI.
 *
 * Failure: a rank that ends unexpectedly ends all others at once. Routers see
 * the worker lost, and run its requests elsewhere.
 *
 * Threads: the control thread. Rank 0 has one more thread, which waits for the
 *          end of children.
 */
#ifndef BT_WORKER_INSTANCE_RANKS_H
#define BT_WORKER_INSTANCE_RANKS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/status.h"
#include "common/cluster/cluster.h"
#include "common/coll/coll_shm.h"
#include "worker/rank_link.h"

#define BT_TEAM_MAX 16u /**< most ranks of an instance */

/** All ranks of an instance, as one of them sees them. */
typedef struct bt_instance_ranks {
    uint32_t index; /**< number of the instance among those of its role */
    uint32_t rank;  /**< number of this rank */
    uint32_t size;  /**< number of ranks; 1: the fields after tp are not set */
    uint32_t tp;    /**< ranks of a pipeline stage; there are size / tp stages,
                         and the ranks of a stage are consecutive */
    const bt_collectives_t
        *coll; /**< MPI collectives of the instance; NULL: shm's */
    const bt_collectives_t
        *stage;    /**< MPI collectives of this rank's stage; NULL: shm's */
    void *segment; /**< mapped shared memory; owned */
    size_t segment_bytes;
    bt_coll_shm_t *shm;      /**< collectives in that memory; owned */
    pid_t pids[BT_TEAM_MAX]; /**< rank 0: children, by rank; 0: none */
    int pidfds[BT_TEAM_MAX]; /**< rank 0: pidfds of the children */
    uint32_t n_started;      /**< rank 0: number of children */
    pthread_t watcher;       /**< rank 0: waits for the end of children */
    bool is_watched;         /**< the watcher runs */
    /** Streams; owned. Rank 0: to ranks 1, 2 …; another rank: links[0] to rank
     *  0. */
    bt_rank_link_t *links;
    _Atomic bool ends; /**< children may end without taking rank 0 with them */
} bt_instance_ranks_t;

/**
 * Starts the ranks, or joins them if this process is another rank than 0.
 * Without MPI, rank 0 forks the other ranks; they execute the program anew and
 * do not return from this call.
 *
 * @param [in]  tp, pp   Ranks of a stage, number of stages; 1 and 1: no other
 *                       ranks.
 * @param [in]  argv     Arguments of this program, passed to the children.
 * @param [in]  host     MPI on several hosts: IPv4 address of rank 0 to which
 *                       the other ranks connect.
 * @param [in]  cluster  Borrowed until bt_instance_ranks_close().
 * @param [out] team     The ranks; after a failure all is released.
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  more than BT_TEAM_MAX ranks, or a child whose
 *                               environment is malformed (logged)
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_IO             (logged)
 * @retval BT_ERR_TIMED_OUT      MPI: a rank did not connect in 60 s (logged)
 * @retval BT_ERR_PEER_LOST      MPI: rank 0 failed or is not reached (logged)
 * @retval BT_ERR_INTERNAL       MPI: the broadcast of rank 0 failed
 * @retval  any of bt_cluster_team(); in another rank any of its broadcast
 */
BT_MUST_CHECK bt_status_t bt_instance_ranks_open(uint32_t tp, uint32_t pp,
                                                 char **argv, const char *host,
                                                 bt_cluster_t *cluster,
                                                 bt_instance_ranks_t *team);
/** Allows the children to end from now on, because the caller orders them to.
 *  Before this call, a child that ends takes this process with it. */
void bt_instance_ranks_expect_end(bt_instance_ranks_t *team);
/** Returns the collectives of the instance. NULL: it is one rank. */
const bt_collectives_t *
bt_instance_ranks_collectives(const bt_instance_ranks_t *team);
/** Returns the collectives of this rank's stage. NULL: the stage is one rank.
 */
const bt_collectives_t *
bt_instance_ranks_stage(const bt_instance_ranks_t *team);
/** Closes the streams and the shared memory. Rank 0 first waits up to 2 s for
 *  each child, which was ordered to end, and kills a child that does not end.
 * All zeros are allowed. */
void bt_instance_ranks_close(bt_instance_ranks_t *team);

#endif
