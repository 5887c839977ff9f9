/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/health.h"

#define PIECE_BYTES 4096

bt_status_t bt_child_init(bt_child_t *child, bt_plan_process_t *process,
                          const bt_log_dir_t *log_dir)
{
    memset(child, 0, sizeof(*child));
    child->process = process;
    child->output_fd = -1;
    child->ready_fd = -1;
    child->beat_fd = -1;
    child->assignment_fd = -1;
    bt_output_init(&child->output, &child->log);
    bt_restart_init(&child->restart);
    return bt_log_file_open(&child->log, log_dir, process->name);
}

bool bt_child_is_router(const bt_child_t *child)
{
    return child->process->model == BT_PLAN_NO_MODEL;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

static void close_fds(bt_child_t *child)
{
    close_fd(&child->output_fd);
    close_fd(&child->ready_fd);
    close_fd(&child->beat_fd);
    close_fd(&child->assignment_fd);
}

void bt_child_fini(bt_child_t *child)
{
    close_fds(child);
    bt_log_file_close(&child->log);
}

/* argv with pointers into the plan. @return owned, NULL without memory. */
static char **make_argv(const bt_plan_process_t *process, char *program)
{
    const size_t n = bt_plan_put_args(process, NULL);
    char **const argv = bt_calloc(n + 2, sizeof(*argv));

    if (argv != NULL) {
        argv[0] = program;
        (void)bt_plan_put_args(process, argv + 1);
    }
    return argv;
}

/* After fork: only async-signal-safe calls. */
static _Noreturn void become(char **argv, pid_t launcher, int output, int ready,
                             int beat, int assignment)
{
    static const char failed[] = "cannot execute ";
    sigset_t none;
    int devnull;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) {
        _exit(127); /* it died before the line above */
    }
    devnull = open("/dev/null", O_RDONLY | O_CLOEXEC);
    /* The descriptors may have any numbers but 0, 1, 2, even each other's
     * targets, and dup2 clears close-on-exec unless both numbers are equal. */
    beat = fcntl(beat, F_DUPFD_CLOEXEC, BT_PLAN_ASSIGNMENT_FD + 1);
    if (assignment >= 0) {
        assignment =
            fcntl(assignment, F_DUPFD_CLOEXEC, BT_PLAN_ASSIGNMENT_FD + 1);
    }
    if ((beat < 0) || (dup2(devnull, STDIN_FILENO) < 0) ||
        (dup2(output, STDOUT_FILENO) < 0) ||
        (dup2(output, STDERR_FILENO) < 0) ||
        (ready == BT_CHILD_READY_FD ? fcntl(ready, F_SETFD, 0)
                                    : dup2(ready, BT_CHILD_READY_FD)) < 0 ||
        (dup2(beat, BT_CHILD_BEAT_FD) < 0) ||
        ((assignment >= 0) && (dup2(assignment, BT_PLAN_ASSIGNMENT_FD) < 0))) {
        _exit(127);
    }
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(argv[0], argv);

    {
        const char *const reason = strerrordesc_np(errno);
        ssize_t n = write(STDERR_FILENO, failed, sizeof(failed) - 1);

        n += write(STDERR_FILENO, argv[0], strlen(argv[0]));
        n += write(STDERR_FILENO, ": ", 2);
        n += write(STDERR_FILENO, reason, strlen(reason));
        n += write(STDERR_FILENO, "\n", 1);
        _exit((n < 0) ? 126 : 127);
    }
}

/* Resets the state for a new process. */
static void begin(bt_child_t *child)
{
    bt_watchdog_init(&child->watchdog, bt_now_ms());
    child->core_wait.looked_ms = 0;
    child->is_starved = false;
    child->end[0] = '\0';
    bt_stderr_tail_reset(&child->tail);
    bt_ready_reset(&child->ready);
}

bt_status_t bt_child_start(bt_child_t *child, const char *program)
{
    const pid_t launcher = getpid();
    char *const path = bt_strdup(program);
    char **const argv = (path == NULL) ? NULL : make_argv(child->process, path);
    bt_status_t status = BT_ERR_NO_MEMORY;
    /* The parent's end of each is first in output and ready, last in
     * assignment. */
    int output[2] = {-1, -1}, ready[2] = {-1, -1}, assignment[2] = {-1, -1};
    int beat = -1;
    pid_t pid;

    if (argv == NULL) {
        goto out;
    }
    status = BT_ERR_IO;
    beat = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if ((beat < 0) || (pipe2(output, O_CLOEXEC) != 0) ||
        (pipe2(ready, O_CLOEXEC) != 0) ||
        (child->process->is_standby && (pipe2(assignment, O_CLOEXEC) != 0))) {
        BT_LOG_ERROR("cannot make the pipes of %s: %m", child->process->name);
        goto out;
    }
    pid = fork();
    if (pid < 0) {
        BT_LOG_ERROR("cannot start a process for %s: %m", child->process->name);
        goto out;
    }
    if (pid == 0) {
        become(argv, launcher, output[1], ready[1], beat, assignment[0]);
    }

    setpgid(pid, pid); /* both sides do it: either may come first */
    fcntl(output[0], F_SETFL, O_NONBLOCK);
    fcntl(ready[0], F_SETFL, O_NONBLOCK);
    child->pid = pid;
    child->output_fd = output[0];
    child->ready_fd = ready[0];
    child->beat_fd = beat;
    child->assignment_fd = assignment[1];
    output[0] = ready[0] = beat = assignment[1] = -1; /* the child's now */
    begin(child);
    status = BT_OK;

out:
    for (size_t i = 0; i < 2; i++) {
        close_fd(&output[i]);
        close_fd(&ready[i]);
        close_fd(&assignment[i]);
    }
    close_fd(&beat);
    bt_free(argv);
    bt_free(path);
    return status;
}

bt_status_t bt_child_assign(bt_child_t *child, bt_child_t *standby)
{
    char line[BT_PLAN_NAME_BYTES + BT_READY_ROLE_BYTES];
    const int n = snprintf(line, sizeof(line), "%s %s\n", child->process->name,
                           bt_admin_role_name(child->process->role));

    /* A line this short is written whole or not at all. */
    if ((standby->assignment_fd < 0) ||
        (write(standby->assignment_fd, line, (size_t)n) != n)) {
        BT_LOG_WARN("%s cannot receive its assignment: %m",
                    standby->process->name);
        return BT_ERR_IO;
    }
    bt_child_read_output(standby); /* output of the standby itself */
    bt_output_finish(&standby->output);
    close_fd(&standby->assignment_fd);
    child->pid = standby->pid;
    child->output_fd = standby->output_fd;
    child->ready_fd = standby->ready_fd;
    child->beat_fd = standby->beat_fd;
    standby->pid = 0;
    standby->output_fd = standby->ready_fd = standby->beat_fd = -1;
    snprintf(standby->end, sizeof(standby->end), "as %s", child->process->name);
    begin(child);
    return BT_OK;
}

/* Reads what is there without waiting, and closes the descriptor at its end.
 * @return bytes read; 0: none are there now */
static size_t read_some(int *fd, char *piece, size_t bytes)
{
    ssize_t n;

    if (*fd < 0) {
        return 0;
    }
    do {
        n = read(*fd, piece, bytes);
    } while ((n < 0) && (errno == EINTR));
    if ((n == 0) || ((n < 0) && (errno != EAGAIN))) {
        close_fd(fd);
    }
    return (n > 0) ? (size_t)n : 0;
}

void bt_child_read_output(bt_child_t *child)
{
    char piece[PIECE_BYTES];
    size_t n;

    while ((n = read_some(&child->output_fd, piece, sizeof(piece))) > 0) {
        bt_stderr_tail_add(&child->tail, piece, n);
        bt_output_add(&child->output, piece, n);
    }
}

bool bt_child_read_ready(bt_child_t *child)
{
    bool has_more = false;
    char piece[256];
    size_t n;

    while ((n = read_some(&child->ready_fd, piece, sizeof(piece))) > 0) {
        bt_ready_add(&child->ready, piece, n);
        has_more = true;
    }
    return has_more;
}

bool bt_child_take_beat(bt_child_t *child)
{
    uint64_t n;

    return (child->beat_fd >= 0) &&
           (read(child->beat_fd, &n, sizeof(n)) == (ssize_t)sizeof(n));
}

static void describe_end(int wait_status, char *out, size_t bytes)
{
    if (WIFSIGNALED(wait_status)) {
        snprintf(out, bytes, "by signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    } else {
        snprintf(out, bytes, "with exit status %d", WEXITSTATUS(wait_status));
    }
}

uint64_t bt_child_core_wait_ms(bt_child_t *child, bool has_beaten,
                               uint64_t now_ms)
{
    if (has_beaten || (child->pid == 0)) {
        child->core_wait.looked_ms = 0;
        return 0;
    }
    return bt_core_wait_look(&child->core_wait, child->pid, now_ms);
}

void bt_child_log_threads(const bt_child_t *child)
{
    if (child->pid != 0) {
        bt_threads_log(child->process->name, child->pid);
    }
}

bool bt_child_reap(bt_child_t *child, int *wait_status_p)
{
    siginfo_t info = {0};
    int wait_status;

    if ((child->pid == 0) ||
        (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) !=
         0) ||
        (info.si_pid != child->pid)) {
        return false;
    }
    /* Processes left in its group must not outlive it either. Its number is not
     * reused until it is reaped; after that it may be. */
    kill(-child->pid, SIGKILL);
    if (waitpid(child->pid, &wait_status, 0) != child->pid) {
        return false; /* cannot be: it has ended and is ours */
    }
    child->pid = 0;
    bt_child_read_output(child);
    bt_stderr_tail_finish(&child->tail);
    bt_output_finish(&child->output);
    close_fds(child);
    describe_end(wait_status, child->end, sizeof(child->end));
    *wait_status_p = wait_status;
    return true;
}

void bt_child_signal(const bt_child_t *child, int signal_number)
{
    if (child->pid > 0) {
        kill((signal_number == SIGKILL) ? -child->pid : child->pid,
             signal_number);
    }
}

void bt_child_print_tail(const bt_child_t *child, bt_log_file_t *log)
{
    char text[BT_STDERR_TAIL_BYTES + BT_PLAN_NAME_BYTES + 16];
    const char *line;

    for (uint32_t i = 0; (line = bt_stderr_tail_line(&child->tail, i)) != NULL;
         i++) {
        const int n = snprintf(text, sizeof(text), "    %s | %s\n",
                               child->process->name, line);

        bt_log_pass_on(text, (size_t)n);
        bt_log_file_write(log, text, (size_t)n);
    }
}
