/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of an answer that its client predicted; expected values are counted by
 * hand. */
#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/text/prediction.h"
#include "tests/support/testsupport.h"

static void predicted_tokens_are_counted(void **state)
{
    static const struct {
        uint32_t given[8], n_given, ids[8], n, accepted;
    } cases[] = {
        {{1, 2, 3}, 3, {1, 2, 3}, 3, 3},             /* equal */
        {{1, 2, 3}, 3, {1, 2}, 2, 2},                /* cut */
        {{1, 2, 3}, 3, {1, 2, 3, 4}, 4, 3},          /* and more */
        {{1, 2, 3, 4}, 4, {1, 9, 3, 4}, 4, 3},       /* one for another */
        {{1, 2, 3, 4}, 4, {1, 2, 8, 9, 3, 4}, 6, 3}, /* two between */
        {{1, 2, 3, 4, 5, 6}, 6, {1, 4, 5, 6}, 4, 3}, /* two left out */
        {{1, 2, 3}, 3, {7, 8, 9}, 3, 0},
        {{1, 2, 3}, 3, {0}, 0, 0},
        {{0}, 0, {1, 2}, 2, 0},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(bt_prediction_accepted(cases[i].given,
                                                cases[i].n_given, cases[i].ids,
                                                cases[i].n),
                         cases[i].accepted);
    }
}

/* 200,000 tokens each, of which none is where it is expected: searched in full
 * that were 20 billion comparisons. */
static void long_answer_that_differs_is_counted_in_bounded_time(void **state)
{
    const uint32_t n = 200000;
    uint32_t *given = bt_calloc(n, sizeof(*given));
    uint32_t *ids = bt_calloc(n, sizeof(*ids));

    (void)state;
    assert_non_null(given);
    assert_non_null(ids);
    for (uint32_t i = 0; i < n; i++) {
        given[i] = 1;
        ids[i] = 2;
    }
    assert_int_equal(bt_prediction_accepted(given, n, ids, n), 0);
    bt_free(given);
    bt_free(ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(predicted_tokens_are_counted),
        BT_TEST(long_answer_that_differs_is_counted_in_bounded_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
