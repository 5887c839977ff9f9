/* SPDX-License-Identifier: Apache-2.0 */
/** @file mpi.h
 *
 * Launch under mpirun (`mpirun -np 1 baton serve`): MPI, and not the launcher,
 * starts the processes of the plan, each instance as a world of its own,
 * through baton-orchestrator. mpirun watches the processes, and when one dies
 * ends all of them. There are no admin commands, no restarts and no watchdog
 * then.
 */
#ifndef BT_LAUNCHER_MPI_H
#define BT_LAUNCHER_MPI_H

#include <stdint.h>

#include "launcher/plan.h"

/**
 * Runs the plan until it ends; SIGTERM and SIGINT end it.
 * @param [in] libexec   See bt_program_path().
 * @param [in] drain_ms  Time for requests in flight after such a signal.
 * @return the exit status
 */
int bt_orchestrate(const bt_plan_t *plan, const char *libexec,
                   uint32_t drain_ms);

#endif
