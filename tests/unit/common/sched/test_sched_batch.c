/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/status.h"
#include "common/sched/sched_admit.h"
#include "common/sched/sched_queue.h"

#define N   16u
#define SEC 1000000u /* µs */

static bt_sched_batch_t batch;
static bt_sched_part_t parts[N];

static void begin(bool is_static)
{
    bt_sched_batch_init(&batch, is_static);
    memset(parts, 0, sizeof(parts));
}

static void is_now(uint32_t i, bt_sched_part_t part)
{
    bt_sched_batch_move(&batch, &parts[i], part);
    assert_int_equal(parts[i], part);
}

static bool admits(void)
{
    return bt_sched_batch_admits(&batch, BT_SCHED_OUTSIDE);
}

static void inflight_batching_admits_and_starts_at_any_time(void **state)
{
    static const bt_sched_part_t lives[] = {BT_SCHED_COMING, BT_SCHED_READY,
                                            BT_SCHED_INSIDE, BT_SCHED_OUTSIDE};

    (void)state;
    begin(false);
    is_now(0, BT_SCHED_INSIDE);
    for (uint32_t i = 0; i < BT_ARRAY_LEN(lives); i++) {
        is_now(1, lives[i]);
        bt_sched_batch_round(&batch);
        assert_true(admits());
        assert_true(bt_sched_batch_starts(&batch));
    }
}

static void static_batch_closes_when_its_first_sequence_is_ready(void **state)
{
    (void)state;
    begin(true);
    is_now(0, BT_SCHED_COMING);
    is_now(1, BT_SCHED_COMING);
    bt_sched_batch_round(&batch);
    assert_true(admits());
    is_now(1, BT_SCHED_READY);
    assert_true(admits()); /* whoever may begin in this round is of it */
    is_now(2, BT_SCHED_COMING);
    bt_sched_batch_round(&batch);
    assert_false(admits());
    assert_false(bt_sched_batch_starts(&batch)); /* 0 and 2 are on the way */
    is_now(2, BT_SCHED_READY);
    assert_false(bt_sched_batch_starts(&batch));
    is_now(0, BT_SCHED_READY);
    assert_true(bt_sched_batch_starts(&batch));
}

static void static_batch_reopens_after_its_last_sequence_ends(void **state)
{
    (void)state;
    begin(true);
    for (uint32_t i = 0; i < 3; i++) {
        is_now(i, BT_SCHED_COMING);
        is_now(i, BT_SCHED_READY);
    }
    bt_sched_batch_round(&batch);
    assert_true(bt_sched_batch_starts(&batch));
    for (uint32_t i = 0; i < 3; i++) {
        is_now(i, BT_SCHED_INSIDE);
    }
    is_now(1, BT_SCHED_PAUSED);
    is_now(0, BT_SCHED_OUTSIDE);
    is_now(2, BT_SCHED_OUTSIDE);
    bt_sched_batch_round(&batch);
    assert_false(admits()); /* one that is paused has not ended */
    assert_true(bt_sched_batch_admits(&batch, BT_SCHED_PAUSED));
    is_now(1, BT_SCHED_INSIDE);
    is_now(1, BT_SCHED_OUTSIDE);
    assert_true(admits());
    assert_false(bt_sched_batch_starts(&batch)); /* nobody is there */
}

static void canceled_sequence_does_not_delay_a_static_batch(void **state)
{
    (void)state;
    begin(true);
    is_now(0, BT_SCHED_COMING);
    is_now(1, BT_SCHED_COMING);
    is_now(0, BT_SCHED_READY);
    bt_sched_batch_round(&batch);
    assert_false(bt_sched_batch_starts(&batch));
    is_now(1, BT_SCHED_OUTSIDE); /* canceled, say */
    assert_true(bt_sched_batch_starts(&batch));
    /* And where all leave, the next batch is gathered. */
    is_now(0, BT_SCHED_OUTSIDE);
    assert_true(admits());
}

static bt_sched_admit_t admit;
static bt_sched_claim_t claims[N];

static bt_sched_claim_t *wait_in(bt_list_t *queue, uint32_t i,
                                 uint32_t priority, bt_sched_want_t want)
{
    memset(&claims[i], 0, sizeof(claims[i]));
    bt_sched_turn_init(&claims[i].turn, priority, 1000u * i);
    claims[i].want = want;
    claims[i].n_blocks = 1;
    bt_sched_queue_insert(queue, &claims[i].turn);
    return &claims[i];
}

static void closed_batch_delays_only_leases_and_local_prompts(void **state)
{
    bt_sched_claim_t *other, *lease, *paused, *context;
    bt_sched_part_t inside = BT_SCHED_OUTSIDE;

    (void)state;
    bt_sched_admit_init(&admit, 100, 8, 50);
    bt_sched_batch_init(&admit.batch, true);
    bt_sched_batch_move(&admit.batch, &inside, BT_SCHED_INSIDE);
    lease = wait_in(&admit.leases, 1, 3, BT_SCHED_LEASE);
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), lease);
    bt_sched_batch_round(&admit.batch);
    assert_null(bt_sched_admit_next(&admit, 8));
    other = wait_in(&admit.ungranted, 2, 0, BT_SCHED_CONTEXT);
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), other);
    context = wait_in(&admit.granted, 3, 0, BT_SCHED_CONTEXT);
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), context);
    bt_list_remove(&context->turn.link);
    /* Behind the lease, but of the batch. */
    paused = wait_in(&admit.leases, 4, 0, BT_SCHED_BOTH_PHASES);
    bt_sched_batch_move(&admit.batch, &paused->part, BT_SCHED_PAUSED);
    assert_ptr_equal(admit.leases.next, &lease->turn.link);
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), paused);
    bt_list_remove(&paused->turn.link);
    bt_sched_batch_move(&admit.batch, &paused->part, BT_SCHED_INSIDE);
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), other);
    bt_sched_batch_move(&admit.batch, &paused->part, BT_SCHED_OUTSIDE);
    bt_sched_batch_move(&admit.batch, &inside, BT_SCHED_OUTSIDE);
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), lease);
}

/* Four seats; what comes has 1, 4 and 9 s in turn, a millisecond apart. */
static void batches_by_length_group_similar_lengths(void **state)
{
    (void)state;
    bt_sched_admit_init(&admit, 100, 4, 50);
    bt_sched_batch_init(&admit.batch, true);
    for (uint32_t i = 0; i < 12; i++) {
        const bt_sched_work_t work = {.answer_us = (i % 3 + 1) * (i % 3 + 1) *
                                                   SEC}; /* 1, 4, 9 s */

        memset(&claims[i], 0, sizeof(claims[i]));
        bt_sched_turn_init(&claims[i].turn, 0, 1000u * i);
        claims[i].want = BT_SCHED_LEASE;
        claims[i].n_blocks = 1;
        claims[i].turn.slack_us = bt_sched_slack_us(BT_SCHED_LENGTH, &work);
        bt_sched_queue_insert(&admit.leases, &claims[i].turn);
    }
    for (uint32_t turn = 0; turn < 3; turn++) {
        bt_sched_claim_t *of[4];

        for (uint32_t i = 0; i < 4; i++) {
            of[i] = bt_sched_admit_next(&admit, 4 - i);
            assert_ptr_equal(of[i], &claims[turn + 3 * i]);
            bt_list_remove(&of[i]->turn.link);
            bt_sched_batch_move(&admit.batch, &of[i]->part, BT_SCHED_READY);
        }
        bt_sched_batch_round(&admit.batch);
        assert_null(bt_sched_admit_next(&admit, 4));
        for (uint32_t i = 0; i < 4; i++) {
            bt_sched_batch_move(&admit.batch, &of[i]->part, BT_SCHED_INSIDE);
        }
        for (uint32_t i = 0; i < 4; i++) {
            assert_null(bt_sched_admit_next(&admit, 4));
            bt_sched_batch_move(&admit.batch, &of[i]->part, BT_SCHED_OUTSIDE);
        }
    }
    assert_true(bt_list_empty(&admit.leases));
}

/* One of 3 s, and short ones of 0.1 s that never end: it lets those pass that
 * come in its first 4 x 3 s, less 4 x 0.1 s of their own: before 11.6 s. */
static void long_answer_is_overtaken_up_to_its_bound(void **state)
{
    const bt_sched_work_t whole = {.answer_us = 3 * SEC};
    const bt_sched_work_t part = {.answer_us = SEC / 10};
    bt_sched_turn_t long_one, other;
    bt_list_t queue;

    (void)state;
    bt_sched_turn_init(&long_one, 0, 0);
    long_one.slack_us = bt_sched_slack_us(BT_SCHED_LENGTH, &whole);
    for (uint64_t came_us = 0; came_us < 30u * SEC; came_us += SEC / 10) {
        bt_list_init(&queue);
        bt_sched_queue_insert(&queue, &long_one);
        bt_sched_turn_init(&other, 0, came_us);
        other.slack_us = bt_sched_slack_us(BT_SCHED_LENGTH, &part);
        bt_sched_queue_insert(&queue, &other);
        assert_int_equal(queue.next == &other.link, came_us < 11600000);
        bt_list_remove(&other.link);
        bt_list_remove(&long_one.link);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(inflight_batching_admits_and_starts_at_any_time),
        BT_TEST(static_batch_closes_when_its_first_sequence_is_ready),
        BT_TEST(static_batch_reopens_after_its_last_sequence_ends),
        BT_TEST(canceled_sequence_does_not_delay_a_static_batch),
        BT_TEST(closed_batch_delays_only_leases_and_local_prompts),
        BT_TEST(batches_by_length_group_similar_lengths),
        BT_TEST(long_answer_is_overtaken_up_to_its_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
