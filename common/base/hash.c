/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/hash.h"

#include <string.h>

#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include <xxhash.h>

#define COPY_PIECE_BYTES 8192

uint64_t bt_hash64(const void *data, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, n, seed);
}

bt_hash128_t bt_hash128(const void *data, size_t n, uint64_t seed)
{
    const XXH128_hash_t h = XXH3_128bits_withSeed(data, n, seed);
    const bt_hash128_t out = {.lo = h.low64, .hi = h.high64};

    return out;
}

uint64_t bt_hash64_copy(void *dst, const void *src, size_t n, uint64_t seed)
{
    XXH3_state_t state;
    size_t done = 0;

    XXH3_INITSTATE(&state);
    XXH3_64bits_reset_withSeed(&state, seed);
    while (done < n) {
        const size_t piece =
            (n - done < COPY_PIECE_BYTES) ? n - done : COPY_PIECE_BYTES;

        memcpy((char *)dst + done, (const char *)src + done, piece);
        XXH3_64bits_update(&state, (const char *)src + done, piece);
        done += piece;
    }
    return XXH3_64bits_digest(&state);
}
