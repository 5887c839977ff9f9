/* SPDX-License-Identifier: Apache-2.0 */
/** @file supervisor.h
 *
 * Runs the processes of a plan, and takes orders about them, until SIGINT or
 * SIGTERM, until its terminal hangs up, or until one of those that the launch
 * began with cannot start. Any other SIGHUP opens the log files anew, and is
 * passed on to the routers, who do the same.
 *
 *     RUNNING ──signal, hopeless child──▶ DRAIN: SIGTERM to the routers
 *     DRAIN ──all routers gone──▶ STOP: SIGTERM to the workers
 *     any ──deadline, second signal, no way to wait──▶ KILL: SIGKILL to all
 *     DRAIN, STOP, KILL ──nobody left──▶ return
 *
 * A process that runs and is hung (watchdog.h) is killed, which is an end like
 * any other, after its threads' states are in the log; one that was told to
 * stop has its time for that anyway.
 *
 * What happens to each process meanwhile is in life.h. While RUNNING a process
 * that an order stops is killed when it has not ended after the drain's time; a
 * process that an order started may fail without ending the launch.
 *
 * One thread; blocks the signals it waits for.
 */
#ifndef BT_LAUNCHER_SUPERVISOR_H
#define BT_LAUNCHER_SUPERVISOR_H

#include "launcher/log_file.h"
#include "launcher/notify.h"
#include "launcher/plan.h"

typedef struct bt_supervisor_options {
    const bt_log_dir_t *log_dir;
    bt_log_file_t *log; /**< the launcher's own beside standard error; borrowed;
                             perhaps without a file */
    bt_notify_t *notify;   /**< borrowed */
    bt_run_dir_t *run_dir; /**< of the plan; borrowed: it is looked after */
    const char *libexec;   /**< directory of the programs, or NULL: found from
                                this program's own place */
    uint32_t drain_ms;     /**< the longest drain of a process */
    uint32_t watchdog_ms;  /**< silence after which it is hung; 0 = never */
} bt_supervisor_options_t;

/** The last line that it logs is the cause, where something else than an order
 *  or a signal ended it.
 *  @return the exit status for the whole program: 0 after a clean stop; that of
 *          a process that could not start where it was final (exit_code.h); 1
 *          when another one could not, or one had to be killed. */
int bt_supervise(bt_plan_t *plan, const bt_supervisor_options_t *options);

#endif
