/* SPDX-License-Identifier: Apache-2.0 */
/** @file team_priv.h  Between the ways in which teams come together: children
 *  (team.c) and processes of an MPI world (team_world.c). */
#ifndef BT_WORKER_TEAM_PRIV_H
#define BT_WORKER_TEAM_PRIV_H

#include "worker/team.h"

/** Memory for the sums of the team, size and tp are set. @return -1: logged */
int bt_team_segment(const bt_team_t *team);
/** Map it, @a fd stays the caller's; rank, size and tp are set. */
BT_MUST_CHECK bt_status_t bt_team_map(bt_team_t *team, int fd);

/** The place in a world that mpirun or srun started. */
BT_MUST_CHECK bt_status_t bt_team_join(uint32_t tp, uint32_t pp,
                                       const char *host, bt_cluster_t *cluster,
                                       bt_team_t *team);

#endif
