/* SPDX-License-Identifier: Apache-2.0 */
/** @file convert.h
 *
 * Conversion of a model file: partial files, and the whole. The quantizer is
 * inference/quantize.
 */
#ifndef BT_TOOLS_CONVERT_CONVERT_H
#define BT_TOOLS_CONVERT_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/gguf/gguf.h"
#include "inference/quantize/quantize.h"
#include "tools/imatrix/imatrix.h"

/*
 * A file that is written as NAME.part and renamed to NAME when it is complete.
 * The partial file of an interrupted process is continued: the header must be
 * equal and bytes were appended in order, so the size of the file is its
 * progress.
 *
 *     open ──▶ write … write ──▶ finish      NAME exists
 *       └────────────┴──────────▶ close      NAME.part stays unless empty
 */

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
void bt_convert_header(const bt_gguf_t *gguf, const bt_quantize_mix_t *mix,
                       const bt_imatrix_t *imatrix,
                       const bt_quantize_plan_t *plan, bt_strbuf_t *out);

/*
 * Converts a model to a GGUF file of another type: metadata is kept, every
 * tensor is dequantized and quantized again (or copied, where its type stays),
 * in slabs of rows, so that memory does not grow with the model.
 *
 * Threads: the caller's, and threads that a call starts for itself.
 */

/** Progress of a conversion. */
typedef struct bt_convert_progress {
    const bt_quantize_step_t *step; /**< current step */
    uint64_t i;                     /**< index of the step, from 0 */
    uint64_t n;
    uint64_t done_bytes; /**< bytes written of the new file's data */
    uint64_t all_bytes;
    bool is_kept; /**< the step was done by an earlier, interrupted
                       conversion */
    bool is_done; /**< the step is done with this report */
} bt_convert_progress_t;

typedef struct bt_convert_options {
    const bt_quantize_mix_t *mix;
    uint32_t n_threads; /**< at least 1 */
    /** Importance matrix whose weights apply to the errors of columns. Columns
     *  of a matrix without an entry have equal weights. NULL: none. The caller
     *  has checked it with bt_imatrix_check(). */
    const bt_imatrix_t *imatrix;
    /** Called by the caller's thread. @return false: stop here; finished work
     *  stays in the .part file. */
    bool (*on_progress)(void *ctx, const bt_convert_progress_t *progress);
    void *ctx;
} bt_convert_options_t;

/**
 * Converts a model.
 *
 * @param [in]  gguf  Stays open during the call.
 * @param [in]  name  Name of the new file, which exists once it is complete. A
 *     conversion of the same model to the same type that left NAME.part is
 *     continued.
 * @param [out] why   On failure the reason, for the user.
 * @retval BT_OK
 * @retval BT_ERR_CANCELED       on_progress() returned false
 * @retval BT_ERR_INVALID_PARAM  a tensor has an infinity or a NaN; NAME or
 *     NAME.part is a file of the model
 * @retval BT_ERR_TOO_LARGE      a number exceeds the type's range; the tensor
 *     is named
 * @retval BT_ERR_UNSUPPORTED    a tensor's type cannot be read; the tensor is
 *     named
 * @retval BT_ERR_BUSY, BT_ERR_IO, BT_ERR_OVERFLOW, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_convert(const bt_gguf_t *gguf, const char *name,
                                     const bt_convert_options_t *options,
                                     char *why, size_t why_bytes);

#endif
