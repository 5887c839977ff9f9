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
 * second are written, with a line that reports how many more there were, except
 * at debug level: what clients and strangers cause repeatedly fills no disk.
 */
#ifndef BT_COMMON_BASE_LOG_H
#define BT_COMMON_BASE_LOG_H

#include <stdbool.h>
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

/*
 * Time of day, for human readers: logs and what they are compared with. Code
 * that waits or measures uses clock.h.
 */

#define BT_WALLTIME_BYTES 32

int64_t bt_walltime_ms(void); /**< since 1970 */
/** Prints ISO 8601 in UTC: `2026-11-22T14:03:07.123+00:00`. */
void bt_walltime_print(int64_t unix_ms, char text[BT_WALLTIME_BYTES]);

/*
 * Rate limit of log lines: BT_LOG_LIMIT_LINES of one kind in a second, which
 * begins with the first. So what one client or stranger can cause repeatedly
 * fills no disk, and hides nothing else. The others are counted and reported
 * when the second is over:
 *
 *     |─ 20 lines ─┬─ held ──────|─ "N more like …" ─ 20 lines ─┬─ held …
 *     0 ms                       1000 ms
 *
 * A kind is a call site, identified by the address of its format. If there are
 * more of them than BT_LOG_LIMIT_KINDS, the later ones are not limited.
 *
 * Pure: no clock, no lock; allocates nothing.
 */

#define BT_LOG_LIMIT_LINES 20u
#define BT_LOG_LIMIT_MS    1000u
/** Capacity in kinds: a power of two; there are some 300 call sites. */
#define BT_LOG_LIMIT_KINDS 512u

/** State of one kind of line. */
typedef struct bt_log_kind {
    const char *format; /**< NULL: free */
    uint64_t begin_ms;  /**< begin of its current second */
    uint32_t n_lines;   /**< lines written in that second */
    uint32_t n_held;
    int level; /**< level of the last held line */
} bt_log_kind_t;

/** State of the rate limit. Zero-initialise. */
typedef struct bt_log_limit {
    bt_log_kind_t kinds[BT_LOG_LIMIT_KINDS];
    uint32_t n_holding; /**< kinds with held lines */
    uint64_t due_ms;    /**< no kind has to be reported before this time */
} bt_log_limit_t;

/**
 * Counts a line of a kind; if lines were held and their second is over, report
 * them with bt_log_limit_over() first.
 * @param [in] format  lives as long as the limit
 * @return false: the line is held
 */
bool bt_log_limit_take(bt_log_limit_t *limit, const char *format, int level,
                       uint64_t now_ms);

/**
 * Takes the next kind whose second is over with lines held, and clears those.
 * Costs nothing until there is one.
 * @param [out] told_p  a copy
 * @return false when there is none
 */
bool bt_log_limit_over(bt_log_limit_t *limit, uint64_t now_ms,
                       bt_log_kind_t *told_p);

#endif
