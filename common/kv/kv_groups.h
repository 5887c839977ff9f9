/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_groups.h
 *
 * Layer groups: the layout of their KV, their blocks, and how memory is divided
 * among them.
 */
#ifndef BT_COMMON_KV_KV_GROUPS_H
#define BT_COMMON_KV_KV_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"

/*
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

/*
 * KV groups: layers of a model that share blocks. Each *group* has blocks of
 * its own, because not all layers need to keep the same tokens. A model whose
 * layers all use full attention is one group.
 *
 *     layer        0     1     2     3     4     5
 *     group        0     1     0     1     0     1
 *     index there  0     0     1     1     2     2
 *
 * A *span* is tokens_per_block tokens of a sequence, equal in all groups; it
 * has one block in each group, so that a sequence's *table* is n_groups ids per
 * span, of one pool:
 *
 *     table   [ span 0: group 0, group 1 ][ span 1: group 0, group 1 ] …
 *
 * A block of a PAGED group holds K and V of the span's tokens in the group's
 * layers. A block of a STATE group holds the state of its layers
 * (a recurrence, a convolution) after the span's last computed token. To
 * compute on after n tokens, a group needs
 *
 *     PAGED without window   all spans
 *     PAGED with window W    the spans of the last W - 1 tokens
 *     STATE                  the last span
 *
 * and that is what a sequence holds (kv_block_pool.h), what one worker sends to
 * another, and what a cached prefix must have to count as found. The plan below
 * says which layers share a group.
 *
 * All blocks of the pool, its *pages*, are as large as the largest group's: a
 * page serves any group, so there is one count of free blocks and one order of
 * admission, and no group can run out of blocks while another has some.
 *
 * Threads: pure functions.
 */

#define BT_KV_MAX_GROUPS 8u
#define BT_KV_NO_BLOCK   UINT32_MAX /**< in a table: absent, not needed */

typedef enum bt_kv_kind {
    BT_KV_PAGED = 0, /**< K and V of each token */
    BT_KV_STATE = 1, /**< fixed size, whatever the length */
} bt_kv_kind_t;

/** Group of layers. */
typedef struct bt_kv_group {
    bt_kv_kind_t kind;
    /** Shape of a block; n_layers counts the group's own layers. STATE: only
     *  n_layers and tokens_per_block are used. */
    bt_kv_shape_t shape;
    uint32_t window_tokens; /**< PAGED: tokens that a token attends to,
                                 itself included; 0 = all before it */
    size_t state_bytes;     /**< STATE: bytes of one layer */
} bt_kv_group_t;

/** Position of a model's layer. */
typedef struct bt_kv_place {
    uint32_t group;
    uint32_t index; /**< index of the layer in its group, from 0 */
} bt_kv_place_t;

/** Groups of a model, or of one rank's share of it. */
typedef struct bt_kv_groups {
    uint32_t n;
    uint32_t n_layers;    /**< layers of the model; in a share, of the share */
    uint32_t first_layer; /**< the model's number of layer 0 here; 0 except
                               in a share */
    uint32_t tokens_per_block;
    bt_kv_group_t group[BT_KV_MAX_GROUPS];
    size_t block_bytes[BT_KV_MAX_GROUPS]; /**< bytes that each group uses of
                                               a page */
    size_t page_bytes;                    /**< size of a block of the pool */
    bt_kv_place_t *places; /**< owned: for each layer; NULL: one group */
} bt_kv_groups_t;

/**
 * Initialises the groups of a model.
 *
 * @param [in]  list      [n] the groups; copied.
 * @param [in]  group_of  [n_layers] the group of each layer of the model; NULL
 *                        when there is one group.
 * @param [out] groups_p  Owned by the caller: bt_kv_groups_fini().
 * @retval BT_ERR_INVALID_PARAM  no group or too many; a group whose number of
 *                               layers does not match, or whose tokens per
 *                               block differ from the first group's; a shape or
 *                               state without a size
 * @retval BT_ERR_OVERFLOW       a block's size
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_kv_groups_init(const bt_kv_group_t *list,
                                            uint32_t n, const uint8_t *group_of,
                                            uint32_t n_layers,
                                            bt_kv_groups_t *groups_p);
/**
 * Initialises the one group of a model whose layers all use full attention: @a
 * shape has all of them.
 * @retval  as bt_kv_groups_init()
 */
BT_MUST_CHECK bt_status_t bt_kv_groups_one(const bt_kv_shape_t *shape,
                                           bt_kv_groups_t *groups_p);
void bt_kv_groups_fini(bt_kv_groups_t *groups);
/**
 * Derives the groups of a rank that holds some of the layers and KV heads
 * (kv_route.h): as many groups, with the rank's layers, which are counted
 * from 0; a group may have none.
 * @param [out] groups_p  Owned by the caller: bt_kv_groups_fini().
 * @retval BT_ERR_INVALID_PARAM  layers that the model does not have, or none
 * @retval  as bt_kv_groups_init()
 */
BT_MUST_CHECK bt_status_t bt_kv_groups_share(const bt_kv_groups_t *whole,
                                             uint32_t first_layer,
                                             uint32_t n_layers,
                                             uint32_t n_kv_heads,
                                             bt_kv_groups_t *groups_p);

/**
 * Returns the group and index of a layer.
 * @param [in] layer  Number of a layer of these groups.
 */
static inline bt_kv_place_t bt_kv_place(const bt_kv_groups_t *groups,
                                        uint32_t layer)
{
    const bt_kv_place_t same = {.group = 0, .index = layer};

    return (groups->places == NULL) ? same : groups->places[layer];
}

/** Returns the identity of the groups; both ends of a transfer compare it.
 *  For one PAGED group without window it is bt_kv_layout_identity() of its
 *  shape. */
bt_hash128_t bt_kv_groups_identity(const bt_kv_groups_t *groups,
                                   uint32_t kv_type, uint32_t order);

/** Returns the first span that is still needed to compute on after @a
 *  n_tokens tokens. All spans from it on are needed; none, if it is that of
 *  token n_tokens. */
uint32_t bt_kv_group_first_span(const bt_kv_group_t *group, uint64_t n_tokens);

/** True when a group needs only the last of the earlier spans. Sequences
 *  then release its other blocks (kv_block_pool.h). */
static inline bool bt_kv_group_is_windowed(const bt_kv_group_t *group)
{
    return (group->kind == BT_KV_STATE) || (group->window_tokens != 0);
}

/** Returns the number of groups that need all spans. */
uint32_t bt_kv_groups_n_whole(const bt_kv_groups_t *groups);

/** Returns the most spans of a windowed group that are needed at a time:
 *  those that the next token attends to, and those of @a ahead_tokens more
 *  to compute. */
uint32_t bt_kv_group_most_spans(const bt_kv_group_t *group,
                                uint32_t ahead_tokens);

/** Returns the bytes of one layer in a span, without scales: the mean over
 *  all layers, rounded down. */
size_t bt_kv_groups_layer_bytes(const bt_kv_groups_t *groups);

/**
 * Returns the bytes that a finished part of a forward pass has written in each
 * of a group's blocks.
 * @param [in] n_layers  layers of the model, from 0 on, that are computed; in a
 *                       share, layers before and after its own write nothing
 * @return bytes of each block, from its begin: whole layers, and after the last
 *     one what follows it (scales)
 */
size_t bt_kv_group_bytes_of(const bt_kv_groups_t *groups, uint32_t group,
                            uint32_t n_layers);

/*
 * Plans the groups in which a model's KV is kept, from the
 * attention window of each layer.
 *
 * All pages of the pool are as large as the largest group's block, so a group
 * of few layers leaves most of its pages empty. Therefore the layers of one
 * window size may be spread over several groups, so that all groups have about
 * as many layers. For a model of 26 layers, every sixth with full attention:
 *
 *     2 groups    22 windowed, 4 full           18 of the 22 slots of a page
 *                                               are empty in the full group
 *     7 groups    4 4 4 4 3 3 windowed, 4 full  2 of 28 slots
 *
 * Chosen is the division into at most BT_KV_MAX_GROUPS groups with which the
 * longest sequence takes the fewest bytes: full-attention groups count with the
 * whole context, windowed ones with their window. Among equals, the one with
 * the fewest groups, because each group costs a view, a transfer plan and an id
 * per span.
 *
 * A window no shorter than the context counts as full attention. So a model
 * without windows, and one whose windows are never full, is one group.
 *
 * Threads: pure functions.
 */

/**
 * Plans the groups of a model.
 *
 * @param [in]  shape           Of all layers together; they differ only in
 *                              their windows.
 * @param [in]  windows         [shape->n_layers] tokens that a token attends
 *                              to, itself included; 0: all before it.
 * @param [in]  context_tokens  Of the longest sequence, at least 1.
 * @param [out] groups_p        Owned by the caller: bt_kv_groups_fini().
 * @retval BT_ERR_UNSUPPORTED  more different windows than groups
 * @retval otherwise as bt_kv_groups_init()
 */
BT_MUST_CHECK bt_status_t bt_kv_groups_plan(const bt_kv_shape_t *shape,
                                            const uint32_t *windows,
                                            uint32_t context_tokens,
                                            bt_kv_groups_t *groups_p);

#endif
