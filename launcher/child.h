/* SPDX-License-Identifier: Apache-2.0 */
/** @file child.h
 *
 * One process of the cluster: started, monitored, signalled and reaped.
 *
 *     launcher ◀─ output pipe ── stdout and stderr of the child
 *              ◀─ ready pipe ─── descriptor 3 of the child, BATON_READY_FD=3
 *              ◀─ heartbeats ─── descriptor 4, an eventfd, BATON_BEAT_FD=4
 *              ── name, role ──▶ descriptor 5, of a standby
 *
 * A child is its own process group, so that Ctrl-C reaches the launcher alone,
 * and gets SIGKILL from the kernel if the launcher dies.
 */
#ifndef BT_LAUNCHER_CHILD_H
#define BT_LAUNCHER_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/base/process.h"
#include "common/base/status.h"
#include "launcher/health.h"
#include "launcher/logs.h"
#include "launcher/plan.h"
#include "launcher/process_state.h"

#define BT_CHILD_READY_FD      3
#define BT_CHILD_BEAT_FD       4
#define BT_CHILD_END_BYTES     128
#define BT_CHILD_TROUBLE_BYTES (BT_STDERR_TAIL_BYTES + BT_CHILD_END_BYTES + 16)

typedef struct bt_child {
    bt_plan_process_t *process; /**< borrowed */
    bt_process_state_t state;
    uint64_t since_ms;  /**< Unix time of the last change of state */
    uint64_t due_ms;    /**< WAITING: when to start; STOPPING, CHANGING: when to
                           kill; 0 = never */
    bool is_by_command; /**< started by an admin command: may fail alone */
    bool has_given_up;  /**< the child could not start */
    bool was_killed;    /**< the child took too long to stop */
    bool may_be_replaced; /**< the child ended by itself: a standby may replace
                             it */
    uint64_t n_restarts;  /**< restarts after the child ended by itself */
    bt_restart_t restart;
    bt_stderr_tail_t tail;
    bt_ready_t ready;
    pid_t pid;         /**< 0 while not running */
    int output_fd;     /**< -1 while not running */
    int ready_fd;      /**< -1 when closed */
    int beat_fd;       /**< -1 while not running */
    int assignment_fd; /**< -1: not a waiting standby */
    bt_watchdog_t watchdog;
    bt_core_wait_t core_wait; /**< checked while the child is silent */
    bool is_starved;          /**< silent because it waits for a core */
    bt_log_file_t log; /**< log file of the output; none: standard error */
    bt_output_t output;
    char end[BT_CHILD_END_BYTES]; /**< how the child last ended, or "" */
    /** Why the child ended by itself, or could not start, until it is ready; or
     *  "". */
    char trouble[BT_CHILD_TROUBLE_BYTES];
} bt_child_t;

/** Initialises a child.
 *  @param [in] log_dir  Borrowed; none: pass output on to standard error.
 *  @retval BT_ERR_IO  The log file cannot be opened; logged. The child is
 *                     usable: its output goes to standard error. */
BT_MUST_CHECK bt_status_t bt_child_init(bt_child_t *child,
                                        bt_plan_process_t *process,
                                        const bt_log_dir_t *log_dir);

bool bt_child_is_router(const bt_child_t *child);

/** Frees a child. The process must have been reaped. */
void bt_child_fini(bt_child_t *child);

/**
 * Starts the program. A program that cannot be executed is not detected here,
 * but by the end of the process and its last lines.
 *
 * @param [in] program  Path of the executable.
 * @retval BT_ERR_IO         No pipe or process could be made; logged.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_child_start(bt_child_t *child,
                                         const char *program);

/** Replaces the ended process of @a child by the process of @a standby, which
 *  gets the child's name and role; @a standby then has no process.
 *  @retval BT_ERR_IO  The process cannot be notified; nothing changes. */
BT_MUST_CHECK bt_status_t bt_child_assign(bt_child_t *child,
                                          bt_child_t *standby);

/** Passes on and remembers the child's output, until the pipe is empty. */
void bt_child_read_output(bt_child_t *child);

/** @return whether the child has written something new on its readiness
 *          descriptor. */
bool bt_child_read_ready(bt_child_t *child);

/** @return whether the child has sent a heartbeat since the last call. */
bool bt_child_take_beat(bt_child_t *child);

/** Returns the time in ms that the child waited for a core since the last call;
 *  0 at the first call after a heartbeat. */
uint64_t bt_child_core_wait_ms(bt_child_t *child, bool has_beaten,
                               uint64_t now_ms);

/** Logs the state of each of the child's threads: where in the kernel it waits,
 *  time on a core and in the run queue, and the kernel stack where it may be
 *  read (as root). */
void bt_child_log_threads(const bt_child_t *child);

/** Checks whether the child has ended. If so, all its output is read, the pipes
 *  are closed, and child->end says how: "with exit status 1", "by signal 9
 *  (Killed)".
 *  @param [out] wait_status_p  See waitpid(). */
bool bt_child_reap(bt_child_t *child, int *wait_status_p);

/** Sends a signal. Does nothing when the child is not running. SIGKILL goes to
 *  the whole process group. */
void bt_child_signal(const bt_child_t *child, int signal_number);

/** Writes the child's last lines to standard error, and to @a log if it has a
 *  file. */
void bt_child_print_tail(const bt_child_t *child, bt_log_file_t *log);

#endif
