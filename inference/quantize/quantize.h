/* SPDX-License-Identifier: Apache-2.0 */
/** @file quantize.h
 *
 * Quantizer: numbers to blocks of GGUF's types (quantize.c), the type of
 * each tensor of a model (plan.c), and a model whose tensors are
 * quantized as they are read (requantize.c). Files of it are written by
 * tools/convert.
 */
#ifndef BT_INFERENCE_QUANTIZE_QUANTIZE_H
#define BT_INFERENCE_QUANTIZE_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "inference/gguf/gguf.h"

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

/*
 * Chooses the type of every tensor of a model for a `--type` name: one type for
 * most matrices, finer ones where an error spreads furthest. The table and its
 * rules are in plan.c and docs/CONVERT.md.
 *
 * Threads: pure functions.
 */

typedef struct bt_quantize_mix bt_quantize_mix_t;

/** Finds a mix by its --type name, ignoring case. @return NULL: none */
const bt_quantize_mix_t *bt_quantize_mix_find(const char *name);
/** Returns the name of mix @a i, for messages. @return NULL past the last */
const char *bt_quantize_mix_name(uint32_t i);
#define BT_QUANTIZE_TYPES_STAY UINT32_MAX

/** Returns the general.file_type of the converted file (llama_ftype), or
 *  BT_QUANTIZE_TYPES_STAY: every tensor keeps its type. */
uint32_t bt_quantize_mix_file_type(const bt_quantize_mix_t *mix);

/** True when the mix has block types, whose errors are weighted. Otherwise an
 *  importance matrix changes nothing. */
bool bt_quantize_mix_weighs(const bt_quantize_mix_t *mix);

/** Conversion of one tensor. */
typedef struct bt_quantize_step {
    const bt_gguf_tensor_t *tensor;
    uint32_t type;  /**< new type, one of convert.h */
    bool is_narrow; /**< row length is not a multiple of the block of the type
                         wanted by the mix */
    uint32_t wanted;
    size_t bytes; /**< bytes in the new file */
    uint64_t at;  /**< offset in the new file's tensor data */
} bt_quantize_step_t;

typedef struct bt_quantize_plan {
    bt_quantize_step_t *steps; /**< owned; in the order of the file */
    uint64_t n;
    uint64_t bytes; /**< bytes of the data, with padding */
} bt_quantize_plan_t;

#define BT_QUANTIZE_ALIGNMENT 32u /**< bytes; the default alignment of GGUF */

/**
 * Plans the conversion of every tensor.
 *
 * @retval BT_ERR_OVERFLOW   impossible file sizes
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_quantize_plan_make(const bt_gguf_t *gguf,
                                                const bt_quantize_mix_t *mix,
                                                bt_quantize_plan_t *plan_p);
void bt_quantize_plan_fini(bt_quantize_plan_t *plan);

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

/**
 * Quantizes rows of a tensor, on several threads.
 *
 * @param [in]  data     the tensor's bytes, all of them
 * @param [in]  weights  (matrices, dims[0]) weights of the columns of each
 *         matrix; NULL: equal ones
 * @param [in]  row      first row, of @a n
 * @param [in]  n_threads  the caller's and this many less one; at least 1
 * @param [out] out      bytes of the rows; invalid on failure
 * @retval any of bt_quantize(), bt_dequantize(), BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_quantize_rows(const bt_quantize_step_t *step,
                                           const void *data,
                                           const float *weights, uint64_t row,
                                           uint64_t n, uint32_t n_threads,
                                           uint8_t *out);

/** Memory of a model by its tensors' types, in bytes. */
typedef struct bt_quantize_size {
    size_t bytes;         /**< all tensors */
    size_t scratch_bytes; /**< most that making one of them takes beside it */
} bt_quantize_size_t;

/**
 * Opens a model anew with smaller tensors, which are quantized when they are
 * read: no file is written. Metadata are the same; the identity is another one.
 *
 * @param [in]  gguf  Borrowed; closed after the new one.
 * @param [in]  n_threads  that quantize a tensor, at least 1
 * @param [out] size_p  NULL: not wanted
 * @param [out] why   On failure the reason, for the user.
 * @param [out] out_p  Owned by the caller; close it with bt_gguf_close().
 * @retval BT_ERR_UNSUPPORTED  the type of a tensor cannot be read
 * @retval any of bt_gguf_assemble(), BT_ERR_OVERFLOW, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_requantize_open(
    const bt_gguf_t *gguf, const bt_quantize_mix_t *mix, uint32_t n_threads,
    bt_quantize_size_t *size_p, char *why, size_t why_bytes, bt_gguf_t **out_p);

#endif
