/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_groups.h
 *
 * What a sequence keeps of a model's layers: a list of *groups*, each with
 * blocks of its own, because not all layers need the same. A model whose layers
 * all attend to everything is one group.
 *
 *     layer        0     1     2     3     4     5
 *     group        0     1     0     1     0     1
 *     index there  0     0     1     1     2     2
 *
 * A *span* is tokens_per_block tokens of a sequence, the same in all groups; in
 * each group it has one block, so that a sequence's *table* is n_groups ids a
 * span, of one pool:
 *
 *     table   [ span 0: group 0, group 1 ][ span 1: group 0, group 1 ] …
 *
 * A block of a PAGED group holds K and V of the span's tokens in the group's
 * layers (kv_layout.h). One of a STATE group holds the state of its layers (a
 * recurrence, a convolution) after the span's last token that is computed. What
 * comes after n tokens needs of a group
 *
 *     PAGED without window   all spans
 *     PAGED with window W    the spans of the last W - 1 tokens
 *     STATE                  the last span
 *
 * and that is what a sequence holds (kv_hold.h), what one worker sends to
 * another, and what must be found of a prefix for it to count as found. Which
 * layers share a group is planned by kv_plan.h.
 *
 * All blocks of the pool, its *pages*, are as large as the largest group's: a
 * page serves any group, so there is one count of free blocks, one order of
 * admission, and no group can be out of blocks while another has some.
 *
 * Threads: pure functions.
 */
#ifndef BT_COMMON_KV_KV_GROUPS_H
#define BT_COMMON_KV_KV_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/kv/kv_layout.h"

#define BT_KV_MAX_GROUPS 8u
#define BT_KV_NO_BLOCK   UINT32_MAX /**< in a table: not there, nor needed */

typedef enum bt_kv_kind {
    BT_KV_PAGED = 0, /**< K and V of each token */
    BT_KV_STATE = 1, /**< of fixed size, whatever the length */
} bt_kv_kind_t;

typedef struct bt_kv_group {
    bt_kv_kind_t kind;
    /** n_layers are the group's own. STATE: n_layers and tokens_per_block
     *  alone count. */
    bt_kv_shape_t shape;
    uint32_t window_tokens; /**< PAGED: a token sees so many, itself counted
                                 in; 0 = all before it */
    size_t state_bytes;     /**< STATE: of one layer */
} bt_kv_group_t;

/** Where a layer of the model is. */
typedef struct bt_kv_place {
    uint32_t group;
    uint32_t index; /**< of the layer in its group, from 0 */
} bt_kv_place_t;

typedef struct bt_kv_groups {
    uint32_t n;
    uint32_t n_layers;    /**< of the model; of a share its own */
    uint32_t first_layer; /**< of the model, that is 0 here; 0 but of a share */
    uint32_t tokens_per_block;
    bt_kv_group_t group[BT_KV_MAX_GROUPS];
    size_t block_bytes[BT_KV_MAX_GROUPS]; /**< that each uses of a page */
    size_t page_bytes;                    /**< a block of the pool */
    bt_kv_place_t *places; /**< owned: of each layer; NULL: one group */
} bt_kv_groups_t;

/**
 * @param [in]  list      [n] the groups; copied.
 * @param [in]  group_of  [n_layers] the group of each layer of the model; NULL
 *                        when there is one.
 * @param [out] groups_p  Owned by the caller: bt_kv_groups_fini().
 * @retval BT_ERR_INVALID_PARAM  no group or too many; a group whose number of
 *                               layers is another than it says, or whose tokens
 *                               per block differ from the first one's; a shape
 *                               or state without a size
 * @retval BT_ERR_OVERFLOW       a block's size
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_kv_groups_init(const bt_kv_group_t *list,
                                            uint32_t n, const uint8_t *group_of,
                                            uint32_t n_layers,
                                            bt_kv_groups_t *groups_p);
/** Of a model whose layers all need the same: @a shape has all of them.
 *  @retval  as bt_kv_groups_init() */
BT_MUST_CHECK bt_status_t bt_kv_groups_one(const bt_kv_shape_t *shape,
                                           bt_kv_groups_t *groups_p);
void bt_kv_groups_fini(bt_kv_groups_t *groups);
/** What of them a rank keeps that has some of the layers and of the KV heads
 *  (kv_reshard.h): the same groups, of its layers, which are counted from 0;
 *  of a group there may be none.
 *  @param [out] groups_p  Owned by the caller: bt_kv_groups_fini().
 *  @retval BT_ERR_INVALID_PARAM  layers that the model does not have, or none
 *  @retval  as bt_kv_groups_init() */
BT_MUST_CHECK bt_status_t bt_kv_groups_share(const bt_kv_groups_t *whole,
                                             uint32_t first_layer,
                                             uint32_t n_layers,
                                             uint32_t n_kv_heads,
                                             bt_kv_groups_t *groups_p);

/** @param [in] layer  Of these. */
static inline bt_kv_place_t bt_kv_place(const bt_kv_groups_t *groups,
                                        uint32_t layer)
{
    const bt_kv_place_t same = {.group = 0, .index = layer};

    return (groups->places == NULL) ? same : groups->places[layer];
}

/** Identity of the list; both ends of a transfer compare it. That of one PAGED
 *  group without window is bt_kv_layout_identity() of its shape. */
bt_hash128_t bt_kv_groups_identity(const bt_kv_groups_t *groups,
                                   uint32_t kv_type, uint32_t order);

/** The first span whose block what comes after @a n_tokens tokens still needs.
 *  All from it on are needed; none, when it is that of token n_tokens. */
uint32_t bt_kv_group_first_span(const bt_kv_group_t *group, uint64_t n_tokens);

/** Does it need only the last of what came before? Then sequences let go of its
 *  other blocks (kv_hold.h). */
static inline bool bt_kv_group_is_windowed(const bt_kv_group_t *group)
{
    return (group->kind == BT_KV_STATE) || (group->window_tokens != 0);
}

/** Groups that need all spans. */
uint32_t bt_kv_groups_n_whole(const bt_kv_groups_t *groups);

/** Of a windowed group, the most spans that are needed at a time: those that
 *  what comes next sees, and those of @a ahead_tokens that may be computed. */
uint32_t bt_kv_group_most_spans(const bt_kv_group_t *group,
                                uint32_t ahead_tokens);

/** What a layer leaves in a span, without scales: taken over all layers,
 *  rounded down. */
size_t bt_kv_groups_layer_bytes(const bt_kv_groups_t *groups);

/** What a finished part of a forward pass has left in a group's blocks.
 *  @param [in] n_layers  of the model, from 0 on, are computed; of a share
 *                       those before and behind its own leave nothing
 *  @return bytes of each block, from its begin: whole layers, and behind the
 *          last one what lies behind it (scales) */
size_t bt_kv_group_bytes_of(const bt_kv_groups_t *groups, uint32_t group,
                            uint32_t n_layers);

#endif
