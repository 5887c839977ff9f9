/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/async_writer.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/status.h"
#include "common/base/text.h"

#define NAME_BYTES 64
#define TEXT_BYTES 1024
#define LINE_BYTES 8192 /* a byte takes at most six in JSON */
/* Lines that wait for a slow reader: some two thousand. */
#define QUEUE_BYTES (256u << 10)

/* The log is the one global of the code base. */
static struct {
    const char *program;
    _Atomic(bt_async_writer_t *)
        out; /* NULL: not started, written as it comes */
    _Atomic int level;
    atomic_bool json;
    bt_log_copy_fn copy; /* NULL: none */
    void *copy_ctx;
    atomic_ulong counts[BT_LOG_LEVEL_DEBUG + 1];
    /* Copy of `program` for the thread that reports dropped lines: at the
     * process's end the borrowed `program` is freed before the thread ends. */
    pthread_mutex_t name_lock;
    char name[NAME_BYTES + 1];
    pthread_mutex_t limit_lock;
    bt_log_limit_t limit;
} state = {.program = "baton",
           .level = BT_LOG_LEVEL_INFO,
           .name_lock = PTHREAD_MUTEX_INITIALIZER,
           .limit_lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

void bt_log_init(const char *program, bt_log_level_t level)
{
    state.program = program;
    pthread_mutex_lock(&state.name_lock);
    snprintf(state.name, sizeof(state.name), "%s", program);
    pthread_mutex_unlock(&state.name_lock);
    atomic_store(&state.level, (int)level);
}

void bt_log_set_level(bt_log_level_t level)
{
    atomic_store(&state.level, (int)level);
}

bt_log_level_t bt_log_level(void)
{
    return (bt_log_level_t)atomic_load(&state.level);
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
    atomic_store(&state.json, json);
    return 0;
}

void bt_log_copy_to(bt_log_copy_fn copy, void *ctx)
{
    state.copy = copy;
    state.copy_ctx = ctx;
}

/* Must not allocate: a lack of memory is logged too. */
static void put_json(bt_strbuf_t *line, const char *time, bt_log_level_t level,
                     const char *name, const char *text)
{
    bt_json_t json;

    bt_json_init(&json, line);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "time", time);
    bt_json_str(&json, "level", level_names[level]);
    bt_json_strn(&json, "name", name, strnlen(name, NAME_BYTES));
    bt_json_i64(&json, "pid", getpid());
    bt_json_str(&json, "message", text);
    bt_json_end_object(&json);
}

static void put_text(bt_strbuf_t *line, const char *time, bt_log_level_t level,
                     const char *name, const char *text)
{
    bt_strbuf_printf(line, "%s %-5s %.*s: %s", time, level_names[level],
                     NAME_BYTES, name, text);
}

/* @return bytes, with the line's end */
static size_t make_line(bt_log_level_t level, const char *name,
                        const char *text, char *memory, size_t bytes)
{
    char time[BT_WALLTIME_BYTES];
    bt_strbuf_t line;

    bt_walltime_print(bt_walltime_ms(), time);
    bt_strbuf_init_fixed(&line, memory, bytes - 1);
    if (atomic_load_explicit(&state.json, memory_order_relaxed)) {
        put_json(&line, time, level, name, text);
    } else {
        put_text(&line, time, level, name, text);
    }
    memory[line.len] = '\n';
    return line.len + 1;
}

/* A bt_async_writer_report_fn. */
static size_t tell_dropped(uint64_t n, char *line, size_t cap)
{
    char name[NAME_BYTES + 1];
    char text[128];

    pthread_mutex_lock(&state.name_lock);
    memcpy(name, state.name, sizeof(name));
    pthread_mutex_unlock(&state.name_lock);
    snprintf(text, sizeof(text),
             "%" PRIu64 " log lines were dropped here: nobody read them", n);
    return make_line(BT_LOG_LEVEL_WARN, name, text, line, cap);
}

bt_status_t bt_log_start(void)
{
    const bt_async_writer_options_t options = {
        .fd = STDERR_FILENO, .capacity = QUEUE_BYTES, .tell = tell_dropped};
    bt_async_writer_t *out = NULL;
    const bt_status_t status = bt_async_writer_open(&options, &out);

    if (status != BT_OK) {
        BT_LOG_ERROR("cannot create the log thread: %s", bt_status_str(status));
        return status;
    }
    atomic_store(&state.out, out);
    return BT_OK;
}

uint64_t bt_log_dropped(void)
{
    bt_async_writer_t *out = atomic_load(&state.out);

    return (out != NULL) ? bt_async_writer_state(out).n_dropped : 0;
}

void bt_log_pass_on(const char *lines, size_t bytes)
{
    bt_async_writer_t *out =
        atomic_load_explicit(&state.out, memory_order_acquire);

    /* One write, so that lines of several threads and processes do not mix.
     * Where it fails nowhere is left to say it. */
    if (out != NULL) {
        bt_async_writer_add(out, lines, bytes);
    } else {
        (void)!write(STDERR_FILENO, lines, bytes);
    }
}

size_t bt_log_line(bt_log_level_t level, const char *text, char *line,
                   size_t cap)
{
    return make_line(level, state.program, text, line, cap);
}

static void write_line(bt_log_level_t level, const char *text)
{
    char line[LINE_BYTES];
    const size_t bytes = bt_log_line(level, text, line, sizeof(line));

    bt_log_pass_on(line, bytes);
    if (state.copy != NULL) {
        state.copy(state.copy_ctx, line, bytes);
    }
}

/* Reports the kinds whose second is over at @a now_ms. */
static void tell_held(uint64_t now_ms)
{
    char text[TEXT_BYTES];
    bt_log_kind_t kind;
    bool has_one;

    do {
        pthread_mutex_lock(&state.limit_lock);
        has_one = bt_log_limit_over(&state.limit, now_ms, &kind);
        pthread_mutex_unlock(&state.limit_lock);
        if (has_one) {
            snprintf(text, sizeof(text), "%" PRIu32 " more like \"%s\"",
                     kind.n_held, kind.format);
            write_line((bt_log_level_t)kind.level, text);
        }
    } while (has_one);
}

/* Limited only once the log is started, and never at debug level. */
static bool is_held(bt_log_level_t level, const char *fmt)
{
    uint64_t now_ms;
    bool is_taken;

    if ((atomic_load_explicit(&state.out, memory_order_relaxed) == NULL) ||
        (level == BT_LOG_LEVEL_DEBUG)) {
        return false;
    }
    now_ms = bt_now_ms();
    tell_held(now_ms);
    pthread_mutex_lock(&state.limit_lock);
    is_taken = bt_log_limit_take(&state.limit, fmt, (int)level, now_ms);
    pthread_mutex_unlock(&state.limit_lock);
    return !is_taken;
}

void bt_log_tick(void)
{
    tell_held(bt_now_ms());
}

void bt_log_flush(void)
{
    bt_async_writer_t *out = atomic_load(&state.out);

    tell_held(UINT64_MAX);
    if (out != NULL) {
        (void)bt_async_writer_flush(out, BT_LOG_FLUSH_MS);
    }
}

void bt_log(bt_log_level_t level, const char *fmt, ...)
{
    const int saved_errno = errno; /* so that %m means the caller's error */
    char text[TEXT_BYTES];
    va_list args;

    atomic_fetch_add_explicit(&state.counts[level], 1, memory_order_relaxed);
    if (((int)level >
         atomic_load_explicit(&state.level, memory_order_relaxed)) ||
        is_held(level, fmt)) {
        return;
    }
    errno = saved_errno;
    va_start(args, fmt);
    if (vsnprintf(text, sizeof(text), fmt, args) < 0) {
        text[0] = '\0';
    }
    va_end(args);
    write_line(level, text);
    errno = saved_errno;
}

unsigned long bt_log_count(bt_log_level_t level)
{
    return atomic_load(&state.counts[level]);
}

void bt_assert_fail(const char *expr, const char *file, int line)
{
    BT_LOG_ERROR("assertion failed: %s at %s:%d", expr, file, line);
    bt_log_flush();
    abort();
}

int64_t bt_walltime_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void bt_walltime_print(int64_t unix_ms, char text[BT_WALLTIME_BYTES])
{
    const time_t seconds = (time_t)(unix_ms / 1000);
    struct tm tm = {0};

    gmtime_r(&seconds, &tm);
    /* The remainders show the compiler that it fits. */
    snprintf(text, BT_WALLTIME_BYTES,
             "%04u-%02u-%02uT%02u:%02u:%02u.%03u+00:00",
             (unsigned)(tm.tm_year + 1900) % 10000u,
             (unsigned)(tm.tm_mon + 1) % 100u, (unsigned)tm.tm_mday % 100u,
             (unsigned)tm.tm_hour % 100u, (unsigned)tm.tm_min % 100u,
             (unsigned)tm.tm_sec % 100u, (unsigned)(unix_ms % 1000) % 1000u);
}

/* One of the table, or NULL: it is full. */
static bt_log_kind_t *find(bt_log_limit_t *limit, const char *format)
{
    const uint32_t mask = BT_LOG_LIMIT_KINDS - 1;
    /* Fibonacci hashing of the address. */
    const uint64_t hash = (uint64_t)(uintptr_t)format * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)(hash >> 32) & mask;

    for (uint32_t i = 0; i < BT_LOG_LIMIT_KINDS; i++) {
        bt_log_kind_t *const kind = &limit->kinds[(at + i) & mask];

        if (kind->format == format) {
            return kind;
        }
        if (kind->format == NULL) {
            kind->format = format;
            return kind;
        }
    }
    return NULL;
}

bool bt_log_limit_take(bt_log_limit_t *limit, const char *format, int level,
                       uint64_t now_ms)
{
    bt_log_kind_t *const kind = find(limit, format);

    if (kind == NULL) {
        return true;
    }
    if ((kind->n_lines == 0) || (now_ms - kind->begin_ms >= BT_LOG_LIMIT_MS)) {
        kind->begin_ms = now_ms;
        kind->n_lines = 0;
    }
    if (kind->n_lines < BT_LOG_LIMIT_LINES) {
        kind->n_lines++;
        return true;
    }
    if (kind->n_held == 0) {
        const uint64_t due_ms = kind->begin_ms + BT_LOG_LIMIT_MS;

        if ((limit->n_holding == 0) || (due_ms < limit->due_ms)) {
            limit->due_ms = due_ms;
        }
        limit->n_holding++;
    }
    kind->n_held++;
    kind->level = level;
    return false;
}

bool bt_log_limit_over(bt_log_limit_t *limit, uint64_t now_ms,
                       bt_log_kind_t *told_p)
{
    uint64_t due_ms = UINT64_MAX;

    if ((limit->n_holding == 0) || (now_ms < limit->due_ms)) {
        return false;
    }
    for (uint32_t i = 0; i < BT_LOG_LIMIT_KINDS; i++) {
        bt_log_kind_t *const kind = &limit->kinds[i];
        const uint64_t at_ms = kind->begin_ms + BT_LOG_LIMIT_MS;

        if (kind->n_held == 0) {
            continue;
        }
        if (now_ms >= at_ms) {
            *told_p = *kind;
            kind->n_held = 0;
            limit->n_holding--;
            return true;
        }
        due_ms = (at_ms < due_ms) ? at_ms : due_ms;
    }
    limit->due_ms = due_ms;
    return false;
}
