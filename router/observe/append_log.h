/* SPDX-License-Identifier: Apache-2.0 */
/** @file append_log.h
 *
 * Appends lines to a file without blocking the caller, for the trace and the
 * access log. Lines are collected in memory and written by a thread per file
 * (common/base/async_writer.h), which bt_append_log_flush() starts. While the
 * file accepts nothing (a full disk, a pipe with a slow reader), lines are
 * kept up to a limit, then lost and counted; serving continues.
 *
 *     add ─▶ memory ── flush ──▶ thread ──▶ file    SIGHUP ─▶ path reopened
 *
 * Threads: one thread owns it.
 */
#ifndef BT_ROUTER_OBSERVE_APPEND_LOG_H
#define BT_ROUTER_OBSERVE_APPEND_LOG_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"

typedef struct bt_append_log bt_append_log_t;

/**
 * Opens the file for appending; creates it (mode 0640) if missing.
 *
 * @param [in] path    copied; "-" = standard output
 * @param [in] what    name for the log, such as "trace"; a literal
 * @param [in] option  name of the option, such as "--trace-file"; a literal
 * @retval BT_OK
 * @retval BT_ERR_IO         Logged, with the file and the reason.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_append_log_open(const char *path, const char *what,
                                             const char *option,
                                             bt_append_log_t **file_p);
/** Writes the remaining lines and closes the file; warns on failure, or after
 *  more than half a second. NULL is allowed. */
void bt_append_log_close(bt_append_log_t *file);

/** Adds one whole line, with its newline, or loses and counts the line. */
void bt_append_log_add(bt_append_log_t *file, const bt_strbuf_t *line);
/** Starts writing the pending lines; never blocks. After a failure, writing is
 *  retried each second. Logs when the file begins to fail or is a second
 *  behind, and when it has recovered.
 *  @return lines lost since the last call */
uint64_t bt_append_log_flush(bt_append_log_t *file, uint64_t now_ms);
/** Reopens the path, because the file was moved aside. On failure the old file
 *  stays in use; logged. Standard output is left as it is. */
void bt_append_log_reopen(bt_append_log_t *file);

#endif
