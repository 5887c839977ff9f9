/* SPDX-License-Identifier: Apache-2.0 */
/** @file recipe.h
 *
 * How a tensor is made of what a safetensors file has. Rows are read by a
 * function of their format, in an order:
 *
 *     row r of the tensor  =  row_fn(stored row order(r)), n_in numbers
 *
 * The order is that of heads and of what is in them. Stored heads stand in
 * groups: query heads of one key and value head, then that key head, then that
 * value head; a segment of the tensor takes `take` heads of each group from
 * `first` on. Within a head the two halves of rotary pairs stand one behind the
 * other, where GGUF's llama kin have them in turns.
 *
 *     stored  q0 q1 k0 v0 │ q2 q3 k1 v1     group_heads 4
 *     tensor  q0 q1 q2 q3 │ k0 k1 │ v0 v1   take 2 first 0 │ 1, 2 │ 1, 3
 *
 * Threads: immutable once built.
 */
#ifndef BT_INFERENCE_HF_RECIPE_H
#define BT_INFERENCE_HF_RECIPE_H

#include "inference/hf/safetensors.h"

#define BT_RECIPE_SEGMENTS 3

typedef struct bt_recipe_segment {
    uint32_t n_heads; /**< of the tensor */
    uint32_t take;    /**< heads of each group */
    uint32_t first;   /**< of them, in the group */
} bt_recipe_segment_t;

/** n_segments 0: as stored. */
typedef struct bt_recipe_order {
    uint32_t head_dim;
    uint32_t group_heads; /**< in a stored group */
    uint32_t n_segments;
    bt_recipe_segment_t segments[BT_RECIPE_SEGMENTS];
    bool halves; /**< put the halves of each head in turns */
} bt_recipe_order_t;

typedef struct bt_recipe bt_recipe_t;

/** Write @a n_in numbers of a stored row, in the tensor's type. */
typedef void (*bt_recipe_row_fn)(const bt_recipe_t *recipe, uint64_t row,
                                 uint8_t *out);

struct bt_recipe {
    bt_recipe_row_fn row;
    bt_recipe_order_t order;
    uint64_t n_in;
    uint64_t n_out;
    size_t row_bytes; /**< of the tensor */

    const bt_st_tensor_t *data;
    /* Of quantized ones (quant.c). */
    const struct bt_quant_layout *layout; /**< of packed ones */
    const bt_st_tensor_t *scale;
    const bt_st_tensor_t *zero; /**< NULL: the middle of the range */
    const uint32_t *groups;     /**< of each input; NULL: in order */
    uint32_t bits;
    uint64_t group_elems; /**< inputs that share a scale */
    uint64_t block[2];    /**< rows and inputs that share one, of bytes */
    uint64_t n_scaled;    /**< outputs of the scales' rows */
    int32_t zero_add;     /**< what stored zeros lack */
};

/** Rows as they are stored. */
void bt_recipe_row_plain(const bt_recipe_t *recipe, uint64_t row, uint8_t *out);
/** Columns of the stored matrix. */
void bt_recipe_row_transposed(const bt_recipe_t *recipe, uint64_t row,
                              uint8_t *out);
/** F32 numbers, one more than those stored as F32, F16 or BF16. */
void bt_recipe_row_plus_one(const bt_recipe_t *recipe, uint64_t row,
                            uint8_t *out);

/** F32 numbers, those of the stored row over the root of their squares' sum. */
void bt_recipe_row_unit(const bt_recipe_t *recipe, uint64_t row, uint8_t *out);

/** Number @a i of a tensor of F32, F16 or BF16. */
float bt_recipe_number(const bt_st_tensor_t *tensor, uint64_t i);

/** Row of the stored matrix that row @a r of the tensor is. */
uint64_t bt_recipe_stored_row(const bt_recipe_order_t *order, uint64_t r);

/** Rows that the order's segments have, all together. */
uint64_t bt_recipe_order_rows(const bt_recipe_order_t *order);
/** Rows that the stored matrix must have for it. */
uint64_t bt_recipe_order_stored(const bt_recipe_order_t *order);

/** A bt_gguf_make_fn. */
bt_status_t bt_recipe_make(const void *recipe, void *out);

#endif
