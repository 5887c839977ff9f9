/* SPDX-License-Identifier: Apache-2.0 */
/** @file tier_attn.h  Loading of keys and values with the type as a constant,
 *  for load_keys() and load_values() of a tier, and the common part of a
 *  softmax step. Included by a tier's file after the tier's header. */
#ifndef BT_KERNELS_CPU_TIER_ATTN_H
#define BT_KERNELS_CPU_TIER_ATTN_H

#include "kernels/cpu/tiers.h"

/** Loads keys and values; defined by the tier. See bt_cpu_isa_t. */
SPECIALIZE void load_keys(bt_kv_type_t type, const void *keys, size_t stride,
                          uint32_t first, uint32_t n, uint32_t dim,
                          uint16_t *out);
SPECIALIZE void load_values(bt_kv_type_t type, const void *values,
                            uint32_t first, uint32_t n, uint32_t dim,
                            uint16_t *out);

/* bt_soft_capped() of a register. Not inlined, as few models have a soft
 * cap. */
static __attribute__((noinline)) vec_t vec_capped(const bt_attn_tile_t *t,
                                                  vec_t s)
{
    const vec_t e = vec_exp(vec_mul(s, vec_all(t->cap_factor)));
    const vec_t below = vec_div(vec_all(2.0f), vec_add(e, vec_all(1.0f)));

    return vec_mul(vec_all(t->soft_cap), vec_sub(vec_all(1.0f), below));
}

/* Scores of positions first .. first + VEC - 1 of pair i, less the slope times
 * the distance. */
static __attribute__((noinline)) vec_t
vec_sloped(const bt_attn_tile_t *t, uint32_t i, uint32_t first, vec_t s)
{
    static const float lanes[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                    8, 9, 10, 11, 12, 13, 14, 15};
    const vec_t distance =
        vec_add(vec_all(t->before[i] + (float)first), vec_loadu(lanes));

    return vec_fma(vec_all(t->slope[i]), distance, s);
}

SPECIALIZE void load_keys_of(bt_kv_type_t type, const void *keys, size_t stride,
                             uint32_t first, uint32_t n, uint32_t dim,
                             uint16_t *out)
{
    switch (type) {
    case BT_KV_F16:
        load_keys(BT_KV_F16, keys, stride, first, n, dim, out);
        break;
    case BT_KV_BF16:
        load_keys(BT_KV_BF16, keys, stride, first, n, dim, out);
        break;
    case BT_KV_INT8:
        load_keys(BT_KV_INT8, keys, stride, first, n, dim, out);
        break;
    case BT_KV_FP8:
        load_keys(BT_KV_FP8, keys, stride, first, n, dim, out);
        break;
    }
}

SPECIALIZE void load_values_of(bt_kv_type_t type, const void *values,
                               uint32_t first, uint32_t n, uint32_t dim,
                               uint16_t *out)
{
    switch (type) {
    case BT_KV_F16:
        load_values(BT_KV_F16, values, first, n, dim, out);
        break;
    case BT_KV_BF16:
        load_values(BT_KV_BF16, values, first, n, dim, out);
        break;
    case BT_KV_INT8:
        load_values(BT_KV_INT8, values, first, n, dim, out);
        break;
    case BT_KV_FP8:
        load_values(BT_KV_FP8, values, first, n, dim, out);
        break;
    }
}

#endif
