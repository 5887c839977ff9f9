/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/status.h"
#include "common/coll/coll_shm.h"
#include "tests/support/testsupport.h"

/* 2^24 + 1 rounds to 2^24 in float, so the order shows. */
static void tree_sum_adds_halves_first(void **state)
{
    static const float a[] = {16777216.0f}, b[] = {1.0f}, c[] = {1.0f},
                       d[] = {-16777216.0f};
    const float *four[] = {a, b, c, d};
    const float *three[] = {a, b, d};
    float out = 0.0f;

    (void)state;
    bt_coll_tree_sum(four, 4, 1, &out); /* (a + b) + (c + d) */
    assert_true(out == 1.0f);           /* 2^24 + (1 - 2^24) */
    bt_coll_tree_sum(three, 3, 1, &out);
    assert_true(out == 1.0f); /* a + (b + d) = 2^24 + (1 - 2^24) */
    bt_coll_tree_sum(three, 2, 1, &out);
    assert_true(out == 16777216.0f);
    bt_coll_tree_sum(four + 1, 1, 1, &out);
    assert_true(out == 1.0f);
}

static void long_sums_are_computed_in_parts(void **state)
{
    enum { N = 1300 }; /* tiles, and a rest */
    static float a[N], b[N];
    const float *parts[] = {a, b};

    (void)state;
    for (int i = 0; i < N; i++) {
        a[i] = (float)i;
        b[i] = 2.0f * (float)i;
    }
    bt_coll_tree_sum(parts, 2, N, a);
    for (int i = 0; i < N; i++) {
        assert_true(a[i] == 3.0f * (float)i);
    }
}

static void each_rank_sums_whole_subtrees(void **state)
{
    static const struct {
        uint32_t n_parts, size;
        bool divides;
    } list[] = {{1, 1, true},  {2, 1, true},  {2, 2, true},  {4, 2, true},
                {4, 4, true},  {8, 2, true},  {3, 3, true},  {6, 2, true},
                {6, 3, false}, {3, 2, false}, {4, 3, false}, {2, 4, false},
                {12, 4, true}, {0, 1, false}, {4, 0, false}, {9, 3, false},
                {16, 16, true}};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(list); i++) {
        if (bt_coll_tree_divides(list[i].n_parts, list[i].size) !=
            list[i].divides) {
            fail_msg("%u parts on %u ranks", list[i].n_parts, list[i].size);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(tree_sum_adds_halves_first),
        BT_TEST(long_sums_are_computed_in_parts),
        BT_TEST(each_rank_sums_whole_subtrees),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
