/* SPDX-License-Identifier: Apache-2.0 */
/** @file part_file.h
 *
 * A file that is written beside its name, NAME.part, and takes the name when it
 * is whole. What a process that ended early left of it is continued: the head
 * must be the same, bytes were appended in order, and so the file's size tells
 * how far it came.
 *
 *     open ──▶ write … write ──▶ finish      NAME is there
 *       └────────────┴──────────▶ close      NAME.part stays, if it has
 * anything
 */
#ifndef BT_CONVERT_PART_FILE_H
#define BT_CONVERT_PART_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_part_file {
    char *name;     /**< owned */
    char *part;     /**< owned */
    int fd;         /**< -1: closed */
    uint64_t bytes; /**< that are there, head and all */
} bt_part_file_t;

/**
 * @param [in]  head  What the file begins with; written unless it is there.
 * @param [out] file  Zeroed before; its bytes are at least @a head_bytes.
 * @param [out] why   On failure the reason, for the user.
 * @retval BT_ERR_BUSY    another process writes it
 * @retval BT_ERR_IO, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_part_file_open(const char *name, const void *head,
                                            size_t head_bytes, char *why,
                                            size_t why_bytes,
                                            bt_part_file_t *file);
/** Forget what is there from @a bytes on: writing goes on there.
 *  @retval BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_part_file_cut(bt_part_file_t *file,
                                           uint64_t bytes);
/** Append. @retval BT_ERR_IO  errno says why */
BT_MUST_CHECK bt_status_t bt_part_file_write(bt_part_file_t *file,
                                             const void *data, size_t n);
/** To the disk, and then under its name, in place of what has it.
 *  @retval BT_ERR_IO  errno says why */
BT_MUST_CHECK bt_status_t bt_part_file_finish(bt_part_file_t *file);
/** After any of them, and twice is allowed. */
void bt_part_file_close(bt_part_file_t *file);

#endif
