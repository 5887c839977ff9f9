/* SPDX-License-Identifier: Apache-2.0 */
/** @file quantize_priv.h  Internal interface of the quantizer's files. */
#ifndef BT_CONVERT_QUANTIZE_PRIV_H
#define BT_CONVERT_QUANTIZE_PRIV_H

#include <stdint.h>

#include "tools/convert/plan.h"
#include "tools/convert/quantize.h"

/** Writes a 16-bit value in little-endian order. */
void bt_quantize_put16(uint8_t *out, uint16_t value);

/** Quantizes a block of 256 to Q4_K or Q5_K (k45) or to Q6_K (k6).
 *  @param w  (256) weights */
void bt_quantize_k45(uint32_t type, const float *x, const float *w,
                     uint8_t *out);
void bt_quantize_k6(uint32_t type, const float *x, const float *w,
                    uint8_t *out);

#endif
