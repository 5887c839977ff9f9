/* SPDX-License-Identifier: Apache-2.0 */
/** @file stderr_tail.h
 *
 * Last output lines of a process, to be shown when it could not start. Long
 * lines are cut; allocates nothing.
 */
#ifndef BT_LAUNCHER_STDERR_TAIL_H
#define BT_LAUNCHER_STDERR_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BT_LAST_WORDS_LINES 20
#define BT_LAST_WORDS_BYTES 512 /**< largest line, with its zero byte */

typedef struct bt_stderr_tail {
    char lines[BT_LAST_WORDS_LINES][BT_LAST_WORDS_BYTES];
    uint32_t n_lines; /**< complete lines held */
    uint32_t next;    /**< the line being written */
    size_t len;       /**< bytes of the line being written */
} bt_stderr_tail_t;

void bt_stderr_tail_reset(bt_stderr_tail_t *words);

/** Adds output as it arrives, in pieces of any size. */
void bt_stderr_tail_add(bt_stderr_tail_t *words, const char *data, size_t n);

/** Ends a line that has no newline yet. */
void bt_stderr_tail_finish(bt_stderr_tail_t *words);

/** Finds the likely cause of the end: the last line that is an error of the log
 *  (log.h has both formats), without the prefix of its text; else the last line
 *  that is not empty, or "". */
void bt_stderr_tail_cause(const bt_stderr_tail_t *words,
                          char cause[BT_LAST_WORDS_BYTES]);

/** @return line @a i, oldest first, or NULL after the last. */
const char *bt_stderr_tail_line(const bt_stderr_tail_t *words, uint32_t i);

#endif
