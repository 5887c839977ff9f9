/* SPDX-License-Identifier: Apache-2.0 */
/** @file supervisor_priv.h
 *
 * What the supervisor's files share:
 *
 *     supervisor.c         the loop, the phases, starts
 *     supervisor_ends.c    ends of processes, and what follows: again, or not
 *     supervisor_notify.c  what a service manager is told
 *     supervisor_orders.c  orders, and who is told what has come of them
 */
#ifndef BT_LAUNCHER_SUPERVISOR_PRIV_H
#define BT_LAUNCHER_SUPERVISOR_PRIV_H

#include <poll.h>

#include "common/base/async_writer.h"
#include "common/base/stop_signals.h"
#include "launcher/child.h"
#include "launcher/desk.h"
#include "launcher/supervisor.h"

typedef enum bt_supervisor_phase {
    BT_SUPERVISOR_RUNNING,
    BT_SUPERVISOR_DRAIN,
    BT_SUPERVISOR_STOP,
    BT_SUPERVISOR_KILL,
} bt_supervisor_phase_t;
#define BT_SUPERVISOR_PHASES 4

/** Beyond a process's own drain, before it counts as stuck. */
#define BT_SUPERVISOR_DRAIN_GRACE_MS 2000
/** For the workers, which have nothing left to do once the routers are gone. */
#define BT_SUPERVISOR_WORKER_GRACE_MS 5000

#define BT_SUPERVISOR_CAUSE_BYTES (BT_LAST_WORDS_BYTES + 256)

/** An order that is answered when it has come true. */
typedef struct bt_pending {
    uint64_t client;   /**< of the desk; 0 = free */
    bool until_ended;  /**< otherwise until ready */
    bt_child_t *child; /**< NULL = all workers of the model */
    uint32_t model;
    bt_orders_role_t role; /**< that it is to say it is; NO_ROLE: any */
    uint64_t due_ms;       /**< after which it is not waited for; 0 = ever */
} bt_pending_t;

typedef struct bt_supervisor {
    const bt_supervisor_options_t *options;
    bt_plan_t *plan;
    bt_desk_t *desk;        /**< owned */
    bt_async_writer_t *out; /**< owned; standard output */
    bt_child_t **children;  /**< owned; in the order of the plan */
    uint32_t n_children;
    struct pollfd *fds; /**< owned; room for all there is to wait for */
    bt_stop_requests_t wishes;
    int signal_fd;
    bool has_terminal; /**< whose hang-up is a wish to stop */
    bt_supervisor_phase_t phase;
    uint64_t deadline_ms; /**< of DRAIN and STOP */
    uint64_t look_ms;     /**< when to look who is hung; 0 = never */
    uint64_t dir_ms;     /**< when to look whether the run directory is there */
    uint64_t oom_kills;  /**< of bt_cgroup_oom_kills(), as last read... */
    uint64_t oom_ms;     /**< ...and when it had risen; 0 = never */
    uint64_t waiting_ms; /**< when to say who is awaited; 0 = never */
    bool was_announced;
    bool cannot_wait;   /**< for descriptors; that was said */
    bool holds_workers; /**< the launch: until the routers' ports are bound */
    int exit_status;
    char cause[BT_SUPERVISOR_CAUSE_BYTES]; /**< of it, one sentence, or "" */
    bt_pending_t pending[BT_DESK_CLIENTS];
} bt_supervisor_t;

/** An event in a child's life, with all that follows from it. */
void bt_supervisor_apply(bt_supervisor_t *s, bt_child_t *child,
                         bt_life_event_t event);

/** Begin to stop everything, unless it has begun. */
void bt_supervisor_stop(bt_supervisor_t *s, int exit_status);

/** It could not start and is not tried again. Ends the launch, with that
 *  status and cause, unless an order started it.
 *  @param [in] cause  a phrase */
void bt_supervisor_give_up(bt_supervisor_t *s, bt_child_t *child,
                           int exit_status, const char *cause);

/** There is no process for it: one that was ready before is tried again after
 *  a pause, as if it had ended; what never was is given up. */
void bt_supervisor_no_start(bt_supervisor_t *s, bt_child_t *child,
                            bt_status_t why);

/** A standby that is ready for the place of this child, which ended by itself
 *  after it had been ready; or NULL. */
bt_child_t *bt_supervisor_standby_for(const bt_supervisor_t *s,
                                      const bt_child_t *child);

/** Take in who has ended. */
void bt_supervisor_reap(bt_supervisor_t *s);

/** Kill who is hung, and say so. Sets s->look_ms. */
void bt_supervisor_watch(bt_supervisor_t *s, uint64_t now_ms);

/** Children for the processes that the plan has got since.
 *  @retval BT_ERR_IO         They are there, but a log cannot be written;
 * logged. What would be in it goes to standard error.
 *  @retval BT_ERR_NO_MEMORY  There are as many as before. */
BT_MUST_CHECK bt_status_t bt_supervisor_add_children(bt_supervisor_t *s);

/** A bt_desk_order_fn; @a s is a bt_supervisor_t. */
void bt_supervisor_order(void *s, uint64_t client,
                         const bt_orders_request_t *request);

/** Answer the orders that have come true, or cannot any more. */
void bt_supervisor_answer_pending(bt_supervisor_t *s);

/** Tell the service manager what is new. */
void bt_supervisor_notify(bt_supervisor_t *s);

/** Tell who watches how it stands with the launcher, a model or a process. */
void bt_supervisor_tell_launcher(bt_supervisor_t *s);
void bt_supervisor_tell_model(bt_supervisor_t *s, uint32_t model);
void bt_supervisor_tell_process(bt_supervisor_t *s, const bt_child_t *child);

#endif
