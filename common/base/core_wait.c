/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/core_wait.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static bool read_text(pid_t pid, int32_t tid, const char *name, char *text,
                      size_t bytes)
{
    char path[64];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, (int)tid,
             name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    n = read(fd, text, bytes - 1);
    close(fd);
    if (n <= 0) {
        return false;
    }
    text[n] = '\0';
    return true;
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

static bool read_thread(pid_t pid, int32_t tid, bt_core_wait_thread_t *thread_p)
{
    bt_core_wait_thread_t thread = {.tid = tid};
    char text[STAT_BYTES];
    const char *fields;
    char *at = text;

    if (!read_text(pid, tid, "stat", text, sizeof(text))) {
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
    if (read_text(pid, tid, "schedstat", text, sizeof(text))) {
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
    char path[64];
    const struct dirent *entry;
    DIR *dir;

    wait->n_threads = 0;
    if (!read_thread(pid, (int32_t)pid, &wait->threads[0])) {
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
            read_thread(pid, tid, thread)) {
            thread->is_background = is_below(thread, &wait->threads[0]);
            wait->n_threads++;
        }
    }
    closedir(dir);
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
