/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that grows. */
#include "common/base/alloc.h"
#include "tests/support/testsupport.h"

static void array_grows_to_twice_its_size_or_what_is_needed(void **state)
{
    uint64_t *array = NULL;
    uint32_t cap = 0;

    (void)state;
    assert_true(bt_array_grow(&array, &cap, 0, sizeof(*array)));
    assert_null(array);
    assert_true(bt_array_grow(&array, &cap, 1, sizeof(*array)));
    assert_int_equal(cap, 16);
    for (uint32_t i = 0; i < 16; i++) {
        array[i] = i;
    }
    assert_true(bt_array_grow(&array, &cap, 16, sizeof(*array)));
    assert_int_equal(cap, 16);
    assert_true(bt_array_grow(&array, &cap, 17, sizeof(*array)));
    assert_int_equal(cap, 32);
    assert_true(bt_array_grow(&array, &cap, 1000, sizeof(*array)));
    assert_int_equal(cap, 1000);
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(array[i], i);
    }
    bt_free(array);
}

static void array_without_memory_stays_as_it_is(void **state)
{
    uint64_t *array = NULL;
    uint64_t *before;
    uint32_t cap = 0;

    (void)state;
    assert_true(bt_array_grow(&array, &cap, 4, sizeof(*array)));
    before = array;
    (void)bt_alloc_fail_at(1);
    assert_false(bt_array_grow(&array, &cap, 17, sizeof(*array)));
    (void)bt_alloc_fail_at(0);
    assert_ptr_equal(array, before);
    assert_int_equal(cap, 16);
    /* More bytes than there are addresses. */
    assert_false(bt_array_grow(&array, &cap, UINT32_MAX, SIZE_MAX / 1024));
    assert_ptr_equal(array, before);
    assert_int_equal(cap, 16);
    bt_free(array);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(array_grows_to_twice_its_size_or_what_is_needed),
        BT_TEST(array_without_memory_stays_as_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
