/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/status.h"
#include "common/sched/sched_pipeline.h"
#include "tests/support/testsupport.h"

/* By hand: a 64th of 6,400 us is 100 us. */
static void overlap_pays_from_a_64th_of_host_time(void **state)
{
    static const struct {
        uint64_t host_us, step_us;
        bool pays;
    } list[] = {{100, 6400, true}, {99, 6400, false}, {100, 6500, false},
                {100, 1000, true}, {100, 50, true},   {0, 1000, false},
                {100, 0, false},   {0, 0, false},     {500, 100000, false}};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(list); i++) {
        const bt_sched_overlap_t ahead = {.host_ns = list[i].host_us * 1000,
                                          .step_ns = list[i].step_us * 1000};

        assert_int_equal(bt_sched_overlap_pays(&ahead, BT_SCHED_OVERLAP_AUTO),
                         list[i].pays);
        assert_true(bt_sched_overlap_pays(&ahead, BT_SCHED_OVERLAP_ON));
        assert_false(bt_sched_overlap_pays(&ahead, BT_SCHED_OVERLAP_OFF));
    }
}

/* The first counts whole, each later one an eighth. */
static void host_time_is_averaged(void **state)
{
    bt_sched_overlap_t ahead = {.step_ns = 5000};

    (void)state;
    bt_sched_overlap_learn_host(&ahead, 800);
    assert_int_equal(ahead.host_ns, 800);
    bt_sched_overlap_learn_host(&ahead, 1600);
    assert_int_equal(ahead.host_ns, 900);
    bt_sched_overlap_learn_host(&ahead, 100);
    assert_int_equal(ahead.host_ns, 800);
    assert_int_equal(ahead.step_ns, 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(overlap_pays_from_a_64th_of_host_time),
        BT_TEST(host_time_is_averaged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
