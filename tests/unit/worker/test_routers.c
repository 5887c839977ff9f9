/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include "worker/routers.h"

static void no_router_warning_after_3s_then_every_30s(void **state)
{
    bt_no_router_warning_t alone = {0};

    (void)state;
    assert_int_equal(bt_no_router_warning_check(&alone, false, 1000), 0);
    assert_int_equal(bt_no_router_warning_check(&alone, false, 3999), 0);
    assert_int_equal(bt_no_router_warning_check(&alone, false, 4000), 3);
    assert_int_equal(bt_no_router_warning_check(&alone, false, 4001), 0);
    assert_int_equal(bt_no_router_warning_check(&alone, false, 33999), 0);
    assert_int_equal(bt_no_router_warning_check(&alone, false, 34000), 33);
    assert_int_equal(bt_no_router_warning_check(&alone, false, 63999), 0);
    assert_int_equal(bt_no_router_warning_check(&alone, false, 64010), 63);
}

static void
no_router_warning_ends_with_a_router_and_restarts_on_loss(void **state)
{
    bt_no_router_warning_t alone = {0};

    (void)state;
    assert_int_equal(bt_no_router_warning_check(&alone, false, 1000), 0);
    assert_int_equal(bt_no_router_warning_check(&alone, true, 3500), 0);
    assert_int_equal(bt_no_router_warning_check(&alone, true, 900000), 0);
    assert_int_equal(bt_no_router_warning_check(&alone, false, 900010), 0);
    assert_int_equal(bt_no_router_warning_check(&alone, false, 903009), 0);
    assert_int_equal(bt_no_router_warning_check(&alone, false, 903010), 3);
    assert_int_equal(bt_no_router_warning_check(&alone, true, 903020), 0);
    assert_int_equal(bt_no_router_warning_check(&alone, false, 903030), 0);
    assert_int_equal(bt_no_router_warning_check(&alone, false, 906030), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(no_router_warning_after_3s_then_every_30s),
        BT_TEST(no_router_warning_ends_with_a_router_and_restarts_on_loss),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
