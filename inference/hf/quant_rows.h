/* SPDX-License-Identifier: Apache-2.0 */
/** @file quant_rows.h
 *
 * Converts rows of quantized matrices, as planned by quant.c. Packed codes of
 * an output and an input lie in 32-bit words:
 *
 *     GPTQ                [in / n][out]   n inputs in a word, the lowest first
 *     AWQ                 [in][out / 8]   8 outputs, in the order 0 2 4 6 1 3 5
 * 7 compressed-tensors  [out][in / n]   n inputs
 *
 * Source: the packing functions of AutoGPTQ, AutoAWQ and compressed-tensors.
 */
#ifndef BT_INFERENCE_HF_QUANT_ROWS_H
#define BT_INFERENCE_HF_QUANT_ROWS_H

#include "inference/hf/recipe.h"

/** Returns the code of an output's input. A bt_quant_zero_fn returns the zero
 *  point of a group, which includes zero_add. */
typedef uint32_t (*bt_quant_code_fn)(const bt_recipe_t *recipe, uint64_t out,
                                     uint64_t in);
typedef int32_t (*bt_quant_zero_fn)(const bt_recipe_t *recipe, uint64_t out,
                                    uint64_t group);

typedef struct bt_quant_layout {
    bt_quant_code_fn code;
    bt_quant_zero_fn zero;
    bool scale_by_group; /**< scales are [group][out], not [out][group] */
} bt_quant_layout_t;

extern const bt_quant_layout_t bt_quant_gptq;
extern const bt_quant_layout_t bt_quant_awq;
extern const bt_quant_layout_t bt_quant_packed;

float bt_quant_scale(const bt_recipe_t *recipe, uint64_t out, uint64_t group);

/** Converts a row of FP8 codes to F32, scaled by row, block or whole matrix;
 *  bt_quant_row_int8() a row of INT8 codes. */
void bt_quant_row_fp8(const bt_recipe_t *recipe, uint64_t row, uint8_t *out);
void bt_quant_row_int8(const bt_recipe_t *recipe, uint64_t row, uint8_t *out);
/** Converts a row of packed codes to F32. */
void bt_quant_row_f32(const bt_recipe_t *recipe, uint64_t row, uint8_t *out);
/** Converts a row of packed codes to GGUF blocks of equal values: code less
 *  zero is in the type's range, scales are exact as f16, groups are whole
 *  blocks. */
void bt_quant_row_q4_0(const bt_recipe_t *recipe, uint64_t row, uint8_t *out);
void bt_quant_row_q5_0(const bt_recipe_t *recipe, uint64_t row, uint8_t *out);
void bt_quant_row_q8_0(const bt_recipe_t *recipe, uint64_t row, uint8_t *out);
/** Converts a row of INT8 codes to Q8_0 blocks of equal values. */
void bt_quant_row_int8_q8_0(const bt_recipe_t *recipe, uint64_t row,
                            uint8_t *out);
/** Converts a row to blocks of BT_KTYPE_E4M3; one with a NaN has the scale
 *  NaN. */
void bt_quant_row_e4m3(const bt_recipe_t *recipe, uint64_t row, uint8_t *out);
/** Converts a row of FP8 codes whose products with their scales are exact as
 *  bf16. */
void bt_quant_row_fp8_bf16(const bt_recipe_t *recipe, uint64_t row,
                           uint8_t *out);

/** Builds the recipe that makes an FP8 matrix as codes, where each block of
 *  codes has one scale.
 *  @param [out] type_p  BT_KTYPE_E4M3, or BT_KTYPE_E4M3_BF16 where the matrix
 *          is BF16
 *  @return false: it is not such a matrix */
bool bt_quant_codes(const bt_recipe_t *recipe, uint32_t *type_p,
                    bt_recipe_t *codes_p);

#endif
