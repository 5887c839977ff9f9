/* SPDX-License-Identifier: Apache-2.0 */
/** @file line_file.h
 *
 * A file that lines are appended to and that nobody waits for: the trace, the
 * access log. Lines are collected in memory and written by a thread of the
 * file's own (common/base/async_writer.h), which bt_line_file_flush() starts.
 * While the file takes nothing (a full disk, a pipe whose reader is slow) they
 * are kept up to a limit, then lost and counted; serving goes on.
 *
 *     add ─▶ memory ── flush ──▶ thread ──▶ file    SIGHUP ─▶ the path anew
 *
 * Threads: one thread owns it.
 */
#ifndef BT_ROUTER_OBSERVE_LINE_FILE_H
#define BT_ROUTER_OBSERVE_LINE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_line_file bt_line_file_t;

/**
 * Open the file for appending; made (mode 0640) if it is not there.
 *
 * @param [in] path    copied; "-" = standard output
 * @param [in] what    "trace": a literal, for the log
 * @param [in] option  "--trace": the same
 * @retval BT_OK
 * @retval BT_ERR_IO         Logged, with the file and the reason.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_line_file_open(const char *path, const char *what,
                                            const char *option,
                                            bt_line_file_t **file_p);
/** Writes what is left; warns when that fails, or takes longer than half a
 *  second. NULL is allowed. */
void bt_line_file_close(bt_line_file_t *file);

/** One whole line, with its end, or none. */
void bt_line_file_add(bt_line_file_t *file, const char *line, size_t bytes);
/** One line that could not be made. */
void bt_line_file_lose(bt_line_file_t *file);
/** What is there may be written; never waits. After a failure it is tried again
 *  each second. Says in the log when the file begins to fail or is a second
 *  behind, and when it is well again.
 *  @return lines lost since the last call */
uint64_t bt_line_file_flush(bt_line_file_t *file, uint64_t now_ms);
/** The path again, because the file was moved aside. When that fails the old
 *  one goes on; logged. Standard output stays. */
void bt_line_file_reopen(bt_line_file_t *file);

#endif
