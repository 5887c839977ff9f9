/* SPDX-License-Identifier: Apache-2.0 */
/** @file loop.h  The control loop: between the files of worker only. */
#ifndef BT_WORKER_LOOP_H
#define BT_WORKER_LOOP_H

#include "worker/worker.h"

/** Take in all there is, start what can be started, send.
 *  @param [out] busy_p  Do not sleep before the next turn.
 *  @param [out] code_p  The exit code, when it is over.
 *  @return false when it is over */
bool bt_worker_turn(bt_worker_t *w, int signal_fd, bool *busy_p, int *code_p);

/** Run until a signal said stop and the jobs are done (or drain_ms passed), or
 *  the device failed. @param signal_fd  a signalfd for SIGTERM and SIGINT.
 *  @return the exit code */
int bt_worker_loop(bt_worker_t *w, int signal_fd);

/** What happens to hand-overs, to the role's handlers. @param ctx  the worker
 */
void bt_worker_on_plane(void *ctx, const bt_plane_event_t *event);

/** Be given this from now on: at the start, and by order of a router. Tells
 *  all routers (by STATS) and who started the process.
 *  @param [in] roles  at least one bit of BT_ROLES_BOTH, and no other */
void bt_worker_set_roles(bt_worker_t *w, uint32_t roles);

#endif
