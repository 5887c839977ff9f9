/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/base/hash_tier.h"
#include "common/base/status.h"

static uint64_t copy_of_one(void *dst, const void *src, size_t n, uint64_t seed)
{
    const bt_hash_piece_t piece = {.src = src, .dst = dst, .n = n};

    return bt_hash64_copy_pieces(&piece, 1, seed);
}

/* XXH3-64 of the empty string and "a" with seed 0, as printed by
 * `xxhsum -H3` of the xxHash distribution. */
static void hash_is_xxh3(void **state)
{
    char src[20000];
    char dst[20000];

    (void)state;
    assert_int_equal(bt_hash64("", 0, 0), 0x2d06800538d394c2u);
    assert_int_equal(bt_hash64("a", 1, 0), 0xe6c632b61e964e1fu);
    for (size_t i = 0; i < sizeof(src); i++) {
        src[i] = (char)(i * 7 + i / 251);
    }
    for (size_t n = 0; n <= sizeof(src); n += 1237) {
        assert_int_equal(copy_of_one(dst, src, n, 99), bt_hash64(src, n, 99));
        assert_memory_equal(dst, src, n);
    }
}

typedef uint64_t (*pieces_t)(const bt_hash_piece_t *pieces, uint32_t n_pieces,
                             uint64_t seed);

/* Cut where nothing is a multiple of anything, once into nothing. */
static uint64_t in_pieces(pieces_t hash, const uint8_t *src, size_t n)
{
    const size_t first = n / 3, second = n / 2;
    const bt_hash_piece_t pieces[] = {
        {.src = src, .n = first},
        {.src = src + first, .n = 0},
        {.src = src + first, .n = second - first},
        {.src = src + second, .n = n - second},
    };

    return hash(pieces, BT_ARRAY_LEN(pieces), 99);
}

/* Expected: XXH3_64bits_withSeed() of Debian's libxxhash.so 0.8.1 over the same
 * bytes with seed 99. Every tier that the processor has must give them. */
static void hash_of_long_input_is_xxh3_in_every_tier(void **state)
{
    static const struct {
        size_t n;
        uint64_t hash;
    } known[] = {{241, 0x162847d2a2be1fd8u},
                 {1024, 0x50fe9361b0a132a2u},
                 {1025, 0xee650dd1b2bc8825u},
                 {4096, 0x17413986fbfe8923u},
                 {20000, 0x29d9cb4e48f5d6ddu}};
    static uint8_t src[20000];

    (void)state;
    for (size_t i = 0; i < sizeof(src); i++) {
        src[i] = (uint8_t)(i * 7 + i / 251);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(known); i++) {
        assert_int_equal(bt_hash64(src, known[i].n, 99), known[i].hash);
        assert_int_equal(bt_hash_base_hash64(src, known[i].n, 99),
                         known[i].hash);
        assert_int_equal(in_pieces(bt_hash64_pieces, src, known[i].n),
                         known[i].hash);
        assert_int_equal(in_pieces(bt_hash_base_pieces, src, known[i].n),
                         known[i].hash);
    }
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") != 0) {
        for (size_t i = 0; i < BT_ARRAY_LEN(known); i++) {
            assert_int_equal(bt_hash_avx2_hash64(src, known[i].n, 99),
                             known[i].hash);
            assert_int_equal(in_pieces(bt_hash_avx2_pieces, src, known[i].n),
                             known[i].hash);
        }
    }
#endif
}

typedef uint64_t (*copy64_t)(void *dst, const void *src, size_t n,
                             uint64_t seed);

static uint64_t copy_of_base(void *dst, const void *src, size_t n,
                             uint64_t seed)
{
    const bt_hash_piece_t piece = {.src = src, .dst = dst, .n = n};

    return bt_hash_base_copy_pieces(&piece, 1, seed);
}

#if defined(__x86_64__)
static uint64_t copy_of_avx2(void *dst, const void *src, size_t n,
                             uint64_t seed)
{
    const bt_hash_piece_t piece = {.src = src, .dst = dst, .n = n};

    return bt_hash_avx2_copy_pieces(&piece, 1, seed);
}
#endif

static uint64_t copy_of_pieces(void *dst, const void *src, size_t n,
                               uint64_t seed)
{
    const size_t first = n / 3;
    const bt_hash_piece_t pieces[] = {{.src = src, .dst = dst, .n = first},
                                      {.src = (const char *)src + first,
                                       .dst = (char *)dst + first,
                                       .n = n - first}};

    return bt_hash64_copy_pieces(pieces, BT_ARRAY_LEN(pieces), seed);
}

static uint64_t copy_then_hash(void *dst, const void *src, size_t n,
                               uint64_t seed)
{
    bt_copy_shared(dst, src, n);
    return bt_hash64(src, n, seed);
}

static void copies_are_exact_at_any_alignment_and_length(void **state)
{
    copy64_t copies[5] = {copy_of_one, copy_of_base, copy_then_hash,
                          copy_of_pieces};
    static uint8_t src[9000], dst[sizeof(src) + 128];
    size_t n_copies = 4;

    (void)state;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") != 0) {
        copies[n_copies++] = copy_of_avx2;
    }
#endif
    for (size_t i = 0; i < sizeof(src); i++) {
        src[i] = (uint8_t)(1 + i * 13 + i / 251);
    }
    for (size_t k = 0; k < n_copies; k++) {
        for (size_t n = 0; n + 64 <= sizeof(src); n += (n < 400) ? 1 : 1193) {
            const size_t at = (n * 5) % 64;

            memset(dst, 0xa5, sizeof(dst));
            assert_int_equal(copies[k](dst + at, src + n % 7, n, 5),
                             bt_hash64(src + n % 7, n, 5));
            assert_memory_equal(dst + at, src + n % 7, n);
            for (size_t i = 0; i < sizeof(dst); i++) {
                if (((i < at) || (i >= at + n)) && (dst[i] != 0xa5)) {
                    fail_msg("byte %zu outside of a copy changed", i);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(hash_is_xxh3),
        BT_TEST(hash_of_long_input_is_xxh3_in_every_tier),
        BT_TEST(copies_are_exact_at_any_alignment_and_length),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
