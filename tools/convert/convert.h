/* SPDX-License-Identifier: Apache-2.0 */
/** @file convert.h
 *
 * Converts a model to a GGUF file of another type: metadata is kept, every
 * tensor is dequantized and quantized again (or copied, where its type stays),
 * in slabs of rows, so that memory does not grow with the model.
 *
 * Threads: the caller's, and threads that a call starts for itself.
 */
#ifndef BT_CONVERT_CONVERT_H
#define BT_CONVERT_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "inference/gguf/gguf.h"
#include "tools/convert/plan.h"
#include "tools/imatrix/imatrix.h"

/** Progress of a conversion. */
typedef struct bt_convert_progress {
    const bt_convert_step_t *step; /**< current step */
    uint64_t i;                    /**< index of the step, from 0 */
    uint64_t n;
    uint64_t done_bytes; /**< bytes written of the new file's data */
    uint64_t all_bytes;
    bool is_kept; /**< the step was done by an earlier, interrupted
                       conversion */
    bool is_done; /**< the step is done with this report */
} bt_convert_progress_t;

typedef struct bt_convert_options {
    const bt_convert_mix_t *mix;
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
