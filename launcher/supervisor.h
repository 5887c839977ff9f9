/* SPDX-License-Identifier: Apache-2.0 */
/** @file supervisor.h
 *
 * Runs the processes of a plan, and takes admin commands, until SIGINT or
 * SIGTERM, until its terminal hangs up, or until one of the initial processes
 * cannot start. Any other SIGHUP opens the log files anew, and is passed on to
 * the routers, which do so too.
 *
 *     RUNNING ──signal, hopeless child──▶ DRAIN: SIGTERM to the routers
 *     DRAIN ──all routers gone──▶ STOP: SIGTERM to the workers
 *     any ──deadline, second signal, no way to wait──▶ KILL: SIGKILL to all
 *     DRAIN, STOP, KILL ──no process left──▶ return
 *
 * A running process that hangs (health.h) is killed, after its threads'
 * states are logged, and treated like any other that ended by itself; a
 * process that is stopping has a time limit anyway.
 *
 * The states of each process are in process_state.h. While RUNNING, a process
 * that an admin command stops is killed if it has not ended within the drain
 * time; a process that an admin command started may fail without ending the
 * launch.
 *
 * One thread; blocks the signals it waits for.
 */
#ifndef BT_LAUNCHER_SUPERVISOR_H
#define BT_LAUNCHER_SUPERVISOR_H

#include "launcher/logs.h"
#include "launcher/notify.h"
#include "launcher/plan.h"

typedef struct bt_supervisor_options {
    const bt_log_dir_t *log_dir;
    bt_log_file_t *log;    /**< launcher's own log file, beside standard error;
                              borrowed; may have no file */
    bt_notify_t *notify;   /**< borrowed */
    bt_run_dir_t *run_dir; /**< run directory of the plan; borrowed: checked and
                              restored */
    const char *libexec;   /**< directory of the programs, or NULL: relative to
                              this program */
    uint32_t drain_ms;     /**< longest drain of a process */
    uint32_t watchdog_ms; /**< silence after which a process hangs; 0 = never */
} bt_supervisor_options_t;

/** Runs the plan. The last logged line is the cause, unless an admin command or
 *  a signal ended the launch.
 *  @return the exit status for the whole program: 0 after a clean stop; that of
 *          a process that could not start where it was final (status.h); 1
 *          when another one could not, or one had to be killed. */
int bt_supervise(bt_plan_t *plan, const bt_supervisor_options_t *options);

#endif
