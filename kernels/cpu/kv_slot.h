/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_slot.h  Addresses of vectors in the paged cache
 *  (docs/KV_LAYOUT.md). */
#ifndef BT_KERNELS_CPU_KV_SLOT_H
#define BT_KERNELS_CPU_KV_SLOT_H

#include "common/base/status.h"
#include "kernels/cpu/cpu.h"

/** Address of one vector of the cache, or of the first of several in
 *  neighbouring slots. */
typedef struct kv_slot {
    void *elems;  /**< first element; see kv_slot() */
    float *scale; /* NULL: none */
} kv_slot_t;

static inline size_t kv_elem_bytes(const bt_kv_view_t *kv)
{
    return bt_cpu_kv_scaled(kv->type) ? 1 : 2;
}

/** Returns the start of head @a kv_head of @a position. Part 0 is keys, (dim /
 *  2, T, 2), with element d at offset d / 2 * 2 T + d % 2; part 1 is values, (T
 *  / 2, dim, 2), with element d at offset 2 d. */
static inline kv_slot_t kv_slot(const bt_kv_view_t *kv, uint32_t layer,
                                const bt_ragged_seq_t *seq, uint32_t part,
                                uint32_t kv_head, uint32_t position)
{
    const size_t t = kv->tokens_per_block;
    const size_t slot = position % t;
    const size_t first =
        (part == 0) ? 2 * slot : slot / 2 * 2 * kv->head_dim + slot % 2;
    const uint32_t id =
        seq->blocks[position / t * (1 + (size_t)kv->n_other_groups) +
                    kv->group];
    uint8_t *block = (uint8_t *)kv->base + id * kv->block_bytes;
    const size_t vectors =
        (((size_t)layer * 2 + part) * kv->n_kv_heads + kv_head) * t;
    kv_slot_t at;

    at.elems = block + (vectors * kv->head_dim + first) * kv_elem_bytes(kv);
    at.scale = NULL;
    if (bt_cpu_kv_scaled(kv->type)) {
        size_t n_vectors = (size_t)kv->n_layers * 2 * kv->n_kv_heads * t;

        at.scale = (float *)(void *)(block + n_vectors * kv->head_dim);
        at.scale += vectors + slot;
    }
    return at;
}

static inline void kv_check_view(const bt_backend_t *be, const bt_kv_view_t *kv)
{
    BT_ASSERT((be->caps->kv_types >> kv->type & 1u) != 0);
    BT_ASSERT(kv->head_dim <= BT_MAX_HEAD_DIM);
    BT_ASSERT(kv->head_dim % 2 == 0);
    BT_ASSERT(kv->tokens_per_block % 2 == 0);
    /* Scales follow an even number of vectors' elements, so they are aligned to
     * whole floats. */
    BT_ASSERT(!bt_cpu_kv_scaled(kv->type) || (kv->block_bytes % 4 == 0));
    (void)be;
    (void)kv;
}

#endif
