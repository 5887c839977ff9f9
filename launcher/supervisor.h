/* SPDX-License-Identifier: Apache-2.0 */
/** @file supervisor.h
 *
 * Runs the processes of a plan until SIGINT, SIGTERM or SIGHUP, or until one of
 * them cannot start.
 *
 *     RUNNING ──signal, hopeless child──▶ DRAIN: SIGTERM to the router
 *     DRAIN ──router gone──▶ STOP: SIGTERM to the workers
 *     DRAIN, STOP ──deadline, second signal──▶ KILL: SIGKILL to all
 *     any of the three ──nobody left──▶ return
 *
 * One thread; blocks the signals it waits for.
 */
#ifndef BT_LAUNCHER_SUPERVISOR_H
#define BT_LAUNCHER_SUPERVISOR_H

#include "launcher/plan.h"

typedef struct bt_supervisor_options {
    const char *log_dir; /**< "" = standard error */
    const char *libexec; /**< directory of the programs, or NULL: found from
                              this program's own place */
    uint32_t drain_ms;   /**< the router's longest drain */
} bt_supervisor_options_t;

/** @return the exit status for the whole program: 0 after a clean stop, 1 when
 *  a process could not be started or had to be killed. */
int bt_supervise(const bt_plan_t *plan, const bt_supervisor_options_t *options);

#endif
