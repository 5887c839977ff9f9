/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "launcher/document.h"
#include "launcher/programs.h"
#include "launcher/supervisor_priv.h"

/* Pause before a standby starts again: the worker that it became comes first.
 */
#define STANDBY_PAUSE_MS 1000u
/* Interval of checks of the run directory. */
#define RUN_DIR_MS 1000
/* Polling interval if poll() fails. */
#define LOOK_MS 50
/* Interval of log lines about processes still awaited. */
#define STILL_WAITING_MS 30000
#define ANNOUNCE_BYTES   65536
/* Output and readiness. */
#define FDS_PER_CHILD 2

/* ---- SIGHUP: the terminal is gone, or the logs are to be opened anew ---- */

/* -1 with errno: ENXIO, EIO: there is no terminal any more */
static int open_terminal(void)
{
    return open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}

static bool has_own_terminal(void)
{
    struct sigaction action;
    int fd;

    if ((sigaction(SIGHUP, NULL, &action) != 0) ||
        (action.sa_handler == SIG_IGN) || ((fd = open_terminal()) < 0)) {
        return false;
    }
    close(fd);
    return true;
}

static bool is_terminal_gone(void)
{
    const int fd = open_terminal();

    if (fd >= 0) {
        close(fd);
        return false;
    }
    return (errno == ENXIO) || (errno == EIO);
}

/* ---- phases ---- */

static const bool edges[BT_SUPERVISOR_PHASES][BT_SUPERVISOR_PHASES] = {
    [BT_SUPERVISOR_RUNNING] =
        {[BT_SUPERVISOR_DRAIN] = true, [BT_SUPERVISOR_KILL] = true},
    [BT_SUPERVISOR_DRAIN] =
        {[BT_SUPERVISOR_STOP] = true, [BT_SUPERVISOR_KILL] = true},
    [BT_SUPERVISOR_STOP] = {[BT_SUPERVISOR_KILL] = true},
};

/* Applies the phase to one child. */
static void put_into_phase(bt_supervisor_t *s, bt_child_t *child)
{
    const bool may_go_on = (s->phase == BT_SUPERVISOR_DRAIN) &&
                           !bt_child_is_router(child) &&
                           bt_process_state_runs(child->state) &&
                           (child->state != BT_PROCESS_CHANGING);

    if (!may_go_on) {
        bt_supervisor_apply(s, child, BT_PROCESS_EVENT_STOP);
    }
    child->due_ms = 0; /* the phase's deadline is for all */
    if (s->phase == BT_SUPERVISOR_KILL) {
        bt_child_signal(child, SIGKILL);
    }
}

static void move_phase(bt_supervisor_t *s, bt_supervisor_phase_t next,
                       uint64_t grace_ms)
{
    BT_ASSERT(edges[s->phase][next]);
    s->phase = next;
    s->deadline_ms = bt_now_ms() + grace_ms;
    s->waiting_ms = 0;
    for (uint32_t i = 0; i < s->n_children; i++) {
        put_into_phase(s, s->children[i]);
    }
    bt_supervisor_publish_launcher(s);
}

static void kill_all(bt_supervisor_t *s)
{
    if (s->phase != BT_SUPERVISOR_KILL) {
        move_phase(s, BT_SUPERVISOR_KILL, 0);
    }
}

void bt_supervisor_stop(bt_supervisor_t *s, int exit_status)
{
    if (exit_status != 0) {
        s->exit_status = exit_status;
    }
    if (s->phase == BT_SUPERVISOR_RUNNING) {
        move_phase(s, BT_SUPERVISOR_DRAIN,
                   s->options->drain_ms + BT_SUPERVISOR_DRAIN_GRACE_MS);
    }
}

/* @return whether a standby replaces the child now, and starts again itself */
static bool take_standby(bt_supervisor_t *s, bt_child_t *child)
{
    bt_child_t *const standby = bt_supervisor_standby_for(s, child);

    if ((standby == NULL) || (bt_child_assign(child, standby) != BT_OK)) {
        return false;
    }
    BT_LOG_INFO("%s replaces %s", standby->process->name, child->process->name);
    standby->due_ms = bt_now_ms() + STANDBY_PAUSE_MS;
    bt_supervisor_apply(s, standby, BT_PROCESS_EVENT_ENDED);
    return true;
}

/* Restores the run directory with its sockets and the key, if it was removed.
 */
static void look_after_run_dir(bt_supervisor_t *s)
{
    if (bt_run_dir_restore(s->options->run_dir) == BT_OK) {
        bt_control_socket_restore(s->control);
    }
}

static bt_status_t start_child(bt_supervisor_t *s, bt_child_t *child)
{
    char program[BT_PROGRAM_PATH_BYTES];
    bt_status_t status = bt_plan_renew_args(s->plan, child->process);

    child->has_given_up = false;
    child->was_killed = false;
    if (child->may_be_replaced) {
        child->may_be_replaced = false;
        if (take_standby(s, child)) {
            return BT_OK;
        }
    }
    if (status == BT_OK) {
        status = bt_program_path(s->options->libexec, child->process->program,
                                 program, sizeof(program));
    }
    if (status == BT_OK) {
        look_after_run_dir(s);
        status = bt_child_start(child, program);
    }
    return status;
}

static void move(bt_supervisor_t *s, bt_child_t *child, bt_process_state_t next)
{
    const bt_process_state_t from = child->state;
    const bool was_told =
        (from == BT_PROCESS_STOPPING) || (from == BT_PROCESS_CHANGING);
    bt_status_t status;

    child->state = next;
    child->since_ms = (uint64_t)bt_walltime_ms();
    switch (next) {
    case BT_PROCESS_STARTING:
        child->due_ms = 0;
        status = start_child(s, child);
        if (status != BT_OK) {
            bt_supervisor_no_start(s, child, status);
        }
        break;
    case BT_PROCESS_READY:
        bt_restart_ready(&child->restart, bt_now_ms());
        break;
    case BT_PROCESS_STOPPING:
    case BT_PROCESS_CHANGING:
        child->restart.is_ready = false;
        if (!was_told) {
            child->due_ms = bt_now_ms() + s->options->drain_ms +
                            BT_SUPERVISOR_DRAIN_GRACE_MS;
            bt_child_signal(child, SIGTERM);
        }
        break;
    case BT_PROCESS_STOPPED:
        child->due_ms = 0;
        break;
    case BT_PROCESS_WAITING:
        break; /* the caller sets due_ms */
    }
    bt_supervisor_publish_process(s, child);
}

void bt_supervisor_apply(bt_supervisor_t *s, bt_child_t *child,
                         bt_process_state_event_t event)
{
    const bt_process_state_t next = bt_process_state_after(child->state, event);

    if (next != child->state) {
        move(s, child, next);
    }
}

/* True when all intended routers are ready, and there is one. */
static bool all_routers_are_ready(const bt_supervisor_t *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n_children; i++) {
        const bt_child_t *const child = s->children[i];

        if (!bt_child_is_router(child) ||
            (child->state == BT_PROCESS_STOPPED)) {
            continue;
        }
        if (child->state != BT_PROCESS_READY) {
            return false;
        }
        n++;
    }
    return n > 0;
}

static void announce(bt_supervisor_t *s)
{
    const bt_ready_t *routers[BT_CONFIG_MAX_ROUTERS];
    const char *models[BT_CONFIG_MAX_MODELS];
    uint32_t n_models = 0;
    uint32_t n = 0;
    bt_strbuf_t text;

    for (uint32_t i = 0; i < s->n_children; i++) {
        if (bt_child_is_router(s->children[i]) &&
            (s->children[i]->state == BT_PROCESS_READY)) {
            BT_ASSERT(n < BT_CONFIG_MAX_ROUTERS);
            routers[n++] = &s->children[i]->ready;
        }
    }
    for (uint32_t i = 0; i < s->plan->n_models; i++) {
        if (!s->plan->models[i].is_unloaded) {
            models[n_models++] = s->plan->models[i].name;
        }
    }
    bt_strbuf_init(&text, ANNOUNCE_BYTES);
    bt_ready_announce(routers, n, models, n_models, &text);
    if (bt_strbuf_status(&text) == BT_OK) {
        bt_async_writer_add(s->out, text.data, text.len);
    } else {
        BT_LOG_WARN("ready, but the addresses cannot be printed: %s",
                    bt_status_str(bt_strbuf_status(&text)));
    }
    bt_strbuf_fini(&text);
    s->was_announced = true;
    s->waiting_ms = 0;
}

/* Handles new text on the readiness descriptor of a child. */
static void on_readiness(bt_supervisor_t *s, bt_child_t *child)
{
    if (!bt_ready_is_done(&child->ready)) {
        bt_supervisor_publish_process(s, child); /* its addresses */
        return;
    }
    if (child->state == BT_PROCESS_STARTING) {
        BT_LOG_DEBUG("%s is ready", child->process->name);
        child->trouble[0] = '\0';
        bt_supervisor_apply(s, child, BT_PROCESS_EVENT_READY);
    } else if (child->ready.said_joined) {
        bt_supervisor_publish_process(s, child); /* its problem */
    }
    if ((s->phase == BT_SUPERVISOR_RUNNING) && !s->was_announced &&
        all_routers_are_ready(s)) {
        announce(s);
    }
}

static void reopen_logs(bt_supervisor_t *s)
{
    BT_LOG_INFO("SIGHUP: reopening log files");
    bt_log_file_reopen(s->options->log);
    for (uint32_t i = 0; i < s->n_children; i++) {
        bt_child_t *const child = s->children[i];

        bt_log_file_reopen(&child->log);
        /* Before its first line it may not handle the signal yet. */
        if (bt_child_is_router(child) && bt_ready_has_line(&child->ready)) {
            bt_child_signal(child, SIGHUP);
        }
    }
}

static void on_signals(bt_supervisor_t *s)
{
    struct signalfd_siginfo info;
    bt_stop_t wish;

    while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD) {
            continue; /* the loop looks after every wake-up */
        }
        if ((info.ssi_signo == SIGHUP) &&
            !(s->has_terminal && is_terminal_gone())) {
            reopen_logs(s);
            continue;
        }
        wish = bt_stop_request(&s->stop_requests, bt_now_ms(), false);
        if (s->phase == BT_SUPERVISOR_RUNNING) {
            BT_LOG_INFO(
                "stopping after the running requests; another signal after one second stops at once");
            bt_supervisor_stop(s, 0);
        } else if (wish != BT_STOP_SAME) {
            kill_all(s); /* it was stopping already */
        }
    }
}

/* True when the router's sockets are bound, or not awaited any more. */
static bool is_bound(const bt_child_t *router)
{
    return bt_ready_has_line(&router->ready) ||
           (router->state == BT_PROCESS_STOPPED) ||
           (router->state == BT_PROCESS_STOPPING);
}

static void say_who_is_awaited(bt_supervisor_t *s, uint64_t now_ms)
{
    bt_strbuf_t names;

    bt_strbuf_init(&names, ANNOUNCE_BYTES);
    for (uint32_t i = 0; i < s->n_children; i++) {
        const bt_child_t *const child = s->children[i];

        if (s->holds_workers ? bt_child_is_router(child) && !is_bound(child)
                             : !bt_child_is_router(child) &&
                                   (child->state != BT_PROCESS_READY) &&
                                   (child->state != BT_PROCESS_STOPPED)) {
            bt_strbuf_printf(&names, " %s", child->process->name);
        }
    }
    BT_LOG_WARN("still waiting for%s", (names.len == 0) ? " the router to see "
                                                          "its workers"
                                                        : names.data);
    bt_strbuf_fini(&names);
    s->waiting_ms = now_ms + STILL_WAITING_MS;
}

/* A child's pause is over, or it took too long to stop. */
static void on_due(bt_supervisor_t *s, bt_child_t *child)
{
    child->due_ms = 0;
    if (child->state == BT_PROCESS_WAITING) {
        BT_LOG_INFO("starting %s again", child->process->name);
        child->n_restarts++;
        bt_supervisor_apply(s, child, BT_PROCESS_EVENT_PAUSE_OVER);
    } else {
        BT_LOG_WARN("%s did not stop in time and is killed",
                    child->process->name);
        child->was_killed = true;
        bt_child_signal(child, SIGKILL);
    }
}

/* True when a process runs, or with @a routers a router. */
static bool any_runs(const bt_supervisor_t *s, bool routers)
{
    for (uint32_t i = 0; i < s->n_children; i++) {
        if ((s->children[i]->pid != 0) &&
            (!routers || bt_child_is_router(s->children[i]))) {
            return true;
        }
    }
    return false;
}

/* Workers take seconds to load a model, in vain if a router has no port: they
 * start when all routers have bound theirs. */
static void start_held(bt_supervisor_t *s)
{
    if (!s->holds_workers || (s->phase != BT_SUPERVISOR_RUNNING)) {
        return;
    }
    for (uint32_t i = 0; i < s->n_children; i++) {
        if (bt_child_is_router(s->children[i]) && !is_bound(s->children[i])) {
            return;
        }
    }
    s->holds_workers = false;
    for (uint32_t i = 0; i < s->n_children; i++) {
        bt_child_t *const child = s->children[i];

        if (!bt_child_is_router(child) &&
            (child->state == BT_PROCESS_WAITING) && (child->due_ms == 0)) {
            bt_supervisor_apply(s, child, BT_PROCESS_EVENT_PAUSE_OVER);
        }
    }
}

/* Handles all that is due. */
static void on_time(bt_supervisor_t *s)
{
    const uint64_t now_ms = bt_now_ms();

    if (s->phase == BT_SUPERVISOR_RUNNING) {
        for (uint32_t i = 0; i < s->n_children; i++) {
            bt_child_t *const child = s->children[i];

            if ((child->due_ms != 0) && (child->due_ms <= now_ms)) {
                on_due(s, child);
            }
        }
        if ((s->waiting_ms != 0) && (s->waiting_ms <= now_ms)) {
            say_who_is_awaited(s, now_ms);
        }
        if ((s->look_ms != 0) && (s->look_ms <= now_ms)) {
            bt_supervisor_watch(s, now_ms);
        }
        if (s->dir_ms <= now_ms) {
            look_after_run_dir(s);
            s->dir_ms = now_ms + RUN_DIR_MS;
        }
        return;
    }
    if ((s->phase == BT_SUPERVISOR_DRAIN) && !any_runs(s, true)) {
        move_phase(s, BT_SUPERVISOR_STOP, BT_SUPERVISOR_WORKER_GRACE_MS);
    }
    if ((s->phase != BT_SUPERVISOR_KILL) && (s->deadline_ms <= now_ms)) {
        for (uint32_t i = 0; i < s->n_children; i++) {
            if ((s->children[i]->pid != 0) &&
                (s->children[i]->state == BT_PROCESS_STOPPING)) {
                BT_LOG_WARN("%s did not stop in time and is killed",
                            s->children[i]->process->name);
            }
        }
        if (s->exit_status == BT_EXIT_OK) { /* else there is a better reason */
            s->exit_status = BT_EXIT_FAILURE;
        }
        kill_all(s);
    }
}

/* @param at_ms  0: never */
static uint64_t sooner(uint64_t due_ms, uint64_t at_ms)
{
    return ((at_ms != 0) && (at_ms < due_ms)) ? at_ms : due_ms;
}

/* @return poll()'s time-out until the next due time. */
static int next_timeout_ms(const bt_supervisor_t *s)
{
    const uint64_t now_ms = bt_now_ms();
    uint64_t due_ms = bt_notify_due_ms(s->options->notify);

    if (s->phase == BT_SUPERVISOR_RUNNING) {
        for (uint32_t i = 0; i < s->n_children; i++) {
            due_ms = sooner(due_ms, s->children[i]->due_ms);
        }
        for (size_t i = 0; i < BT_CONTROL_SOCKET_CLIENTS; i++) {
            if (s->pending[i].client != 0) {
                due_ms = sooner(due_ms, s->pending[i].due_ms);
            }
        }
        due_ms = sooner(sooner(due_ms, s->waiting_ms), s->look_ms);
        due_ms = (s->dir_ms < due_ms) ? s->dir_ms : due_ms;
    } else if ((s->phase != BT_SUPERVISOR_KILL) && (s->deadline_ms < due_ms)) {
        due_ms = s->deadline_ms;
    }
    if (due_ms == UINT64_MAX) {
        return -1;
    }
    return (due_ms <= now_ms) ? 0 : (int)(due_ms - now_ms);
}

/* Reads are non-blocking: where poll() fails (it refuses more descriptors than
 * the process may have open) polling in intervals works too. */
static void wait_for_events(bt_supervisor_t *s, nfds_t n)
{
    if (poll(s->fds, n, next_timeout_ms(s)) >= 0) {
        s->cannot_wait = false;
    } else if (errno != EINTR) {
        if (!s->cannot_wait) {
            BT_LOG_ERROR("cannot wait for the processes: %m; looking every "
                         "%d ms",
                         LOOK_MS);
        }
        s->cannot_wait = true;
        (void)poll(NULL, 0, LOOK_MS);
    }
}

/* Waits for the next event and handles all that have come. */
static void run_once(bt_supervisor_t *s)
{
    nfds_t n = 0;

    s->fds[n++] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
    n += bt_control_socket_poll_fds(s->control, s->fds + n);
    for (uint32_t i = 0; i < s->n_children; i++) {
        /* poll() skips negative descriptors. */
        s->fds[n++] =
            (struct pollfd){.fd = s->children[i]->output_fd, .events = POLLIN};
        s->fds[n++] =
            (struct pollfd){.fd = s->children[i]->ready_fd, .events = POLLIN};
    }
    wait_for_events(s, n);

    for (uint32_t i = 0; i < s->n_children; i++) {
        bt_child_t *const child = s->children[i];

        bt_child_read_output(child);
        if (bt_child_read_ready(child)) {
            on_readiness(s, child);
        }
    }
    on_signals(s);
    bt_supervisor_reap(s);
    on_time(s);
    bt_log_tick();
    start_held(s);
    bt_control_socket_run(s->control);
    bt_supervisor_answer_pending(s);
    bt_supervisor_notify(s);
}

static bt_status_t block_signals(bt_supervisor_t *s)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) {
        BT_LOG_ERROR("cannot block signals: %m");
        return BT_ERR_IO;
    }
    s->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (s->signal_fd < 0) {
        BT_LOG_ERROR("cannot wait for signals: %m");
        return BT_ERR_IO;
    }
    return BT_OK;
}

/* Reserves memory for @a n children, and their descriptors. */
static bt_status_t reserve_children(bt_supervisor_t *s, uint32_t n)
{
    bt_child_t **const children =
        bt_realloc_array(s->children, n, sizeof(*children));
    struct pollfd *fds;

    if (children == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    s->children = children;
    fds = bt_realloc_array(
        s->fds, 1 + BT_CONTROL_SOCKET_FDS + FDS_PER_CHILD * (size_t)n,
        sizeof(*fds));
    if (fds == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    s->fds = fds;
    return BT_OK;
}

bt_status_t bt_supervisor_add_children(bt_supervisor_t *s)
{
    const uint32_t before = s->n_children;
    bt_status_t status = reserve_children(s, s->plan->n_processes);
    bt_status_t logs = BT_OK;

    for (uint32_t i = before; (status == BT_OK) && (i < s->plan->n_processes);
         i++) {
        bt_child_t *const child = bt_calloc(1, sizeof(*child));

        if (child == NULL) {
            status = BT_ERR_NO_MEMORY;
            break;
        }
        if (bt_child_init(child, s->plan->processes[i], s->options->log_dir) !=
            BT_OK) {
            logs = BT_ERR_IO;
        }
        child->since_ms = (uint64_t)bt_walltime_ms();
        s->children[s->n_children++] = child;
    }
    while ((status != BT_OK) && (s->n_children > before)) {
        s->n_children--;
        bt_child_fini(s->children[s->n_children]);
        bt_free(s->children[s->n_children]);
    }
    return (status == BT_OK) ? logs : status;
}

static void fini(bt_supervisor_t *s)
{
    for (uint32_t i = 0; i < s->n_children; i++) {
        bt_child_fini(s->children[i]);
        bt_free(s->children[i]);
    }
    bt_control_socket_destroy(s->control);
    bt_async_writer_close(s->out, BT_LOG_FLUSH_MS);
    if (s->signal_fd >= 0) {
        close(s->signal_fd);
    }
    bt_free(s->fds);
    bt_free(s->children);
}

int bt_supervise(bt_plan_t *plan, const bt_supervisor_options_t *options)
{
    bt_supervisor_t s = {.options = options, .plan = plan, .signal_fd = -1};
    const bt_async_writer_options_t out = {.fd = STDOUT_FILENO,
                                           .capacity = ANNOUNCE_BYTES};

    if ((bt_supervisor_add_children(&s) != BT_OK) ||
        (block_signals(&s) != BT_OK) ||
        (bt_async_writer_open(&out, &s.out) != BT_OK) ||
        (bt_control_socket_create(plan->run_dir.path, bt_supervisor_command, &s,
                                  &s.control) != BT_OK)) {
        s.exit_status = BT_EXIT_CONFIG;
        goto out;
    }
    s.waiting_ms = bt_now_ms() + STILL_WAITING_MS;
    s.has_terminal = has_own_terminal();
    s.oom_kills = bt_cgroup_oom_kills("");
    s.look_ms = (options->watchdog_ms == 0) ? 0 : bt_now_ms();
    s.holds_workers = true;
    for (uint32_t i = 0;
         (i < s.n_children) && (s.phase == BT_SUPERVISOR_RUNNING); i++) {
        bt_supervisor_apply(&s, s.children[i],
                            bt_child_is_router(s.children[i])
                                ? BT_PROCESS_EVENT_START
                                : BT_PROCESS_EVENT_HOLD);
    }
    bt_supervisor_notify(&s);
    while ((s.phase == BT_SUPERVISOR_RUNNING) || any_runs(&s, false)) {
        run_once(&s);
    }
    bt_control_socket_run(s.control); /* watchers see the last ones end */
    BT_LOG_INFO("stopped");
    if (s.cause[0] != '\0') {
        BT_LOG_ERROR("%s", s.cause); /* the last line */
    }

out:
    fini(&s);
    return s.exit_status;
}
