/* SPDX-License-Identifier: Apache-2.0 */
/** @file made_up.h
 *
 * KV in which every byte says whose it is: a hash of (seed, element or scale,
 * layer, k or v, head, token's position, byte). Written through the definition
 * of the layout (kv_groups.h), element by element, and not through a plan. Of
 * n bytes in a wrong place, all are what belongs there once in 256^n. */
#ifndef BT_TESTS_UNIT_KV_MADE_UP_H
#define BT_TESTS_UNIT_KV_MADE_UP_H

#include <stddef.h>

#include "common/base/status.h"
#include "common/kv/kv_route.h"

/** @a array 0: an element, 1: a scale */
__attribute__((unused)) static uint8_t
made_up_byte(uint32_t seed, uint32_t array, uint32_t layer, uint32_t kv,
             uint32_t head, uint32_t position, uint32_t byte)
{
    const uint32_t fields[] = {seed, array, layer, kv, head, position, byte};
    uint32_t h = 2166136261u; /* FNV-1a */

    for (size_t i = 0; i < BT_ARRAY_LEN(fields); i++) {
        h = (h ^ fields[i]) * 16777619u;
        h ^= h >> 15;
    }
    return (uint8_t)(h ^ (h >> 8));
}

/** Block @a n of a sequence as the rank with @a part must hold it, to @a out
 *  unless that is NULL. @return its bytes */
__attribute__((unused)) static uint64_t
made_up_block(const bt_kv_shape_t *whole, const bt_kv_part_t *part,
              uint32_t seed, uint32_t n, uint8_t *out)
{
    const uint32_t unit[2] = {whole->head_dim * whole->elem_bytes,
                              whole->scale_bytes};
    const uint32_t per_block = whole->tokens_per_block;
    uint64_t at = 0;

    for (uint32_t array = 0; array < 2; array++) {
        for (uint32_t l = 0; l < part->n_layers; l++) {
            for (uint32_t kvh = 0; kvh < 2 * part->n_heads; kvh++) {
                const uint32_t kv = kvh / part->n_heads;
                const uint32_t head = part->first_head + kvh % part->n_heads;

                for (uint32_t slot = 0; slot < per_block; slot++) {
                    for (uint32_t b = 0; (out != NULL) && (b < unit[array]);
                         b++) {
                        out[at + b] =
                            made_up_byte(seed, array, part->first_layer + l, kv,
                                         head, n * per_block + slot, b);
                    }
                    at += unit[array];
                }
            }
        }
    }
    return at;
}

/** Bytes of the elements of one layer in such a block. */
__attribute__((unused)) static uint64_t
made_up_layer_bytes(const bt_kv_shape_t *whole, const bt_kv_part_t *part)
{
    bt_kv_shape_t shape = *whole;

    shape.n_kv_heads = part->n_heads;
    return bt_kv_layer_bytes(&shape);
}

#endif
