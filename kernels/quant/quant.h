/* SPDX-License-Identifier: Apache-2.0 */
/** @file quant.h
 *
 * Reads GGUF quantization blocks in one common form: 32 signed codes, and a
 * scale and an offset for each half of them. Every supported type fits, and the
 * value `scale * code + min` needs only one rounding (at the addition): the
 * product has at most 24 significant bits. So a fused multiply-add gives the
 * dequantizer's value exactly.
 *
 * If a type's codes are not a small range of integers but at most 16 different
 * values, these are its *codebook*: a matrix can be kept as indices of 4 bits.
 *
 * Source: the block layouts of the GGUF format (ggml, "ggml-common.h").
 */
#ifndef BT_KERNELS_QUANT_QUANT_H
#define BT_KERNELS_QUANT_QUANT_H

#include <stdint.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/kernels.h"

#define BT_QUANT_GROUP 32u /**< elements of one bt_quant_group_t */
#define BT_QUANT_BOOK  16u /**< codes of a codebook, maybe duplicated */

typedef struct bt_quant_group {
    int8_t code[BT_QUANT_GROUP];
    float scale[2]; /**< scales of codes 0..15 and 16..31 */
    float min[2];   /**< minima; -0.0, the neutral element of +, if none */
    /* Factors of scale and min, for types with blocks of 256 (IQ and K types).
     * A unit is one number per block. */
    float unit;
    float min_unit;
    int8_t step[2];     /**< scale = unit * step; for MXFP4 the scale byte */
    int8_t min_step[2]; /**< min = min_unit * min_step, if the type has
                             minima */
} bt_quant_group_t;

/** Returns half the value of the e8m0 scale @a e, 2^(e - 128). FP4 codebooks
 *  are doubled to match. */
BT_FORMULA float bt_quant_e8m0_half(uint32_t e)
{
    return bt_f32_from_bits((e < 2) ? 0x00200000u << e : (e - 1) << 23);
}

/** Reads group @a index (32 elements) of a row that begins at @a row. @a type
 *  must be one of the quantized types. */
void bt_quant_group_read(bt_ktype_t type, const uint8_t *row, size_t index,
                         bt_quant_group_t *group);

/** Returns the codebook of a type, which contains all of its codes.
 *  @return NULL: none */
const int8_t *bt_quant_book(bt_ktype_t type);

#endif
