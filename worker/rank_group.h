/* SPDX-License-Identifier: Apache-2.0 */
/** @file rank_group.h
 *
 * Ranks of one instance. Rank 0 is the worker that routers know.
 *
 *     launcher ── rank 0 ═╦═ rank 1      one fate: a rank that ends takes
 *     routers  ──         ╚═ rank 2      the instance with it
 *
 * Unless mpirun or srun started all ranks, rank 0 starts the others, the same
 * program with the same options, as its children; a child dies with it
 * (PR_SET_PDEATHSIG). In an MPI world, ranks of an instance are consecutive
 * processes of the role (cluster.h), on one host or several.
 *
 * On one host the ranks share a memory segment for their all-reduces
 * (coll_shm.h), on several hosts these use MPI. Rank 0 also has a stream to
 * each rank (rank_link.h); in an MPI world the ranks connect to a port of rank
 * 0, and present a token that was sent over MPI.
 *
 * A rank that ends unexpectedly ends all others at once: routers with a
 * request here see the worker lost and run the request elsewhere.
 *
 * Threads: the control thread; rank 0 has one more that waits for children.
 */
#ifndef BT_WORKER_RANK_GROUP_H
#define BT_WORKER_RANK_GROUP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/status.h"
#include "common/cluster/cluster.h"
#include "common/coll/coll_shm.h"
#include "worker/rank_link.h"

#define BT_TEAM_MAX 16u

typedef struct bt_rank_group {
    uint32_t index; /**< number of the instance in its role */
    uint32_t rank;
    uint32_t size; /**< number of ranks; 1: no field below is set */
    uint32_t tp;   /**< ranks of a stage; size / tp stages follow each other */
    const bt_collectives_t
        *coll; /**< collectives of the MPI cluster; NULL: shm's */
    const bt_collectives_t
        *stage; /**< collectives of this rank's stage; NULL: shm's */
    void *segment;
    size_t segment_bytes;
    bt_coll_shm_t *shm;
    pid_t pids[BT_TEAM_MAX]; /**< rank 0: processes of the other ranks */
    int pidfds[BT_TEAM_MAX];
    uint32_t n_started;
    pthread_t watcher;
    bool is_watched;
    /** Rank 0: links to ranks 1 …; another rank: links[0] to rank 0. */
    bt_rank_link_t *links;
    _Atomic bool ends; /**< children may end without error */
} bt_rank_group_t;

/** True when rank 0 of a team started this process. */
bool bt_rank_group_is_child(void);

/**
 * Creates the team, or joins it as a child. A child forked here executes the
 * program anew and never returns from this call.
 *
 * @param [in] tp, pp  Ranks of a stage, and stages; 1 and 1: no others.
 * @param [in] argv  Arguments of this program, for the other ranks.
 * @param [in] host  Address at which ranks on other hosts reach this one.
 * @param [in] cluster  Borrowed until bt_rank_group_close().
 * @retval BT_ERR_INVALID_PARAM  more than BT_TEAM_MAX; a child whose
 *                               environment is malformed (logged)
 * @retval BT_ERR_NO_MEMORY, BT_ERR_IO  (logged)
 */
BT_MUST_CHECK bt_status_t bt_rank_group_open(uint32_t tp, uint32_t pp,
                                             char **argv, const char *host,
                                             bt_cluster_t *cluster,
                                             bt_rank_group_t *team);
/** Expects the children to end from here on: the caller tells them to. Without
 *  it a child that ends takes this process with it. */
void bt_rank_group_expect_end(bt_rank_group_t *team);
/** Returns the collectives of the instance. NULL: it is one rank. */
const bt_collectives_t *bt_rank_group_collectives(const bt_rank_group_t *team);
/** Returns the collectives of this rank's stage. NULL: the stage is one rank.
 */
const bt_collectives_t *bt_rank_group_stage(const bt_rank_group_t *team);
/** Rank 0: waits a short time for the others, which have been ordered to end or
 *  do not respond. All zeros are allowed. */
void bt_rank_group_close(bt_rank_group_t *team);

/* Shared by the ways in which a team forms: as
 * children (rank_group.c) and as processes of an MPI world
 * (rank_group.c). */

/** Creates the shared memory of the team's collectives; size and tp are set.
 *  @return its descriptor; -1: failed, logged */
int bt_rank_group_segment(const bt_rank_group_t *team);
/** Maps the shared memory; @a fd stays the caller's; rank, size and tp are set.
 */
BT_MUST_CHECK bt_status_t bt_rank_group_map(bt_rank_group_t *team, int fd);

/** Joins the team in a world that mpirun or srun started. */
BT_MUST_CHECK bt_status_t bt_rank_group_join(uint32_t tp, uint32_t pp,
                                             const char *host,
                                             bt_cluster_t *cluster,
                                             bt_rank_group_t *team);

#endif
