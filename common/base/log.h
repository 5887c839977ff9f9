/* SPDX-License-Identifier: Apache-2.0 */
/** @file log.h
 *
 * One line per event on standard error, with the time in UTC:
 *
 *     2026-11-22T14:03:07.123+00:00 info  decode-0: text
 *     {"time":"2026-11-22T14:03:07.123+00:00","level":"info",
 *      "name":"decode-0","pid":4711,"message":"text"}       (in one line)
 *
 * The function that decides an error logs it, once. Text is lower case,
 * `request 42 peer 3` style; never prompt text. Any thread may log.
 *
 * From bt_log_start() on nobody who logs waits for the reader of standard
 * error: lines that find no room are dropped and counted, and one says how many
 * (async_writer.h). And of each call BT_LOG_LIMIT_LINES a second are written at
 * most, with one that says how many more there were (log_limit.h), but for
 * those of debugging: what clients and strangers cause again and again fills no
 * disk.
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

/** Set once at start. @a program is borrowed for ever (a literal or argv). */
void bt_log_init(const char *program, bt_log_level_t level);

/** Another level, from now on; any thread may. */
void bt_log_set_level(bt_log_level_t level);
bt_log_level_t bt_log_level(void);

/** @return 0 and the level in @a level_p, or -1 for an unknown name. */
int bt_log_level_parse(const char *name, bt_log_level_t *level_p);

/** How lines look from now on: "text" (as at the start) or "json".
 *  @return 0, or -1 for an unknown name */
int bt_log_format(const char *name);

/** A line of ours, with its end; on the thread that logs. What it logs itself
 *  comes back to it. */
typedef void (*bt_log_copy_fn)(void *ctx, const char *line, size_t bytes);

/** Give each line to @a copy too, from now on; NULL = no more. Only while one
 *  thread logs. */
void bt_log_copy_to(bt_log_copy_fn copy, void *ctx);

/** Makes the log's thread; once, when the options are read. What is logged
 *  before waits for the reader, and so would a forked child's that does not
 *  execute another program.
 *  @retval BT_ERR_NO_MEMORY
 *  @retval BT_ERR_IO  both logged */
BT_MUST_CHECK bt_status_t bt_log_start(void);

/** Tell of the lines that the limit held back, when it is time; for loops that
 *  run some times a second. Who logs does it too. */
void bt_log_tick(void);

/** Before the process ends: tell of what was held back, and wait until what was
 * logged is out, BT_LOG_FLUSH_MS at most. */
void bt_log_flush(void);

/** Lines of standard error that were dropped so far. */
uint64_t bt_log_dropped(void);

/** A line as bt_log() writes it, at any level, for a file of its own.
 *  @param cap  at least 2; a line that is longer is cut
 *  @return bytes, with the line's end */
size_t bt_log_line(bt_log_level_t level, const char *text, char *line,
                   size_t cap);

/** Whole lines of another process's, as they are: to standard error alone. */
void bt_log_pass_on(const char *lines, size_t bytes);

void bt_log(bt_log_level_t level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/** How many lines of @a level were asked for so far; tests compare. */
unsigned long bt_log_count(bt_log_level_t level);

#define BT_LOG_ERROR(...) bt_log(BT_LOG_LEVEL_ERROR, __VA_ARGS__)
#define BT_LOG_WARN(...)  bt_log(BT_LOG_LEVEL_WARN, __VA_ARGS__)
#define BT_LOG_INFO(...)  bt_log(BT_LOG_LEVEL_INFO, __VA_ARGS__)
#define BT_LOG_DEBUG(...) bt_log(BT_LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
