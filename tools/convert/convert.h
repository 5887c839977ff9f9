/* SPDX-License-Identifier: Apache-2.0 */
/** @file convert.h
 *
 * Conversion of a model file: quantizer, plan, partial files, and the whole.
 */
#ifndef BT_TOOLS_CONVERT_CONVERT_H
#define BT_TOOLS_CONVERT_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/gguf/gguf.h"
#include "tools/imatrix/imatrix.h"

/*
 * Quantizes numbers to blocks of GGUF's quantized types. A search finds, for
 * each block, the scale (and minimum) with the least squared error
 *
 *     sum over i of w[i] * (x[i] - y[i])^2,  y[i] = scale * code[i] + min
 *
 * with the scale as the file stores it. The weight w is the mean square of the
 * matrix's input at the number's column, if an importance matrix provides it
 * (imatrix.h), else constant. Then the shrinkage of the block is removed: a
 * matrix whose blocks are all slightly short gives outputs that are too small,
 * increasingly with each layer. Without this step the outputs of Q4_0 matrices
 * are 1.2 % short (mean over the layers of the default model).
 *
 * Threads: pure functions.
 * Source:  the block layouts of the GGUF format (ggml, "ggml-common.h"); MXFP4:
 * OCP Microscaling Formats specification 1.0.
 */

/** Tensor types that can be written, numbered as in GGUF. */
enum {
    BT_QTYPE_F32 = 0,
    BT_QTYPE_F16 = 1,
    BT_QTYPE_Q4_0 = 2,
    BT_QTYPE_Q4_1 = 3,
    BT_QTYPE_Q5_0 = 6,
    BT_QTYPE_Q5_1 = 7,
    BT_QTYPE_Q8_0 = 8,
    BT_QTYPE_Q4_K = 12,
    BT_QTYPE_Q5_K = 13,
    BT_QTYPE_Q6_K = 14,
    BT_QTYPE_BF16 = 30,
    BT_QTYPE_MXFP4 = 39,
};

/** Version of the quantizer. Raise it when equal numbers give different blocks,
 *  so that no partial file of another version is continued. */
#define BT_QUANTIZE_VERSION 2u

/** Returns elements and bytes of a block; 1 element for types without blocks.
 *  @retval BT_ERR_UNSUPPORTED  not a type that can be written */
BT_MUST_CHECK bt_status_t bt_quantize_block(uint32_t type, uint32_t *n_elems_p,
                                            uint32_t *n_bytes_p);

/**
 * Quantizes @a n numbers.
 *
 * @param [in]  x    (n), a whole number of blocks
 * @param [in]  importance  (n) weights, greater than 0 and with a mean near 1,
 *     or NULL: equal weights. Ignored for types without blocks.
 * @param [out] out  the blocks; invalid on failure
 * @retval BT_ERR_UNSUPPORTED    the type, or n
 * @retval BT_ERR_INVALID_PARAM  an infinity or a NaN
 * @retval BT_ERR_TOO_LARGE      a magnitude beyond the type's range; types with
 *     F16 scales hold up to 65504, like F16
 */
BT_MUST_CHECK bt_status_t bt_quantize(uint32_t type, const float *x,
                                      const float *importance, size_t n,
                                      uint8_t *out);

/* Internal interface of the quantizer's files. */

/*
 * Chooses the type of every tensor of a model for a `--type` name: one type for
 * most matrices, finer ones where an error spreads furthest. The table and its
 * rules are in plan.c and docs/CONVERT.md.
 *
 * Threads: pure functions.
 */

typedef struct bt_convert_mix bt_convert_mix_t;

/** Finds a mix by its --type name, ignoring case. @return NULL: none */
const bt_convert_mix_t *bt_convert_mix_find(const char *name);
/** Returns the name of mix @a i, for messages. @return NULL past the last */
const char *bt_convert_mix_name(uint32_t i);
#define BT_CONVERT_FILE_TYPE_STAYS UINT32_MAX

/** Returns the general.file_type of the converted file (llama_ftype), or
 *  BT_CONVERT_FILE_TYPE_STAYS: every tensor keeps its type. */
uint32_t bt_convert_mix_file_type(const bt_convert_mix_t *mix);

/** True when the mix has block types, whose errors are weighted. Otherwise an
 *  importance matrix changes nothing. */
bool bt_convert_mix_weighs(const bt_convert_mix_t *mix);

/** Conversion of one tensor. */
typedef struct bt_convert_step {
    const bt_gguf_tensor_t *tensor;
    uint32_t type;  /**< new type, one of convert.h */
    bool is_narrow; /**< row length is not a multiple of the block of the type
                         wanted by the mix */
    uint32_t wanted;
    size_t bytes; /**< bytes in the new file */
    uint64_t at;  /**< offset in the new file's tensor data */
} bt_convert_step_t;

typedef struct bt_convert_plan {
    bt_convert_step_t *steps; /**< owned; in the order of the file */
    uint64_t n;
    uint64_t bytes; /**< bytes of the data, with padding */
} bt_convert_plan_t;

#define BT_CONVERT_ALIGNMENT 32u /**< bytes; the default alignment of GGUF */

/**
 * Plans the conversion of every tensor.
 *
 * @retval BT_ERR_OVERFLOW   impossible file sizes
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_convert_plan_make(const bt_gguf_t *gguf,
                                               const bt_convert_mix_t *mix,
                                               bt_convert_plan_t *plan_p);
void bt_convert_plan_fini(bt_convert_plan_t *plan);

/*
 * Least-squares searches shared by all quantized types. A run has n numbers, n
 * a multiple of 8 and at most BT_FIT_MAX; codes are integers stored as floats.
 */

#define BT_FIT_MAX 32u

typedef struct bt_fit {
    float scale;
    float min;
    float error; /**< weighted squared error */
} bt_fit_t;

/** Numbers to fit, and the range of their codes. */
typedef struct bt_fit_run {
    const float *x; /**< (n) */
    const float *w; /**< (n) weights, at least 0 */
    uint32_t n;
    float low; /**< least code; `high`: largest code */
    float high;
    bool as_f16; /**< scale and minimum are stored as F16: search among F16
                      values */
} bt_fit_run_t;

/** Computes the codes (n) nearest to (x - min) / scale.
 *  @return their weighted squared error */
float bt_fit_codes(const bt_fit_run_t *run, float scale, float min,
                   float *codes);

/** Fits x = scale * code, low < 0 < high, by least squares. */
bt_fit_t bt_fit_scale(const bt_fit_run_t *run);

/** Fits x = scale * code + min, low = 0, by least squares.
 *  @param min_below  min must be 0 or less */
bt_fit_t bt_fit_affine(const bt_fit_run_t *run, bool min_below);

/**
 * Removes the shrinkage of a least-squares fit. Fitted numbers are shorter than
 * x by as much as their error is long, so the outputs of a matrix become a
 * little too small, and the effect adds up over the layers. For unchanged codes
 * this function sets the scale (and minimum) whose error is orthogonal to x,
 * and to 1 where there is a minimum. The squared error grows by its part along
 * x, which is of second order. If the change would be large, or F16 has no
 * value nearby, @a fit stays unchanged.
 *
 *     sum w x (x - y) = 0    y = scale * code + min
 *
 * @param [in]      has_min  affine, any minimum
 * @param [in]      codes    (n) codes of @a fit
 * @param [in,out]  fit
 */
void bt_fit_lengthen(const bt_fit_run_t *run, bool has_min, const float *codes,
                     bt_fit_t *fit);

/** Returns the factor that removes the shrinkage of a block of several runs.
 *  @param xx, xy  sums over the block of w x x and of w x y
 *  @return 1 where the change would be large */
float bt_fit_length(double xx, double xy);

/** Rounds to F16 and back; overflow becomes an infinity. */
float bt_fit_f16(float value);

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
void bt_convert_header(const bt_gguf_t *gguf, const bt_convert_mix_t *mix,
                       const bt_imatrix_t *imatrix,
                       const bt_convert_plan_t *plan, bt_strbuf_t *out);

/*
 * Converts a model to a GGUF file of another type: metadata is kept, every
 * tensor is dequantized and quantized again (or copied, where its type stays),
 * in slabs of rows, so that memory does not grow with the model.
 *
 * Threads: the caller's, and threads that a call starts for itself.
 */

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
