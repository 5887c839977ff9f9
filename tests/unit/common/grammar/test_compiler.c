/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/compiler.h"

#include <stdalign.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/task.h"
#include "tests/support/testsupport.h"

static void compiler_that_did_nothing_has_no_memory(void **state)
{
    bt_grammar_compiler_t c;

    (void)state;
    bt_grammar_compiler_init(&c);
    assert_true(bt_grammar_ok(&c));
    assert_true(c.fuel == BT_GRAMMAR_FUEL);
    assert_null(c.arena);
    bt_grammar_compiler_fini(&c);
}

static void first_failure_is_kept(void **state)
{
    bt_grammar_compiler_t c;

    (void)state;
    bt_grammar_compiler_init(&c);
    bt_grammar_fail(&c, BT_ERR_UNSUPPORTED, "look-ahead at offset %d", 7);
    bt_grammar_fail(&c, BT_ERR_NO_MEMORY, "out of memory");
    assert_int_equal(c.status, BT_ERR_UNSUPPORTED);
    assert_string_equal(c.why, "look-ahead at offset 7");
    assert_false(bt_grammar_ok(&c));
    assert_null(bt_grammar_alloc(&c, 1, 1));
    assert_false(bt_grammar_spend(&c, 0));
    bt_grammar_compiler_fini(&c);
}

static void long_sentence_is_cut(void **state)
{
    char text[2 * BT_GRAMMAR_WHY_BYTES] = {0};
    bt_grammar_compiler_t c;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    bt_grammar_compiler_init(&c);
    bt_grammar_fail(&c, BT_ERR_INVALID_PARAM, "%s", text);
    assert_int_equal(strlen(c.why), BT_GRAMMAR_WHY_BYTES - 1);
    bt_grammar_compiler_fini(&c);
}

static void budget_is_spent_to_the_last_step(void **state)
{
    bt_grammar_compiler_t c;

    (void)state;
    bt_grammar_compiler_init(&c);
    assert_true(bt_grammar_spend(&c, BT_GRAMMAR_FUEL - 1));
    assert_true(bt_grammar_spend(&c, 1));
    assert_true(bt_grammar_spend(&c, 0));
    assert_false(bt_grammar_spend(&c, 1));
    assert_int_equal(c.status, BT_ERR_TOO_LARGE);
    bt_grammar_compiler_fini(&c);
}

static void memory_is_zeroed_aligned_and_apart(void **state)
{
    static const size_t sizes[] = {1, 0, 24, 3, 20000, 16, 300000, 7};
    unsigned char *parts[BT_ARRAY_LEN(sizes)];
    bt_grammar_compiler_t c;

    (void)state;
    bt_grammar_compiler_init(&c);
    for (size_t i = 0; i < BT_ARRAY_LEN(sizes); i++) {
        parts[i] = bt_grammar_alloc(&c, sizes[i], 1);
        assert_non_null(parts[i]);
        assert_int_equal((uintptr_t)parts[i] % alignof(max_align_t), 0);
        for (size_t j = 0; j < sizes[i]; j++) {
            assert_int_equal(parts[i][j], 0);
            parts[i][j] = (unsigned char)(i + 1);
        }
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(sizes); i++) {
        for (size_t j = 0; j < sizes[i]; j++) {
            assert_int_equal(parts[i][j], i + 1);
        }
    }
    bt_grammar_compiler_fini(&c);
}

/* Bytes until an arena is at its limit. */
static size_t fill(bt_grammar_compiler_t *c)
{
    size_t total = 0;

    while (bt_grammar_alloc(c, 1000, 100) != NULL) {
        total += 100000;
    }
    return total;
}

static void arena_ends_at_its_limit(void **state)
{
    bt_grammar_compiler_t c;
    size_t total;

    (void)state;
    bt_grammar_compiler_init(&c);
    total = fill(&c);
    assert_int_equal(c.status, BT_ERR_TOO_LARGE);
    assert_true(total <= BT_GRAMMAR_MAX_ARENA);
    /* Less than one chunk of 1 MiB and the ends of chunks are not used. */
    assert_true(total > BT_GRAMMAR_MAX_ARENA / 8 * 7);
    bt_grammar_compiler_fini(&c);
}

static void memory_of_a_step_is_used_again_zeroed(void **state)
{
    bt_grammar_compiler_t c, scratch;
    const unsigned char *first = NULL;
    unsigned char *part;

    (void)state;
    bt_grammar_compiler_init(&c);
    for (uint32_t i = 0; i < 3; i++) {
        bt_grammar_scratch_init(&scratch, &c);
        part = bt_grammar_alloc(&scratch, 5000, 1);
        assert_non_null(part);
        first = (i == 0) ? part : first;
        assert_ptr_equal(part, first);
        for (size_t j = 0; j < 5000; j++) {
            assert_int_equal(part[j], 0);
            part[j] = 0xFF;
        }
        bt_grammar_scratch_fini(&scratch, &c);
        assert_int_equal(c.arena_bytes, 0);
        assert_true(c.spare_bytes > 0);
    }
    bt_grammar_compiler_fini(&c);
    assert_int_equal(c.spare_bytes, 0);
}

static void memory_of_steps_counts_until_it_is_freed(void **state)
{
    bt_grammar_compiler_t c, scratch;

    (void)state;
    bt_grammar_compiler_init(&c);
    for (uint32_t i = 1; i <= 8; i++) { /* 36 / 16 of the limit */
        bt_grammar_scratch_init(&scratch, &c);
        assert_non_null(
            bt_grammar_alloc(&scratch, BT_GRAMMAR_MAX_ARENA / 16 * i, 1));
        assert_true(c.arena_bytes + c.spare_bytes <= BT_GRAMMAR_MAX_ARENA);
        bt_grammar_scratch_fini(&scratch, &c);
    }
    assert_non_null(bt_grammar_alloc(&c, BT_GRAMMAR_MAX_ARENA, 1));
    assert_int_equal(c.spare_bytes, 0);
    bt_grammar_compiler_fini(&c);
}

static void newest_array_grows_where_it_is(void **state)
{
    bt_grammar_compiler_t c;
    uint64_t *array = NULL;
    const uint64_t *first;
    uint32_t cap = 0;

    (void)state;
    bt_grammar_compiler_init(&c);
    assert_true(bt_grammar_grow(&c, &array, &cap, 1, sizeof(*array)));
    first = array;
    for (uint32_t n = 1; n <= 1000; n++) {
        assert_true(bt_grammar_grow(&c, &array, &cap, n, sizeof(*array)));
        assert_int_equal(array[n - 1], 0);
        array[n - 1] = n;
    }
    assert_ptr_equal(array, first);
    assert_non_null(bt_grammar_alloc(&c, 1, 1)); /* no longer the newest */
    assert_true(bt_grammar_grow(&c, &array, &cap, cap + 1, sizeof(*array)));
    assert_ptr_not_equal(array, first);
    for (uint32_t n = 1; n <= cap; n++) {
        assert_int_equal(array[n - 1], (n <= 1000) ? n : 0);
    }
    bt_grammar_compiler_fini(&c);
}

static void arenas_of_scratch_compilers_have_one_limit(void **state)
{
    bt_grammar_compiler_t c, scratch, inner;
    size_t total;

    (void)state;
    bt_grammar_compiler_init(&c);
    assert_non_null(bt_grammar_alloc(&c, BT_GRAMMAR_MAX_ARENA / 4, 1));
    for (uint32_t i = 0; i < 2; i++) { /* what a step had is free again */
        bt_grammar_scratch_init(&scratch, &c);
        assert_non_null(
            bt_grammar_alloc(&scratch, BT_GRAMMAR_MAX_ARENA / 4, 1));
        bt_grammar_scratch_init(&inner, &scratch);
        total = fill(&inner);
        assert_int_equal(inner.status, BT_ERR_TOO_LARGE);
        assert_true(total <= BT_GRAMMAR_MAX_ARENA / 2);
        assert_true(total > BT_GRAMMAR_MAX_ARENA / 8 * 3);
        assert_true(c.arena_bytes <= BT_GRAMMAR_MAX_ARENA);
        bt_grammar_compiler_fini(&inner);
        bt_grammar_compiler_fini(&scratch);
        assert_int_equal(c.arena_bytes, BT_GRAMMAR_MAX_ARENA / 4);
    }
    bt_grammar_compiler_fini(&c);
    assert_int_equal(c.arena_bytes, 0);
}

static void product_that_overflows_is_too_large(void **state)
{
    bt_grammar_compiler_t c;

    (void)state;
    bt_grammar_compiler_init(&c);
    assert_null(bt_grammar_alloc(&c, SIZE_MAX / 2, 4));
    assert_int_equal(c.status, BT_ERR_TOO_LARGE);
    bt_grammar_compiler_fini(&c);
    bt_grammar_compiler_init(&c);
    assert_null(bt_grammar_alloc(&c, SIZE_MAX - 3, 1));
    assert_int_equal(c.status, BT_ERR_TOO_LARGE);
    bt_grammar_compiler_fini(&c);
}

static void array_grows_with_its_elements(void **state)
{
    bt_grammar_compiler_t c;
    uint32_t *numbers = NULL;
    uint32_t cap = 0, n_moves = 0;

    (void)state;
    bt_grammar_compiler_init(&c);
    for (uint32_t i = 0; i < 5000; i++) {
        const uint32_t before = cap;

        assert_true(
            bt_grammar_grow(&c, &numbers, &cap, i + 1, sizeof(*numbers)));
        assert_true(cap > i);
        assert_int_equal(numbers[i], 0);
        numbers[i] = i;
        n_moves += cap != before;
    }
    assert_true(n_moves < 14);
    for (uint32_t i = 0; i < 5000; i++) {
        assert_int_equal(numbers[i], i);
    }
    bt_grammar_compiler_fini(&c);
}

static void failed_allocation_leaves_the_array(void **state)
{
    bt_grammar_compiler_t c;
    uint32_t *numbers = NULL, *old;
    uint32_t cap = 0;

    (void)state;
    bt_grammar_compiler_init(&c);
    assert_true(bt_grammar_grow(&c, &numbers, &cap, 3, sizeof(*numbers)));
    old = numbers;
    bt_alloc_fail_at(1);
    assert_false(
        bt_grammar_grow(&c, &numbers, &cap, 1000000, sizeof(*numbers)));
    assert_int_equal(bt_alloc_fail_at(0), 0);
    assert_int_equal(c.status, BT_ERR_NO_MEMORY);
    assert_ptr_equal(numbers, old);
    assert_true(cap < 1000000);
    bt_grammar_compiler_fini(&c);
}

static void scratch_gives_budget_and_failure_back(void **state)
{
    bt_grammar_compiler_t c, scratch;

    (void)state;
    bt_grammar_compiler_init(&c);
    assert_true(bt_grammar_spend(&c, 100));
    bt_grammar_scratch_init(&scratch, &c);
    assert_non_null(bt_grammar_alloc(&scratch, 1, 1));
    assert_true(bt_grammar_spend(&scratch, 11));
    bt_grammar_scratch_fini(&scratch, &c);
    assert_true(bt_grammar_ok(&c));
    assert_true(c.fuel == BT_GRAMMAR_FUEL - 111);
    assert_null(c.arena);

    bt_grammar_scratch_init(&scratch, &c);
    bt_grammar_fail(&scratch, BT_ERR_UNSUPPORTED, "%s", "100 %d");
    bt_grammar_scratch_fini(&scratch, &c);
    assert_int_equal(c.status, BT_ERR_UNSUPPORTED);
    assert_string_equal(c.why, "100 %d");
    bt_grammar_compiler_fini(&c);
}

/* Counts polls; cancels its task at one of them. */
typedef struct polled {
    bt_task_t task;
    uint32_t n, cancel_at;
} polled_t;

static void polled_yield(void *ctx)
{
    polled_t *polled = ctx;

    if (++polled->n == polled->cancel_at) {
        bt_task_cancel(&polled->task);
    }
}

static void canceled_task_fails_within_the_steps_of_a_poll(void **state)
{
    polled_t polled = {.cancel_at = 3};
    bt_grammar_compiler_t c, scratch;
    bt_task_t *before;
    uint32_t n_steps = 0;

    (void)state;
    bt_task_init(&polled.task);
    polled.task.yield = polled_yield;
    polled.task.ctx = &polled;
    before = bt_task_enter(&polled.task);
    bt_grammar_compiler_init(&c);
    assert_true(bt_grammar_spend(&c, 10 * BT_GRAMMAR_POLL_STEPS));
    assert_int_equal(polled.n, 1);
    bt_grammar_scratch_init(&scratch, &c);
    while (bt_grammar_spend(&scratch, 1)) {
        n_steps++;
    }
    assert_int_equal(polled.n, 3);
    assert_in_range(n_steps, BT_GRAMMAR_POLL_STEPS, 2 * BT_GRAMMAR_POLL_STEPS);
    assert_int_equal(scratch.status, BT_ERR_NO_MEMORY);
    bt_grammar_scratch_fini(&scratch, &c);
    assert_int_equal(c.status, BT_ERR_NO_MEMORY);
    assert_false(bt_grammar_spend(&c, 1));
    bt_grammar_compiler_fini(&c);
    bt_task_leave(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(compiler_that_did_nothing_has_no_memory),
        BT_TEST(first_failure_is_kept),
        BT_TEST(long_sentence_is_cut),
        BT_TEST(budget_is_spent_to_the_last_step),
        BT_TEST(memory_is_zeroed_aligned_and_apart),
        BT_TEST(arena_ends_at_its_limit),
        BT_TEST(memory_of_a_step_is_used_again_zeroed),
        BT_TEST(memory_of_steps_counts_until_it_is_freed),
        BT_TEST(newest_array_grows_where_it_is),
        BT_TEST(arenas_of_scratch_compilers_have_one_limit),
        BT_TEST(product_that_overflows_is_too_large),
        BT_TEST(array_grows_with_its_elements),
        BT_TEST(failed_allocation_leaves_the_array),
        BT_TEST(scratch_gives_budget_and_failure_back),
        BT_TEST(canceled_task_fails_within_the_steps_of_a_poll),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
