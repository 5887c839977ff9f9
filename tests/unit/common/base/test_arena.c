/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdint.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

static void arena_parts_are_zeroed_aligned_and_apart(void **state)
{
    const size_t sizes[] = {0, 1, 7, 16, 600, 5000, 3, 1024};
    bt_arena_t arena = {0};
    unsigned char *parts[BT_ARRAY_LEN(sizes)];

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(sizes); i++) {
        parts[i] = bt_arena_alloc(&arena, sizes[i]);
        assert_non_null(parts[i]);
        assert_int_equal((uintptr_t)parts[i] % _Alignof(max_align_t), 0);
        for (size_t k = 0; k < sizes[i]; k++) {
            assert_int_equal(parts[i][k], 0);
        }
        memset(parts[i], (int)i + 1, sizes[i]);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(sizes); i++) {
        for (size_t k = 0; k < sizes[i]; k++) {
            assert_int_equal(parts[i][k], i + 1);
        }
    }
    bt_arena_fini(&arena);
    assert_null(arena.blocks);
}

static void arena_copies_texts_and_keeps_null(void **state)
{
    bt_arena_t arena = {0};
    const char *copy = "before";
    const char text[] = "tiny";

    (void)state;
    assert_true(bt_arena_strdup(&arena, text, &copy));
    assert_string_equal(copy, text);
    assert_ptr_not_equal(copy, text);
    assert_true(bt_arena_strdup(&arena, NULL, &copy));
    assert_null(copy);
    bt_arena_fini(&arena);
}

static void arena_without_memory_returns_null(void **state)
{
    bt_arena_t arena = {0};
    const char *copy = "before";

    (void)state;
    bt_alloc_fail_at(1);
    assert_false(bt_arena_strdup(&arena, "text", &copy));
    assert_string_equal(copy, "before");
    bt_alloc_fail_at(1);
    assert_null(bt_arena_dup(&arena, "abc", 3));
    bt_alloc_fail_at(0);
    for (size_t less = 0; less < 128; less++) {
        assert_null(bt_arena_alloc(&arena, SIZE_MAX - less));
    }
    bt_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(arena_parts_are_zeroed_aligned_and_apart),
        BT_TEST(arena_copies_texts_and_keeps_null),
        BT_TEST(arena_without_memory_returns_null),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
