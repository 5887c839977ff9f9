/* SPDX-License-Identifier: Apache-2.0 */
/** @file hash_tier.h
 *
 * Private to hash.c: functions that gain from wider vectors, compiled for every
 * processor and once more for those with AVX2. The values are equal.
 */
#ifndef BT_COMMON_BASE_HASH_TIER_H
#define BT_COMMON_BASE_HASH_TIER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"

uint64_t bt_hash_base_hash64(const void *data, size_t n, uint64_t seed);
uint64_t bt_hash_base_pieces(const bt_hash_piece_t *pieces, uint32_t n_pieces,
                             uint64_t seed);
uint64_t bt_hash_base_copy_pieces(const bt_hash_piece_t *pieces,
                                  uint32_t n_pieces, uint64_t seed);
void bt_hash_base_copy(void *dst, const void *src, size_t n);

uint64_t bt_hash_avx2_hash64(const void *data, size_t n, uint64_t seed);
uint64_t bt_hash_avx2_pieces(const bt_hash_piece_t *pieces, uint32_t n_pieces,
                             uint64_t seed);
uint64_t bt_hash_avx2_copy_pieces(const bt_hash_piece_t *pieces,
                                  uint32_t n_pieces, uint64_t seed);
void bt_hash_avx2_copy(void *dst, const void *src, size_t n);

#endif
