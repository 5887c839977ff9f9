/* SPDX-License-Identifier: Apache-2.0 */
/** @file loop.h  The control loop. Private to the worker's files. */
#ifndef BT_WORKER_LOOP_H
#define BT_WORKER_LOOP_H

#include "worker/worker.h"

/** Runs one turn: handles all input, starts what can be started, sends.
 *  @param [out] busy_p  Do not sleep before the next turn.
 *  @param [out] code_p  The exit code, when the loop is over.
 *  @return false when the loop is over */
bool bt_worker_turn(bt_worker_t *w, int signal_fd, bool *busy_p, int *code_p);

/** Runs until a stop signal came and all jobs are done (or drain_ms passed), or
 *  the device failed.
 *  @param signal_fd  a signalfd for SIGTERM and SIGINT.
 *  @return the exit code */
int bt_worker_loop(bt_worker_t *w, int signal_fd);

/** Passes events of KV transfers to the role's handlers.
 *  @param ctx  the worker */
void bt_worker_on_transfer(void *ctx, const bt_transfer_event_t *event);

/** Sets the roles of the worker: at start-up and by order of a router. Reports
 *  them to all routers (by STATS) and to the parent process.
 *  @param [in] roles  at least one bit of BT_ROLES_BOTH, and no other */
void bt_worker_set_roles(bt_worker_t *w, uint32_t roles);

#endif
