/* SPDX-License-Identifier: Apache-2.0 */
/** @file orchestrate.h
 *
 * A launcher that mpirun started (`mpirun -np 1 baton serve`): MPI, and not the
 * launcher, starts the processes of the plan, each instance as a world of its
 * own, through baton-orchestrator. mpirun watches them, and when one dies it
 * ends all: one fate. There are no orders, no restarts and no watchdog then.
 */
#ifndef BT_LAUNCHER_ORCHESTRATE_H
#define BT_LAUNCHER_ORCHESTRATE_H

#include <stdint.h>

#include "launcher/plan.h"

/**
 * Run the plan until it ends; SIGTERM and SIGINT end it.
 * @param [in] libexec   As of bt_program_path().
 * @param [in] drain_ms  Given to requests under way after such a signal.
 * @return the exit status
 */
int bt_orchestrate(const bt_plan_t *plan, const char *libexec,
                   uint32_t drain_ms);

#endif
