/* SPDX-License-Identifier: Apache-2.0 */
/** @file team.h
 *
 * The ranks of one instance. Rank 0 is the worker that routers know.
 *
 *     launcher ── rank 0 ═╦═ rank 1      one fate: a rank that ends takes
 *     routers  ──         ╚═ rank 2      the instance with it
 *
 * Where nobody started them all (mpirun, srun), rank 0 starts the others, the
 * same program with the same options, as its children; a child dies with it
 * (PR_SET_PDEATHSIG). In an MPI world they are processes of the role that
 * stand one behind the other (cluster.h), on one host or several.
 *
 * On one host they share a segment of memory for their sums (coll_shm.h), on
 * several those go over MPI. Beside that rank 0 has a stream to each
 * (rank_link.h); in a world they come to a port of its own, and say a token
 * that went over MPI.
 *
 * A rank that ends while the others do not want it to ends them at once:
 * whoever had a request here sees the worker lost and runs it elsewhere.
 *
 * Threads: the control thread; rank 0 has one more that waits for children.
 */
#ifndef BT_WORKER_TEAM_H
#define BT_WORKER_TEAM_H

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

typedef struct bt_team {
    uint32_t index; /**< of the instance in its role */
    uint32_t rank;
    uint32_t size; /**< 1: alone, and nothing below is there */
    uint32_t tp; /**< of a stage; of them are size / tp, one behind the other */
    const bt_collectives_t *coll;  /**< of the cluster; NULL: shm's */
    const bt_collectives_t *stage; /**< likewise */
    void *segment;
    size_t segment_bytes;
    bt_coll_shm_t *shm;
    pid_t pids[BT_TEAM_MAX]; /**< rank 0: of the others */
    int pidfds[BT_TEAM_MAX];
    uint32_t n_started;
    pthread_t watcher;
    bool is_watched;
    /** Rank 0: to ranks 1 …; another rank: links[0] to rank 0. */
    bt_rank_link_t *links;
    _Atomic bool ends; /**< children may end now */
} bt_team_t;

/** Is this process one that rank 0 of a team started? */
bool bt_team_is_child(void);

/**
 * Make the team, or find the place in it: no child comes back from here that
 * is not in it.
 *
 * @param [in] tp, pp  Ranks of a stage, and stages; 1 and 1: no others.
 * @param [in] argv  Of this program, for the others.
 * @param [in] host  Address where ranks of other hosts reach this one.
 * @param [in] cluster  Borrowed until bt_team_close().
 * @retval BT_ERR_INVALID_PARAM  more than BT_TEAM_MAX; a child without its
 *                               place (logged)
 * @retval BT_ERR_NO_MEMORY, BT_ERR_IO  (logged)
 */
BT_MUST_CHECK bt_status_t bt_team_open(uint32_t tp, uint32_t pp, char **argv,
                                       const char *host, bt_cluster_t *cluster,
                                       bt_team_t *team);
/** NULL: alone. */
const bt_collectives_t *bt_team_collectives(const bt_team_t *team);
/** Of this rank's stage. NULL: it is alone there. */
const bt_collectives_t *bt_team_stage(const bt_team_t *team);
/** Rank 0: the others have been told to end, or will not listen: wait for
 *  them, not for long. All zeros are allowed. */
void bt_team_close(bt_team_t *team);

#endif
