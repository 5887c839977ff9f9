/* SPDX-License-Identifier: Apache-2.0 */
/** @file line_file.h
 *
 * A file that lines are appended to and that nobody waits for: the trace, the
 * access log. Lines are collected in memory and written by
 * bt_line_file_flush(). While the file takes nothing (a full disk, a pipe whose
 * reader is slow) they are kept up to a limit, then lost and counted; serving
 * goes on.
 *
 *     add ─▶ memory ── flush ──▶ file        SIGHUP ─▶ reopen: the path anew
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
/** Writes what is left; warns when that fails. NULL is allowed. */
void bt_line_file_close(bt_line_file_t *file);

/** One whole line, with its end, or none. */
void bt_line_file_add(bt_line_file_t *file, const char *line, size_t bytes);
/** One line that could not be made. */
void bt_line_file_lose(bt_line_file_t *file);
/** Write what is there; never waits. After a failure it is tried again a second
 *  later.
 *  @return lines lost since the last call */
uint64_t bt_line_file_flush(bt_line_file_t *file, uint64_t now_ms);
/** The path again, because the file was moved aside. When that fails the old
 *  one goes on; logged. Standard output stays. */
void bt_line_file_reopen(bt_line_file_t *file);

#endif
