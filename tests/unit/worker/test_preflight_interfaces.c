/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/status.h"
#include "tests/support/testsupport.h"
#include "worker/preflight.h"

static void ranks_take_kv_interfaces_round_robin(void **state)
{
    static const char *const of_two[] = {"eth0", "mlx5_1:1", "eth0"};
    char name[BT_INTERFACE_BYTES];
    uint32_t n = 0;

    (void)state;
    for (uint32_t rank = 0; rank < BT_ARRAY_LEN(of_two); rank++) {
        assert_int_equal(bt_interface_of("eth0,mlx5_1:1", rank, name, &n),
                         BT_OK);
        assert_string_equal(name, of_two[rank]);
        assert_int_equal(n, 2);
        assert_int_equal(bt_interface_of("lo", rank, name, NULL), BT_OK);
        assert_string_equal(name, "lo");
    }
}

static void invalid_interface_names_are_refused(void **state)
{
    static const char *const lists[] = {
        "",
        ",",
        "eth0,",
        ",eth0",
        "eth0,,eth1",
        "a-name-that-is-longer-than-any-interface-or-device-has-ever-been1"};
    char name[BT_INTERFACE_BYTES] = "as it was";

    (void)state;
    bt_test_expect_log_lines(BT_ARRAY_LEN(lists));
    for (size_t i = 0; i < BT_ARRAY_LEN(lists); i++) {
        assert_int_equal(bt_interface_of(lists[i], 0, name, NULL),
                         BT_ERR_INVALID_PARAM);
    }
    assert_string_equal(name, "as it was");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(ranks_take_kv_interfaces_round_robin),
        BT_TEST(invalid_interface_names_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
