/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/threads.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"

#define MAX_THREADS 64u
#define TEXT_BYTES  4096
#define STACK_BYTES 512
#define NS_PER_MS   1000000u

/* @return whether there is any text */
static bool read_text(pid_t pid, const char *tid, const char *name, char *text,
                      size_t bytes)
{
    char path[64];
    ssize_t n;
    int fd;

    text[0] = '\0';
    snprintf(path, sizeof(path), "/proc/%d/task/%.16s/%s", (int)pid, tid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    n = read(fd, text, bytes - 1);
    close(fd);
    text[(n > 0) ? n : 0] = '\0';
    return n > 0;
}

static char state_of(const char *stat)
{
    const char *const end = strrchr(stat, ')');

    return ((end != NULL) && (end[1] == ' ') && (end[2] != '\0')) ? end[2]
                                                                  : '?';
}

/* "[<0>] futex_do_wait+0x38/0x70\n…": the names, innermost first. */
static void names_of(const char *stack, char *names, size_t bytes)
{
    size_t n = 0;

    names[0] = '\0';
    while ((stack = strchr(stack, ']')) != NULL) {
        const char *const name = stack + strspn(stack, "] ");
        const int length = (int)strcspn(name, "+\n");
        const int wrote = snprintf(names + n, bytes - n, "%s%.*s",
                                   (n > 0) ? " < " : "", length, name);

        if ((wrote < 0) || ((size_t)wrote >= bytes - n)) {
            return; /* the outer ones are less useful */
        }
        n += (size_t)wrote;
        stack = name + length;
    }
}

static void log_thread(const char *name, pid_t pid, const char *tid)
{
    char text[TEXT_BYTES];
    char thread[32];
    char waits[64];
    char names[STACK_BYTES];
    uint64_t ran_ns, waited_ns, n_turns;
    char state;
    char *at = text;

    (void)read_text(pid, tid, "comm", thread, sizeof(thread));
    thread[strcspn(thread, "\n")] = '\0';
    if (!read_text(pid, tid, "stat", text, sizeof(text))) {
        return; /* it has just ended */
    }
    state = state_of(text);
    if (!read_text(pid, tid, "wchan", waits, sizeof(waits)) ||
        (strcmp(waits, "0") == 0)) {
        snprintf(waits, sizeof(waits), "no call");
    }
    (void)read_text(pid, tid, "schedstat", text, sizeof(text));
    ran_ns = strtoull(at, &at, 10);
    waited_ns = strtoull(at, &at, 10);
    n_turns = strtoull(at, &at, 10);
    BT_LOG_WARN("%s thread %s (%s): state %c, waits in %s, ran %" PRIu64
                " ms, waited %" PRIu64 " ms for a core in %" PRIu64 " turns",
                name, tid, thread, state, waits, ran_ns / NS_PER_MS,
                waited_ns / NS_PER_MS, n_turns);
    if (read_text(pid, tid, "stack", text, sizeof(text))) {
        names_of(text, names, sizeof(names));
        BT_LOG_WARN("%s thread %s is in: %s", name, tid, names);
    }
}

void bt_threads_log(const char *name, pid_t pid)
{
    const struct dirent *entry;
    uint32_t n = 0;
    char path[64];
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    dir = opendir(path);
    if (dir == NULL) {
        BT_LOG_WARN("%s: its threads cannot be read: %m", name);
        return;
    }
    while ((n < MAX_THREADS) && ((entry = readdir(dir)) != NULL)) {
        if (entry->d_name[0] != '.') {
            log_thread(name, pid, entry->d_name);
            n++;
        }
    }
    closedir(dir);
}
