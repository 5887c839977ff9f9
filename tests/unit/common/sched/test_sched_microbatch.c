/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/status.h"
#include "common/sched/sched_pipeline.h"
#include "tests/support/testsupport.h"

static bt_sched_microbatches_t lots_of(uint32_t n_generating, uint32_t n_rows)
{
    const bt_sched_ready_t ready = {n_generating, n_rows};

    return bt_sched_microbatches(&ready, 4, 16);
}

/* By hand: rows / 16, 1 to 4 of them; the sequences in equal lots. */
static void
microbatches_are_made_where_each_repays_its_weight_reads(void **state)
{
    static const struct {
        uint32_t n_generating, n_rows, n, n_each;
    } list[] = {{0, 0, 1, 1},    {1, 1, 1, 1},    {31, 31, 1, 31},
                {32, 32, 2, 16}, {33, 33, 2, 17}, {50, 50, 3, 17},
                {64, 64, 4, 16}, {65, 65, 4, 17}, {256, 256, 4, 64},
                {2, 514, 4, 1},  {0, 512, 4, 1}};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(list); i++) {
        const bt_sched_microbatches_t lots =
            lots_of(list[i].n_generating, list[i].n_rows);

        assert_int_equal(lots.n, list[i].n);
        assert_int_equal(lots.n_generating, list[i].n_each);
    }
}

static void few_rows_wait_for_the_next_microbatch_to_end(void **state)
{
    const bt_sched_microbatches_t lots = lots_of(40, 40); /* two of 20 */

    (void)state;
    assert_false(bt_sched_microbatch_begins(&lots, 0, 0, 16));
    assert_true(bt_sched_microbatch_begins(&lots, 0, 1, 16));
    assert_false(bt_sched_microbatch_begins(&lots, 1, 15, 16));
    assert_true(bt_sched_microbatch_begins(&lots, 1, 16, 16));
    assert_false(bt_sched_microbatch_begins(&lots, 2, 40, 16));
}

/* a b c generate, c with two drafts; d and e have chunks. */
static void rows_cut_from_a_plan_are_planned_next(void **state)
{
    bt_sched_seq_t seqs[5] = {
        {.n_drafts = 0}, {.n_drafts = 0}, {.n_drafts = 2}};
    bt_sched_item_t items[5] = {{&seqs[0], 1, true},
                                {&seqs[1], 1, true},
                                {&seqs[2], 3, true},
                                {&seqs[3], 64, false},
                                {&seqs[4], 7, true}};

    (void)state;
    assert_int_equal(bt_sched_microbatch_cut(items, 5, 3), 5);
    assert_int_equal(bt_sched_microbatch_cut(items, 5, 1), 3);
    assert_ptr_equal(items[0].seq, &seqs[0]);
    assert_ptr_equal(items[1].seq, &seqs[3]);
    assert_ptr_equal(items[2].seq, &seqs[4]);
    assert_ptr_equal(items[3].seq, &seqs[1]);
    assert_ptr_equal(items[4].seq, &seqs[2]);
}

/* Sequences go round in lots as an engine has them: each is in one again before
 * any has been in two more. */
static void every_sequence_is_in_a_microbatch(void **state)
{
    enum { N = 200 };

    (void)state;
    for (uint32_t n = 1; n < N; n++) {
        uint32_t turns[N] = {0};
        uint32_t waiting = n, at = 0, sizes[4], n_lots = 0;
        const bt_sched_microbatches_t lots = lots_of(n, n);

        /* The queue in order: those who wait are at .. at + waiting. */
        for (int step = 0; step < 100; step++) {
            while (bt_sched_microbatch_begins(&lots, n_lots, waiting, 16)) {
                const uint32_t size =
                    (waiting < lots.n_generating) ? waiting : lots.n_generating;

                for (uint32_t i = 0; i < size; i++) {
                    turns[(at + i) % n]++;
                }
                at = (at + size) % n;
                waiting -= size;
                sizes[n_lots++] = size;
            }
            assert_true(n_lots > 0);
            waiting += sizes[0];
            for (uint32_t i = 1; i < n_lots; i++) {
                sizes[i - 1] = sizes[i];
            }
            n_lots--;
        }
        for (uint32_t i = 1; i < n; i++) {
            assert_true((turns[i] + 2 >= turns[0]) &&
                        (turns[0] + 2 >= turns[i]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(microbatches_are_made_where_each_repays_its_weight_reads),
        BT_TEST(few_rows_wait_for_the_next_microbatch_to_end),
        BT_TEST(rows_cut_from_a_plan_are_planned_next),
        BT_TEST(every_sequence_is_in_a_microbatch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
