/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/mpi.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "launcher/programs.h"

#define NUMBER_BYTES 16

/* The command line of baton-orchestrator. */
typedef struct line {
    char **words; /* NULL at the end; borrowed but for numbers */
    size_t n;
    char (*numbers)[NUMBER_BYTES];
    uint32_t n_numbers;
} line_t;

typedef struct paths {
    char orchestrator[BT_PROGRAM_PATH_BYTES];
    char router[BT_PROGRAM_PATH_BYTES];
    char prefill[BT_PROGRAM_PATH_BYTES];
    char decode[BT_PROGRAM_PATH_BYTES];
} paths_t;

static void put(line_t *line, char *word)
{
    line->words[line->n++] = word;
}

static void put_number(line_t *line, uint32_t number)
{
    char *text = line->numbers[line->n_numbers++];

    snprintf(text, NUMBER_BYTES, "%u", number);
    put(line, text);
}

static char *path_of(paths_t *paths, const bt_plan_process_t *process)
{
    return (process->program == BT_PROG_ROUTER)    ? paths->router
           : (process->program == BT_PROG_PREFILL) ? paths->prefill
                                                   : paths->decode;
}

static bt_status_t line_make(const bt_plan_t *plan, uint32_t drain_ms,
                             paths_t *paths, line_t *line)
{
    static char mark[] = ":";
    size_t n = 3; /* the program, its time, the end */

    for (uint32_t i = 0; i < plan->n_processes; i++) {
        n += 3 + bt_plan_put_args(plan->processes[i], NULL);
    }
    line->words = bt_calloc(n, sizeof(*line->words));
    line->numbers = bt_calloc(plan->n_processes + 1, sizeof(*line->numbers));
    if ((line->words == NULL) || (line->numbers == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    put(line, paths->orchestrator);
    put_number(line, drain_ms);
    for (uint32_t i = 0; i < plan->n_processes; i++) {
        const bt_plan_process_t *process = plan->processes[i];

        put(line, mark);
        put_number(line, bt_plan_ranks(plan, process));
        put(line, path_of(paths, process));
        line->n += bt_plan_put_args(process, line->words + line->n);
    }
    return BT_OK;
}

static void line_free(line_t *line)
{
    bt_free(line->words);
    bt_free(line->numbers);
}

static bt_status_t find_programs(const char *libexec, paths_t *paths)
{
    bt_status_t status;

    if ((status = bt_program_path(libexec, BT_PROG_ROUTER, paths->router,
                                  sizeof(paths->router))) != BT_OK ||
        (status = bt_program_path(libexec, BT_PROG_PREFILL, paths->prefill,
                                  sizeof(paths->prefill))) != BT_OK ||
        (status = bt_program_path(libexec, BT_PROG_DECODE, paths->decode,
                                  sizeof(paths->decode))) != BT_OK) {
        return status;
    }
    return bt_program_path_named(libexec, "baton-orchestrator",
                                 "launcher/orchestrator", paths->orchestrator,
                                 sizeof(paths->orchestrator));
}

/* Stop signals are forwarded to the orchestrator, and its end is ours. Signals
 * of mpirun reach all processes. */
static int wait_for(pid_t pid, const sigset_t *signals)
{
    int status = 0;

    for (;;) {
        siginfo_t info = {0};
        const int number = sigwaitinfo(signals, &info);

        if (((number == SIGTERM) || (number == SIGINT) || (number == SIGHUP)) &&
            (info.si_pid != getppid())) {
            (void)kill(pid, (number == SIGHUP) ? SIGTERM : number);
        }
        if (waitpid(pid, &status, WNOHANG) == pid) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : BT_EXIT_FAILURE;
        }
    }
}

/* After fork: only async-signal-safe calls. The orchestrator ends with its
 * launcher. */
static _Noreturn void become(char **words, pid_t launcher)
{
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) {
        _exit(127); /* it died before the line above */
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(words[0], words);
    _exit(127);
}

static int run(char **words)
{
    const pid_t launcher = getpid();
    sigset_t signals;
    pid_t pid;

    if (access(words[0], X_OK) != 0) {
        BT_LOG_ERROR("cannot start %s: %m", words[0]);
        return bt_exit_of_start(BT_ERR_IO);
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    pid = fork();
    if (pid < 0) {
        BT_LOG_ERROR("cannot start %s: %m", words[0]);
        return bt_exit_of_start(BT_ERR_IO);
    }
    if (pid == 0) {
        become(words, launcher);
    }
    return wait_for(pid, &signals);
}

int bt_orchestrate(const bt_plan_t *plan, const char *libexec,
                   uint32_t drain_ms)
{
    paths_t paths;
    line_t line = {0};
    bt_status_t status = find_programs(libexec, &paths);
    int exit_status;

    if (status == BT_OK) {
        status = line_make(plan, drain_ms, &paths, &line);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot start the processes: %s", bt_status_str(status));
    }
    exit_status =
        (status == BT_OK) ? run(line.words) : bt_exit_of_start(status);
    line_free(&line);
    return exit_status;
}
