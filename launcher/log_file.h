/* SPDX-License-Identifier: Apache-2.0 */
/** @file log_file.h
 *
 * One file of --log-dir. The file is rotated when it is full, and opened anew
 * after another program has moved it (SIGHUP):
 *
 *     NAME.log ──▶ NAME.log.1 ──▶ … ──▶ NAME.log.KEEP ──▶ gone
 *
 * If that fails, logging continues in the old file. Lines that cannot be
 * written (a full disk) are dropped and counted, and a line in the file has
 * the count when it can be written again. Threads: the owner's.
 */
#ifndef BT_LAUNCHER_LOG_FILE_H
#define BT_LAUNCHER_LOG_FILE_H

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

bool bt_log_file_is_open(const bt_log_file_t *file);

/** Writes whole lines, which stay together. Does nothing without a file; a
 *  write error is logged once, until writing works again. */
void bt_log_file_write(bt_log_file_t *file, const char *lines, size_t n);

/** Opens the file's path anew. On failure the old file stays open; logged. */
void bt_log_file_reopen(bt_log_file_t *file);

#endif
