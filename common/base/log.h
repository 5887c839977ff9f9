/* SPDX-License-Identifier: Apache-2.0 */
/** @file log.h
 *
 * Logging: one line per event on standard error, with the time in UTC:
 *
 *     2026-11-22T14:03:07.123+00:00 info  decode-0: text
 *     {"time":"2026-11-22T14:03:07.123+00:00","level":"info",
 *      "name":"decode-0","pid":4711,"message":"text"}       (in one line)
 *
 * The function that decides an error logs it, once. Text is lower case,
 * `request 42 peer 3` style; never prompt text. Any thread may log.
 *
 * From bt_log_start() on no logging thread waits for the reader of standard
 * error: lines beyond the capacity are dropped and counted, and a line reports
 * how many (async_writer.h). And of each call site at most BT_LOG_LIMIT_LINES a
 * second are written, with a line that reports how many more there were
 * (log_limit.h), except at debug level: what clients and strangers cause
 * repeatedly fills no disk.
 */
#ifndef BT_COMMON_BASE_LOG_H
#define BT_COMMON_BASE_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_LOG_FLUSH_MS 500u

typedef enum bt_log_level {
    BT_LOG_LEVEL_ERROR,
    BT_LOG_LEVEL_WARN,
    BT_LOG_LEVEL_INFO,
    BT_LOG_LEVEL_DEBUG,
} bt_log_level_t;

/** Sets program name and level, once at start. @a program is borrowed
 *  permanently (a literal or argv). */
void bt_log_init(const char *program, bt_log_level_t level);

/** Changes the level, from now on; any thread may. */
void bt_log_set_level(bt_log_level_t level);
bt_log_level_t bt_log_level(void);

/** Parses a level's name. @return 0 and the level in @a level_p, or -1 for
 *  an unknown name. */
int bt_log_level_parse(const char *name, bt_log_level_t *level_p);

/**
 * Sets the format of lines from now on: "text" (the default) or "json".
 * @return 0, or -1 for an unknown name
 */
int bt_log_format(const char *name);

/** Callback with a log line of this process, with its newline, on the thread
 *  that logs. Lines that the callback logs come back to it. */
typedef void (*bt_log_copy_fn)(void *ctx, const char *line, size_t bytes);

/** Passes each line to @a copy too, from now on; NULL = stop. Only while one
 *  thread logs. */
void bt_log_copy_to(bt_log_copy_fn copy, void *ctx);

/**
 * Starts the log's thread; once, when the options are parsed. Lines logged
 * before wait for the reader, as do those of a forked child that does not
 * execute another program.
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_IO  both logged
 */
BT_MUST_CHECK bt_status_t bt_log_start(void);

/** Reports the lines that the limit held back, when due; for loops that run
 *  some times a second. Logging does it too. */
void bt_log_tick(void);

/** Reports held lines and waits until everything logged is written,
 *  BT_LOG_FLUSH_MS at most. Call before the process ends. */
void bt_log_flush(void);

/** Returns the lines of standard error dropped so far. */
uint64_t bt_log_dropped(void);

/**
 * Formats a line as bt_log() writes it, at any level, for a separate file.
 * @param cap  at least 2; a line that is longer is cut
 * @return bytes, with the newline
 */
size_t bt_log_line(bt_log_level_t level, const char *text, char *line,
                   size_t cap);

/** Writes whole lines of another process verbatim, to standard error only. */
void bt_log_pass_on(const char *lines, size_t bytes);

void bt_log(bt_log_level_t level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/** Returns how many lines of @a level were requested so far; for tests. */
unsigned long bt_log_count(bt_log_level_t level);

#define BT_LOG_ERROR(...) bt_log(BT_LOG_LEVEL_ERROR, __VA_ARGS__)
#define BT_LOG_WARN(...)  bt_log(BT_LOG_LEVEL_WARN, __VA_ARGS__)
#define BT_LOG_INFO(...)  bt_log(BT_LOG_LEVEL_INFO, __VA_ARGS__)
#define BT_LOG_DEBUG(...) bt_log(BT_LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
