/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/containers.h"
#include "common/base/hash.h"
#include "common/base/hash_tier.h"
#include "common/base/process.h"
#include "common/base/status.h"
#include "common/base/text.h"

static void strbuf_over_its_limit_reports_too_large(void **state)
{
    bt_strbuf_t buf;

    (void)state;
    bt_strbuf_init(&buf, 10);
    bt_strbuf_puts(&buf, "12345");
    bt_strbuf_printf(&buf, "%d", 678);
    assert_int_equal(bt_strbuf_status(&buf), BT_OK);
    assert_string_equal(buf.data, "12345678");

    bt_strbuf_puts(&buf, "xyz"); /* 11 bytes */
    assert_int_equal(bt_strbuf_status(&buf), BT_ERR_TOO_LARGE);
    assert_int_equal(buf.len, 8);
    bt_strbuf_puts(&buf, "x"); /* would fit, but the error sticks */
    assert_int_equal(buf.len, 8);

    bt_strbuf_reset(&buf);
    bt_strbuf_puts(&buf, "abcdef");
    bt_strbuf_consume(&buf, 2);
    assert_string_equal(buf.data, "cdef");
    bt_strbuf_consume(&buf, 100);
    assert_string_equal(buf.data, "");
    bt_strbuf_fini(&buf);
}

static void strbuf_reserves_exactly_the_requested_bytes(void **state)
{
    bt_strbuf_t buf;

    (void)state;
    bt_strbuf_init(&buf, 5000);
    bt_strbuf_reserve(&buf, 5000);
    assert_int_equal(buf.cap, 5001); /* and the zero byte */
    assert_string_equal(buf.data, "");
    for (int i = 0; i < 500; i++) {
        bt_strbuf_puts(&buf, "ten bytes.");
    }
    assert_int_equal(buf.cap, 5001);
    assert_int_equal(buf.len, 5000);
    bt_strbuf_reserve(&buf, 100); /* it is there already */
    assert_int_equal(buf.cap, 5001);
    assert_int_equal(bt_strbuf_status(&buf), BT_OK);
    bt_strbuf_reserve(&buf, 5001);
    assert_int_equal(bt_strbuf_status(&buf), BT_ERR_TOO_LARGE);
    bt_strbuf_fini(&buf);

    bt_strbuf_init(&buf, 5000);
    bt_alloc_fail_at(1);
    bt_strbuf_reserve(&buf, 5000);
    bt_alloc_fail_at(0);
    assert_int_equal(bt_strbuf_status(&buf), BT_ERR_NO_MEMORY);
    assert_null(buf.data);
    bt_strbuf_fini(&buf);
}

static void strbuf_reports_a_failed_allocation(void **state)
{
    bt_strbuf_t buf;

    (void)state;
    bt_strbuf_init(&buf, 100);
    bt_alloc_fail_at(1);
    bt_strbuf_puts(&buf, "a");
    bt_alloc_fail_at(0);
    assert_int_equal(bt_strbuf_status(&buf), BT_ERR_NO_MEMORY);
    bt_strbuf_fini(&buf);
}

static void full_ring_returns_busy(void **state)
{
    bt_ring_t *ring = NULL;
    int items[3];

    (void)state;
    assert_int_equal(bt_ring_create(3, &ring), BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_ring_create(2, &ring), BT_OK);
    assert_null(bt_ring_pop(ring));
    assert_int_equal(bt_ring_push(ring, &items[0]), BT_OK);
    assert_int_equal(bt_ring_push(ring, &items[1]), BT_OK);
    assert_int_equal(bt_ring_push(ring, &items[2]), BT_ERR_BUSY);
    assert_ptr_equal(bt_ring_pop(ring), &items[0]);
    assert_ptr_equal(bt_ring_pop(ring), &items[1]);
    assert_null(bt_ring_pop(ring));
    bt_ring_destroy(ring);
}

#define N_PASSED 200000u

static void *ring_producer(void *arg)
{
    bt_ring_t *ring = arg;

    for (uintptr_t i = 1; i <= N_PASSED; i++) {
        while (bt_ring_push(ring, (void *)i) != BT_OK) {
        }
    }
    return NULL;
}

static void ring_keeps_order_and_wakes_a_sleeper(void **state)
{
    bt_ring_t *ring = NULL;
    pthread_t producer;

    (void)state;
    assert_int_equal(bt_ring_create(64, &ring), BT_OK);
    assert_int_equal(pthread_create(&producer, NULL, ring_producer, ring), 0);
    for (uintptr_t want = 1; want <= N_PASSED;) {
        void *item = bt_ring_pop(ring);

        if (item == NULL) {
            bt_ring_wait(ring, -1);
            continue;
        }
        assert_int_equal((uintptr_t)item, want);
        want++;
    }
    pthread_join(producer, NULL);
    bt_ring_destroy(ring);
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
        assert_int_equal(bt_hash64_copy(dst, src, n, 99),
                         bt_hash64(src, n, 99));
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
    copy64_t copies[5] = {bt_hash64_copy, copy_of_base, copy_then_hash,
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

static void list_removes_twice_without_harm(void **state)
{
    bt_list_t head;
    bt_list_t a;
    bt_list_t b;

    (void)state;
    bt_list_init(&head);
    assert_true(bt_list_empty(&head));
    bt_list_push_back(&head, &a);
    bt_list_push_back(&head, &b);
    bt_list_remove(&a);
    bt_list_remove(&a);
    assert_ptr_equal(head.next, &b);
    bt_list_remove(&b);
    assert_true(bt_list_empty(&head));
}

typedef struct thing {
    uint32_t name;
    bt_list_t link;
} thing_t;

static bool is_thing(bt_list_t *link, const void *name)
{
    return BT_CONTAINER_OF(link, thing_t, link)->name ==
           *(const uint32_t *)name;
}

static thing_t *thing_find(const bt_hmap_t *map, uint64_t hash, uint32_t name)
{
    bt_list_t *link = bt_hmap_find(map, hash, is_thing, &name);

    return (link == NULL) ? NULL : BT_CONTAINER_OF(link, thing_t, link);
}

static void hmap_finds_keys_that_share_a_bucket(void **state)
{
    thing_t things[3] = {{.name = 7}, {.name = 8}, {.name = 7}};
    bt_list_t buckets[4];
    bt_hmap_t map;

    (void)state;
    bt_hmap_init(&map, buckets, 4);
    assert_null(thing_find(&map, 5, 7));
    bt_hmap_insert(&map, 5, &things[0].link); /* 5, 9 and 1: bucket 1 of 4 */
    bt_hmap_insert(&map, 9, &things[1].link);
    bt_hmap_insert(&map, 1, &things[2].link);
    assert_ptr_equal(thing_find(&map, 5, 7), &things[0]); /* the older */
    assert_ptr_equal(thing_find(&map, 9, 8), &things[1]);
    assert_null(thing_find(&map, 9, 9));
    assert_null(thing_find(&map, 6, 7)); /* another bucket */
    bt_list_remove(&things[0].link);
    assert_ptr_equal(thing_find(&map, 1, 7), &things[2]);
    bt_list_remove(&things[2].link);
    assert_null(thing_find(&map, 1, 7));
}

static void hmap_entries_can_be_removed_during_iteration(void **state)
{
    thing_t things[5] = {{.name = 0}};
    bt_list_t buckets[2];
    bt_list_t *head, *pos, *tmp;
    uint32_t n = 0;
    bt_hmap_t map;

    (void)state;
    bt_hmap_init(&map, buckets, 2);
    for (uint32_t i = 0; i < 5; i++) {
        things[i].name = i;
        bt_hmap_insert(&map, i, &things[i].link);
    }
    BT_HMAP_FOR_EACH_BUCKET(head, &map)
    {
        BT_LIST_FOR_EACH(pos, tmp, head)
        {
            bt_list_remove(pos);
            n++;
        }
    }
    assert_int_equal(n, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_null(thing_find(&map, i, i));
    }
}

static void alloc_refuses_a_product_that_overflows(void **state)
{
    (void)state;
    assert_null(bt_calloc_aligned(SIZE_MAX, 2));
    assert_null(bt_realloc_array(NULL, SIZE_MAX, 2));
}

/* Source: proc(5), VmRSS of /proc/self/status, which is in KiB. */
static uint64_t status_resident_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    unsigned long long kib = 0;
    char line[256];

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "VmRSS: %llu kB", &kib) == 1) {
            break;
        }
    }
    fclose(file);
    return kib << 10;
}

static void process_use_reports_memory_and_cpu_time(void **state)
{
    const size_t bytes = 32u << 20;
    const bt_process_use_t before = bt_process_use();
    uint64_t deadline_ms = bt_now_ms() + 60000;
    uint8_t *memory = malloc(bytes);
    bt_process_use_t after;
    uint64_t said;

    (void)state;
    assert_non_null(memory);
    do {
        memset(memory, (int)(deadline_ms & 0xff), bytes);
        after = bt_process_use();
    } while ((after.cpu_ms < before.cpu_ms + 20) &&
             (bt_now_ms() < deadline_ms));
    said = status_resident_bytes();
    assert_true(after.cpu_ms >= before.cpu_ms + 20);
    assert_true(after.resident_bytes >= before.resident_bytes + bytes / 2);
    /* the kernel counts in batches of pages */
    assert_true(said + (4u << 20) > after.resident_bytes);
    assert_true(after.resident_bytes + (4u << 20) > said);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(strbuf_over_its_limit_reports_too_large),
        BT_TEST(strbuf_reserves_exactly_the_requested_bytes),
        BT_TEST(strbuf_reports_a_failed_allocation),
        BT_TEST(full_ring_returns_busy),
        BT_TEST(ring_keeps_order_and_wakes_a_sleeper),
        BT_TEST(hash_is_xxh3),
        BT_TEST(hash_of_long_input_is_xxh3_in_every_tier),
        BT_TEST(copies_are_exact_at_any_alignment_and_length),
        BT_TEST(list_removes_twice_without_harm),
        BT_TEST(hmap_finds_keys_that_share_a_bucket),
        BT_TEST(hmap_entries_can_be_removed_during_iteration),
        BT_TEST(alloc_refuses_a_product_that_overflows),
        BT_TEST(process_use_reports_memory_and_cpu_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
