/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/assert.h"

#define LINE_BYTES 1024

/* The log sink is the one global of the code base. */
static struct {
    const char *program;
    _Atomic int level;
    atomic_ulong counts[BT_LOG_LEVEL_DEBUG + 1];
} sink = {.program = "baton", .level = BT_LOG_LEVEL_INFO};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

void bt_log_init(const char *program, bt_log_level_t level)
{
    sink.program = program;
    atomic_store(&sink.level, (int)level);
}

int bt_log_level_parse(const char *name, bt_log_level_t *level_p)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(level_names); i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *level_p = (bt_log_level_t)i;
            return 0;
        }
    }
    return -1;
}

void bt_log(bt_log_level_t level, const char *fmt, ...)
{
    const int saved_errno = errno; /* so that %m means the caller's error */
    char line[LINE_BYTES];
    struct timespec now;
    struct tm tm;
    va_list args;
    int n;

    atomic_fetch_add_explicit(&sink.counts[level], 1, memory_order_relaxed);
    if ((int)level > atomic_load_explicit(&sink.level, memory_order_relaxed)) {
        return;
    }

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    n = snprintf(line, sizeof(line),
                 "%02d:%02d:%02d.%03ld %-5s %s: ", tm.tm_hour, tm.tm_min,
                 tm.tm_sec, now.tv_nsec / 1000000, level_names[level],
                 sink.program);
    if (n < 0) {
        return;
    }
    va_start(args, fmt);
    errno = saved_errno;
    n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, args);
    va_end(args);
    if (n > (int)sizeof(line) - 2) {
        n = (int)sizeof(line) - 2;
    }
    line[n] = '\n';

    /* One write, so that lines of several threads and processes do not mix. */
    if (write(STDERR_FILENO, line, (size_t)n + 1) < 0) {
        return; /* nowhere left to say it */
    }
    errno = saved_errno;
}

unsigned long bt_log_count(bt_log_level_t level)
{
    return atomic_load(&sink.counts[level]);
}

void bt_assert_fail(const char *expr, const char *file, int line)
{
    BT_LOG_ERROR("assertion failed: %s at %s:%d", expr, file, line);
    abort();
}
