/* SPDX-License-Identifier: Apache-2.0 */
/** @file log_file.h
 *
 * One file of --log-dir. It is moved aside when it is full, and opened anew
 * after somebody else has moved it (SIGHUP):
 *
 *     NAME.log ──▶ NAME.log.1 ──▶ … ──▶ NAME.log.KEEP ──▶ gone
 *
 * Where that fails the file goes on as it is. Lines that cannot be written (a
 * full disk) are dropped and counted, and one says in the file how many, when
 * it can be written again. Threads: the owner's.
 */
#ifndef BT_LAUNCHER_LOG_FILE_H
#define BT_LAUNCHER_LOG_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/** Where the files are, and when they are full. */
typedef struct bt_log_dir {
    const char *path;   /**< borrowed; "": there are none */
    uint64_t max_bytes; /**< of a file; 0: any */
    uint32_t n_keep;    /**< files beside it; at least 1 */
} bt_log_dir_t;

typedef struct bt_log_file {
    const bt_log_dir_t *dir; /**< borrowed */
    char *path;              /**< owned; NULL: not open */
    int fd;
    uint64_t n_bytes;   /**< in it, as far as we know */
    uint64_t n_dropped; /**< lines, and nothing in it says so yet */
    int why;            /**< errno of the first of them */
    bool is_torn;       /**< its last line has no end */
} bt_log_file_t;

/**
 * Open DIR/NAME.log for appending; made (mode 0640) if it is not there.
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

/** Whole lines, which stay together. Does nothing without a file; that it
 * cannot be written is logged once, until it can. */
void bt_log_file_write(bt_log_file_t *file, const char *lines, size_t n);

/** Its path anew. Where that fails the old one goes on; logged. */
void bt_log_file_reopen(bt_log_file_t *file);

#endif
