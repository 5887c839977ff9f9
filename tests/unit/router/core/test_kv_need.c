/* SPDX-License-Identifier: Apache-2.0 */
/* Worked by hand, of blocks of 16 tokens. */
#include "tests/support/testsupport.h"

#include "router/core/table.h"

#define T 16u

/* One group keeps all, five hold 65 spans at most: a prompt of 8,192 tokens
 * takes 512 + 5 x 65. */
static void window_groups_hold_at_most_their_window(void **state)
{
    const bt_msg_hello_t hello = {.tokens_per_block = T,
                                  .span_blocks = 1,
                                  .window_blocks = 5,
                                  .window_spans = 65};
    const bt_kv_need_t need = bt_kv_need_of(&hello);

    (void)state;
    assert_int_equal(bt_kv_need_blocks(&need, 0), 0);
    assert_int_equal(bt_kv_need_blocks(&need, 1), 6);
    assert_int_equal(bt_kv_need_blocks(&need, 65 * T), 6 * 65);
    assert_int_equal(bt_kv_need_blocks(&need, 65 * T + 1), 66 + 5 * 65);
    assert_int_equal(bt_kv_need_blocks(&need, 8192), 837);
    assert_int_equal(bt_kv_need_longest(&need, 837), 8192);
    assert_int_equal(bt_kv_need_longest(&need, 836), 8192 - T);
    assert_int_equal(bt_kv_need_longest(&need, 65), 10 * T);
    for (uint32_t n = 6; n < 1000; n++) { /* it fits, and no more does */
        const uint64_t longest = bt_kv_need_longest(&need, n);

        assert_in_range(bt_kv_need_blocks(&need, longest), 1, n);
        assert_true(bt_kv_need_blocks(&need, longest + 1) > n);
    }
}

static void window_groups_alone_have_unlimited_length(void **state)
{
    const bt_msg_hello_t hello = {
        .tokens_per_block = T, .window_blocks = 1, .window_spans = 65};
    const bt_kv_need_t need = bt_kv_need_of(&hello);

    (void)state;
    assert_int_equal(bt_kv_need_blocks(&need, 100000), 65);
    assert_int_equal(bt_kv_need_longest(&need, 64), 64 * T);
    assert_true(bt_kv_need_longest(&need, 65) == UINT64_MAX);
}

static void hello_without_spans_needs_one_block_each(void **state)
{
    const bt_msg_hello_t hello = {.tokens_per_block = T};
    const bt_kv_need_t need = bt_kv_need_of(&hello);

    (void)state;
    assert_int_equal(bt_kv_need_blocks(&need, 33), 3);
    assert_int_equal(bt_kv_need_longest(&need, 100), 1600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(window_groups_hold_at_most_their_window),
        BT_TEST(window_groups_alone_have_unlimited_length),
        BT_TEST(hello_without_spans_needs_one_block_each),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
