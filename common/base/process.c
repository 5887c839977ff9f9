/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files.h"
#include "common/base/log.h"

static uint64_t to_ms(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_usec / 1000u;
}

/* proc(5): /proc/pid/statm is "size resident shared …" in pages. */
static void read_statm(uint64_t *resident_p, uint64_t *shared_p)
{
    char text[128];
    char *end = text;

    *resident_p = *shared_p = 0;
    if (!bt_read_text("/proc/self/statm", text, sizeof(text))) {
        return;
    }
    (void)strtoull(text, &end, 10);
    *resident_p = strtoull(end, &end, 10);
    *shared_p = strtoull(end, NULL, 10);
}

static uint64_t page_bytes(void)
{
    const long bytes = sysconf(_SC_PAGESIZE);

    return (bytes > 0) ? (uint64_t)bytes : 0;
}

uint64_t bt_process_private_bytes(void)
{
    uint64_t resident;
    uint64_t shared;

    read_statm(&resident, &shared);
    return (resident > shared) ? (resident - shared) * page_bytes() : 0;
}

bt_process_use_t bt_process_use(void)
{
    bt_process_use_t use = {0};
    uint64_t resident;
    uint64_t shared;
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        use.cpu_ms = to_ms(usage.ru_utime) + to_ms(usage.ru_stime);
    }
    read_statm(&resident, &shared);
    use.resident_bytes = resident * page_bytes();
    return use;
}

/* Has a folder that many levels above the file been configured to be built in?
 */
static bool is_built_above(const char *file, uint32_t levels)
{
    char path[PATH_MAX];
    const char *const slash = strrchr(file, '/');
    int n;

    if (slash == NULL) {
        return false;
    }
    n = snprintf(path, sizeof(path), "%.*s%sbuild.ninja",
                 (int)(slash - file + 1), file, &"../../../"[9 - 3 * levels]);
    return ((size_t)n < sizeof(path)) && (access(path, F_OK) == 0);
}

const char *bt_process_command(void)
{
    char own[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);

    own[(n < 0) ? 0 : n] = '\0';
    for (uint32_t levels = 1; levels <= 3; levels++) { /* tests/unit/test_… */
        if (is_built_above(own, levels)) {
            return "./baton";
        }
    }
    return "baton";
}

bool bt_process_host_name_fits(char *why, size_t why_bytes)
{
    struct utsname host;
    size_t n;

    if (uname(&host) != 0) {
        return true;
    }
    n = strlen(host.nodename);
    if (n <= BT_PROCESS_HOST_NAME_MOST) {
        return true;
    }
    snprintf(why, why_bytes,
             "the name of this host has %zu characters (%s), and UCX aborts "
             "every worker where it has more than %u: hostname NAME, or "
             "hostnamectl set-hostname NAME, with a shorter one",
             n, host.nodename, BT_PROCESS_HOST_NAME_MOST);
    return false;
}

bool bt_process_is_of_mpi(void)
{
    /* mpirun sets the first, srun --mpi=pmix only the second */
    return (getenv("OMPI_COMM_WORLD_SIZE") != NULL) ||
           (getenv("PMIX_RANK") != NULL);
}

bt_stop_t bt_stop_request(bt_stop_requests_t *wishes, uint64_t now_ms,
                          bool from_parent)
{
    const bool passed_on = from_parent && !wishes->came_from_parent;

    wishes->came_from_parent |= from_parent;
    if (!wishes->came) {
        wishes->came = true;
        wishes->first_ms = now_ms;
        return BT_STOP_BEGIN;
    }
    return (passed_on || (now_ms - wishes->first_ms < BT_STOP_SAME_MS))
               ? BT_STOP_SAME
               : BT_STOP_NOW;
}

void bt_stop_signals(sigset_t *set_p)
{
    sigemptyset(set_p);
    sigaddset(set_p, SIGTERM);
    sigaddset(set_p, SIGINT);
}

void bt_stop_block(void)
{
    sigset_t set;

    bt_stop_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

int bt_stop_open(void)
{
    sigset_t set;

    bt_stop_signals(&set);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

int bt_stop_next(int fd, bool *from_parent_p)
{
    struct signalfd_siginfo info;

    if (read(fd, &info, sizeof(info)) != (ssize_t)sizeof(info)) {
        return 0;
    }
    *from_parent_p = info.ssi_pid == (uint32_t)getppid();
    return (int)info.ssi_signo;
}

/* @return the descriptor that a variable names, or -1: none, or not one
 * (logged) */
static int fd_of_environment(const char *name)
{
    const char *text = getenv(name);
    char *end = NULL;
    long fd;

    if ((text == NULL) || (text[0] == '\0')) {
        return -1;
    }
    fd = strtol(text, &end, 10);
    if ((*end != '\0') || (fd < 3) || (fd > 65535) ||
        (fcntl((int)fd, F_GETFD) < 0)) {
        BT_LOG_WARN("%s is not a descriptor number", name);
        return -1;
    }
    return (int)fd;
}

void bt_heartbeat_open(bt_heartbeat_t *heartbeat)
{
    const int fd = fd_of_environment("BATON_BEAT_FD");

    *heartbeat = (bt_heartbeat_t){0};
    /* Child processes of this program must not beat for it. */
    if ((fd >= 0) && (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0)) {
        heartbeat->fd = fd;
    }
}

void bt_heartbeat_tick(bt_heartbeat_t *heartbeat, uint64_t now_ms)
{
    static const uint64_t one = 1;

    if ((heartbeat->fd == 0) || (now_ms < heartbeat->next_ms)) {
        return;
    }
    heartbeat->next_ms = now_ms + BT_HEARTBEAT_EVERY_MS;
    if (write(heartbeat->fd, &one, sizeof(one)) != (ssize_t)sizeof(one)) {
        BT_LOG_WARN("cannot write to BATON_BEAT_FD: %m");
        bt_heartbeat_close(heartbeat);
    }
}

void bt_heartbeat_close(bt_heartbeat_t *heartbeat)
{
    if (heartbeat->fd > 0) {
        close(heartbeat->fd);
    }
    heartbeat->fd = 0;
}

int bt_ready_fd_open(void)
{
    const int fd = fd_of_environment("BATON_READY_FD");

    /* A launcher that is stopped and does not read must not block a program. */
    if (fd >= 0) {
        (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    return fd;
}

void bt_ready_fd_say(int *fd, const char *text)
{
    const size_t n = strlen(text);

    if ((*fd >= 0) && (write(*fd, text, n) != (ssize_t)n)) {
        BT_LOG_WARN("cannot write to BATON_READY_FD: %m");
        bt_ready_fd_close(fd);
    }
}

void bt_ready_fd_close(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

uint32_t bt_count_open_fds(void)
{
    BT_CLEANUP(closedir) DIR *const dir = opendir("/proc/self/fd");
    uint32_t n = 0;

    if (dir == NULL) {
        return 0;
    }
    while (readdir(dir) != NULL) {
        n++;
    }
    return n - 3; /* ".", ".." and the directory's own descriptor */
}

uint64_t bt_raise_open_fds(void)
{
    struct rlimit limit = {0};
    uint64_t n;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 0;
    }
    n = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0) {
        n = limit.rlim_cur;
    }
    return n;
}

/* Too small for any file. And if /proc/sys/kernel/core_pattern names a
 * program instead, which gets a dump whatever the limit is, exactly 1 is the
 * limit that prevents it: the kernel uses it to keep that program's own
 * crash from recursing. */
#define NO_CORE 1u

void bt_core_dump_forbid(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_CORE, &limit) != 0) {
        return;
    }
    limit.rlim_cur = (limit.rlim_max < NO_CORE) ? limit.rlim_max : NO_CORE;
    if (setrlimit(RLIMIT_CORE, &limit) != 0) {
        BT_LOG_WARN("core dumps cannot be turned off: %m");
    }
}

#define NS_PER_MS  1000000u
#define STAT_BYTES 1024

/* Fields of /proc/PID/task/TID/stat behind the name, counted from the state
 * (proc(5) counts it as the third). */
#define FIELD_UTIME  11
#define FIELD_STIME  12
#define FIELD_NICE   16
#define FIELD_POLICY 38

uint64_t bt_core_wait_of(const bt_core_wait_thread_t *before,
                         const bt_core_wait_thread_t *after, uint64_t passed_ms)
{
    const uint64_t ran_ms = (after->ran_ns - before->ran_ns) / NS_PER_MS;
    uint64_t waited_ms = (after->waited_ns - before->waited_ns) / NS_PER_MS;

    if (after->is_background) {
        return 0;
    }
    /* No turn has begun since: it is in the one of before, or waits. */
    if ((before->state == 'R') && (after->state == 'R') &&
        (before->n_turns == after->n_turns)) {
        waited_ms = (passed_ms > ran_ms) ? passed_ms - ran_ms : 0;
    }
    return (waited_ms < passed_ms) ? waited_ms : passed_ms;
}

bool bt_task_text_read(pid_t pid, int32_t tid, const char *name, char *text,
                       size_t bytes)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, (int)tid,
             name);
    return bt_read_text(path, text, bytes);
}

/* @return the number in that field, the first of which is the state */
static uint64_t field(const char *fields, uint32_t n)
{
    for (; (n > 0) && (fields != NULL); n--) {
        fields = strchr(fields, ' ');
        fields = (fields != NULL) ? fields + 1 : NULL;
    }
    return (fields != NULL) ? (uint64_t)strtoll(fields, NULL, 10) : 0;
}

bool bt_core_wait_thread_read(pid_t pid, int32_t tid,
                              bt_core_wait_thread_t *thread_p)
{
    bt_core_wait_thread_t thread = {.tid = tid};
    char text[STAT_BYTES];
    const char *fields;
    char *at = text;

    if (!bt_task_text_read(pid, tid, "stat", text, sizeof(text))) {
        return false;
    }
    fields = strrchr(text, ')'); /* the name may hold any other character */
    if ((fields == NULL) || (fields[1] != ' ')) {
        return false;
    }
    fields += 2;
    thread.state = fields[0];
    thread.nice = (int32_t)field(fields, FIELD_NICE);
    thread.is_idle_class = field(fields, FIELD_POLICY) == SCHED_IDLE;
    thread.ran_ns = (field(fields, FIELD_UTIME) + field(fields, FIELD_STIME)) *
                    (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
    /* A kernel without these has only the coarser time above. */
    if (bt_task_text_read(pid, tid, "schedstat", text, sizeof(text))) {
        thread.ran_ns = strtoull(at, &at, 10);
        thread.waited_ns = strtoull(at, &at, 10);
        thread.n_turns = strtoull(at, &at, 10);
    }
    *thread_p = thread;
    return true;
}

static int by_tid(const void *a, const void *b)
{
    const bt_core_wait_thread_t *const x = a;
    const bt_core_wait_thread_t *const y = b;

    return (x->tid > y->tid) - (x->tid < y->tid);
}

static bool is_below(const bt_core_wait_thread_t *thread,
                     const bt_core_wait_thread_t *first)
{
    return (thread->is_idle_class && !first->is_idle_class) ||
           (thread->nice > first->nice);
}

/* The first thread, and unless that waits the others. */
static void read_all(bt_core_wait_t *wait, pid_t pid)
{
    BT_CLEANUP(closedir) DIR *dir = NULL;
    const struct dirent *entry;
    char path[64];

    wait->n_threads = 0;
    if (!bt_core_wait_thread_read(pid, (int32_t)pid, &wait->threads[0])) {
        return;
    }
    wait->n_threads = 1;
    if (wait->threads[0].state == 'R') {
        return;
    }
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    dir = opendir(path);
    if (dir == NULL) {
        return;
    }
    while ((wait->n_threads < BT_CORE_WAIT_THREADS) &&
           ((entry = readdir(dir)) != NULL)) {
        const int32_t tid = (int32_t)strtol(entry->d_name, NULL, 10);
        bt_core_wait_thread_t *const thread = &wait->threads[wait->n_threads];

        if ((tid > 0) && (tid != (int32_t)pid) &&
            bt_core_wait_thread_read(pid, tid, thread)) {
            thread->is_background = is_below(thread, &wait->threads[0]);
            wait->n_threads++;
        }
    }
    qsort(&wait->threads[1], wait->n_threads - 1, sizeof(wait->threads[0]),
          by_tid);
}

static const bt_core_wait_thread_t *thread_of(const bt_core_wait_t *wait,
                                              int32_t tid)
{
    const bt_core_wait_thread_t key = {.tid = tid};

    if (wait->threads[0].tid == tid) {
        return &wait->threads[0];
    }
    return bsearch(&key, &wait->threads[1], wait->n_threads - 1, sizeof(key),
                   by_tid);
}

uint64_t bt_core_wait_look(bt_core_wait_t *wait, pid_t pid, uint64_t now_ms)
{
    const uint64_t passed_ms = now_ms - wait->looked_ms;
    bt_core_wait_t now = {.looked_ms = now_ms};
    uint64_t most_ms = 0;

    read_all(&now, pid);
    if ((now.n_threads > 0) && (wait->n_threads > 0) &&
        (wait->looked_ms != 0)) {
        for (uint32_t i = 0; i < now.n_threads; i++) {
            const bt_core_wait_thread_t *const before =
                thread_of(wait, now.threads[i].tid);
            const uint64_t waited_ms =
                (before == NULL)
                    ? 0
                    : bt_core_wait_of(before, &now.threads[i], passed_ms);

            most_ms = (waited_ms > most_ms) ? waited_ms : most_ms;
        }
    }
    *wait = now;
    return most_ms;
}
