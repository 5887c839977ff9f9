/* SPDX-License-Identifier: Apache-2.0 */
/** @file part_file.h
 *
 * A file that is written as NAME.part and renamed to NAME when it is complete.
 * The partial file of an interrupted process is continued: the header must be
 * equal and bytes were appended in order, so the size of the file is its
 * progress.
 *
 *     open ──▶ write … write ──▶ finish      NAME exists
 *       └────────────┴──────────▶ close      NAME.part stays unless empty
 */
#ifndef BT_CONVERT_PART_FILE_H
#define BT_CONVERT_PART_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "tools/convert/plan.h"
#include "tools/imatrix/imatrix.h"

typedef struct bt_part_file {
    char *name;     /**< owned */
    char *part;     /**< owned */
    int fd;         /**< -1: closed */
    uint64_t bytes; /**< bytes written so far, header included */
} bt_part_file_t;

/**
 * Opens NAME.part, new or to continue it.
 *
 * @param [in]  head  Start of the file; written unless it is there.
 * @param [out] file  Zeroed before; its bytes are at least @a head_bytes.
 * @param [out] why   On failure the reason, for the user.
 * @retval BT_ERR_BUSY    another process is writing it
 * @retval BT_ERR_IO, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_part_file_open(const char *name, const void *head,
                                            size_t head_bytes, char *why,
                                            size_t why_bytes,
                                            bt_part_file_t *file);
/** Truncates the file to @a bytes, where writing continues.
 *  @retval BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_part_file_cut(bt_part_file_t *file,
                                           uint64_t bytes);
/** Appends bytes. @retval BT_ERR_IO  see errno */
BT_MUST_CHECK bt_status_t bt_part_file_write(bt_part_file_t *file,
                                             const void *data, size_t n);
/** Syncs the file to disk and renames it to NAME, replacing an existing file.
 *  @retval BT_ERR_IO  see errno */
BT_MUST_CHECK bt_status_t bt_part_file_finish(bt_part_file_t *file);
/** Closes the file. Allowed after any of these functions, and twice. */
void bt_part_file_close(bt_part_file_t *file);

/* Header of a new GGUF file: everything but the tensors'
 *  data. */

/** Metadata key of the source: the input file (bt_gguf_identity()), the
 *  quantizer's version and the importance matrix. Two headers are equal only if
 *  the data after them is. */
#define BT_CONVERT_KEY_SOURCE "baton.convert.source"

/**
 * Appends the header: the metadata pairs of @a gguf, except those that describe
 * the number format, and the tensor table, padded to the start of the data.
 *
 * @param [in]  imatrix  NULL: none
 * @param [out] out  holds the status of failures
 */
void bt_convert_header(const bt_gguf_t *gguf, const bt_convert_mix_t *mix,
                       const bt_imatrix_t *imatrix,
                       const bt_convert_plan_t *plan, bt_strbuf_t *out);

#endif
