/* SPDX-License-Identifier: Apache-2.0 */
/* Worked by hand, of blocks of 16 tokens. */
#include "tests/support/testsupport.h"

#include "router/core/kv_need.h"

#define T 16u

/* One group keeps all, five hold 65 spans at most: a prompt of 8,192 tokens
 * takes 512 + 5 x 65. */
static void windows_take_no_more_than_they_see(void **state)
{
    bt_msg_hello_t hello = {.tokens_per_block = T,
                            .span_blocks = 1,
                            .window_blocks = 5,
                            .window_spans = 65};

    (void)state;
    assert_int_equal(bt_kv_need_blocks(&hello, 0), 0);
    assert_int_equal(bt_kv_need_blocks(&hello, 1), 6);
    assert_int_equal(bt_kv_need_blocks(&hello, 65 * T), 6 * 65);
    assert_int_equal(bt_kv_need_blocks(&hello, 65 * T + 1), 66 + 5 * 65);
    assert_int_equal(bt_kv_need_blocks(&hello, 8192), 837);
    hello.n_blocks = 837;
    assert_int_equal(bt_kv_need_longest(&hello), 8192);
    hello.n_blocks = 836;
    assert_int_equal(bt_kv_need_longest(&hello), 8192 - T);
    hello.n_blocks = 65;
    assert_int_equal(bt_kv_need_longest(&hello), 10 * T);
    for (uint32_t n = 6; n < 1000; n++) { /* it fits, and no more does */
        uint64_t longest;

        hello.n_blocks = n;
        longest = bt_kv_need_longest(&hello);
        assert_in_range(bt_kv_need_blocks(&hello, longest), 1, n);
        assert_true(bt_kv_need_blocks(&hello, longest + 1) > n);
    }
}

static void windows_alone_have_no_longest_sequence(void **state)
{
    bt_msg_hello_t hello = {.tokens_per_block = T,
                            .window_blocks = 1,
                            .window_spans = 65,
                            .n_blocks = 64};

    (void)state;
    assert_int_equal(bt_kv_need_blocks(&hello, 100000), 65);
    assert_int_equal(bt_kv_need_longest(&hello), 64 * T);
    hello.n_blocks = 65;
    assert_true(bt_kv_need_longest(&hello) == UINT64_MAX);
}

static void who_says_nothing_has_a_block_for_each_span(void **state)
{
    const bt_msg_hello_t hello = {.tokens_per_block = T, .n_blocks = 100};

    (void)state;
    assert_int_equal(bt_kv_need_blocks(&hello, 33), 3);
    assert_int_equal(bt_kv_need_longest(&hello), 1600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(windows_take_no_more_than_they_see),
        BT_TEST(windows_alone_have_no_longest_sequence),
        BT_TEST(who_says_nothing_has_a_block_for_each_span),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
