/* SPDX-License-Identifier: Apache-2.0 */
/** @file rank_group_priv.h  Shared by the ways in which a team forms: as
 * children (rank_group.c) and as processes of an MPI world
 * (rank_group_world.c). */
#ifndef BT_WORKER_RANK_GROUP_PRIV_H
#define BT_WORKER_RANK_GROUP_PRIV_H

#include "worker/rank_group.h"

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
