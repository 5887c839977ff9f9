/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <math.h>

#include "tools/accuracy_score.h"

#define assert_near(a, b) assert_true(fabs((a) - (b)) < 1e-6)

/* By hand: p = (1/2, 1/4, 1/4), q = (1/3, 1/3, 1/3): KL = 1/2 ln(3/2) + 1/2
 * ln(3/4) = 0.0588915; of q from itself it is 0. */
static void position_is_as_worked_by_hand(void **state)
{
    static const float p[] = {0.69314718f, 0.0f, 0.0f};
    static const float q[] = {5.0f, 5.0f, 5.0f};
    bt_accuracy_t score = {0};

    (void)state;
    bt_accuracy_add(&score, p, q, 3, 0);
    assert_near(bt_accuracy_perplexity(&score, 0), 2.0);
    assert_near(bt_accuracy_perplexity(&score, 1), 3.0);
    assert_near(score.kl, 0.0588915);
    bt_accuracy_add(&score, q, q, 3, 2);
    assert_near(score.kl, 0.0588915);
    assert_near(score.kl_max, 0.0588915);
    assert_near(bt_accuracy_perplexity(&score, 0), sqrt(6.0));
    assert_int_equal(score.n, 2);
    /* Lost are ln(3/2) and 0, and KL is 0.0588915 and 0: each value is half of
     * the first from the mean, which is the error of the mean of two. */
    assert_near(bt_accuracy_lost(&score).mean, 0.405465108 / 2);
    assert_near(bt_accuracy_lost(&score).error, 0.405465108 / 2);
    assert_near(bt_accuracy_kl(&score).mean, 0.0588915 / 2);
    assert_near(bt_accuracy_kl(&score).error, 0.0588915 / 2);
    assert_int_equal(score.same_top, 2);
}

static void another_likeliest_token_is_counted(void **state)
{
    static const float a[] = {0.0f, 9.0f, 1.0f};
    static const float b[] = {0.0f, 1.0f, 9.0f};
    bt_accuracy_t score = {0};

    (void)state;
    bt_accuracy_add(&score, a, b, 3, 1);
    assert_int_equal(score.same_top, 0);
    assert_true(score.kl > 7.0); /* about 8 (1 - 2 e^-8) */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(position_is_as_worked_by_hand),
        BT_TEST(another_likeliest_token_is_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
