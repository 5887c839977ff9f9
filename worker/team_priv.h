/* SPDX-License-Identifier: Apache-2.0 */
/** @file team_priv.h  Shared by the ways in which a team forms: as children
 *  (team.c) and as processes of an MPI world (team_world.c). */
#ifndef BT_WORKER_TEAM_PRIV_H
#define BT_WORKER_TEAM_PRIV_H

#include "worker/team.h"

/** Creates the shared memory of the team's collectives; size and tp are set.
 *  @return its descriptor; -1: failed, logged */
int bt_team_segment(const bt_team_t *team);
/** Maps the shared memory; @a fd stays the caller's; rank, size and tp are set.
 */
BT_MUST_CHECK bt_status_t bt_team_map(bt_team_t *team, int fd);

/** Joins the team in a world that mpirun or srun started. */
BT_MUST_CHECK bt_status_t bt_team_join(uint32_t tp, uint32_t pp,
                                       const char *host, bt_cluster_t *cluster,
                                       bt_team_t *team);

#endif
