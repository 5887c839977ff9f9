/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/programs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "launcher/build.h"

/* ---- paths ---- */

static const char *build_folder(unsigned program)
{
    return (program == BT_PROG_ROUTER) ? "router" : "worker/main";
}

bt_status_t bt_program_path(const char *libexec, unsigned program, char *out,
                            size_t bytes)
{
    return bt_program_path_named(libexec, bt_config_program_name(program),
                                 build_folder(program), out, bytes);
}

bt_status_t bt_program_path_named(const char *libexec, const char *name,
                                  const char *folder, char *out, size_t bytes)
{
    static const char installed[] = BT_BUILD_LIBEXEC;
    const bool is_absolute = (installed[0] == '/');
    char own[BT_PROGRAM_PATH_BYTES];
    ssize_t n;
    char *slash;
    int wrote;

    if (libexec != NULL) {
        wrote = snprintf(out, bytes, "%s/%s", libexec, name);
        return ((size_t)wrote < bytes) ? BT_OK : BT_ERR_TOO_LARGE;
    }

    n = readlink("/proc/self/exe", own, sizeof(own) - 1);
    if (n <= 0) {
        BT_LOG_ERROR("cannot read /proc/self/exe: %m");
        return BT_ERR_IO;
    }
    own[n] = '\0';
    slash = strrchr(own, '/');
    if (slash == NULL) {
        BT_LOG_ERROR("this program's own path %s has no directory", own);
        return BT_ERR_IO;
    }
    *slash = '\0';
    wrote = snprintf(out, bytes, "%s/%s", own, name);
    if (((size_t)wrote < bytes) && (access(out, X_OK) == 0)) {
        return BT_OK;
    }
    wrote = is_absolute
                ? snprintf(out, bytes, "%s/%s", installed, name)
                : snprintf(out, bytes, "%s/%s/%s", own, installed, name);
    if (((size_t)wrote < bytes) && (access(out, X_OK) == 0)) {
        return BT_OK;
    }
    wrote = snprintf(out, bytes, "%s/../%s/%s", own, folder, name);
    return ((size_t)wrote < bytes) ? BT_OK : BT_ERR_TOO_LARGE;
}

/* ---- probes ---- */

#define PIECE_BYTES 4096

/* After fork: only async-signal-safe calls. */
static _Noreturn void become(char *const *argv, pid_t parent, int out, int err)
{
    const int devnull = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((getppid() == parent) && (dup2(devnull, STDIN_FILENO) >= 0) &&
        (dup2(out, STDOUT_FILENO) >= 0) && (dup2(err, STDERR_FILENO) >= 0)) {
        execv(argv[0], argv);
    }
    _exit(127);
}

/* @return false: the end of the output */
static bool take(int fd, bt_strbuf_t *to)
{
    char piece[PIECE_BYTES];
    const ssize_t n = read(fd, piece, sizeof(piece));

    if (n > 0) {
        if (to->len + (size_t)n < BT_PROBE_BYTES) {
            bt_strbuf_append(to, piece, (size_t)n);
        }
        return true;
    }
    return (n < 0) && ((errno == EINTR) || (errno == EAGAIN));
}

/* Reads until both outputs end. @return false: it took too long */
static bool listen_to(const int fds[2], uint64_t end_ms, bt_probe_t *probe)
{
    struct pollfd polled[] = {{.fd = fds[0], .events = POLLIN},
                              {.fd = fds[1], .events = POLLIN}};
    bt_strbuf_t *const to[] = {&probe->out, &probe->err};

    while ((polled[0].fd >= 0) || (polled[1].fd >= 0)) {
        const uint64_t now_ms = bt_now_ms();

        if (now_ms >= end_ms) {
            return false;
        }
        if ((poll(polled, 2, (int)(end_ms - now_ms)) < 0) && (errno != EINTR)) {
            return false;
        }
        for (int i = 0; i < 2; i++) {
            if ((polled[i].fd >= 0) && (polled[i].revents != 0) &&
                !take(polled[i].fd, to[i])) {
                polled[i].fd = -1; /* poll() skips it */
            }
            polled[i].revents = 0;
        }
    }
    return true;
}

bt_status_t bt_probe_run(char *const *argv, uint32_t timeout_ms,
                         bt_probe_t *probe_p)
{
    const pid_t self = getpid();
    bt_probe_t probe = {0};
    int out[2], err[2], wait_status;
    pid_t pid;

    if (pipe2(out, O_CLOEXEC) != 0) {
        BT_LOG_ERROR("cannot make a pipe for %s: %m", argv[0]);
        return BT_ERR_IO;
    }
    if (pipe2(err, O_CLOEXEC) != 0) {
        BT_LOG_ERROR("cannot make a pipe for %s: %m", argv[0]);
        goto err_out;
    }
    pid = fork();
    if (pid < 0) {
        BT_LOG_ERROR("cannot start %s: %m", argv[0]);
        goto err_err;
    }
    if (pid == 0) {
        become(argv, self, out[1], err[1]);
    }
    close(out[1]);
    close(err[1]);
    bt_strbuf_init(&probe.out, BT_PROBE_BYTES);
    bt_strbuf_init(&probe.err, BT_PROBE_BYTES);
    probe.took_too_long = !listen_to((const int[]){out[0], err[0]},
                                     bt_now_ms() + timeout_ms, &probe);
    if (probe.took_too_long) {
        kill(pid, SIGKILL);
    }
    close(out[0]);
    close(err[0]);
    while ((waitpid(pid, &wait_status, 0) < 0) && (errno == EINTR)) {
    }
    probe.exit_status = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
                                                 : WEXITSTATUS(wait_status);
    *probe_p = probe;
    return BT_OK;

err_err:
    close(err[0]);
    close(err[1]);
err_out:
    close(out[0]);
    close(out[1]);
    return BT_ERR_IO;
}

void bt_probe_fini(bt_probe_t *probe)
{
    bt_strbuf_fini(&probe->out);
    bt_strbuf_fini(&probe->err);
}

/* ---- build information ---- */

void bt_build_info_print(bt_strbuf_t *out)
{
    char plugin[BT_PROGRAM_PATH_BYTES];
    const bool has_cuda =
        (bt_program_path_named(NULL, "baton_cuda.so", "kernels/cuda", plugin,
                               sizeof(plugin)) == BT_OK) &&
        (access(plugin, R_OK) == 0);

    bt_strbuf_printf(out, "  build      %s, %s, %s %s\n", BT_BUILD_TYPE,
                     BT_BUILD_COMPILER, BT_BUILD_SYSTEM, BT_BUILD_CPU);
    bt_strbuf_printf(out, "  kernels    %s; back ends: cpu%s\n", BT_BUILD_TIERS,
                     has_cuda ? ", cuda" : "");
    bt_strbuf_printf(out, "  libraries  %s\n", BT_BUILD_LIBRARIES);
}
