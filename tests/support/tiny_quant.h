/* SPDX-License-Identifier: Apache-2.0 */
/** @file tiny_quant.h  Simple quantizers for tests: correct blocks, not the
 *  best ones. Independent of kernels/, whose dequantizers they test. */
#ifndef BT_TESTS_SUPPORT_TINY_QUANT_H
#define BT_TESTS_SUPPORT_TINY_QUANT_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/** splitmix64: the next of a sequence. */
uint64_t bt_tiny_random(uint64_t *state);

/** IEEE binary16, round to nearest even. */
uint16_t bt_tiny_f16(float value);

/** bfloat16, round to nearest even. */
uint16_t bt_tiny_bf16(float value);

/**
 * Encode @a n elements (whole blocks) at @a out. F32, F16, BF16, Q8_0, Q4_0,
 * Q4_1, Q5_0, Q5_1 encode @a x; the K-quants take only its spread: their
 * blocks are random ones whose values have about the same standard deviation.
 *
 * @param [in,out] random  State of bt_tiny_random().
 * @retval BT_ERR_UNSUPPORTED  Another type.
 */
BT_MUST_CHECK bt_status_t bt_tiny_quantize(uint32_t type, const float *x,
                                           size_t n, uint64_t *random,
                                           uint8_t *out);

#endif
