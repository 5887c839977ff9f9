/* SPDX-License-Identifier: Apache-2.0 */
/** @file supervisor_priv.h
 *
 * Shared state and functions of the supervisor's files:
 *
 *     supervisor.c           the loop, the phases, starts
 *     supervisor_restarts.c  ended processes, and whether they are restarted
 *     admin_commands.c       admin commands
 *     document.c             the state, for clients of the control socket and a
 *                            service manager
 */
#ifndef BT_LAUNCHER_SUPERVISOR_PRIV_H
#define BT_LAUNCHER_SUPERVISOR_PRIV_H

#include <poll.h>

#include "common/base/async_writer.h"
#include "common/base/process.h"
#include "launcher/child.h"
#include "launcher/control_socket.h"
#include "launcher/supervisor.h"

typedef enum bt_supervisor_phase {
    BT_SUPERVISOR_RUNNING,
    BT_SUPERVISOR_DRAIN,
    BT_SUPERVISOR_STOP,
    BT_SUPERVISOR_KILL,
} bt_supervisor_phase_t;
#define BT_SUPERVISOR_PHASES 4

/** Time after a process's own drain before it counts as stuck. */
#define BT_SUPERVISOR_DRAIN_GRACE_MS 2000
/** Time for the workers to stop, which have no work left once the routers are
 *  gone. */
#define BT_SUPERVISOR_WORKER_GRACE_MS 5000

#define BT_SUPERVISOR_CAUSE_BYTES (BT_STDERR_TAIL_BYTES + 256)

/** Admin command that is answered when its result is reached. */
typedef struct bt_pending {
    uint64_t client;   /**< client id of the control socket; 0 = free */
    bool until_ended;  /**< otherwise until ready */
    bt_child_t *child; /**< NULL = all workers of the model */
    uint32_t model;
    bt_admin_role_t role; /**< role to be reported; BT_ADMIN_ROLE_NONE: any */
    uint64_t due_ms;      /**< deadline of the wait; 0 = none */
} bt_pending_t;

typedef struct bt_supervisor {
    const bt_supervisor_options_t *options;
    bt_plan_t *plan;
    bt_control_socket_t *control; /**< owned */
    bt_async_writer_t *out;       /**< owned; standard output */
    bt_child_t **children;        /**< owned; in the order of the plan */
    uint32_t n_children;
    struct pollfd *fds; /**< owned; large enough for all descriptors */
    bt_stop_requests_t stop_requests;
    int signal_fd;
    bool has_terminal; /**< a hang-up is a stop request */
    bt_supervisor_phase_t phase;
    uint64_t deadline_ms; /**< end of DRAIN and STOP */
    uint64_t look_ms;     /**< next check for hung processes; 0 = never */
    uint64_t dir_ms;      /**< next check of the run directory */
    uint64_t oom_kills;   /**< last value of bt_cgroup_oom_kills() */
    uint64_t oom_ms;      /**< when oom_kills last rose; 0 = never */
    uint64_t waiting_ms;  /**< next log of awaited processes; 0 = never */
    bool was_announced;
    bool cannot_wait;   /**< poll failed, which was logged */
    bool holds_workers; /**< launch: until router ports are bound */
    int exit_status;
    char cause[BT_SUPERVISOR_CAUSE_BYTES]; /**< cause, one sentence, or "" */
    bt_pending_t pending[BT_CONTROL_SOCKET_CLIENTS];
} bt_supervisor_t;

/** Applies an event to a child's state, with all its effects. */
void bt_supervisor_apply(bt_supervisor_t *s, bt_child_t *child,
                         bt_process_state_event_t event);

/** Begins to stop everything, unless that has begun. */
void bt_supervisor_stop(bt_supervisor_t *s, int exit_status);

/** Handles a child for which no process could be made: one that was ready
 *  before is retried after a pause, as if it had ended; one that never was is
 *  given up. */
void bt_supervisor_no_start(bt_supervisor_t *s, bt_child_t *child,
                            bt_status_t why);

/** Returns a ready standby for a child that ended by itself after it had been
 *  ready; or NULL. */
bt_child_t *bt_supervisor_standby_for(const bt_supervisor_t *s,
                                      const bt_child_t *child);

/** Reaps ended processes. */
void bt_supervisor_reap(bt_supervisor_t *s);

/** Kills hung processes, and logs that. Sets s->look_ms. */
void bt_supervisor_watch(bt_supervisor_t *s, uint64_t now_ms);

/** Adds children for processes added to the plan.
 *  @retval BT_ERR_IO         They are there, but a log cannot be written;
 *                            logged. Their output goes to standard error.
 *  @retval BT_ERR_NO_MEMORY  Nothing was added. */
BT_MUST_CHECK bt_status_t bt_supervisor_add_children(bt_supervisor_t *s);

/** Carries out an admin command; a bt_control_socket_command_fn; @a s is a
 * bt_supervisor_t.
 */
void bt_supervisor_command(void *s, uint64_t client,
                           const bt_admin_command_t *command);

/** Answers the admin commands whose result is reached, or cannot be any more.
 */
void bt_supervisor_answer_pending(bt_supervisor_t *s);

/** Reports changes to the service manager. */
void bt_supervisor_notify(bt_supervisor_t *s);

/** True for a worker or standby, which has a model. */
bool bt_supervisor_is_worker(const bt_child_t *child);

#endif
