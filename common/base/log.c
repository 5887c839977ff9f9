/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/json.h"
#include "common/base/strbuf.h"
#include "common/base/walltime.h"

#define NAME_BYTES 64
#define TEXT_BYTES 1024
#define LINE_BYTES 8192 /* a byte takes at most six in JSON */

/* The log sink is the one global of the code base. */
static struct {
    const char *program;
    _Atomic int level;
    atomic_bool json;
    _Atomic int copy_fd; /* -1: none */
    atomic_ulong counts[BT_LOG_LEVEL_DEBUG + 1];
} sink = {.program = "baton", .level = BT_LOG_LEVEL_INFO, .copy_fd = -1};

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

int bt_log_format(const char *name)
{
    const bool json = strcmp(name, "json") == 0;

    if (!json && (strcmp(name, "text") != 0)) {
        return -1;
    }
    atomic_store(&sink.json, json);
    return 0;
}

void bt_log_copy_to(int fd)
{
    atomic_store(&sink.copy_fd, fd);
}

/* Memory must not be asked for here: its shortage is logged too. */
static void put_json(bt_strbuf_t *line, const char *time, bt_log_level_t level,
                     const char *text)
{
    bt_json_t json;

    bt_json_init(&json, line);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "time", time);
    bt_json_str(&json, "level", level_names[level]);
    bt_json_strn(&json, "name", sink.program,
                 strnlen(sink.program, NAME_BYTES));
    bt_json_i64(&json, "pid", getpid());
    bt_json_str(&json, "message", text);
    bt_json_end_object(&json);
}

static void put_text(bt_strbuf_t *line, const char *time, bt_log_level_t level,
                     const char *text)
{
    bt_strbuf_printf(line, "%s %-5s %.*s: %s", time, level_names[level],
                     NAME_BYTES, sink.program, text);
}

void bt_log(bt_log_level_t level, const char *fmt, ...)
{
    const int saved_errno = errno; /* so that %m means the caller's error */
    char text[TEXT_BYTES];
    char memory[LINE_BYTES];
    char time[BT_WALLTIME_BYTES];
    bt_strbuf_t line;
    va_list args;
    int copy_fd;
    ssize_t n;

    atomic_fetch_add_explicit(&sink.counts[level], 1, memory_order_relaxed);
    if ((int)level > atomic_load_explicit(&sink.level, memory_order_relaxed)) {
        return;
    }
    va_start(args, fmt);
    if (vsnprintf(text, sizeof(text), fmt, args) < 0) {
        text[0] = '\0';
    }
    va_end(args);
    bt_walltime_print(bt_walltime_ms(), time);
    bt_strbuf_init_fixed(&line, memory, sizeof(memory) - 1);
    if (atomic_load_explicit(&sink.json, memory_order_relaxed)) {
        put_json(&line, time, level, text);
    } else {
        put_text(&line, time, level, text);
    }
    memory[line.len] = '\n';

    /* One write, so that lines of several threads and processes do not mix.
     * Where it fails nowhere is left to say it. */
    copy_fd = atomic_load_explicit(&sink.copy_fd, memory_order_relaxed);
    n = write(STDERR_FILENO, memory, line.len + 1);
    if (copy_fd >= 0) {
        n = write(copy_fd, memory, line.len + 1);
    }
    (void)n;
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
