/* SPDX-License-Identifier: Apache-2.0 */
/** @file quant.h
 *
 * GGUF quantization blocks read as one common shape: 32 signed codes, a scale
 * for each half of them and one offset. Every type of ours fits, and the
 * value `scale * code + min` needs only one rounding (at the addition): the
 * product has at most 24 significant bits. So a fused multiply-add gives the
 * dequantizer's value exactly.
 *
 * Source: the block layouts of the GGUF format (ggml, "ggml-common.h").
 */
#ifndef BT_KERNELS_CPU_QUANT_H
#define BT_KERNELS_CPU_QUANT_H

#include <stdint.h>

#include "kernels/kernels.h"

#define BT_QUANT_GROUP 32u /**< elements of one bt_quant_group_t */

typedef struct bt_quant_group {
    int8_t code[BT_QUANT_GROUP];
    float scale[2];     /**< of codes 0..15 and 16..31 */
    float min;          /**< -0.0, the neutral element of +, where none */
    uint16_t scale_f16; /**< Q4_0, Q4_1, Q5_0, Q8_0: the block's own */
    uint16_t min_f16;
} bt_quant_group_t;

/** Read group @a index (32 elements) of a row that begins at @a row.
 *  @a type must be one of the quantized types. */
void bt_quant_group_read(bt_ktype_t type, const uint8_t *row, size_t index,
                         bt_quant_group_t *group);

#endif
