/* SPDX-License-Identifier: Apache-2.0 */
/** @file quantize.h
 *
 * Numbers into blocks of GGUF's quantized types: for each block the scale (and
 * minimum) with the least squared error that a search finds,
 *
 *     sum over i of w[i] * (x[i] - y[i])^2,  y[i] = scale * code[i] + min
 *
 * with the scale as the file stores it. w is how much of what a matrix gives
 * goes through the number: the mean square of its inputs, where an importance
 * matrix says so (imatrix.h), else all alike. Then the block is lengthened
 * until its error stands upright on x (fit.h), for a matrix whose every block
 * is a little short gives too little, and each layer more so: without it what
 * Q4_0's matrices give is 1.2 % short (mean of layers of the default model).
 *
 * Threads: pure functions.
 * Source:  the block layouts of the GGUF format (ggml, "ggml-common.h"); MXFP4:
 *          OCP Microscaling Formats specification 1.0.
 */
#ifndef BT_CONVERT_QUANTIZE_H
#define BT_CONVERT_QUANTIZE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/** Tensor types that can be written, as GGUF numbers them. */
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

/** Number of the search below: raise it when the same numbers become other
 *  blocks, so that no half-written file is continued with them. */
#define BT_QUANTIZE_VERSION 2u

/** Elements and bytes of a block, 1 element where there are none.
 *  @retval BT_ERR_UNSUPPORTED  no type that can be written */
BT_MUST_CHECK bt_status_t bt_quantize_block(uint32_t type, uint32_t *n_elems_p,
                                            uint32_t *n_bytes_p);

/**
 * @param [in]  x    (n), a whole number of blocks
 * @param [in]  importance  (n) weights, more than 0 and of a mean near 1, or
 *                   NULL: all alike. Types without blocks do not ask.
 * @param [out] out  the blocks, of which nothing is to be used on failure
 * @retval BT_ERR_UNSUPPORTED    the type, or n
 * @retval BT_ERR_INVALID_PARAM  an infinity or a NaN
 * @retval BT_ERR_TOO_LARGE      a magnitude that the type does not hold; those
 *                               with scales of F16 hold as much as that, 65504
 */
BT_MUST_CHECK bt_status_t bt_quantize(uint32_t type, const float *x,
                                      const float *importance, size_t n,
                                      uint8_t *out);

#endif
