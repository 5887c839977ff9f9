/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include "common/sched/sched_pipeline.h"

/* Of 32 layers the last eighth is 4: 28 done is the last chance. */
static void no_sequence_joins_in_the_last_layers(void **state)
{
    bt_sched_midstep_join_t late;

    (void)state;
    bt_sched_midstep_join_init(&late, 32);
    assert_true(bt_sched_midstep_join_may(&late, 1));
    assert_true(bt_sched_midstep_join_may(&late, 28));
    assert_false(bt_sched_midstep_join_may(&late, 29));
    assert_false(bt_sched_midstep_join_may(&late, 32));
}

/* With 4 layers an eighth is none, but behind the last nothing is left. */
static void few_layers_allow_joins_before_the_last(void **state)
{
    bt_sched_midstep_join_t late;

    (void)state;
    bt_sched_midstep_join_init(&late, 4);
    assert_true(bt_sched_midstep_join_may(&late, 3));
    assert_false(bt_sched_midstep_join_may(&late, 4));
    bt_sched_midstep_join_init(&late, 1);
    assert_false(bt_sched_midstep_join_may(&late, 1));
}

/* Two passes of 32 layers are 64: after 20 + 20 + 20 there are 4 left. An
 * iteration adds 32 / 16 = 2. */
static void joining_passes_take_at_most_a_sixteenth(void **state)
{
    bt_sched_midstep_join_t late;

    (void)state;
    bt_sched_midstep_join_init(&late, 32);
    for (int i = 0; i < 3; i++) {
        assert_true(bt_sched_midstep_join_may(&late, 20));
        bt_sched_midstep_join_spend(&late, 20);
    }
    assert_false(bt_sched_midstep_join_may(&late, 20));
    assert_true(bt_sched_midstep_join_may(&late, 4));
    for (int i = 0; i < 8; i++) {
        assert_false(bt_sched_midstep_join_may(&late, 20));
        bt_sched_midstep_join_step(&late);
    }
    assert_true(bt_sched_midstep_join_may(&late, 20));
    bt_sched_midstep_join_spend(&late, 20);

    /* Over a thousand iterations: 2000 layers, and the two passes that had
     * been saved, which are spent. */
    uint32_t spent = 0;

    for (int i = 0; i < 1000; i++) {
        bt_sched_midstep_join_step(&late);
        if (bt_sched_midstep_join_may(&late, 7)) {
            bt_sched_midstep_join_spend(&late, 7);
            spent += 7;
        }
    }
    assert_true((spent <= 2000) && (spent > 1990));
}

static void saved_layer_time_has_a_limit(void **state)
{
    bt_sched_midstep_join_t late;
    uint32_t n = 0;

    (void)state;
    bt_sched_midstep_join_init(&late, 16);
    for (int i = 0; i < 1000; i++) {
        bt_sched_midstep_join_step(&late);
    }
    while (bt_sched_midstep_join_may(&late, 8)) {
        bt_sched_midstep_join_spend(&late, 8);
        n++;
    }
    assert_int_equal(n, 4); /* two passes of 16 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(no_sequence_joins_in_the_last_layers),
        BT_TEST(few_layers_allow_joins_before_the_last),
        BT_TEST(joining_passes_take_at_most_a_sixteenth),
        BT_TEST(saved_layer_time_has_a_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
