/* SPDX-License-Identifier: Apache-2.0 */
/** @file quant_rows.h
 *
 * Quantized matrices of Hugging Face folders: their formats and their rows.
 */
#ifndef BT_INFERENCE_HF_QUANT_ROWS_H
#define BT_INFERENCE_HF_QUANT_ROWS_H

#include "inference/hf/safetensors.h"

/*
 * Recipe that makes a GGUF tensor of safetensors data. Rows are read by a
 * function of their format, in an order:
 *
 *     row r of the tensor  =  row_fn(stored row order(r)), n_in numbers
 *
 * The order permutes heads and the rows within heads. Stored heads are in
 * groups: query heads of one KV head, then that key head, then that value head;
 * a segment of the tensor takes `take` heads of each group from `first` on.
 * Within a head the two halves of rotary pairs are stored one behind the other,
 * where GGUF's llama family has them interleaved.
 *
 *     stored  q0 q1 k0 v0 │ q2 q3 k1 v1     group_heads 4
 *     tensor  q0 q1 q2 q3 │ k0 k1 │ v0 v1   take 2 first 0 │ 1, 2 │ 1, 3
 *
 * Threads: immutable once built.
 */

#define BT_RECIPE_SEGMENTS 3

typedef struct bt_recipe_segment {
    uint32_t n_heads; /**< heads of the tensor in this segment */
    uint32_t take;    /**< heads of each group */
    uint32_t first;   /**< first head taken, within the group */
} bt_recipe_segment_t;

/** Row order of a tensor; n_segments 0: as stored. */
typedef struct bt_recipe_order {
    uint32_t head_dim;
    uint32_t group_heads; /**< heads of a stored group */
    uint32_t n_segments;
    bt_recipe_segment_t segments[BT_RECIPE_SEGMENTS];
    bool halves; /**< interleave the halves of each head */
} bt_recipe_order_t;

typedef struct bt_recipe bt_recipe_t;

/** Writes @a n_in numbers of a stored row, in the tensor's type. */
typedef void (*bt_recipe_row_fn)(const bt_recipe_t *recipe, uint64_t row,
                                 uint8_t *out);

struct bt_recipe {
    bt_recipe_row_fn row;
    bt_recipe_order_t order;
    uint64_t n_in;
    uint64_t n_out;
    size_t row_bytes; /**< bytes of a tensor row */

    const bt_st_tensor_t *data;
    /* For quantized tensors (quant.c): */
    const struct bt_quant_layout *layout; /**< layout of packed codes */
    const bt_st_tensor_t *scale;
    const bt_st_tensor_t *zero; /**< NULL: the middle of the range */
    const uint32_t *groups;     /**< group of each input; NULL: in order */
    uint32_t bits;
    uint64_t group_elems; /**< inputs that share a scale */
    uint64_t block[2];    /**< rows and inputs that share a scale, of 8-bit
                               codes */
    uint64_t n_scaled;    /**< outputs in the scales' rows */
    int32_t zero_add;     /**< added to stored zeros */
};

/** Copies a row as it is stored. */
void bt_recipe_row_plain(const bt_recipe_t *recipe, uint64_t row, uint8_t *out);
/** Copies a column of the stored matrix, or of one of several, as a row. */
void bt_recipe_row_transposed(const bt_recipe_t *recipe, uint64_t row,
                              uint8_t *out);
/** Writes F32 numbers, one more than those stored as F32, F16 or BF16. */
void bt_recipe_row_plus_one(const bt_recipe_t *recipe, uint64_t row,
                            uint8_t *out);

/** Writes F32 numbers: the stored row divided by its Euclidean length. */
void bt_recipe_row_unit(const bt_recipe_t *recipe, uint64_t row, uint8_t *out);

/** Returns number @a i of a tensor of F32, F16 or BF16. */
float bt_recipe_number(const bt_st_tensor_t *tensor, uint64_t i);

/** Returns the stored row that becomes row @a r of the tensor. */
uint64_t bt_recipe_stored_row(const bt_recipe_order_t *order, uint64_t r);
/** Returns the number of rows in all segments of the order. */
uint64_t bt_recipe_order_rows(const bt_recipe_order_t *order);
/** Returns the number of rows that the stored matrix must have for the
 *  order. */
uint64_t bt_recipe_order_stored(const bt_recipe_order_t *order);

/** Makes the whole tensor; a bt_gguf_make_fn. */
bt_status_t bt_recipe_make(const void *recipe, void *out);

/** Matrices of one type and shape, one behind the other. */
typedef struct bt_recipe_stack {
    const bt_recipe_t *parts;
    uint64_t n;
} bt_recipe_stack_t;

/** Makes the whole tensor; a bt_gguf_make_fn. */
bt_status_t bt_recipe_stack_make(const void *stack, void *out);

/** Changes a recipe to one of F32 numbers of equal values. */
void bt_recipe_to_f32(bt_recipe_t *recipe);

/*
 * Converts rows of quantized matrices, as planned by quant.c. Packed codes of
 * an output and an input lie in 32-bit words:
 *
 *     GPTQ                [in / n][out]   n inputs in a word, the lowest first
 *     AWQ                 [in][out / 8]   8 outputs, in the order 0 2 4 6 1 3 5
 * 7 compressed-tensors  [out][in / n]   n inputs
 *
 * Source: the packing functions of AutoGPTQ, AutoAWQ and compressed-tensors.
 */

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
/** Converts a row of FP8 codes whose products with their scales are exact as
 *  bf16. */
void bt_quant_row_fp8_bf16(const bt_recipe_t *recipe, uint64_t row,
                           uint8_t *out);

/** Converts a row of MXFP4 blocks to GGUF's: byte i of a stored one has the
 *  codes of inputs 2i and 2i + 1, the first in its low bits; of GGUF's those of
 *  i and i + 16, behind the scale.
 *  Source: OCP Microscaling Formats 1.0; transformers, integrations/mxfp4.py */
void bt_quant_row_mxfp4(const bt_recipe_t *recipe, uint64_t row, uint8_t *out);

/** Builds the recipe that makes an FP8 matrix as codes, where each block of
 *  codes has one scale.
 *  @param [out] type_p  BT_KTYPE_E4M3, or BT_KTYPE_E4M3_BF16 where the matrix
 *          is BF16
 *  @return false: it is not such a matrix */
bool bt_quant_codes(const bt_recipe_t *recipe, uint32_t *type_p,
                    bt_recipe_t *codes_p);

#endif
