/* SPDX-License-Identifier: Apache-2.0 */
/** @file process.h  The test's program again as another process, with a pipe
 *  each way; started, stopped and killed by the test. */
#ifndef BT_TESTS_UNIT_KVTRANSFER_PROCESS_H
#define BT_TESTS_UNIT_KVTRANSFER_PROCESS_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/status.h"
#include "tests/support/testsupport.h"

#define LIMIT_MS 120000u /* of any wait; only guards a hang */

/* Where a child finds its pipes. */
#define CHILD_IN  3
#define CHILD_OUT 4

typedef struct child {
    pid_t pid;
    int to, from;
} child_t;

/* ---- pipes: length u64, bytes ---- */

_Noreturn __attribute__((unused)) static void die(const char *what)
{
    fprintf(stderr, "test_kvt_process: pid %d: %s\n", (int)getpid(), what);
    exit(3);
}

__attribute__((unused)) static void put(int fd, const void *data, size_t bytes)
{
    const uint64_t length = bytes;

    if ((write(fd, &length, sizeof(length)) != (ssize_t)sizeof(length)) ||
        (write(fd, data, bytes) != (ssize_t)bytes)) {
        die("write to the other process");
    }
}

__attribute__((unused)) static bool readable(int fd, int wait_ms)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};

    return poll(&pfd, 1, wait_ms) == 1;
}

__attribute__((unused)) static void get_all(int fd, void *data, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        const ssize_t n = readable(fd, LIMIT_MS)
                              ? read(fd, (char *)data + done, bytes - done)
                              : -1;

        if (n <= 0) {
            die("nothing from the other process");
        }
        done += (size_t)n;
    }
}

__attribute__((unused)) static size_t get(int fd, void *data, size_t cap)
{
    uint64_t length = 0;

    get_all(fd, &length, sizeof(length));
    if (length > cap) {
        die("too long a word from the other process");
    }
    get_all(fd, data, length);
    return length;
}

__attribute__((unused)) static bt_status_t get_status(int fd)
{
    bt_status_t status = BT_INPROGRESS;

    assert_int_equal(get(fd, &status, sizeof(status)), sizeof(status));
    return status;
}

/* ---- children ---- */

/** @a nth: its instance is CHILD + nth */
__attribute__((unused)) static child_t
child_start(const char *role, const char *path, unsigned nth)
{
    child_t child = {0};
    int down[2], up[2];
    char number[16];

    snprintf(number, sizeof(number), "%u", nth);
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        /* Out of the way first: either may be where the other goes. */
        const int in = dup(down[0]);
        const int out = dup(up[1]);

        if ((in > CHILD_OUT) && (out > CHILD_OUT) &&
            (dup2(in, CHILD_IN) >= 0) && (dup2(out, CHILD_OUT) >= 0) &&
            (close_range(CHILD_OUT + 1, ~0u, 0) == 0)) {
            execl("/proc/self/exe", "child", role, path, number, (char *)NULL);
        }
        _exit(9);
    }
    close(down[0]);
    close(up[1]);
    child.to = down[1];
    child.from = up[0];
    return child;
}

/** It must be alive still: whatever ended it was not meant to. */
__attribute__((unused)) static void child_end(child_t *child)
{
    int status = 0;

    (void)kill(child->pid, SIGKILL);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    if (!WIFSIGNALED(status) || (WTERMSIG(status) != SIGKILL)) {
        fail_msg("the child ended before, status %#x", (unsigned)status);
    }
    child->pid = 0;
    close(child->to);
    close(child->from);
}

__attribute__((unused)) static void child_stop(const child_t *child)
{
    int status = 0;

    assert_int_equal(kill(child->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(child->pid, &status, WUNTRACED), child->pid);
    assert_true(WIFSTOPPED(status));
}

__attribute__((unused)) static void child_go_on(const child_t *child)
{
    assert_int_equal(kill(child->pid, SIGCONT), 0);
}

__attribute__((unused)) static const char *child_state(const child_t *child)
{
    static char text[64];
    siginfo_t info = {0};

    (void)waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT);
    snprintf(text, sizeof(text), "child %s, code %d status %d",
             (info.si_pid == 0) ? "lives" : "ended", info.si_code,
             info.si_status);
    return text;
}

#endif
