/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/child.h"
#include "launcher/programs.h"

/* Beyond the router's own drain, before it counts as stuck. */
#define ROUTER_GRACE_MS 2000
/* For the workers, which have nothing left to do by then. */
#define WORKER_GRACE_MS 5000
/* How often to say which processes are still awaited. */
#define STILL_WAITING_MS 30000
#define ANNOUNCE_BYTES   8192
/* Signals, then output and readiness of each child. */
#define FDS_PER_CHILD 2

typedef enum phase {
    PHASE_RUNNING,
    PHASE_DRAIN,
    PHASE_STOP,
    PHASE_KILL,
} phase_t;

typedef struct supervisor {
    const bt_supervisor_options_t *options;
    bt_child_t *children; /* owned; 0 is the router */
    uint32_t n_children;
    struct pollfd *fds; /* owned; 1 + FDS_PER_CHILD * n_children */
    int signal_fd;
    phase_t phase;
    uint64_t deadline_ms; /* of PHASE_DRAIN and PHASE_STOP */
    uint64_t waiting_ms;  /* when to say who is awaited; 0 = all are ready */
    bool was_announced;
    int exit_status;
} supervisor_t;

static bool is_router(const supervisor_t *s, const bt_child_t *child)
{
    return child == &s->children[0];
}

static void set_phase(supervisor_t *s, phase_t phase, uint64_t grace_ms)
{
    s->phase = phase;
    s->deadline_ms = bt_now_ms() + grace_ms;
    for (uint32_t i = 0; i < s->n_children; i++) {
        bt_child_t *const child = &s->children[i];

        child->restart_ms = 0;
        if (phase == PHASE_KILL) {
            bt_child_signal(child, SIGKILL);
        } else if ((i == 0) || (phase == PHASE_STOP)) {
            bt_child_signal(child, SIGTERM);
        }
    }
}

/* Begin to stop; a second call hurries. */
static void stop(supervisor_t *s, int exit_status)
{
    if (exit_status != 0) {
        s->exit_status = exit_status;
    }
    if (s->phase == PHASE_RUNNING) {
        set_phase(s, PHASE_DRAIN, s->options->drain_ms + ROUTER_GRACE_MS);
    }
}

static void start_child(supervisor_t *s, bt_child_t *child)
{
    char program[BT_PROGRAM_PATH_BYTES];
    bt_status_t status = bt_program_path(
        s->options->libexec, child->process->program, program, sizeof(program));

    if (status == BT_OK) {
        status = bt_child_start(child, program);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("%s cannot be started: %s", child->process->name,
                     bt_status_str(status));
        stop(s, 1);
    }
}

/* "exit status 1" or "signal 9 (Killed)". */
static void describe_end(int wait_status, char *out, size_t bytes)
{
    if (WIFSIGNALED(wait_status)) {
        snprintf(out, bytes, "by signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    } else {
        snprintf(out, bytes, "with exit status %d", WEXITSTATUS(wait_status));
    }
}

static void on_exit_while_running(supervisor_t *s, bt_child_t *child,
                                  int wait_status)
{
    const char *const name = child->process->name;
    const uint64_t now_ms = bt_now_ms();
    uint32_t pause_ms;
    char end[128];

    describe_end(wait_status, end, sizeof(end));
    /* A router that ends before it has bound its sockets will not do better
     * the next time: the port is in use, or the model file is bad. */
    if (is_router(s, child) && !child->restart.was_ever_ready &&
        !bt_ready_has_line(&child->ready)) {
        BT_LOG_ERROR("%s could not start: it ended %s; its last words:", name,
                     end);
        bt_child_print_last_words(child);
        stop(s, 1);
        return;
    }
    if (!bt_restart_exited(&child->restart, now_ms, &pause_ms)) {
        BT_LOG_ERROR("%s could not start %u times, the last time it ended %s; "
                     "its last words:",
                     name, child->restart.early_exits, end);
        bt_child_print_last_words(child);
        stop(s, 1);
        return;
    }
    BT_LOG_WARN("%s ended %s; it starts again in %u.%u s", name, end,
                pause_ms / 1000, pause_ms % 1000 / 100);
    child->restart_ms = now_ms + pause_ms;
}

static void reap_children(supervisor_t *s)
{
    for (uint32_t i = 0; i < s->n_children; i++) {
        bt_child_t *const child = &s->children[i];
        char end[128];
        int wait_status;

        if (!bt_child_reap(child, &wait_status)) {
            continue;
        }
        if (s->phase == PHASE_RUNNING) {
            on_exit_while_running(s, child, wait_status);
        } else if ((s->phase != PHASE_KILL) && (wait_status != 0) &&
                   !(WIFSIGNALED(wait_status) &&
                     (WTERMSIG(wait_status) == SIGTERM))) {
            /* SIGTERM is ours, come before the child could catch it. */
            describe_end(wait_status, end, sizeof(end));
            BT_LOG_WARN("%s ended %s while stopping", child->process->name,
                        end);
        }
    }
}

static void announce(supervisor_t *s)
{
    bt_strbuf_t text;

    bt_strbuf_init(&text, ANNOUNCE_BYTES);
    bt_ready_announce(&s->children[0].ready, &text);
    if (bt_strbuf_status(&text) == BT_OK) {
        fputs(text.data, stdout);
        fflush(stdout);
    } else {
        BT_LOG_WARN("ready, but the addresses cannot be printed: %s",
                    bt_status_str(bt_strbuf_status(&text)));
    }
    bt_strbuf_fini(&text);
    s->was_announced = true;
}

static void on_child_ready(supervisor_t *s, const bt_child_t *child)
{
    if (is_router(s, child) && !s->was_announced) {
        announce(s);
        s->waiting_ms = 0;
    } else {
        BT_LOG_DEBUG("%s is ready", child->process->name);
    }
}

static void on_signals(supervisor_t *s)
{
    struct signalfd_siginfo info;

    while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD) {
            continue; /* the loop looks after every wake-up */
        }
        if (s->phase == PHASE_RUNNING) {
            BT_LOG_INFO("stopping after the running requests; once more stops "
                        "at once");
            stop(s, 0);
        } else {
            set_phase(s, PHASE_KILL, 0);
        }
    }
}

static void say_who_is_awaited(supervisor_t *s, uint64_t now_ms)
{
    bt_strbuf_t names;

    bt_strbuf_init(&names, ANNOUNCE_BYTES);
    for (uint32_t i = 1; i < s->n_children; i++) {
        if (!s->children[i].restart.is_ready) {
            bt_strbuf_printf(&names, " %s", s->children[i].process->name);
        }
    }
    BT_LOG_WARN("still waiting for%s", (names.len == 0) ? " the router to see "
                                                          "its workers"
                                                        : names.data);
    bt_strbuf_fini(&names);
    s->waiting_ms = now_ms + STILL_WAITING_MS;
}

/* What is due by the clock. */
static void on_time(supervisor_t *s)
{
    const uint64_t now_ms = bt_now_ms();

    if (s->phase == PHASE_RUNNING) {
        for (uint32_t i = 0; i < s->n_children; i++) {
            bt_child_t *const child = &s->children[i];

            if ((child->restart_ms != 0) && (child->restart_ms <= now_ms)) {
                child->restart_ms = 0;
                BT_LOG_INFO("starting %s again", child->process->name);
                start_child(s, child);
            }
        }
        if ((s->waiting_ms != 0) && (s->waiting_ms <= now_ms)) {
            say_who_is_awaited(s, now_ms);
        }
        return;
    }
    if ((s->phase == PHASE_DRAIN) && (s->children[0].pid == 0)) {
        set_phase(s, PHASE_STOP, WORKER_GRACE_MS);
    }
    if ((s->phase != PHASE_KILL) && (s->deadline_ms <= now_ms)) {
        for (uint32_t i = 0; i < s->n_children; i++) {
            if ((s->children[i].pid != 0) &&
                ((i == 0) || (s->phase == PHASE_STOP))) {
                BT_LOG_WARN("%s did not stop in time and is killed",
                            s->children[i].process->name);
            }
        }
        s->exit_status = 1;
        set_phase(s, PHASE_KILL, 0);
    }
}

/* @return poll()'s time-out until something is due by the clock. */
static int next_timeout_ms(const supervisor_t *s)
{
    const uint64_t now_ms = bt_now_ms();
    uint64_t due_ms = UINT64_MAX;

    if (s->phase == PHASE_RUNNING) {
        for (uint32_t i = 0; i < s->n_children; i++) {
            const uint64_t at_ms = s->children[i].restart_ms;

            due_ms = ((at_ms != 0) && (at_ms < due_ms)) ? at_ms : due_ms;
        }
        if ((s->waiting_ms != 0) && (s->waiting_ms < due_ms)) {
            due_ms = s->waiting_ms;
        }
    } else if (s->phase != PHASE_KILL) {
        due_ms = s->deadline_ms;
    }
    if (due_ms == UINT64_MAX) {
        return -1;
    }
    return (due_ms <= now_ms) ? 0 : (int)(due_ms - now_ms);
}

static bool anybody_runs(const supervisor_t *s)
{
    for (uint32_t i = 0; i < s->n_children; i++) {
        if (s->children[i].pid != 0) {
            return true;
        }
    }
    return false;
}

/* Wait for the next event and take everything that has come. */
static void run_once(supervisor_t *s)
{
    nfds_t n = 0;

    s->fds[n++] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
    for (uint32_t i = 0; i < s->n_children; i++) {
        /* poll() skips negative descriptors. */
        s->fds[n++] =
            (struct pollfd){.fd = s->children[i].output_fd, .events = POLLIN};
        s->fds[n++] =
            (struct pollfd){.fd = s->children[i].ready_fd, .events = POLLIN};
    }
    if ((poll(s->fds, n, next_timeout_ms(s)) < 0) && (errno != EINTR)) {
        BT_LOG_ERROR("cannot wait for the processes: %m");
        s->exit_status = 1;
        set_phase(s, PHASE_KILL, 0);
    }

    for (uint32_t i = 0; i < s->n_children; i++) {
        bt_child_t *const child = &s->children[i];

        bt_child_read_output(child);
        if (bt_child_read_ready(child, bt_now_ms()) &&
            (s->phase == PHASE_RUNNING)) {
            on_child_ready(s, child);
        }
    }
    on_signals(s);
    reap_children(s);
    on_time(s);
}

static bt_status_t block_signals(supervisor_t *s)
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

static bt_status_t prepare(supervisor_t *s, const bt_plan_t *plan)
{
    bt_status_t status;

    s->children = bt_calloc(plan->n_processes, sizeof(*s->children));
    s->fds = bt_calloc(1 + FDS_PER_CHILD * (size_t)plan->n_processes,
                       sizeof(*s->fds));
    if ((s->children == NULL) || (s->fds == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < plan->n_processes; i++) {
        status = bt_child_init(&s->children[i], &plan->processes[i],
                               s->options->log_dir);
        if (status != BT_OK) {
            return status;
        }
        s->n_children++;
    }
    return block_signals(s);
}

int bt_supervise(const bt_plan_t *plan, const bt_supervisor_options_t *options)
{
    supervisor_t s = {.options = options, .signal_fd = -1};

    if (prepare(&s, plan) != BT_OK) {
        s.exit_status = 1;
        goto out;
    }
    s.waiting_ms = bt_now_ms() + STILL_WAITING_MS;
    for (uint32_t i = 0; (i < s.n_children) && (s.phase == PHASE_RUNNING);
         i++) {
        start_child(&s, &s.children[i]);
    }
    while ((s.phase == PHASE_RUNNING) || anybody_runs(&s)) {
        run_once(&s);
    }

out:
    for (uint32_t i = 0; i < s.n_children; i++) {
        bt_child_fini(&s.children[i]);
    }
    if (s.signal_fd >= 0) {
        close(s.signal_fd);
    }
    bt_free(s.fds);
    bt_free(s.children);
    return s.exit_status;
}
