/* SPDX-License-Identifier: Apache-2.0 */
/** @file quantize.h
 *
 * Quantizes numbers to blocks of GGUF's quantized types. A search finds, for
 * each block, the scale (and minimum) with the least squared error
 *
 *     sum over i of w[i] * (x[i] - y[i])^2,  y[i] = scale * code[i] + min
 *
 * with the scale as the file stores it. The weight w is the mean square of the
 * matrix's input at the number's column, if an importance matrix provides it
 * (imatrix.h), else constant. Then the shrinkage of the block is removed
 * (plan.h): a matrix whose blocks are all slightly short gives outputs that are
 * too small, increasingly with each layer. Without this step the outputs of
 * Q4_0 matrices are 1.2 % short (mean over the layers of the default model).
 *
 * Threads: pure functions.
 * Source:  the block layouts of the GGUF format (ggml, "ggml-common.h"); MXFP4:
 * OCP Microscaling Formats specification 1.0.
 */
#ifndef BT_CONVERT_QUANTIZE_H
#define BT_CONVERT_QUANTIZE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

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

#endif
