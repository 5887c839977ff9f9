/* SPDX-License-Identifier: Apache-2.0 */
/** @file hash.h
 *
 * XXH3 hashes, the only includer of xxhash.h. Not for secrets: see
 * common/crypt/key.h for proofs.
 *
 * Source: Y. Collet, xxHash specification, XXH3 64 and 128 bits.
 */
#ifndef BT_COMMON_BASE_HASH_H
#define BT_COMMON_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bt_hash128 {
    uint64_t lo;
    uint64_t hi;
} bt_hash128_t;

/** True when two hashes are equal. Not in constant time. */
static inline bool bt_hash128_equal(bt_hash128_t a, bt_hash128_t b)
{
    return (a.lo == b.lo) && (a.hi == b.hi);
}

uint64_t bt_hash64(const void *data, size_t n, uint64_t seed);
bt_hash128_t bt_hash128(const void *data, size_t n, uint64_t seed);

/** Piece of data that follows the piece before. */
typedef struct bt_hash_piece {
    const void *src;
    void *dst; /**< destination of a copy; unused when only hashing */
    size_t n;
} bt_hash_piece_t;

/** Returns bt_hash64() of concatenated pieces. While one is hashed the next
 *  one is prefetched, which the processor does by itself only if it is
 *  adjacent: 2.7 times as fast for pieces of 8 KiB with gaps. */
uint64_t bt_hash64_pieces(const bt_hash_piece_t *pieces, uint32_t n_pieces,
                          uint64_t seed);
/**
 * Copies concatenated pieces and returns bt_hash64_pieces() of them, in one
 * pass: each tile is hashed while it is in the nearest cache. For memory that
 * another process reads next: the stores bypass the caches, and are visible to
 * others before any later store of the caller. The areas must not overlap.
 */
uint64_t bt_hash64_copy_pieces(const bt_hash_piece_t *pieces, uint32_t n_pieces,
                               uint64_t seed);
/** Copies as bt_hash64_copy_pieces() does, without hashing. */
void bt_copy_shared(void *dst, const void *src, size_t n);

#endif
