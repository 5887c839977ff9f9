/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_groups.h
 *
 * Layout of the KV cache of a model, in three parts:
 *
 *     block   bytes of one block: layers, heads, tokens, scales
 *     group   layers that share blocks, and which tokens they still need
 *     plan    division of a model's layers into groups
 *
 * The block pool and what a sequence holds are in kv_block_pool.h.
 */
#ifndef BT_COMMON_KV_KV_GROUPS_H
#define BT_COMMON_KV_KV_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"

/*
 * Block: the K and V of tokens_per_block tokens, for the layers and KV heads of
 * one group. Row-major:
 *
 *     elem[layer][kv][head][...]   layer < n_layers, kv: 0 = key, 1 = value,
 *                                  head < n_kv_heads
 *       one head of keys           [dim / 2][slot][2]: two neighbouring dims
 *                                  of a token side by side
 *       one head of values         [slot / 2][dim][2]: one dim of two
 *                                  neighbouring tokens side by side
 *                                  slot < tokens_per_block, dim < head_dim
 *
 * Element types with scales (int8, fp8) store all scales after all elements of
 * the block, one scale for each token, head, layer and key or value:
 *
 *     scale[layer][kv][head][slot]
 *
 * So a whole block is one extent of bytes. One layer of a block is one extent,
 * and one more for its scales.
 *
 * Threads: pure functions.
 */

/** Shape of a block. Every field but scale_bytes must be non-zero. */
typedef struct bt_kv_shape {
    uint32_t n_layers;
    uint32_t n_kv_heads; /**< KV heads; fewer than query heads with GQA */
    uint32_t tokens_per_block;
    uint32_t head_dim;
    uint32_t elem_bytes;  /**< bytes of an element: 1 (int8, fp8), 2 (f16,
                               bf16), 4 (f32) */
    uint32_t scale_bytes; /**< bytes of a scale: 2 or 4; 0 = no scales */
} bt_kv_shape_t;

/**
 * Computes the size of one block with its scales.
 *
 * @param [in]  shape    Any values are allowed: they come from a model file.
 * @param [out] bytes_p  Bytes per block. Written only on success.
 *
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  A count is zero, or elem_bytes or scale_bytes
 *                               is not one of the listed values.
 * @retval BT_ERR_OVERFLOW       The size exceeds SIZE_MAX.
 */
BT_MUST_CHECK bt_status_t bt_kv_block_bytes(const bt_kv_shape_t *shape,
                                            size_t *bytes_p);

/** Returns the bytes of one layer of a block, without scales. Layer l begins at
 *  l times this size. The shape must be one that bt_kv_block_bytes() accepts.
 */
static inline size_t bt_kv_layer_bytes(const bt_kv_shape_t *shape)
{
    return (size_t)2 * shape->n_kv_heads * shape->tokens_per_block *
           shape->head_dim * shape->elem_bytes;
}

/**
 * Returns a hash of the block layout. Both ends of a KV transfer compare it.
 * @param [in] kv_type  Element type number, as on the wire.
 * @param [in] order    Number of the order of dimensions, given by the back
 *                      end; 3 is the order drawn at the top of this header.
 */
bt_hash128_t bt_kv_layout_identity(const bt_kv_shape_t *shape, uint32_t kv_type,
                                   uint32_t order);

/** Returns how many blocks hold @a n_tokens tokens, rounded up. */
static inline uint32_t bt_kv_blocks_for(uint64_t n_tokens,
                                        uint32_t tokens_per_block)
{
    return (uint32_t)((n_tokens + tokens_per_block - 1) / tokens_per_block);
}

/*
 * Layer groups: layers of a model that share blocks. Not all layers need to
 * keep the same tokens, so each *group* has blocks of its own. A model whose
 * layers all use full attention has one group.
 *
 *     layer            0     1     2     3     4     5
 *     group            0     1     0     1     0     1
 *     index in group   0     0     1     1     2     2
 *
 * A *span* is tokens_per_block consecutive tokens of a sequence. A span has one
 * block in each group. The block table of a sequence, its *table*, has n_groups
 * block ids per span, all of one pool:
 *
 *     table   [ span 0: group 0, group 1 ][ span 1: group 0, group 1 ] …
 *
 * A block of a PAGED group holds K and V of the tokens of the span. A block of
 * a STATE group holds the recurrent or convolution state of its layers after
 * the last computed token of the span. To continue after n tokens, a group
 * needs:
 *
 *     PAGED without window   all spans
 *     PAGED with window W    the spans of the last W - 1 tokens
 *     STATE                  the last span
 *
 * A sequence holds these spans (kv_block_pool.h), a KV transfer sends them
 * (kv_route.h), and a prefix counts as cached only if the cache has them
 * (kv_prefix.h).
 *
 * All blocks of the pool, its *pages*, have the size of the largest group's
 * block, so a page serves any group. There is one count of free blocks and one
 * order of admission, and no group runs out of blocks while another has some.
 *
 * Threads: pure functions.
 */

#define BT_KV_MAX_GROUPS 8u
#define BT_KV_NO_BLOCK   UINT32_MAX /**< table entry: there is no block */

typedef enum bt_kv_kind {
    BT_KV_PAGED = 0, /**< K and V of each token */
    BT_KV_STATE = 1, /**< a state of fixed size, whatever the length */
} bt_kv_kind_t;

/** Layer group: layers of a model whose KV shares blocks. */
typedef struct bt_kv_group {
    bt_kv_kind_t kind;
    /** Shape of a block of this group; n_layers counts the layers of the group
     *  only. STATE: only n_layers and tokens_per_block are used. */
    bt_kv_shape_t shape;
    uint32_t window_tokens; /**< PAGED: attention window: how many tokens a
                                 token attends to, itself included; 0 = all
                                 before it. STATE: 0 */
    size_t state_bytes;     /**< STATE: bytes of the state of one layer */
} bt_kv_group_t;

/** Group of a layer, and the position of the layer in that group. */
typedef struct bt_kv_layer_slot {
    uint32_t group;
    uint32_t index; /**< number of the layer in its group, from 0 */
} bt_kv_layer_slot_t;

/** Layer groups of a model, or of the part of it that one rank holds. */
typedef struct bt_kv_groups {
    uint32_t n;
    uint32_t n_layers;    /**< layers in all groups: the model's or the rank's
                           */
    uint32_t first_layer; /**< layer of the model that is layer 0 here; 0 for a
                               whole model */
    uint32_t tokens_per_block;
    bt_kv_group_t group[BT_KV_MAX_GROUPS];
    size_t block_bytes[BT_KV_MAX_GROUPS]; /**< bytes that a block of each group
                                               uses of its page */
    size_t page_bytes;                    /**< size of a block of the pool */
    bt_kv_layer_slot_t
        *layer_slots; /**< [n_layers], owned; NULL when there is one group
                       */
} bt_kv_groups_t;

/**
 * Initialises the layer groups of a model.
 *
 * @param [in]  list      [n] groups; copied.
 * @param [in]  group_of  [n_layers] group of each layer of the model; may be
 *                        NULL when n is 1.
 * @param [out] groups_p  Owned by the caller; free with bt_kv_groups_fini().
 *                        Written only on success.
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  no group or more than BT_KV_MAX_GROUPS; a
 *                               group whose layers in group_of are not as many
 *                               as its shape says; groups that differ in tokens
 *                               per block; a shape or state without a size
 * @retval BT_ERR_OVERFLOW       The size of a block exceeds SIZE_MAX.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_kv_groups_init(const bt_kv_group_t *list,
                                            uint32_t n, const uint8_t *group_of,
                                            uint32_t n_layers,
                                            bt_kv_groups_t *groups_p);
void bt_kv_groups_fini(bt_kv_groups_t *groups);
/**
 * Derives the groups of a rank that holds some layers and KV heads of a model
 * (kv_route.h). The number of groups stays; a group may have no layers in this
 * rank. Layers of the rank are numbered from 0.
 * @param [out] groups_p  Owned by the caller; free with bt_kv_groups_fini().
 *                        Written only on success.
 * @retval BT_ERR_INVALID_PARAM  n_layers is 0, or the model does not have these
 *                               layers
 * @retval  any of bt_kv_groups_init()
 */
BT_MUST_CHECK bt_status_t bt_kv_groups_share(const bt_kv_groups_t *whole,
                                             uint32_t first_layer,
                                             uint32_t n_layers,
                                             uint32_t n_kv_heads,
                                             bt_kv_groups_t *groups_p);

/**
 * Returns the group of a layer, and its index in that group.
 * @param [in] layer  Number of the layer, below groups->n_layers.
 */
static inline bt_kv_layer_slot_t bt_kv_layer_slot(const bt_kv_groups_t *groups,
                                                  uint32_t layer)
{
    const bt_kv_layer_slot_t same = {.group = 0, .index = layer};

    return (groups->layer_slots == NULL) ? same : groups->layer_slots[layer];
}

/** Returns a hash of the groups, their block layouts and windows. Both ends of
 *  a KV transfer compare it. For one PAGED group without window it equals
 *  bt_kv_layout_identity() of its shape. */
bt_hash128_t bt_kv_groups_identity(const bt_kv_groups_t *groups,
                                   uint32_t kv_type, uint32_t order);

/** Returns the first span that a group needs to continue after @a n_tokens
 *  tokens. The group needs all spans from there up to token n_tokens - 1: none,
 *  if the result is the span in which token n_tokens begins. */
uint32_t bt_kv_group_first_span(const bt_kv_group_t *group, uint64_t n_tokens);

/** True when a group needs only the last spans of a sequence: attention with a
 *  window, or a state. Sequences release the blocks of older spans
 *  (kv_block_pool.h). */
static inline bool bt_kv_group_is_windowed(const bt_kv_group_t *group)
{
    return (group->kind == BT_KV_STATE) || (group->window_tokens != 0);
}

/** Returns the number of groups that need all spans: full attention. */
uint32_t bt_kv_groups_n_whole(const bt_kv_groups_t *groups);

/** Returns the largest number of spans that a windowed group needs at a time:
 *  spans that the next token attends to, and spans of @a ahead_tokens tokens
 *  that may be computed before the window moves. */
uint32_t bt_kv_group_most_spans(const bt_kv_group_t *group,
                                uint32_t ahead_tokens);

/** Returns the bytes of one layer in a span, without scales: the mean over all
 *  layers, rounded down. */
size_t bt_kv_groups_layer_bytes(const bt_kv_groups_t *groups);

/**
 * Returns how many leading bytes of a block are written when the first layers
 * of a forward pass are computed.
 * @param [in] group     Group whose block is asked for.
 * @param [in] n_layers  Number of computed layers of the model, from layer 0
 *                       on. With the groups of a rank, layers of other ranks
 *                       write nothing.
 * @return bytes from the begin of the block: whole layers; with the last layer
 *     of the group also the scales, that is the whole block
 */
size_t bt_kv_group_bytes_of(const bt_kv_groups_t *groups, uint32_t group,
                            uint32_t n_layers);

/*
 * Plan: divides the layers of a model into groups by their attention windows.
 *
 * All pages of the pool have the size of the largest group's block, so a group
 * of few layers leaves most of each page empty. Therefore layers with one
 * window size may be spread over several groups, so that all groups have about
 * as many layers. A model of 26 layers, of which 4 use full attention:
 *
 *     2 groups    22 windowed, 4 full           18 of the 22 layer slots of a
 *                                               page are empty in the full
 * group 7 groups    4 4 4 4 3 3 windowed, 4 full  2 of 28 layer slots are empty
 *
 * The plan is the division into at most BT_KV_MAX_GROUPS groups with which the
 * longest sequence takes the fewest bytes. A full-attention group counts with
 * the whole context, a windowed group with its window. Among equal divisions
 * the plan has the fewest groups, because each group costs a KV view, a
 * transfer plan and a block id per span.
 *
 * A window at least as long as the context counts as full attention. So a model
 * without windows, or with windows that never fill, has one group.
 *
 * Threads: pure functions.
 */

/**
 * Plans the layer groups of a model.
 *
 * @param [in]  shape           Shape of a block with all layers; layers differ
 *                              only in their windows.
 * @param [in]  windows         [shape->n_layers] attention window in tokens, a
 *                              token itself included; 0: full attention.
 * @param [in]  context_tokens  Length of the longest sequence, at least 1.
 * @param [out] groups_p        Owned by the caller; free with
 *                              bt_kv_groups_fini().
 * @retval BT_ERR_UNSUPPORTED  more different windows than BT_KV_MAX_GROUPS
 * @retval  any of bt_kv_groups_init()
 */
BT_MUST_CHECK bt_status_t bt_kv_groups_plan(const bt_kv_shape_t *shape,
                                            const uint32_t *windows,
                                            uint32_t context_tokens,
                                            bt_kv_groups_t *groups_p);

#endif
