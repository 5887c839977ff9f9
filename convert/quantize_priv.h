/* SPDX-License-Identifier: Apache-2.0 */
/** @file quantize_priv.h  What the files of the quantizer share. */
#ifndef BT_CONVERT_QUANTIZE_PRIV_H
#define BT_CONVERT_QUANTIZE_PRIV_H

#include <stdint.h>

#include "convert/fit.h"
#include "convert/quantize.h"

/** Little endian. */
void bt_quantize_put16(uint8_t *out, uint16_t value);

/** A block of 256: Q4_K or Q5_K; Q6_K. @param w  (256) weights */
void bt_quantize_k45(uint32_t type, const float *x, const float *w,
                     uint8_t *out);
void bt_quantize_k6(uint32_t type, const float *x, const float *w,
                    uint8_t *out);

#endif
