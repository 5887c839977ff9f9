/* SPDX-License-Identifier: Apache-2.0 */
/** @file child.h
 *
 * One process of the cluster: started, listened to, signalled and reaped.
 *
 *     launcher ◀─ output pipe ── stdout and stderr of the child
 *              ◀─ ready pipe ─── descriptor 3 of the child, BATON_READY_FD=3
 *              ◀─ heartbeats ─── descriptor 4, an eventfd, BATON_BEAT_FD=4
 *              ── its place ───▶ descriptor 5, of a standby
 *
 * A child is its own process group, so that Ctrl-C reaches the launcher alone,
 * and gets SIGKILL from the kernel if the launcher dies.
 */
#ifndef BT_LAUNCHER_CHILD_H
#define BT_LAUNCHER_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/base/core_wait.h"
#include "common/base/status.h"
#include "launcher/last_words.h"
#include "launcher/life.h"
#include "launcher/output.h"
#include "launcher/plan.h"
#include "launcher/ready.h"
#include "launcher/restart.h"
#include "launcher/watchdog.h"

#define BT_CHILD_READY_FD      3
#define BT_CHILD_BEAT_FD       4
#define BT_CHILD_END_BYTES     128
#define BT_CHILD_TROUBLE_BYTES (BT_LAST_WORDS_BYTES + BT_CHILD_END_BYTES + 16)

typedef struct bt_child {
    bt_plan_process_t *process; /**< borrowed */
    bt_life_t life;
    uint64_t since_ms; /**< Unix time of its state's begin */
    uint64_t due_ms;   /**< WAITING: when it starts; STOPPING, CHANGING: when it
                            is killed; 0 = never */
    bool is_by_order;  /**< an order started it: if it fails, it fails alone */
    bool has_given_up; /**< it could not start */
    bool was_killed;   /**< it took too long to stop */
    bool may_be_replaced; /**< it ended by itself: a standby may be next */
    uint64_t n_restarts;  /**< after ends of its own */
    bt_restart_t restart;
    bt_last_words_t words;
    bt_ready_t ready;
    pid_t pid;     /**< 0 while it does not run */
    int output_fd; /**< -1 while it does not run */
    int ready_fd;  /**< -1 when closed */
    int beat_fd;   /**< -1 while it does not run */
    int place_fd;  /**< -1: it is no standby that waits */
    bt_watchdog_t watchdog;
    bt_core_wait_t core_wait; /**< looked at while it is silent */
    bool is_starved;          /**< silent, for it waits for a core */
    bt_log_file_t log; /**< where its output goes; none: standard error */
    bt_output_t output;
    char end[BT_CHILD_END_BYTES]; /**< how it ended the last time, or "" */
    /** Why it ended by itself, or could not start, until it is ready; or "" */
    char trouble[BT_CHILD_TROUBLE_BYTES];
} bt_child_t;

/** @param [in] log_dir  Borrowed; none: pass output on to standard error.
 *  @retval BT_ERR_IO  The log file cannot be opened; logged. The child is
 *                     usable: its output goes to standard error. */
BT_MUST_CHECK bt_status_t bt_child_init(bt_child_t *child,
                                        bt_plan_process_t *process,
                                        const bt_log_dir_t *log_dir);

bool bt_child_is_router(const bt_child_t *child);

/** The process must have been reaped. */
void bt_child_fini(bt_child_t *child);

/**
 * Start the program. That it cannot be executed is not seen here but by its
 * end and its last words.
 *
 * @param [in] program  Path of the executable.
 * @retval BT_ERR_IO         No pipe or process could be made; logged.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_child_start(bt_child_t *child,
                                         const char *program);

/** The process of @a standby becomes that of @a child, which has none, and gets
 *  its name and role; @a standby has none then.
 *  @retval BT_ERR_IO  It cannot be told; it stays what it is. */
BT_MUST_CHECK bt_status_t bt_child_take_place(bt_child_t *child,
                                              bt_child_t *standby);

/** Pass on and remember what the child wrote, until its pipe is empty. */
void bt_child_read_output(bt_child_t *child);

/** @return whether the child has said something new on its readiness
 *  descriptor. */
bool bt_child_read_ready(bt_child_t *child);

/** @return whether its heart has beaten since the last call. */
bool bt_child_take_beat(bt_child_t *child);

/** How long it waited for a core since the last call, in ms; 0 at the first one
 *  since a heartbeat. */
uint64_t bt_child_core_wait_ms(bt_child_t *child, bool has_beaten,
                               uint64_t now_ms);

/** Log what each of its threads does: state, where in the kernel it waits,
 *  time on a core and in the run queue, and the kernel's stack where it may be
 *  read (as root). */
void bt_child_log_threads(const bt_child_t *child);

/** Has it ended? Then everything it wrote is read, its pipes are closed, and
 *  child->end says how: "with exit status 1", "by signal 9 (Killed)".
 *  @param [out] wait_status_p  As from waitpid(). */
bool bt_child_reap(bt_child_t *child, int *wait_status_p);

/** Does nothing when it does not run. SIGKILL goes to the whole group. */
void bt_child_signal(const bt_child_t *child, int signal_number);

/** Write the last words to standard error, and to @a log where it has a
 *  file. */
void bt_child_print_last_words(const bt_child_t *child, bt_log_file_t *log);

#endif
