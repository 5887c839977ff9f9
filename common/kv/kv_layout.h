/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_layout.h
 *
 * Byte layout of one KV block, and which blocks hold which tokens.
 *
 *     elem[layer][kv][head][...]     row-major; a head of keys is
 *                                    [dim / 2][slot][2], two elements side by
 *                                    side, one of values [slot / 2][dim][2],
 *                                    two slots side by side
 *     layer < n_layers, kv: 0 = key 1 = value, head < n_kv_heads,
 *     slot < tokens_per_block, dim < head_dim
 *
 * Types with scales (int8, fp8) have them after all elements of the block, one
 * per token, head, layer and key or value:
 *
 *     scale[layer][kv][head][slot]
 *
 * So a whole block is one extent; one layer of a block is one extent, and one
 * more for its scales.
 *
 * Threads: pure functions.
 */
#ifndef BT_COMMON_KV_KV_LAYOUT_H
#define BT_COMMON_KV_KV_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"

/** Shape of a block. Counts, except those in bytes. All but scale_bytes must
 *  be non-zero. */
typedef struct bt_kv_shape {
    uint32_t n_layers;
    uint32_t n_kv_heads; /**< after GQA: fewer than the query heads */
    uint32_t tokens_per_block;
    uint32_t head_dim;
    uint32_t elem_bytes;  /**< bytes: 1 (int8, fp8), 2 (f16, bf16), 4 (f32) */
    uint32_t scale_bytes; /**< bytes: 0 = no scales, 2 or 4 */
} bt_kv_shape_t;

/**
 * Computes the size of one block.
 *
 * @param [in]  shape    Any values; a model file supplies them.
 * @param [out] bytes_p  Bytes per block. Written only on success.
 *
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  A count is zero, or elem_bytes or scale_bytes
 *                               is unknown.
 * @retval BT_ERR_OVERFLOW       The size exceeds SIZE_MAX.
 */
BT_MUST_CHECK bt_status_t bt_kv_block_bytes(const bt_kv_shape_t *shape,
                                            size_t *bytes_p);

/** Returns the bytes of the elements of one layer of a block: layer l begins
 *  at l times this. Only for a shape whose block has a size. */
static inline size_t bt_kv_layer_bytes(const bt_kv_shape_t *shape)
{
    return (size_t)2 * shape->n_kv_heads * shape->tokens_per_block *
           shape->head_dim * shape->elem_bytes;
}

/**
 * Returns the identity of a layout; both ends of a transfer compare it.
 * @param [in] kv_type  Element type number, as on the wire.
 * @param [in] order    Number of the order of dimensions, as the back end gives
 *                      it: 3 is the one above.
 */
bt_hash128_t bt_kv_layout_identity(const bt_kv_shape_t *shape, uint32_t kv_type,
                                   uint32_t order);

/** Returns the blocks that @a n_tokens tokens need, rounded up. */
static inline uint32_t bt_kv_blocks_for(uint64_t n_tokens,
                                        uint32_t tokens_per_block)
{
    return (uint32_t)((n_tokens + tokens_per_block - 1) / tokens_per_block);
}

#endif
