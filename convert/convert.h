/* SPDX-License-Identifier: Apache-2.0 */
/** @file convert.h
 *
 * A model into a GGUF file of another type: the metadata as it is, every tensor
 * dequantized and quantized again (or copied, where its type stays), slab of
 * rows by slab of rows, so that memory does not grow with the model.
 *
 * Threads: the caller's and those that a call makes for itself.
 */
#ifndef BT_CONVERT_CONVERT_H
#define BT_CONVERT_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "convert/plan.h"
#include "imatrix/imatrix.h"
#include "inference/gguf/gguf.h"

/** How far a conversion is. */
typedef struct bt_convert_progress {
    const bt_convert_step_t *step; /**< under way */
    uint64_t i;                    /**< which of n it is, from 0 */
    uint64_t n;
    uint64_t done_bytes; /**< of the new file's data, of all_bytes */
    uint64_t all_bytes;
    bool is_kept; /**< the step was done by a conversion that ended early */
    bool is_done; /**< the step, with this report */
} bt_convert_progress_t;

typedef struct bt_convert_options {
    const bt_convert_mix_t *mix;
    uint32_t n_threads; /**< at least 1 */
    /** What errors of columns weigh; of a matrix that it has not they weigh all
     *  alike. NULL: none. bt_imatrix_check() was asked. */
    const bt_imatrix_t *imatrix;
    /** Called by the caller's thread. @return false: end here; what is done
     *  stays in the .part file. */
    bool (*on_progress)(void *ctx, const bt_convert_progress_t *progress);
    void *ctx;
} bt_convert_options_t;

/**
 * @param [in]  gguf  Open while it runs.
 * @param [in]  name  Of the new file; it is there when all of it is. What a
 *                    conversion of the same model to the same type left in
 *                    NAME.part is continued.
 * @param [out] why   On failure the reason, for the user.
 * @retval BT_OK
 * @retval BT_ERR_CANCELED       on_progress() said so
 * @retval BT_ERR_INVALID_PARAM  a tensor has an infinity or a NaN; NAME or
 *                               NAME.part is a file of the model
 * @retval BT_ERR_TOO_LARGE      a number is none of the type; the tensor is
 * named
 * @retval BT_ERR_UNSUPPORTED    a tensor's type cannot be read, named
 * @retval BT_ERR_BUSY, BT_ERR_IO, BT_ERR_OVERFLOW, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_convert(const bt_gguf_t *gguf, const char *name,
                                     const bt_convert_options_t *options,
                                     char *why, size_t why_bytes);

#endif
