/* SPDX-License-Identifier: Apache-2.0 */
/** @file adapter_parts.h
 *
 * LoRA adapter in memory, by the names and orders of rows that GGUF has for a
 * model's matrices: a product W x of a layer becomes W x + scale * B (A x).
 * inference/adapter makes it of files.
 *
 * Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models".
 */
#ifndef BT_INFERENCE_GGUF_ADAPTER_PARTS_H
#define BT_INFERENCE_GGUF_ADAPTER_PARTS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"

/** Largest rank of an adapter. */
#define BT_ADAPTER_MAX_RANK 512u

/** Products of a dense decoder's layer. */
typedef enum bt_adapter_product {
    BT_ADAPTER_Q,
    BT_ADAPTER_K,
    BT_ADAPTER_V,
    BT_ADAPTER_OUTPUT, /**< the attention's */
    BT_ADAPTER_GATE,
    BT_ADAPTER_UP,
    BT_ADAPTER_DOWN,
    BT_ADAPTER_N_PRODUCTS,
} bt_adapter_product_t;

/** Types of the matrices, numbered as in GGUF. */
#define BT_ADAPTER_F32  0u
#define BT_ADAPTER_F16  1u
#define BT_ADAPTER_BF16 30u

/** Update of one product of one layer. */
typedef struct bt_adapter_part {
    uint32_t layer;
    bt_adapter_product_t product;
    uint32_t rank; /**< 1 .. BT_ADAPTER_MAX_RANK */
    uint32_t n_in, n_out;
    uint32_t type; /**< both matrices' type: BT_ADAPTER_F32 … */
    float scale;
    const void *a; /**< (rank, n_in) */
    const void *b; /**< (n_out, rank) */
} bt_adapter_part_t;

typedef struct bt_adapter {
    bt_adapter_part_t *parts; /**< ascending by layer, then product; owned, as
                                   their matrices */
    uint32_t n_parts;         /**< at least 1 */
    uint32_t max_rank;
    size_t bytes; /**< bytes of all matrices */
    bt_hash128_t digest;
} bt_adapter_t;

/** Returns GGUF's name of a product, "attn_q". */
static inline const char *bt_adapter_product_name(bt_adapter_product_t product)
{
    static const char *const names[BT_ADAPTER_N_PRODUCTS] = {
        "attn_q",   "attn_k", "attn_v",   "attn_output",
        "ffn_gate", "ffn_up", "ffn_down",
    };

    return names[product];
}

#endif
