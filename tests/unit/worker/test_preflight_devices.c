/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/preflight.h"

#include <stdlib.h>

#include "tests/support/testsupport.h"

static void assert_sees(const char *list, uint32_t rank, uint32_t size,
                        const char *want)
{
    assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
    assert_int_equal(bt_worker_use_devices(list, rank, size), BT_OK);
    if (want == NULL) {
        assert_null(getenv("CUDA_VISIBLE_DEVICES"));
    } else {
        assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), want);
    }
}

static void ranks_share_the_devices_of_a_worker(void **state)
{
    (void)state;
    assert_sees("", 0, 1, NULL);
    assert_sees("2,5", 0, 1, "2,5");
    assert_sees("MIG-GPU-1/0/0,GPU-2", 1, 2, "GPU-2");
    assert_sees("0,1,2,3", 1, 2, "2,3");
}

static void each_rank_needs_a_device(void **state)
{
    (void)state;
    bt_test_expect_log_lines(3);
    assert_int_equal(bt_worker_use_devices("7", 0, 2), BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_worker_use_devices("7", 1, 2), BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_worker_use_devices(",", 0, 1), BT_ERR_INVALID_PARAM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(ranks_share_the_devices_of_a_worker),
        BT_TEST(each_rank_needs_a_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
