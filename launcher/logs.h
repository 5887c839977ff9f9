/* SPDX-License-Identifier: Apache-2.0 */
/** @file logs.h
 *
 * Output of the launcher's children: log files, lines, and the last lines of a
 * process.
 *
 * Log file: one file of --log-dir. The file is rotated when it is full, and
 * opened anew after another program has moved it (SIGHUP):
 *
 *     NAME.log ──▶ NAME.log.1 ──▶ … ──▶ NAME.log.KEEP ──▶ gone
 *
 * If that fails, logging continues in the old file. Lines that cannot be
 * written (a full disk) are dropped and counted, and a line in the file has
 * the count when it can be written again.
 *
 * Output: passed on line by line, to the child's file, or to standard error
 * between our own lines, without waiting for the reader (log.h). Lines longer
 * than any of ours are broken; allocates nothing.
 *
 * Tail: the last lines of a process, to be shown when it could not start. Long
 * lines are cut; allocates nothing.
 *
 * Threads: the owner's.
 */
#ifndef BT_LAUNCHER_LOGS_H
#define BT_LAUNCHER_LOGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/** Log directory and rotation limits. */
typedef struct bt_log_dir {
    const char *path;   /**< borrowed; "": no log files */
    uint64_t max_bytes; /**< largest file; 0: unlimited */
    uint32_t n_keep;    /**< rotated files; at least 1 */
} bt_log_dir_t;

typedef struct bt_log_file {
    const bt_log_dir_t *dir; /**< borrowed */
    char *path;              /**< owned; NULL: not open */
    int fd;
    uint64_t n_bytes;   /**< size of the file, as far as we know */
    uint64_t n_dropped; /**< dropped lines, not yet reported in the file */
    int why;            /**< errno of the first dropped line */
    bool is_torn;       /**< the last line is incomplete */
} bt_log_file_t;

/**
 * Opens DIR/NAME.log for appending; creates it (mode 0640) if missing.
 *
 * @param [out] file  without a file when this fails, and when there is no
 *                    directory
 * @retval BT_ERR_IO         Logged.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_log_file_open(bt_log_file_t *file,
                                           const bt_log_dir_t *dir,
                                           const char *name);
void bt_log_file_close(bt_log_file_t *file);

/** Writes whole lines, which stay together. Does nothing without a file; a
 *  write error is logged once, until writing works again. */
void bt_log_file_write(bt_log_file_t *file, const char *lines, size_t n);

/** Opens the file's path anew. On failure the old file stays open; logged. */
void bt_log_file_reopen(bt_log_file_t *file);

#define BT_OUTPUT_LINE_BYTES 8192

typedef struct bt_output {
    bt_log_file_t *file; /**< borrowed; without a file: standard error */
    size_t len;          /**< length of the incomplete line */
    char line[BT_OUTPUT_LINE_BYTES];
} bt_output_t;

void bt_output_init(bt_output_t *output, bt_log_file_t *file);

/** Adds output as it arrives, in pieces of any size. */
void bt_output_add(bt_output_t *output, const char *data, size_t n);

/** Ends a line that has no newline yet, after the last output. */
void bt_output_finish(bt_output_t *output);

#define BT_STDERR_TAIL_LINES 20
#define BT_STDERR_TAIL_BYTES 512 /**< largest line, with its zero byte */

typedef struct bt_stderr_tail {
    char lines[BT_STDERR_TAIL_LINES][BT_STDERR_TAIL_BYTES];
    uint32_t n_lines; /**< complete lines held */
    uint32_t next;    /**< the line being written */
    size_t len;       /**< bytes of the line being written */
} bt_stderr_tail_t;

void bt_stderr_tail_reset(bt_stderr_tail_t *tail);

/** Adds output as it arrives, in pieces of any size. */
void bt_stderr_tail_add(bt_stderr_tail_t *tail, const char *data, size_t n);

/** Ends a line that has no newline yet. */
void bt_stderr_tail_finish(bt_stderr_tail_t *tail);

/** Finds the likely cause of the end: the last line that is an error of the log
 *  (log.h has both formats), without the prefix of its text; else the last line
 *  that is not empty, or "". */
void bt_stderr_tail_cause(const bt_stderr_tail_t *tail,
                          char cause[BT_STDERR_TAIL_BYTES]);

/** @return line @a i, oldest first, or NULL after the last. */
const char *bt_stderr_tail_line(const bt_stderr_tail_t *tail, uint32_t i);

#endif
