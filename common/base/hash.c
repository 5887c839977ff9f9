/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled twice on x86-64: whole, and with BT_HASH_TIER_AVX2 only the
 * functions of hash_tier.h, under the other names. */
#include "common/base/hash.h"

#include <stdbool.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/base/hash_tier.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(BT_HASH_TIER_AVX2)
#define TIER(name) bt_hash_avx2_##name
typedef __m256i vector_t;
#define VECTOR_LOAD(p)      _mm256_loadu_si256((const vector_t *)(const void *)(p))
#define VECTOR_STREAM(p, v) _mm256_stream_si256((vector_t *)(void *)(p), (v))
#define HAVE_STREAM         1
#elif defined(__SSE2__)
#define TIER(name)          bt_hash_base_##name
typedef __m128i vector_t;
#define VECTOR_LOAD(p)      _mm_loadu_si128((const vector_t *)(const void *)(p))
#define VECTOR_STREAM(p, v) _mm_stream_si128((vector_t *)(void *)(p), (v))
#define HAVE_STREAM         1
#else
#define TIER(name)  bt_hash_base_##name
#define HAVE_STREAM 0
#endif

/* Copied by stores past the caches and then hashed out of the nearest one.
 * Larger tiles were slower: the stores wait behind the hashing. */
#define TILE_BYTES 4096u

/* Bytes hashed between two bursts of prefetches. They go into the second
 * level: as many into the first one are no faster than none. */
#define AHEAD_BYTES 1024u
#define LINE_BYTES  64u

#if HAVE_STREAM
/** Copies with non-temporal stores: no line is read to be overwritten whole,
 *  no line that another core holds is fetched from there. */
static void tile_copy(char *dst, const char *src, size_t n)
{
    const size_t v = sizeof(vector_t);
    const size_t off = (size_t)((uintptr_t)dst % v);
    const size_t head = (off == 0) ? 0 : v - off;
    size_t i = 0;

    if (n < head + 4 * v) {
        memcpy(dst, src, n);
        return;
    }
    memcpy(dst, src, head);
    for (i = head; n - i >= 4 * v; i += 4 * v) {
        const vector_t a = VECTOR_LOAD(src + i);
        const vector_t b = VECTOR_LOAD(src + i + v);
        const vector_t c = VECTOR_LOAD(src + i + 2 * v);
        const vector_t d = VECTOR_LOAD(src + i + 3 * v);

        VECTOR_STREAM(dst + i, a);
        VECTOR_STREAM(dst + i + v, b);
        VECTOR_STREAM(dst + i + 2 * v, c);
        VECTOR_STREAM(dst + i + 3 * v, d);
    }
    memcpy(dst + i, src + i, n - i);
}

static void copy_fence(void)
{
    _mm_sfence(); /* such stores are in no order with later ones */
}
#else
static void tile_copy(char *dst, const char *src, size_t n)
{
    memcpy(dst, src, n);
}

static void copy_fence(void)
{
}
#endif

uint64_t TIER(hash64)(const void *data, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, n, seed);
}

/* Lines of bytes [at, at + n) of a piece, of which it may have less. */
static void bring_near(const bt_hash_piece_t *piece, size_t at, size_t n)
{
    const size_t end = (piece->n < at + n) ? piece->n : at + n;

    for (size_t i = at; i < end; i += LINE_BYTES) {
        __builtin_prefetch((const char *)piece->src + i, 0, 2);
    }
}

uint64_t TIER(pieces)(const bt_hash_piece_t *pieces, uint32_t n_pieces,
                      uint64_t seed)
{
    XXH3_state_t state;

    XXH3_INITSTATE(&state);
    XXH3_64bits_reset_withSeed(&state, seed);
    for (uint32_t i = 0; i < n_pieces; i++) {
        const char *const src = pieces[i].src;
        const size_t n = pieces[i].n;

        for (size_t at = 0; at < n; at += AHEAD_BYTES) {
            if (i + 1 < n_pieces) {
                bring_near(&pieces[i + 1], at, AHEAD_BYTES);
            }
            XXH3_64bits_update(&state, src + at,
                               (n - at < AHEAD_BYTES) ? n - at : AHEAD_BYTES);
        }
    }
    return XXH3_64bits_digest(&state);
}

uint64_t TIER(copy_pieces)(const bt_hash_piece_t *pieces, uint32_t n_pieces,
                           uint64_t seed)
{
    XXH3_state_t state;

    XXH3_INITSTATE(&state);
    XXH3_64bits_reset_withSeed(&state, seed);
    for (uint32_t i = 0; i < n_pieces; i++) {
        const char *const src = pieces[i].src;
        const size_t n = pieces[i].n;

        for (size_t at = 0; at < n; at += TILE_BYTES) {
            const size_t m = (n - at < TILE_BYTES) ? n - at : TILE_BYTES;

            tile_copy((char *)pieces[i].dst + at, src + at, m);
            XXH3_64bits_update(&state, src + at, m);
        }
    }
    copy_fence();
    return XXH3_64bits_digest(&state);
}

void TIER(copy)(void *dst, const void *src, size_t n)
{
    tile_copy(dst, src, n);
    copy_fence();
}

#if !defined(BT_HASH_TIER_AVX2)

/* Up to here XXH3 uses no vectors. */
#define SHORT_BYTES 240u

#if defined(__x86_64__)
static bool avx2(void)
{
    return __builtin_cpu_supports("avx2") != 0;
}
#define PICK(name) (avx2() ? bt_hash_avx2_##name : bt_hash_base_##name)
#else
#define PICK(name) bt_hash_base_##name
#endif

uint64_t bt_hash64(const void *data, size_t n, uint64_t seed)
{
    if (n <= SHORT_BYTES) {
        return XXH3_64bits_withSeed(data, n, seed);
    }
    return PICK(hash64)(data, n, seed);
}

uint64_t bt_hash64_pieces(const bt_hash_piece_t *pieces, uint32_t n_pieces,
                          uint64_t seed)
{
    return PICK(pieces)(pieces, n_pieces, seed);
}

bt_hash128_t bt_hash128(const void *data, size_t n, uint64_t seed)
{
    const XXH128_hash_t h = XXH3_128bits_withSeed(data, n, seed);
    const bt_hash128_t out = {.lo = h.low64, .hi = h.high64};

    return out;
}

uint64_t bt_hash64_copy_pieces(const bt_hash_piece_t *pieces, uint32_t n_pieces,
                               uint64_t seed)
{
    return PICK(copy_pieces)(pieces, n_pieces, seed);
}

void bt_copy_shared(void *dst, const void *src, size_t n)
{
    PICK(copy)(dst, src, n);
}

#endif
